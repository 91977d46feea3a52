"""Which registers hold a value that may still be used."""

from __future__ import annotations

from collections.abc import Collection

from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.solver import bits
from tilesim.analysis.uses_defs import reads, sets
from tilesim.ir.frozen import cached


def live_at(graph: FlowGraph, number: int) -> frozenset[str]:
    """The registers whose values may be used from an instruction on that begins a block, or none
    at the end of the program."""
    if number == len(graph.mir.code):
        return frozenset()
    return _live(graph)[graph.block_of[number]]


def carried(graph: FlowGraph, head: int, blocks: Collection[int]) -> frozenset[str]:
    """The registers in which a turn of the loop of these blocks, or what follows it, may find
    what an earlier turn has left there."""
    numbers = (n for b in blocks for n in graph.blocks[b])
    set_there = {name for n in numbers for name in sets(graph.mir, n)}
    return live_at(graph, graph.blocks[head].start) & set_there


@cached
def _live(graph: FlowGraph) -> list[frozenset[str]]:
    """By block, what is used from its beginning on; special registers are among it."""
    mir = graph.mir
    names: dict[str, int] = {}
    used, left = [0] * len(graph.blocks), [-1] * len(graph.blocks)
    for place, block in enumerate(graph.blocks):
        for number in reversed(block):
            if mir.code[number].guard is None:
                for name in sets(mir, number):
                    set_here = 1 << names.setdefault(name, len(names))
                    used[place], left[place] = used[place] & ~set_here, left[place] & ~set_here
            for name in reads(mir, number):
                used[place] |= 1 << names.setdefault(name, len(names))
    ends = bits(graph.order[::-1], graph.successors, left, used)
    live = [end & kept | own for end, kept, own in zip(ends, left, used, strict=True)]
    return [frozenset(name for name, place in names.items() if one >> place & 1) for one in live]
