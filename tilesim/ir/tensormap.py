"""Tensor maps: what one says, its 128 bytes, and which elements a copy through it accesses.

Dimensions of a map, and of the elements that a copy accesses (SEMANTICS B16 to B23), are in the
order of a tensor's shape, the slowest first; PTX counts them from the other end.

A tensor of elements of 4 and 6 bits (PTX 5.5.1.1, B36) is declared as bytes, packed without gaps
along its last dimension. Boxes and coordinates of its maps count elements. In shared memory sixteen
elements take 8 or 16 bytes.

The 128 bytes of a map (SEMANTICS B14) are laid out as follows. Hardware has another layout, which
is not documented; a kernel can only copy maps and replace fields. All is in the first 64 bytes, as
it is there: compilers copy no more. Every field has a bit that says whether it has been set, so
that a map of which some fields were left out is no map. A number that no field can have is the
largest one of its bits. Dimensions count from the innermost one on there, as in PTX.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from tilesim.arith.types import (
    CHUNK,
    PACKINGS,
    Direction,
    DType,
    Packing,
    bf16,
    f16,
    f32,
    f64,
    s32,
    s64,
    tf32,
    u8,
    u16,
    u32,
    u64,
)
from tilesim.ir.arithmetic import INT_MIN, UINT_MAX
from tilesim.ir.declarations import TensorMap, View
from tilesim.ir.expr import Expr, constant, fraction
from tilesim.ir.layout import byte_strides, row_pitch
from tilesim.records import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    #: the bytes of maps: (maps, 128)
    Bytes = NDArray[np.uint8]


#: elements in a row of a box, and what a first coordinate is a multiple of, of padded types
_ROW = 128
#: the same of b6p2x16 on sm_103a
_HALF_ROW = 64


#: what a target must have for a direction (restriction 3 of tensor copies)
PACKED_NEEDS: dict[Direction, str] = {"load": "tma.sub_byte", "store": "tma.sub_byte.store"}


def packing_of(tensor_map: TensorMap) -> Packing | None:
    """The packing of a map's elements, if they are narrower than a byte."""
    return None if tensor_map.packing is None else PACKINGS[tensor_map.packing]


def needs(tensor_map: TensorMap, direction: Direction) -> frozenset[str]:
    """What a target must have for copies through this map."""
    return frozenset() if tensor_map.packing is None else frozenset({PACKED_NEEDS[direction]})


