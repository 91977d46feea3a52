"""Registers that one instruction sets: what to, and who reads them."""

from __future__ import annotations

from collections.abc import Collection

from tilesim.ir import effects as fx
from tilesim.ir.dataflow import mentions
from tilesim.ir.expr import Expr, Var
from tilesim.ir.flowgraph import FlowGraph
from tilesim.ir.mir import Mir


def given_once(mir: Mir, once: Collection[str], *, bits: int) -> dict[str, Expr]:
    """What registers of so many ``bits`` or more that are set ``once`` are set to, where an
    expression says it."""
    found: dict[str, Expr] = {}
    for effects, instruction in zip(mir.effects, mir.code, strict=True):
        match effects:
            case (fx.Defines(Var(name, dtype), Expr() as value),) if name in once:
                if instruction.guard is None and dtype.bits >= bits:
                    found[name] = value
            case _:
                pass
    return found


def readers_of(mir: Mir, graph: FlowGraph) -> dict[str, frozenset[int]]:
    """By register that one instruction sets, the blocks that have to be followed again when more
    becomes known of it; not those that nothing leads to."""
    setters: dict[str, list[int]] = {}
    for number, effects in enumerate(mir.effects):
        for effect in effects:
            if isinstance(effect, fx.Defines):
                setters.setdefault(effect.var.name, []).append(number)
    found: dict[str, set[int]] = {n: set() for n, numbers in setters.items() if len(numbers) == 1}
    reached, named = frozenset(graph.order), mentions(mir)
    for number, block in enumerate(graph.block_of[:-1]):
        for name in (*named[number].tested, *named[number].used):
            if name in found and block in reached:
                setter = setters[name][0]
                if graph.block_of[setter] != block or number <= setter:
                    found[name].add(block)
    return {name: frozenset(blocks) for name, blocks in found.items()}
