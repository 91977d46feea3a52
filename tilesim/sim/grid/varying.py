"""What may differ between the clusters of a grid: read off the program, before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeGuard

from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.dataflow import OPERANDS, operand_expressions, registers_set
from tilesim.ir.expr import Expr, Special, Var, walk
from tilesim.ir.memory import GlobalTensor, TensorMap, View
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op

#: special registers that are not the same function of rank, warp and lane in every cluster
_OF_THE_GRID = ("cta_x", "cta_y", "cta_z", "cluster_id")


def varying_registers(mir: Mir) -> frozenset[str]:
    """Registers that may hold different values in different clusters."""
    found: set[str] = set()
    sources = [
        (result.name, tuple(operand_expressions(op)))
        for op in mir.ops()
        for result in registers_set(op)
    ]
    while True:
        more = {
            name
            for name, expressions in sources
            if name not in found and any(varies(e, found) for e in expressions)
        }
        if not more:
            return frozenset(found)
        found |= more


def varies(expr: Expr, registers: Iterable[str]) -> bool:
    """Whether an expression may have different values in different clusters."""
    return any(
        e.name in _OF_THE_GRID if isinstance(e, Special) else e.name in registers
        for e in walk(expr)
        if isinstance(e, Special | Var)
    )


def is_far(value: object) -> TypeGuard[View]:
    """Whether an operand is at an address that may be into global memory."""
    if not isinstance(value, View) or not isinstance(value.tensor, AddressedTensor):
        return False
    return value.tensor.space in ("global", "generic")


def global_operand(op: Op) -> View | TensorMap | None:
    """What an instruction names in global memory: no instruction names two places there."""
    for name in OPERANDS[type(op)]:
        value = getattr(op, name)
        if isinstance(value, TensorMap) and hasattr(op, "coords"):
            return value
        if isinstance(value, View) and isinstance(value.tensor, GlobalTensor):
            return value
    return None