def in_global(tensor_map: TensorMap, box: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a box in the units of the tensor: packed bytes, or elements."""
    packing = packing_of(tensor_map)
    return box if packing is None else (*box[:-1], box[-1] * packing.bits // 8)


def in_bytes(tensor_map: TensorMap, coords: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Coordinates in the units of the tensor."""
    packing = packing_of(tensor_map)
    if packing is None or not coords:
        return coords
    return (*coords[:-1], coords[-1] * packing.bits // 8)


def in_shared(tensor_map: TensorMap, box: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a box as it lies in shared memory, in bytes or elements."""
    packing = packing_of(tensor_map)
    return box if packing is None else (*box[:-1], box[-1] * packing.room // CHUNK)


def held_shape(name: str | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape in shared memory of what has this one in units of the tensor."""
    if name is None:
        return shape
    packing = PACKINGS[name]
    return (*shape[:-1], shape[-1] * 8 // packing.bits * packing.room // CHUNK)


def unit(name: str | None, dtype: DType, target: str) -> int:
    """What the first coordinate of a copy of ``dtype``, or of packed elements of that ``name``, is
    a multiple of.

    Of padded elements of less than a byte by PTX (restriction 7). Others start at 16 bytes: PTX
    does not say so, an H200 stops with an illegal instruction elsewhere (B37).
    """
    if name is None:
        return max(1, CHUNK // dtype.bytes)
    packing = PACKINGS[name]
    if not packing.padded:
        return 8 // packing.bits
    return _HALF_ROW if _halves(name, target) else _ROW


def _halves(name: str, target: str) -> bool:
    return name == "b6p2x16" and target == "sm_103a"


def direction_problems(name: str | None, direction: Direction | None) -> Iterator[str]:
    """Why copies of this direction are none of packed elements of this ``name``; None:
    reductions."""
    if name is None:
        return
    if direction is None:
        yield f"there are no reductions of {name} elements (B36)"
    elif direction not in PACKINGS[name].directions:
        yield f"there are no {direction}s of {name} elements (B36)"


def coordinate_problems(m: TensorMap, coords: tuple[Expr, ...], mode: str) -> Iterator[str]:
    """Coordinates of which there are too many or too few, or that are no integers of 32 bits; a
    first one that is known to be between the chunks that can be copied.

    Of b6p2x16, which is finer on sm_103a, the machine tells.
    """
    count = 5 if mode in ROWS_OF_FOUR else m.dimensions
    if len(coords) != count:
        yield f"{len(coords)} coordinates for {_kind(mode, m.dimensions, count)}"
    for coordinate in coords:
        number = constant(coordinate)
        if fraction(coordinate) is not None:
            yield f"the coordinate {coordinate} is not an integer"
        if number is not None and not INT_MIN <= number <= UINT_MAX:
            yield f"the coordinate {number} does not fit into 32 bits"
    known = constant(coords[-1]) if coords and m.packing else None
    least = _HALF_ROW if m.packing == "b6p2x16" else unit(m.packing, u8, "")
    if known is not None and known % least:
        yield f"the first coordinate {known} of {m.packing} is not a multiple of {least} (B36)"


def packing_problems(m: TensorMap, target: str) -> Iterator[tuple[str, str]]:
    """What is wrong with a map of sub-byte elements (B36)."""
    packing, tensor = packing_of(m), m.tensor
    if packing is None:
        return
    if tensor.dtype is not u8:
        yield (
            f"elements of {m.packing} are packed: declare {tensor.name} as u8, not {tensor.dtype} "
            "(B36)",
            "its last dimension counts bytes",
        )
    assert m.packing is not None
    strides = zip(tensor.shape[:-1], tensor.byte_strides[:-1], strict=True)
    found = packed_problems(
        m.packing, m.box[-1], tensor.shape[-1], [s for n, s in strides if n > 1], m.swizzle,
        m.fill, target,
    )  # fmt: skip
    yield from ((problem, "") for problem in found)


def packed_problems(
    name: str, row: int, extent: int, strides: Iterable[int], swizzle: int, fill: str, target: str
) -> Iterator[str]:
    """What is wrong with a map of packed elements of this ``name`` (B36).

    Args:
        row: elements in a row of a box, or channels of a pixel.
        extent: bytes in a row of the tensor.
        strides: of the other dimensions, in bytes.
    """
    packing = PACKINGS[name]
    if fill == "nan":
        yield f"there is no NaN fill of {name} elements (B36)"
    if not packing.padded:
        if row % (2 * CHUNK):
            yield f"the box's rows have {row} elements, not a multiple of 32 (B15, B36)"
        return
    rows, align = ((_HALF_ROW, _ROW), 16) if _halves(name, target) else ((_ROW,), 32)
    if row not in rows:
        wanted = " or ".join(map(str, rows))
        yield f"the rows of a box of {name} have {wanted} elements, not {row} (B36)"
    least = rows[0] * packing.bits // 8
    if extent % least:
        yield f"the rows of the tensor have {extent} bytes, not n * {least} (B36)"
    for stride in strides:
        if stride % align:
            yield f"the tensor has a stride of {stride} bytes, not a multiple of {align} (B36)"
    if swizzle not in (0, 128):
        yield f"a swizzle of {swizzle} bytes of {name}; there are 128 and none (B36)"


# ------------------------------------- what a map says, and which elements it accesses (B16 to B23)


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
    yield from coordinate_problems(map_, coords, mode)
    if view.dtype != map_.tensor.dtype:
        yield f"tile is {view.dtype}, tensor map is {map_.tensor.dtype}"
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
    for operand, limit in zip(info, info_limits(mode, count), strict=True):
        known = constant(operand)
        if known is not None and not 0 <= known <= limit:
            yield f"im2col operand {known} is outside 0..{limit} (B23)"
    if mode in WIDE and not isinstance(constant(info[0]), int):
        yield "wHalo is a number that is known when the kernel is built: it sizes the copy (B23)"


def info_limits(mode: str, count: int) -> tuple[int, ...]:
    """The largest of each of the ``count`` operands that a copy of an im2col mode has (B23)."""
    offsets = (_OFFSET_LIMIT.get(count, 0),) * count
    return {"im2col::w": (511, 31), "im2col::w::128": (31, 31)}.get(mode, offsets)


#: by number of spatial dimensions: the largest offset of im2col (5.5.4.1)
_OFFSET_LIMIT = {1: (1 << 16) - 1, 2: (1 << 8) - 1, 3: (1 << 5) - 1}


def halo_of(mode: str, info: tuple[Expr, ...]) -> int:
    """The pixels that a copy has more, 0 if that is not known."""
    known = constant(info[0]) if mode in WIDE and info else 0
    return known if isinstance(known, int) else 0


# ------------------------------------------------------------------ the 128 bytes (B14)


NBYTES = 128
#: those of them in which something is
USED = 64
#: the first of them are the address of the tensor
ADDRESS_BYTES = 8
Field = Literal[
    "global_address", "rank", "box_dim", "global_dim", "global_stride", "element_stride",
    "elemtype", "interleave_layout", "swizzle_mode", "fill_mode",
]  # fmt: skip
#: fields of one number per dimension, and the dimensions that have one
BY_DIMENSION: dict[str, int] = {
    "box_dim": 5, "global_dim": 5, "global_stride": 4, "element_stride": 5,
}  # fmt: skip
#: fields whose value is a code
CODES: dict[str, int] = {
    "elemtype": 16, "interleave_layout": 3, "swizzle_mode": 5, "fill_mode": 2,
}  # fmt: skip
#: by field: its first bit, the bits of a number, and which bit of `_PRESENT` is that of dimension 0
_PLACE: dict[str, tuple[int, int, int]] = {
    "global_address": (0, 64, 0), "rank": (96, 4, 1), "elemtype": (100, 4, 2),
    "interleave_layout": (104, 2, 3), "swizzle_mode": (106, 3, 4), "fill_mode": (109, 1, 5),
    "mode": (110, 3, 6), "global_dim": (113, 32, 7), "global_stride": (273, 40, 12),
    "box_dim": (433, 11, 16), "element_stride": (488, 4, 21), "corners": (455, 32, 26),
}  # fmt: skip
#: the bits that say which fields have been set
_PRESENT = 64
#: what copies go through a map, by its number; and that of one of which it is not known
_MODES = ("tile", "im2col", "im2col::w", "im2col::w::128")
_NO_MODE = 7
#: by number of spatial dimensions: the bits of a corner of the pixel box (5.5.4.1)
_CORNER = {1: 16, 2: 8, 3: 5}
#: pixels of a column of an im2col map
_MOST_PIXELS = 1024
#: element types by the code that PTX gives them (Table 33)
_TYPES: dict[int, DType] = dict(
    enumerate((u8, u16, u32, s32, u64, s64, f16, f32, f32, f64, bf16, tf32, tf32))
)
#: packed elements by the code: those of loads, and of stores
_PACKED: dict[int, tuple[str, str]] = {
    13: ("b4x16", "b4x16"), 14: ("b4x16_p64", "b4x16_p64"), 15: ("b6x16_p32", "b6p2x16"),
}  # fmt: skip
#: these codes
PACKED_CODES = frozenset(_PACKED)
_SWIZZLES = (0, 32, 64, 128)


def used_part(view: View) -> View:
    """The half of the place of a map in which something is; all of it, if it is not in a row."""
    return view.inner(0, view.size // 2) if len(view.dims) == 1 else view


def whole_maps(rows: NDArray[Any]) -> Bytes:
    """Maps of which `used_part` was read in each lane; nothing is in the rest."""
    import numpy as np

    maps = np.zeros((len(rows), NBYTES), dtype=np.uint8)
    maps[:, :USED] = rows.reshape(len(rows), -1).view(np.uint8)[:, :USED]
    return maps


def replaced(maps: Bytes, field: str, ord: int, values: Any) -> Bytes:
    """``maps`` with a field of each set to its value."""
    result = maps.copy()
    for row, value in zip(result, values, strict=True):
        _write(row, _with(_number(row), field, ord, int(value)))
    return result


def replaced_as_tiled(maps: Bytes, field: str, ord: int, values: Any) -> Bytes:
    """The same by ``tensormap.replace.tile``: what it is of a map of another mode is not known."""
    result = replaced(maps, field, ord, values)
    for row in result:
        number = _number(row)
        if _part(number, "mode", 0):
            _write(row, _with(number, "mode", 0, _NO_MODE))
    return result


def _number(row: Bytes) -> int:
    return int.from_bytes(row[:USED].tobytes(), "little")


def _write(row: Bytes, number: int) -> None:
    row[:USED] = bytearray(number.to_bytes(USED, "little"))


def _part(number: int, field: str, ord: int) -> int:
    start, bits, _ = _PLACE[field]
    return number >> start + ord * bits & (1 << bits) - 1


def _with(number: int, field: str, ord: int, value: int) -> int:
    """A map with a field set; more than fits is the most that fits."""
    start, bits, present = _PLACE[field]
    most, place = (1 << bits) - 1, start + ord * bits
    kept = number & ~(most << place) | 1 << _PRESENT + present + ord
    return kept | min(value % (1 << 64), most) << place


def encoded(fields: MapFields, address: int) -> Bytes:
    """A map with these fields over a tensor at ``address``, as one row."""
    import numpy as np

    numbers: dict[str, tuple[int, ...]] = {
        "global_address": (address + fields.offset,), "rank": (len(fields.dims) - 1,),
        "elemtype": (_code(fields),), "interleave_layout": (0,),
        "swizzle_mode": (_SWIZZLES.index(fields.swizzle),),
        "fill_mode": (int(fields.fill == "nan"),), "box_dim": _in_elements(fields.box, fields),
        "global_dim": _in_elements(fields.dims, fields), "element_stride": fields.steps[::-1],
        "global_stride": fields.strides[-2::-1], "mode": (_MODES.index(fields.mode),),
        "corners": _packed_corners(fields),
    }  # fmt: skip
    number = 0
    for field, values in numbers.items():
        for ord, value in enumerate(values):
            number = _with(number, field, ord, value)
    row = np.zeros((1, NBYTES), dtype=np.uint8)
    _write(row[0], number)
    return row


def _packed_corners(fields: MapFields) -> tuple[int, ...]:
    """The corners of a pixel box in one number, where a tile has the extents of a box."""
    corners = (*(fields.lower or ())[::-1], *(fields.upper or ())[::-1])
    bits = _CORNER.get(len(corners) // 2, 0)
    each = ((x & (1 << bits) - 1) << d * bits for d, x in enumerate(corners))
    return (sum(each),) if corners else ()


def _corners(number: int, count: int) -> dict[str, tuple[int, ...]]:
    """The lower and the upper corner, of so many numbers each."""
    bits = _CORNER.get(count, 0)
    half = 1 << bits >> 1
    each = [((number >> d * bits) + half) % (2 * half) - half for d in range(2 * count)]
    return {"lower": tuple(each[:count]), "upper": tuple(each[count:])}


def _in_elements(extents: tuple[int, ...], fields: MapFields) -> tuple[int, ...]:
    """Extents of which the last one may count packed bytes, the innermost first."""
    if fields.packing is None:
        return extents[::-1]
    return (extents[-1] * 8 // PACKINGS[fields.packing].bits, *extents[-2::-1])


def _code(fields: MapFields) -> int:
    if fields.packing is None:
        return elemtype(fields.dtype)
    return next(code for code, names in _PACKED.items() if fields.packing in names)


def elemtype(dtype: DType) -> int:
    """The code of an element type; types of eight bits without one are u8, of sixteen u16."""
    codes = {known: code for code, known in reversed(_TYPES.items())}
    return codes.get(dtype, {8: 0, 16: 1}.get(dtype.bits, 2))


def decoded(data: Bytes) -> dict[str, tuple[int, ...]]:
    """The numbers of each field of one map, as far as its rank goes.

    Raises:
        KeyError: the first field that was never set, with its dimension.
    """
    map_ = _number(data)

    def number(field: str, ord: int) -> int:
        if not map_ >> _PRESENT + _PLACE[field][2] + ord & 1:
            raise KeyError(f"{field}[{ord}]" if field in BY_DIMENSION else field)
        return _part(map_, field, ord)

    rank, mode = number("rank", 0) + 1, _part(map_, "mode", 0)
    corners = 0 if mode in (0, _NO_MODE) else 1 if mode > 1 else rank - 2
    counts = {
        **dict.fromkeys(BY_DIMENSION, rank), "global_stride": rank - 1,
        "box_dim": rank if not mode else 2 if corners else 1, "corners": int(corners > 0),
    }  # fmt: skip
    found = {
        field: tuple(
            number(field, d) for d in range(min(counts.get(field, 1), BY_DIMENSION.get(field, 1)))
        )
        for field in _PLACE if field != "mode"
    }  # fmt: skip
    packed = found.pop("corners", ())
    return {**found, "mode": (mode,), **_corners(packed[0] if packed else 0, corners)}


def fields_at(
    numbers: dict[str, tuple[int, ...]], tensor: str, offset: int, declared: TensorMap,
    direction: Direction | None, target: str,
) -> MapFields:  # fmt: skip
    """What the numbers of a map of ``tensor``, ``offset`` bytes into it, say to a copy of this
    ``direction`` (None: a reduction), for which a map was ``declared``.

    Raises:
        ValueError: a number is none that its field can have; the message names it.
    """
    rank = numbers["rank"][0] + 1
    if not 1 <= rank <= 5:
        raise ValueError(f"rank {rank} is not 1 to 5 (B16)")
    (code,), (layout,), (swizzle,), (mode,) = (
        numbers[n] for n in ("elemtype", "interleave_layout", "swizzle_mode", "mode")
    )
    _require_numbers(numbers, offset)
    if mode == _NO_MODE:
        raise ValueError("tensormap.replace.tile has set a field of a map for im2col (B14)")
    if layout or swizzle >= len(_SWIZZLES):
        raise ValueError(f"interleave_layout {layout} or swizzle_mode {swizzle} is not modelled")
    dims, box = numbers["global_dim"][::-1], numbers["box_dim"][::-1]
    dtype = declared.tensor.dtype if elemtype(declared.tensor.dtype) == code else _TYPES.get(code)
    packing, strides = None, numbers["global_stride"][::-1]
    fill = "nan" if numbers["fill_mode"][0] else "zero"
    if dtype is None:
        packing, dtype = _PACKED[code][direction == "store"], u8
        bits = PACKINGS[packing].bits
        extent = dims[-1] * bits // 8
        problems = (
            *direction_problems(packing, direction),
            *packed_problems(
                packing, box[-1], extent, strides, _SWIZZLES[swizzle], fill, target
            ),
        )  # fmt: skip
        if problems or dims[-1] * bits % 8:
            raise ValueError((*problems, f"global_dim[0] is {dims[-1]} (B36)")[0])
        dims, box = (*dims[:-1], extent), (*box[:-1], box[-1] * bits // 8)
    found = MapFields(
        tensor, offset, dtype, dims, (*strides, dtype.bytes), box, numbers["element_stride"][::-1],
        _SWIZZLES[swizzle], fill, numbers["lower"][::-1] or None, numbers["upper"][::-1] or None,
        packing, declared.wide,
    )  # fmt: skip
    wanted = fields_of(declared).mode
    if _MODES[mode] != wanted:
        raise ValueError(f"it is a map for {_MODES[mode]}, the copy takes one for {wanted} (B14)")
    return found


def _require_numbers(numbers: dict[str, tuple[int, ...]], offset: int) -> None:
    """Raises ValueError for a number that is too small or large, or no multiple of 16 bytes."""
    for field, limits in _LIMITS.items():
        most = _MOST_PIXELS if field == "box_dim" and numbers["mode"][0] else limits[1]
        wrong = [x for x in numbers[field] if not limits[0] <= x <= most]
        if wrong:
            raise ValueError(f"{field} {wrong[0]} is not {limits[0]} to {most} (B16)")
    if any(s % 16 for s in numbers["global_stride"]):
        raise ValueError(f"global_stride {numbers['global_stride']} is not a multiple of 16 (B16)")
    if offset % 16:
        raise ValueError(f"global_address is {offset % 16} bytes behind a multiple of 16 (B16)")
    if numbers["element_stride"][0] != 1 and not numbers["mode"][0]:
        raise ValueError("element_stride[0] is not 1 (B16)")


#: what the numbers of a field may be (B16); a tensor without elements reads as fill values
_LIMITS = {"box_dim": (1, 256), "global_dim": (0, 1 << 32), "element_stride": (1, 8)}


def map_problems(view: View) -> Iterator[str]:
    """What is wrong with a view as the place of a tensor map."""
    if view.nbytes != NBYTES:
        yield f"a tensor map has {NBYTES} bytes, {view} has {view.nbytes}"
    if view.dtype.kind != "uint":
        yield f"the bytes of a tensor map are u8, u32 or u64 here, {view} is of {view.dtype}"
    if view.cta is not None:
        yield f"{view} is in a peer's shared memory"


def global_map_problems(view: View) -> Iterator[str]:
    """What is wrong with a view as the place of a tensor map that copies use."""
    yield from map_problems(view)
    if view.space == "shared":
        yield f"{view} is not in global memory, where copies use a map"
