"""Reductions whose order nobody can see."""

from __future__ import annotations

from tilesim.ir.op import Op
from tilesim.ir.ops.cluster import RedAsync
from tilesim.ir.ops.scalar import Atomic
from tilesim.ir.ops.tma import BulkReduce, BulkReducePeer, TmaReduce

#: operations that leave the same integer in whatever order they are applied
COMMUTATIVE = ("add", "min", "max", "and", "or", "xor")


def reduction_form(op: Op) -> int | None:
    """A number for the kind and type of a commutative reduction that returns nothing, else None.

    Sums of floats are left out: their rounding depends on the order.
    """
    match op:
        case Atomic(op=kind, result=None, dst=view) | RedAsync(op=kind, dst=view):
            dtype = view.dtype
        case BulkReduce(op=kind, dst=view) | BulkReducePeer(op=kind, dst=view):
            dtype = view.dtype
        case TmaReduce(op=kind, map=tensor_map):
            dtype = tensor_map.tensor.dtype
        case _:
            return None
    if kind not in COMMUTATIVE or dtype.kind == "float":
        return None
    signed = dtype.kind == "int"
    return 2 * (len(COMMUTATIVE) * dtype.bits + COMMUTATIVE.index(kind)) + signed


def commute(first: Op, second: Op) -> bool:
    """Whether two operations on one location leave the same value in either order."""
    form = reduction_form(first)
    return form is not None and form == reduction_form(second)
