"""Looks for repetitions while a machine runs, and skips them.

Where loops go back, a short description of the state is remembered. Once one is met again, the
state is written down in full, then and so many turns later; if it is the same but for shifts, the
next repetition is watched. If that ends in the same state again, and nothing in it decides
otherwise in those that follow, as many are skipped as that is known for: their shifts are added to
the registers and to the numbers of phases. The rest of the state is as it would be, positions in
clocks and times apart, which are compared with each other only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import simpy
from simpy.events import URGENT, Event

from tilesim.ir.mir import Branch
from tilesim.sim.grid.follow import MANY, Follower
from tilesim.sim.machine.machine import Entry, Machine, Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.steady.fields import snapshot
from tilesim.sim.steady.period import Obstacle, Watched
from tilesim.sim.steady.shifts import UNBOUNDED
from tilesim.sim.steady.snapshot import NotPlain, Snapshot

#: turns of a loop before it is looked at
_FIRST = 6
#: descriptions that are remembered
_REMEMBERED = 1024
#: how many repetitions of the description one repetition of the state may be
_MULTIPLES = 4
#: how often the search may fail
_ATTEMPTS = 6
#: how much is written of states, at most, for each scheduling point: a fifth of what that costs
_WRITTEN = 15
#: about how much is written of what is known of some bytes of memory
_EACH_RECORD = 20
#: a place where a loop goes back: the warp, and the number of the instruction
_Place: TypeAlias = "tuple[int, int]"


@dataclass
class _Counts:
    """What has been counted up to a moment."""

    steps: int
    time: float
    executed: list[int]
    phases: list[int]
    rounds: list[int]

    @classmethod
    def of(cls, skipper: Skipper) -> _Counts:
        """Those of now."""
        machine = skipper.machine
        return cls(
            machine.steps, machine.env.now, [w.executed for w in machine.warps],
            [b.phase for b in skipper.barriers], [b.number for b in skipper.named],
        )  # fmt: skip


class Skipper:
    """Skips repetitions of the state of a machine under the timed policy."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.barriers: list[Mbarrier] = [
            b for cta in machine.ctas for b in (*cta.mbarriers.values(), *cta.spare_mbarriers)
        ]
        self.named: list[NamedBarrier] = [b for cta in machine.ctas for b in cta.named.values()]
        self.named += [c.barrier for c in machine.clusters if c.barrier is not None]
        #: why no more is skipped
        self.obstacle: Obstacle | None = None
        self._plain = machine.code
        self._turns: dict[_Place, int] = {}
        self._chosen: _Place | None = None
        self._turn = 0
        self._others = 0
        self._next = _FIRST
        self._seen: dict[Any, int] = {}
        self._attempts = 0
        #: how much has been written of states, and how much the last one was
        self._written = 0
        self._size = 500 * len(machine.warps)
        #: while a repetition is looked for: its length in turns, and the states at its multiples
        self._length = 0
        self._states: list[tuple[int, Snapshot]] = []
        self._watched: Watched | None = None
        self._counts: _Counts | None = None
        self._hooked = self._with_turns(self._plain)
        machine.code = self._hooked

    # ------------------------------------------------------------------ turns of loops

    def _with_turns(self, plain: list[Entry]) -> list[Entry]:
        """The same steps; those that go back in a loop tell."""
        steps = list(plain)
        code = self.machine.plan.mir.code
        #: by number of a step that may go back, that of the branch that it makes
        branches = {
            n: n for n, i in enumerate(code)
            if isinstance(i.what, Branch) and i.what.target <= n and not i.what.polls
        }  # fmt: skip
        for first, (_, fused) in self.machine.plan.fused.items():
            if first + 1 in branches and len(fused) == 2 and first in fused:
                branches[first] = first + 1
        for number, back in branches.items():
            step, sync, cycles = steps[number]
            steps[number] = self._around(number, back, step), sync, cycles
        return steps

    def _around(self, number: int, back: int, step: Step) -> Step:
        turns = self._turns

        def turning(w: Warp) -> bool | None:
            stopped = step(w)
            if w.pc <= number:
                place = w.index, back
                turns[place] = count = turns.get(place, 0) + 1
                if place == self._chosen:
                    self._turned()
                elif self._watched is None:
                    self._considered(place, count)
            return stopped

        return turning

    def _considered(self, place: _Place, count: int) -> None:
        """Another loop has made a turn: it is the one to look at if the chosen one does not."""
        self._others += 1
        idle = self._chosen is None or self._others > 64 * len(self.machine.warps)
        if idle and count >= _FIRST:
            self._choose(place)

    def _choose(self, place: _Place) -> None:
        self._chosen = place
        self._others = self._turn = 0
        self._seen.clear()
        self._states.clear()
        self._length = 0
        self._next = 1

    def _turned(self) -> None:
        self._others = 0
        self._turn += 1
        if self._turn >= self._next:
            event = Event(self.machine.env)
            event._ok, event._value = True, None
            event.callbacks.append(self._look)
            self.machine.env.schedule(event, URGENT)

    # ------------------------------------------------------------------ between two moves

    def _look(self, _event: object) -> None:
        try:
            if self._watched is not None:
                self._end_period(self._watched)
            elif self._length:
                self._compare()
            else:
                self._search()
        except (NotPlain, RecursionError) as why:
            self._give_up(Obstacle(str(why)))

    def _give_up(self, why: Obstacle) -> None:
        """Nothing more is looked for in this run."""
        self.obstacle = why
        self._watched = None
        self.machine.code = self._plain
        self._chosen = None
        self._next = UNBOUNDED
        self._seen.clear()
        self._states.clear()

    def _describe(self) -> Any:
        """What is the same whenever the state repeats."""
        machine = self.machine
        now = machine.env.now
        return (
            tuple([w.pc for w in machine.warps]),
            tuple([(b.phase & 1, b.pending, b.tx) for b in self.barriers]),
            tuple(sorted([entry[0] - now for entry in machine.env._queue])),
        )

    def _search(self) -> None:
        key = self._describe()
        before = self._seen.get(key)
        self._seen[key] = self._turn
        self._next = self._turn + 1
        if before is not None:
            if self._is_worth_it():
                self._begin(self._turn - before)
        elif len(self._seen) > _REMEMBERED:
            self._fail(None)

    def _is_worth_it(self) -> bool:
        """Whether the states of one search cost little beside what has been executed."""
        memories = self.machine.globals.memories.values()
        recorded = sum(len(m.table) for m in memories if m.tracked)
        size = max(self._size, _EACH_RECORD * recorded)
        return self._written + 3 * size <= _WRITTEN * self.machine.steps

    def _state(self) -> Snapshot:
        state = snapshot(self.machine)
        self._size = len(state.shape)
        self._written += self._size
        return state

    def _begin(self, length: int) -> None:
        """A repetition of so many turns is looked for from now on."""
        if self.machine.forks:
            self._fail(None)
            return
        self._length = length
        self._states = [(self._turn, self._state())]
        self._next = self._turn + length

    def _compare(self) -> None:
        now = self._state()
        for turn, before in reversed(self._states):
            shifts = now.register_shifts(before) if now.repeats(before) else None
            if shifts is not None:
                self._length = self._turn - turn
                self._states = [(self._turn, now)]
                self._counts = _Counts.of(self)
                self._watched = Watched(self.machine, self._plain, shifts)
                self.machine.code = self._with_turns(self._watched.steps)
                self._next = self._turn + self._length
                self.began(shifts)
                return
        self._states.append((self._turn, now))
        self._next = self._turn + self._length
        if len(self._states) > _MULTIPLES:
            self._fail(None)

    def _fail(self, why: Obstacle | None) -> None:
        """Nothing was found: the search begins again, later and later."""
        self._attempts += 1
        if self._attempts >= _ATTEMPTS:
            self._give_up(why or Obstacle("no state repeats"))
            return
        self._seen.clear()
        self._states.clear()
        self._next = self._turn + (self._length << self._attempts) + 1
        self._length = 0

    def _end_period(self, watched: Watched) -> None:
        self._watched = None
        self.machine.code = self._hooked
        (_, before), counts = self._states[0], self._counts
        assert counts is not None
        now = self._state()
        shifts = now.register_shifts(before) if now.repeats(before) else None
        why = watched.obstacle
        if why is not None and why.period > 1 and self._length * why.period <= _REMEMBERED:
            self._attempts += 1
            if self._attempts < _ATTEMPTS:
                self._begin(self._length * why.period)
                return
        if why is not None or shifts is None or not watched.ends_as_it_began(shifts):
            self._fail(why)
            return
        times = watched.values.limit
        if times == UNBOUNDED:
            times = self._to_the_end(counts)
        if self.machine.forks:
            times = 0
        self.ended(times, shifts)
        if times > 0:
            self._jump(times, shifts, counts)
        length, self._length = self._length, 0
        self._seen.clear()
        self._next = self._turn + length + 1

    # ------------------------------------------------------------------ for who looks on

    def began(self, shifts: Mapping[tuple[int, int], Any]) -> None:
        """A repetition begins: registers have moved by ``shifts`` in the one before."""

    def ended(self, times: int, shifts: Mapping[tuple[int, int], Any]) -> None:
        """It has ended as it began, and so many more are skipped."""

    # ------------------------------------------------------------------ what is skipped

    def _to_the_end(self, before: _Counts) -> int:
        """Nothing ends this: as many repetitions as the limit on scheduling points leaves.

        Otherwise those that are skipped do not count for that limit.
        """
        machine = self.machine
        each = max(1, machine.steps - before.steps)
        times = (machine.options.max_steps - machine.steps) // each
        machine.steps += times * each
        return times

    def _jump(self, times: int, shifts: dict[tuple[int, int], Any], before: _Counts) -> None:
        """Skips ``times`` repetitions like the one that began at ``before``."""
        machine = self.machine
        for warp in (*machine.warps, *machine.forks):
            for registers in (warp.registers, *(lap.registers for lap in warp.laps.values())):
                for slot, value in enumerate(registers):
                    shift = shifts.get((id(warp), slot))
                    if shift is not None:
                        registers[slot] = value + times * shift
        now = _Counts.of(self)
        for barrier, a, b in zip(self.barriers, now.phases, before.phases, strict=True):
            barrier.skip(times * (a - b))
        for named, a, b in zip(self.named, now.rounds, before.rounds, strict=True):
            named.skipped += times * (a - b)
        executed = 0
        for warp, a, b in zip(machine.warps, now.executed, before.executed, strict=True):
            warp.executed += times * (a - b)
            executed += times * (a - b)
        machine.skipped.add(times, executed, times * (now.time - before.time))


def can_skip(machine: Machine) -> bool:
    """Whether repetitions of a machine can be skipped at all."""
    options = machine.options
    observer = machine.races.observer
    few = observer is None or (isinstance(observer, Follower) and len(observer.clusters) <= MANY)
    return (
        machine.timed
        and few
        and type(machine.env) is simpy.Environment
        and machine.trace is None
        and not options.numbers
        and options.answers is None
        and options.order is None
    )
