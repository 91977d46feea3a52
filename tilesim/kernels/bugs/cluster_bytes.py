"""Bytes that a barrier of a cluster expects and bytes that arrive.

* `leader_barrier` (B027): both CTAs' copies complete on the leader's barrier, which expects one's.
* `then_arm` (B029): the bytes of one branch are expected for both.
* `passive_receiver` (B116): the multicast mask is honoured on one path only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.ir.expr import as_expr, select
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cluster

ROWS, COLUMNS = 8, 32
TILE_BYTES = ROWS * COLUMNS * f32.bytes
LEADER, FOLLOWER = 0, 1


def _copy(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"]}


def _first_tile_twice(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": np.concatenate([inputs["X"]] * 2)}


@kernel(warps=2, family="bugs", reference=_copy)
def leader_barrier(k: Builder, *, items: int = 2, fixed: bool = False) -> None:
    """FlashAttention-4's 2-CTA notes, step 5: both CTAs' copies land on the leader's barrier.

    The leader expects the bytes of its own half, but the follower's copy completes on the same
    barrier: the phase ends with whichever half lands first, the other is read while it is copied,
    and its bytes stay behind in the next phase. (Written for sm_90a: the follower pushes its half
    into the leader's shared memory instead of a ``cta_group::2`` load.)

    Fix: expect the bytes of both CTAs.
    """
    k.launch(grid=2, cluster=2)
    X = k.tensor("X", f32, (2 * items * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (2 * items * ROWS, COLUMNS))
    x_map = k.tensor_map(X, (ROWS, COLUMNS))
    halves = k.shared("halves", f32, (items, 2, ROWS, COLUMNS))
    mine = k.shared("mine", f32, (items, ROWS, COLUMNS))
    full, loaded = k.mbarriers("full", items), k.mbarriers("loaded", items)
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cluster(k, (full, 1), (loaded, 1))

    with k.role("load", 0), k.elected():
        for i in range(items):
            row = (2 * i + k.cluster_rank) * ROWS
            with k.if_(k.cluster_rank.eq(LEADER)):
                k.mbarrier.arrive_expect_tx(full[i], (1 + fixed) * TILE_BYTES)  # BUG: one half
                k.tma.load(x_map, halves[i, 0], (row, 0), full[i])
            with k.if_(k.cluster_rank.eq(FOLLOWER)):
                k.mbarrier.arrive_expect_tx(loaded[i], TILE_BYTES)
                k.tma.load(x_map, mine[i], (row, 0), loaded[i])
                k.mbarrier.wait(loaded[i], 0)
                k.bulk.copy(halves[i, 1].at(LEADER), mine[i], full[i].at(LEADER))
    with k.if_(k.cluster_rank.eq(LEADER)), k.role("mma", 1):
        for i in range(items):
            k.mbarrier.wait(full[i], 0, scope="cluster")
            for half in range(2):
                k.tile.load(part, halves[i, half])
                k.tile.store(Y[ds((2 * i + half) * ROWS, ROWS)], part)
    k.cluster.sync()


@kernel(warps=2, family="bugs", reference=_copy)
def then_arm(k: Builder, *, equal: bool = False, fixed: bool = False) -> None:
    """tilelang #1908, review: the bytes of a branch are counted on its then-arm only.

    Rank 0 loads two tiles, rank 1 the last one. The expectation is injected once, before the
    branch, with the bytes of the then-arm: rank 1 waits for a tile that no CTA copies. If its arm
    copies as much (``equal``), the bug is hidden.

    Fix: expect per arm what that arm copies.
    """
    k.launch(grid=2, cluster=2)
    X, Y = (k.tensor(name, f32, (3 * ROWS, COLUMNS)) for name in ("X", "Y"))
    x_map = k.tensor_map(X, (ROWS, COLUMNS))
    tile, full = k.shared("tile", f32, (2, ROWS, COLUMNS)), k.mbarriers("full")
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cluster(k, (full, 1))

    first = k.cluster_rank.eq(0)
    taken = as_expr(2 * TILE_BYTES) if equal else select(first, 2 * TILE_BYTES, TILE_BYTES)
    with k.role("producer", 1), k.elected():
        k.mbarrier.arrive_expect_tx(full, taken if fixed else 2 * TILE_BYTES)  # BUG: then-arm
        with k.if_(first):
            k.tma.load(x_map, tile[0], (0, 0), full)
            k.tma.load(x_map, tile[1], (ROWS, 0), full)
        with k.else_():
            k.tma.load(x_map, tile[0], (2 * ROWS, 0), full)
            if equal:
                k.tma.load(x_map, tile[1], (2 * ROWS, 0), full)
    with k.role("consumer", 0):
        k.mbarrier.wait(full, 0)
        k.tile.load(part, tile[0])
        k.tile.store(Y[ds(2 * k.cluster_rank * ROWS, ROWS)], part)
        with k.if_(first):
            k.tile.load(part, tile[1])
            k.tile.store(Y[ROWS : 2 * ROWS], part)
    k.cluster.sync()


@kernel(warps=1, family="bugs", reference=_first_tile_twice)
def passive_receiver(k: Builder, *, passive: bool = True, fixed: bool = False) -> None:
    """tilelang #1908, review: only the tensor-map path honours the multicast mask.

    Both CTAs are in the mask, so rank 1 issues nothing and expects rank 0's bytes. The copy has no
    tensor map and takes the bulk path, which ignores the mask: only rank 0 receives the tile. If
    each CTA loads for itself (``passive`` off), the ignored mask costs bandwidth only.

    Fix: honour the mask on every path, or reject the copy (``k.tile.copy_cluster`` does both).
    """
    k.launch(grid=2, cluster=2)
    X = k.tensor("X", f32, (ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (2 * ROWS, COLUMNS))
    tile, loaded = k.shared("tile", f32, (ROWS, COLUMNS)), k.mbarriers("loaded")
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cluster(k, (loaded, 1))

    with k.role("copy", 0):
        with k.elected():
            k.mbarrier.arrive_expect_tx(loaded, TILE_BYTES)
            with k.if_(k.cluster_rank.eq(0) if passive else as_expr(1)):
                k.bulk.load(tile, X, loaded, multicast=0b11 if fixed else None)  # BUG: no mask
        k.mbarrier.wait(loaded, 0)
        k.tile.load(part, tile)
        k.tile.store(Y[ds(k.cluster_rank * ROWS, ROWS)], part)
    k.cluster.sync()


_RACE, _DEADLOCK = frozenset({"race"}), frozenset({"deadlock"})

CASES = (
    Case(leader_barrier, {}, "bugs", "failed", rule=_RACE, source="B027"),
    Case(leader_barrier, {"fixed": True}, "bugs", "proved", source="B027"),
    Case(then_arm, {}, "bugs", "failed", rule=_DEADLOCK, source="B029"),
    Case(then_arm, {"fixed": True}, "bugs", "proved", source="B029"),
    Case(then_arm, {"equal": True}, "bugs", "proved", source="B029", note="hidden: equal arms"),
    Case(then_arm, {"equal": True, "fixed": True}, "bugs", "proved", source="B029"),
    Case(passive_receiver, {}, "bugs", "failed", rule=_DEADLOCK, source="B116"),
    Case(passive_receiver, {"fixed": True}, "bugs", "proved", source="B116"),
    Case(
        passive_receiver, {"passive": False}, "bugs", "proved", source="B116",
        note="each CTA loads for itself",
    ),
)  # fmt: skip
