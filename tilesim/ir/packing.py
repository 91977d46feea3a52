"""Elements of 4 and 6 bits in tensor copies: how they lie in memory (PTX 5.5.1.1, B36).

A tensor of them is declared as bytes, packed without gaps along its last dimension. Boxes and
coordinates of its maps count elements. In shared memory sixteen elements take 8 or 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilesim.arith.types import CHUNK, PACKINGS, Direction, DType, Packing, u8
from tilesim.ir.expr import Expr, constant
from tilesim.ir.memory import TensorMap

#: elements in a row of a box, and what a first coordinate is a multiple of, of padded types
_ROW = 128
#: the same of b6p2x16 on sm_103a
_HALF_ROW = 64


#: what a target must have for a direction (restriction 3 of tensor copies)
NEEDS: dict[Direction, str] = {"load": "tma.sub_byte", "store": "tma.sub_byte.store"}


def packing_of(tensor_map: TensorMap) -> Packing | None:
    """The packing of a map's elements, if they are narrower than a byte."""
    return None if tensor_map.packing is None else PACKINGS[tensor_map.packing]


def needs(tensor_map: TensorMap, direction: Direction) -> frozenset[str]:
    """What a target must have for copies through this map."""
    return frozenset() if tensor_map.packing is None else frozenset({NEEDS[direction]})


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


def coordinate_problems(m: TensorMap, coords: tuple[Expr, ...]) -> Iterator[str]:
    """A first coordinate that is known to be between the chunks that can be copied.

    Of b6p2x16, which is finer on sm_103a, the machine tells.
    """
    known = constant(coords[-1]) if coords and m.packing else None
    least = _HALF_ROW if m.packing == "b6p2x16" else unit(m.packing, u8, "")
    if known is not None and known % least:
        yield f"the first coordinate {known} of {m.packing} is no multiple of {least} (B36)"


def map_problems(m: TensorMap, target: str) -> Iterator[tuple[str, str]]:
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
