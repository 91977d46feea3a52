"""Step 5: persistent with cluster launch control, and a pipelined epilogue.

The grid has a CTA per output tile. A CTA that is running takes over tiles whose CTAs have not been
launched: the scheduler warp asks with `clusterlaunchcontrol.try_cancel`, and every role reads the
answer. An answer is a slot of a third ring:

* *full*: the 16 bytes of the response; the scheduler arms the barrier;
* *empty*: one arrival per reading warp, after it has read the slot. The next response is written
  through the async proxy, hence the proxy fence between the reads and the arrival.

After an answer that nothing was cancelled all roles leave, and the scheduler asks no more.

The epilogue writes an accumulator in chunks through two buffers in turn: while one is being stored,
the next chunk is loaded and rounded. The last chunk's load gives the accumulator back.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32, u32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.kernels.hopper.operands import product_bf16, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.schedule import Stealing, rasterised
from tilesim.lib.tensor_memory import TensorMemory, multiply_tile

BLOCK_M, BLOCK_K = 128, 64
ACCUMULATORS = ANSWERS = BUFFERS = 2
TMA_WARP, MMA_WARP, OWNER_WARP, SCHEDULER_WARP, EPILOGUE = 0, 1, 2, 3, range(4, 8)
#: warps that read an answer: TMA, MMA, scheduler, epilogue
READERS = 3 + len(EPILOGUE)


@kernel(target="sm_100a", warps=8, family="blackwell", reference=product_bf16)
def matmul(
    k: Builder,
    *,
    m: int = 384,
    n: int = 192,
    depth: int = 192,
    stages: int = 4,
    block_n: int = 64,
    chunk: int = 32,
    strip: int = 2,
) -> None:
    """C (m, n) bf16 = A (m, depth) @ B (n, depth).T, a CTA per output tile or fewer.

    ``chunk``: columns that the epilogue writes at once; ``strip``: see `rasterised`.
    """
    iterations = tiles(depth, BLOCK_K, "depth")
    chunks = BUFFERS * tiles(block_n, BUFFERS * chunk, "block_n")
    down, across = tiles(m, BLOCK_M, "m"), tiles(n, block_n, "n")
    k.launch(grid=down * across)
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", bf16, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (BLOCK_M, chunk))
    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, block_n, BLOCK_K), swizzle=128)
    sC = k.shared("sC", bf16, (BUFFERS, BLOCK_M, chunk))
    pipe = Pipeline(k, stages)
    results = Pipeline(k, ACCUMULATORS, name="acc", consumers=32 * len(EPILOGUE))
    answers = Pipeline(k, ANSWERS, name="answer", consumers=READERS)
    schedule = Stealing(k, answers, k.shared("response", u32, (ANSWERS, 4)))
    memory = TensorMemory(k, ACCUMULATORS * block_n, warp=OWNER_WARP)
    acc = k.fragment("acc", f32, (BLOCK_M, chunk), "warpgroup")
    rounded = k.fragment("rounded", bf16, (BLOCK_M, chunk), "warpgroup")

    with memory.allocated(pipe, results, answers, publish=False) as address:
        with k.role("scheduler", SCHEDULER_WARP):
            schedule.ask("scheduler")

        with k.role("tma", TMA_WARP):
            filling = pipe.cursor("tma")
            with schedule.each("tma") as tile, k.elected(), k.loop(iterations, name="kt") as kt:
                row, column = rasterised(tile, down, across, strip)
                slot = filling.slot
                slot.acquire()
                slot.commit(a_map.box_bytes + b_map.box_bytes)
                k.tma.load(a_map, sA[slot.stage], (row * BLOCK_M, kt * BLOCK_K), slot.full)
                k.tma.load(b_map, sB[slot.stage], (column * block_n, kt * BLOCK_K), slot.full)
                filling.advance()
            with k.elected():
                filling.drain()

        with k.role("mma", MMA_WARP):
            reading, writing = pipe.cursor("mma"), results.cursor("mma")
            with schedule.each("mma"), k.elected():
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
            with schedule.each("epilogue") as tile:
                row, column = rasterised(tile, down, across, strip)
                result = finished.slot
                d = k.tcgen05.tensor(
                    address + result.stage * block_n, f32, (BLOCK_M, block_n), name="d"
                )
                result.wait()
                k.tcgen05.fence_after_thread_sync()
                for number in range(chunks):
                    first, buffer = number * chunk, sC[number % BUFFERS]
                    k.tcgen05.ld(acc, d[:, first : first + chunk])
                    k.tcgen05.wait_ld()
                    if number == chunks - 1:
                        k.tcgen05.fence_before_thread_sync()
                        result.release()
                    k.tile.cast(rounded, acc)
                    with epilogue.one_thread():
                        k.bulk.wait_group(BUFFERS - 1, read=True)
                    epilogue.sync()  # the buffer is free
                    k.tile.store(buffer, rounded)
                    k.fence.proxy_async("shared::cta")
                    epilogue.sync()  # the buffer is complete
                    with epilogue.one_thread():
                        k.tma.store(c_map, buffer, (row * BLOCK_M, column * block_n + first))
                        k.bulk.commit_group()
                finished.advance()
            with epilogue.one_thread():
                k.bulk.wait_group(0, read=True)


CASES = tuple(
    Case(matmul, params, "blackwell", "proved")
    for params in ({}, {"m": 128, "n": 64}, {"stages": 2, "m": 768, "chunk": 16})
)
