"""The 128 bytes of a ``CUtensorMap``: what the driver's encoder writes, decoded and encoded.

The layout was derived from 6,000 maps that ``cuTensorMapEncodeTiled`` and ``...Im2col`` of driver
580 (CUDA 13.0) encoded on an H200; ``tests/ptx/maps.json`` has some of each kind. Bit 0 is the
lowest bit of the first byte. Bytes from 64 on repeat what the others say, for checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tilesim.ptx.launch import Atoms, Im2col, Interleave, Map, Swizzle
from tilesim.ptx.syntax import LaunchError

SIZE = 128
#: element types by the four bits of a map; those of 32-bit floats have another bit for tf32
_TYPES: Mapping[int, str] = {
    0: "u8", 1: "u16", 2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 7: "f32", 8: "f32.ftz",
    9: "f64", 10: "bf16", 11: "b4x16",
}  # fmt: skip
_TF32 = {"f32": "tf32", "f32.ftz": "tf32.ftz"}
_SWIZZLES: tuple[Swizzle, ...] = (0, 32, 64, 128)
_INTERLEAVES: Mapping[int, Interleave] = {0: 0, 1: 16, 2: 32}

_ATOMS: Mapping[int, Atoms] = {0: 16, 1: 32, 2: 64}

_PLAIN = {tf32: plain for plain, tf32 in _TF32.items()}

_IM2COL, _RANK, _TYPE, _INTERLEAVE, _SWIZZLE, _FILL, _IS_TF32 = 64, 68, 71, 75, 77, 79, 80
_PROMOTION = 81
_STRIDES, _STRIDES_HIGH, _DIMS, _STEPS, _BOX = 96, 224, 256, 416, 440
_CHANNELS, _LOWER, _UPPER, _PIXELS = 440, 448, 464, 480
#: in maps that `encode` made, in whose second half nothing else is: where the driver puts it
#: is not known, on Hopper it refuses them
_ATOM = 1022
_REPEATED = slice(64, SIZE - 1)
#: bits of a corner's number, by dimensions of the tensor
_CORNER_BITS: Mapping[int, int] = {3: 16, 4: 8, 5: 5}


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
    # code that packs maps itself may leave anything behind byte 64
    atoms = 16 if any(data[_REPEATED]) else _ATOMS.get(bits(_ATOM, 2))
    if rank > 5 or kind is None or interleave is None or atoms is None or not any(data):
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
        _SWIZZLES[bits(_SWIZZLE, 2)], interleave, fill, im2col, atoms=atoms,
    )  # fmt: skip


def encode(value: Map, start: int, promotion: int = 0) -> bytes:
    """The 128 bytes of a map of the tensor at address ``start``: the first 64 as the driver encodes
    them, the others, which repeat parts of them, zero.

    Raises:
        LaunchError: the driver refuses such a map.
    """
    _accepted(value, start)
    rank = len(value.shape)
    kind = _PLAIN.get(value.type, value.type)
    fields = [
        (0, start), (_RANK, rank - 1), (_IS_TF32, value.type in _PLAIN), (_PROMOTION, promotion),
        (_TYPE, next(number for number, name in _TYPES.items() if name == kind)),
        (_INTERLEAVE, next(n for n, width in _INTERLEAVES.items() if width == value.interleave)),
        (_SWIZZLE, _SWIZZLES.index(value.swizzle)), (_FILL, value.fill == "nan"),
        (_ATOM, next(number for number, size in _ATOMS.items() if size == value.atoms)),
    ]  # fmt: skip
    for d, (extent, step) in enumerate(zip(value.shape, value.steps, strict=True)):
        fields += ((_DIMS + 32 * d, extent - 1), (_STEPS + 3 * d, step - 1))
    for d, stride in enumerate(value.strides):
        fields += (
            (_STRIDES + 32 * d, stride // 16 & 0xFFFFFFFF),
            (_STRIDES_HIGH + 4 * d, stride // 16 >> 32),
        )
    if value.im2col is None:
        fields += ((_BOX + 8 * d, extent - 1) for d, extent in enumerate(value.box))
    else:
        corners = value.im2col
        fields += (
            (_IM2COL, 1), (_LOWER, _packed(corners.lower)), (_UPPER, _packed(corners.upper)),
            (_CHANNELS, corners.channels - 1), (_PIXELS, corners.pixels - 1),
        )  # fmt: skip
    return sum(number << at for at, number in fields).to_bytes(SIZE, "little")


def _accepted(value: Map, start: int) -> None:
    """Raises LaunchError for what ``cuTensorMapEncodeTiled`` and ``...Im2col`` refuse."""
    rank, bits = len(value.shape), value.bits
    first = value.box[0] if value.box else value.im2col.channels if value.im2col else 0
    aligned = 32 if value.interleave == 32 else 16
    rules = {
        "the type of its elements is not known": value.type in {*_TYPES.values(), *_PLAIN},
        "a map has 1 to 5 dimensions, in mode im2col at least 3": (
            rank <= 5 and rank >= (3 if value.im2col or value.interleave else 1)
        ),
        f"the address is not a multiple of {aligned}": start % aligned == 0,
        "an extent is not between 1 and 2^32": all(1 <= n <= 1 << 32 for n in value.shape),
        f"a stride is not a multiple of {aligned} below 2^40": all(
            n % aligned == 0 and 0 <= n < 1 << 40 for n in value.strides
        ),
        "an extent of the box is not between 1 and 256": all(1 <= n <= 256 for n in value.box),
        "a step is not between 1 and 8": all(1 <= n <= 8 for n in value.steps),
        "the box's inner dimension is not a multiple of 16 bytes": (
            value.interleave != 0 or first * bits // 8 % 16 == 0
        ),
        "the box's inner dimension is wider than the swizzle": (
            value.interleave != 0 or not value.swizzle or first * bits // 8 <= value.swizzle
        ),
    }
    for broken, kept in rules.items():
        if not kept:
            raise LaunchError(f"a tensor map is refused: {broken}")


def address(data: bytes) -> int:
    """The address of the tensor in global memory."""
    return int.from_bytes(data[:8], "little")


def _packed(corner: tuple[int, ...]) -> int:
    """What `_corner` reads."""
    width = _CORNER_BITS[len(corner) + 2]
    return sum((n & (1 << width) - 1) << width * d for d, n in enumerate(corner))


def _corner(packed: int, rank: int) -> tuple[int, ...]:
    """Signed numbers of 16, 8 or 5 bits, one per dimension in space."""
    width = _CORNER_BITS[rank]
    found = []
    for d in range(rank - 2):
        value = packed >> width * d & (1 << width) - 1
        found.append(value - (1 << width) if value >> (width - 1) else value)
    return tuple(found)
