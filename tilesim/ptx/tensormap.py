"""The 128 bytes of a ``CUtensorMap``: what the driver's encoder writes, decoded.

The layout was derived from 6,000 maps that ``cuTensorMapEncodeTiled`` and ``...Im2col`` of driver
580 (CUDA 13.0) encoded on an H200; ``tests/ptx/maps.json`` has some of each kind. Bit 0 is the
lowest bit of the first byte. Bytes from 64 on repeat what the others say, for checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tilesim.ptx.errors import LaunchError
from tilesim.ptx.launch import Im2col, Interleave, Map, Swizzle

SIZE = 128
#: element types by the four bits of a map; those of 32-bit floats have another bit for tf32
_TYPES: Mapping[int, str] = {
    0: "u8", 1: "u16", 2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 7: "f32", 8: "f32.ftz",
    9: "f64", 10: "bf16",
}  # fmt: skip
_TF32 = {"f32": "tf32", "f32.ftz": "tf32.ftz"}
_SWIZZLES: tuple[Swizzle, ...] = (0, 32, 64, 128)
_INTERLEAVES: Mapping[int, Interleave] = {0: 0, 1: 16, 2: 32}

_IM2COL, _RANK, _TYPE, _INTERLEAVE, _SWIZZLE, _FILL, _IS_TF32 = 64, 68, 71, 75, 77, 79, 80
_STRIDES, _STRIDES_HIGH, _DIMS, _STEPS, _BOX = 96, 224, 256, 416, 440
_CHANNELS, _LOWER, _UPPER, _PIXELS = 440, 448, 464, 480


def decode(data: bytes, name: str, where: str = "the tensor map") -> Map:
    """The map that 128 bytes encode; ``name`` is that of its buffer.

    Raises:
        LaunchError: these are not the bytes of a map; ``where`` begins the message.
    """
    if len(data) != SIZE:
        raise LaunchError(f"{where}: a tensor map has {SIZE} bytes, not {len(data)}")
    word = int.from_bytes(data, "little")

    def bits(start: int, count: int) -> int:
        return word >> start & (1 << count) - 1

    rank = bits(_RANK, 3) + 1
    kind, interleave = _TYPES.get(bits(_TYPE, 4)), _INTERLEAVES.get(bits(_INTERLEAVE, 2))
    if rank > 5 or kind is None or interleave is None or not any(data):
        raise LaunchError(f"{where}: these bytes are no tensor map of a known kind")
    if bits(_IS_TF32, 1):
        kind = _TF32.get(kind, kind)
    shape = tuple(bits(_DIMS + 32 * d, 32) + 1 for d in range(rank))
    strides = tuple(
        16 * (bits(_STRIDES + 32 * d, 32) | bits(_STRIDES_HIGH + 4 * d, 4) << 32)
        for d in range(rank - 1)
    )
    steps = tuple(bits(_STEPS + 3 * d, 3) + 1 for d in range(rank))
    fill: Literal["nan", "zero"] = "nan" if bits(_FILL, 1) else "zero"
    im2col = None
    box = tuple(bits(_BOX + 8 * d, 8) + 1 for d in range(rank))
    if bits(_IM2COL, 1):
        if rank < 3:
            raise LaunchError(f"{where}: a map in im2col mode has at least 3 dimensions")
        box = ()
        im2col = Im2col(
            _corner(bits(_LOWER, 16), rank), _corner(bits(_UPPER, 16), rank),
            bits(_CHANNELS, 8) + 1, bits(_PIXELS, 10) + 1,
        )  # fmt: skip
    return Map(
        name, kind, shape, strides, box, () if set(steps) == {1} else steps,
        _SWIZZLES[bits(_SWIZZLE, 2)], interleave, fill, im2col,
    )  # fmt: skip


def address(data: bytes) -> int:
    """The address of the tensor in global memory."""
    return int.from_bytes(data[:8], "little")


def _corner(packed: int, rank: int) -> tuple[int, ...]:
    """Signed numbers of 16, 8 or 5 bits, one per dimension in space."""
    width = {3: 16, 4: 8, 5: 5}[rank]
    found = []
    for d in range(rank - 2):
        value = packed >> width * d & (1 << width) - 1
        found.append(value - (1 << width) if value >> (width - 1) else value)
    return tuple(found)
