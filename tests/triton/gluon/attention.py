"""The forward pass of attention: a ring of blocks of K and V, products by wgmma."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def fill(i, k, v, k_ring, v_ring, k_full, v_full, base, STAGES: gl.constexpr, FAULT: gl.constexpr):
    """Starts the copies of block ``i`` of K and V."""
    slot = i % STAGES
    row = base + i * k.block_shape[0]
    mbarrier.expect(k_full.index(slot), k.nbytes_per_cta)
    tma.async_load(k, [row, 0], k_full.index(slot), k_ring.index(slot))
    if FAULT == "V counted by the barrier of K":
        mbarrier.expect(v_full.index(slot), v.nbytes_per_cta)
        tma.async_load(v, [row, 0], k_full.index(slot), v_ring.index(slot))
    else:
        mbarrier.expect(v_full.index(slot), v.nbytes_per_cta)
        tma.async_load(v, [row, 0], v_full.index(slot), v_ring.index(slot))


@gluon.jit
def attention(q, k, v, o, blocks, scale, STAGES: gl.constexpr, FAULT: gl.constexpr):
    """o = softmax(scale q k^T) v, one tile of q per program; heads lie below each other."""
    rows: gl.constexpr = q.block_shape[0]
    columns: gl.constexpr = k.block_shape[0]
    width: gl.constexpr = q.block_shape[1]
    scores: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16]
    )
    output: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, width, 16]
    )
    q_tile = gl.allocate_shared_memory(q.dtype, q.block_shape, q.layout)
    k_ring = gl.allocate_shared_memory(k.dtype, [STAGES] + k.block_shape, k.layout)
    v_ring = gl.allocate_shared_memory(v.dtype, [STAGES] + v.block_shape, v.layout)
    q_full = mbarrier.allocate_mbarrier()
    k_full = mbarrier.allocate_mbarrier(batch=STAGES)
    v_full = mbarrier.allocate_mbarrier(batch=STAGES)
    mbarrier.init(q_full, count=1)
    for s in gl.static_range(STAGES):
        mbarrier.init(k_full.index(s), count=1)
        mbarrier.init(v_full.index(s), count=1)
    first = gl.program_id(0) * rows
    base = gl.program_id(1) * blocks * columns
    mbarrier.expect(q_full, q.nbytes_per_cta)
    tma.async_load(q, [first + base, 0], q_full, q_tile)
    for i in range(STAGES - 1):
        fill(i, k, v, k_ring, v_ring, k_full, v_full, base, STAGES, FAULT)
    if FAULT != "no wait for Q":
        mbarrier.wait(q_full, 0)
    most = gl.full([rows], -float("inf"), gl.float32, gl.SliceLayout(1, scores))
    total = gl.zeros([rows], gl.float32, gl.SliceLayout(1, scores))
    acc = gl.zeros([rows, width], gl.float32, output)
    for i in range(blocks):
        slot = i % STAGES
        parity = (i // STAGES) & 1
        mbarrier.wait(k_full.index(slot), parity)
        zero = gl.zeros([rows, columns], gl.float32, scores)
        dots = warpgroup_mma(q_tile, k_ring.index(slot).permute((1, 0)), zero, is_async=True)
        dots = warpgroup_mma_wait(0, deps=[dots])
        highest = gl.maximum(most, gl.max(dots, 1) * scale)
        p = gl.exp2(dots * scale - gl.expand_dims(highest, 1))
        kept = gl.exp2(most - highest)
        total = total * kept + gl.sum(p, 1)
        most = highest
        acc = acc * gl.expand_dims(gl.convert_layout(kept, gl.SliceLayout(1, output)), 1)
        operand = gl.convert_layout(p.to(v.dtype), gl.DotOperandLayout(0, output, 2))
        if FAULT == "V waited for with the parity of the next round":
            mbarrier.wait(v_full.index(slot), parity ^ 1)
        elif FAULT != "no wait for V":
            mbarrier.wait(v_full.index(slot), parity)
        product = warpgroup_mma(operand, v_ring.index(slot), acc, is_async=True)
        if FAULT == "refilled while wgmma reads":
            if i + STAGES < blocks:
                fill(i + STAGES, k, v, k_ring, v_ring, k_full, v_full, base, STAGES, FAULT)
        acc = warpgroup_mma_wait(0, deps=[product])
        if FAULT != "refilled while wgmma reads":
            if i + STAGES - 1 < blocks:
                fill(i + STAGES - 1, k, v, k_ring, v_ring, k_full, v_full, base, STAGES, FAULT)
    acc = acc / gl.expand_dims(gl.convert_layout(total, gl.SliceLayout(1, output)), 1)
    if FAULT != "Q overwritten while it is read":
        q_tile.store(acc.to(o.dtype))
        fence_async_shared()
        tma.async_store(o, [first + base, 0], q_tile)
    else:
        tma.async_store(o, [first + base, 0], q_tile)
        q_tile.store(acc.to(o.dtype))
    tma.store_wait(0)
