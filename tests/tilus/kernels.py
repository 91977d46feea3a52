"""Kernels for tests/tilus, which need tilus. It reads annotations: they are no strings."""

import tilus
from tilus import float16, int32, uint32
from tilus.utils import cdiv

ROWS, COLUMNS = 64, 64


class Doubled(tilus.Script):
    """B = A + A, a tile of 64 rows at a time per CTA, in ``stages`` buffers.

    The barrier of a stage counts ``count`` arrivals, one comes. A wait is for the phase of the turn
    before, if ``late`` is 1. With ``kept`` a stage is loaded again only after all have read it.
    """

    def __init__(self, stages=2, count=1, late=0, kept=True):
        super().__init__()
        self.stages = stages
        self.count = count
        self.late = late
        self.kept = kept

    def __call__(self, tiles: int32, a_ptr: ~float16, b_ptr: ~float16):
        self.attrs.blocks = [2]
        self.attrs.warps = 4
        a = self.global_view(a_ptr, dtype=float16, shape=[2 * tiles * ROWS, COLUMNS])
        b = self.global_view(b_ptr, dtype=float16, shape=[2 * tiles * ROWS, COLUMNS])
        tile = self.shared_tensor(dtype=float16, shape=[self.stages, ROWS, COLUMNS])
        full = self.mbarrier.alloc(counts=[self.count for _ in range(self.stages)])
        first: int32 = self.blockIdx.x * tiles * ROWS
        stage: int32 = 0
        phase: uint32 = self.late
        self.sync()
        for turn in range(tiles):
            with self.single_warp():
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        full[stage], transaction_bytes=tile[stage].nbytes
                    )
                self.tma.global_to_shared(
                    src=a, dst=tile[stage], offsets=[first + turn * ROWS, 0], mbarrier=full[stage]
                )
            self.mbarrier.wait(full[stage], phase=phase)
            values = self.load_shared(tile[stage])
            self.store_global(b, values + values, offsets=[first + turn * ROWS, 0])
            if self.kept:
                self.sync()
            stage = (stage + 1) % self.stages
            phase = phase ^ (stage == 0)


@tilus.autotune("stages", [2, 3])
class Tuned(Doubled):
    """Configurations differ in their stages."""

    def __init__(self, stages):
        super().__init__(stages=stages)


class Plain(tilus.Script):
    """Takes every kind of argument."""

    def __call__(self, n: int32, a_ptr: ~float16, b_ptr: ~float16):
        self.attrs.blocks = [cdiv(n, COLUMNS)]
        self.attrs.warps = 1
        a = self.global_view(a_ptr, dtype=float16, shape=[n, COLUMNS])
        b = self.global_view(b_ptr, dtype=float16, shape=[n, COLUMNS])
        rows = self.load_global(a, offsets=[self.blockIdx.x * COLUMNS, 0], shape=[COLUMNS, COLUMNS])
        self.store_global(b, rows, offsets=[self.blockIdx.x * COLUMNS, 0])
