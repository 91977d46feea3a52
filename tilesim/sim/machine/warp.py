"""A warp: 32 lanes with one program counter, an active mask, registers and a vector clock; and its
parts, lanes that have not been ordered since their ways parted (MACHINE 2).

Only `bar.warp.sync`, and barriers that both have passed, order what the lanes of a warp do. A warp
is one part as long as it acts as one. Where a branch splits it, each part gets a clock of its own:
what it knows, and whose it is. All parts know what the warp had done up to its last
synchronisation; of what came after that, each knows its own. That others learn of a part's accesses
is therefore seen at the part's component; what all lanes did before they parted, at the components
of all parts that have come of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from tilesim.findings.finding import NOTHING_STATED, Named, Rule, Stated
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.ir.op import Op
from tilesim.records import dataclass, field
from tilesim.sim.machine.async_groups import DRAINED, ORDER, FragmentUse, Groups, Inits
from tilesim.sim.machine.clock import GENERIC, GLOBAL, NEVER, SHARED, Clock, join, limited
from tilesim.sim.machine.errors import BarrierError, Fault, Side
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.release import Fences
from tilesim.wording import ranges

if TYPE_CHECKING:
    from tilesim.ir.ops.fence import FenceScope
    from tilesim.sim.machine.async_groups import Issuer, LaneGroups
    from tilesim.sim.machine.executable import Operand
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.labels import Place
    from tilesim.sim.machine.unknown import Unknown


class HavocRegion(Protocol):
    """Lanes that may go several ways, which the warp goes one after the other."""

    #: the end of the program
    end: int
    #: what has been stored on the way
    stored: set[object]
    #: the footprints in threads' own memory that the active lanes have surely stored
    own: frozenset[Any]

    def stores(self, footprint: object, number: int) -> None:
        """The active lanes store into what each has for itself, by this instruction."""
        ...

    def branch(self, number: int, target: int, taken: int | Unknown) -> None:
        """The active lanes come to a branch: ``taken`` are those that go on at its target, if
        that is known, the others at ``number``."""
        ...

    def trap(self, lanes: int) -> None:
        """``lanes`` end the launch on this way."""
        ...


class Elsewhere(Protocol):
    """What the registers of a warp hold in other clusters."""

    def saved(self) -> dict[int, Any]:
        """What differs there."""
        ...

    def restore(self, saved: dict[int, Any]) -> None:
        """Nothing else differs from now on."""
        ...

    def differs(self, evaluate: Callable[[Any], Any]) -> bool:
        """Whether an expression may have other values there."""
        ...

    def value_names(self, operand: Operand) -> Sequence[Hashable] | None:
        """For each lane what tells all values of an operand, here and there; None if it has one."""
        ...


#: asynchronous operations of an agent: their numbers begin with a multiple of this
_ISSUED = 1_000_000
#: a scalar per warp, or one value per lane
Value = int | float | NDArray[Any]


@dataclass(slots=True)
class Frame:
    """Lanes that have split: ``mask`` has met at instruction ``meet``.

    ``pending`` are lanes that go on, from where, when those that act now are through; ``arms`` says
    that both sides synchronise, ``loc`` where they split.
    """

    mask: int
    meet: int
    pending: list[tuple[int, int]] = field(default_factory=list)
    arms: bool = False
    loc: Loc = UNKNOWN
    #: agents that lanes of it are, and the one that waits for these
    running: int = 0
    forked: bool = False
    waiter: Agent | None = None
    #: of the only frame of such an agent: the one that its lanes come from
    parent: Frame | None = None


@dataclass(slots=True)
class Lap:
    """How things were when an iteration of a polling loop began: the effects of the warp, the
    machine's version and the registers.

    ``past``: the clock with which the wait on a word of memory began that the loop is; ``again``:
    the iteration has ended, and the next one begins.
    """

    effects: int
    version: int
    registers: list[Any]
    past: Clock | None = None
    again: bool = False


@dataclass(slots=True)
class Blocked:
    """What a parked warp waits for: the object, a clause for reports, the instruction.

    ``polling``: the warp is in a spin loop that only another agent's progress can end. ``named``:
    the barrier that follows the clause, and the ``parity`` of a wait on an mbarrier.
    """

    on: object
    clause: str
    op: Op | None
    loc: Loc
    polling: bool = False
    named: Named | None = None
    parity: int | None = None

    @property
    def text(self) -> str:
        """The whole clause."""
        return self._with("" if self.named is None else self.named.label)

    def seen_from(self, cta: int | None) -> str:
        """The same in a text that speaks of one CTA, or of none."""
        return self._with("" if self.named is None else self.named.seen_from(cta))

    def _with(self, label: str) -> str:
        what = f"{self.clause} {label}" if label else self.clause
        return what if self.parity is None else f"{what} parity {self.parity}"


class Awaited:
    """What warps wait for until it changes: a barrier, a pool, a warpgroup."""

    def __init__(self) -> None:
        self.waiters: list[Agent] = []

    def wake_waiters(self) -> None:
        """It has changed: all that wait look again."""
        waiters, self.waiters = self.waiters, []
        if waiters:
            waiters[0].machine.wake_all(waiters)


class Barrier(Awaited, ABC):
    """What warps synchronise through: an mbarrier, a named barrier, the groups of a warpgroup.
    ``component`` is that of clocks which counts its phases; ``named``: it, as findings name it."""

    def __init__(self, machine: Core, named: Named, component: int) -> None:
        super().__init__()
        self.machine = machine
        self.named = named
        self.component = component

    @property
    def label(self) -> str:
        """What the program calls it here."""
        return self.named.label

    def misuse(
        self, rule: Rule, message: str, fix: str, other: Side | None = None,
        notes: tuple[str, ...] = (), *, noted: Stated = NOTHING_STATED,
        arrivals: tuple[int, ...] = (), bytes_: tuple[int, ...] = (),
    ) -> BarrierError:  # fmt: skip
        """An operation on it that has no meaning, or is undefined, in the state it finds."""
        facts = Stated((self.named,), arrivals=arrivals, bytes=bytes_)
        return BarrierError(rule, message, fix, other, notes, facts, noted)

    @abstractmethod
    def state(self, cta: int | None = None) -> str:
        """How far it is, in a text that speaks of one ``cta``, or of none."""

    def __str__(self) -> str:
        return self.state()


#: a component and a tick for each of the parts of a warp: what knows one comes after all
Positions = tuple[tuple[int, int], ...]


class Agent(ABC):
    """One warp of a CTA, or lanes of it that go their own way: its state.

    `tilesim.sim.machine.machine.Warp` is the one that executes.
    """

    def __init__(self, machine: Core, cta: Place, index: int, number: int, role: str) -> None:
        self.machine = machine
        self.cta = cta
        self.components = machine.components
        self.index = index
        self.number = number
        self.role = role
        #: its component, and that of the part of it that acts (see `Parts`)
        self.base = machine.components.new()
        self.key = (index, 0)
        #: itself, or for lanes that act as an agent of their own, their warp; how many such there
        #: have been
        self.origin = self
        self.forked = 0
        self.issued = 0
        self.pc = 0
        self.registers: list[Any] = []
        self.fragments: dict[str, Any] = {}
        self.mask = FULL
        self.exited_lanes = 0
        self.frames: list[Frame] = []
        #: by head of a polling loop
        self.laps: dict[int, Lap] = {}
        self.blocked: Blocked | None = None
        #: how much of the instruction that it is blocked in it has done (`sim.machine.compose`)
        self.stage = 0
        self.exited = False
        #: what says whether that is executed which is (`tilesim.sim.machine.havoc`); what it has
        #: written, with what forgets it; how it goes several ways, if it does
        #: (`tilesim.sim.machine.havoc`)
        self.may_access: Unknown | None = None
        self.may_be_written: list[tuple[object, Callable[[Unknown], None]]] = []
        self.havoc_region: HavocRegion | None = None
        #: what its registers hold in other clusters, where these are followed
        self.elsewhere: Elsewhere | None = None
        #: 1 while lanes of one instruction act one by one: what they do is the next interval's
        self.apart = 0
        #: by component: the last position at which something has happened
        self.marks: dict[int, int] = {}
        #: the same for what leaves nothing in memory
        self.moments: dict[int, int] = {}
        self.effects = 0
        self.executed = 0
        #: branches at which its CTA might have ended (`tilesim.sim.machine.havoc`)
        self.stayed = 0
        self.registers_held = 0
        #: the parts whose lanes are active; and the first of them, whose clock and fences it has
        self.acting: list[Part]
        self.part: Part
        self.clock: Clock
        self.fences: Fences
        self.act_as(Part(FULL, self.base, np.zeros(0, np.int64), Fences(), {self.base: 0}))
        #: those that there are of its warp
        self.parts = Parts(self)
        #: by component of its parts: those of the elements that it releases (H15)
        self.elements: dict[int, tuple[int, ...]] = {}
        #: the lanes that have yet to pass an instruction which others have passed
        self.left = 0
        #: counts collective instructions that several parts execute; 0 outside of one
        self.iteration = self.iterations = 0
        #: its lanes may touch what others of them have written
        self.exchanges = machine.plan.exchanges
        #: its lanes that wait for others (`tilesim.sim.machine.divergence`), on ``origin``; what it
        #: waited to execute has been executed
        self.arrivals: list[Any] = []
        self.assembled = False
        #: by component of its parts: up to where others have shown to follow all of its lanes
        self.followed: dict[int, int] = {}
        #: by component: up to where its lanes have waited for each other
        self.gathered: dict[int, int] = {}
        #: the step after the last meeting of the lanes (they have met where they begin), and lanes
        #: that act while the others do nothing up to their next meeting
        self.met = 0
        self.alone = 0
        #: since all lanes last met, a branch has sent some elsewhere, or some have waited alone
        self.diverged = False
        #: None in warps that no fence.mbarrier_init reaches
        self.inits: Inits | None = None
        self.groups: dict[str, Groups] = {}
        #: those that every thread has of its own
        self.lane_groups: dict[str, LaneGroups] = {}
        self.generation: Any = None
        self.polled: Any = None
        #: by register: the peek whose answer it would hold
        self.looks: dict[int, Any] = {}
        self.cluster_round: Any = None
        self.setmaxnreg_count = 0
        #: fragments accessed since the last wgmma.fence, and how many of these there were; those
        #: into which numbers were only moved, with the last move
        self.dirty: set[str] = set()
        self.fenced = 0
        self.sunk: dict[str, Op] = {}
        #: by fragment: the last wgmma that uses it
        self.pending: dict[str, FragmentUse] = {}
        #: how many instructions of its warpgroup it has executed
        self.collective = 0
        self.last_collective: Op | None = None
        self.last_issue: dict[str, Op] = {}
        #: by component of its asynchronous accesses: the last one's tick
        #: (`tilesim.sim.machine.execute.memory`)
        self.async_ticks: dict[int, int] = {}
        #: None in programs without tcgen05
        self.tcgen05: Issuer | None = None

    @property
    def tick(self) -> int:
        """The warp's own position: advanced by `advance` after each publication.

        It is asked for where something happens at it (see ``marks``).
        """
        tick = self.clock.item(self.component)
        self.marks[self.component] = tick + self.apart
        return tick

    @property
    def moment(self) -> int:
        """The warp's own position, where it does what leaves nothing in memory: it passes a wait,
        joins a barrier, or changes its registers. That others come after it in time is enough; at
        ptx, mbarrier.inval asks for more (A6)."""
        if self.machine.options.ptx:
            return self.tick
        tick = self.clock.item(self.component)
        self.moments[self.component] = tick + self.apart
        return tick

    def sender(self, scope: FenceScope) -> Place:
        """The CTA for which it releases at ``scope``: the same one for all where it makes no
        difference, so that what all of them hand over at a place is one clock."""
        machine = self.machine
        all_alike = scope in ("gpu", "sys") and not machine.plan.asks_for_senders
        return machine.any_cta if all_alike else self.cta

    @property
    def positions(self) -> Positions:
        """Where its active lanes are, for each part of the warp that they are."""
        if len(self.acting) == 1:
            return ((self.component, self.tick),)
        return tuple((p.component, p.clock.item(p.component)) for p in self.acting)

    def is_known(self, clock: Clock, row: int, component: int, tick: int, lanes: int) -> bool:
        """Whether a clock, from ``row`` on, has what all of ``lanes`` did at a position, be it
        through the parts that they have belonged to since."""
        return self.parts.lanes_known(clock, row, component, tick, lanes)

    def in_order(self, component: int, tick: int, lanes: int) -> bool:
        """Whether each lane that acts comes, in time, after what all ``lanes`` of the warp did at a
        position: by program order, or by what orders lanes (E11, E19, E20; A27). In memory,
        `Part.settled` says so."""
        return all(
            self.comes_after(part.component, part.clock, component, tick, lanes)
            for part in self.acting
        )

    def comes_after(self, own: int, clock: Clock, component: int, tick: int, lanes: int) -> bool:
        """The same for the part at component ``own`` that has this clock."""
        if component == own:
            alone = self.mask & (self.mask - 1) == 0 and lanes == self.mask
            return alone or self.common >= tick
        return self.is_known(clock, 0, component, tick, lanes)

    def passed(self, component: int, tick: int) -> bool:
        """Whether each lane that acts comes, in time, after a position, in every schedule; where it
        is the agent's own, by what makes its lanes wait for each other."""
        known = self.clock.item(component) >= tick
        return known and (component != self.component or self.common >= tick)

    def rows(self, component: int) -> Clock:
        """What its clock says of a component, row by row: a view of it."""
        return self.clock[component :: self.components.size]

    def knows_to(self, row: int) -> int:
        """Up to where some of its lanes know what is told in a row of a clock."""
        return max(self.clock.item(row), *(part.clock.item(row) for part in self.parts.leaves))

    def advance(self) -> None:
        """Starts a new interval; what was published before does not include what follows."""
        if self.is_divided:
            for part in self.acting:
                self.parts.advance(part)
            return
        clock, component = self.clock, self.component
        visible, item = self.components.size + component, clock.item
        clock[component] = item(component) + 1
        clock[visible] = item(visible) + 1

    @property
    def fences_by_lane(self) -> bool:
        """Fences act for relaxed operations of their own thread only, also after a meeting."""
        return self.machine.options.ptx and self.number in self.machine.plan.fencing

    @property
    def is_divided(self) -> bool:
        """Whether the lanes of its warp are several parts."""
        return len(self.parts.leaves) > 1

    @property
    def may_divide(self) -> bool:
        """Whether they may be; False in programs whose warps always act as one."""
        return self.parts.may_be_several

    def act_as(self, part: Part, *others: Part) -> None:
        """What follows is done by lanes of ``part``, or of others as well."""
        self.part, self.acting = part, [part, *others]
        self.clock, self.component, self.fences = part.clock, part.component, part.fences

    def begin(self) -> None:
        """All components are known: its first interval starts."""
        self.part.clock = self.components.clock()
        self.act_as(self.part)
        self.advance()

    def split_off(self, mask: int, pc: int, frame: Frame) -> Self:
        """Lanes of ``frame`` that go on at ``pc`` as an agent of their own."""
        frame.running += 1
        self.forked += 1
        self.diverged = True
        other = copy(self)
        other.key = (self.index, -(64 * -self.key[1] + self.forked))
        other.issued = -other.key[1] * _ISSUED
        other.forked = other.executed = other.left = 0
        other.frames = [Frame(mask, frame.meet, parent=frame)]
        other.laps, other.looks = {}, dict(self.looks)
        other.generation = other.polled = other.blocked = None
        other.pc, other.mask = pc, mask
        other.regroup()
        return other

    def regroup(self) -> None:
        """Other lanes have become active: finds the parts that they are."""
        if not self.may_divide or not self.mask or self.havoc_region is not None:
            return
        if self.is_divided or self.mask not in (FULL, self.alone):
            self.act_as(*self.parts.divide(self.mask))

    def meet(self) -> None:
        """The active lanes synchronise: each comes after what the others have done."""
        by_lane = self.may_divide and self.fences_by_lane and bool(self.fences)
        if self.is_divided or by_lane:
            self.act_as(self.parts.synchronise(self.mask))
        elif not self.may_divide or self.mask in (FULL, self.alone):
            size, item, settled = self.components.size, self.clock.item, self.part.settled
            for component in settled:
                settled[component] = item(size + component)
            self.advance()
        if not self.may_divide:
            return
        if self.mask == FULL:
            self.alone, self.diverged = 0, False
            self._share_groups()
        self.met = self.pc

    def gather(self) -> None:
        """The active lanes have waited for each other, which hands over no memory (E19, E20): each
        comes after what the others have done."""
        parts, in_time = self.acting, self.components.in_time
        done = np.maximum.reduce([in_time(p.clock) for p in parts]) if len(parts) > 1 else None
        for part in parts:
            tick = part.clock.item(part.component)
            self.followed[part.component] = self.gathered[part.component] = tick
            if done is not None:
                join(in_time(part.clock), done)
        self.advance()

    def _share_groups(self) -> None:
        """All lanes know of the copies for which each of them has waited."""
        for kind, group in self.lane_groups.items():
            for component, done in group.known_to(FULL):
                rows = self.rows(component)
                # what the async proxy has read or written it has not to be told
                told = rows[GENERIC : SHARED if kind == "cp.async" else GLOBAL]
                told[...] = self.part.settled[component] = max(rows.item(GENERIC), done)

    def learns(self, clock: Clock) -> None:
        """Acquires what ``clock`` knows; what it knows of the own lanes, all of them then know."""
        size, known_of = self.components.size, clock.item
        for part in self.acting:
            np.maximum(part.clock, clock, out=part.clock)
            for component, tick in part.settled.items():
                known = known_of(size + component)
                if known > tick:
                    part.settled[component] = known

    def follows(self, clock: Clock) -> None:
        """What ``clock`` knows of the own lanes each of them comes after, whatever it acquires."""
        component = self.component
        known = clock.item(component)
        if known > self.followed.get(component, 0):
            self.followed[component] = known

    @property
    def common(self) -> int:
        """The position up to which each lane that acts comes after what the others did: nothing
        makes lanes of one part wait for each other between two meetings."""
        if self.mask & (self.mask - 1) == 0:
            return NEVER
        component = self.component
        return max(self.part.settled[component], self.followed.get(component, 0))

    @property
    def group_components(self) -> list[int]:
        """Components that publish which copies of its lanes are complete, and its inits; up to
        which load of tensor memory they have stored what was loaded; and what they have issued to
        tensor memory before a fence."""
        found = [c for group in self.lane_groups.values() for c in group.components]
        if DRAINED in self.groups:
            found.append(self.groups[DRAINED].component)
        if self.tcgen05 is not None and ORDER in self.groups:
            found += [self.groups[ORDER].component, *self.tcgen05.orders]
        return found if self.inits is None else [*found, self.inits.component]

    def shared_by_lanes(self, clock: Clock) -> Clock:
        """What is published when only some of the active lanes do, and it is not known which."""
        return limited(clock, self.part.settled, self.components.size)

    @property
    def known(self) -> Clock:
        """What each of its lanes knows."""
        return self.parts.common(FULL) if self.is_divided else self.clock

    @property
    def published(self) -> Clock:
        """What becomes known when each of the active lanes publishes what it knows."""
        return self.clock if len(self.acting) == 1 else self.parts.together(self.mask).clock

    def retreat(self, tick: int) -> None:
        """Back to an earlier interval of the same instruction: its lanes do not follow another."""
        self.rows(self.component)[:SHARED] = tick

    @property
    def lanes(self) -> int:
        """Number of active lanes."""
        return self.mask.bit_count()

    @property
    def live_mask(self) -> int:
        """Lanes that have not exited."""
        return FULL & ~self.exited_lanes

    def woken(self) -> None:
        """It waits for nothing any more; when it runs is up to the schedule."""
        self.blocked = None

    def block(
        self, on: object, clause: str, op: Op | None, *, loc: Loc = UNKNOWN, polling: bool = False,
        named: Named | None = None, parity: int | None = None,
    ) -> bool:  # fmt: skip
        """It waits, and executes its instruction again when it is woken."""
        self.pc -= 1
        where = loc if op is None else op.loc
        self.blocked = Blocked(on, clause, op, where, polling, named, parity)
        if isinstance(on, Awaited):
            on.waiters.append(self)
        return True

    @abstractmethod
    def run(self, _event: object = None) -> None:
        """Executes instructions up to the next synchronising one after at least one of them."""

    def last_op(self) -> Op | Loc:
        """The instruction before the warp's position."""
        origins = self.machine.plan.origins
        return origins[max(0, min(self.pc, len(origins)) - 1)]

    def __str__(self) -> str:
        return self.called(self.role)

    def at(self, op: Op | None, cta: int | None = None) -> str:
        """The same as what executes ``op``, by the role whose region that is in, if it has one role
        and not several; in a text that speaks of one ``cta``, without that."""
        alone = self.role != f"warp {self.number}"
        return self.called(self.machine.role_at(self, op) if alone else self.role, cta)

    def called(self, role: str, cta: int | None = None) -> str:
        """Its number with a role, if it has one."""
        place = f"warp {self.number}"
        if self.machine.program.ctas > 1 and self.cta.number != cta:
            place = f"CTA {self.cta.number} {place}"
        return place if role == f"warp {self.number}" else f"{role} ({place})"


