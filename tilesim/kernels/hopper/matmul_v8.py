"""Step 8: clusters of two CTAs that share their tiles of B.

A cluster computes 256 x block_n of C, 128 rows per CTA. Both need the same tile of B, so each loads
half of it and multicasts it to both: B crosses the L2 cache once per cluster. The full barrier of
each CTA expects the whole tile, whichever loads it.

A producer now writes into both CTAs, so the stage must be empty in both. The consumers release it
in their own CTA, as before. One thread, the courier, waits for that and tells the other CTA.

An arrive that releases at cluster scope is a fence for all memory on Hopper, which takes most of a
microsecond. What is handed over here is shared memory alone: ``fence.release.sync_restrict`` says
so, and the arrive after it is relaxed. ``handover="release"`` is the slow form, and ``"cta"`` what
CUTLASS writes: as fast, and accepted in practice, but PTX orders threads of different CTAs at
cluster scope only (SEMANTICS U4).
"""

from __future__ import annotations

from typing import Literal

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.ir.expr import Expr
from tilesim.ir.ops.mbarrier import Scope
from tilesim.kernels.hopper.matmul_v5 import (
    BLOCK_K,
    BLOCK_M,
    CONSUMER_GROUPS,
    CONSUMER_REGISTERS,
    PRODUCER_REGISTERS,
    ROWS,
    WARPS,
    accumulate,
)
from tilesim.kernels.hopper.matmul_v7 import PIECE, corner, store_pieces
from tilesim.kernels.hopper.operands import product_bf16, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cluster
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.schedule import Striding

CLUSTER = 2


@kernel(warps=WARPS * (1 + CONSUMER_GROUPS), family="hopper", reference=product_bf16)
def matmul(
    k: Builder,
    *,
    m: int = 512,
    n: int = 256,
    depth: int = 192,
    stages: int = 2,
    clusters: int = 1,
    block_n: int = 128,
    band: int = 2,
    pieces: int = 2,
    handover: Literal["restricted", "release", "cta"] = "restricted",
) -> None:
    """C (m, n) bf16 = A (m, depth) @ B (n, depth).T by ``clusters`` persistent pairs of CTAs."""
    iterations = tiles(depth, BLOCK_K, "depth")
    across = tiles(n, block_n, "n")
    total = tiles(m, CLUSTER * BLOCK_M * band, "m") * band * across
    share = tiles(block_n, CLUSTER * PIECE, "block_n") * PIECE
    k.launch(grid=CLUSTER * clusters, cluster=CLUSTER, registers=168)
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", bf16, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (share, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (ROWS, PIECE), swizzle=128)

    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, block_n, BLOCK_K), swizzle=128)
    sC = k.shared("sC", bf16, (CONSUMER_GROUPS, pieces, ROWS, PIECE), swizzle=128)
    pipe = Pipeline(k, stages)
    peer_empty = k.mbarriers("peer_empty", stages)
    acc = k.fragment("acc", f32, (ROWS, block_n), "warpgroup")
    result = k.fragment("result", bf16, (ROWS, block_n), "warpgroup")
    schedule = Striding(k, total, clusters, cluster=CLUSTER)
    scope: Scope = "cta" if handover == "cta" else "cluster"
    open_cluster(k, (pipe.full, 1), (pipe.empty, WARPS * CONSUMER_GROUPS), (peer_empty, 1))

    def cta_corner(tile: Expr) -> tuple[Expr, Expr]:
        """First row and column of this CTA's part of a cluster tile."""
        row, column = corner(tile, band, across, (CLUSTER * BLOCK_M, block_n))
        return row + k.cluster_rank * BLOCK_M, column

    with k.role("producer", range(WARPS)):
        k.setmaxnreg("dec", PRODUCER_REGISTERS)
        with k.one_thread(0), schedule.each() as tile:
            row, column = cta_corner(tile)
            half = ds(k.cluster_rank * share, share)
            with k.loop(iterations, name="kt") as kt:
                slot = pipe[schedule.turn(tile) * iterations + kt]
                slot.acquire()
                k.mbarrier.wait(peer_empty[slot.stage], slot.parity, scope=scope)
                slot.commit(a_map.box_bytes + CLUSTER * b_map.box_bytes)
                k.tma.load(a_map, sA[slot.stage], (row, kt * BLOCK_K), slot.full)
                b_at = (column + half.start, kt * BLOCK_K)
                k.tma.load(b_map, sB[slot.stage, half], b_at, slot.full, multicast=0b11)
        with (  # the courier
            k.one_thread(1),
            schedule.each() as tile,
            k.loop(iterations, name="kt") as kt,
        ):
            slot = pipe[schedule.turn(tile) * iterations + kt]
            slot.acquire()
            told = peer_empty[slot.stage].at(k.cluster_rank ^ 1)
            if handover == "restricted":
                k.fence.sync_restrict("release")
                k.mbarrier.arrive(told, sem="relaxed", scope=scope)
            else:
                k.mbarrier.arrive(told, scope=scope)

    for group in range(CONSUMER_GROUPS):
        with k.warpgroup(1 + group, f"consumer{group}") as consumer:
            k.setmaxnreg("inc", CONSUMER_REGISTERS)
            with schedule.each() as tile:
                row, column = cta_corner(tile)
                items = (schedule.turn(tile) * iterations, iterations)
                accumulate(k, pipe, acc, sA, sB, ROWS * group, items, scope)
                k.tile.cast(result, acc)
                store_pieces(k, consumer, c_map, sC[group], result, (row + ROWS * group, column))
            with consumer.one_thread():
                k.bulk.wait_group(0, read=True)
    k.cluster.sync()  # the peer's copies and arrivals have come


CASES = (
    Case(matmul, {}, "hopper", "proved"),
    Case(matmul, {"clusters": 2, "band": 1, "depth": 320, "pieces": 1}, "hopper", "proved"),
    Case(
        matmul,
        {"m": 256, "band": 1, "block_n": 256, "stages": 3, "depth": 64},
        "hopper",
        "proved",
        note="a single k tile",
    ),
)
