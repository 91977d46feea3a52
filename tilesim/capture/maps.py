"""Tensor maps, from what the driver's encoders are called with.

Tensor maps from what ``cuTensorMapEncodeTiled`` and ``...Im2col`` are called with.

Arguments of the driver's encoders of tensor maps, as maps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from struct import unpack
from typing import Any

from tilesim.cubin.fatbin import Read
from tilesim.ptx.launch import Atoms, Fill, Im2col, Interleave, Map, Swizzle
from tilesim.ptx.syntax import LaunchError

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


def map_of_tiled(
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


def map_of_im2col(
    kind: int, shape: Sequence[int], strides: Sequence[int], lower: Sequence[int],
    upper: Sequence[int], channels: int, pixels: int, steps: Sequence[int], interleave: int,
    swizzle: int, fill: int,
) -> Map:  # fmt: skip
    """The same in mode im2col: corners of the bounding box, channels per pixel and pixels per
    column."""
    found = map_of_tiled(kind, shape, strides, (), steps, interleave, swizzle, fill)
    return replace(found, im2col=Im2col(tuple(lower), tuple(upper), channels, pixels))


#: by number in ``CUtensorMapDataType``, ``...Interleave`` and ``...FloatOOBfill``
_TYPES = (
    "u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32.ftz", "tf32",
    "tf32.ftz",
)  # fmt: skip
_INTERLEAVES: tuple[Interleave, ...] = (0, 16, 32)
_FILLS: tuple[Fill, ...] = ("zero", "nan")
_MOST = 5


class _Arguments:
    def __init__(self, numbers: Sequence[int], read: Read) -> None:
        self._left = list(numbers)
        self._read = read
        self.kind, self.rank, self.start = (self.number() for _ in range(3))
        if not 1 <= self.rank <= _MOST:
            raise LaunchError(f"a tensor map is refused: it has {self.rank} dimensions")

    def number(self) -> int:
        return self._left.pop(0)

    def array(self, kind: str, length: int) -> tuple[int, ...]:
        """What a pointer points to; ``kind`` is a letter of `struct`."""
        place, size = self.number(), length * (8 if kind == "Q" else 4)
        if not size:
            return ()
        return unpack(f"<{length}{kind}", self._read(place, size))

    def enumerator(self, values: Sequence[Any]) -> Any:
        number = self.number()
        if number >= len(values):
            raise LaunchError(f"a tensor map is refused: {number} is not known")
        return values[number]

    def map(self, shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...],
            steps: tuple[int, ...], mode: Im2col | None) -> tuple[Map, int, int]:  # fmt: skip
        """The map, the tensor's address and the promotion of cache lines."""
        interleave, swizzle = self.enumerator(_INTERLEAVES), self.enumerator(SWIZZLES)
        promotion, fill = self.number(), self.enumerator(_FILLS)
        if self.kind >= len(_TYPES):
            raise LaunchError("maps of elements with less than 8 bits are not modelled")
        made = Map(
            "", _TYPES[self.kind], shape, strides, box, steps, swizzle[0], interleave, fill, mode,
            atoms=swizzle[1],
        )  # fmt: skip
        return made, self.start, promotion


def tiled(numbers: Sequence[int], read: Read) -> tuple[Map, int, int]:
    """Those of ``cuTensorMapEncodeTiled`` without the result: the map, the tensor's address and the
    promotion of cache lines.

    Raises:
        LaunchError: the driver would refuse them.
    """
    given = _Arguments(numbers, read)
    shape, strides = given.array("Q", given.rank), given.array("Q", given.rank - 1)
    box, steps = given.array("I", given.rank), given.array("I", given.rank)
    return given.map(shape, strides, box, steps, None)


def im2col(numbers: Sequence[int], read: Read) -> tuple[Map, int, int]:
    """The same for ``cuTensorMapEncodeIm2col``."""
    given = _Arguments(numbers, read)
    shape, strides = given.array("Q", given.rank), given.array("Q", given.rank - 1)
    space = max(0, given.rank - 2)
    corners = given.array("i", space), given.array("i", space)
    mode = Im2col(*corners, given.number(), given.number())
    return given.map(shape, strides, (), given.array("I", given.rank), mode)
