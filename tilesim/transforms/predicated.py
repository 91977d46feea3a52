"""Branches that are another way to write predicates: nothing inside waits, repeats or ends."""

from __future__ import annotations

from tilesim.analysis.cfg import FlowGraph
from tilesim.ir import effects as fx
from tilesim.ir.mir import Join
from tilesim.ir.op import Op

#: what lanes do without waiting for others, whichever do it
_AT_ONCE = (
    fx.Reads, fx.Writes, fx.RemoteStore, fx.ReadsMap, fx.WritesMap, fx.Prefetches, fx.Defines,
    fx.InitsMbarrier, fx.InvalidatesMbarrier, fx.Arrives, fx.Expects, fx.Completes, fx.PendingCount,
    fx.Issues, fx.Commits, fx.Orders, fx.Crosses,
)  # fmt: skip


def as_predicates(graph: FlowGraph, number: int) -> bool:
    """Whether lanes that a branch parts do no more, up to where they meet, than instructions with a
    predicate would: it is written either way, and ptxas makes one of the other."""
    code, effects = graph.mir.code, graph.mir.effects
    inside = graph.inside(number)
    return number not in inside and all(
        isinstance(code[n].what, Op | Join) and all(isinstance(e, _AT_ONCE) for e in effects[n])
        for n in inside
    )