# ------------------------------------------------------------------ the parts of a warp


#: partings of one component that are remembered
_REMEMBERED = 256


@dataclass(slots=True)
class Part:
    """Lanes that act as one: their clock, whose own component is ``component``.

    ``settled``: by components of the warp, up to where all of these lanes know what they have done.
    """

    mask: int
    component: int
    clock: Clock
    fences: Fences
    settled: dict[int, int]


@dataclass(frozen=True, slots=True)
class Parting:
    """A part was split: what its lanes did in ticks ``since + 1`` to ``until`` of its component is
    known to those that know a tick of the parts that these lanes then belonged to.

    ``until`` is per row of a clock: up to there, proxy fences have handed it over.
    """

    since: int
    until: tuple[int, ...]
    parts: tuple[tuple[int, int, int], ...]  #: lanes, component, tick


class Parts:
    """How the lanes of one warp are divided, and what there is to know of it later."""

    def __init__(self, warp: Agent) -> None:
        self._warp = warp
        #: components that no part has, and up to which tick one had them before
        self._spares: dict[int, int] = {}
        self.may_be_several = False
        #: the parts there are now; a single one if the warp acts as one
        self.leaves: list[Part] = [warp.part]
        #: parts that have been split since the last synchronisation of all of their lanes
        self._split: list[Part] = []
        #: by component, the latest last
        self._partings: dict[int, deque[Parting]] = {}
        self._top = 0

    def allow(self, spares: list[int]) -> None:
        """There may be several from now on, which get these components."""
        self._spares, self.may_be_several = dict.fromkeys(spares, 0), True

    @property
    def components(self) -> list[int]:
        """All components of the warp's parts, whether one has them now or not."""
        own = (part.component for part in (*self.leaves, *self._split))
        return sorted({self._warp.base, *self._spares, *own})

    @property
    def _size(self) -> int:
        """Entries of a row of a clock."""
        return self._warp.components.size

    def divide(self, mask: int) -> list[Part]:
        """The parts that the lanes of ``mask`` are; other lanes become parts of their own."""
        if len(self.leaves) == 1:
            self._top = int(self.leaves[0].clock[self.leaves[0].component])
        for part in [p for p in self.leaves if p.mask & mask and p.mask & ~mask]:
            self._part(part, [part.mask & mask, part.mask & ~mask])
        return [p for p in self.leaves if p.mask & mask]

    def shatter(self, mask: int) -> list[Part]:
        """Each lane of ``mask`` becomes a part of its own."""
        for part in self.divide(mask):
            lanes = [1 << n for n in range(32) if part.mask >> n & 1]
            if len(lanes) > 1:
                self._part(part, lanes)
        return sorted((p for p in self.leaves if p.mask & mask), key=lambda p: p.mask)

    def _part(self, part: Part, masks: list[int]) -> None:
        """Splits a part: of each other, its lanes then know what is settled.

        What they did since, in one stretch up to each fence, is known to those that know a tick of
        its own of each child.
        """
        size, components = self._size, self._warp.components
        known = {c: components.rows(part.clock, c).tolist() for c in part.settled}
        ends = self._stretches(part)
        children = [self._child(part, mask, ends) for mask in masks]
        self.leaves.remove(part)
        self.leaves += children
        self._split.append(part)
        since = part.settled[part.component]
        # a clock that knows the tick of a child in such a row knows it by the other one (H10)
        begun = [
            (row, first)
            for row, first in components.begun
            if part.clock[row * size + part.component] <= since
        ]
        for component, rows in known.items():
            if component != part.component:
                rows[0] = rows[1]  # what is known of copies is known in memory
            for row, first in begun:
                rows[row] = max(rows[row], rows[first])
            if component != part.component:
                self._note_stretch(component, part.settled[component], rows, children, len(ends))
                continue
            for number, end in enumerate(ends, 1):
                until = [min(row, end) for row in rows]
                self._note_stretch(component, since, until, children, number)
                since = end

    def _stretches(self, part: Part) -> list[int]:
        """The ticks with which stretches end of what its lanes did since the last settled one: up
        to what a fence hands over, and up to now."""
        now, own = int(part.clock[part.component]), part.component
        known = {int(c[row + own]) for c in part.fences.clocks for row in (0, self._size)}
        return [*sorted(t for t in known if part.settled[own] < t < now), now]

    def _note_stretch(
        self, component: int, since: int, until: list[int], children: list[Part], number: int
    ) -> None:
        """What was done there in the stretch of this number, from 1 on, is known by these."""
        if until[0] > since:
            starts = tuple((c.mask, c.component, c.settled[c.component] + number) for c in children)
            self._remember(component, Parting(since, tuple(until), starts))

    def _remember(self, component: int, parting: Parting) -> None:
        self._partings.setdefault(component, deque(maxlen=_REMEMBERED)).append(parting)

    def note_waited(self, part: Part, component: int, number: int, *, both: bool) -> None:
        """The lanes of ``part`` have waited for their copies among the first ``number`` there,
        which other lanes made as well; ``both`` proxies know what these have left."""
        rows = self._warp.components.rows(part.clock, part.component)
        until = (number, number, *((number if both else 0) for _ in rows[SHARED:]))
        start = (part.mask, part.component, int(rows[0]))
        self._remember(component, Parting(0, until, (start,)))

    def _child(self, part: Part, mask: int, ends: list[int]) -> Part:
        """Some lanes of a part, which have a tick for each stretch of what they did before."""
        (component, last), size, own = self._spare(part), self._size, part.component
        clock = limited(part.clock, part.settled, size)
        # in time it comes after what all of them had done, although it knows less of memory
        done = self._warp.followed.get(own, 0)
        clock[own] = max(clock[own], done)
        before, since = self._top, part.settled[own]
        self._top += len(ends)

        def began(tick: int) -> int:
            """The tick of the child that tells of one of the part."""
            return before + 1 + bisect_left(ends, tick)

        def fenced(known: Clock) -> Clock:
            """What a fence hands over of the part: its whole stretches, as far as it knows what was
            done at the component before."""
            result = limited(known, part.settled, size)
            for row in range(0, len(result), size):
                whole = bisect_right(ends, known.item(row + own))
                if whole and known.item(row + component) >= last:
                    result[row + component] = before + whole
            return result

        fences = part.fences.of(mask).mapped(fenced)
        settled = {c: tick for c, tick in part.settled.items() if c != own} | {component: before}
        child = Part(mask, component, clock, fences, settled)
        for row in range(SHARED * size, len(clock), size):
            if part.clock[row + own] > since:
                clock[row + component] = began(part.clock.item(row + own))
        self.advance(child)
        marks, moments = self._warp.marks, self._warp.moments
        if marks.get(own, 0) > since:
            marks[component] = began(marks[own])
        if moments.get(own, 0) > max(since, done):
            moments[component] = began(moments[own])
        return child

    def _spare(self, part: Part) -> tuple[int, int]:
        """A component for a child, and the last tick of what was done there before: what knows the
        child knows all of that."""
        clock, size = part.clock, self._size
        since = part.settled[part.component]
        others = range(SHARED * size, len(clock), size)
        rows = [0, size, *(row for row in others if clock[row + part.component] > since)]
        for component, last in reversed(self._spares.items()):
            if all(clock[row + component] >= last for row in rows):
                del self._spares[component]
                return component, last
        raise Fault(
            "lanes of a warp that diverge again and again without a warp barrier, each time in "
            "other groups, are not modelled. Synchronise all lanes between (bar.warp.sync -1, "
            "k.sync_warp()), or divide them into the same groups each time"
        )

    def advance(self, part: Part) -> None:
        """Starts a new interval of a part; ticks of a warp's parts are all different."""
        size = self._size
        self._top += 1
        part.clock[part.component] = part.clock[size + part.component] = self._top

    def together(self, mask: int) -> Part:
        """What all lanes of ``mask`` have published when each of them does."""
        parts = self.divide(mask)
        clock = parts[0].clock.copy()
        for part in [*parts[1:], *(p for p in self._split if not p.mask & ~mask)]:
            join(clock, part.clock)
        fences = Fences()
        for part in parts:
            fences.learn(part.fences)
        return Part(mask, parts[0].component, clock, fences, {})

    def common(self, mask: int) -> Clock:
        """What each lane of ``mask`` knows."""
        clocks = [part.clock for part in self.divide(mask)]
        clock: Clock = np.minimum.reduce(clocks)
        return clock

    def synchronise(self, mask: int) -> Part:
        """The lanes of ``mask`` meet; what they are then."""
        if self._warp.fences_by_lane:
            self._tell_fences_apart(mask)
        merged = self.together(mask)
        if self._warp.fences_by_lane:
            merged.fences = self._fences_of_each(mask)
        over = [p for p in (*self.leaves, *self._split) if not p.mask & ~mask]
        self.leaves = [p for p in self.leaves if p.mask & ~mask]
        self._split = [p for p in self._split if p.mask & ~mask]
        base = self._warp.base
        components = {p.component: int(p.clock[p.component]) for p in over}
        merged.component = base if base in components else over[0].component
        self._spares |= {c: tick for c, tick in components.items() if c != merged.component}
        self.advance(merged)
        size = self._size
        merged.settled = {c: int(merged.clock[size + c]) for c in self._warp.group_components}
        merged.settled[merged.component] = self._top - 1
        self.leaves.append(merged)
        return merged

    def _tell_fences_apart(self, mask: int) -> None:
        """Lanes that have fenced together what each has done become parts, if there may be so
        many: after their meeting, the fence of one does not cover what others did."""
        for part in self.divide(mask):
            lanes = part.mask.bit_count()
            if (
                lanes > 1
                and 2 * lanes <= len(self._spares) + 2
                and part.fences.differ(partial(limited, settled=part.settled, size=self._size))
            ):
                self.shatter(part.mask)

    def _fences_of_each(self, mask: int) -> Fences:
        """The fences of lanes that meet, each for itself."""
        parts, size = [p for p in self.leaves if p.mask & mask], self._size
        each = [
            (p.mask, p.fences.of_each(partial(limited, settled=p.settled, size=size)))
            for p in parts
        ]
        if len(each) == 1:
            return each[0][1]
        fences = Fences()
        for lanes, own in each:
            fences.add(lanes, own)
        return fences

    def released(self, clock: Clock, component: int, tick: int) -> tuple[int, int]:
        """Lanes that made an access which ``clock`` does not know, and those of them that have
        released since to the one that has this clock, be it as parts of a part."""
        for parting in self._partings.get(component, ()):
            if parting.since < tick <= parting.until[0]:
                made = released = 0
                for mask, then, first in parting.parts:
                    made |= mask
                    known = clock[then] >= first
                    released |= mask if known else mask & self.released(clock, then, first)[1]
                return made, released
        return 0, 0

    def acquired(self, entry: int, tick: int) -> int:
        """Of several parts, the lanes whose clock has an entry at ``tick`` or later."""
        several = len(self.leaves) > 1
        return sum(p.mask for p in self.leaves if several and p.clock[entry] >= tick)

    def lanes_known(self, clock: Clock, row: int, component: int, tick: int, lanes: int) -> bool:
        """Whether ``clock`` (from ``row`` on) knows what all of ``lanes`` did at a tick of one of
        the warp's components, be it through the parts that they have belonged to since."""
        if clock[row + component] >= tick:
            return True
        for parting in self._partings.get(component, ()):
            if parting.since < tick <= parting.until[0]:
                covered = tick <= parting.until[row // self._size]
                for mask, then, first in parting.parts:
                    since = first + (not covered)
                    if mask & lanes and self.lanes_known(clock, row, then, since, lanes & mask):
                        lanes &= ~mask
        return not lanes


# ------------------------------------------------------------------ names of warps in reports


def names_of(warps: Sequence[Agent], op: Op | None = None, cta: int | None = None) -> str:
    """``consumer (warps 0-3)``: several warps that execute ``op``, and the role whose region that
    is in; those of further CTAs go with the range of their CTAs, ``consumer (warps 0-3 of CTA
    0-7)``. In a text that speaks of one ``cta`` that goes without saying."""
    if len(warps) == 1:
        return warps[0].at(op, cta)
    first = warps[0]
    numbers = tuple(sorted({w.number for w in warps}))
    ctas = tuple(sorted({w.cta.number for w in warps}))
    text = f"warp{'s' if len(numbers) > 1 else ''} {ranges(numbers)}"
    if len(ctas) > 1:
        text += f" of CTA {ranges(ctas)}"
    elif first.machine.program.ctas > 1 and first.cta.number != cta:
        text = f"CTA {first.cta.number} {text}"
    role = first.machine.role_at(first, op)
    return text if role == f"warp {first.number}" else f"{role} ({text})"


def made_by(what: str, warps: Sequence[Agent], op: Op, cta: int | None = None) -> str:
    """What each of some warps has contributed by ``op``: ``1 arrival each by ...``."""
    each = " each" if len(warps) > 1 else ""
    return f"{what}{each} by {op.mnemonic} of {names_of(warps, op, cta)} at {op.loc}"
