"""What a tensor map says, and which elements a copy through it accesses (SEMANTICS B16 to B23).

Dimensions are in the order of a tensor's shape, the slowest first; PTX counts them from the other
end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tilesim.arith.types import DType
from tilesim.ir.arithmetic import INT_MIN, UINT_MAX
from tilesim.ir.expr import Expr, constant
from tilesim.ir.fractional import fraction
from tilesim.ir.layout import byte_strides, row_pitch
from tilesim.ir.memory import TensorMap, View
from tilesim.ir.packing import coordinate_problems, in_global, in_shared

LoadMode = Literal["tile", "tile::gather4", "im2col", "im2col::w", "im2col::w::128"]
StoreMode = Literal["tile", "tile::scatter4", "im2col_no_offs"]

#: modes that name each of four rows of a matrix
ROWS_OF_FOUR = ("tile::gather4", "tile::scatter4")
#: modes in which pixels are counted along the rows of images
WIDE: tuple[LoadMode, ...] = ("im2col::w", "im2col::w::128")
#: pixels of ``im2col::w::128``, and after how many of them those of the halo are taken
_PIXELS, _GROUP = 128, 32


@dataclass(frozen=True)
class MapFields:
    """The fields of a tensor map: a tensor of ``dims`` elements, ``offset`` bytes into ``tensor``.

    ``strides`` in bytes. ``box`` as in `TensorMap`; ``lower``, ``upper`` and ``wide`` are those of
    an im2col map. ``packing``: of sub-byte elements, whose bytes everything counts.
    """

    tensor: str
    offset: int
    dtype: DType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0
    fill: str = "zero"
    lower: tuple[int, ...] | None = None
    upper: tuple[int, ...] | None = None
    packing: str | None = None
    wide: str | None = None

    @property
    def mode(self) -> str:
        """The mode of the copies that go through it, but for those that take rows of matrices."""
        if self.lower is None:
            return "tile"
        return "im2col" if self.wide is None else f"im2col::{self.wide}"


def fields_of(tensor_map: TensorMap) -> MapFields:
    """The fields of a map that the host has encoded."""
    tensor = tensor_map.tensor
    return MapFields(
        tensor.name, tensor_map.offset, tensor.dtype, tensor_map.dims or tensor.shape,
        tensor.byte_strides, in_global(tensor_map, tensor_map.box),
        tensor_map.element_strides or (1,) * len(tensor.shape), tensor_map.swizzle,
        tensor_map.fill, tensor_map.lower, tensor_map.upper, tensor_map.packing, tensor_map.wide,
    )  # fmt: skip


def copied_shape(
    box: tuple[int, ...], steps: tuple[int, ...] | None, mode: str, halo: int = 0
) -> tuple[int, ...]:
    """The shape of what a copy leaves in shared memory or takes from there, dense.

    A matrix for all modes but ``tile``: a row per row or pixel. ``halo``: pixels more at the end,
    or after each 32 of 128 (B23).
    """
    if mode == "tile":
        return box if steps is None else tuple(-(-b // s) for b, s in zip(box, steps, strict=True))
    rows = {"tile::gather4": 4, "tile::scatter4": 4, "im2col::w::128": _PIXELS}.get(mode, box[0])
    more = {"im2col::w": halo, "im2col::w::128": halo * (_PIXELS // _GROUP)}.get(mode, 0)
    return (rows + more, box[-1])


def rows_of(
    fields: MapFields, mode: str, coords: tuple[int, ...], info: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """The outer indices of each row of a copy that is no box, in the order of shared memory.

    Rows may lie outside of the tensor. The innermost index of all is the last coordinate.
    """
    if mode in ROWS_OF_FOUR:
        return [(row,) for row in coords[:-1]]
    if mode in WIDE:
        halo, offset = info
        return _wide(fields, mode, coords[:-1], halo, offset)
    walk = _pixels(fields, coords[:-1], info or (0,) * (len(coords) - 2), len(fields.dims) - 2)
    return [next(walk) for _ in range(fields.box[0])]


def _wide(
    fields: MapFields, mode: str, start: tuple[int, ...], halo: int, offset: int
) -> list[tuple[int, ...]]:
    """Pixels along W, at the same H and D of the next image when a row ends (B23, U32)."""
    shift = (*(0 for _ in start[2:]), offset)
    walk = _pixels(fields, start, shift, 1)
    if mode == "im2col::w":
        return [next(walk) for _ in range(fields.box[0] + halo)]
    pixels = [next(walk) for _ in range(_PIXELS + halo)]
    groups = range(_GROUP, _PIXELS + 1, _GROUP)
    return [*pixels[:_PIXELS], *(pixels[end + h] for h in range(halo) for end in groups)]


def _pixels(
    fields: MapFields, start: tuple[int, ...], shift: tuple[int, ...], moving: int
) -> Iterator[tuple[int, ...]]:
    """Image and position of pixel after pixel, from a filter base on, plus ``shift`` (5.5.4).

    The last ``moving`` spatial dimensions run inside the pixel box, then comes the next image.
    """
    assert fields.lower is not None
    assert fields.upper is not None
    spatial = fields.dims[1:-1]
    # a wide map has corners for W alone
    given = len(spatial) - len(fields.lower)
    lower = (*(0,) * given, *fields.lower)
    upper = (*(0,) * given, *fields.upper)
    image, position = start[0], list(start[1:])
    while True:
        yield (image, *(p + s for p, s in zip(position, shift, strict=True)))
        for d in range(len(spatial) - 1, len(spatial) - 1 - moving, -1):
            position[d] += fields.steps[1 + d]
            if position[d] <= spatial[d] - 1 + upper[d]:
                break
            position[d] = lower[d]
        else:
            image += 1


# ---------------------------------------------------------------------- what is wrong


def tile_problems(
    map_: TensorMap, view: View, coords: tuple[Expr, ...], mode: str, halo: int = 0
) -> Iterator[str]:
    """What is wrong with a tile of shared memory for copies of this mode through this map."""
    if view.space != "shared":
        yield f"the tile must be in shared memory, {view.tensor.name} is global"
        return
    if (problem := mode_problem(map_, mode)) is not None:
        yield problem
        return
    count = 5 if mode in ROWS_OF_FOUR else map_.dimensions
    if len(coords) != count:
        yield f"{len(coords)} coordinates for {_kind(mode, map_.dimensions, count)}"
    if view.dtype != map_.tensor.dtype:
        yield f"tile is {view.dtype}, tensor map is {map_.tensor.dtype}"
    yield from coordinate_problems(map_, coords)
    for coordinate, known in zip(coords, map(constant, coords), strict=True):
        if fraction(coordinate) is not None:
            yield f"the coordinate {coordinate} is no integer"
        if known is not None and not INT_MIN <= known <= UINT_MAX:
            yield f"the coordinate {known} does not fit into 32 bits"
    shape = in_shared(map_, copied_shape(map_.box, map_.element_strides, mode, halo))
    if tuple(n for n in view.shape if n != 1) != tuple(n for n in shape if n != 1):
        yield f"tile shape {view.shape} differs from the box {shape}"
    elif not _lies_like_box(view, map_, shape):
        yield (
            f"the elements of {view} do not lie as the copy leaves them: a box is dense in shared "
            "memory, row after row, without the gaps of a wider or padded tile (B.4)"
        )
    if getattr(view.tensor, "swizzle", 0) != map_.swizzle:
        yield (
            f"tile swizzle {getattr(view.tensor, 'swizzle', 0)} differs from the tensor map's "
            f"{map_.swizzle}"
        )


def _kind(mode: str, rank: int, count: int) -> str:
    return f"a {rank}-D tensor map" if mode == "tile" else f"{mode}, which has {count}"


#: the load whose maps a store goes through
_LOADS = {"im2col_no_offs": "im2col"}


def mode_problem(map_: TensorMap, mode: str) -> str | None:
    """Why copies of this mode do not go through this map (B22, B23)."""
    columns = mode.startswith("im2col")
    if columns != (map_.lower is not None):
        return (
            f"{mode} needs a tensor map {'with' if columns else 'without'} the corners of a pixel "
            "box (lower, upper) (B23)"
        )
    if columns and (f"im2col::{map_.wide}" if map_.wide else "im2col") != _LOADS.get(mode, mode):
        return f"{mode} does not go through a map for the modes of {map_.wide or 'im2col'} (B23)"
    if mode in ROWS_OF_FOUR and (len(map_.box) != 2 or map_.box[0] != 1):
        return f"{mode} needs a map of a matrix with a box of one row, not {map_.box} (B22)"
    return None


def _lies_like_box(view: View, map_: TensorMap, shape: tuple[int, ...]) -> bool:
    """Whether the strides of a tile are those of a box in shared memory, which knows no others.

    The rows of a swizzled box are as wide as the swizzle.
    """
    bits = map_.tensor.dtype.bits
    dense = byte_strides(shape, bits, row_pitch(shape, bits, map_.swizzle, None))
    strides = view.tensor.byte_strides
    return [s for s, n in zip(dense, shape, strict=True) if n != 1] == [
        s for s, n in zip(strides, view.extents, strict=True) if n != 1
    ]


#: what a target must have for a mode
NEEDS = {
    "tile::gather4": frozenset({"tma.gather4"}), "tile::scatter4": frozenset({"tma.gather4"}),
    "im2col::w": frozenset({"tma.im2col_w"}), "im2col::w::128": frozenset({"tma.im2col_w"}),
}  # fmt: skip


def info_problems(map_: TensorMap, mode: str, info: tuple[Expr, ...]) -> Iterator[str]:
    """The operands of the im2col modes: an offset per spatial dimension, or wHalo and wOffset."""
    count = 2 if mode in WIDE else len(map_.tensor.shape) - 2 if mode == "im2col" else 0
    if len(info) != count:
        yield f"{len(info)} im2col operands for {mode}, which has {count} (B23)"
        return
    most = {"im2col::w": (511, 31), "im2col::w::128": (31, 31)}.get(
        mode, (_OFFSET_LIMIT.get(count, 0),) * count
    )
    for operand, limit in zip(info, most, strict=True):
        known = constant(operand)
        if known is not None and not 0 <= known <= limit:
            yield f"im2col operand {known} is outside 0..{limit} (B23)"
    if mode in WIDE and not isinstance(constant(info[0]), int):
        yield "wHalo is a number that is known when the kernel is built: it sizes the copy (B23)"


#: by number of spatial dimensions: the largest offset of im2col (5.5.4.1)
_OFFSET_LIMIT = {1: (1 << 16) - 1, 2: (1 << 8) - 1, 3: (1 << 5) - 1}


def halo_of(mode: str, info: tuple[Expr, ...]) -> int:
    """The pixels that a copy has more, 0 if that is not known."""
    known = constant(info[0]) if mode in WIDE and info else 0
    return known if isinstance(known, int) else 0
