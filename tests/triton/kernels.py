"""Kernels in Triton and Gluon, right and wrong."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@triton.jit
def product(a, b, c, depth, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    """c = a b, a tile per program; the operands come through tensor maps."""
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    acc = tl.zeros((M, N), tl.float32)
    for k in tl.range(0, depth, K):
        acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
    c.store([row, column], acc.to(tl.float16))


@gluon.jit
def increased(x, y, tiles, PHASE: gl.constexpr):
    """y = x + 1, a tile at a time through one buffer and one barrier."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    buffer = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    for i in range(tiles):
        mbarrier.expect(full, x.nbytes_per_cta)
        tma.async_load(x, [i * x.block_shape[0], 0], full, buffer)
        mbarrier.wait(full, (i & 1) ^ PHASE)
        value = buffer.load(layout)
        buffer.store(value + 1)
        tma.async_store(y, [i * x.block_shape[0], 0], buffer)
        tma.store_wait(0)
    mbarrier.invalidate(full)


@triton.autotune(
    configs=[triton.Config({"PHASE": phase}, num_warps=4) for phase in range(4)],
    key=[],
    prune_configs_by={
        "early_config_prune": lambda configs, *_, **__: configs[:3],
    },
)
@gluon.jit
def tuned(x, y, tiles, PHASE: gl.constexpr):
    """`increased` in four configurations: 1 waits for a wrong phase, 2 is refused, 3 is pruned."""
    gl.static_assert(PHASE < 2, "no such phase")
    increased(x, y, tiles, PHASE)


@triton.jit(repr=lambda specialization: f"filled_by_{specialization.constants['BLOCK']}")
def filled(y, BLOCK: tl.constexpr):
    """y = 0; its name in PTX is one that it makes itself."""
    tl.store(y + tl.arange(0, BLOCK), tl.zeros((BLOCK,), tl.float32))
