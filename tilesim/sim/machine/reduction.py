"""Reductions in memory: what they make of two values, and where their order cannot be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilesim.arith.types import DType
from tilesim.ir import effects as fx
from tilesim.ir.op import Op

Combine = Callable[[Any, Any], Any]

COMBINE: dict[str, Combine] = {
    "add": lambda a, b: a + b,
    "min": np.minimum,
    "max": np.maximum,
    "inc": lambda a, b: np.where(a >= b, 0, a + 1),
    "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - 1),
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


_KINDS = ("int", "uint", "float", "pred")
#: operations that leave the same integer in whatever order they are applied
COMMUTATIVE = ("add", "min", "max", "and", "or", "xor")


def reduction_form(op: Op) -> int | None:
    """A number for the kind and type of a commutative reduction that returns nothing, else None."""
    effects = op.effects()
    found = next(filter(None, map(_reduces, effects)), None)
    if found is None or any(isinstance(e, fx.Defines) for e in effects):
        return None
    kind, dtype = found
    if kind not in COMMUTATIVE:
        return None
    return (_KINDS.index(dtype.kind) * 256 + dtype.bits) * len(COMMUTATIVE) + COMMUTATIVE.index(
        kind
    )


def _reduces(effect: fx.Effect) -> tuple[str, DType] | None:
    """What an effect combines with what is there, and of which type."""
    match effect:
        case fx.Writes(view=view, combine=str() as kind):
            return kind, view.dtype
        case fx.RemoteStore(view=view, combine=str() as kind):
            return kind, view.dtype
        case fx.WritesMap(map=map_, combine=str() as kind):
            return kind, map_.tensor.dtype
        case _:
            return None


def same_reduction(first: Op, second: Op) -> bool:
    """Whether both are the same reduction, so that their order changes at most the rounding."""
    form = reduction_form(first)
    return form is not None and form == reduction_form(second)


def exact(op: Op) -> bool:
    """Whether a reduction leaves the same bits in any order: sums of floats do not."""
    form = reduction_form(op)
    return form is not None and form // len(COMMUTATIVE) // 256 != _KINDS.index("float")
