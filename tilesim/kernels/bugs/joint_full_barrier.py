"""Not bugs: several copies that complete on one *full* barrier.

Both kernels compute Y = A + B with one barrier per stage for both operands. They look as if the
barrier were used twice per phase, and tools have reported them.
"""

from __future__ import annotations

from typing import Any

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import Mbarriers
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

STAGES = 2
WARPS = 4
THREADS = 32 * WARPS


def _sum(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["A"] + inputs["B"]}


@kernel(warps=WARPS + 1, family="bugs", reference=_sum)
def one_expect(k: Builder, *, tiles: int = 5) -> None:
    """triton-lang/triton #9046 (N9): correct, ConSan reported an over-arrival.

    One ``arrive.expect_tx`` announces the bytes of both copies; a copy completes bytes, it does not
    arrive.
    """
    A, B, Y = (k.tensor(name, f32, (tiles, THREADS)) for name in ("A", "B", "Y"))
    sA = k.shared("sA", f32, (STAGES, THREADS))
    sB = k.shared("sB", f32, (STAGES, THREADS))
    pipe = Pipeline(k, STAGES, consumers=THREADS)
    a, b = k.var("a", dtype=f32), k.var("b", dtype=f32)

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with k.role("consumer", range(WARPS)), k.loop(tiles) as i:
        slot = pipe[i]
        slot.wait()
        k.mem.load(a, sA[slot.stage, k.thread_id])
        k.mem.load(b, sB[slot.stage, k.thread_id])
        slot.release()
        k.mem.store(Y[i, k.thread_id], a + b)

    with k.role("producer", WARPS), k.elected(), k.loop(tiles) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(sA[0].nbytes + sB[0].nbytes)
        k.bulk.load(sA[slot.stage], A[i], slot.full)
        k.bulk.load(sB[slot.stage], B[i], slot.full)


@kernel(warps=WARPS + 2, family="bugs", reference=_sum)
def two_async_warps(k: Builder, *, tiles: int = 5) -> None:
    """NVIDIA/Fuser #5076 (N11, variant b of B024): correct, the author suspected the sharing.

    Each of two warps copies one operand and announces its own bytes. The barrier counts both
    arrivals, so no phase completes before both have announced theirs.
    """
    A, B, Y = (k.tensor(name, f32, (tiles, THREADS)) for name in ("A", "B", "Y"))
    sA = k.shared("sA", f32, (STAGES, THREADS))
    sB = k.shared("sB", f32, (STAGES, THREADS))
    full: Mbarriers = k.mbarriers("full", STAGES)
    empty: Mbarriers = k.mbarriers("empty", STAGES)
    a, b = k.var("a", dtype=f32), k.var("b", dtype=f32)

    with k.one_thread():
        for s in range(STAGES):
            k.mbarrier.init(full[s], 2)
            k.mbarrier.init(empty[s], THREADS)
    k.sync_threads()

    with k.role("compute", range(WARPS)):
        for s in range(STAGES):
            k.mbarrier.arrive(empty[s])
        with k.loop(tiles) as i:
            stage = i % STAGES
            k.mbarrier.wait(full[stage], (i // STAGES) & 1)
            k.mem.load(a, sA[stage, k.thread_id])
            k.mem.load(b, sB[stage, k.thread_id])
            k.mbarrier.arrive(empty[stage])
            k.mem.store(Y[i, k.thread_id], a + b)

    for name, warp, source, target in (("load A", WARPS, A, sA), ("load B", WARPS + 1, B, sB)):
        with k.role(name, warp), k.elected(), k.loop(tiles) as i:
            stage = i % STAGES
            k.mbarrier.wait(empty[stage], (i // STAGES) & 1)
            k.mbarrier.arrive_expect_tx(full[stage], target[0].nbytes)
            k.bulk.load(target[stage], source[i], full[stage])


CASES = (
    Case(one_expect, {}, "bugs", "proved", source="N9", note="one expect covers two copies"),
    Case(two_async_warps, {}, "bugs", "proved", source="N11", note="count 2, two async warps"),
)
