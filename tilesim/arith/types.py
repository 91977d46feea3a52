"""Element types of tensors, fragments and scalars, and packed ones of tensor copies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from tilesim.records import dataclass

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Kind = Literal["int", "uint", "float", "pred"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: PTX-style name, width in bits, kind.

    ``numpy`` names the array type that holds its values exactly (``ml_dtypes`` for bf16 and fp8).
    """

    name: str
    bits: int
    kind: Kind
    numpy: str

    @property
    def bytes(self) -> int:
        """Size of one element in bytes."""
        return self.bits // 8

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        """A copy of a type, also one that another process unpickles, is the type itself."""
        return self.name

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Hypothesis and IPython print it as code."""
        printer.text(f"tilesim.{self.name}")


u8 = DType("u8", 8, "uint", "uint8")
s8 = DType("s8", 8, "int", "int8")
u16 = DType("u16", 16, "uint", "uint16")
s16 = DType("s16", 16, "int", "int16")
u32 = DType("u32", 32, "uint", "uint32")
s32 = DType("s32", 32, "int", "int32")
u64 = DType("u64", 64, "uint", "uint64")
s64 = DType("s64", 64, "int", "int64")
f16 = DType("f16", 16, "float", "float16")
bf16 = DType("bf16", 16, "float", "bfloat16")
f32 = DType("f32", 32, "float", "float32")
tf32 = DType("tf32", 32, "float", "float32")
f64 = DType("f64", 64, "float", "float64")
e4m3 = DType("e4m3", 8, "float", "float8_e4m3fn")
e5m2 = DType("e5m2", 8, "float", "float8_e5m2")
pred = DType("pred", 8, "pred", "bool")

DTYPES: dict[str, DType] = {
    t.name: t
    for t in (u8, s8, u16, s16, u32, s32, u64, s64, f16, bf16, f32, tf32, f64, e4m3, e5m2, pred)
}

#: bits of PTX's fundamental types, and of the packed ones (PTX 5.2)
WIDTH: Mapping[str, int] = MappingProxyType({
    "pred": 1,
    "b8": 8, "u8": 8, "s8": 8, "e4m3": 8, "e5m2": 8, "e2m3": 8, "e3m2": 8, "ue8m0": 8, "e2m1": 8,
    "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16,
    "e4m3x2": 16, "e5m2x2": 16, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16, "e2m1x4": 16,
    "e2m1x2": 8,
    "b32": 32, "u32": 32, "s32": 32, "f32": 32, "f16x2": 32, "bf16x2": 32, "tf32": 32,
    "u16x2": 32, "s16x2": 32, "e4m3x4": 32, "e5m2x4": 32, "e2m3x4": 32, "e3m2x4": 32,
    "b64": 64, "u64": 64, "s64": 64, "f64": 64, "f32x2": 64, "b128": 128, "b1024": 1024,
})  # fmt: skip


Direction = Literal["load", "store"]
#: sub-byte elements that are packed together
CHUNK = 16


@dataclass(frozen=True)
class Packing:
    """A type of sub-byte elements in tensor copies (PTX 5.5.1.1, B36): ``bits`` of one.

    ``room``: bytes of sixteen elements in shared memory; in global memory they have no gaps.
    ``directions``: which copies have it. ``kind``: the name of its encoding for the driver.
    """

    bits: int
    room: int
    directions: tuple[Direction, ...]
    kind: str

    @property
    def payload(self) -> int:
        """Bytes of sixteen elements in global memory."""
        return CHUNK * self.bits // 8

    @property
    def padded(self) -> bool:
        """Whether shared memory has gaps, or elements of a byte each."""
        return self.room > self.payload


PACKINGS: dict[str, Packing] = {
    "b4x16": Packing(4, 8, ("load", "store"), "16U4_ALIGN8B"),
    "b4x16_p64": Packing(4, 16, ("load",), "16U4_ALIGN16B"),
    "b6x16_p32": Packing(6, 16, ("load",), "16U6_ALIGN16B"),
    "b6p2x16": Packing(6, 16, ("store",), "16U6_ALIGN16B"),
}


@cache
def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that stores ``dtype``."""
    import numpy as np

    if dtype in (bf16, e4m3, e5m2):
        import ml_dtypes

        result: np.dtype[Any] = np.dtype(getattr(ml_dtypes, dtype.numpy))
        return result
    return np.dtype(dtype.numpy)


def truncated(values: NDArray[Any], dtype: DType) -> NDArray[Any]:
    """Stored elements as tensor cores take them: of tf32 they drop the low 13 bits."""
    import numpy as np

    if dtype is not tf32:
        return values
    bits = np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)
