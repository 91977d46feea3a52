"""A matrix product for Blackwell: a ring of stages that tcgen05.commit gives back."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)


@gluon.jit
def load(k, a, b, a_ring, b_ring, full, row, column, STAGES: gl.constexpr, FAULT: gl.constexpr):
    """Starts the copies of k tile ``k``."""
    slot = k % STAGES
    barrier = full.index(slot)
    if FAULT == "fewer bytes expected":
        mbarrier.expect(barrier, a.nbytes_per_cta)
    else:
        mbarrier.expect(barrier, a.nbytes_per_cta + b.nbytes_per_cta)
    tma.async_load(a, [row, k * a.block_shape[1]], barrier, a_ring.index(slot))
    tma.async_load(b, [k * b.block_shape[0], column], barrier, b_ring.index(slot))


@gluon.jit
def committed(a, b, c, tiles, STAGES: gl.constexpr, FAULT: gl.constexpr):
    """c = a b for one tile of c per program; ``tiles`` along k."""
    row = gl.program_id(0) * c.block_shape[0]
    column = gl.program_id(1) * c.block_shape[1]
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    done = mbarrier.allocate_mbarrier()
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=1)
    mbarrier.init(done, count=1)
    rows: gl.constexpr = c.block_shape[0]
    columns: gl.constexpr = c.block_shape[1]
    layout: gl.constexpr = TensorMemoryLayout(block=(rows, columns), col_stride=1)
    acc = allocate_tensor_memory(gl.float32, [rows, columns], layout)
    for k in range(STAGES):
        load(k, a, b, a_ring, b_ring, full, row, column, STAGES, FAULT)
    for k in range(tiles):
        slot = k % STAGES
        parity = (k // STAGES) & 1
        if FAULT != "no wait for the copy":
            mbarrier.wait(full.index(slot), parity)
        tcgen05_mma(a_ring.index(slot), b_ring.index(slot), acc, use_acc=k > 0)
        if FAULT != "no commit":
            tcgen05_commit(empty.index(slot))
        if k + STAGES < tiles:
            if FAULT == "other parity":
                mbarrier.wait(empty.index(slot), parity ^ 1)
            elif FAULT != "refilled while the product reads":
                mbarrier.wait(empty.index(slot), parity)
            load(k + STAGES, a, b, a_ring, b_ring, full, row, column, STAGES, FAULT)
    tcgen05_commit(done)
    if FAULT != "loaded before the product is complete":
        mbarrier.wait(done, 0)
    product = acc.load()
    c_tile = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    c_tile.store(product.to(c.dtype))
    fence_async_shared()
    tma.async_store(c, [row, column], c_tile)
    tma.store_wait(0)
