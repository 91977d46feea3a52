"""A matrix product by one partition: tensor maps, a ring of stages, one wgmma group in flight."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)


@gluon.jit
def load(k, a, b, a_ring, b_ring, full, row, column, STAGES: gl.constexpr, FAULT: gl.constexpr):
    """Starts the copies of k tile ``k``."""
    slot = k % STAGES
    barrier = full.index(slot)
    if FAULT == "more bytes expected":
        mbarrier.expect(barrier, 2 * (a.nbytes_per_cta + b.nbytes_per_cta))
    elif FAULT == "fewer bytes expected":
        mbarrier.expect(barrier, a.nbytes_per_cta)
    elif FAULT == "nothing expected":
        mbarrier.arrive(barrier)
    elif FAULT != "no expect":
        mbarrier.expect(barrier, a.nbytes_per_cta + b.nbytes_per_cta)
    if FAULT == "next slot filled":
        slot = (k + 1) % STAGES
    tma.async_load(a, [row, k * a.block_shape[1]], barrier, a_ring.index(slot))
    tma.async_load(b, [k * b.block_shape[0], column], barrier, b_ring.index(slot))


@gluon.jit
def pipelined(a, b, c, tiles, STAGES: gl.constexpr, FAULT: gl.constexpr):
    """c = a b for one tile of c per program; ``tiles`` along k."""
    row = gl.program_id(0) * c.block_shape[0]
    column = gl.program_id(1) * c.block_shape[1]
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=2 if FAULT == "count of two" else 1)
    for k in range(STAGES - 1):
        load(k, a, b, a_ring, b_ring, full, row, column, STAGES, FAULT)
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, c.block_shape[1], 16]
    )
    acc = warpgroup_mma_init(gl.zeros(c.block_shape, gl.float32, layout))
    for k in range(tiles):
        slot = k % STAGES
        parity = (k // STAGES) & 1
        if FAULT == "other parity":
            parity = parity ^ 1
        if FAULT != "no wait for the copy":
            mbarrier.wait(full.index(slot), parity)
        if FAULT == "next slot read":
            slot = (k + 1) % STAGES
        acc = warpgroup_mma(a_ring.index(slot), b_ring.index(slot), acc, is_async=True)
        if FAULT != "no wait for wgmma":
            acc = warpgroup_mma_init(warpgroup_mma_wait(1, deps=[acc]))
        if k + STAGES - 1 < tiles:
            load(k + STAGES - 1, a, b, a_ring, b_ring, full, row, column, STAGES, FAULT)
    if FAULT == "invalidated too early":
        mbarrier.invalidate(full.index(0))
        mbarrier.wait(full.index(0), ((tiles - 1) // STAGES) & 1)
    product = warpgroup_mma_wait(0, deps=[acc])
    for s in gl.static_range(STAGES):
        if FAULT != "invalidated too early" or s > 0:
            mbarrier.invalidate(full.index(s))
    c_tile = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    c_tile.store(product.to(c.dtype))
    if FAULT != "no proxy fence":
        fence_async_shared()
    tma.async_store(c, [row, column], c_tile)
    if FAULT != "no wait for the store":
        tma.store_wait(0)
