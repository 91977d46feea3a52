"""Whether PTX lets a program do what no interleaving shows: weak memory.

Exploration runs every interleaving that can differ. By PTX a load may find an older store than the
last one, and two loads of one thread may so find stores in another order than two of another one.
An execution without cycles of program order and reads-from is made event by event. Take the first
event with which it is no interleaving any more: what was before it is one, and is explored. So the
event is an access of an explored schedule that has a write in its past there, by program order and
by which accesses of one word came first, and yet need not come after that write in memory. If no
schedule has one (`Strong.unseen`), there is no such event: interleavings are all executions.

An execution with such a cycle has a load that finds what comes only because of it ("load
buffering"). Nothing forbids that where the write need not come after the load in causality order
(`Strong.loose`), be it that instructions depend on each other. If some load of the cycle has no
store of its thread that depends on it, it could have found another write, and all of the cycle is
in a schedule: from the load to the write, by program order and reads-from.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from tilesim.sim.dependence import depends

if TYPE_CHECKING:
    from tilesim.sim.machine.trace import Event, Key, Trace


def beyond_interleavings(trace: Trace, own: list[int]) -> str:
    """What PTX would allow beside a schedule that was run, as a sentence; empty if nothing.

    ``own``: by move, those before it by program order and by the order of what depends on each
    other, but for what the move itself touches; of as many as are to be looked at.
    """
    for index, past in enumerate(own):
        for access in trace.steps[index].accesses:
            for move in access.unseen:
                if past >> move & 1:
                    return _older(trace, index, move, access.place, reads=access.reads)
    return _buffered(trace, len(own))


def _older(trace: Trace, index: int, move: int, place: Hashable, *, reads: bool) -> str:
    """An access that need not come after a write which comes first in every interleaving."""
    what = "may find what was there before" if reads else "may come before"
    return (
        f"weak memory: {_access(trace, index, place)} {what} {_access(trace, move, place)}, "
        "which no interleaving of the threads shows and no fence.sc between their accesses excludes"
    )


def _buffered(trace: Trace, moves: int) -> str:
    """A load that may find what is written because of it."""
    if not any(access.loose for step in trace.steps[:moves] for access in step.accesses):
        return ""
    for index, past in enumerate(_led_to(trace, moves)):
        for access in trace.steps[index].accesses:
            for move in access.loose:
                if past >> move & 1:
                    return (
                        f"weak memory: {_access(trace, move, access.place)} may find what "
                        f"{_access(trace, index, access.place)} leaves, though that comes after it "
                        "in every interleaving: nothing orders loads before later stores"
                    )
    return ""


def _led_to(trace: Trace, moves: int) -> Iterator[int]:
    """By move, those before the move of its thread before it, by program order, reads-from and
    synchronisation: what a write itself reads decides nothing, as its word is coherent."""
    before: list[int] = []
    last_of: dict[Key, int] = {}
    written: dict[Hashable, int] = {}
    touched: dict[Hashable, list[tuple[int, Event]]] = {}
    for index, step in enumerate(trace.steps[:moves]):
        start = last_of.get(step.agent)
        past = 0 if start is None else before[start] | 1 << start
        yield past
        sources = [written[a.place] for a in step.accesses if a.reads and a.place in written]
        for event in step.events:
            if event.kind in ("pass", "poll", "leave"):
                near = touched.get(event.object, ())
                sources += [k for k, other in near if depends(other, event)]
        for source in sources:
            past |= before[source] | 1 << source
        before.append(past)
        last_of[step.agent] = index
        for key in step.spawned:
            last_of.setdefault(key, index)
        written.update((a.place, index) for a in step.accesses if a.writes)
        for event in step.events:
            if event.kind in ("credit", "join"):
                touched.setdefault(event.object, []).append((index, event))


def _access(trace: Trace, index: int, place: Hashable) -> str:
    """An access of a move, with its line."""
    for event in trace.steps[index].events:
        if event.object == place and event.op is not None:
            return f"{event.op.mnemonic} at {event.op.loc.whole}"
    return "an access"
