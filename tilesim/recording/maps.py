"""Tensor maps from what ``cuTensorMapEncodeTiled`` and ``...Im2col`` are called with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilesim.ptx.launch import Atoms, Im2col, Interleave, Map, Swizzle

#: in the order of ``CUtensorMapDataType``
TYPES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32",
    "tf32.ftz", "b4x16", "b4x16_p64", "b6x16_p32",
)  # fmt: skip
#: in the order of ``CUtensorMapSwizzle``: bytes of a row, and those that are moved together; atoms
#: of 32 bytes also with halves of 16 whose 8 bytes are swapped
SWIZZLES: tuple[tuple[Swizzle, Atoms], ...] = (
    (0, 16), (32, 16), (64, 16), (128, 16), (128, 32), (128, 32), (128, 64),
)  # fmt: skip
#: in the order of ``CUtensorMapInterleave``
INTERLEAVES: tuple[Interleave, ...] = (0, 16, 32)


def tiled(
    kind: int, shape: Sequence[int], strides: Sequence[int], box: Sequence[int],
    steps: Sequence[int], interleave: int, swizzle: int, fill: int,
) -> Map:  # fmt: skip
    """The map, of a buffer without a name: the driver's numbers for types and modes, the innermost
    dimension first, ``strides`` in bytes of all dimensions but that one."""
    width, atoms = SWIZZLES[swizzle]
    return Map(
        "", TYPES[kind], tuple(shape), tuple(strides), tuple(box),
        () if set(steps) <= {1} else tuple(steps), width, INTERLEAVES[interleave],
        "nan" if fill else "zero", atoms=atoms,
    )  # fmt: skip


def im2col(
    kind: int, shape: Sequence[int], strides: Sequence[int], lower: Sequence[int],
    upper: Sequence[int], channels: int, pixels: int, steps: Sequence[int], interleave: int,
    swizzle: int, fill: int,
) -> Map:  # fmt: skip
    """The same in mode im2col: corners of the bounding box, channels per pixel and pixels per
    column."""
    found = tiled(kind, shape, strides, (), steps, interleave, swizzle, fill)
    return replace(found, im2col=Im2col(tuple(lower), tuple(upper), channels, pixels))
