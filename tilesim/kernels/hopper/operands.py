"""What the matmul versions share: tile counts, the operands' reference, one k tile of wgmma."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import DType, bf16, f32, numpy_dtype
from tilesim.dsl.builder import Builder
from tilesim.errors import UsageError
from tilesim.ir.declarations import Fragment, View
from tilesim.ir.ops.wgmma import K_OF

#: findings name the kernel's lines, not the ones in this file
__tilesim_helper__ = True

#: K of one wgmma on 16-bit inputs
WGMMA_K = 16

Arrays = dict[str, NDArray[Any]]


def tiles(extent: int, block: int, name: str) -> int:
    """How many blocks cover ``extent``; it must be a multiple, these kernels have no edge tiles.

    Raises:
        UsageError: ``extent`` is not a positive multiple of ``block``.
    """
    if extent <= 0 or extent % block:
        raise UsageError(f"{name}={extent} is not a positive multiple of the block size {block}")
    return extent // block


def product(inputs: Arrays, dtype: DType) -> Arrays:
    """``C = A @ B.T``, accumulated in f32 and rounded to ``dtype`` once."""
    a, b = inputs["A"].astype(np.float32), inputs["B"].astype(np.float32)
    return {"C": (a @ b.T).astype(numpy_dtype(dtype))}


def product_f32(inputs: Arrays, **params: Any) -> Arrays:
    """Reference of the versions that store f32."""
    return product(inputs, f32)


def product_bf16(inputs: Arrays, **params: Any) -> Arrays:
    """Reference of the versions that store bf16."""
    return product(inputs, bf16)


def multiply_tile(k: Builder, acc: Fragment, a: View, b: View, *, accumulate: bool = True) -> None:
    """Issues ``acc += a @ b.T`` for one k tile as one wgmma group, without waiting for it.

    Without ``accumulate`` it is ``acc = a @ b.T``.
    """
    depth, step = a.shape[1], K_OF[a.dtype]
    k.wgmma.fence()
    for start in range(0, depth, step):
        columns = slice(start, start + step)
        adds = accumulate or start > 0
        k.wgmma.mma_async(acc, a[:, columns], b[:, columns], accumulate=int(adds))
    k.wgmma.commit_group()
