"""Correct kernels that look wrong: a checker must stay silent about them.

* `arrive_and_sync` (N1): a named barrier whose count is the participants, not the waiting threads.
* `dynamic_loop` (N5): a bulk copy and an mbarrier between two warps, in a loop of dynamic length.
* `read_after_wait` (N7): copied data is read after the wait, without a proxy fence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import f32, s32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.ir.expr import Operand
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

#: warps per side of the named barrier
WARPS = 4
ROWS = 16
HEIGHT = WARPS * ROWS
COLUMNS = 32
#: both sides take part in every round of a named barrier
PARTICIPANTS = 2 * 32 * WARPS
WRITTEN, READ = 1, 2


def _copy(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"].copy()}


def _scaled(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": 2 * inputs["X"]}


@kernel(warps=2 * WARPS, family="bugs", reference=_scaled)
def arrive_and_sync(k: Builder, *, tiles: int = 3) -> None:
    """deepseek-ai/FlashMLA #57 and #41, Dao-AILab/flash-attention #1370: 256 is right, 128 is not.

    128 threads ``bar.arrive`` in one branch, 128 others ``bar.sync`` in another one, both with a
    count of 256. The count is how many threads take part in a round, however they do; it is no
    increment, so "correcting" it to the 128 threads of either branch would break the hand-off.
    """
    X = k.tensor("X", f32, (HEIGHT * tiles, COLUMNS))
    Y = k.tensor("Y", f32, (HEIGHT * tiles, COLUMNS))
    shared = k.shared("shared", f32, (HEIGHT, COLUMNS))
    part = k.fragment("part", f32, (ROWS, COLUMNS))

    def rows(tile: Operand, first: int) -> Any:
        return ds(tile * HEIGHT + (k.warp_id - first) * ROWS, ROWS)

    with k.role("writer", range(WARPS)), k.loop(tiles) as i:
        k.tile.load(part, X[rows(i, 0), :])
        k.tile.zip(part, "mul", part, 2)
        with k.if_(i > 0):
            k.bar.sync(READ, PARTICIPANTS, aligned=False)
        k.tile.store(shared[rows(0, 0), :], part)
        k.bar.arrive(WRITTEN, PARTICIPANTS, aligned=False)

    with k.role("reader", range(WARPS, 2 * WARPS)), k.loop(tiles) as i:
        k.bar.sync(WRITTEN, PARTICIPANTS, aligned=False)
        # other rows than the warp of the same rank wrote
        k.tile.load(part, shared[ds((2 * WARPS - 1 - k.warp_id) * ROWS, ROWS), :])
        with k.if_(i + 1 < tiles):
            k.bar.arrive(READ, PARTICIPANTS, aligned=False)
        k.tile.store(Y[ds(i * HEIGHT + (2 * WARPS - 1 - k.warp_id) * ROWS, ROWS), :], part)


def _with_count(rng: np.random.Generator, *, rows: int, count: int, **params: Any) -> Arrays:
    return {
        "X": rng.integers(-3, 4, (rows, COLUMNS)).astype(np.float32),
        "count": np.array([count], dtype=np.int32),
        "Y": np.zeros((rows, COLUMNS), dtype=np.float32),
    }


def _first_rows(inputs: Arrays, **params: Any) -> Arrays:
    count = int(inputs["count"][0])
    return {"Y": np.concatenate([inputs["X"][:count], inputs["Y"][count:]])}


@kernel(warps=2, family="bugs", reference=_first_rows, inputs=_with_count)
def dynamic_loop(k: Builder, *, rows: int = 8, stages: int = 2, count: int = 5) -> None:
    """Dao-AILab/flash-attention AI/RACECHECK_TMA_HAZARD.md: a hazard that is none.

    One warp issues ``cp.async.bulk`` in a loop whose length it reads from memory, another warp
    waits for the mbarrier and reads the row. compute-sanitizer's racecheck reports a hazard between
    copy and read, which the mbarrier orders.
    """
    n = k.tensor("count", s32, (1,))
    X = k.tensor("X", f32, (rows, COLUMNS))
    Y = k.tensor("Y", f32, (rows, COLUMNS))
    buffer = k.shared("buffer", f32, (stages, COLUMNS))
    pipe = Pipeline(k, stages, consumers=32)
    trips = k.var("trips", dtype=s32)
    value = k.var("value", dtype=f32)

    with k.one_thread():
        pipe.init()
    k.sync_threads()
    k.mem.load(trips, n[0])

    with k.role("producer", 0), k.elected(), k.loop(trips) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(buffer[slot.stage].nbytes)
        k.bulk.load(buffer[slot.stage], X[i], slot.full)

    with k.role("consumer", 1), k.loop(trips) as i:
        slot = pipe[i]
        slot.wait()
        k.mem.load(value, buffer[slot.stage, k.lane_id])
        k.fence.proxy_async("shared::cta")  # the reads, before the next copy's writes
        slot.release()
        k.mem.store(Y[i, k.lane_id], value)


@kernel(warps=WARPS + 1, family="bugs", reference=_copy)
def read_after_wait(k: Builder, *, tiles: int = 2) -> None:
    """NVIDIA/Fuser #3136: no proxy fence between the wait for a TMA load and generic reads.

    The engine writes through the async proxy, threads read through the generic one. PTX gives the
    completion of the copy an implicit generic-async fence, so the wait on its mbarrier is enough.
    Every tile has a buffer of its own: nothing here is overwritten, which would need a fence.
    """
    X = k.tensor("X", f32, (HEIGHT * tiles, COLUMNS))
    Y = k.tensor("Y", f32, (HEIGHT * tiles, COLUMNS))
    x_map = k.tensor_map(X, (HEIGHT, COLUMNS))
    buffer = k.shared("buffer", f32, (tiles, HEIGHT, COLUMNS))
    full = k.mbarriers("full", tiles)
    part = k.fragment("part", f32, (ROWS, COLUMNS))

    with k.one_thread():
        for tile in range(tiles):
            k.mbarrier.init(full[tile], 1)
    k.sync_threads()

    with k.role("producer", WARPS), k.elected(), k.loop(tiles) as i:
        k.mbarrier.arrive_expect_tx(full[i], x_map.box_bytes)
        k.tma.load(x_map, buffer[i], (i * HEIGHT, 0), full[i])

    with k.role("consumer", range(WARPS)), k.loop(tiles) as i:
        k.mbarrier.wait(full[i], 0)
        k.tile.load(part, buffer[i][ds(k.warp_id * ROWS, ROWS), :])
        k.tile.store(Y[ds(i * HEIGHT + k.warp_id * ROWS, ROWS), :], part)


CASES = (
    Case(arrive_and_sync, {}, "bugs", "proved", source="N1"),
    Case(arrive_and_sync, {"tiles": 1}, "bugs", "proved", source="N1", note="a single round"),
    Case(dynamic_loop, {}, "bugs", "proved", source="N5"),
    Case(dynamic_loop, {"count": 0}, "bugs", "proved", source="N5", note="no trip at all"),
    Case(dynamic_loop, {}, "bugs", "proved", strict="ptx", source="N5"),
    Case(read_after_wait, {}, "bugs", "proved", source="N7"),
    Case(read_after_wait, {}, "bugs", "proved", strict="ptx", source="N7"),
)
