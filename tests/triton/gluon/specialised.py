"""A persistent matrix product: a partition of one warp loads, the default partition multiplies."""

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
def loader(
    a, b, c, a_ring, b_ring, full, empty, rows, cols, depth,
    STAGES: gl.constexpr, FAULT: gl.constexpr,
):  # fmt: skip
    """Fills the stages, over all tiles of this program."""
    count = 0
    for tile in range(gl.program_id(0), rows * cols, gl.num_programs(0)):
        row = tile // cols * c.block_shape[0]
        column = tile % cols * c.block_shape[1]
        for k in range(depth):
            slot = count % STAGES
            parity = ((count // STAGES) & 1) ^ 1
            if FAULT == "loader: other parity":
                parity = parity ^ 1
            if FAULT != "loader: no wait":
                mbarrier.wait(empty.index(slot), parity)
            if FAULT == "loader: fewer bytes expected":
                mbarrier.expect(full.index(slot), b.nbytes_per_cta)
            elif FAULT == "loader: more bytes expected":
                mbarrier.expect(full.index(slot), 2 * a.nbytes_per_cta + b.nbytes_per_cta)
            else:
                mbarrier.expect(full.index(slot), a.nbytes_per_cta + b.nbytes_per_cta)
            tma.async_load(a, [row, k * a.block_shape[1]], full.index(slot), a_ring.index(slot))
            tma.async_load(b, [k * b.block_shape[0], column], full.index(slot), b_ring.index(slot))
            count += 1
        if FAULT == "loader: count starts again":
            count = 0


@gluon.jit
def multiplier(
    a, b, c, a_ring, b_ring, full, empty, rows, cols, depth,
    STAGES: gl.constexpr, FAULT: gl.constexpr,
):  # fmt: skip
    """Multiplies what is loaded, a tile after the other."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, c.block_shape[1], 16]
    )
    c_tile = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    count = 0
    for tile in range(gl.program_id(0), rows * cols, gl.num_programs(0)):
        acc = warpgroup_mma_init(gl.zeros(c.block_shape, gl.float32, layout))
        for _ in range(depth):
            slot = count % STAGES
            parity = (count // STAGES) & 1
            if FAULT == "multiplier: other parity":
                parity = parity ^ 1
            if FAULT != "multiplier: no wait":
                mbarrier.wait(full.index(slot), parity)
            acc = warpgroup_mma(a_ring.index(slot), b_ring.index(slot), acc, is_async=True)
            if FAULT == "multiplier: release before the wait for wgmma":
                mbarrier.arrive(empty.index(slot), count=1)
            acc = warpgroup_mma_init(warpgroup_mma_wait(0, deps=[acc]))
            if FAULT == "multiplier: next slot released":
                mbarrier.arrive(empty.index((count + 1) % STAGES), count=1)
            elif FAULT == "multiplier: released twice":
                mbarrier.arrive(empty.index(slot), count=1)
                mbarrier.arrive(empty.index(slot), count=1)
            elif (
                FAULT != "multiplier: no release"
                and FAULT != "multiplier: release before the wait for wgmma"
            ):
                mbarrier.arrive(empty.index(slot), count=1)
            count += 1
        product = warpgroup_mma_wait(0, deps=[acc])
        if FAULT != "multiplier: no wait for the last store":
            tma.store_wait(0)
        c_tile.store(product.to(c.dtype))
        if FAULT != "multiplier: no proxy fence":
            fence_async_shared()
        row = tile // cols * c.block_shape[0]
        tma.async_store(c, [row, tile % cols * c.block_shape[1]], c_tile)
    tma.store_wait(0)


@gluon.jit
def persistent(a, b, c, rows, cols, depth, STAGES: gl.constexpr, FAULT: gl.constexpr):
    """c = a b: ``rows`` times ``cols`` tiles of c, ``depth`` tiles along k."""
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_shape, a.layout)
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_shape, b.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=2 if FAULT == "empty: count of two" else 1)
    gl.warp_specialize(
        [
            (
                multiplier,
                (a, b, c, a_ring, b_ring, full, empty, rows, cols, depth, STAGES, FAULT),
            ),
            (loader, (a, b, c, a_ring, b_ring, full, empty, rows, cols, depth, STAGES, FAULT)),
        ],
        [1],
        [24],
    )
