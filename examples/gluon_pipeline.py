"""A Gluon kernel that copies tiles through two stages of shared memory, and its launch."""

import sys

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from tilesim.triton import empty


@gluon.jit
def pipeline(x, y, tiles, STAGES: gl.constexpr, FIXED: gl.constexpr):
    """y = x, a tile at a time; the next tile is on its way while one is stored."""
    ROWS: gl.constexpr = x.block_shape[0]
    stage = gl.allocate_shared_memory(x.dtype, [STAGES, ROWS, x.block_shape[1]], x.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.expect(full.index(s), x.nbytes_per_cta)
        tma.async_load(x, [s * ROWS, 0], full.index(s), stage.index(s))
    for i in range(tiles):
        slot = i % STAGES
        phase = i // STAGES if FIXED else i  # a stage is used every STAGES-th time
        mbarrier.wait(full.index(slot), phase & 1)
        tma.async_store(y, [i * ROWS, 0], stage.index(slot))
        tma.store_wait(0)
        if i + STAGES < tiles:
            mbarrier.expect(full.index(slot), x.nbytes_per_cta)
            tma.async_load(x, [(i + STAGES) * ROWS, 0], full.index(slot), stage.index(slot))


def matrix() -> TensorDescriptor:
    """512 x 64 elements without values, in boxes of 64 x 64."""
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    return TensorDescriptor.from_tensor(empty((512, 64), tl.float16), [64, 64], layout)


fixed = "fixed" in sys.argv
launch = pipeline[(1,)]
launch(matrix(), matrix(), 8, STAGES=2, FIXED=fixed, num_warps=4)
