"""The 128 bytes of a tensor map, as the simulator lays them out (SEMANTICS B14).

Hardware has another layout, which nobody is told; a kernel can only copy maps and replace fields.
All is in the first 64 bytes, as it is there: compilers copy no more. Every field has a bit that
says whether it has been set, so that a map of which some fields were left out is no map. A number
that no field can have is the largest one of its bits. Dimensions count from the innermost one on,
as in PTX.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from tilesim.arith.types import (
    PACKINGS,
    Direction,
    DType,
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
from tilesim.ir.boxes import MapFields, fields_of
from tilesim.ir.memory import TensorMap, View
from tilesim.ir.packing import direction_problems, packed_problems

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    #: the bytes of maps: (maps, 128)
    Bytes = NDArray[np.uint8]

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
#: what copies go through a map, by its number; and that of one of which nobody knows it
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
    """The same by ``tensormap.replace.tile``: of a map of another mode nobody knows what it is."""
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
