"""What a run has executed and what that did to its barriers, in order."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import TYPE_CHECKING

from tilesim.analysis.barrier_operands import can_name, may_name
from tilesim.analysis.executing_warps import executing
from tilesim.findings.finding import Finding, Iteration, Participant
from tilesim.ir import effects as fx
from tilesim.ir.declarations import Mbar
from tilesim.ir.effects import Effect
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.mistakes.context import array_of, branches_past, effects_of, has
from tilesim.records import dataclass
from tilesim.sim.machine.clock import NEVER
from tilesim.sim.machine.events import Event, InFlight, Key, Kind
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.warp import Agent, Blocked
from tilesim.sim.observers.event_log import EventLog
from tilesim.sim.observers.iteration import Iterations
from tilesim.sim.observers.wait_for import WaitFor

if TYPE_CHECKING:
    from tilesim.sim.machine.footprint import Access, Footprint
    from tilesim.sim.machine.machine import Entry, Machine, Step, Warp
    from tilesim.sim.machine.memory import Memory


#: effects on an mbarrier
_OnMbarrier = fx.Arrives | fx.Completes | fx.Expects | fx.Waits | fx.InitsMbarrier
#: effects that change memory
STORES: tuple[type[fx.Writes | fx.RemoteStore | fx.WritesMap], ...] = (
    fx.Writes, fx.RemoteStore, fx.WritesMap,
)  # fmt: skip
#: instructions that are noted of one run; after that only barriers are followed
LIMIT = 400_000
#: after everything that is executed
END = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Done:
    """An instruction that a warp has executed, for the ``nth`` time (counted from 0), at position
    ``tick`` of its clock, in these turns of the loops around it."""

    at: int
    warp: Agent
    op: Op
    nth: int
    tick: int
    iterations: tuple[Iteration, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """A touch of an mbarrier, at ``at`` by an instruction that was executed at ``issued``.

    ``phase`` is that of a credit or the one that a wait has seen completed, -1 for a wait that
    passes before any phase has. ``arrivals`` and ``tx`` are those of a credit.
    """

    at: int
    issued: int
    kind: Kind
    on: Mbarrier
    phase: int
    warp: Agent
    op: Op
    arrivals: int = 0
    tx: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """A warp has come to a round of a named barrier, or left it, by what was executed at
    ``issued``."""

    issued: int
    on: NamedBarrier
    phase: int
    warp: Agent


@dataclass(frozen=True, slots=True, eq=False)
class Accessed:
    """An access to memory at ``at``, by the ``nth`` execution of an instruction; ``access`` has the
    moment from which on it is over."""

    at: int
    nth: int
    memory: Memory
    footprint: Footprint
    access: Access


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A finding was made at ``at``, by what was ``acting`` or had issued what landed.

    ``sides``: its participants as this run has them, each with its access (None: that is not
    known).
    """

    at: int
    acting: Done | None
    sides: tuple[tuple[Participant, Accessed | None], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Stuck:
    """A warp that waits for ever."""

    warp: Agent
    blocked: Blocked
    on: object
    phase: int


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """One that waits for a phase of an mbarrier for ever, in instruction ``op``."""

    warp: Agent
    op: Op
    on: Mbarrier
    phase: int


def key_of(finding: Finding) -> Hashable:
    """What a finding is known by; notes are added to it after the run."""
    return finding.rule, finding.participants


def is_later(now: Iterable[Iteration], then: Iterable[Iteration], same: bool = False) -> bool:
    """Whether something is of a later turn of the loops around both than another thing; ``same`` if
    it is of the same turn."""
    for mine, other in zip(now, then, strict=False):
        if mine.loc != other.loc:
            break
        if mine.number is None or other.number is None:
            return False
        if mine.number != other.number:
            return mine.number > other.number
    return same


def _statement(op: Op) -> Hashable:
    """What instructions have in common that are made of one statement: what they do, and the lines
    of the source, without those of the PTX."""
    return op.mnemonic, op.loc.written


def _on_flags(mir: Mir) -> set[int]:
    """The instructions that read a flag, and all that store; none where no flag is read."""
    reads = {number for number, effect in mir.all_of(fx.Reads) if effect.sem != "weak"}
    stores = {number for kind in STORES for number, _ in mir.all_of(kind)}
    return reads | stores if reads else set()


class History(EventLog):
    """The trace of one cluster's run: instructions, touches of barriers, accesses by some
    instructions (``numbers``; ``flags``: and by all that store, or that read flags, where any does
    the latter), and the stuck warps."""

    def __init__(self, numbers: Collection[int] = (), *, flags: bool = False) -> None:
        super().__init__()
        self._numbers = {*numbers}
        self._flags = flags
        self.accesses: list[Accessed] = []
        self.machine: Machine
        self.touches: list[Touch] = []
        #: by barrier
        self._touched: dict[object, list[Touch]] = defaultdict(list)
        self.joins: list[Joined] = []
        self.leaves: list[Joined] = []
        self.stuck: tuple[Stuck, ...] = ()
        self.waits_for: WaitFor | None = None
        self.made: dict[Hashable, Made] = {}
        #: what was found again at the same lines, of other warps or bytes
        self.repeated: list[Finding] = []
        self._now: Done | None = None
        self._iterations: Iterations
        self.now = 0
        #: how often warps have come to instructions
        self._reached: dict[tuple[Agent, int], int] = defaultdict(int)
        #: by instruction that a warp still comes to: what it acts on
        self._ahead: dict[int, set[object]] = {}
        self._done: dict[tuple[Agent, int], list[Done]] = defaultdict(list)
        self._of: dict[Agent, list[Done]] = defaultdict(list)
        self._issued: dict[Key, int] = {}
        self._landing: InFlight | None = None
        self._statements: dict[Hashable, list[Op]] = defaultdict(list)

    # ------------------------------------------------------------------ hooks of the machine

    def watch(self, machine: Machine) -> list[Entry]:
        """The program's steps, each followed by its recording."""
        self.machine = machine
        self._iterations = Iterations(machine.loaded.mir)
        for op in machine.loaded.mir.ops():
            self._statements[_statement(op)].append(op)
        if self._flags:
            self._numbers |= _on_flags(machine.loaded.mir)
        return super().watch(machine)

    def around(self, step: Step, number: int, origin: Op | Loc, cycles: int) -> Step:
        """A step with its recording; of what is no instruction, how often a warp comes to it."""
        count = self._iterations.counting(number)
        if isinstance(origin, Op):
            return self._recording(step, origin, count)
        reached = self._reached

        def reaching(w: Warp) -> bool | None:
            reached[w.origin, number] += 1
            if count is not None:
                count(w)
            return step(w)

        return reaching

    def _recording(self, step: Step, op: Op, count: Callable[[Agent], None] | None) -> Step:
        noted = any(not isinstance(effect, fx.Defines) for effect in op.effects())

        accesses = op.number in self._numbers

        def run(w: Warp) -> bool | None:
            if accesses:
                self.machine.races.witness = self
            self.now = now = self.now + 1
            self._reached[w.origin, op.number] += 1
            tick = w.clock.item(w.component)
            if count is not None:
                count(w)
            iterations = self._iterations.of(w, op.number) if noted else ()
            known = self._done[w.origin, op.number]
            self._now = done = Done(now, w.origin, op, len(known), tick, iterations)
            stopped = step(w)
            if noted and not stopped and now <= LIMIT:
                known.append(done)
                self._of[w.origin].append(done)
            self._look()
            self._now = None
            return stopped

        return run

    def touch(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """An access is made."""
        number = access.op.number
        if number in self._numbers:
            done, warp = self.acting(), access.warp.origin
            own = done is not None and done.warp is warp and done.op.number == number
            # warps of a group that have come before the last one are still in the instruction
            nth = done.nth if done is not None and own else len(self.executions(warp, number))
            self.accesses.append(Accessed(self.now, nth, memory, footprint, access))

    def _look(self) -> None:
        findings = self.machine.outcome.findings
        for finding in findings[len(self.made) :]:
            sides = tuple((p, self._access_of(p)) for p in finding.participants)
            self.made[key_of(finding)] = Made(self.now, self.acting(), sides)

    def _access_of(self, p: Participant) -> Accessed | None:
        """The access of a participant of what has just been found; None if that cannot be told."""
        warp = self.warp(p.cta, p.warp)
        found = [
            a for a in self.accesses
            if a.access.warp.origin is warp and a.access.op.number == p.instruction
            and (a.access.component, a.access.tick) == p.moment
        ]  # fmt: skip
        in_flight = p.moment is not None and p.moment[1] == NEVER
        if not in_flight or (found and found[-1].at == self.now):
            return found[-1] if found else None
        return found[0] if len({a.nth for a in found}) == 1 else None

    def acting(self) -> Done | None:
        """What is being executed, or has issued what is landing."""
        landing = self._landing
        if landing is None or not isinstance(landing.warp, Agent):
            return self._now
        issued = self._issued.get(landing.key)
        done = self.executions(landing.warp.origin, landing.op.number)
        return next((d for d in reversed(done) if d.at == issued), None)

    def note(self, event: Event) -> None:
        """A touch of a synchronisation object."""
        kind, phase, warp, op = event.kind, event.phase, event.warp, event.op
        on = self.object(event.object)
        if not isinstance(on, Mbarrier | NamedBarrier) or op is None or not isinstance(warp, Agent):
            return
        landing = self._landing
        issued = self.now if landing is None else self._issued.get(landing.key, self.now)
        if isinstance(on, NamedBarrier):
            rounds = self.joins if kind == "join" else self.leaves
            rounds.append(Joined(issued, on, phase, warp.origin))
            return
        arrivals = tx = 0
        if kind == "credit":
            credit = on.current.credits[-1]
            arrivals, tx = credit.arrivals, credit.tx
        touch = Touch(self.now, issued, kind, on, phase - on.base, warp.origin, op, arrivals, tx)
        self.touches.append(touch)
        self._touched[on].append(touch)

    def spawn(self, operation: InFlight) -> None:
        """An asynchronous operation starts."""
        self._issued[operation.key] = self.now

    def lands(self, operation: InFlight) -> None:
        """An asynchronous operation is about to take effect."""
        self.now += 1
        self._landing = operation

    def landed(self, operation: InFlight) -> None:
        """It has taken effect."""
        self._look()
        self._landing = None

    def again(self, finding: Finding) -> None:
        """Keeps what was found before at the same lines."""
        self.repeated.append(finding)

    def over(self) -> None:
        """Keeps the stuck warps, and why nothing can end that."""
        self.now += 1
        self._look()
        machine = self.machine
        self.stuck = tuple(
            Stuck(w, w.blocked, w.blocked.on, getattr(w.blocked.on, "phase", 0))
            for w in machine.warps
            if w.blocked is not None and not w.exited
        )
        self.waits_for = WaitFor(machine)
        for waiter in self.stuck:
            self.waits_for.suppliers(waiter.warp)
        for warp in machine.warps:
            for coming in self.waits_for.coming(warp):
                self._ahead.setdefault(coming.op.number, set()).update(coming.on)

    # ------------------------------------------------------------------ questions

    def warp(self, cta: int, number: int | None) -> Agent | None:
        """A warp of a CTA of this cluster."""
        return next(
            (w for w in self.machine.warps if w.cta.number == cta and w.number == number), None
        )

    def executions(self, warp: Agent, number: int) -> list[Done]:
        """When a warp has executed an instruction."""
        return self._done.get((warp, number), [])

    def made_by(self, accessed: Accessed | None) -> Done | None:
        """What has made an access."""
        if accessed is None:
            return None
        access = accessed.access
        done = self.executions(access.warp.origin, access.op.number)
        return done[accessed.nth] if accessed.nth < len(done) else None

    def last(self, warp: Agent, number: int, before: int) -> Done | None:
        """The last time that it has, up to ``before``."""
        done = self.executions(warp, number)
        place = bisect_left(done, before + 1, key=lambda d: d.at)
        return done[place - 1] if place else None

    def joined(self, done: Done) -> tuple[object, int] | None:
        """The named barrier, and its round, that an execution has joined; one that waits there is
        executed when it leaves."""
        every = (*self.joins, *self.leaves)
        mine = (j for j in every if j.issued == done.at and j.warp is done.warp)
        return next(((j.on, j.phase) for j in mine), None)

    def ever(self, number: int) -> bool:
        """Whether any warp has executed an instruction."""
        return any(self._done.get((w, number)) for w in self.machine.warps)

    def ahead(self, number: int, on: object = None) -> bool:
        """Whether any warp would still come to an instruction (that acts on a barrier)."""
        found = self._ahead.get(number, set())
        return bool(found) and (on is None or on in found)

    def comes_to(self, warp: Agent, number: int) -> bool:
        """Whether a warp would still come to an instruction that others may wait for."""
        coming = () if self.waits_for is None else self.waits_for.coming(warp)
        return any(one.op.number == number for one in coming)

    def objects(self) -> list[Mbarrier]:
        """The mbarriers of the cluster."""
        self.object(None)
        return [on for on in self._objects.values() if isinstance(on, Mbarrier)]

    def number_of(self, on: Mbarrier | NamedBarrier) -> int | None:
        """The place of a barrier in its array, counted from 0."""
        if not isinstance(on, Mbarrier):
            return None
        if on.slot is not None:
            return on.slot
        return sum(b.address < on.address for b in self.array(on))

    def array(self, on: Mbarrier) -> list[Mbarrier]:
        """The barriers of its array in one CTA."""
        mine = array_of(on)
        return [b for b in self.objects() if b.cta is on.cta and array_of(b) == mine]

    def slots_of(self, on: Mbarrier) -> int:
        """How many barriers its array has in one CTA."""
        return len(self.array(on))

    def array_name(self, on: Mbarrier) -> str:
        """What reports call its array: its name, or that of the variable if it has no other
        barriers; else the barrier's. One CTA is spoken of."""
        if on.slot is not None:
            return on.name
        if on.is_named_by_source:
            return re.sub(r"(?:\[\d+\]|\.index\(\d+\))$", "", on.name)
        others = [b for b in self.objects() if b.cta is on.cta and b.variable == on.variable]
        if len(others) > 1 and len(self.array(on)) == len(others):
            return on.variable
        return on.named.seen_from(on.cta.number)

    def between(
        self, warp: Agent, first: int = 0, last: int = END, *kinds: type, **fields: object
    ) -> list[Done]:
        """What a warp has executed in a time, both ends left out (with an effect of one of these
        classes, and with these fields)."""
        done = self._of.get(warp, [])
        low = bisect_left(done, first + 1, key=lambda d: d.at)
        found = done[low : bisect_left(done, last, key=lambda d: d.at)]
        return [d for d in found if has(d, *kinds, **fields)] if kinds else found

    def first(
        self, warp: Agent, after: int, *kinds: type, last: int = END, **fields: object
    ) -> Done | None:
        """The first thing with such an effect that a warp has executed after a time."""
        return next(iter(self.between(warp, after, last, *kinds, **fields)), None)

    def latest(
        self, warp: Agent, before: int = END, *kinds: type, first: int = 0, **fields: object
    ) -> Done | None:
        """The last thing with such an effect that a warp has executed before a time."""
        return next(reversed(self.between(warp, first, before, *kinds, **fields)), None)

    def peers(self, warp: Agent) -> list[Agent]:
        """The warps of its CTA, itself among them."""
        return [w for w in self.machine.warps if w.cta is warp.cta]

    def suppliers(self, warp: Agent) -> list[tuple[Agent, Op]]:
        """The warps that may still end the wait of a stuck one, and by which instruction."""
        return [] if self.waits_for is None else [*self.waits_for.suppliers(warp)]

    @property
    def waiting(self) -> list[Waiting]:
        """The warps that wait for mbarriers for ever."""
        return [
            Waiting(s.warp, s.blocked.op, s.on, s.phase) for s in self.stuck
            if isinstance(s.on, Mbarrier) and s.blocked.op is not None
        ]  # fmt: skip

    @property
    def waited(self) -> set[Mbarrier]:
        """The mbarriers for which a warp has waited, or waits for ever."""
        blocked = {s.on for s in self.stuck if isinstance(s.on, Mbarrier)}
        return blocked | {t.on for t in self.passes()}

    def waiters(self, on: Mbarrier) -> set[Agent]:
        """The warps that have waited for a barrier, or wait for it for ever."""
        return {t.warp for t in self.passes(on=on)} | {s.warp for s in self.stuck if s.on is on}

    def touched(
        self, kind: Kind | None = None, on: object = None, warp: Agent | None = None
    ) -> list[Touch]:
        """What was done to mbarriers (one of them, by ``warp``), in order."""
        found = self.touches if on is None else self._touched.get(on, [])
        return [
            t for t in found
            if (kind is None or t.kind == kind) and (warp is None or t.warp is warp)
        ]  # fmt: skip

    def touches_around(self, when: int, distance: int) -> list[Touch]:
        """What was done to mbarriers at most ``distance`` before or after a time, in order."""
        low = bisect_left(self.touches, when - distance, key=lambda t: t.at)
        high = bisect_left(self.touches, when + distance + 1, key=lambda t: t.at)
        return self.touches[low:high]

    def arrivals(self, warp: Agent | None = None, on: object = None) -> list[Touch]:
        """The arrivals on mbarriers."""
        return [t for t in self.touched(None, on, warp) if t.arrivals > 0]

    def passes(self, warp: Agent | None = None, on: object = None) -> list[Touch]:
        """The waits on mbarriers that were passed."""
        return self.touched("pass", on, warp)

    def credits(self, on: object = None, warp: Agent | None = None) -> list[Touch]:
        """What was credited to mbarriers: arrivals, and bytes that are expected or completed."""
        return self.touched("credit", on, warp)

    def at(self, warp: Agent, number: int, when: int) -> Done | None:
        """What a warp has executed at a time, if that was this instruction."""
        done = self.executions(warp, number)
        place = bisect_left(done, when, key=lambda d: d.at)
        return done[place] if place < len(done) and done[place].at == when else None

    def turns_at(self, touch: Touch) -> tuple[Iteration, ...]:
        """The turns of the loops in which a barrier was touched."""
        done = self.at(touch.warp, touch.op.number, touch.issued)
        return () if done is None else done.iterations

    def iterations_of(self, finding: Finding, p: Participant) -> tuple[Iteration, ...]:
        """The turns of loops in which a warp did, or waits for, what a finding says."""
        warp = self.warp(p.cta, p.warp)
        if warp is None or p.instruction is None:
            return p.iterations
        for stuck in self.stuck:
            op = stuck.blocked.op
            if stuck.warp is warp and op is not None and op.number == p.instruction:
                return self._iterations.of(warp, p.instruction)
        done, made = None, self.made.get(key_of(finding))
        if made is not None:
            done = self.made_by(next((a for side, a in made.sides if side is p), None))
            acting = made.acting
            if done is None and acting is not None and acting.warp is warp:
                done = acting if acting.op.number == p.instruction else None
        every = self.executions(warp, p.instruction)
        if done is None and len(every) == 1:
            done = every[0]
        return p.iterations if done is None else done.iterations

    # ------------------------------------------------------------------ the code

    def code_of(self, warp: Agent) -> Iterator[Op]:
        """The instructions that a warp can reach, and the plain arrivals of its role that a
        condition keeps it from: that may be the mistake."""
        mir = self.machine.loaded.mir
        for number, warps in enumerate(executing(mir)):
            what, role = mir.code[number].what, mir.code[number].role
            effects = mir.effects[number]
            own = bool(role) and role == mir.roles[warp.number] and any(
                isinstance(e, fx.Arrives) and e.bytes is None for e in effects
            )  # fmt: skip
            if isinstance(what, Op) and (own or warp.number in warps):
                yield what

    def may_name(self, mbar: Mbar, on: Mbarrier) -> bool:
        """Whether an operand may mean a barrier, or another one of its array."""
        return may_name(self.machine.loaded.mir, mbar, on.address)

    def acts_on(self, what: object, on: Mbarrier, *kinds: type[_OnMbarrier]) -> bool:
        """Whether an instruction has such an effect on what may be this barrier, or another one of
        its array."""
        return any(isinstance(e, kinds) and self.may_name(e.mbar, on) for e in effects_of(what))

    def names(self, warp: Agent, op: Op, on: Mbarrier, kinds: tuple[type[Effect], ...]) -> bool:
        """Whether an instruction of a warp that has such an effect can name this very barrier."""
        mir = self.machine.loaded.mir
        for effect in mir.effects[op.number]:
            mbar = getattr(effect, "mbar", None)
            if isinstance(effect, kinds) and isinstance(mbar, Mbar):
                far = getattr(effect, "multicast", None) is None and warp.cta is not on.cta
                if can_name(mir, mbar, on.address, far=far):
                    return True
        return False

    def times(self, warp: Agent, number: int) -> int:
        """How often a warp has come to an instruction; a wait counts each time it is looked at."""
        return self._reached.get((warp, number), 0)

    def condition_past(self, warp: Agent, op: Op) -> Loc | None:
        """Where the condition is written that has led a warp past an instruction: of those around
        it the innermost one to which the warp has come; None if it has come to none."""
        past = branches_past(self.machine.loaded.mir, op)
        around = [branch.loc for number, branch in past if self.times(warp, number)]
        return around[-1] if around else None

    def of_statement(self, op: Op) -> list[Op]:
        """The instructions that compilers, or loops of Python, have made of one statement."""
        return self._statements[_statement(op)]

    def supplies(self, warp: Agent, on: Mbarrier) -> list[Op]:
        """Instructions of a warp that arrive on, or complete bytes of, a barrier of its array."""
        near = warp.cta is on.cta
        return [
            op for op in self.code_of(warp)
            if any(isinstance(e, fx.Arrives | fx.Completes) and self.may_name(e.mbar, on)
                   and (near or e.multicast is not None or e.mbar.remote) for e in op.effects())
        ]  # fmt: skip
