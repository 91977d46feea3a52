"""What a run did to its synchronisation objects, in order, and which moves depend on each other.

A move of the schedule is one agent acting until its next synchronising instruction; the events of
a move say which objects it touched, which is all that the order of moves can matter for.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tilesim.records import dataclass, field

if TYPE_CHECKING:
    from tilesim.findings.finding import Finding
    from tilesim.ir.op import Op
    from tilesim.ir.ops.fence import FenceScope
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.labels import AgentLike

#: ``credit`` an arrival or bytes, ``pass`` a wait that passed, ``block`` one that did not,
#: ``poll`` a test that answered no, ``join`` and ``leave`` a named barrier, ``life`` init or inval,
#: ``read`` and ``write`` of anything else
Kind = Literal[
    "credit", "pass", "block", "poll", "join", "leave", "life", "read", "write", "reduce"
]


@dataclass(frozen=True, slots=True)
class Touch:
    """One touch of ``object`` (its phase or round, where it has one).

    ``loose`` credits do not commute even within their phase (bare expect_tx).
    """

    kind: Kind
    object: Hashable
    phase: int
    loose: bool


@dataclass(frozen=True, slots=True)
class Event(Touch):
    """A touch, what made it, and a clause for readers; ``alike``: what that says, but for numbers
    that depend on others."""

    warp: AgentLike
    op: Op | None
    text: str
    alike: tuple[bool, int] | None = None


@dataclass(frozen=True, slots=True)
class Strong:
    """A strong access to ``place``, or a look at an mbarrier.

    ``unseen``: moves with writes there that it need not come after in memory. ``loose``: moves with
    reads there by others that it need not come after if it writes: they might find what it leaves.
    """

    place: Hashable
    reads: bool
    writes: bool
    unseen: tuple[int, ...]
    loose: tuple[int, ...]


#: an agent, stable over schedules: (warp, 0), or (warp, n) for the n-th asynchronous operation
Key = tuple[int, int]


@dataclass(slots=True)
class Step:
    """One move of the schedule: the agent that moved, which others could have, and what it
    touched."""

    agent: Key
    enabled: tuple[Key, ...]
    events: list[Event] = field(default_factory=list)
    spawned: list[Key] = field(default_factory=list)
    #: its strong accesses, with what of other moves they need not come after
    accesses: list[Strong] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class InFlight:
    """An asynchronous operation that has been issued and has not landed: the n-th of its warp."""

    index: int
    op: Op
    warp: AgentLike
    key: Key
    component: None = None


class ByLanes(Protocol):
    """Keeps account of which lanes of a warp have made events."""

    def acts(self, warp: Any) -> None:
        """The active lanes of ``warp`` do what others can see."""
        ...

    def contend(self) -> None:
        """Something depends on an order that nothing makes."""
        ...


class Views(Protocol):
    """Keeps account of what strong accesses, and looks at mbarriers, need not have seen
    (`tilesim.sim.observers.weak_memory`); a barrier is its component."""

    def access(self, w: Any, place: Hashable, *, reads: bool, writes: bool) -> None:
        """Lanes of ``w`` are about to access a word strongly; an RMW reads and writes."""
        ...

    def ends(self, barrier: int, done: int, last: Any, completed: Clock) -> None:
        """A phase ends by the ``last`` of its credits, with what it publishes."""
        ...

    def counts(self, w: Any, barrier: int, clock: Clock) -> None:
        """An arrival, or bytes, by ``w`` or an operation that it issued with this clock."""
        ...

    def looks(self, w: Any, barrier: int, *, passes: bool, answers: bool) -> None:
        """A wait that ``passes``, or blocks, or a poll that ``answers`` something."""
        ...

    def fence(self, w: Any, scope: FenceScope) -> None:
        """A ``fence.sc``."""
        ...


#: what waits for all lanes of a warp, or for others: only what comes after it can be seen
_NO_EFFECT = frozenset({"join", "leave", "block"})


class Trace:
    """The steps of one run. ``lanes`` is told which lanes act, where schedules are explored."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.lanes: ByLanes | None = None
        #: what happens is the effect of an asynchronous operation, and not of lanes
        self._effect_lands = False

    def begin(self, agent: Key, enabled: tuple[Key, ...]) -> None:
        """The next move."""
        self.steps.append(Step(agent, enabled))

    def note(self, event: Event) -> None:
        """Adds an event to the current move."""
        if self.lanes is not None and not self._effect_lands and event.kind not in _NO_EFFECT:
            self.lanes.acts(event.warp)
        self.steps[-1].events.append(event)

    def strong(self, access: Strong) -> None:
        """Adds a strong access to the current move."""
        if self.steps:
            self.steps[-1].accesses.append(access)

    def spawn(self, operation: InFlight) -> None:
        """The current move started an asynchronous operation."""
        if self.lanes is not None and not self._effect_lands:
            self.lanes.acts(operation.warp)
        self.steps[-1].spawned.append(operation.key)

    def lands(self, operation: InFlight) -> None:
        """An asynchronous operation is about to take effect."""
        self._effect_lands = True

    def landed(self, operation: InFlight) -> None:
        """It has taken effect."""
        self._effect_lands = False

    def again(self, finding: Finding) -> None:
        """What has been found has been found before, of other warps or bytes, at the same lines."""

    def over(self) -> None:
        """The run is over; the machine still is as it was at its end."""


