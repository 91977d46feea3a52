"""Step 1: the tensor memory accelerator copies, in and out.

One thread announces the bytes of a k tile, starts two copies, waits for them and multiplies. Its
copies write through the async proxy, as the mma reads: no proxy fence is needed between them.

The result leaves through shared memory. Now the writers are generic and the reader is not, so
every thread executes the proxy fence before the barrier behind which one thread starts the store.
The CTA may not end before the store has read the shared memory.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.kernels.hopper.operands import product_f32, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.tensor_memory import TensorMemory, multiply_tile

BLOCK_M, BLOCK_K = 128, 64


@kernel(target="sm_100a", warps=4, family="blackwell", reference=product_f32)
def matmul(k: Builder, *, m: int = 256, n: int = 128, depth: int = 192, block_n: int = 64) -> None:
    """C (m, n) f32 = A (m, depth) @ B (n, depth).T, a CTA per output tile."""
    iterations = tiles(depth, BLOCK_K, "depth")
    k.launch(grid=(tiles(n, block_n, "n"), tiles(m, BLOCK_M, "m")))
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", f32, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (BLOCK_M, block_n))
    sA = k.shared("sA", bf16, (BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (block_n, BLOCK_K), swizzle=128)
    sC = k.shared("sC", f32, (BLOCK_M, block_n))
    full, done = k.mbarriers("full"), k.mbarriers("done")
    memory = TensorMemory(k, 64 if block_n <= 64 else 128)
    acc = k.fragment("acc", f32, (BLOCK_M, block_n), "warpgroup")
    row, column = k.cta_y * BLOCK_M, k.cta_x * block_n

    with memory.allocated((full, 1), (done, 1)) as address:
        d = k.tcgen05.tensor(address, f32, (BLOCK_M, block_n), name="d")

        with k.one_thread(), k.loop(iterations, name="kt") as kt:
            k.mbarrier.arrive_expect_tx(full, a_map.box_bytes + b_map.box_bytes)
            k.tma.load(a_map, sA, (row, kt * BLOCK_K), full)
            k.tma.load(b_map, sB, (column, kt * BLOCK_K), full)
            k.mbarrier.wait(full, kt & 1)
            multiply_tile(k, d, sA.view(), sB.view(), first=kt.eq(0))
            k.tcgen05.commit(done)
            k.mbarrier.wait(done, kt & 1)

        k.sync_threads()
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d)
        k.tcgen05.wait_ld()
        k.tile.store(sC, acc)
        k.fence.proxy_async("shared::cta")
    with k.one_thread():  # freeing has a barrier of all threads: sC is complete
        k.tma.store(c_map, sC, (row, column))
        k.bulk.commit_group()
        k.bulk.wait_group(0, read=True)


CASES = tuple(
    Case(matmul, params, "blackwell", "proved")
    for params in ({}, {"block_n": 32, "depth": 64}, {"n": 256, "block_n": 128})
)
