"""Arrivals that do not add up to the mbarrier's init count: one too many, one too few.

* `split_load` (B005): a load lowered into two copies announces itself twice.
* `short_pipeline` (B007): the prologue announces copies that no step of the pipeline waits for.
* `contiguous_load` (B008): the bytes are expected, but no thread arrives.
"""

from __future__ import annotations

from typing import Any

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.ir.expr import Operand, as_expr, minimum
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

WARPS = 4
ROWS = 16
#: columns of one copy: what a 128-byte swizzle allows for bf16
COLUMNS = 64


def _sum_of_halves(inputs: Arrays, **params: Any) -> Arrays:
    a, b = inputs["A"], inputs["B"]
    return {"Y": a[:, :COLUMNS] + a[:, COLUMNS:] + b}


def _copy(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"].copy()}


@kernel(warps=WARPS + 1, family="bugs", reference=_sum_of_halves)
def split_load(k: Builder, *, tiles: int = 4, stages: int = 2, fixed: bool = False) -> None:
    """facebookexperimental/triton #972: one load lowered into two, the arrival count kept.

    A and B share one *full* barrier, initialised with one arrival per load. With a 128-byte swizzle
    a row of A is wider than one box, so its load becomes two copies, each with an
    ``arrive.expect_tx`` of its own: three arrivals on a count of two. The third one either comes
    while the phase still waits for the bytes of A, and there is no arrival left to make, or it
    counts for the next phase, and B is read before it has been loaded.

    Fix: one arrival per load, with the sum of the bytes of its copies.
    """
    height = WARPS * ROWS
    A = k.tensor("A", bf16, (height * tiles, 2 * COLUMNS))
    B = k.tensor("B", bf16, (height * tiles, COLUMNS))
    Y = k.tensor("Y", bf16, (height * tiles, COLUMNS))
    a_map = k.tensor_map(A, (height, COLUMNS), swizzle=128)
    b_map = k.tensor_map(B, (height, COLUMNS), swizzle=128)
    low = k.shared("low", bf16, (stages, height, COLUMNS), swizzle=128)
    high = k.shared("high", bf16, (stages, height, COLUMNS), swizzle=128)
    right = k.shared("right", bf16, (stages, height, COLUMNS), swizzle=128)
    pipe = Pipeline(k, stages, producers=2, consumers=WARPS)
    total = k.fragment("total", bf16, (ROWS, COLUMNS))
    part = k.fragment("part", bf16, (ROWS, COLUMNS))

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with k.role("producer", WARPS), k.elected(), k.loop(tiles) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(2 * a_map.box_bytes if fixed else a_map.box_bytes)
        k.tma.load(a_map, low[slot.stage], (i * height, 0), slot.full)
        if not fixed:
            slot.commit(a_map.box_bytes)  # BUG: a second arrival for the same load
        k.tma.load(a_map, high[slot.stage], (i * height, COLUMNS), slot.full)
        slot.commit(b_map.box_bytes)
        k.tma.load(b_map, right[slot.stage], (i * height, 0), slot.full)

    with k.role("consumer", range(WARPS)), k.loop(tiles) as i:
        slot = pipe[i]
        rows = ds(k.warp_id * ROWS, ROWS)
        slot.wait()
        k.tile.load(total, low[slot.stage][rows, :])
        k.tile.load(part, high[slot.stage][rows, :])
        k.tile.zip(total, "add", total, part)
        k.tile.load(part, right[slot.stage][rows, :])
        k.tile.zip(total, "add", total, part)
        k.fence.proxy_async("shared::cta")  # the reads, before the next copies' writes
        with k.elected():
            slot.release()
        k.tile.store(Y[ds(i * height + k.warp_id * ROWS, ROWS), :], total)


@kernel(warps=1, family="bugs", reference=_copy)
def short_pipeline(
    k: Builder, *, steps: int = 1, stages: int = 2, invocations: int = 2, fixed: bool = False
) -> None:
    """jax-ml/jax 3f708b0535 (Mosaic GPU): a dynamic grid shorter than the pipeline is deep.

    The prologue starts one copy per stage without asking how many steps there are. With one step
    and two stages, no thread waits for the second stage's copy; when the pipeline is invoked again,
    the prologue arrives on that stage's barrier once more, in the same phase. "Arriving too many
    times on our barriers" ended in a launch failure.

    Fix: the prologue starts ``min(stages, steps)`` copies. With at least as many steps as stages
    the defect is hidden.
    """
    trips = k.scalar("steps", steps)
    X = k.tensor("X", f32, (invocations * steps * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (invocations * steps * ROWS, COLUMNS))
    x_map = k.tensor_map(X, (ROWS, COLUMNS))
    buffer = k.shared("buffer", f32, (stages, ROWS, COLUMNS))
    full = k.mbarriers("full", stages)
    tile = k.fragment("tile", f32, (ROWS, COLUMNS))

    with k.one_thread():
        for n in range(stages):
            k.mbarrier.init(full[n], 1)
    k.sync_threads()

    def start(invocation: Operand, step: Operand) -> None:
        stage = as_expr(step) % stages
        row = (as_expr(invocation) * trips + step) * ROWS
        k.mbarrier.arrive_expect_tx(full[stage], x_map.box_bytes)
        k.tma.load(x_map, buffer[stage], (row, 0), full[stage])

    with k.loop(invocations, name="invocation") as invocation:
        prologue = minimum(stages, trips) if fixed else stages  # BUG: steps may be fewer
        with k.elected(), k.loop(prologue, name="ahead") as ahead:
            start(invocation, ahead)
        with k.loop(trips, name="step") as step:
            stage = step % stages
            uses = (trips - stage + stages - 1) // stages  # of this stage, per invocation
            k.mbarrier.wait(full[stage], (invocation * uses + step // stages) & 1)
            k.tile.load(tile, buffer[stage])
            k.tile.store(Y[ds((invocation * trips + step) * ROWS, ROWS), :], tile)
            k.fence.proxy_async("shared::cta")  # the reads, before the next copy's writes
            k.sync_warp()
            with k.if_(step + stages < trips), k.elected():
                start(invocation, step + stages)


@kernel(warps=WARPS + 1, family="bugs", reference=_copy)
def contiguous_load(k: Builder, *, trips: int = 1, stages: int = 2, fixed: bool = False) -> None:
    """tile-ai/tilelang #2566: the 1-D bulk copy expects its bytes, but no thread arrives.

    With a trip count of one the copied region is contiguous, so the copy is lowered to a
    non-tensor bulk copy. That path drops the ``emit_arrive`` annotation: the barrier, initialised
    with one arrival, gets its bytes and never the arrival, and the consumers hang. Longer loops use
    the tensor-map path, which arrives.

    Fix: ``arrive.expect_tx`` on both paths.
    """
    height = WARPS * ROWS
    X = k.tensor("X", f32, (height * trips, COLUMNS))
    Y = k.tensor("Y", f32, (height * trips, COLUMNS))
    x_map = k.tensor_map(X, (height, COLUMNS))
    buffer = k.shared("buffer", f32, (stages, height, COLUMNS))
    pipe = Pipeline(k, stages, consumers=WARPS)
    tile = k.fragment("tile", f32, (ROWS, COLUMNS))

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with k.role("producer", WARPS), k.elected(), k.loop(trips) as i:
        slot = pipe[i]
        slot.acquire()
        if trips > 1:
            slot.commit(x_map.box_bytes)
            k.tma.load(x_map, buffer[slot.stage], (i * height, 0), slot.full)
        else:
            if fixed:
                slot.commit(x_map.box_bytes)
            else:
                k.mbarrier.expect_tx(slot.full, x_map.box_bytes)  # BUG: no arrival
            k.bulk.load(buffer[slot.stage], X[ds(i * height, height), :], slot.full)

    with k.role("consumer", range(WARPS)), k.loop(trips) as i:
        slot = pipe[i]
        slot.wait()
        k.tile.load(tile, buffer[slot.stage][ds(k.warp_id * ROWS, ROWS), :])
        k.fence.proxy_async("shared::cta")  # the reads, before the next copy's writes
        with k.elected():
            slot.release()
        k.tile.store(Y[ds(i * height + k.warp_id * ROWS, ROWS), :], tile)


_FIXED = {"fixed": True}

CASES = (
    Case(split_load, {}, "bugs", "failed", frozenset({"over-arrival"}), source="B005"),
    Case(split_load, _FIXED, "bugs", "proved", source="B005"),
    Case(
        short_pipeline, {}, "bugs", "failed", frozenset({"over-arrival", "race"}), source="B007",
        note="over-arrival while the first copy is in flight; two unordered copies once it landed",
    ),
    Case(
        short_pipeline, {"steps": 2}, "bugs", "proved", source="B007", note="hidden: steps = stages"
    ),
    Case(short_pipeline, {"steps": 5}, "bugs", "proved", source="B007", note="hidden"),
    Case(short_pipeline, _FIXED, "bugs", "proved", source="B007"),
    Case(short_pipeline, {**_FIXED, "steps": 5}, "bugs", "proved", source="B007"),
    Case(contiguous_load, {}, "bugs", "failed", frozenset({"deadlock"}), source="B008"),
    Case(
        contiguous_load, {"trips": 2}, "bugs", "proved", source="B008",
        note="hidden: the path through the tensor map arrives",
    ),
    Case(contiguous_load, _FIXED, "bugs", "proved", source="B008"),
)  # fmt: skip
