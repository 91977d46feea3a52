"""Kernels in Triton whose checks are measured: GEMMs by cp.async and by tensor maps, attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import tilesim.triton as tt
from tilesim.recording import Launched


@triton.jit
def by_pointers(a, b, c, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a b, operands through pointers, which Triton pipelines by cp.async."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns, inner = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rows[:, None] * sam + (k + inner)[None, :])
        y = tl.load(b + (k + inner)[:, None] * sbk + columns[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rows[:, None] * scm + columns[None, :], acc.to(tl.float16))


@triton.jit
def by_maps(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a b, operands through tensor maps."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK):
        acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
    c.store([row, column], acc.to(tl.float16))


@triton.jit
def attention(q, k, v, o, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    """o = softmax(q k^T) v, block by block of the keys."""
    row = tl.program_id(0) * BM
    query = q.load([row, 0])
    most = tl.full((BM,), -1.0e30, tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for at in range(0, length, BN):
        scores = tl.dot(query, k.load([at, 0]).T) * scale
        new = tl.maximum(most, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        change = tl.exp2(most - new)
        total = total * change + tl.sum(weights, 1)
        acc = tl.dot(weights.to(tl.float16), v.load([at, 0]), acc * change[:, None])
        most = new
    o.store([row, 0], (acc / total[:, None]).to(tl.float16))


def _map(shape: tuple[int, int], box: tuple[int, int]) -> Any:
    return TensorDescriptor(tt.empty(shape, tl.float16), shape, (shape[1], 1), box)


def launches() -> Iterator[tuple[str, Launched]]:
    """Each kernel as it would be launched, with its name; 64 iterations of the loop over K or the
    keys, 64 to 256 CTAs."""
    half, size, depth = tl.float16, 1024, 64 * 64
    a, b, c = (tt.empty(s, half) for s in ((size, depth), (depth, size), (size, size)))
    (found,) = tt.record(
        by_pointers[(8, 8)], a, b, c, depth, depth, size, size, BM=128, BN=128, BK=64, num_stages=3
    )
    yield "GEMM by cp.async", found
    (found,) = tt.record(
        by_maps[(8, 8)], _map((size, depth), (128, 64)), _map((depth, size), (64, 128)),
        _map((size, size), (128, 128)), depth, BM=128, BN=128, BK=64, num_stages=4,
    )  # fmt: skip
    yield "GEMM by tensor maps", found
    length = 64 * 64
    (found,) = tt.record(
        attention[(length // 128,)],
        *(_map((length, 128), (rows, 128)) for rows in (128, 64, 64, 128)), length, 0.1,
        BM=128, BN=64, D=128, num_warps=8, num_stages=2,
    )  # fmt: skip
    yield "attention", found
