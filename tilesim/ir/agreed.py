"""Branches at which all threads of a CTA that come there go the same way, whatever that is.

Each of them comes there equally often, and decides by the same number each time: one that is
computed of numbers that all have, loaded from one address of global memory that nobody writes, or
what a barrier of the whole CTA has counted (PTX ISA: barrier.red).
"""

from __future__ import annotations

from collections.abc import Collection

from tilesim.ir import effects as fx
from tilesim.ir.dataflow import operand_expressions, registers_set, tensors_written
from tilesim.ir.expr import (
    Base,
    Binary,
    Const,
    Expr,
    ScalarParam,
    Select,
    Special,
    Unary,
    Var,
    walk,
)
from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.kept import kept
from tilesim.ir.memory import View
from tilesim.ir.mir import Branch, Mir, Switch, condition
from tilesim.ir.op import Computation, Op
from tilesim.ir.ops.bar import BarRed

#: what an expression is made of that has one value, if its registers have
_PARTS = (Var, Const, ScalarParam, Special, Unary, Binary, Select, Base)
#: special registers that differ between threads of a CTA
_OF_THREADS = frozenset({"warp_id", "lane_id", "thread_id"})


@kept
def agreed(graph: FlowGraph) -> frozenset[int]:
    """The numbers of these branches, and of what a guard decides in the same way."""
    mir = graph.mir
    if any(tensor.dependent for tensor in mir.kernel.tensors):
        return frozenset()  # a grid before this one may still write
    read_only = _read_only(mir)
    differing: set[str] = set()
    apart: set[int] = set()
    while True:
        before = len(differing), len(apart)
        for number in _splitting(graph, differing) - apart:
            apart |= _behind(graph, number) | {number}
        for number, instruction in enumerate(mir.code):
            if isinstance(op := instruction.what, Op):
                guard = instruction.guard
                same = guard is None or _one_value(guard, differing)
                if number in apart or not same or not _gives_one(op, mir, differing, read_only):
                    differing.update(var.name for var in registers_set(op))
        if before == (len(differing), len(apart)):
            break
    asks = ((n, condition(i)) for n, i in enumerate(mir.code))
    return (
        frozenset(n for n, cond in asks if cond is not None and _one_value(cond, differing)) - apart
    )


def _splitting(graph: FlowGraph, differing: Collection[str]) -> set[int]:
    """Branches at which threads may go different ways."""
    return {
        number
        for number, instruction in enumerate(graph.mir.code)
        if isinstance(instruction.what, Branch | Switch)
        and (cond := condition(instruction)) is not None
        and not _one_value(cond, differing)
    }


def _behind(graph: FlowGraph, number: int) -> set[int]:
    """What may be executed between a branch and where all that it splits have met again."""
    meet = graph.meetings.get(number, len(graph.mir.code))
    starts = (graph.blocks[after].start for after in graph.successors[graph.block_of[number]])
    return {n for start in starts for n in graph.between(start, meet)}


def _one_value(expr: Expr, differing: Collection[str]) -> bool:
    """Whether an expression has one value in all threads of a CTA."""
    return all(
        isinstance(part, _PARTS)
        and not (isinstance(part, Var) and part.name in differing)
        and not (isinstance(part, Special) and part.name in _OF_THREADS)
        for part in walk(expr)
    )


def _gives_one(op: Op, mir: Mir, differing: Collection[str], read_only: Collection[str]) -> bool:
    """Whether all threads that execute an instruction have set its registers to the same."""
    if isinstance(op, BarRed):
        everyone = Const(mir.kernel.warps * 32)
        return op.threads in (None, everyone) and _one_value(op.id, differing)
    if not all(_one_value(e, differing) for e in operand_expressions(op)):
        return False
    computes = isinstance(op, Computation)
    return all(computes or _has_one(effect, read_only) for effect in op.effects())


def _has_one(effect: fx.Effect, read_only: Collection[str]) -> bool:
    """Whether an effect gives a register the value of an expression, or what a load finds in memory
    that nobody writes."""
    match effect:
        case fx.Defines(value=Expr() | View(), chance="", unknown=""):
            return not (effect.divergent or effect.elsewhere)
        case fx.Reads(proxy="generic", asynchronous=False, sem="weak", elsewhere=False, view=view):
            return view.cta is None and view.tensor.name in read_only
        case _:
            return False


def _read_only(mir: Mir) -> frozenset[str]:
    """The tensors in global memory that the kernel does not write, and of which a thread has no
    part of its own."""
    written = {name for effects in mir.effects for e in effects for name in tensors_written(e)}
    if not written.isdisjoint((".global", ".generic")):
        return frozenset()
    return frozenset(t.name for t in mir.kernel.tensors if not t.private) - written
