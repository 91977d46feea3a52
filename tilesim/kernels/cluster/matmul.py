"""GEMM in clusters: every tile of A and B is loaded once per row or column of the cluster.

CTA (x, y) of a ``columns`` x ``rows`` cluster computes tile (y, x) of the cluster's part of C.
The CTAs of a row share their tile of A, those of a column their tile of B. Every CTA loads one
slice of each and multicasts it to the CTAs that share it; its full barrier expects the two whole
tiles, whichever loads the slices.

A producer writes into the stages of all CTAs of its row and column, so the stage must be free in
all of them: the *empty* barrier is cluster-wide. The consumers of a CTA arrive on it in every CTA
whose producer writes to them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.errors import UsageError
from tilesim.ir.declarations import ds
from tilesim.ir.expr import Expr
from tilesim.kernels.hopper.operands import multiply_tile, product_f32
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cluster

BLOCK = 64
CONSUMERS = 4


@kernel(warps=CONSUMERS + 1, family="cluster", reference=product_f32)
def matmul(
    k: Builder,
    *,
    columns: int = 2,
    rows: int = 2,
    stages: int = 3,
    iterations: int = 5,
    clusters: int = 1,
) -> None:
    """C (64 rows clusters, 64 columns) f32 = A @ B.T with K = 64 iterations."""
    if min(columns, rows, stages, iterations, clusters) < 1 or BLOCK % columns or BLOCK % rows:
        raise UsageError(
            f"{columns=} and {rows=} must divide {BLOCK}; {stages=}, {iterations=} and {clusters=} "
            "must be at least 1"
        )
    k.launch(grid=(columns, rows * clusters), cluster=(columns, rows))
    A = k.tensor("A", bf16, (BLOCK * rows * clusters, BLOCK * iterations))
    B = k.tensor("B", bf16, (BLOCK * columns, BLOCK * iterations))
    C = k.tensor("C", f32, (BLOCK * rows * clusters, BLOCK * columns))
    a_map = k.tensor_map(A, (BLOCK // columns, BLOCK), swizzle=128)
    b_map = k.tensor_map(B, (BLOCK // rows, BLOCK), swizzle=128)
    sA = k.shared("sA", bf16, (stages, BLOCK, BLOCK), swizzle=128)
    sB = k.shared("sB", bf16, (stages, BLOCK, BLOCK), swizzle=128)
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    acc = k.fragment("acc", f32, (BLOCK, BLOCK), "warpgroup")
    open_cluster(k, (full, 1), (empty, CONSUMERS * (columns + rows - 1)))

    x, y = k.cluster_rank % columns, k.cluster_rank // columns
    row_mask = ((1 << columns) - 1) << (y * columns)
    column_mask = sum(1 << (columns * j) for j in range(rows)) << x
    a_slice = ds(x * (BLOCK // columns), BLOCK // columns)
    b_slice = ds(y * (BLOCK // rows), BLOCK // rows)

    with k.role("producer", CONSUMERS), k.elected(), k.loop(iterations, name="kt") as kt:
        stage = kt % stages
        k.mbarrier.wait(empty[stage], (kt // stages + 1) & 1, scope="cluster")
        k.mbarrier.arrive_expect_tx(full[stage], 2 * BLOCK * BLOCK * bf16.bytes)
        a_at = (k.cta_y * BLOCK + a_slice.start, kt * BLOCK)
        k.tma.load(a_map, sA[stage, a_slice], a_at, full[stage], multicast=row_mask)
        b_at = (k.cta_x * BLOCK + b_slice.start, kt * BLOCK)
        k.tma.load(b_map, sB[stage, b_slice], b_at, full[stage], multicast=column_mask)

    with k.role("consumer", range(CONSUMERS)):
        k.tile.fill(acc, 0.0)
        with k.loop(iterations, name="kt") as kt:
            stage = kt % stages
            k.mbarrier.wait(full[stage], (kt // stages) & 1, scope="cluster")
            multiply_tile(k, acc, sA[stage], sB[stage])
            k.wgmma.wait_group(0)
            with k.elected():
                for rank in sharers(x, y, columns, rows):
                    k.mbarrier.arrive(empty[stage].at(rank), scope="cluster")
        k.tile.store(C[ds(k.cta_y * BLOCK, BLOCK), ds(k.cta_x * BLOCK, BLOCK)], acc)
    k.cluster.sync()


def sharers(x: Expr, y: Expr, columns: int, rows: int) -> Iterator[Expr]:
    """Cluster ranks of the CTAs in row ``y`` or column ``x``, the CTA itself once."""
    for i in range(columns):
        yield y * columns + i
    for j in range(1, rows):
        yield (y + j) % rows * columns + x


CASES = (
    Case(matmul, {}, "cluster", "proved", note="2 x 2 cluster"),
    Case(matmul, {"rows": 1}, "cluster", "proved", note="2 x 1 cluster: B is not shared"),
    Case(matmul, {"columns": 1}, "cluster", "proved", note="1 x 2 cluster: A is not shared"),
    Case(matmul, {"stages": 1, "iterations": 3}, "cluster", "proved"),
    Case(matmul, {"clusters": 2, "iterations": 4}, "cluster", "proved"),
)
