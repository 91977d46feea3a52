"""What may differ between the clusters of a grid: read off the program, before anything runs."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeGuard

from tilesim.analysis.solver import closure
from tilesim.analysis.uses_defs import OPERANDS, mentioned, registers_of
from tilesim.ir.addressed import AddressedTensor
from tilesim.ir.expr import Expr
from tilesim.ir.memory import GlobalTensor, TensorMap, View
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op

#: special registers that are not the same function of rank, warp and lane in every cluster
_OF_THE_GRID = ("%cta_x", "%cta_y", "%cta_z", "%cluster_id")


def varying_registers(mir: Mir) -> frozenset[str]:
    """What may have different values in different clusters, special registers among it."""
    made = registers_of(mir)
    return frozenset(closure(_OF_THE_GRID, lambda name: made.get(name, ())))


def varies(expr: Expr, registers: Collection[str]) -> bool:
    """Whether an expression may have different values in different clusters."""
    named = mentioned(expr)
    return not named.isdisjoint(_OF_THE_GRID) or not named.isdisjoint(registers)


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
