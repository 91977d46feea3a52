"""Step 3: persistent with cluster launch control.

The grid has a CTA per output tile. A CTA that is running takes over tiles whose CTAs have not been
launched: warp 3 asks with `clusterlaunchcontrol.try_cancel`, and every role reads the answer. An
answer is a slot of a third pipeline:

* *full*: the 16 bytes of the response; the scheduler arms the barrier;
* *empty*: one arrival per reading warp, after it has read the slot. The next response is written
  through the async proxy, hence the proxy fence between the reads and the arrival.

After an answer that nothing was cancelled all roles leave, and the scheduler asks no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tilesim.ir.builder import Builder
from tilesim.ir.expr import Expr, Var
from tilesim.ir.kernel import kernel
from tilesim.ir.memory import SharedTensor
from tilesim.ir.types import bf16, f32, u32
from tilesim.kernels.blackwell.tensor_memory import TensorMemory, multiply_tile
from tilesim.kernels.hopper.operands import product_f32, tiles
from tilesim.kernels.pipeline import Pipeline
from tilesim.kernels.registry import Case

BLOCK_M, BLOCK_K = 128, 64
ACCUMULATORS = ANSWERS = 2
TMA_WARP, MMA_WARP, OWNER_WARP, SCHEDULER_WARP, EPILOGUE = 0, 1, 2, 3, range(4, 8)
#: warps that read an answer: TMA, MMA, scheduler, epilogue
READERS = 3 + len(EPILOGUE)


@dataclass(frozen=True)
class Tiles:
    """The output tiles of a CTA: its own first, then those of the answers."""

    k: Builder
    answers: Pipeline
    response: SharedTensor

    @contextmanager
    def each(self, role: str) -> Iterator[tuple[Expr, Expr, Expr]]:
        """A loop over the tiles: (how many came before, x, y), and then the next answer."""
        k = self.k
        count, more = k.var(f"{role}_count", 0), k.var(f"{role}_more", 1)
        x, y = k.var(f"{role}_x", k.cta_x), k.var(f"{role}_y", k.cta_y)
        with k.while_(more.ne(0)):
            yield count, x, y
            self._next(count, more, x, y)

    def _next(self, count: Var, more: Var, x: Var, y: Var) -> None:
        k, answer = self.k, self.answers[count]
        answer.wait()
        k.clc.query_is_canceled(more, self.response[answer.stage])
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(x, self.response[answer.stage], "x")
            k.clc.query_first_ctaid(y, self.response[answer.stage], "y")
        k.fence.proxy_async("shared::cta")
        with k.elected():
            answer.release()
        k.assign(count, count + 1)


@kernel(target="sm_100a", warps=8, family="blackwell", reference=product_f32)
def matmul(
    k: Builder, *, m: int = 384, n: int = 128, depth: int = 192, stages: int = 4, block_n: int = 64
) -> None:
    """C (m, n) f32 = A (m, depth) @ B (n, depth).T, a CTA per output tile or fewer."""
    iterations = tiles(depth, BLOCK_K, "depth")
    k.launch(grid=(tiles(n, block_n, "n"), tiles(m, BLOCK_M, "m")))
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", f32, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (BLOCK_M, block_n))
    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, block_n, BLOCK_K), swizzle=128)
    sC = k.shared("sC", f32, (BLOCK_M, block_n))
    pipe = Pipeline(k, stages)
    results = Pipeline(k, ACCUMULATORS, name="acc", consumers=32 * len(EPILOGUE))
    answers = Pipeline(k, ANSWERS, name="answer", consumers=READERS)
    schedule = Tiles(k, answers, k.shared("response", u32, (ANSWERS, 4)))
    memory = TensorMemory(k, ACCUMULATORS * block_n, warp=OWNER_WARP)
    acc = k.fragment("acc", f32, (BLOCK_M, block_n), "warpgroup")

    memory.allocate()
    with k.one_thread():
        pipe.init()
        results.init()
        answers.init()
        k.fence.mbarrier_init()
    k.sync_threads()
    address = memory.address()

    asking = schedule.each("scheduler")
    with k.role("scheduler", SCHEDULER_WARP), asking as (count, _, _), k.elected():
        answer = answers[count]
        answer.acquire()
        answer.commit(16)
        k.clc.try_cancel(schedule.response[answer.stage], answer.full)

    filling = schedule.each("tma")
    with (
        k.role("tma", TMA_WARP),
        filling as (count, x, y),
        k.elected(),
        k.loop(iterations, name="kt") as kt,
    ):
        slot = pipe[count * iterations + kt]
        slot.acquire()
        slot.commit(a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, sA[slot.stage], (y * BLOCK_M, kt * BLOCK_K), slot.full)
        k.tma.load(b_map, sB[slot.stage], (x * block_n, kt * BLOCK_K), slot.full)

    with k.role("mma", MMA_WARP), schedule.each("mma") as (count, _, _):
        result = results[count]
        d = k.tcgen05.tensor(address + result.stage * block_n, f32, (BLOCK_M, block_n), name="d")
        with k.elected():
            result.acquire()
            k.tcgen05.fence_after_thread_sync()
            with k.loop(iterations, name="kt") as kt:
                slot = pipe[count * iterations + kt]
                slot.wait()
                multiply_tile(k, d, sA[slot.stage], sB[slot.stage], first=kt.eq(0))
                k.tcgen05.commit(slot.empty)
            k.tcgen05.commit(result.full)

    with k.role("epilogue", EPILOGUE):
        with schedule.each("epilogue") as (count, x, y):
            result = results[count]
            d = k.tcgen05.tensor(
                address + result.stage * block_n, f32, (BLOCK_M, block_n), name="d"
            )
            result.wait()
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.ld(acc, d)
            k.tcgen05.wait_ld()
            k.tcgen05.fence_before_thread_sync()
            result.release()
            with k.one_thread(EPILOGUE[0]):
                k.bulk.wait_group(0, read=True)
            k.bar.sync(1, 32 * len(EPILOGUE), aligned=False)  # sC is free
            k.tile.store(sC, acc)
            k.fence.proxy_async("shared::cta")
            k.bar.sync(1, 32 * len(EPILOGUE), aligned=False)  # sC is complete
            with k.one_thread(EPILOGUE[0]):
                k.tma.store(c_map, sC, (y * BLOCK_M, x * block_n))
                k.bulk.commit_group()
        with k.one_thread(EPILOGUE[0]):
            k.bulk.wait_group(0, read=True)
    memory.free()


CASES = tuple(
    Case(matmul, params, "blackwell", "proved")
    for params in ({}, {"m": 128, "n": 64}, {"stages": 2, "m": 512})
)
