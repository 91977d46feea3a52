"""Triton and Gluon kernels that hang, beside those of `tests.triton`."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@triton.jit
def spinning(flags):
    """Program 1 waits for word 1, program 0 writes word 0."""
    if tl.program_id(0) == 0:
        tl.atomic_xchg(flags, 1)
    else:
        while tl.atomic_add(flags + 1, 0) == 0:
            pass


@gluon.jit
def copied(x, y, PHASE: gl.constexpr):
    """y = x; the copy is waited for a second time, with ``PHASE`` 1 for a phase that never ends."""
    buffer = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.expect(full, x.nbytes_per_cta)
    tma.async_load(x, [0, 0], full, buffer)
    mbarrier.wait(full, 0)
    mbarrier.wait(full, PHASE)
    tma.async_store(y, [0, 0], buffer)
    tma.store_wait(0)
    mbarrier.invalidate(full)
