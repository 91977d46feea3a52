"""Which moves of a schedule depend on each other: the order of two that do not cannot matter.

Two moves depend on each other if they touch the same synchronisation object in a way that does not
commute; data accesses need no branching, because a race is found in any schedule.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Protocol

from tilesim.records import dataclass
from tilesim.sim.machine.events import Event, Key, Kind, Step


class Touching(Protocol):
    """What counts of an event: how it touches which object, in which phase, and whether loosely."""

    @property
    def kind(self) -> Kind: ...

    @property
    def object(self) -> Hashable: ...

    @property
    def phase(self) -> int: ...

    @property
    def loose(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Touch:
    """An event as the search remembers it: without the warp and the instruction."""

    kind: Kind
    object: Hashable
    phase: int
    loose: bool


#: agents whose next move is known to lead nowhere new, with what that move touches
Sleep = dict[Key, tuple[Touch, ...]]


#: a move that ends the run in undefined behaviour: it has not shown what it depends on
UNDEFINED = (Touch("life", "undefined behaviour", 0, True),)


def touches(events: Iterable[Event]) -> tuple[Touch, ...]:
    """What is remembered of the events of a move."""
    return tuple(Touch(e.kind, e.object, e.phase, e.loose) for e in events)


def awaken(sleep: Sleep, step: Step) -> Sleep:
    """The sleepers that ``step`` neither is nor disturbs."""
    return {
        key: events
        for key, events in sleep.items()
        if key != step.agent and events != UNDEFINED and not conflict(events, step.events)
    }


def conflict(first: Iterable[Touching], second: Iterable[Touching]) -> bool:
    """Whether two moves from one state may differ in effect by their order.

    Credits commute within a phase if both fit into it; two that were made from the same state,
    each as the first, need not, so a sleeper wakes at any credit on its barrier.
    """
    others = list(second)
    return any(depends(a, b) or depends(b, a) or _same_counter(a, b) for a in first for b in others)


def _same_counter(first: Touching, second: Touching) -> bool:
    counts = ("credit", "join")
    same = first.object == second.object and first.kind == second.kind
    return same and first.kind in counts


def depends(first: Touching, second: Touching) -> bool:
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


def reversible(first: Touching, second: Touching) -> bool:
    """False where the second move could not have been made before the first."""
    enables = (first.kind, second.kind) in (("credit", "pass"), ("join", "leave"))
    return not (enables and first.phase == second.phase)
