"""A TMA copy whose destination other threads still use: program order of one warp is not enough."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case

ROWS, COLUMNS = 64, 32
WARPS = 4
#: rows of one warp
SHARE = ROWS // WARPS


def _padded(inputs: Arrays, **params: Any) -> Arrays:
    x = inputs["X"]
    return {"Y": np.pad(x, ((0, ROWS - x.shape[0]), (0, 0)))}


@kernel(warps=WARPS, family="bugs", reference=_padded)
def zeroed_first(k: Builder, *, rows: int = 50, fixed: bool = False) -> None:
    """NVIDIA/Fuser #3105 (B071).

    Y (64, 32) = the ``rows`` rows of X and zeros. All threads clear the tile in shared memory, then
    one thread copies X over it. Nothing orders the zeros of the other threads before the copy, and
    no proxy fence those of its own warp.

    Fix: do not clear; the copy fills rows outside X with zeros.
    """
    X = k.tensor("X", f32, (rows, COLUMNS))
    Y = k.tensor("Y", f32, (ROWS, COLUMNS))
    x_map = k.tensor_map(X, (ROWS, COLUMNS))
    tile = k.shared("tile", f32, (ROWS, COLUMNS))
    full = k.mbarriers("full")
    x = k.fragment("x", f32, (SHARE, COLUMNS))

    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.role("warpgroup", range(WARPS)):
        mine = ds(k.warp_id * SHARE, SHARE)
        if not fixed:
            k.tile.fill(x, 0.0)
            k.tile.store(tile[mine, :], x)  # BUG: races with the copy that follows
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(full, x_map.box_bytes)
            k.tma.load(x_map, tile, (0, 0), full)
        k.mbarrier.wait(full, 0)
        k.tile.load(x, tile[mine, :])
        k.tile.store(Y[mine, :], x)


def _doubled(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"] * 2}


@kernel(warps=WARPS, family="bugs", reference=_doubled)
def refilled_by_first_warp(k: Builder, *, blocks: int = 3, fixed: bool = False) -> None:
    """jax-ml/jax 9a7f9f13ef, 58cce45843, acd84d123b (B073).

    Y = 2 X. The four warps of a warpgroup read a block, then warp 0 starts the copy of the next one
    into the same buffer without waiting for the other three to have read theirs.

    Fix: a barrier of the warpgroup before the copy.
    """
    X = k.tensor("X", f32, (blocks * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (blocks * ROWS, COLUMNS))
    x_map = k.tensor_map(X, (ROWS, COLUMNS), swizzle=128)
    buffer = k.shared("buffer", f32, (ROWS, COLUMNS), swizzle=128)
    full = k.mbarriers("full")
    x = k.fragment("x", f32, (SHARE, COLUMNS))

    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.role("warpgroup", range(WARPS)), k.loop(blocks) as i:
        if fixed:
            k.bar.sync(1, 32 * WARPS)
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(full, x_map.box_bytes)
            k.tma.load(x_map, buffer, (i * ROWS, 0), full)  # BUG: others may still read the buffer
        k.mbarrier.wait(full, i & 1)
        k.tile.load(x, buffer[ds(k.warp_id * SHARE, SHARE), :])
        k.tile.zip(x, "mul", x, 2.0)
        k.tile.store(Y[ds(i * ROWS + k.warp_id * SHARE, SHARE), :], x)


_RACE = frozenset({"race"})

CASES = (
    Case(zeroed_first, {}, "bugs", "failed", _RACE, source="B071"),
    Case(zeroed_first, {"fixed": True}, "bugs", "proved", source="B071"),
    Case(refilled_by_first_warp, {}, "bugs", "failed", _RACE, source="B073"),
    Case(
        refilled_by_first_warp,
        {"blocks": 1},
        "bugs",
        "proved",
        source="B073",
        note="a single block is never overwritten",
    ),
    Case(refilled_by_first_warp, {"fixed": True}, "bugs", "proved", source="B073"),
)
