"""Step 4: persistent CTAs, epilogue warps, two accumulators, rasterised tiles.

Warp 0 copies, warp 1 multiplies, warps 4 to 7 write results, all over several output tiles. Each
role keeps its place in a ring in a `Cursor`: a stage and a phase that it advances. While the
epilogue warps read one accumulator, the MMA warp fills the other; a second ring hands them over:

* *full*: `tcgen05.commit` after the last k tile of an output tile;
* *empty*: all 128 threads of the epilogue, after `tcgen05.wait::ld`. Before that wait the loads may
  still read the columns the next mma overwrites.

At strictness ``ptx`` both directions need the tcgen05 fences, because neither hand-over is between
operations of one pipeline of one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.expr import Expr
from tilesim.kernels.hopper.operands import product_bf16, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.schedule import Striding, rasterised
from tilesim.lib.tensor_memory import TensorMemory, multiply_tile

BLOCK_M, BLOCK_K = 128, 64
ACCUMULATORS = 2
TMA_WARP, MMA_WARP, OWNER_WARP, EPILOGUE = 0, 1, 2, range(4, 8)


@kernel(target="sm_100a", warps=8, family="blackwell", reference=product_bf16)
def matmul(
    k: Builder,
    *,
    m: int = 384,
    n: int = 192,
    depth: int = 192,
    stages: int = 4,
    ctas: int = 2,
    block_n: int = 64,
    strip: int = 2,
) -> None:
    """C (m, n) bf16 = A (m, depth) @ B (n, depth).T by ``ctas`` persistent CTAs.

    ``strip``: columns of output tiles that are computed together, see `rasterised`.
    """
    iterations = tiles(depth, BLOCK_K, "depth")
    down, across = tiles(m, BLOCK_M, "m"), tiles(n, block_n, "n")
    k.launch(grid=ctas)
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", bf16, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (BLOCK_M, block_n))
    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, block_n, BLOCK_K), swizzle=128)
    sC = k.shared("sC", bf16, (BLOCK_M, block_n))
    pipe = Pipeline(k, stages)
    results = Pipeline(k, ACCUMULATORS, name="acc", consumers=32 * len(EPILOGUE))
    schedule = Striding(k, down * across, ctas)
    memory = TensorMemory(k, ACCUMULATORS * block_n, warp=OWNER_WARP)
    acc = k.fragment("acc", f32, (BLOCK_M, block_n), "warpgroup")
    rounded = k.fragment("rounded", bf16, (BLOCK_M, block_n), "warpgroup")

    @contextmanager
    def every_tile() -> Iterator[tuple[Expr, Expr]]:
        with schedule.each() as tile:
            down_, across_ = rasterised(tile, down, across, strip)
            yield down_ * BLOCK_M, across_ * block_n

    with memory.allocated(pipe, results, publish=False) as address:
        with k.role("tma", TMA_WARP), k.elected():
            filling = pipe.cursor("tma")
            with every_tile() as (row, column), k.loop(iterations, name="kt") as kt:
                slot = filling.slot
                slot.acquire()
                slot.commit(a_map.box_bytes + b_map.box_bytes)
                k.tma.load(a_map, sA[slot.stage], (row, kt * BLOCK_K), slot.full)
                k.tma.load(b_map, sB[slot.stage], (column, kt * BLOCK_K), slot.full)
                filling.advance()
            filling.drain()

        with k.role("mma", MMA_WARP), k.elected():
            reading, writing = pipe.cursor("mma"), results.cursor("mma")
            with every_tile():
                result = writing.slot
                d = k.tcgen05.tensor(
                    address + result.stage * block_n, f32, (BLOCK_M, block_n), name="d"
                )
                result.acquire()
                k.tcgen05.fence_after_thread_sync()
                with k.loop(iterations, name="kt") as kt:
                    slot = reading.slot
                    slot.wait()
                    multiply_tile(k, d, sA[slot.stage], sB[slot.stage], first=kt.eq(0))
                    k.tcgen05.commit(slot.empty)
                    reading.advance()
                k.tcgen05.commit(result.full)
                writing.advance()

        with k.role("epilogue", EPILOGUE) as epilogue:
            finished = results.cursor("epilogue")
            with every_tile() as (row, column):
                result = finished.slot
                d = k.tcgen05.tensor(
                    address + result.stage * block_n, f32, (BLOCK_M, block_n), name="d"
                )
                result.wait()
                k.tcgen05.fence_after_thread_sync()
                k.tcgen05.ld(acc, d)
                k.tcgen05.wait_ld()
                k.tcgen05.fence_before_thread_sync()
                result.release()
                finished.advance()
                k.tile.cast(rounded, acc)
                with epilogue.one_thread():
                    k.bulk.wait_group(0, read=True)
                epilogue.sync()  # sC is free
                k.tile.store(sC, rounded)
                k.fence.proxy_async("shared::cta")
                epilogue.sync()  # sC is complete
                with epilogue.one_thread():
                    k.tma.store(c_map, sC, (row, column))
                    k.bulk.commit_group()
            with epilogue.one_thread():
                k.bulk.wait_group(0, read=True)


CASES = tuple(
    Case(matmul, params, "blackwell", "proved")
    for params in ({}, {"stages": 2, "ctas": 1, "m": 256, "n": 64}, {"ctas": 12})
)
