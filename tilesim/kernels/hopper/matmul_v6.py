"""Step 6: persistent CTAs.

Each CTA computes several output tiles, ``ctas`` apart. The producer runs ahead into the next tile
while the consumers store the last one. Two things must survive the change of tile:

* The pipeline's item number counts on. Restarting it at 0 for every tile would be right only if the
  k tiles of an output tile filled all stages a whole number of times, twice over.
* The staging buffer of the result is written again, so the thread that stores waits until its last
  TMA store has read the buffer, and a named barrier tells the other warps.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
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
from tilesim.kernels.hopper.operands import product_bf16, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cta
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.schedule import Striding


@kernel(warps=WARPS * (1 + CONSUMER_GROUPS), family="hopper", reference=product_bf16)
def matmul(
    k: Builder,
    *,
    m: int = 384,
    n: int = 128,
    depth: int = 192,
    stages: int = 4,
    ctas: int = 2,
    block_n: int = 64,
) -> None:
    """C (m, n) bf16 = A (m, depth) @ B (n, depth).T by ``ctas`` persistent CTAs."""
    iterations = tiles(depth, BLOCK_K, "depth")
    across = tiles(n, block_n, "n")
    output_tiles = across * tiles(m, BLOCK_M, "m")
    k.launch(grid=ctas, registers=168)
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", bf16, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (ROWS, block_n))

    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, block_n, BLOCK_K), swizzle=128)
    sC = k.shared("sC", bf16, (CONSUMER_GROUPS, ROWS, block_n))
    pipe = Pipeline(k, stages, consumers=WARPS * CONSUMER_GROUPS)
    acc = k.fragment("acc", f32, (ROWS, block_n), "warpgroup")
    result = k.fragment("result", bf16, (ROWS, block_n), "warpgroup")

    schedule = Striding(k, output_tiles, ctas)
    open_cta(k, pipe)

    with k.role("producer", range(WARPS)):
        k.setmaxnreg("dec", PRODUCER_REGISTERS)
        with k.one_thread(0), schedule.each() as tile:
            row, column = tile // across * BLOCK_M, tile % across * block_n
            with k.loop(iterations, name="kt") as kt:
                slot = pipe[schedule.turn(tile) * iterations + kt]
                slot.acquire()
                slot.commit(a_map.box_bytes + b_map.box_bytes)
                k.tma.load(a_map, sA[slot.stage], (row, kt * BLOCK_K), slot.full)
                k.tma.load(b_map, sB[slot.stage], (column, kt * BLOCK_K), slot.full)

    for group in range(CONSUMER_GROUPS):
        with k.warpgroup(1 + group, f"consumer{group}") as consumer:
            k.setmaxnreg("inc", CONSUMER_REGISTERS)
            with schedule.each() as tile:
                row, column = tile // across * BLOCK_M, tile % across * block_n
                items = (schedule.turn(tile) * iterations, iterations)
                accumulate(k, pipe, acc, sA, sB, ROWS * group, items)
                k.tile.cast(result, acc)
                with consumer.one_thread():
                    k.bulk.wait_group(0, read=True)
                consumer.sync()  # the buffer is free
                k.tile.store(sC[group], result)
                k.fence.proxy_async("shared::cta")
                consumer.sync()  # the buffer is complete
                with consumer.one_thread():
                    k.tma.store(c_map, sC[group], (row + group * ROWS, column))
                    k.bulk.commit_group()
            with consumer.one_thread():
                k.bulk.wait_group(0, read=True)


CASES = (
    Case(matmul, {}, "hopper", "proved"),
    Case(matmul, {"stages": 2, "ctas": 1, "m": 256, "n": 64}, "hopper", "proved"),
    Case(matmul, {"ctas": 8}, "hopper", "proved", note="more CTAs than output tiles"),
)
