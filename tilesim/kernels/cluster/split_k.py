"""Split-K: the CTAs of a cluster multiply parts of K and add their results in shared memory.

Every CTA has a partial 64 x 64 product. Ranks other than 0 push theirs into a slot of rank 0, all
on one barrier that expects the bytes of all of them; rank 0 adds the slots and writes C. Nothing
goes through global memory and nothing needs an atomic.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.errors import UsageError
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import multiply_tile, product_f32
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cluster

BLOCK = 64
#: cluster rank that adds the partial products
ROOT = 0


@kernel(warps=4, family="cluster", reference=product_f32)
def split_k(k: Builder, *, splits: int = 4, iterations: int = 2, tiles: int = 2) -> None:
    """C (64 tiles, 64) f32 = A @ B.T, K = 64 * iterations * splits, a cluster per 64 rows of C."""
    if splits < 2 or min(iterations, tiles) < 1:
        raise UsageError(f"{splits=} must be at least 2, {iterations=} and {tiles=} at least 1")
    k.launch(grid=splits * tiles, cluster=splits)
    depth = BLOCK * iterations * splits
    A, B = k.tensor("A", bf16, (BLOCK * tiles, depth)), k.tensor("B", bf16, (BLOCK, depth))
    C = k.tensor("C", f32, (BLOCK * tiles, BLOCK))
    a_map = k.tensor_map(A, (BLOCK, BLOCK), swizzle=128)
    b_map = k.tensor_map(B, (BLOCK, BLOCK), swizzle=128)
    sA = k.shared("sA", bf16, (BLOCK, BLOCK), swizzle=128)
    sB = k.shared("sB", bf16, (BLOCK, BLOCK), swizzle=128)
    partial = k.shared("partial", f32, (BLOCK, BLOCK))
    slots = k.shared("slots", f32, (splits - 1, BLOCK, BLOCK))
    loaded, arrived = k.mbarriers("loaded"), k.mbarriers("arrived")
    acc = k.fragment("acc", f32, (BLOCK, BLOCK), "warpgroup")
    other = k.fragment("other", f32, (BLOCK, BLOCK), "warpgroup")
    open_cluster(k, (loaded, 1), (arrived, 1))

    row, column = k.cluster_id * BLOCK, k.cluster_rank * (BLOCK * iterations)
    k.tile.fill(acc, 0.0)
    with k.loop(iterations, name="kt") as kt:
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(loaded, a_map.box_bytes + b_map.box_bytes)
            k.tma.load(a_map, sA, (row, column + kt * BLOCK), loaded)
            k.tma.load(b_map, sB, (0, column + kt * BLOCK), loaded)
        k.mbarrier.wait(loaded, kt & 1)
        multiply_tile(k, acc, sA.view(), sB.view())
        k.wgmma.wait_group(0)
        k.sync_threads()

    with k.if_(k.cluster_rank.ne(ROOT)):
        k.tile.store(partial, acc)
        k.fence.proxy_async("shared::cta")
        k.sync_threads()
        with k.role("push", 0):
            slot = slots[k.cluster_rank - 1]
            k.tile.copy_cluster(partial, slot, dst_cta=ROOT, barrier=arrived, signal="bytes")
    with k.if_(k.cluster_rank.eq(ROOT)):
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(arrived, slots.nbytes)
        k.mbarrier.wait(arrived, 0, scope="cluster")
        for index in range(splits - 1):
            k.tile.load(other, slots[index])
            k.tile.zip(acc, "add", acc, other)
        k.tile.store(C[ds(row, BLOCK)], acc)
    k.cluster.sync()


CASES = (
    Case(split_k, {}, "cluster", "proved"),
    Case(split_k, {"splits": 2, "tiles": 1}, "cluster", "proved"),
    Case(split_k, {"splits": 3, "iterations": 1, "tiles": 1}, "cluster", "proved"),
)
