"""Step 4: pairs of CTAs.

Two CTAs of a cluster compute 256 rows: each has its 128 rows of A and of the result and one half of
the rows of B, and the even CTA issues every mma for both. Three signals cross between them:

* the copies of both complete on the even CTA's *full* barrier (cta_group 2), which expects the
  bytes of both;
* `tcgen05.commit` with multicast releases the stage in both CTAs, and announces the result in both;
* before the columns are freed the pair meets at the cluster barrier: dealloc is one act of both.

The TMA warp ends by waiting for every stage once more. Nothing is copied any more, but the commits
of the even CTA arrive on barriers of the odd one, which must not be gone by then.
"""

from __future__ import annotations

from tilesim.ir.builder import Builder
from tilesim.ir.kernel import kernel
from tilesim.ir.types import bf16, f32, u32
from tilesim.kernels.blackwell.tensor_memory import multiply_tile
from tilesim.kernels.hopper.operands import product_f32, tiles
from tilesim.kernels.pipeline import Pipeline
from tilesim.kernels.registry import Case

BLOCK_M, BLOCK_K, PAIR = 128, 64, 2
TMA_WARP, MMA_WARP, OWNER_WARP = 0, 1, 2
LEADER, BOTH = 0, 0b11


@kernel(target="sm_100a", warps=4, family="blackwell", reference=product_f32)
def matmul(
    k: Builder, *, m: int = 512, n: int = 128, depth: int = 320, stages: int = 3, block_n: int = 64
) -> None:
    """C (m, n) f32 = A (m, depth) @ B (n, depth).T, a CTA pair per 256 rows."""
    iterations = tiles(depth, BLOCK_K, "depth")
    pairs = tiles(m, PAIR * BLOCK_M, "m")
    half = block_n // PAIR
    k.launch(grid=(PAIR * pairs, tiles(n, block_n, "n")), cluster=PAIR)
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", f32, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (half, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (BLOCK_M, block_n))
    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, half, BLOCK_K), swizzle=128)
    sC = k.shared("sC", f32, (BLOCK_M, block_n))
    slot_of_address, address = k.shared("tmem_address", u32, (1,)), k.var("tmem", dtype=u32)
    pipe, done = Pipeline(k, stages), k.mbarriers("done")
    acc = k.fragment("acc", f32, (BLOCK_M, block_n), "warpgroup")
    row, column = k.cta_x * BLOCK_M, k.cta_y * block_n
    leads = k.cluster_rank.eq(LEADER)

    with k.one_thread():
        pipe.init()
        k.mbarrier.init(done, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.role(f"warp {OWNER_WARP}", OWNER_WARP):
        k.tcgen05.alloc(slot_of_address, block_n, cta_group=2)
        k.tcgen05.relinquish_alloc_permit(cta_group=2)
    k.sync_threads()
    k.mem.load(address, slot_of_address[0])
    d = k.tcgen05.tensor(address, f32, (BLOCK_M, block_n), name="d")

    with k.role("tma", TMA_WARP), k.elected():
        with k.loop(iterations, name="kt") as kt:
            slot = pipe[kt]
            k.mbarrier.wait(slot.empty, slot.parity ^ 1, scope="cluster")
            with k.if_(leads):
                slot.commit(PAIR * (a_map.box_bytes + b_map.box_bytes))
            full = slot.full.at(LEADER)
            k.tma.load(a_map, sA[slot.stage], (row, kt * BLOCK_K), full, cta_group=2)
            rows_of_b = column + k.cluster_rank * half
            k.tma.load(b_map, sB[slot.stage], (rows_of_b, kt * BLOCK_K), full, cta_group=2)
        for stage in range(stages):
            slot = pipe[iterations + stage]  # wait until the last commits have landed here
            k.mbarrier.wait(slot.empty, slot.parity ^ 1, scope="cluster")  # tail

    with k.role("mma", MMA_WARP), k.if_(leads), k.elected():
        with k.loop(iterations, name="kt") as kt:
            slot = pipe[kt]
            k.mbarrier.wait(slot.full, slot.parity, scope="cluster")
            multiply_tile(k, d, sA[slot.stage], sB[slot.stage], first=kt.eq(0), cta_group=2)
            k.tcgen05.commit(slot.empty, multicast=BOTH, cta_group=2)
        k.tcgen05.commit(done, multicast=BOTH, cta_group=2)

    k.mbarrier.wait(done, 0, scope="cluster")
    k.tcgen05.fence_after_thread_sync()
    k.tcgen05.ld(acc, d)
    k.tcgen05.wait_ld()
    k.tile.store(sC, acc)
    k.fence.proxy_async("shared::cta")
    k.tcgen05.fence_before_thread_sync()
    k.cluster.sync()  # also completes sC
    with k.role(f"warp {OWNER_WARP}", OWNER_WARP):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, block_n, cta_group=2)
    with k.one_thread():
        k.tma.store(c_map, sC, (row, column))
        k.bulk.commit_group()
        k.bulk.wait_group(0, read=True)


CASES = tuple(
    Case(matmul, params, "blackwell", "proved")
    for params in ({}, {"m": 256, "depth": 64, "stages": 2}, {"block_n": 128, "stages": 4})
)
