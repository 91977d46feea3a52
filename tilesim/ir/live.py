"""Which registers hold a value that may still be used."""

from __future__ import annotations

from collections.abc import Collection

from tilesim.ir.dataflow import mentions
from tilesim.ir.effects import Defines
from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.kept import kept


def live_at(graph: FlowGraph, number: int) -> frozenset[str]:
    """The registers whose values may be used from an instruction on that begins a block, or none
    at the end of the program."""
    if number == len(graph.mir.code):
        return frozenset()
    return _live(graph)[graph.block_of[number]]


def carried(graph: FlowGraph, head: int, blocks: Collection[int]) -> frozenset[str]:
    """The registers in which a turn of the loop of these blocks, or who comes behind it, may find
    what an earlier turn has left there."""
    effects = (e for b in blocks for n in graph.blocks[b] for e in graph.mir.effects[n])
    sets = {effect.var.name for effect in effects if isinstance(effect, Defines)}
    return live_at(graph, graph.blocks[head].start) & sets


@kept
def _live(graph: FlowGraph) -> list[frozenset[str]]:
    """By block, what is used from its beginning on; special registers are among it."""
    mir, named = graph.mir, mentions(graph.mir)
    uses: list[frozenset[str]] = []
    kills: list[frozenset[str]] = []
    setters: dict[int, list[str]] = {}
    for name, numbers in mir.setters.items():
        for number in numbers:
            setters.setdefault(number, []).append(name)
    for block in graph.blocks:
        used, set_before = set[str](), set[str]()
        for number in block:
            one = named[number]
            used |= (one.tested | one.used) - set_before
            if mir.code[number].guard is None:
                set_before.update(setters.get(number, ()))
        uses.append(frozenset(used))
        kills.append(frozenset(set_before))
    live = [*uses]
    grew = True
    while grew:
        grew = False
        for place in reversed(graph.order):
            after = frozenset[str]().union(*(live[b] for b in graph.successors[place]))
            found = uses[place] | (after - kills[place])
            if found != live[place]:
                live[place], grew = found, True
    return live
