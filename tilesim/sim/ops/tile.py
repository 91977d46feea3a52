"""Register tiles: generic loads and stores, elementwise math, casts, row reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.memory import Fragment
from tilesim.ir.op import Op
from tilesim.ir.ops.tile import (
    TileCast,
    TileFill,
    TileLoad,
    TileMap,
    TileReduce,
    TileStore,
    TileZip,
)
from tilesim.ir.types import DType, numpy_dtype
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.memory import read_elements, uniform, write_elements
from tilesim.sim.machine.warp import Step, Warp
from tilesim.sim.ops.wgmma import touch

_MAP: dict[str, Callable[[Any], Any]] = {
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "exp2": np.exp2, "log": np.log,
    "log2": np.log2, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp": lambda x: 1 / x, "relu": lambda x: np.maximum(x, 0),
}  # fmt: skip
_ZIP: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide,
    "min": np.minimum, "max": np.maximum,
}  # fmt: skip
_REDUCE: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(axis=1, keepdims=True),
    "max": lambda x: x.max(axis=1, keepdims=True),
    "min": lambda x: x.min(axis=1, keepdims=True),
}


def value_of(w: Warp, fragment: Fragment, op: Op) -> Any:
    """The warp's part of a fragment (None without numbers); reading it unassigned is reported."""
    touch(w, fragment, op)
    if fragment.name not in w.fragments:
        w.machine.report(
            "uninitialised-read",
            f"{w} reads fragment {fragment.name} before anything was assigned to it",
            (w.machine.participant(w, f"reads {fragment.name} by {op.mnemonic}", op),),
            fix="fill, load or compute the fragment first",
        )
        return np.zeros(fragment.warp_shape, numpy_dtype(fragment.dtype))
    return w.fragments[fragment.name]


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


@RULES.rule(TileZip)
def _zip(c: Compiler, op: TileZip) -> Step:
    function, numbers = _ZIP[op.op], c.numbers
    scalar = None if isinstance(op.rhs, Fragment) else c.expr(op.rhs)

    def step(w: Warp) -> None:
        left = value_of(w, op.lhs, op)
        if isinstance(op.rhs, Fragment):
            right = value_of(w, op.rhs, op)
            right = _working(right) if numbers else None
        else:
            assert scalar is not None
            right = scalar(w)
            right = right if isinstance(right, (int, float)) else uniform(right, w)
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

    def step(w: Warp) -> None:
        values = value_of(w, op.src, op)
        result = _convert(function(_working(values)), op.dst.dtype) if numbers else None
        _set(w, op.dst, op, result)

    return step
