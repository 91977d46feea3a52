"""Relaxed operations, and the fences that act for them (SEMANTICS H3)."""

from __future__ import annotations

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.executing_warps import executing
from tilesim.analysis.solver import closure
from tilesim.ir.effects import Arrives, Effect, JoinsCluster, Orders, Reads, Waits, Writes
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Mir

#: the kinds of effects of which some are of relaxed operations
_MAYBE_RELAXED: tuple[type[Effect], ...] = (Reads, Arrives, Waits, JoinsCluster, Writes)


def is_relaxed(effect: Effect) -> bool:
    """Whether an effect is of a relaxed operation, which hands over what fences around it say."""
    match effect:
        case Reads(sem=sem) | Arrives(sem=sem) | Waits(sem=sem) | JoinsCluster(sem=sem):
            return sem == "relaxed"
        case Writes(sem=sem):  # an atomic that acquires writes as a relaxed one does
            return sem in ("relaxed", "acquire")
        case _:
            return False


def is_fence(effect: Effect) -> bool:
    """Whether an effect is that of a memory fence."""
    return isinstance(effect, Orders) and (effect.acquires or effect.releases)


def fencing(mir: Mir) -> frozenset[int]:
    """The warps whose fences act for relaxed operations; none if there are no such operations."""
    if not any(is_relaxed(effect) for kind in _MAYBE_RELAXED for _, effect in mir.all_of(kind)):
        return frozenset()
    fences = (n for n, effect in mir.all_of(Orders) if is_fence(effect))
    return frozenset(warp for n in fences for warp in executing(mir)[n])


@cached
def uses_fences_after(mir: Mir) -> frozenset[int]:
    """The instructions after which a thread may use fences that others have handed to it: in a
    relaxed operation, or a fence that acquires what they have read."""
    users = {
        number
        for number, effects in enumerate(mir.effects)
        if any(is_relaxed(e) or (isinstance(e, Orders) and e.acquires) for e in effects)
    }
    graph = graph_of(mir)
    last = {graph.block_of[number]: number for number in sorted(users)}
    leads = closure(last, graph.predecessors.__getitem__) if last else set[int]()
    ends = {block for block in leads if not leads.isdisjoint(graph.successors[block])}
    return frozenset(
        number
        for block in leads
        for number in graph.blocks[block]
        if block in ends or number < last.get(block, -1)
    )


def stores_relaxed(mir: Mir) -> bool:
    """Whether something is stored by a strong store that releases nothing."""
    return any(e.sem == "relaxed" and e.combine is None for _, e in mir.all_of(Writes))
