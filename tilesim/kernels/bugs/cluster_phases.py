"""Phases between the CTAs of a cluster: a parity of the wrong loop, arrivals that run ahead.

* `loop_parity` (B014): the wait's parity comes from the enclosing loop.
* `rendezvous` (B016): one barrier for all stages, and a follower that is stages ahead.
* `synthetic_barrier` (B017): a cluster barrier made of one mbarrier per CTA.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import f32, s32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cluster

ROWS, COLUMNS = 8, 32
TILE_BYTES = ROWS * COLUMNS * f32.bytes
#: cluster ranks of the CTA that multiplies and of the one that only loads its half
LEADER, FOLLOWER = 0, 1


def _twice(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": np.concatenate([inputs["X"]] * 2)}


def _copy(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"]}


def _neighbours(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": np.roll(inputs["X"], -1, axis=0)}


@kernel(warps=1, family="bugs", reference=_twice)
def loop_parity(k: Builder, *, tiles: int = 4, fixed: bool = False) -> None:
    """tilelang #2927: the parity of a multicast's wait is that of the enclosing loop.

    Every tile has a barrier of its own, in its first phase, so every wait must be for parity 0. The
    lowering takes the loop's parity instead: of every second tile the wait asks for parity 1, which
    a fresh barrier passes at once, and the tile is read while the multicast is under way.

    Fix: the parity is the number of phases that *this barrier* has completed.
    """
    k.launch(grid=2, cluster=2)
    X = k.tensor("X", f32, (tiles * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (2 * tiles * ROWS, COLUMNS))
    x_map = k.tensor_map(X, (ROWS, COLUMNS))
    tile = k.shared("tile", f32, (tiles, ROWS, COLUMNS))
    loaded = k.mbarriers("loaded", tiles)
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cluster(k, (loaded, 1))

    with k.role("copy", 0):
        for s in range(tiles):
            with k.elected():
                k.mbarrier.arrive_expect_tx(loaded[s], TILE_BYTES)
                with k.if_(k.cluster_rank.eq(0)):
                    k.tma.load(x_map, tile[s], (s * ROWS, 0), loaded[s], multicast=0b11)
            k.mbarrier.wait(loaded[s], 0 if fixed else s & 1)  # BUG: parity of the loop
            k.tile.load(part, tile[s])
            k.tile.store(Y[ds((k.cluster_rank * tiles + s) * ROWS, ROWS)], part)
    k.cluster.sync()


@kernel(warps=1, family="bugs", reference=_copy)
def rendezvous(k: Builder, *, stages: int = 3, items: int = 5, fixed: bool = False) -> None:
    """facebookexperimental/triton #3472: one rendezvous barrier for all stages of a CTA pair.

    Leader and follower arrive on one barrier of the leader per item. With three stages the follower
    can be two items ahead: its arrivals of items 0 and 1 complete the first phase alone, its
    arrival of item 2 goes with the leader's first, and two phases have passed before the leader
    looks for the first: the parity it waits for is not the parity of the phase before any more.
    With one or two stages the follower cannot get that far. (Written for sm_90a: the leader reads
    the follower's shared memory and its arrival on ``empty`` stands for the MMA's commit.)

    Fix: a rendezvous barrier per stage.
    """
    k.launch(grid=2, cluster=2)
    X = k.tensor("X", f32, (items * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (items * ROWS, COLUMNS))
    half = k.shared("half", f32, (stages, ROWS, COLUMNS))
    ready, empty = k.mbarriers("ready", stages if fixed else 1), k.mbarriers("empty", stages)
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cluster(k, (ready, 2), (empty, 1))

    with k.if_(k.cluster_rank.eq(FOLLOWER)), k.role("follower", 0), k.loop(items) as i:
        k.mbarrier.wait(empty[i % stages], (i // stages + 1) & 1, scope="cluster")
        k.tile.load(part, X[ds(i * ROWS, ROWS)])
        k.tile.store(half[i % stages], part)
        with k.elected():
            k.mbarrier.arrive(ready[i % ready.count].at(LEADER), scope="cluster")
    with k.if_(k.cluster_rank.eq(LEADER)), k.role("leader", 0), k.loop(items) as i:
        with k.elected():
            k.mbarrier.arrive(ready[i % ready.count], scope="cluster")
        k.mbarrier.wait(ready[i % ready.count], (i // ready.count) & 1, scope="cluster")  # BUG: one
        k.tile.load(part, half[i % stages].at(FOLLOWER))
        k.tile.store(Y[ds(i * ROWS, ROWS)], part)
        with k.elected():
            k.mbarrier.arrive(empty[i % stages].at(FOLLOWER), scope="cluster")
    k.cluster.sync()


@kernel(warps=1, family="bugs", reference=_neighbours)
def synthetic_barrier(k: Builder, *, ctas: int = 2, rounds: int = 4, fixed: bool = False) -> None:
    """triton-lang/triton #10669: a cluster barrier made of one mbarrier per CTA.

    In every round a CTA arrives at all its peers and waits for their arrivals on its own mbarrier.
    A peer whose wait is over may arrive for the next round before a delayed CTA has looked: two
    phases pass, the delayed CTA waits for the third, and its peers for it.

    Fix: two barriers in alternation; no CTA can be two rounds ahead.
    """
    k.launch(grid=ctas, cluster=ctas)
    X, Y = k.tensor("X", s32, (ctas, rounds)), k.tensor("Y", s32, (ctas, rounds))
    word = k.shared("word", s32, (rounds,))
    met = k.mbarriers("met", 2 if fixed else 1)
    value = k.var("value")
    open_cluster(k, (met, ctas - 1))

    with k.role("member", 0), k.elected():
        for n in range(rounds):
            slot, parity = (n & 1, n >> 1 & 1) if fixed else (0, n & 1)
            k.mem.load(value, X[k.cluster_rank, n])
            k.mem.store(word[n], value)
            for step in range(1, ctas):
                k.mbarrier.arrive(met[slot].at((k.cluster_rank + step) % ctas), scope="cluster")
            k.mbarrier.wait(met[slot], parity, scope="cluster")  # BUG: one mbarrier per CTA
            k.mem.load(value, word.view().at((k.cluster_rank + 1) % ctas)[n])
            k.mem.store(Y[k.cluster_rank, n], value)
    k.cluster.sync()


_RACE, _DEADLOCK = frozenset({"race"}), frozenset({"deadlock"})

CASES = (
    Case(loop_parity, {}, "bugs", "failed", rule=_RACE, source="B014"),
    Case(loop_parity, {"fixed": True}, "bugs", "proved", source="B014"),
    Case(loop_parity, {"tiles": 1}, "bugs", "proved", source="B014", note="parity 0 only"),
    Case(rendezvous, {}, "bugs", "failed", rule=_DEADLOCK, source="B016", note="some schedules"),
    Case(rendezvous, {"fixed": True}, "bugs", "proved", source="B016"),
    Case(
        rendezvous, {"stages": 2}, "bugs", "exhausted", source="B016",
        note="no schedule deadlocks, but an arrival can land in an earlier phase",
    ),
    Case(rendezvous, {"stages": 1}, "bugs", "proved", source="B016", note="no CTA runs ahead"),
    Case(
        synthetic_barrier, {}, "bugs", "failed", rule=_DEADLOCK, source="B017",
        note="some schedules",
    ),
    Case(
        synthetic_barrier, {"ctas": 3}, "bugs", "failed", rule=_DEADLOCK, source="B017",
        note="some schedules",
    ),
    Case(synthetic_barrier, {"fixed": True}, "bugs", "proved", source="B017"),
    Case(synthetic_barrier, {"ctas": 3, "fixed": True}, "bugs", "proved", source="B017"),
)  # fmt: skip
