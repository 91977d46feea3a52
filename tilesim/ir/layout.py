"""Where the elements of a tensor lie: strides, padding and the TMA/wgmma swizzles (SEMANTICS B18).

A swizzle permutes 16-byte chunks as a pure function of the shared address: within a 128-byte
line ``r = address >> 7`` chunk ``c`` moves to ``c ^ (r & mask)``.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Swizzle = Literal[0, 32, 64, 128]
SWIZZLES: tuple[int, ...] = get_args(Swizzle)

#: bytes after which the pattern repeats; a swizzled tensor must start on this boundary
SWIZZLE_ATOM: dict[int, int] = {0: 16, 32: 256, 64: 512, 128: 1024}
CHUNK_MASK: dict[int, int] = {0: 0, 32: 1, 64: 3, 128: 7}
#: one, or an array of them
Address = TypeVar("Address", int, "NDArray[np.int64]")


def swizzled(address: Address, swizzle: int) -> Address:
    """The physical byte address of linear byte ``address`` under ``swizzle`` (32, 64, 128 or 0)."""
    return address ^ (((address >> 7) & CHUNK_MASK[swizzle]) << 4) if swizzle else address


def row_pitch(shape: tuple[int, ...], bits: int, swizzle: int, pitch: int | None) -> int:
    """Bytes from one innermost row to the next.

    A swizzled row always takes the full swizzle width, also when its elements need less
    (CUDA guide, tensor copies: shared memory must accommodate the full swizzle width).
    """
    inner = (shape[-1] * bits + 7) // 8
    if pitch is not None:
        return pitch
    return max(inner, swizzle) if swizzle else inner


def byte_strides(shape: tuple[int, ...], bits: int, pitch: int) -> tuple[int, ...]:
    """Row-major strides in bytes, the row pitch included; the last is the element size."""
    strides = [max(1, bits // 8)]
    if len(shape) > 1:
        strides.append(pitch)
        for extent in reversed(shape[1:-1]):
            strides.append(strides[-1] * extent)
    return tuple(reversed(strides))


def storage_bytes(shape: tuple[int, ...], bits: int, swizzle: int, pitch: int | None) -> int:
    """Bytes the layout occupies: what is allocated, not ``prod(shape)`` times the element size."""
    return prod(shape[:-1]) * row_pitch(shape, bits, swizzle, pitch)
