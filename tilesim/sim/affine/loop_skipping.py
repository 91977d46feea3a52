"""Looks for repetitions while a machine runs, and skips them.

Where loops go back, a short description of the state is remembered. Once one is met again, the
state is written down in full, then and so many turns later; if it is the same but for shifts, the
next repetition is watched (a short one at once, with the shifts that the registers had in the one
before). If that ends in the same state again, and nothing in it decides otherwise in those that
follow, as many are skipped as that is known for: their shifts are added to the registers and to the
numbers of phases. The rest of the state is as it would be, positions in clocks and times apart,
which are compared with each other only.

All that costs something, so it is begun only where the turns that remain promise more. Costs are
counted in instructions: to write one item of a state and to compare it costs a sixth of executing
one, and to watch one as much again. What was learnt of a loop in one run of a program, that turns
of it could be skipped or that something differs from turn to turn, counts in the next.

That is done for a loop, and apart from it for the loop around it: its turns may be the same
although they begin and end with what is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tilesim.ir.mir import Branch
from tilesim.sim.affine.cluster_classes import Follower, TripCounts
from tilesim.sim.affine.cluster_values import MANY
from tilesim.sim.affine.evaluator import Register
from tilesim.sim.affine.free_parameter import UNBOUNDED, Obstacle
from tilesim.sim.affine.loop_period import (
    FIRST,
    BackEdge,
    Counts,
    Iteration,
    Jump,
    Level,
    Remaining,
    Watched,
    register_shifts,
)
from tilesim.sim.affine.shifts import NoShift, Shift
from tilesim.sim.affine.snapshot import Glance, NotPlain, Snapshot
from tilesim.sim.affine.state_fields import snapshot
from tilesim.sim.machine.footprint import Access, Footprint
from tilesim.sim.machine.machine import Entry, Machine, Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.schedule import TimedEnvironment
from tilesim.sim.machine.unknown import Open

#: what it costs to write one item of a state and to compare it, and to watch an instruction, where
#: to execute an instruction costs 1
_ITEM, _WATCHING = 1 / 6, 1.0
#: the same where an instruction stands for those of other clusters, too, and takes longer
_ITEM_ALL, _WATCHING_ALL = 1 / 24, 3.0
#: a repetition is watched before two states are known to be the same if that costs at most so many
#: times what it costs to write them
_GUESSED = 4
#: repetitions that are executed whole after some of which turns of a loop inside were left out
WHOLE = 2
#: what a search may cost of what it may save, and when it begins of all that is executed, if it is
#: known how often the loop still turns; of what is executed, all of them together, if it is not
_PART, _MOST, _SHARE = 0.6, 0.32, 0.15
#: the latter where what differs from turn to turn has ended a search in an earlier run
_IN_VAIN = 0.02


class Thrift:
    """What searches in a run may cost; ``heads``: by branch that goes back where to, ``alone``: the
    machine stands for no other clusters."""

    def __init__(self, machine: Machine, heads: dict[int, int], *, alone: bool) -> None:
        self._machine = machine
        self._remaining = Remaining(machine.plan, heads)
        self._item = _ITEM if alone else _ITEM_ALL
        self._watching = _WATCHING if alone else _WATCHING_ALL
        #: how much was written of the last state
        self._size = 500 * len(machine.warps)
        #: loops of which earlier runs have skipped turns, and in which they could not
        self._repeating = frozenset(machine.plan.repeating)
        self._in_vain = frozenset(machine.plan.differing) - self._repeating

    def written(self, level: Level, state: Snapshot) -> None:
        """A state has been written down."""
        self._size = len(state.shape) + sum(len(shape) for shape, _ in state.parts.values())
        level.cost += self._size * self._item

    def watched(self, level: Level, executed: int) -> None:
        """So many instructions have been watched."""
        level.cost += executed * self._watching

    def may_guess(self, each: int) -> bool:
        """Whether to watch so many instructions before two states are known to be the same."""
        return each * self._watching <= _GUESSED * self._size * self._item

    def is_worth_it(
        self, level: Level, before: Iteration, each: int, states: int, left_out: int = 0
    ) -> bool:
        """As `Skipper` asks; if not, says when to ask again."""
        assert level.place is not None
        warp, back = level.place
        cost = states * self._size * self._item + (each + left_out) * self._watching
        if left_out:
            cost += WHOLE * (each + left_out)
        registers = before.registers[warp]
        often = self._remaining.repetitions(self._machine.warps[warp], back, registers)
        executed = self._machine.executed
        if often is not None:
            executed += often * each
            dear = not level.states and cost > _MOST * executed
            if dear or cost > _PART * each * (often - states):
                level.rest()
                return False
        in_vain = back in self._in_vain
        if (often is not None or back in self._repeating) and not level.attempts and not in_vain:
            return True
        if level.cost + cost > (_IN_VAIN if in_vain else _SHARE) * executed:
            level.seen.clear()
            level.next = level.iteration + level.iteration // 2
            return False
        return True


def can_skip(machine: Machine) -> bool:
    """Whether repetitions of a machine can be skipped at all."""
    options = machine.options
    observer = machine.races.observer
    few = observer is None or (isinstance(observer, Follower) and len(observer.clusters) <= MANY)
    return (
        machine.timed
        and few
        and isinstance(machine.env, TimedEnvironment)
        and machine.trace is None
        and not options.numbers
        and options.order is None
    )


# ------------------------------------------------------------------ repetitions that are skipped


#: descriptions that are remembered
_REMEMBERED = 1024
#: how many repetitions of the description one repetition of the state may be
_MULTIPLES = 4
#: how often the search may fail
_ATTEMPTS = 6


class Skipper:
    """Skips repetitions of the state of a machine under the timed policy.

    ``thrifty``: a search is begun only where what remains promises more than it costs. ``parts``:
    clusters that take the same steps may make different numbers of repetitions.
    """

    thrifty = True
    parts = True

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.barriers: list[Mbarrier] = [
            b for cta in machine.ctas for b in (*cta.mbarriers.values(), *cta.spare_mbarriers)
        ]
        self.named: list[NamedBarrier] = [b for cta in machine.ctas for b in cta.named.values()]
        self.named += [c.barrier for c in machine.clusters if c.barrier is not None]
        #: why no more is skipped
        self.obstacle: Obstacle | None = None
        observer = machine.races.observer
        self.follower = observer if isinstance(observer, Follower) else None
        machine.races.observer = self
        self._plain = machine.code
        #: whether products are executed together that stand in a row, and whether that is to end
        self._in_rows, self._wanted = bool(machine.plan.rows.keys() - machine.plan.assigned), False
        self._iterations: dict[BackEdge, int] = {}
        #: by number of a branch that goes back: where to
        self._heads: dict[int, int] = {}
        self._inner, self._outer = Level(), Level()
        #: turns of other loops since the last one of the chosen loop; after how many that is over
        self._others, self._idle = 0, 64 * len(machine.warps)
        self._watched: Watched | None = None
        self._watching: Level | None = None
        self._counts: Counts | None = None
        self._hooked = self._with_iterations(self._plain)
        self._thrift = Thrift(machine, self._heads, alone=self.follower is None)
        assert isinstance(machine.env, TimedEnvironment)
        self._env = machine.env
        machine.code = self._hooked

    # ------------------------------------------------------------------ turns of loops

    def _with_iterations(self, plain: list[Entry]) -> list[Entry]:
        """The same steps; those that go back in a loop tell."""
        steps, code = list(plain), self.machine.plan.mir.code
        #: by number of a step that may go back, that of the branch that it makes
        branches: dict[int, int] = {}
        for n, i in enumerate(code):
            if isinstance(i.what, Branch) and i.what.target <= n:
                branches[n] = n
                self._heads[n] = i.what.target
        for row in self.machine.plan.rows:
            if row[0] + 1 in branches and len(row) == 2:
                branches[row[0]] = row[0] + 1
        for number, back in branches.items():
            step, sync, cycles = steps[number]
            steps[number] = self._around(number, back, step), sync, cycles
        return steps

    def _around(self, number: int, back: int, step: Step) -> Step:
        iterations, what = self._iterations, self.machine.plan.mir.code[back].what
        polls = isinstance(what, Branch) and what.polls

        def turning(w: Warp) -> bool | None:
            stopped = step(w)
            if w.pc <= number and not (polls and _only_looked(w)):
                if self._wanted:
                    Glance(self._env, self._execute_singly)
                place = w.index, back
                iterations[place] = count = iterations.get(place, 0) + 1
                if place == self._inner.place:
                    self._others = 0
                    self._turned(self._inner)
                elif place == self._outer.place:
                    self._turned(self._outer)
                elif self._watching is None:
                    self._others += 1
                    chosen = self._inner.place
                    if chosen is None or chosen[0] == w.index or self._others > self._idle:
                        self._considered(place, count)
            return stopped

        return turning

    def _considered(self, place: BackEdge, count: int) -> None:
        """Another loop has made a turn: it is the one to look at if it is around the chosen one, or
        if that does not."""
        inner, outer = self._inner, self._outer
        if inner.place is not None:
            if self._is_around(place, inner.place):
                if outer.place is None or self._is_around(outer.place, place):
                    outer.choose(place)
                    self._turned(outer)
                return
            if self._others <= self._idle:
                return
        if count >= FIRST and not inner.over:
            self._others = 0
            inner.choose(place)
            if outer.place is not None and not self._is_around(outer.place, place):
                outer.place = None

    def _is_around(self, place: BackEdge, inner: BackEdge) -> bool:
        """Whether one loop of a warp is inside of another."""
        (warp, back), (other, number) = place, inner
        return warp == other and back > number and self._heads[back] <= self._heads[number]

    def _turned(self, level: Level) -> None:
        level.iteration += 1
        if level is self._outer and not level.over and self._watching is None:
            self._inner.forget()
        if level.iteration >= level.next and not level.due:
            level.due = True
            Glance(self.machine.env, partial(self._look, level))

    # ------------------------------------------------------------------ global memory

    def touch(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """The machine accesses global memory."""
        if self.follower is not None:
            self.follower.touch(memory, footprint, access)
        for level in (self._inner, self._outer):
            if level.length and memory.tracked:
                level.touched[footprint] = None
        if self._watched is not None:
            self._watched.touch(memory, footprint, access)

    # ------------------------------------------------------------------ between two moves

    def _look(self, level: Level, _event: object) -> None:
        level.due = False  # turns that are made in one move are looked at once
        if level.iteration < level.next:
            return
        try:
            if self._watching is level and self._watched is None:
                self._watch_whole(level)
            elif self._watching is level:
                self._end_period(level)
            elif self._watching is not None:
                if level is self._inner:
                    return
                self._stop_watching()
                self._inner.length = 0
                self._look(level, _event)
            elif level.length:
                self._compare(level)
            else:
                self._search(level)
        except (NotPlain, RecursionError) as why:
            self._give_up(level, Obstacle(str(why)))

    def _stop_watching(self) -> Watched | None:
        watched, self._watched, self._watching = self._watched, None, None
        self.machine.code = self._hooked
        return watched

    def _give_up(self, level: Level, why: Obstacle) -> None:
        """Nothing more is looked for in a loop; in this run, if there is no other."""
        self.obstacle = why
        if self._watching is level:
            self._stop_watching()
        level.give_up()
        if self._inner.over and (self._outer.over or self._outer.place is None):
            self.machine.code = self._plain
            self.machine.races.observer = self.follower
            self._outer.give_up()

    def _describe(self) -> Any:
        """What is the same whenever the state repeats."""
        machine = self.machine
        now = self._env.now
        return (
            tuple([w.pc for w in machine.warps]),
            tuple([(b.phase & 1, b.pending, b.tx) for b in self.barriers]),
            tuple(sorted([t - now for t, *_, e in self._env.due if type(e) is not Glance])),
        )

    def _search(self, level: Level) -> None:
        level.next = level.iteration + 1
        key = self._describe()
        before, now = level.seen.get(key), self._iteration(level)
        level.seen[key] = now
        if before is not None:
            each, left_out = now.executed - before.executed, now.skipped - before.skipped
            guesses = self._thrift.may_guess(each + left_out)
            if not self._is_worth_it(level, before, each, 2 if guesses else 3, left_out):
                return
            shifts = register_shifts(self.machine, before, now) if guesses else None
            self._begin(level, now.number - before.number)
            if shifts is not None and level.length and self._goes_on(level, before, 1):
                level.guessed = True
                self._watch(level, shifts)
        elif len(level.seen) > _REMEMBERED:
            self._fail(level, None)

    def _iteration(self, level: Level) -> Iteration:
        machine, follower = self.machine, self.follower
        mirrors = {} if follower is None else follower.mirrors
        return Iteration(
            level.iteration, machine.executed, machine.skipped.instructions,
            [list(w.registers) for w in machine.warps],
            {n: dict(m.registers.differing) for n, m in mirrors.items()},
        )  # fmt: skip

    def _is_worth_it(
        self, level: Level, before: Iteration, each: int, states: int, left_out: int = 0
    ) -> bool:
        """Whether a search with so many states costs little beside what may be skipped: turns in
        which ``each`` instructions are executed, and ``left_out`` are not, like those since another
        one."""
        return not self.thrifty or self._thrift.is_worth_it(level, before, each, states, left_out)

    def _state(self, level: Level) -> Snapshot:
        state = snapshot(self.machine, level.places)
        self._thrift.written(level, state)
        return state

    def _begin(self, level: Level, length: int) -> None:
        """A repetition of so many turns is looked for from now on."""
        plan, warps = self.machine.plan, self.machine.warps
        is_open = any(type(w.registers[n]) is Open for n in plan.open_registers for w in warps)
        if plan.async_accesses or is_open:
            self._fail(level, None)
            return
        self._execute_singly()
        if self._in_rows:
            return  # another iteration
        level.length = length
        level.places.clear()
        level.touched.clear()
        level.next = level.iteration + length
        level.guessed = False
        level.states = [(self._iteration(level), self._state(level))]

    def _execute_singly(self, _event: object = None) -> None:
        """From now on each product is executed by itself: together they leave other records than
        one after the other, and states are compared. Later, while a warp is ahead of others."""
        plan, steps = self.machine.plan, list(self._plain)
        self._wanted = self._in_rows and any(w.warpgroup.ahead for w in self.machine.warps)
        if self._wanted or not self._in_rows:
            return
        for row in plan.rows.keys() - plan.assigned:
            if steps[row[0]] is plan.rows[row]:
                steps[row[0]] = plan.alone[row[0]]
        self._plain, self._in_rows = steps, False
        self.machine.code = self._hooked = self._with_iterations(steps)

    def _note_places(self, level: Level) -> None:
        """What has been accessed since the last state may be accessed in each repetition."""
        places = [other for place in level.touched for other in place.overlaps]
        level.places = dict.fromkeys(places)
        level.touched.clear()

    def _compare(self, level: Level) -> None:
        if self._goes_on(level, level.states[-1][0], 2):
            self._note_places(level)
            self._compare_with(level, self._state(level))

    def _compare_with(self, level: Level, now: Snapshot) -> None:
        """Watches what follows if one of the states before is that of now."""
        for iteration, before in reversed(level.states):
            shifts = now.register_shifts(before) if now.repeats(before, ahead=True) else None
            if shifts is not None:
                if self._goes_on(level, iteration, 1):
                    level.length = level.iteration - iteration.number
                    level.states = [(self._iteration(level), now)]
                    self._watch(
                        level, shifts, self.machine.skipped.instructions - iteration.skipped
                    )
                return
        level.states.append((self._iteration(level), now))
        level.next = level.iteration + level.length
        if len(level.states) > _MULTIPLES:
            self._fail(level, None)

    def _goes_on(self, level: Level, since: Iteration, states: int) -> bool:
        """Whether a search that has begun is still worth it, with so many more states; it ends if
        not."""
        left_out = self.machine.skipped.instructions - since.skipped
        each = self.machine.executed - since.executed
        if self._is_worth_it(level, since, each, states, left_out):
            return True
        level.attempts += 1
        level.restart(level.next)
        return False

    def _watch(self, level: Level, shifts: dict[Register, Shift], left_out: int = 0) -> None:
        """Watches the next repetition; in the one before ``left_out`` instructions were not
        executed: then some more are executed first. Lanes that are agents of their own when it
        begins are not followed; if some come to be, the state at its end is another one."""
        if self.machine.split_groups:
            self._fail(level, None)
            return
        level.next = level.iteration + level.length
        if left_out:
            self._watching, level.shifts, level.whole = level, shifts, WHOLE
            return
        self._counts = Counts.of(self.machine, self.barriers, self.named)
        self._watched = Watched(self.machine, self._plain, shifts, level.computed, self.follower)
        self._watching = level
        self.machine.code = self._with_iterations(self._watched.steps)
        self.began(shifts)

    def _watch_whole(self, level: Level) -> None:
        """All turns of the loop inside have been executed, since a state that was found again
        although some were left out. What is recorded is as it will be at the end of another such
        repetition once nothing is left of those turns."""
        level.whole -= 1
        level.next = level.iteration + level.length
        if level.whole:
            return
        self._watching = None
        self._note_places(level)
        level.states = [(self._iteration(level), self._state(level))]
        self._watch(level, level.shifts)

    def _fail(self, level: Level, why: Obstacle | None) -> None:
        """Nothing was found: the search begins again, later and later."""
        level.attempts += 1
        if level.attempts >= _ATTEMPTS:
            self._give_up(level, why or Obstacle("no state repeats"))
            return
        level.restart(level.iteration + (level.length << level.attempts) + 1)

    def _end_period(self, level: Level) -> None:
        watched, counts = self._stop_watching(), self._counts
        assert watched is not None
        assert counts is not None
        (_, before) = level.states[0]
        if level.guessed:
            self._note_places(level)
        now = self._state(level)
        executed = sum(w.executed for w in self.machine.warps) - sum(counts.executed)
        self._thrift.watched(level, executed)
        why = watched.obstacle
        if why is not None and why.period > 1 and level.length * why.period <= _REMEMBERED:
            level.attempts += 1
            if level.attempts < _ATTEMPTS:
                self._begin(level, level.length * why.period)
                return
        places = watched.touched.places()
        known = all(place in level.places for place in places)
        repeats = known and now.repeats(before, places)
        shifts = now.register_shifts(before) if repeats else None
        if why is None and shifts is None and level.guessed:
            level.guessed = False
            self._compare_with(level, now)
            return
        if why is not None or shifts is None:
            if level.place is not None:
                self.machine.plan.differing.add(level.place[1])
            self._fail(level, why)
            return
        wrong = watched.ends_as_it_began(shifts)
        if wrong is not None:
            self._try_again(level, wrong, now, shifts)
            return
        times = watched.values.limit
        if times == UNBOUNDED:
            times = self._to_the_end(counts)
        try:
            jump = self._longest(watched, times)
        except NoShift as obstacle:
            self._fail(level, Obstacle(str(obstacle)))
            return
        if not self.ended(jump.times, shifts) or not jump.times:
            self._fail(level, None)
            return
        self._jump(jump, counts)
        assert level.place is not None
        self.machine.plan.repeating.add(level.place[1])
        length, level.length = level.length, 0
        level.seen.clear()
        level.cost = level.attempts = 0
        level.next = level.iteration + length + 1

    def _longest(self, watched: Watched, times: int) -> Jump:
        if self.parts and self.follower is not None:
            apart = Jump.apart(self.machine, watched, self.follower)
            if apart is not None:
                return apart
        return Jump.over(self.machine, watched, times, self.follower)

    def _try_again(
        self, level: Level, wrong: set[Register], now: Snapshot, shifts: dict[Register, Shift]
    ) -> None:
        """Watches the next repetition, in which some registers move otherwise than by a shift."""
        level.attempts += 1
        if level.attempts >= _ATTEMPTS or (wrong <= level.computed and not level.guessed):
            self._fail(level, None)
            return
        if level.guessed:
            level.guessed = False  # the guess may be wrong, across the end of another loop, say
        else:
            level.computed |= wrong
        level.states = [(self._iteration(level), now)]
        self._watch(level, shifts)

    # ------------------------------------------------------------------ for what looks on

    def began(self, shifts: Mapping[tuple[int, int], Any]) -> None:
        """A repetition begins: registers have moved by ``shifts`` in the one before."""

    def ended(self, times: int, shifts: Mapping[tuple[int, int], Any]) -> bool:
        """It has ended as it began: whether so many more may be skipped."""
        return True

    # ------------------------------------------------------------------ what is skipped

    def _to_the_end(self, before: Counts) -> int:
        """Nothing ends this: as many repetitions as the limit on scheduling points leaves.

        Otherwise those that are skipped do not count for that limit.
        """
        machine = self.machine
        each = max(1, machine.steps - before.steps)
        times = (machine.options.max_steps - machine.steps) // each
        machine.steps += times * each
        return times

    def _jump(self, jump: Jump, before: Counts) -> None:
        """Skips repetitions like the one that began at ``before``."""
        machine, times = self.machine, jump.times
        jump.make()
        now = Counts.of(self.machine, self.barriers, self.named)
        for barrier, a, b in zip(self.barriers, now.phases, before.phases, strict=True):
            barrier.skip(times * (a - b))
        for named, a, b in zip(self.named, now.rounds, before.rounds, strict=True):
            named.skipped += times * (a - b)
        executed = 0
        for warp, a, b in zip(machine.warps, now.executed, before.executed, strict=True):
            warp.executed += times * (a - b)
            executed += a - b
        machine.by_parts += times * (now.by_parts - before.by_parts)
        cycles = now.time - before.time
        machine.skipped.add(times, times * executed, times * cycles)
        if jump.each is not None and self.follower is not None:
            counts = TripCounts(jump.each - times, executed, cycles, *jump.watched.decides)
            self.follower.trip_counts += (counts,)


def _only_looked(w: Warp) -> bool:
    """Whether a turn of a loop that may wait for others, which has just ended, did nothing."""
    lap = w.laps.get(w.pc)
    return lap is not None and lap.effects == w.effects
