"""Step 5: two consumer warpgroups, deferred release, register reallocation, TMA store.

* Two warpgroups compute 64 rows each of a 128 x block_n tile; they share the stages.
* A consumer keeps one wgmma group in flight: after issuing k tile ``i`` it waits until at most one
  group is unfinished, so tile ``i - 1`` has been read and *its* stage is released.
* The producer warpgroup returns registers (``setmaxnreg.dec``), the consumers take them (``inc``):
  40 + 2 * 232 = 3 * 168, what the launch gave. All four warps of a warpgroup take part, although
  only one thread of the producer warpgroup copies.
* The result leaves through shared memory and a TMA store: every writing thread executes
  ``fence.proxy.async``, a named barrier per warpgroup collects them, then one thread stores. It
  waits until the store has read the shared memory before the CTA may end.

Deferred release needs two stages: with one, tile ``i`` could only arrive after the release of tile
``i - 1``, which waits for tile ``i``.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.errors import UsageError
from tilesim.ir.declarations import Fragment, SharedTensor
from tilesim.ir.expr import Operand
from tilesim.ir.ops.mbarrier import Scope
from tilesim.kernels.hopper.operands import multiply_tile, product_bf16
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cta
from tilesim.lib.pipeline import Pipeline

BLOCK_M, BLOCK_K = 128, 64
#: rows of one wgmma, hence of one consumer warpgroup
ROWS = 64
CONSUMER_GROUPS = 2
WARPS = 4
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232


@kernel(warps=WARPS * (1 + CONSUMER_GROUPS), family="hopper", reference=product_bf16)
def matmul(
    k: Builder, *, stages: int = 4, iterations: int = 6, ctas: int = 2, block_n: int = 128
) -> None:
    """C (128 ctas, block_n) bf16 = A @ B.T with K = 64 iterations; CTA i computes 128 rows."""
    if min(stages, iterations, ctas) < 1:
        raise UsageError(f"{stages=}, {iterations=} and {ctas=} must be at least 1")
    k.launch(grid=ctas, registers=168)
    A = k.tensor("A", bf16, (BLOCK_M * ctas, BLOCK_K * iterations))
    B = k.tensor("B", bf16, (block_n, BLOCK_K * iterations))
    C = k.tensor("C", bf16, (BLOCK_M * ctas, block_n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (ROWS, block_n))

    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, block_n, BLOCK_K), swizzle=128)
    sC = k.shared("sC", bf16, (CONSUMER_GROUPS, ROWS, block_n))
    pipe = Pipeline(k, stages, consumers=WARPS * CONSUMER_GROUPS)
    acc = k.fragment("acc", f32, (ROWS, block_n), "warpgroup")
    result = k.fragment("result", bf16, (ROWS, block_n), "warpgroup")

    open_cta(k, pipe)

    with k.role("producer", range(WARPS)):
        k.setmaxnreg("dec", PRODUCER_REGISTERS)
        with k.one_thread(0), k.loop(iterations, name="kt") as kt:
            slot = pipe[kt]
            slot.acquire()
            slot.commit(a_map.box_bytes + b_map.box_bytes)
            k.tma.load(a_map, sA[slot.stage], (k.cta_x * BLOCK_M, kt * BLOCK_K), slot.full)
            k.tma.load(b_map, sB[slot.stage], (0, kt * BLOCK_K), slot.full)

    for group in range(CONSUMER_GROUPS):
        with k.warpgroup(1 + group, f"consumer{group}") as consumer:
            k.setmaxnreg("inc", CONSUMER_REGISTERS)
            accumulate(k, pipe, acc, sA, sB, ROWS * group, (0, iterations))
            k.tile.cast(result, acc)
            k.tile.store(sC[group], result)
            k.fence.proxy_async("shared::cta")
            consumer.sync()
            with consumer.one_thread():
                k.tma.store(c_map, sC[group], (k.cta_x * BLOCK_M + group * ROWS, 0))
                k.bulk.commit_group()
                k.bulk.wait_group(0, read=True)


def accumulate(
    k: Builder,
    pipe: Pipeline,
    acc: Fragment,
    sA: SharedTensor,
    sB: SharedTensor,
    row: int,
    items: tuple[Operand, int],
    scope: Scope = "cta",
) -> None:
    """One consumer's loop over its 64 rows of every A tile, with one wgmma group in flight.

    ``items`` are the number of the first pipeline item and how many there are, ``scope`` that of
    the waits: of the cluster if other CTAs load parts of the tiles.
    """
    first, count = items

    def issue(item: Operand) -> None:
        slot = pipe[item]
        slot.wait(scope=scope)
        multiply_tile(k, acc, sA[slot.stage, row : row + ROWS], sB[slot.stage])

    k.tile.fill(acc, 0.0)
    issue(first)
    with k.loop(1, count, name="kt") as kt:
        issue(first + kt)
        k.wgmma.wait_group(1)  # the item before has been multiplied
        with k.elected():
            pipe[first + kt - 1].release()
    k.wgmma.wait_group(0)
    with k.elected():
        pipe[first + (count - 1)].release()


CASES = (
    Case(matmul, {}, "hopper", "proved"),
    Case(matmul, {"stages": 2, "iterations": 5, "ctas": 1}, "hopper", "proved"),
    Case(matmul, {"iterations": 1, "ctas": 1}, "hopper", "proved", note="a single k tile"),
    Case(matmul, {"stages": 1, "iterations": 1, "ctas": 1}, "hopper", "proved"),
)
