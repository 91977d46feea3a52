"""Step 0: the least that a tcgen05 kernel needs.

The accumulator lives in tensor memory: warp 0 allocates columns and frees them at the end. All
warps copy a k tile to shared memory, one thread multiplies it, all wait, and so on.

Three hand-overs make this right:

* the mma reads through the async proxy what `cp.async` wrote through the generic one: a proxy fence
  of every writing thread comes before the barrier that lets the mma start (strictness ``practice``
  does without it);
* ``done``, on which `tcgen05.commit` arrives when the mma are complete: until then they read their
  operands, so the next tile must not be copied;
* the same wait tells the warps that they may load the accumulator; an mma and a load are never
  executed in order by themselves.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import GlobalTensor, SharedTensor, ds
from tilesim.ir.expr import Expr
from tilesim.kernels.hopper.operands import product_f32, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.tensor_memory import TensorMemory, multiply_tile

BLOCK_M, BLOCK_K, WARPS = 128, 64, 4


@kernel(target="sm_100a", warps=WARPS, family="blackwell", reference=product_f32)
def matmul(k: Builder, *, m: int = 256, n: int = 128, depth: int = 192, block_n: int = 64) -> None:
    """C (m, n) f32 = A (m, depth) @ B (n, depth).T, a CTA per output tile."""
    iterations = tiles(depth, BLOCK_K, "depth")
    k.launch(grid=(tiles(n, block_n, "n"), tiles(m, BLOCK_M, "m")))
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", f32, (m, n))
    sA = k.shared("sA", bf16, (BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (block_n, BLOCK_K), swizzle=128)
    done = k.mbarriers("done")
    memory = TensorMemory(k, 64 if block_n <= 64 else 128)
    acc = k.fragment("acc", f32, (BLOCK_M, block_n), "warpgroup")
    row, column = k.cta_y * BLOCK_M, k.cta_x * block_n

    def copy(dst: SharedTensor, src: GlobalTensor, first: Expr, kt: Expr) -> None:
        """A warp copies its quarter of the rows."""
        rows = dst.shape[0] // WARPS
        mine = k.warp_id * rows
        here = src[ds(first + mine, rows), ds(kt * BLOCK_K, BLOCK_K)]
        k.cp_async.copy(dst[ds(mine, rows)], here)

    memory.allocate()
    with k.one_thread():
        k.mbarrier.init(done, 1)
    k.sync_threads()
    d = k.tcgen05.tensor(memory.address(), f32, (BLOCK_M, block_n), name="d")

    with k.loop(iterations, name="kt") as kt:
        copy(sA, A, row, kt)
        copy(sB, B, column, kt)
        k.cp_async.wait_all()
        k.fence.proxy_async("shared::cta")
        k.sync_threads()
        with k.one_thread():
            multiply_tile(k, d, sA.view(), sB.view(), first=kt.eq(0))
            k.tcgen05.commit(done)
        k.mbarrier.wait(done, kt & 1)

    k.tcgen05.fence_after_thread_sync()
    k.tcgen05.ld(acc, d)
    k.tcgen05.wait_ld()
    k.tile.store(C[ds(row, BLOCK_M), ds(column, block_n)], acc)
    memory.free()


CASES = tuple(
    Case(matmul, params, "blackwell", "proved")
    for params in ({}, {"block_n": 32, "depth": 64}, {"n": 256, "block_n": 128})
)
