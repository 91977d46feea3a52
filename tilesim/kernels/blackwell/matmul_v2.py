"""Step 2: several stages, still one thread.

The copies run ahead of the mma by as many k tiles as there are stages, less the one being
multiplied. `tcgen05.commit` releases a stage: its arrive on the *empty* barrier comes when the mma
that read the stage are complete. An ordinary arrive after the mma would come too early, the
instruction only starts the operation.

Because one thread does both, it waits for a stage to become empty just when it could issue the next
mma. The next step gives the two jobs to two warps.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.expr import Operand
from tilesim.kernels.hopper.operands import product_f32, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.tensor_memory import TensorMemory, multiply_tile

BLOCK_M, BLOCK_K = 128, 64


@kernel(target="sm_100a", warps=4, family="blackwell", reference=product_f32)
def matmul(
    k: Builder, *, m: int = 256, n: int = 128, depth: int = 384, stages: int = 3, block_n: int = 64
) -> None:
    """C (m, n) f32 = A (m, depth) @ B (n, depth).T, a CTA per output tile."""
    iterations = tiles(depth, BLOCK_K, "depth")
    ahead = min(stages - 1, iterations)
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
    pipe, done = Pipeline(k, stages), k.mbarriers("done")
    memory = TensorMemory(k, 64)
    acc = k.fragment("acc", f32, (BLOCK_M, block_n), "warpgroup")
    row, column = k.cta_y * BLOCK_M, k.cta_x * block_n

    def fill(item: Operand) -> None:
        slot = pipe[item]
        slot.acquire()
        slot.commit(a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, sA[slot.stage], (row, item * BLOCK_K), slot.full)
        k.tma.load(b_map, sB[slot.stage], (column, item * BLOCK_K), slot.full)

    with memory.allocated(pipe, (done, 1)) as address:
        d = k.tcgen05.tensor(address, f32, (BLOCK_M, block_n), name="d")

        with k.one_thread():
            with k.loop(ahead, name="kt") as kt:
                fill(kt)
            with k.loop(iterations, name="kt") as kt:
                with k.if_(kt + ahead < iterations):
                    fill(kt + ahead)
                slot = pipe[kt]
                slot.wait()
                multiply_tile(k, d, sA[slot.stage], sB[slot.stage], first=kt.eq(0))
                k.tcgen05.commit(slot.empty)
            k.tcgen05.commit(done)
            pipe.drain(iterations)  # a commit arrives later, and must find its barrier

        k.mbarrier.wait(done, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d)
        k.tcgen05.wait_ld()
        k.tile.store(sC, acc)
        k.fence.proxy_async("shared::cta")
    with k.one_thread():  # freeing has a barrier of all threads: sC is complete
        k.tma.store(c_map, sC, (row, column))
        k.bulk.commit_group()
        k.bulk.wait_group(0, read=True)


CASES = tuple(
    Case(matmul, params, "blackwell", "proved")
    for params in ({}, {"stages": 2, "depth": 64}, {"stages": 4, "block_n": 32})
)
