"""Arguments of the driver's encoders of tensor maps, as maps."""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack
from typing import Any

from tilesim.capture.fatbin import Read
from tilesim.ptx.errors import LaunchError
from tilesim.ptx.launch import Fill, Im2col, Interleave, Map
from tilesim.recording.maps import SWIZZLES

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

    def one_of(self, values: Sequence[Any]) -> Any:
        number = self.number()
        if number >= len(values):
            raise LaunchError(f"a tensor map is refused: {number} is not known")
        return values[number]

    def map(self, shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...],
            steps: tuple[int, ...], mode: Im2col | None) -> tuple[Map, int, int]:  # fmt: skip
        """The map, the tensor's address and the promotion of cache lines."""
        interleave, swizzle = self.one_of(_INTERLEAVES), self.one_of(SWIZZLES)
        promotion, fill = self.number(), self.one_of(_FILLS)
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
