"""Step 6: pairs of CTAs.

Two CTAs of a cluster compute 256 rows: each has its 128 rows of A and of the result and one half of
the rows of B, and the even CTA, the leader, issues every mma for both. What crosses between them:

* the copies of both complete on the leader's *full* barrier (cta_group 2); each CTA announces its
  own bytes there, the odd one with a remote ``arrive.expect_tx``;
* `tcgen05.commit` with multicast releases the stage in both CTAs, and announces the result in both;
* the epilogue warps of both give the accumulator back to the leader;
* the leader's scheduler asks for tiles. The response is multicast, so before that it arms the
  barriers of both CTAs (a multicast ``arrive.expect_tx``), and all readers of both answer to it;
* before the columns are freed the pair meets at the cluster barrier: dealloc is one act of both.

The TMA warp ends by waiting for every stage once more. Nothing is copied any more, but the commits
of the leader arrive on barriers of the odd CTA, which must not be gone by then.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32, u32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.kernels.hopper.operands import product_bf16, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.opening import initialise
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.schedule import Stealing, rasterised
from tilesim.lib.tensor_memory import TensorMemory, multiply_tile

BLOCK_M, BLOCK_K, PAIR = 128, 64, 2
ACCUMULATORS, ANSWERS = 2, 2
TMA_WARP, MMA_WARP, OWNER_WARP, SCHEDULER_WARP, EPILOGUE = 0, 1, 2, 3, range(4, 8)
#: warps that read an answer: TMA and epilogue of both CTAs, MMA and scheduler of the leader
READERS = PAIR * (1 + len(EPILOGUE)) + 2
LEADER, BOTH = 0, 0b11


@kernel(target="sm_100a", warps=8, family="blackwell", reference=product_bf16)
def matmul(
    k: Builder,
    *,
    m: int = 768,
    n: int = 192,
    depth: int = 192,
    stages: int = 3,
    block_n: int = 64,
    strip: int = 2,
) -> None:
    """C (m, n) bf16 = A (m, depth) @ B (n, depth).T, a CTA pair per 256 x ``block_n`` or fewer."""
    iterations, half = tiles(depth, BLOCK_K, "depth"), block_n // PAIR
    down, across = tiles(m, PAIR * BLOCK_M, "m"), tiles(n, block_n, "n")
    k.launch(grid=PAIR * down * across, cluster=PAIR)
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", bf16, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (half, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (BLOCK_M, block_n))
    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, half, BLOCK_K), swizzle=128)
    sC = k.shared("sC", bf16, (BLOCK_M, block_n))
    pipe = Pipeline(k, stages, producers=PAIR)
    results = Pipeline(k, ACCUMULATORS, name="acc", consumers=PAIR * len(EPILOGUE))
    answers = Pipeline(k, ANSWERS, name="answer", consumers=READERS)
    schedule = Stealing(k, answers, k.shared("response", u32, (ANSWERS, 4)), ctas=PAIR)
    memory = TensorMemory(k, ACCUMULATORS * block_n, warp=OWNER_WARP, cta_group=2)
    acc = k.fragment("acc", f32, (BLOCK_M, block_n), "warpgroup")
    rounded = k.fragment("rounded", bf16, (BLOCK_M, block_n), "warpgroup")
    leads = k.cluster_rank.eq(LEADER)

    initialise(k, pipe, results, answers)
    k.cluster.sync()
    with memory.allocated(publish=False) as address:
        with k.role("scheduler", SCHEDULER_WARP), k.if_(leads):
            schedule.ask("scheduler")

        with k.role("tma", TMA_WARP):
            filling = pipe.cursor("tma")
            with schedule.each("tma") as tile, k.elected(), k.loop(iterations, name="kt") as kt:
                down_, across_ = rasterised(tile, down, across, strip)
                row = (down_ * PAIR + k.cluster_rank) * BLOCK_M
                rows_of_b = across_ * block_n + k.cluster_rank * half
                slot = filling.slot
                slot.acquire(scope="cluster")
                slot.commit_at(a_map.box_bytes + b_map.box_bytes, [LEADER])
                full = slot.full.at(LEADER)
                k.tma.load(a_map, sA[slot.stage], (row, kt * BLOCK_K), full, cta_group=2)
                k.tma.load(b_map, sB[slot.stage], (rows_of_b, kt * BLOCK_K), full, cta_group=2)
                filling.advance()
            with k.elected():
                filling.drain(scope="cluster")  # until the last commits have landed here

        with k.role("mma", MMA_WARP), k.if_(leads):
            reading, writing = pipe.cursor("mma"), results.cursor("mma")
            with schedule.each("mma"), k.elected():
                result = writing.slot
                d = k.tcgen05.tensor(
                    address + result.stage * block_n, f32, (BLOCK_M, block_n), name="d"
                )
                result.acquire(scope="cluster")
                k.tcgen05.fence_after_thread_sync()
                with k.loop(iterations, name="kt") as kt:
                    slot = reading.slot
                    slot.wait(scope="cluster")
                    multiply_tile(k, d, sA[slot.stage], sB[slot.stage], first=kt.eq(0), cta_group=2)
                    k.tcgen05.commit(slot.empty, multicast=BOTH, cta_group=2)
                    reading.advance()
                k.tcgen05.commit(result.full, multicast=BOTH, cta_group=2)
                writing.advance()

        with k.role("epilogue", EPILOGUE) as epilogue:
            finished = results.cursor("epilogue")
            with schedule.each("epilogue") as tile:
                down_, across_ = rasterised(tile, down, across, strip)
                row = (down_ * PAIR + k.cluster_rank) * BLOCK_M
                result = finished.slot
                d = k.tcgen05.tensor(
                    address + result.stage * block_n, f32, (BLOCK_M, block_n), name="d"
                )
                result.wait(scope="cluster")
                k.tcgen05.fence_after_thread_sync()
                k.tcgen05.ld(acc, d)
                k.tcgen05.wait_ld()
                k.tcgen05.fence_before_thread_sync()
                k.sync_warp()
                with k.elected():
                    result.release_at(LEADER)
                finished.advance()
                k.tile.cast(rounded, acc)
                with epilogue.one_thread():
                    k.bulk.wait_group(0, read=True)
                epilogue.sync()  # sC is free
                k.tile.store(sC, rounded)
                k.fence.proxy_async("shared::cta")
                epilogue.sync()  # sC is complete
                with epilogue.one_thread():
                    k.tma.store(c_map, sC, (row, across_ * block_n))
                    k.bulk.commit_group()
            with epilogue.one_thread():
                k.bulk.wait_group(0, read=True)


CASES = tuple(
    Case(matmul, params, "blackwell", "proved")
    for params in (
        {},
        {"m": 256, "n": 64, "depth": 64, "stages": 2},
        {"n": 256, "block_n": 128, "stages": 4},
    )
)
