"""Reductions whose order nobody can see."""

from __future__ import annotations

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.ir.ops.bulk import BulkReduce, BulkReducePeer
from tilesim.ir.ops.cluster import RedAsync
from tilesim.ir.ops.scalar import Atomic
from tilesim.ir.ops.tma import TmaReduce

_KINDS = ("int", "uint", "float", "pred")
#: operations that leave the same integer in whatever order they are applied
COMMUTATIVE = ("add", "min", "max", "and", "or", "xor")


def reduction_form(op: Op) -> int | None:
    """A number for the kind and type of a commutative reduction that returns nothing, else None."""
    kind: str
    match op:
        case Atomic(op=kind, result=None, dst=view) | RedAsync(op=kind, dst=view):
            dtype = view.dtype
        case BulkReduce(op=kind, dst=view) | BulkReducePeer(op=kind, dst=view):
            dtype = view.dtype
        case TmaReduce(op=kind, map=tensor_map):
            dtype = tensor_map.tensor.dtype
        case _:
            reduces = [e for e in op.effects() if isinstance(e, fx.Writes) and e.combine]
            if not reduces:
                return None
            kind, dtype = reduces[0].combine or "", reduces[0].view.dtype
    if kind not in COMMUTATIVE:
        return None
    return (_KINDS.index(dtype.kind) * 256 + dtype.bits) * len(COMMUTATIVE) + COMMUTATIVE.index(
        kind
    )


def alike(first: Op, second: Op) -> bool:
    """Whether both are the same reduction, so that their order changes at most the rounding."""
    form = reduction_form(first)
    return form is not None and form == reduction_form(second)


def exact(op: Op) -> bool:
    """Whether a reduction leaves the same bits in any order: sums of floats do not."""
    form = reduction_form(op)
    return form is not None and form // len(COMMUTATIVE) // 256 != _KINDS.index("float")
