"""Phase parities that do not follow the number of uses of the barrier.

A stage's parity must be that of the number of times *this* stage has been used. Both kernels take
it from another count: one that restarts (`persistent`, B012), or the number of uses of all stages
(`pinned_slot`, B020).
"""

from __future__ import annotations

from typing import Any

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

WARPS = 4
ROWS = 16
HEIGHT = WARPS * ROWS
COLUMNS = 32


def _negated(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": -inputs["X"]}


@kernel(warps=WARPS + 1, family="bugs", reference=_negated)
def persistent(
    k: Builder, *, tiles: int = 3, k_tiles: int = 3, stages: int = 2, fixed: bool = False
) -> None:
    """tile-ai/tilelang PR #2674: a persistent kernel whose phase restarts with every output tile.

    Producer and consumer number the k tiles of every output tile from 0. The stages' barriers go
    on counting: after three k tiles on two stages, stage 1 has been used once, and its next use is
    not number 0. The consumer's wait passes on the phase it has seen already: it works on the data
    of the tile before and releases a stage that is not loaded yet, which the producer then
    overwrites while its copies are in flight. Right only if the trip count is a multiple of
    ``2 * stages``, or if there is one tile per CTA.

    Fix: a number that runs on, ``tile * k_tiles + kt``.
    """
    items = tiles * k_tiles
    X = k.tensor("X", f32, (HEIGHT * items, COLUMNS))
    Y = k.tensor("Y", f32, (HEIGHT * items, COLUMNS))
    x_map = k.tensor_map(X, (HEIGHT, COLUMNS))
    buffer = k.shared("buffer", f32, (stages, HEIGHT, COLUMNS))
    pipe = Pipeline(k, stages, consumers=WARPS)
    part = k.fragment("part", f32, (ROWS, COLUMNS))

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with (
        k.role("producer", WARPS),
        k.elected(),
        k.loop(tiles, name="tile") as tile,
        k.loop(k_tiles, name="kt") as kt,
    ):
        item = tile * k_tiles + kt
        slot = pipe[item if fixed else kt]
        slot.acquire()  # BUG: the parity of a number that restarts
        slot.commit(x_map.box_bytes)
        k.tma.load(x_map, buffer[slot.stage], (item * HEIGHT, 0), slot.full)

    with (
        k.role("consumer", range(WARPS)),
        k.loop(tiles, name="tile") as tile,
        k.loop(k_tiles, name="kt") as kt,
    ):
        item = tile * k_tiles + kt
        slot = pipe[item if fixed else kt]
        slot.wait()  # BUG: the parity of a number that restarts
        k.tile.load(part, buffer[slot.stage][ds(k.warp_id * ROWS, ROWS), :])
        k.fence.proxy_async("shared::cta")  # the reads, before the next copy's writes
        with k.elected():
            slot.release()
        k.tile.map(part, "neg", part)
        k.tile.store(Y[ds(item * HEIGHT + k.warp_id * ROWS, ROWS), :], part)


@kernel(warps=WARPS + 1, family="bugs", reference=_negated)
def pinned_slot(
    k: Builder, *, tiles: int = 2, subtiles: int = 3, stages: int = 2, fixed: bool = False
) -> None:
    """facebookexperimental/triton #1864: the slot from the subtile, the phase from a running count.

    The epilogue stages each output tile in ``subtiles`` parts; the storing warp drains them. The
    slot is ``subtile % stages``, the parity that of ``count // stages`` for a count over all tiles.
    With three subtiles on two stages, slot 0 is used twice per tile and slot 1 once, so slots and
    parities part ways with the second tile, and the two roles wait for each other.

    Fix: slot *and* phase from the same count.
    """
    items = tiles * subtiles
    X = k.tensor("X", f32, (HEIGHT * items, COLUMNS))
    Y = k.tensor("Y", f32, (HEIGHT * items, COLUMNS))
    y_map = k.tensor_map(Y, (HEIGHT, COLUMNS))
    staging = k.shared("staging", f32, (stages, HEIGHT, COLUMNS))
    full = k.mbarriers("full", stages)
    empty = k.mbarriers("empty", stages)
    part = k.fragment("part", f32, (ROWS, COLUMNS))

    with k.one_thread():
        for stage in range(stages):
            k.mbarrier.init(full[stage], WARPS)
            k.mbarrier.init(empty[stage], 1)
    k.sync_threads()

    with (
        k.role("epilogue", range(WARPS)),
        k.loop(tiles, name="tile") as tile,
        k.loop(subtiles, name="subtile") as subtile,
    ):
        count = tile * subtiles + subtile
        slot = (count if fixed else subtile) % stages
        k.tile.load(part, X[ds(count * HEIGHT + k.warp_id * ROWS, ROWS), :])
        k.tile.map(part, "neg", part)
        k.mbarrier.wait(empty[slot], ((count // stages) & 1) ^ 1)  # BUG: slot from another count
        k.tile.store(staging[slot][ds(k.warp_id * ROWS, ROWS), :], part)
        k.fence.proxy_async("shared::cta")  # the writes, before the store reads them
        with k.elected():
            k.mbarrier.arrive(full[slot])

    with (
        k.role("store", WARPS),
        k.elected(),
        k.loop(tiles, name="tile") as tile,
        k.loop(subtiles, name="subtile") as subtile,
    ):
        count = tile * subtiles + subtile
        slot = (count if fixed else subtile) % stages
        k.mbarrier.wait(full[slot], (count // stages) & 1)  # BUG: slot from another count
        k.tma.store(y_map, staging[slot], (count * HEIGHT, 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0, read=True)
        k.mbarrier.arrive(empty[slot])


_FIXED = {"fixed": True}

CASES = (
    Case(persistent, {}, "bugs", "failed", frozenset({"race"}), source="B012"),
    Case(
        persistent, {"tiles": 2}, "bugs", "failed", frozenset({"async-at-exit"}), source="B012",
        note="stale data is read in good order; the last copy is never waited for",
    ),
    Case(
        persistent, {"k_tiles": 4}, "bugs", "proved", source="B012",
        note="hidden: the trip count is a multiple of 2 * stages",
    ),
    Case(persistent, {"tiles": 1}, "bugs", "proved", source="B012", note="hidden: one tile"),
    Case(persistent, _FIXED, "bugs", "proved", source="B012"),
    Case(persistent, {**_FIXED, "k_tiles": 4}, "bugs", "proved", source="B012"),
    Case(pinned_slot, {}, "bugs", "failed", frozenset({"deadlock"}), source="B020"),
    Case(
        pinned_slot, {"subtiles": 4}, "bugs", "proved", source="B020",
        note="hidden: the stages divide the subtiles",
    ),
    Case(pinned_slot, _FIXED, "bugs", "proved", source="B020"),
)  # fmt: skip
