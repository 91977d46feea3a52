"""Arithmetic on register tiles, bit for bit what the emitted code computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import DType, numpy_dtype


def _exp2(values: NDArray[Any]) -> NDArray[Any]:
    """Powers of two; in f32 as ex2.approx.ftz has them, without subnormal results."""
    powers: NDArray[Any] = np.exp2(values)
    if powers.dtype == np.float32:
        powers[powers < np.finfo(np.float32).tiny] = 0
    return powers


#: of one tile, elementwise
_MAP: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "exp2": _exp2, "log": np.log,
    "log2": np.log2, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp": lambda x: 1 / x, "relu": lambda x: np.maximum(x, 0),
}  # fmt: skip
#: of two tiles, elementwise
_ZIP: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip
#: over the middle axis of (rows, n, width)
_REDUCE: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(axis=1),
    "max": lambda x: x.max(axis=1),
    "min": lambda x: x.min(axis=1),
}


def converted(values: Any, dtype: DType) -> NDArray[Any]:
    """Values in an element type."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(numpy_dtype(dtype))


def working(values: NDArray[Any]) -> NDArray[Any]:
    """Values in the type elementwise math runs in: f32 for the narrow floats."""
    narrow = values.dtype.kind == "V" or values.dtype == np.float16
    return values.astype(np.float32) if narrow or values.dtype.itemsize == 1 else values


def fused(*operands: Any) -> NDArray[Any]:
    """a * b + c of f32, rounded once.

    The product is exact in f64. The sum is rounded to odd there (an inexact one gets an odd last
    bit), so that rounding it to f32 gives what rounding the exact sum would.
    """
    a, b, c = (np.asarray(x, np.float32).astype(np.float64) for x in operands)
    with np.errstate(all="ignore"):
        product = a * b
        total = product + c
        part = total - product
        lost = (product - (total - part)) + (c - part)
        odd = np.nextafter(total, np.copysign(np.inf, lost))
        even = (total.view(np.int64) & 1) == 0
        result = np.where(np.isfinite(total) & (lost != 0) & even, odd, total)
        return np.asarray(result.astype(np.float32))


def mapped(op: str, values: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """One operation on every element."""
    with np.errstate(all="ignore"):
        return converted(_MAP[op](working(values)), dtype)


def zipped(op: str, left: NDArray[Any], right: Any, dtype: DType) -> NDArray[Any]:
    """One operation on every pair of elements; ``right`` may be repeated."""
    with np.errstate(all="ignore"):
        return converted(_ZIP[op](working(left), right), dtype)


def reduced(op: str, values: NDArray[Any], width: int, dtype: DType) -> NDArray[Any]:
    """Rows reduced to ``width`` columns."""
    rows, columns = values.shape
    return converted(_REDUCE[op](working(values).reshape(rows, columns // width, width)), dtype)
