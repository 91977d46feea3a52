"""Which warps take a branch, where its condition depends on nothing but their numbers."""

from __future__ import annotations

from tilesim.ir.expr import Binary, Const, Expr, ScalarParam, Special, Unary
from tilesim.ir.operators import BINARY, UNARY, Scalar

#: lanes of a warp
LANES = 32


def lanes_taking(cond: Expr, warp: int) -> tuple[bool, bool] | None:
    """Whether some lanes of ``warp`` take the branch, and whether all do; None if not known."""
    values = [_value(cond, warp, lane) for lane in range(LANES)]
    if any(value is None for value in values):
        return None
    return any(values), all(values)


def _value(expr: Expr, warp: int, lane: int) -> Scalar | None:
    match expr:
        case Const(value) | ScalarParam(_, value):
            return value
        case Special("warp_id"):
            return warp
        case Special("lane_id"):
            return lane
        case Special("thread_id"):
            return warp * LANES + lane
        case Unary(op, operand):
            inner = _value(operand, warp, lane)
            return None if inner is None else UNARY[op](inner)
        case Binary(op, lhs, rhs):
            left, right = _value(lhs, warp, lane), _value(rhs, warp, lane)
            if left is None or right is None or (op in ("//", "%") and not right):
                return None
            return BINARY[op](left, right)
        case _:
            return None
