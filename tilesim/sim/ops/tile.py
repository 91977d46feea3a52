"""Register tiles: generic loads and stores, elementwise math, casts, row reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.expr import Expr
from tilesim.ir.memory import Fragment
from tilesim.ir.op import Op
from tilesim.ir.ops.tile import (
    TileCast,
    TileFill,
    TileFma,
    TileLoad,
    TileMap,
    TileReduce,
    TileStore,
    TileTril,
    TileZip,
)
from tilesim.ir.types import DType, numpy_dtype
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.execute.fragments import touch, value_of
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import read_elements, uniform, write_elements


def _exp2(values: NDArray[Any]) -> NDArray[Any]:
    """Powers of two; in f32 as ex2.approx.ftz has them, without subnormal results."""
    powers: NDArray[Any] = np.exp2(values)
    if powers.dtype == np.float32:
        powers[powers < np.finfo(np.float32).tiny] = 0
    return powers


_MAP: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "exp2": _exp2, "log": np.log,
    "log2": np.log2, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp": lambda x: 1 / x, "relu": lambda x: np.maximum(x, 0),
}  # fmt: skip
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


def _set(w: Warp, fragment: Fragment, op: Op, value: NDArray[Any] | None) -> None:
    touch(w, fragment, op)
    w.fragments[fragment.name] = value


def _convert(values: Any, dtype: DType) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(values).astype(numpy_dtype(dtype))


def _working(values: NDArray[Any]) -> NDArray[Any]:
    """Values in the type elementwise math runs in: f32 for the narrow floats."""
    narrow = values.dtype.kind == "V" or values.dtype == np.float16
    return values.astype(np.float32) if narrow or values.dtype.itemsize == 1 else values


@RULES.rule(TileFill)
def _fill(c: Compiler, op: TileFill) -> Step:
    value, shape, numbers = c.expr(op.value), op.dst.warp_shape, c.numbers

    def step(w: Warp) -> None:
        filled = None
        if numbers:
            scalar = value(w)
            scalar = scalar if isinstance(scalar, (int, float)) else uniform(scalar, w)
            filled = np.full(shape, scalar, dtype=numpy_dtype(op.dst.dtype))
        _set(w, op.dst, op, filled)

    return step


@RULES.rule(TileLoad)
def _load(c: Compiler, op: TileLoad) -> Step:
    view = c.view(op.src, split=op.dst.distribution == "warpgroup")
    shape, numbers = op.dst.warp_shape, c.numbers

    def step(w: Warp) -> None:
        memory, footprint = view.memory(w), view.footprint(w)
        access = Access(w, op, w.component, w.tick, False, False)
        w.machine.races.read(memory, footprint, access, w.clock)
        values = None
        if numbers:
            values = read_elements(memory, footprint, op.src.dtype).reshape(shape).copy()
        _set(w, op.dst, op, values)

    return step


@RULES.rule(TileStore)
def _store(c: Compiler, op: TileStore) -> Step:
    view = c.view(op.dst, split=op.src.distribution == "warpgroup")
    first = 0 if op.column is None else op.column
    columns = slice(first, first + op.dst.shape[-1])
    numbers = c.numbers

    def step(w: Warp) -> None:
        values = value_of(w, op.src, op)
        memory, footprint = view.memory(w), view.footprint(w)
        access = Access(w, op, w.component, w.tick, False, True)
        w.machine.races.write(memory, footprint, access, w.clock)
        w.effects += 1
        if numbers:
            stored = values[:, columns].reshape(footprint.addresses.shape)
            write_elements(memory, footprint, op.dst.dtype, stored)

    return step


@RULES.rule(TileMap)
def _map(c: Compiler, op: TileMap) -> Step:
    function, numbers = _MAP[op.op], c.numbers

    def step(w: Warp) -> None:
        values = value_of(w, op.src, op)
        with np.errstate(all="ignore"):
            result = _convert(function(_working(values)), op.dst.dtype) if numbers else None
        _set(w, op.dst, op, result)

    return step


def _right(c: Compiler, op: Op, rhs: Fragment | Expr) -> Callable[[Warp], Any]:
    """How an operation gets a right operand: a fragment's elements, or a scalar."""
    if isinstance(rhs, Fragment):
        fragment, numbers = rhs, c.numbers

        def elements(w: Warp) -> Any:
            values = value_of(w, fragment, op)
            return _working(values) if numbers else None

        return elements
    scalar = c.expr(rhs)

    def repeated(w: Warp) -> Any:
        value = scalar(w)
        return value if isinstance(value, (int, float)) else uniform(value, w)

    return repeated


@RULES.rule(TileFma)
def _fma(c: Compiler, op: TileFma) -> Step:
    numbers = c.numbers
    factor, summand = _right(c, op, op.b), _right(c, op, op.c)

    def step(w: Warp) -> None:
        a, b, s = value_of(w, op.a, op), factor(w), summand(w)
        _set(w, op.dst, op, _fused(a, b, s) if numbers else None)

    return step


def _fused(*operands: Any) -> NDArray[Any]:
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


@RULES.rule(TileTril)
def _tril(c: Compiler, op: TileTril) -> Step:
    diagonal, value = _right(c, op, op.diagonal), _right(c, op, op.value)
    numbers = c.numbers
    rows, columns = op.src.warp_shape
    split = op.src.distribution == "warpgroup"

    def step(w: Warp) -> None:
        values, last, other = value_of(w, op.src, op), diagonal(w), value(w)
        result = None
        if numbers:
            first = w.number % 4 * rows if split else 0
            kept = np.tri(rows, columns, int(last) + first, dtype=bool)
            result = np.where(kept, values, _convert(other, op.dst.dtype))
        _set(w, op.dst, op, result)

    return step


@RULES.rule(TileZip)
def _zip(c: Compiler, op: TileZip) -> Step:
    function, numbers = _ZIP[op.op], c.numbers
    rhs = _right(c, op, op.rhs)

    def step(w: Warp) -> None:
        left, right = value_of(w, op.lhs, op), rhs(w)
        result = None
        if numbers:
            with np.errstate(all="ignore"):
                result = _convert(function(_working(left), right), op.dst.dtype)
        _set(w, op.dst, op, result)

    return step


@RULES.rule(TileCast)
def _cast(c: Compiler, op: TileCast) -> Step:
    numbers = c.numbers

    def step(w: Warp) -> None:
        values = value_of(w, op.src, op)
        _set(w, op.dst, op, _convert(values, op.dst.dtype) if numbers else None)

    return step


@RULES.rule(TileReduce)
def _reduce(c: Compiler, op: TileReduce) -> Step:
    function, numbers = _REDUCE[op.op], c.numbers
    rows, columns = op.src.warp_shape
    width = op.dst.shape[1]

    def step(w: Warp) -> None:
        values = value_of(w, op.src, op)
        result = None
        if numbers:
            parts = _working(values).reshape(rows, columns // width, width)
            result = _convert(function(parts), op.dst.dtype)
        _set(w, op.dst, op, result)

    return step
