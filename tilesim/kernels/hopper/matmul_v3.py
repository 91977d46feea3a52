"""Step 3: producer and consumer warps.

A fifth warp does nothing but copy; the warpgroup does nothing but multiply. Per stage two mbarriers
replace the CTA barrier: ``full`` (count 1: the producer's ``arrive.expect_tx``, plus the bytes of
both copies) and ``empty`` (count 128: every consumer thread). The producer's first wait on each
``empty`` names the phase before the first one, parity 1, and passes at once.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import multiply_tile, product_f32, tiles
from tilesim.kernels.registry import Case

BLOCK_M, BLOCK_K = 64, 64
PRODUCER, CONSUMERS = 4, range(4)


@kernel(warps=5, family="hopper", reference=product_f32)
def matmul(
    k: Builder,
    *,
    m: int = 128,
    n: int = 128,
    depth: int = 384,
    stages: int = 3,
    block_n: int = 64,
) -> None:
    """C (m, n) f32 = A (m, depth) @ B (n, depth).T, warp-specialised."""
    iterations = tiles(depth, BLOCK_K, "depth")
    k.launch(grid=(tiles(n, block_n, "n"), tiles(m, BLOCK_M, "m")))
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", f32, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)

    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, block_n, BLOCK_K), swizzle=128)
    full = k.mbarriers("full", stages)
    empty = k.mbarriers("empty", stages)
    acc = k.fragment("acc", f32, (BLOCK_M, block_n), "warpgroup")
    row, column = k.cta_y * BLOCK_M, k.cta_x * block_n

    with k.one_thread():
        for s in range(stages):
            k.mbarrier.init(full[s], 1)
            k.mbarrier.init(empty[s], 32 * len(CONSUMERS))
    k.sync_threads()

    with k.role("producer", PRODUCER), k.elected(), k.loop(iterations, name="kt") as kt:
        stage = kt % stages
        k.mbarrier.wait(empty[stage], ((kt // stages) & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[stage], a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, sA[stage], (row, kt * BLOCK_K), full[stage])
        k.tma.load(b_map, sB[stage], (column, kt * BLOCK_K), full[stage])

    with k.role("consumer", CONSUMERS):
        k.tile.fill(acc, 0.0)
        with k.loop(iterations, name="kt") as kt:
            stage = kt % stages
            k.mbarrier.wait(full[stage], (kt // stages) & 1)
            multiply_tile(k, acc, sA[stage], sB[stage])
            k.wgmma.wait_group(0)
            k.mbarrier.arrive(empty[stage])
        k.tile.store(C[ds(row, BLOCK_M), ds(column, block_n)], acc)


CASES = (
    Case(matmul, {}, "hopper", "proved"),
    Case(matmul, {"stages": 1}, "hopper", "proved", note="one stage: no overlap, still correct"),
    Case(matmul, {"stages": 4, "depth": 128}, "hopper", "proved", note="fewer k tiles than stages"),
)
