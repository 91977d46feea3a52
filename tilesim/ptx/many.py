"""What `tilesim.ptx.lanes` computes, for many warps at once: those of all clusters of a grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.ir.array_operators import ARRAY_BINARY
from tilesim.ir.sums import Sums, combined
from tilesim.ptx.arithmetic import Operation
from tilesim.ptx.lanes import FAST, apply, cut

_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def apply_many(operation: Operation, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The results, numbers if all operands are, else arrays of the shape to which operands
    broadcast; None if they have to be computed one by one. For operands see
    `tilesim.ir.op.Computation.compute_many`."""
    if all(type(value) is int for value in values):
        return apply(operation, values)
    if operation.name == "setp" and len(values) == 2:
        decided = _compared(operation, values[0], values[1])
        if decided is not None:
            return decided
    fast = FAST.get(operation.name)
    operands = [_unsigned(v) for v in values]
    if fast is None:
        return None
    known = [cut(v, w) for v, w in zip(operands, operation.sources, strict=True) if v is not None]
    if len(known) < len(operands):
        return None
    with np.errstate(all="ignore"):
        found = fast(operation, *known)
    if found is None:
        return None
    return found if isinstance(found, tuple) else (found,)


def _unsigned(value: Any) -> Any:
    """An operand as unsigned numbers; None if it is none of 64 bits."""
    if type(value) is Sums:
        value = value.dense
    if type(value) is int:
        return value & (1 << 64) - 1
    if isinstance(value, np.ndarray) and value.dtype == np.int64:
        return np.ascontiguousarray(value).view(np.uint64)
    return None


def _compared(operation: Operation, a: Any, b: Any) -> tuple[Any, ...] | None:
    """A comparison of numbers that are not negative, without a number for each lane."""
    name, _, kind = operation.detail[0].partition(".")
    width = operation.sources[0]
    most = 1 << (width - 1 if kind == "s" else width)
    if kind == "float" or not all(_within(v, most) for v in (a, b)):
        return None
    symbol = _SYMBOLS[name]
    found = combined(symbol, ARRAY_BINARY[symbol], a, b) if Sums in (type(a), type(b)) else None
    if found is None:
        return None
    if type(found) is int:
        return found, 1 - found
    true = found.dense.view(np.uint64)
    return true, true ^ np.uint64(1)


def _within(value: Any, most: int) -> bool:
    if type(value) is Sums:
        low, high = value.limits
        return low >= 0 and high < most
    return type(value) is int and 0 <= value < most
