"""Elements of 4 and 6 bits in tensor copies: how they lie in memory (PTX 5.5.1.1, B36).

A tensor of them is declared as bytes, packed without gaps along its last dimension. Boxes and
coordinates of its maps count elements. In shared memory sixteen elements take 8 or 16 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.ir.expr import Expr, constant
from tilesim.ir.memory import TensorMap
from tilesim.ir.types import CHUNK, PACKINGS, Direction, DType, Packing, u8

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


def unit(tensor_map: TensorMap, dtype: DType, target: str) -> int:
    """What the first coordinate of a copy through a map of ``dtype`` is a multiple of.

    Of padded elements of less than a byte by PTX (restriction 7). Others start at 16 bytes: PTX
    does not say so, an H200 stops with an illegal instruction elsewhere (B37).
    """
    packing = packing_of(tensor_map)
    if packing is None:
        return max(1, CHUNK // dtype.bytes)
    if not packing.padded:
        return 8 // packing.bits
    return _HALF_ROW if _halves(tensor_map, target) else _ROW


def _halves(m: TensorMap, target: str) -> bool:
    return m.packing == "b6p2x16" and target == "sm_103a"


def direction_problems(m: TensorMap, direction: Direction | None) -> Iterator[str]:
    """Why copies of this direction do not go through the map; None: reductions."""
    packing = packing_of(m)
    if packing is None:
        return
    if direction is None:
        yield f"there are no reductions of {m.packing} elements (B36)"
    elif direction not in packing.directions:
        yield f"there are no {direction}s of {m.packing} elements (B36)"


def coordinate_problems(m: TensorMap, coords: tuple[Expr, ...]) -> Iterator[str]:
    """A first coordinate that is known to be between the chunks that can be copied.

    Of b6p2x16, which is finer on sm_103a, the machine tells.
    """
    known = constant(coords[-1]) if coords and m.packing else None
    least = _HALF_ROW if m.packing == "b6p2x16" else unit(m, u8, "")
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
    if m.lower is not None:
        yield f"maps for the im2col modes of {m.packing} elements are not modelled (B36)", ""
    if m.fill == "nan":
        yield f"there is no NaN fill of {m.packing} elements (B36)", ""
    if not packing.padded:
        if m.box[-1] % (2 * CHUNK):
            yield f"the box's rows have {m.box[-1]} elements, not a multiple of 32 (B15, B36)", ""
        return
    halves = _halves(m, target)
    rows, align = ((_HALF_ROW, _ROW), 16) if halves else ((_ROW,), 32)
    if m.box[-1] not in rows:
        wanted = " or ".join(map(str, rows))
        yield f"the rows of a box of {m.packing} have {wanted} elements, not {m.box[-1]} (B36)", ""
    least = rows[0] * packing.bits // 8
    if tensor.shape[-1] % least:
        yield f"the rows of {tensor.name} have {tensor.shape[-1]} bytes, not n * {least} (B36)", ""
    for extent, stride in zip(tensor.shape[:-1], tensor.byte_strides[:-1], strict=True):
        if extent > 1 and stride % align:
            yield (
                f"{tensor.name} has a stride of {stride} bytes, not a multiple of {align} (B36)",
                "",
            )
    if m.swizzle not in (0, 128):
        yield f"a swizzle of {m.swizzle} bytes of {m.packing}; there are 128 and none (B36)", ""
