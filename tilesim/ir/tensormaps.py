"""The 128 bytes of a tensor map, as the simulator lays them out (SEMANTICS B14).

Hardware has another layout, which nobody is told; a kernel can only copy maps and replace fields.
Every field has a bit that says whether it has been set, so that a map of which some fields were
left out is no map. Dimensions count from the innermost one on, as in PTX.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from tilesim.ir.boxes import MapFields
from tilesim.ir.memory import View
from tilesim.ir.types import (
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

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    #: the bytes of maps: (maps, 128)
    Bytes = NDArray[np.uint8]

NBYTES = 128
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
#: where a field lies, the type of its number, and the place of its first bit
_PLACE: dict[str, tuple[int, str, int]] = {
    "rank": (4, "uint8", 0), "elemtype": (5, "uint8", 1), "interleave_layout": (6, "uint8", 2),
    "swizzle_mode": (7, "uint8", 3), "fill_mode": (8, "uint8", 4),
    "global_address": (16, "uint64", 5), "global_dim": (24, "uint32", 6),
    "box_dim": (44, "uint32", 11), "element_stride": (64, "uint32", 16),
    "global_stride": (88, "uint64", 21),
}  # fmt: skip
#: element types by the code that PTX gives them (Table 33)
_TYPES: dict[int, DType] = dict(
    enumerate((u8, u16, u32, s32, u64, s64, f16, f32, f32, f64, bf16, tf32, tf32))
)
_SWIZZLES = (0, 32, 64, 128)


def replaced(maps: Bytes, field: str, ord: int, values: Any) -> Bytes:
    """``maps`` with a field of each set to its value."""
    import numpy as np

    start, kind, bit = _PLACE[field]
    size = np.dtype(kind).itemsize
    result = maps.copy()
    numbers = np.asarray(values).astype(kind)[:, None]
    result[:, start + ord * size : start + (ord + 1) * size] = numbers.view(np.uint8)
    result[:, :4].view(np.uint32)[:] |= np.uint32(1 << bit + ord)
    return result


def encoded(fields: MapFields, address: int) -> Bytes:
    """A map with these fields over a tensor at ``address``, as one row."""
    import numpy as np

    rank = len(fields.dims)
    row = np.zeros((1, NBYTES), dtype=np.uint8)
    numbers: dict[str, tuple[int, ...]] = {
        "global_address": (address + fields.offset,), "rank": (rank - 1,),
        "elemtype": (elemtype(fields.dtype),), "interleave_layout": (0,),
        "swizzle_mode": (_SWIZZLES.index(fields.swizzle),),
        "fill_mode": (int(fields.fill == "nan"),), "box_dim": fields.box[::-1],
        "global_dim": fields.dims[::-1], "element_stride": fields.steps[::-1],
        "global_stride": fields.strides[-2::-1],
    }  # fmt: skip
    for field, values in numbers.items():
        for ord, value in enumerate(values):
            row = replaced(row, field, ord, np.array([value], dtype=np.uint64))
    return row


def elemtype(dtype: DType) -> int:
    """The code of an element type; types of eight bits without one are u8, of sixteen u16."""
    codes = {known: code for code, known in reversed(_TYPES.items())}
    return codes.get(dtype, {8: 0, 16: 1}.get(dtype.bits, 2))


def decoded(data: Bytes) -> dict[str, tuple[int, ...]]:
    """The numbers of each field of one map, as far as its rank goes.

    Raises:
        KeyError: the first field that was never set, with its dimension.
    """
    import numpy as np

    present = int(data[:4].view(np.uint32)[0])

    def number(field: str, ord: int) -> int:
        start, kind, bit = _PLACE[field]
        if not present >> bit + ord & 1:
            raise KeyError(f"{field}[{ord}]" if field in BY_DIMENSION else field)
        size = np.dtype(kind).itemsize
        return int(data[start + ord * size : start + (ord + 1) * size].view(kind)[0])

    rank = number("rank", 0) + 1
    counts = {**dict.fromkeys(BY_DIMENSION, rank), "global_stride": rank - 1}
    return {
        field: tuple(number(field, d) for d in range(min(counts.get(field, 1), 5)))
        for field in _PLACE
    }


def fields_at(
    numbers: dict[str, tuple[int, ...]], tensor: str, offset: int, declared: DType
) -> MapFields:
    """What the numbers of a map of ``tensor``, ``offset`` bytes into it, say.

    Raises:
        ValueError: a number is none that its field can have; the message names it.
    """
    rank = numbers["rank"][0] + 1
    if not 1 <= rank <= 5:
        raise ValueError(f"rank {rank} is not 1 to 5")
    (code,), (layout,), (swizzle,) = (
        numbers[n] for n in ("elemtype", "interleave_layout", "swizzle_mode")
    )
    for field, limits in _LIMITS.items():
        wrong = [x for x in numbers[field] if not limits[0] <= x <= limits[1]]
        if wrong:
            raise ValueError(f"{field} {wrong[0]} is not {limits[0]} to {limits[1]}")
    if any(s % 16 for s in numbers["global_stride"]):
        raise ValueError(f"global_stride {numbers['global_stride']} is not a multiple of 16")
    if offset % 16:
        raise ValueError(f"global_address is {offset % 16} bytes behind a multiple of 16")
    if code not in _TYPES or layout or swizzle >= len(_SWIZZLES):
        raise ValueError(
            f"elemtype {code}, interleave_layout {layout} or swizzle_mode {swizzle} is not modelled"
        )
    dtype = declared if elemtype(declared) == code else _TYPES[code]
    if numbers["element_stride"][0] != 1:
        raise ValueError("element_stride[0] is not 1")
    return MapFields(
        tensor, offset, dtype, numbers["global_dim"][::-1],
        (*numbers["global_stride"][::-1], dtype.bytes), numbers["box_dim"][::-1],
        numbers["element_stride"][::-1], _SWIZZLES[swizzle],
        "nan" if numbers["fill_mode"][0] else "zero",
    )  # fmt: skip


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
