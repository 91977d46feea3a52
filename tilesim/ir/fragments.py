"""Which thread holds which element of a fragment.

* ``warp`` fragments (rows, columns): lane ``c % 32`` holds column ``c`` of every row, as element
  ``row * W + c / 32`` of its array, ``W = ceil(columns / 32)``; a (rows, 1) fragment is held by
  every lane, element ``row``. So row reductions end in one butterfly and broadcasts are free.
* ``warpgroup`` fragments: wgmma's accumulator layout. Element ``i`` of a thread is in row
  ``16 * (warp % 4) + lane / 4 + 8 * (i / 2 % 2)`` and column
  ``8 * (i / 4) + 2 * (lane % 4) + i % 2``; a (rows, 1) fragment is held by the four threads of a
  row. Fragments of ``64 * k`` rows stack ``k`` such blocks per warp, because a warp holds
  ``rows / 4`` consecutive rows. A (1, columns) fragment is held by every warp: element ``i`` of a
  thread is in column ``8 * (i / 2) + 2 * (lane % 4) + i % 2``, that of its accumulators.
* fragments that tcgen05.ld or .st moves in shape ``32x32b``, and those that elementwise operations
  connect with them: lane ``l`` holds row ``l`` of the warp's 32 rows, element ``i`` column ``i``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilesim.ir.declarations import Fragment
from tilesim.ir.expr import Expr
from tilesim.ir.op import Op
from tilesim.ir.ops.tcgen05 import Tcgen05Ld, Tcgen05St
from tilesim.ir.ops.tile import (
    TileCast,
    TileFma,
    TileLeft,
    TileMap,
    TileReduce,
    TileTril,
    TileZip,
)
from tilesim.records import dataclass

#: rows of one warp in the layout of tcgen05.ld
_LANES = 32


@dataclass(frozen=True)
class Layout:
    """The registers of a fragment: ``count`` per thread, ``width`` per row (or row pair).

    ``lanes``: a lane holds a whole row, as tcgen05.ld leaves it.
    """

    rows: int
    columns: int
    warpgroup: bool
    lanes: bool = False

    @property
    def single(self) -> bool:
        """True for a (rows, 1) fragment, whose values are replicated over a row's lanes."""
        return self.columns == 1

    @property
    def row(self) -> bool:
        """True for a (1, columns) fragment of a warpgroup, which every warp holds."""
        return self.warpgroup and self.rows == 1

    @property
    def width(self) -> int:
        """Elements per row and lane of a warp fragment."""
        return -(-self.columns // 32)

    @property
    def count(self) -> int:
        """Elements per thread."""
        if self.lanes:
            return self.columns
        if not self.warpgroup:
            return self.rows * self.width
        if self.row:
            return self.columns // 4
        return self.rows // 32 if self.single else self.rows * self.columns // 128

    @property
    def block(self) -> int:
        """Elements per thread of one 64-row block of a warpgroup fragment."""
        return self.columns // 2


@dataclass(frozen=True)
class Held:
    """Which lanes touch the elements that a warp moves of a fragment, a part of ``rows`` x
    ``columns``; ``once``: one of those that hold an element."""

    layout: Layout
    rows: int
    columns: int
    once: bool

    def lanes(self) -> tuple[int, ...]:
        """For each element, row by row, the mask of these lanes."""
        return tuple(self._mask(n, c) for n in range(self.rows) for c in range(self.columns))

    def _mask(self, row: int, column: int) -> int:
        if self.layout.lanes:
            return 1 << row % 32
        if not self.layout.warpgroup:
            if self.layout.single:
                return 1 << row % 32 if self.once else 0xFFFFFFFF
            return 1 << column % 32
        if self.layout.row:
            return 0x11111111 << column % 8 // 2
        first = 4 * (row % 8)
        if self.layout.single:
            return (1 if self.once else 0b1111) << first
        return 1 << first + column % 8 // 2


def layouts(fragments: Iterable[Fragment], ops: Iterable[Op]) -> dict[str, Layout]:
    """How the fragments of a verified program are spread over threads."""
    lanes = by_lane(ops)
    return {f.name: layout_of(f, lanes=f.name in lanes) for f in fragments}


def layout_of(fragment: Fragment, *, lanes: bool) -> Layout:
    """The layout of a fragment; ``lanes``: of which a lane holds whole rows."""
    rows, columns = fragment.shape
    return Layout(rows, columns, fragment.distribution == "warpgroup", lanes=lanes)


def layout_problem(fragment: Fragment, *, lanes: bool) -> str | None:
    """Why a fragment of this shape cannot be spread over threads, None if it can."""
    rows, columns = fragment.shape
    if lanes:
        if fragment.warp_shape[0] == _LANES:
            return None
        return (
            f"fragment {fragment.name} has {fragment.warp_shape[0]} rows per warp; moved by "
            f"tcgen05.ld or .st, or combined with such a fragment, it has {_LANES}"
        )
    if fragment.distribution == "warp":
        return None
    if columns % 8 if rows == 1 else rows % 64 or (columns != 1 and columns % 8):
        return (
            f"warpgroup fragment {fragment.name} is {rows} x {columns}; on the GPU it has a "
            f"multiple of 64 rows and of 8 columns (or 1 column); or it has one row and a "
            f"multiple of 8 columns"
        )
    return None


def by_lane(ops: Iterable[Op]) -> set[str]:
    """Fragments of which a lane holds whole rows."""
    found: set[str] = set()
    links: list[tuple[str, str]] = []
    for op in ops:
        match op:
            case Tcgen05Ld(dst=fragment, shape=shape) | Tcgen05St(src=fragment, shape=shape):
                if shape in ("32x32b", "16x32bx2"):
                    found.add(fragment.name)
            case _:
                links += _linked(op)
    while True:
        more = {b for a, b in links if a in found} | {a for a, b in links if b in found}
        if more <= found:
            return found
        found |= more


def _linked(op: Op) -> Iterator[tuple[str, str]]:
    """Pairs of fragments whose elements an instruction combines thread by thread."""
    match op:
        case (
            TileMap(dst=dst, src=src)
            | TileCast(dst=dst, src=src)
            | TileReduce(dst=dst, src=src)
            | TileTril(dst=dst, src=src)
            | TileLeft(dst=dst, src=src)
        ):
            yield dst.name, src.name
        case TileZip(dst=dst, lhs=lhs, rhs=rhs):
            yield dst.name, lhs.name
            yield from _rows(lhs, rhs)
        case TileFma(dst=dst, a=a, b=b, c=c):
            yield dst.name, a.name
            yield from _rows(a, b, c)
        case _:
            pass


def _rows(left: Fragment, *right: Fragment | Expr) -> Iterator[tuple[str, str]]:
    """``left`` and the right operands that are spread over threads like it."""
    for operand in right:
        if isinstance(operand, Fragment) and operand.shape[0] == left.shape[0]:
            yield left.name, operand.name
