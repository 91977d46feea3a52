"""Step 2: a software pipeline in one warpgroup.

Several stages: the first ones are filled before the main loop; each iteration multiplies one stage
and refills it for the k tile ``stages`` further on, so copies run while the tensor cores work.
The refill waits for a CTA barrier: *every* warp must have finished reading the stage, not only the
one that issues the copy.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.ir.expr import Operand
from tilesim.kernels.hopper.operands import multiply_tile, product_f32, tiles
from tilesim.kernels.registry import Case

BLOCK_M, BLOCK_K = 64, 64


@kernel(warps=4, family="hopper", reference=product_f32)
def matmul(
    k: Builder,
    *,
    m: int = 128,
    n: int = 128,
    depth: int = 384,
    stages: int = 3,
    block_n: int = 64,
) -> None:
    """C (m, n) f32 = A (m, depth) @ B (n, depth).T, preloading ``stages`` k tiles."""
    iterations = tiles(depth, BLOCK_K, "depth")
    k.launch(grid=(tiles(n, block_n, "n"), tiles(m, BLOCK_M, "m")))
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", f32, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)

    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, block_n, BLOCK_K), swizzle=128)
    loaded = k.mbarriers("loaded", stages)
    acc = k.fragment("acc", f32, (BLOCK_M, block_n), "warpgroup")
    row, column = k.cta_y * BLOCK_M, k.cta_x * block_n

    def load(kt: Operand, stage: Operand) -> None:
        k.mbarrier.arrive_expect_tx(loaded[stage], a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, sA[stage], (row, kt * BLOCK_K), loaded[stage])
        k.tma.load(b_map, sB[stage], (column, kt * BLOCK_K), loaded[stage])

    with k.one_thread():
        for s in range(stages):
            k.mbarrier.init(loaded[s], 1)
    k.sync_threads()

    with k.one_thread():
        for first in range(min(stages, iterations)):
            load(first, first)

    k.tile.fill(acc, 0.0)
    with k.loop(iterations, name="kt") as kt:
        stage = kt % stages
        k.mbarrier.wait(loaded[stage], (kt // stages) & 1)
        multiply_tile(k, acc, sA[stage], sB[stage])
        k.wgmma.wait_group(0)
        k.sync_threads()  # every warp has finished reading the stage
        with k.if_(kt + stages < iterations), k.one_thread():
            load(kt + stages, stage)

    k.tile.store(C[ds(row, BLOCK_M), ds(column, block_n)], acc)


CASES = (
    Case(matmul, {}, "hopper", "proved"),
    Case(matmul, {"stages": 4, "depth": 128}, "hopper", "proved", note="fewer k tiles than stages"),
)
