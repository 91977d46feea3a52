"""Triton and Gluon kernels that hang. They compile with Triton 3.6 and 3.9, which have other names
for some of Gluon's functions."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

copy = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared


@triton.jit
def spinning(flags):
    """Program 1 waits for word 1, program 0 writes word 0."""
    if tl.program_id(0) == 0:
        tl.atomic_xchg(flags, 1)
    else:
        while tl.atomic_add(flags + 1, 0) == 0:
            pass


@gluon.jit
def stored(y, i, value, BLOCK: gl.constexpr, layout: gl.constexpr):
    """Stores a square tile."""
    rows = gl.arange(0, BLOCK, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, BLOCK, gl.SliceLayout(0, layout))[None, :]
    gl.store(y + i * BLOCK * BLOCK + rows * BLOCK + columns, value)


@gluon.jit
def copied(x, y, BLOCK: gl.constexpr, PHASE: gl.constexpr):
    """y = x; the copy is waited for a second time, with ``PHASE`` 1 for a phase that never ends."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    buffer = gl.allocate_shared_memory(x.dtype, [BLOCK, BLOCK], x.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    mbarrier.expect(full, BLOCK * BLOCK * 2)
    copy(x, [0, 0], full, buffer)
    mbarrier.wait(full, 0)
    mbarrier.wait(full, PHASE)
    stored(y, 0, buffer.load(layout), BLOCK, layout)
    mbarrier.invalidate(full)


@gluon.jit
def loads(x, y, ring, full, empty, tiles, BLOCK: gl.constexpr, STAGES: gl.constexpr,
          FAULT: gl.constexpr):  # fmt: skip
    """Fills the stages."""
    for i in range(tiles):
        slot = i % STAGES
        parity = ((i // STAGES) & 1) ^ 1
        if FAULT == "parity":
            parity = parity ^ 1
        mbarrier.wait(empty.index(slot), parity)
        if FAULT == "bytes":
            mbarrier.expect(full.index(slot), BLOCK * BLOCK * 2 + 32)
        else:
            mbarrier.expect(full.index(slot), BLOCK * BLOCK * 2)
        copy(x, [i * BLOCK, 0], full.index(slot), ring.index(slot))


@gluon.jit
def stores(x, y, ring, full, empty, tiles, BLOCK: gl.constexpr, STAGES: gl.constexpr,
           FAULT: gl.constexpr):  # fmt: skip
    """Empties them."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    for i in range(tiles):
        slot = i % STAGES
        mbarrier.wait(full.index(slot), (i // STAGES) & 1)
        stored(y, i, ring.index(slot).load(layout), BLOCK, layout)
        if FAULT != "release":
            mbarrier.arrive(empty.index(slot), count=1)


@gluon.jit
def relayed(x, y, tiles, BLOCK: gl.constexpr, STAGES: gl.constexpr, FAULT: gl.constexpr):
    """y = x: a partition of one warp loads, the default partition stores."""
    ring = gl.allocate_shared_memory(x.dtype, [STAGES, BLOCK, BLOCK], x.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2 if FAULT == "count" else 1)
    gl.warp_specialize(
        [
            (stores, (x, y, ring, full, empty, tiles, BLOCK, STAGES, FAULT)),
            (loads, (x, y, ring, full, empty, tiles, BLOCK, STAGES, FAULT)),
        ],
        [1],
        [24],
    )
