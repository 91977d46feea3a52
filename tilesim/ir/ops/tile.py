"""Register tiles: generic loads and stores, elementwise math, casts, row reductions.

Each instruction stands for the per-lane instructions that move or compute one warp's part of a
fragment; memory accesses go through the generic proxy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from tilesim.arith.types import f32, numpy_dtype
from tilesim.ir.declarations import Fragment, View
from tilesim.ir.effects import Agrees, Effect, Reads, UsesFragment, Writes
from tilesim.ir.expr import Expr
from tilesim.ir.op import Inputs, Op
from tilesim.records import dataclass

if TYPE_CHECKING:
    from tilesim.ir.op import PerLane

MapOp = Literal["neg", "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "rcp", "relu"]
ZipOp = Literal["add", "sub", "mul", "div", "min", "max"]
ReduceOp = Literal["sum", "max", "min"]


def _same_shape(
    view: View, fragment: Fragment, part: tuple[int, int] | None = None
) -> Iterator[str]:
    """What is wrong with moving a fragment, or a part of that shape, to or from a view."""
    shape = tuple(view.shape)
    if len(shape) == 1:
        shape = (1, *shape)
    if shape != (part or fragment.shape):
        yield f"{view} is {tuple(view.shape)}, fragment {fragment.name} is {fragment.shape}"
    if view.dtype != fragment.dtype:
        yield f"{view.tensor.name} is {view.dtype}, fragment {fragment.name} is {fragment.dtype}"


def _same_type(dst: Fragment, src: Fragment) -> Iterator[str]:
    """What is wrong with taking elements over from a fragment, or not."""
    if (dst.shape, dst.dtype) != (src.shape, src.dtype):
        yield f"{dst.name} is {dst.dtype} {dst.shape}, {src.name} is {src.dtype} {src.shape}"


def _broadcasts(fragment: Fragment, onto: Fragment) -> bool:
    rows, columns = fragment.shape
    same_rows = rows == onto.shape[0] and fragment.distribution == onto.distribution
    return (same_rows and columns in (1, onto.shape[1])) or fragment.shape == (1, onto.shape[1])


def _reads(*operands: Fragment | Expr) -> Iterator[Effect]:
    """What reads operands: tiles, and scalars that are the same for all elements."""
    for operand in operands:
        yield UsesFragment(operand) if isinstance(operand, Fragment) else Agrees(operand)


def _right(inputs: Inputs, operand: Fragment | Expr) -> Any:
    """A right operand in the type that elementwise math runs in."""
    from tilesim.arith.tile_math import working

    if isinstance(operand, Fragment):
        return working(inputs.tile(operand))
    return inputs.scalar(operand)


@dataclass(frozen=True, kw_only=True)
class TileFill(Op):
    """Sets every element of a fragment to ``value``."""

    mnemonic = "tile.fill"
    call = "tile.fill(dst, value)"
    data = frozenset({"value"})

    dst: Fragment
    value: Expr

    def effects(self) -> tuple[Effect, ...]:
        return (UsesFragment(self.dst, write=True),)

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        value, dtype = inputs.scalar(self.value), numpy_dtype(self.dst.dtype)
        return (np.full(self.dst.warp_shape, value, dtype),)


@dataclass(frozen=True, kw_only=True)
class TileLoad(Op):
    """Loads a 1-D or 2-D view of shared or global memory into a fragment (generic proxy)."""

    mnemonic = "tile.load"
    call = "tile.load(dst, src)"
    cycles = 60

    dst: Fragment
    src: View

    def verify(self) -> Iterator[str]:
        yield from _same_shape(self.src, self.dst)

    def effects(self) -> tuple[Effect, ...]:
        return (Reads(self.src, held=self.dst), UsesFragment(self.dst, write=True, value=self.src))


@dataclass(frozen=True, kw_only=True)
class TileStore(Op):
    """Stores a fragment to a 1-D or 2-D view of shared or global memory (generic proxy).

    ``column``: only as many columns as the view has, from this one on.
    """

    mnemonic = "tile.store"
    call = "tile.store(dst, src, *, column)"
    cycles = 40

    dst: View
    src: Fragment
    column: int | None = None

    def verify(self) -> Iterator[str]:
        if self.column is None:
            yield from _same_shape(self.dst, self.src)
            return
        rows, columns = self.src.shape
        width = self.dst.shape[-1] if self.dst.shape else 0
        if self.column < 0 or self.column + width > columns:
            yield (
                f"columns {self.column} to {self.column + width - 1} of fragment {self.src.name}, "
                f"which has {columns}"
            )
        yield from _same_shape(self.dst, self.src, (rows, width))

    def effects(self) -> tuple[Effect, ...]:
        return (UsesFragment(self.src), Writes(self.dst, held=self.src))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        first = self.column or 0
        return (inputs.tile(self.src)[:, first : first + self.dst.shape[-1]],)


@dataclass(frozen=True, kw_only=True)
class TileMap(Op):
    """``dst = op(src)`` elementwise.

    ``exp2`` of f32 is ``ex2.approx.ftz.f32``: results below the normal numbers are zero.
    """

    mnemonic = "tile.map"
    call = "tile.map(dst, op, src)"
    cycles = 40

    dst: Fragment
    op: MapOp
    src: Fragment

    def verify(self) -> Iterator[str]:
        if self.dst.shape != self.src.shape:
            yield f"shapes differ: {self.dst.shape} and {self.src.shape}"

    def effects(self) -> tuple[Effect, ...]:
        return (UsesFragment(self.src), UsesFragment(self.dst, write=True))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        from tilesim.arith.tile_math import mapped

        return (mapped(self.op, inputs.tile(self.src), self.dst.dtype),)


@dataclass(frozen=True, kw_only=True)
class TileZip(Op):
    """``dst = lhs op rhs`` elementwise.

    ``rhs`` is a fragment of the same shape, one of shape (rows, 1) or (1, columns) that is
    repeated, or a scalar.
    """

    mnemonic = "tile.zip"
    call = "tile.zip(dst, op, lhs, rhs)"
    cycles = 20

    dst: Fragment
    op: ZipOp
    lhs: Fragment
    rhs: Fragment | Expr

    def verify(self) -> Iterator[str]:
        if self.dst.shape != self.lhs.shape:
            yield f"shapes differ: {self.dst.shape} and {self.lhs.shape}"
        if isinstance(self.rhs, Fragment) and not _broadcasts(self.rhs, self.lhs):
            yield f"{self.rhs.shape} cannot be repeated over {self.lhs.shape}"

    def effects(self) -> tuple[Effect, ...]:
        return (*_reads(self.lhs, self.rhs), UsesFragment(self.dst, write=True))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        from tilesim.arith.tile_math import zipped

        right = _right(inputs, self.rhs)
        return (zipped(self.op, inputs.tile(self.lhs), right, self.dst.dtype),)


@dataclass(frozen=True, kw_only=True)
class TileFma(Op):
    """``dst = a * b + c`` elementwise, rounded once (PTX fma.rn).

    ``b`` and ``c`` are fragments as the right operand of `TileZip`, or scalars; elements are f32.
    """

    mnemonic = "tile.fma"
    call = "tile.fma(dst, a, b, c)"

    dst: Fragment
    a: Fragment
    b: Fragment | Expr
    c: Fragment | Expr

    def verify(self) -> Iterator[str]:
        if self.dst.shape != self.a.shape:
            yield f"shapes differ: {self.dst.shape} and {self.a.shape}"
        fragments = [x for x in (self.a, self.b, self.c) if isinstance(x, Fragment)]
        for fragment in fragments[1:]:
            if not _broadcasts(fragment, self.a):
                yield f"{fragment.shape} cannot be repeated over {self.a.shape}"
        for fragment in (self.dst, *fragments):
            if fragment.dtype is not f32:
                yield f"{fragment.name} is {fragment.dtype}, expected f32"

    def effects(self) -> tuple[Effect, ...]:
        return (*_reads(self.a, self.b, self.c), UsesFragment(self.dst, write=True))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        from tilesim.arith.tile_math import fused

        right = (_right(inputs, x) for x in (self.b, self.c))
        return (fused(inputs.tile(self.a), *right),)


@dataclass(frozen=True, kw_only=True)
class TileTril(Op):
    """``dst[i, j] = src[i, j]`` where ``j - i <= diagonal``, else ``value``: a causal mask.

    Rows are those of the whole tile, also of a warpgroup fragment.
    """

    mnemonic = "tile.tril"
    call = "tile.tril(dst, src, diagonal, value)"

    dst: Fragment
    src: Fragment
    diagonal: Expr
    value: Expr

    def verify(self) -> Iterator[str]:
        yield from _same_type(self.dst, self.src)

    def effects(self) -> tuple[Effect, ...]:
        reads = _reads(self.src, self.diagonal, self.value)
        return (*reads, UsesFragment(self.dst, write=True))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        from tilesim.arith.tile_math import converted

        rows, columns = self.src.warp_shape
        first = inputs.quarter * rows if self.src.split else 0
        kept = np.tri(rows, columns, int(inputs.scalar(self.diagonal)) + first, dtype=bool)
        other = converted(inputs.scalar(self.value), self.dst.dtype)
        return (np.where(kept, inputs.tile(self.src), other),)


@dataclass(frozen=True, kw_only=True)
class TileLeft(Op):
    """``dst[i, j] = src[i, j]`` where ``j < columns``, else ``value``: an edge of the data."""

    mnemonic = "tile.left"
    call = "tile.left(dst, src, columns, value)"

    dst: Fragment
    src: Fragment
    columns: Expr
    value: Expr

    def verify(self) -> Iterator[str]:
        yield from _same_type(self.dst, self.src)

    def effects(self) -> tuple[Effect, ...]:
        reads = _reads(self.src, self.columns, self.value)
        return (*reads, UsesFragment(self.dst, write=True))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        import numpy as np

        from tilesim.arith.tile_math import converted

        kept = np.arange(self.src.shape[1]) < int(inputs.scalar(self.columns))
        other = converted(inputs.scalar(self.value), self.dst.dtype)
        return (np.where(kept, inputs.tile(self.src), other),)


@dataclass(frozen=True, kw_only=True)
class TileCast(Op):
    """``dst = src`` converted to the element type of ``dst`` (round to nearest even)."""

    mnemonic = "tile.cast"
    call = "tile.cast(dst, src)"
    cycles = 20

    dst: Fragment
    src: Fragment

    def verify(self) -> Iterator[str]:
        if self.dst.shape != self.src.shape or self.dst.distribution != self.src.distribution:
            yield f"shapes differ: {self.dst.shape} and {self.src.shape}"

    def effects(self) -> tuple[Effect, ...]:
        return (UsesFragment(self.src), UsesFragment(self.dst, write=True))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        from tilesim.arith.tile_math import converted

        return (converted(inputs.tile(self.src), self.dst.dtype),)


@dataclass(frozen=True, kw_only=True)
class TileReduce(Op):
    """``dst[i, j] = op over n of src[i, j + n * width]``: a row reduction to ``width`` columns.

    ``width`` is the number of columns of ``dst``. With one column it ends in shuffles inside the
    warp; with a multiple of the columns that a layout repeats after (8 in a warpgroup, 32 in a
    warp), every thread reduces what it holds.
    """

    mnemonic = "tile.reduce"
    call = "tile.reduce(dst, op, src)"
    cycles = 60

    dst: Fragment
    op: ReduceOp
    src: Fragment

    def verify(self) -> Iterator[str]:
        rows, columns = self.src.shape
        same = self.dst.shape[0] == rows and self.dst.distribution == self.src.distribution
        if not same or columns % self.dst.shape[1]:
            yield (
                f"the result is {self.dst.shape}, expected {rows} rows and a number of columns "
                f"that divides {columns}"
            )

    def effects(self) -> tuple[Effect, ...]:
        return (UsesFragment(self.src), UsesFragment(self.dst, write=True))

    def evaluate(self, inputs: Inputs) -> tuple[PerLane, ...]:
        from tilesim.arith.tile_math import reduced

        width = self.dst.shape[1]
        return (reduced(self.op, inputs.tile(self.src), width, self.dst.dtype),)
