"""Registers of which it does not matter what lanes hold that are elsewhere when they are set.

A register that some lanes of a warp set is one of all lanes to the machine as long as the others
never use what they had in it: then it stays one number, and need not be one for each lane. So it
is for most of what the loop of an elected lane computes.
"""

from __future__ import annotations

from collections import Counter

from tilesim.analysis.liveness import live_at
from tilesim.ir.dataflow import mentions
from tilesim.ir.diverging import diverging, sides
from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.kept import kept
from tilesim.ir.ops.scalar import Assign


@kept
def private_registers(graph: FlowGraph) -> frozenset[str]:
    """Registers that only assignments without a guard set, and these so that no lane that is
    elsewhere by then uses what it had in it.

    Lanes of a warp are elsewhere if a branch has split them, until they meet. Where that branch may
    be, what one of its ways sets is mentioned on no other way, and not used from the meeting on.
    """
    mir = graph.mir
    assigned = {
        name
        for name, numbers in mir.setters.items()
        if all(isinstance(mir.code[n].what, Assign) and mir.code[n].guard is None for n in numbers)
    }
    names = [
        one.tested.union(one.used, _set_by(instruction.what))
        for one, instruction in zip(mentions(mir), mir.code, strict=True)
    ]
    shared: set[str] = set()
    for number in diverging(graph).splits:
        ways = [frozenset[str]().union(*(names[n] for n in way)) for way in sides(graph, number)]
        several = Counter(name for way in ways for name in way)
        shared.update(name for name, count in several.items() if count > 1)
        shared.update(several.keys() & live_at(graph, graph.meetings[number]))
    return mir.local | (assigned - shared)


def _set_by(what: object) -> frozenset[str]:
    return frozenset({what.var.name}) if isinstance(what, Assign) else frozenset()
