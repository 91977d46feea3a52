"""Copies: by cp.async through a ring, and by tensor maps into both CTAs of a cluster."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import cluster, mbarrier, tma


@gluon.jit
def fill(x, i, columns, ring, STAGES: gl.constexpr, BLOCK: gl.constexpr):
    """Starts the copy of block ``i`` of the row."""
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    at = i * BLOCK + gl.arange(0, BLOCK, layout)
    async_copy.async_load(ring.index(i % STAGES), x + at, mask=at < columns)


@gluon.jit
def streamed(x, y, columns, STAGES: gl.constexpr, BLOCK: gl.constexpr, FAULT: gl.constexpr):
    """y = x, a row per program, through a ring of ``STAGES`` blocks; each thread reads what other
    threads have copied."""
    row = gl.program_id(0) * columns
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    ring = gl.allocate_shared_memory(gl.float32, [STAGES, BLOCK], shared)
    read: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    blocks = gl.cdiv(columns, BLOCK)
    for i in range(STAGES - 1):
        fill(x + row, i, columns, ring, STAGES, BLOCK)
        async_copy.commit_group()
    for i in range(blocks):
        if FAULT == "next slot filled":
            fill(x + row, i + STAGES, columns, ring, STAGES, BLOCK)
        else:
            fill(x + row, i + STAGES - 1, columns, ring, STAGES, BLOCK)
        async_copy.commit_group()
        if FAULT == "one group too many in flight":
            async_copy.wait_group(STAGES)
        elif FAULT != "no wait for the copy":
            async_copy.wait_group(STAGES - 1)
        value = ring.index(i % STAGES).load(read)
        at = i * BLOCK + gl.arange(0, BLOCK, read)
        gl.store(y + row + at, value, mask=at < columns)
    async_copy.wait_group(0)


@gluon.jit
def multicast(x, y, tiles, FAULT: gl.constexpr):
    """y = x, ``tiles`` per cluster one after the other, each copied to both CTAs at once."""
    row = gl.program_id(0) * tiles * x.block_shape[0]
    tile = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    if FAULT != "no cluster barrier after the initialisation":
        cluster.barrier()
    for i in range(tiles):
        if FAULT == "bytes of both CTAs expected":
            mbarrier.expect(full, 2 * x.nbytes_per_cta)
        else:
            mbarrier.expect(full, x.nbytes_per_cta)
        tma.async_load(x, [row + i * x.block_shape[0], 0], full, tile, multicast=True)
        mbarrier.wait(full, i & 1)
        tma.async_store(y, [row + i * y.block_shape[0], 0], tile)
        tma.store_wait(0)
        if FAULT != "no cluster barrier before the next copy":
            cluster.barrier()
    mbarrier.invalidate(full)
