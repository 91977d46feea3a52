"""What need not be executed to go on if nobody knows whether it is: arithmetic, and nothing else.

Compilers put slow ways of logarithms and the like behind branches on data. What such a branch may
set is not known behind it; whatever touches memory or synchronises has to be known to be executed.
"""

from __future__ import annotations

from tilesim.ir.effects import Defines, Effect
from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.mir import Branch, Join
from tilesim.ir.op import Op


def skipped(graph: FlowGraph, number: int, target: int, meet: int) -> frozenset[str] | None:
    """The registers that lanes which a branch splits may set before they meet; None if they may do
    anything else, or anything again and again."""
    if meet == len(graph.mir.code):
        return None
    inside = graph.between(number + 1, meet) | graph.between(target, meet)
    blocks = {graph.block_of[n] for n in inside}
    if number in inside or any(loop.head in blocks for loop in graph.loops):
        return None
    found: set[str] = set()
    for n in inside:
        match graph.mir.code[n].what:
            case Branch() | Join():
                pass
            case Op():
                more = computed(graph.mir.effects[n])
                if more is None:
                    return None
                found |= more
            case _:
                return None
    return frozenset(found)


def computed(effects: tuple[Effect, ...]) -> frozenset[str] | None:
    """The registers that an instruction sets which does nothing else; None if it does."""
    names = {e.var.name for e in effects if isinstance(e, Defines) and not e.chance}
    return frozenset(names) if len(names) == len(effects) else None