# ----------------------------------------------------------------- which moves depend on each other

# The order of two that do not cannot matter. Two do if they touch the same object in
# a way that does not commute; data accesses need no branching: a race is found in any schedule.


#: agents whose next move is known to lead nowhere new, with what that move touches
Sleep = dict[Key, tuple[Touch, ...]]


#: a move that ends the run in undefined behaviour: it has not shown what it depends on
UNDEFINED = (Touch("life", "undefined behaviour", 0, True),)


def touches(events: Iterable[Event]) -> tuple[Touch, ...]:
    """The events of a move as a search remembers them: without the warp and the instruction."""
    return tuple(Touch(e.kind, e.object, e.phase, e.loose) for e in events)


def awaken(sleep: Sleep, step: Step) -> Sleep:
    """The sleepers that ``step`` neither is nor disturbs."""
    return {
        key: events
        for key, events in sleep.items()
        if key != step.agent and events != UNDEFINED and not conflict(events, step.events)
    }


def conflict(first: Iterable[Touch], second: Iterable[Touch]) -> bool:
    """Whether two moves from one state may differ in effect by their order.

    Credits commute within a phase if both fit into it; two that were made from the same state,
    each as the first, need not, so a sleeper wakes at any credit on its barrier.
    """
    others = list(second)
    return any(depends(a, b) or depends(b, a) or _same_counter(a, b) for a in first for b in others)


def _same_counter(first: Touch, second: Touch) -> bool:
    counts = ("credit", "join")
    same = first.object == second.object and first.kind == second.kind
    return same and first.kind in counts


def depends(first: Touch, second: Touch) -> bool:
    """Whether the order of two touches of one object can matter (``first`` came first)."""
    if first.object != second.object:
        return False
    kinds = (first.kind, second.kind)
    match kinds:
        case ("life", _) | (_, "life") | ("write", _) | (_, "write"):
            return True
        case ("reduce", "reduce"):
            return first.phase != second.phase
        case ("reduce", _) | (_, "reduce"):
            return True
        case ("credit", "credit") | ("join", "join"):
            return first.phase != second.phase or first.loose or second.loose
        case ("credit", "pass"):
            return first.phase <= second.phase
        case ("pass", "credit"):
            return second.phase > first.phase
        case ("credit", "block"):
            return first.phase < second.phase
        case ("credit", "poll") | ("poll", "credit"):
            return True
        case ("join", "leave"):
            return first.phase == second.phase
        case _:
            return False


def reversible(first: Touch, second: Touch) -> bool:
    """False where the second move could not have been made before the first."""
    enables = (first.kind, second.kind) in (("credit", "pass"), ("join", "leave"))
    return not (enables and first.phase == second.phase)
