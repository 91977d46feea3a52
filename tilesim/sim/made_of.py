"""What the data that an instruction stores is made of: loads, and registers that are computed.

Two warps store the same if they have executed the same instructions on the same, though nobody
knows what that is (SEMANTICS H23).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilesim.ir.dataflow import Dataflow, expressions_in, operand_expressions
from tilesim.ir.effects import Defines, Effect, Gathers, Reads
from tilesim.ir.expr import Expr, Special, Var, walk
from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.op import Op
from tilesim.sim.machine.facts import MadeOf

#: what differs between the warps of a CTA
_OF_WARPS = frozenset({"thread_id", "warp_id"})


def made_of(graph: FlowGraph, flow: Dataflow, number: int) -> MadeOf | None:
    """What the data of a store is made of; None if that is not known.

    Each register has one setter, which is on every way to whoever reads it. So the last values of
    all of them belong together.
    """
    made = _made_of(graph, flow, number, through=False)
    if made is not None and not made.registers:
        return made
    behind = _made_of(graph, flow, number, through=True)
    return behind if made is None else replace(made, behind=behind)


def _made_of(graph: FlowGraph, flow: Dataflow, number: int, *, through: bool) -> MadeOf | None:
    """The same; ``through``: registers that may decide something are not asked where what they
    hold is followed further."""
    store = graph.mir.code[number].what
    if not isinstance(store, Op):
        return None
    loads: set[int] = set()
    registers: set[str] = set()
    todo = [(number, e) for name in store.data for e in expressions_in(getattr(store, name))]
    if not todo:
        return None  # it leaves what it has read by itself, as copies do
    seen: set[int] = set()
    by_lane = True
    while todo:
        reader, expr = todo.pop()
        specials = {e.name for e in walk(expr) if isinstance(e, Special)}
        if specials & _OF_WARPS:
            return None
        by_lane = by_lane and not specials
        for var in (e for e in walk(expr) if isinstance(e, Var)):
            setter = _setter(graph, reader, var)
            if setter is None:
                return None
            effects = graph.mir.effects[setter]
            by_lane = by_lane and not any(isinstance(e, Gathers) for e in effects)
            operands = [*_operands(graph, setter)]
            if any(isinstance(e, Reads) for e in effects):
                loads.add(setter)
            elif not _computes(effects):
                return None
            elif var.name in flow.deciding and not (through and _followed(graph, setter, operands)):
                if graph.reaching.setters(number, var.name) != (setter,):
                    return None
                registers.add(var.name)
            elif setter not in seen:
                seen.add(setter)
                if not operands:
                    return None
                todo += ((setter, e) for e in operands)
    return MadeOf(tuple(sorted(loads)), tuple(sorted(registers)), by_lane)


def _followed(graph: FlowGraph, setter: int, operands: Sequence[Expr]) -> bool:
    """Whether what an instruction computes can be told by its operands, in any warp."""
    parts = [part for operand in operands for part in walk(operand)]
    read = [part for part in parts if isinstance(part, Var)]
    own = any(isinstance(part, Special) and part.name in _OF_WARPS for part in parts)
    return bool(read) and not own and all(_setter(graph, setter, v) is not None for v in read)


def _setter(graph: FlowGraph, reader: int, var: Var) -> int | None:
    """The only instruction that sets a register for another one, if it is on every way to it."""
    setters = graph.reaching.setters(reader, var.name)
    if len(setters) != 1 or graph.mir.code[setters[0]].guard is not None:
        return None
    one, other = graph.block_of[setters[0]], graph.block_of[reader]
    before = setters[0] < reader if one == other else graph.dominates(one, other)
    return setters[0] if before else None


def _computes(effects: tuple[Effect, ...]) -> bool:
    """Whether an instruction only computes registers, of those of other lanes as well."""
    return all(
        isinstance(e, Gathers) or (isinstance(e, Defines) and not e.chance and not e.elsewhere)
        for e in effects
    )


def _operands(graph: FlowGraph, number: int) -> Iterator[Expr]:
    what = graph.mir.code[number].what
    if isinstance(what, Op):
        yield from operand_expressions(what)
