"""Kernels for tests/cute, which need CuTe DSL."""

import cutlass
from cutlass import cute, memory
from cutlass.cute.nvgpu import cpasync

TILE = 64
BYTES = TILE * TILE * 2


class Doubled:
    """B = 2 A: a warp loads tiles of 64 rows one after another, all threads add them to themselves.

    ``phase`` is that of the first wait, ``freed`` whether the threads meet before the next load.
    """

    def __init__(self, phase=0, freed=True):
        self.phase, self.freed = phase, freed

    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor):
        layout = cute.make_layout((TILE, TILE), stride=(TILE, 1))
        load = cpasync.CopyBulkTensorTileG2SOp()
        atom, tiles = cpasync.make_tiled_tma_atom(load, a, layout, (TILE, TILE))
        rows, columns = a.shape
        self.doubled(atom, tiles, b, layout, rows // TILE).launch(
            grid=[columns // TILE, 1, 1], block=[128, 1, 1]
        )

    @cute.kernel
    def doubled(
        self,
        atom: cute.CopyAtom,
        a: cute.Tensor,
        b: cute.Tensor,
        layout: cute.Layout,
        count: cutlass.Constexpr,
    ):
        thread, _, _ = cute.arch.thread_idx()
        x, _, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        shared = memory.SmemAllocator()
        tile = shared.allocate_tensor(cutlass.Float16, layout, 128)
        full = shared.allocate_array(cutlass.Int64, 1)
        if warp == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_init(full, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.barrier()
        source = cute.local_tile(a, (TILE, TILE), (None, None))
        whole, parts = cpasync.tma_partition(
            atom, 0, cute.make_layout(1), cute.group_modes(tile, 0, 2),
            cute.group_modes(source, 0, 2),
        )  # fmt: skip
        for i in cutlass.range(count, unroll=1):
            if warp == 0:
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(full, BYTES)
                cute.copy(atom, parts[(None, i, x)], whole, tma_bar_ptr=full)
            cute.arch.mbarrier_wait(full, (i + self.phase) % 2)
            for row in cutlass.range(TILE // 2, unroll=1):
                r, c = 2 * row + thread // TILE, thread % TILE
                b[i * TILE + r, x * TILE + c] = tile[r, c] + tile[r, c]
            if cutlass.const_expr(self.freed):
                cute.arch.barrier()
