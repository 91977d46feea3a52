"""Step 4: the same protocol behind `tilesim.lib.pipeline.Pipeline`.

Stage numbers and parities disappear from the kernel. One lane per consumer warp releases a stage
(count 4) instead of all 128 threads: ``wgmma.wait_group`` has already waited for the whole warp.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import multiply_tile, product_f32, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

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
    """C (m, n) f32 = A (m, depth) @ B (n, depth).T through a `Pipeline`."""
    iterations = tiles(depth, BLOCK_K, "depth")
    k.launch(grid=(tiles(n, block_n, "n"), tiles(m, BLOCK_M, "m")))
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", f32, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)

    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, block_n, BLOCK_K), swizzle=128)
    pipe = Pipeline(k, stages, consumers=len(CONSUMERS))
    acc = k.fragment("acc", f32, (BLOCK_M, block_n), "warpgroup")
    row, column = k.cta_y * BLOCK_M, k.cta_x * block_n

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with k.role("producer", PRODUCER), k.elected(), k.loop(iterations, name="kt") as kt:
        slot = pipe[kt]
        slot.acquire()
        slot.commit(a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, sA[slot.stage], (row, kt * BLOCK_K), slot.full)
        k.tma.load(b_map, sB[slot.stage], (column, kt * BLOCK_K), slot.full)

    with k.role("consumer", CONSUMERS):
        k.tile.fill(acc, 0.0)
        with k.loop(iterations, name="kt") as kt:
            slot = pipe[kt]
            slot.wait()
            multiply_tile(k, acc, sA[slot.stage], sB[slot.stage])
            k.wgmma.wait_group(0)
            with k.elected():
                slot.release()
        k.tile.store(C[ds(row, BLOCK_M), ds(column, block_n)], acc)


CASES = (
    Case(matmul, {}, "hopper", "proved"),
    Case(matmul, {"stages": 2, "m": 64, "n": 256, "block_n": 256}, "hopper", "proved"),
)
