"""Step 0: everything in sequence.

One warpgroup computes a 64 x block_n tile of C. Per k tile, one thread copies A's tile and waits
for it, copies B's tile and waits for it; a CTA barrier tells the other threads; the warpgroup
multiplies, waits, and a second CTA barrier allows the tiles to be overwritten. Copy engine and
tensor cores never work at the same time.

One mbarrier serves both copies, so every k tile uses two of its phases: parity 0 for A, 1 for B.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import multiply_tile, product_f32, tiles
from tilesim.kernels.registry import Case

BLOCK_M, BLOCK_K = 64, 64


@kernel(warps=4, family="hopper", reference=product_f32)
def matmul(k: Builder, *, m: int = 128, n: int = 128, depth: int = 256, block_n: int = 64) -> None:
    """C (m, n) f32 = A (m, depth) @ B (n, depth).T, synchronously."""
    k.launch(grid=(tiles(n, block_n, "n"), tiles(m, BLOCK_M, "m")))
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", f32, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)

    sA = k.shared("sA", bf16, (BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (block_n, BLOCK_K), swizzle=128)
    loaded = k.mbarriers("loaded")
    acc = k.fragment("acc", f32, (BLOCK_M, block_n), "warpgroup")
    row, column = k.cta_y * BLOCK_M, k.cta_x * block_n

    with k.one_thread():
        k.mbarrier.init(loaded, 1)
    k.sync_threads()

    k.tile.fill(acc, 0.0)
    with k.loop(tiles(depth, BLOCK_K, "depth"), name="kt") as kt:
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(loaded, a_map.box_bytes)
            k.tma.load(a_map, sA, (row, kt * BLOCK_K), loaded)
            k.mbarrier.wait(loaded, 0)
            k.mbarrier.arrive_expect_tx(loaded, b_map.box_bytes)
            k.tma.load(b_map, sB, (column, kt * BLOCK_K), loaded)
            k.mbarrier.wait(loaded, 1)
        k.sync_threads()  # both tiles are there
        multiply_tile(k, acc, sA.view(), sB.view())
        k.wgmma.wait_group(0)
        k.sync_threads()  # every warp has finished reading them

    k.tile.store(C[ds(row, BLOCK_M), ds(column, block_n)], acc)


CASES = (
    Case(matmul, {}, "hopper", "proved"),
    Case(matmul, {"m": 64, "n": 64, "depth": 64}, "hopper", "proved", note="a single k tile"),
)
