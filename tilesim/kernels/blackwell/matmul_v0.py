"""Step 0: one output tile, one buffer, one thread that does everything.

The accumulator lives in tensor memory: warp 0 allocates columns, one thread loads a k tile, waits
for it, issues the mma and waits until it is complete before the buffer is filled again. All warps
then read their lanes of the accumulator.

Two hand-overs make this right. The thread waits for ``done`` before the next copy, because the mma
reads its operands until it is complete. After the loop a barrier tells the other warps, which need
the completion too: an mma and a load are never executed in order by themselves.
"""

from __future__ import annotations

from tilesim.ir.builder import Builder
from tilesim.ir.kernel import kernel
from tilesim.ir.types import bf16, f32
from tilesim.kernels.blackwell.tensor_memory import TensorMemory, multiply_tile
from tilesim.kernels.hopper.operands import product_f32, tiles
from tilesim.kernels.registry import Case

BLOCK_M, BLOCK_K = 128, 64


@kernel(target="sm_100a", warps=4, family="blackwell", reference=product_f32)
def matmul(k: Builder, *, n: int = 64, depth: int = 192) -> None:
    """C (128, n) f32 = A (128, depth) @ B (n, depth).T in one CTA."""
    iterations = tiles(depth, BLOCK_K, "depth")
    A = k.tensor("A", bf16, (BLOCK_M, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", f32, (BLOCK_M, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (n, BLOCK_K), swizzle=128)
    sA = k.shared("sA", bf16, (BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (n, BLOCK_K), swizzle=128)
    full, done = k.mbarriers("full"), k.mbarriers("done")
    memory = TensorMemory(k, 64 if n <= 64 else 128)
    acc = k.fragment("acc", f32, (BLOCK_M, n), "warpgroup")

    memory.allocate()
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(done, 1)
        k.fence.mbarrier_init()
    k.sync_threads()
    d = k.tcgen05.tensor(memory.address(), f32, (BLOCK_M, n), name="d")

    with k.one_thread(), k.loop(iterations, name="kt") as kt:
        k.mbarrier.arrive_expect_tx(full, a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, sA, (0, kt * BLOCK_K), full)
        k.tma.load(b_map, sB, (0, kt * BLOCK_K), full)
        k.mbarrier.wait(full, kt & 1)
        multiply_tile(k, d, sA.view(), sB.view(), first=kt.eq(0))
        k.tcgen05.commit(done)
        k.mbarrier.wait(done, kt & 1)

    k.sync_threads()
    k.tcgen05.fence_after_thread_sync()
    k.tcgen05.ld(acc, d)
    k.tcgen05.wait_ld()
    k.tile.store(C, acc)
    memory.free()


CASES = tuple(
    Case(matmul, params, "blackwell", "proved")
    for params in ({}, {"n": 32, "depth": 64}, {"n": 128})
)
