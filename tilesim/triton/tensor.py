"""Tensors without storage, where neither torch nor a GPU is at hand."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import prod

import triton.language as tl

from tilesim.records import dataclass, field

#: far apart, and aligned as an allocator would
_bases = count(1 << 40, 1 << 32)


@dataclass(frozen=True)
class DType:
    """An element type as Triton asks tensors for it; it prints as Triton's name, like ``fp16``."""

    name: str
    itemsize: int
    is_floating_point: bool

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor in row-major order of which nothing but type, shape and place is known."""

    shape: tuple[int, ...]
    dtype: DType
    address: int = field(default_factory=lambda: next(_bases))

    def data_ptr(self) -> int:
        """Its address."""
        return self.address

    def stride(self, dim: int | None = None) -> int | tuple[int, ...]:
        """In elements: of one dimension, or all."""
        strides = tuple(prod(self.shape[d + 1 :]) for d in range(len(self.shape)))
        return strides if dim is None else strides[dim]

    @property
    def nbytes(self) -> int:
        """Its size."""
        return prod(self.shape) * self.dtype.itemsize


def empty(shape: Sequence[int], dtype: tl.dtype) -> Tensor:
    """A stand-in for a device tensor: ``empty((1024, 512), tl.float16)``."""
    width = dtype.primitive_bitwidth
    return Tensor(tuple(shape), DType(dtype.name, width // 8, dtype.is_floating()))
