"""CTAs of a cluster that have not begun, have ended or do not exist when a peer touches them.

* `last_arrive` (B081): the last arrival on a peer's barrier is the last instruction of a CTA.
* `early_return` (B082): a CTA returns while its peer still reads its shared memory.
* `unfenced_init` (B085): barriers that peers use before their initialisation is visible.
* `mask_outside` (B088): a multicast mask with a CTA that is not in the cluster.
"""

from __future__ import annotations

from typing import Any, Literal

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


def _twice(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": np.concatenate([inputs["X"]] * 2)}


def _sums(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": np.repeat(inputs["X"].sum(keepdims=True), 2)}


def _copy(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"]}


@kernel(warps=2, family="bugs", reference=_twice)
def last_arrive(k: Builder, *, tiles: int = 3, fixed: bool = False) -> None:
    """sglang #32907, #32954: the last thing a CTA does is to arrive on its peer's barrier.

    Rank 0 multicasts; the consumers of both CTAs release the stage on its *empty* barrier. Rank 0
    waits for every release but that of the last tile and may have exited when rank 1's arrives: the
    GPU reports that the target block of the cluster is not present. (Seen on SM100; the protocol is
    that of any SM90 multicast pipeline.)

    Fix: a cluster barrier at the end (relaxed is enough).
    """
    k.launch(grid=2, cluster=2)
    X = k.tensor("X", f32, (tiles * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (2 * tiles * ROWS, COLUMNS))
    x_map = k.tensor_map(X, (ROWS, COLUMNS))
    tile = k.shared("tile", f32, (ROWS, COLUMNS))
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cluster(k, (full, 1), (empty, 2))

    with k.role("producer", 1), k.elected(), k.loop(tiles) as i, k.if_(k.cluster_rank.eq(0)):
        k.mbarrier.wait(empty, (i + 1) & 1, scope="cluster")
        k.tma.load(x_map, tile, (i * ROWS, 0), full, multicast=0b11)
    with k.role("consumer", 0), k.loop(tiles) as i:
        with k.elected():
            k.mbarrier.arrive_expect_tx(full, TILE_BYTES)
        k.mbarrier.wait(full, i & 1)
        k.tile.load(part, tile)
        k.tile.store(Y[ds((k.cluster_rank * tiles + i) * ROWS, ROWS)], part)
        with k.elected():
            k.mbarrier.arrive(empty[0].at(0), scope="cluster")  # BUG: nothing follows it
    if fixed:
        k.cluster.arrive(sem="relaxed")
        k.cluster.wait()


@kernel(warps=1, family="bugs", reference=_sums)
def early_return(k: Builder, *, fixed: bool = False) -> None:
    """triton-lang/triton #9413, #10656, #11731: a CTA returns while its peers read its memory.

    A sum across the cluster: every CTA leaves its value in its shared memory, all meet, and each
    reads the peer's. Nothing keeps a CTA from returning before the peer has read.

    Fix: a second cluster barrier before the return.
    """
    k.launch(grid=2, cluster=2)
    X, Y = k.tensor("X", s32, (2,)), k.tensor("Y", s32, (2,))
    own = k.shared("own", s32, (1,))
    mine, theirs = k.var("mine"), k.var("theirs")

    with k.role("sum", 0):
        with k.elected():
            k.mem.load(mine, X[k.cluster_rank])
            k.mem.store(own[0], mine)
        k.cluster.sync()
        with k.elected():
            k.mem.load(theirs, own.view().at(1 - k.cluster_rank)[0])  # BUG: the peer may be gone
            k.mem.store(Y[k.cluster_rank], mine + theirs)
    if fixed:
        k.cluster.sync()


@kernel(warps=1, family="bugs", reference=_copy)
def unfenced_init(k: Builder, *, missing: Literal["fence", "barrier", "nothing"] = "fence") -> None:
    """NVIDIA/cutlass #2030, tilelang #1121: initialised barriers that peers cannot see yet.

    Rank 1 copies a word and arrives on a barrier of rank 0. The initialisation is a write by one
    thread of rank 0; without ``fence.mbarrier_init`` the relaxed cluster barrier does not publish
    it (``fence``), and without the cluster barrier rank 1 may arrive before it, or before rank 0
    has started at all (``barrier``).

    Fix: the fence in the initialising thread, then the cluster barrier (``nothing``).
    """
    k.launch(grid=2, cluster=2)
    X, Y, word = k.tensor("X", s32, (1,)), k.tensor("Y", s32, (1,)), k.shared("word", s32, (1,))
    sent, value = k.mbarriers("sent"), k.var("value")
    with k.one_thread():
        k.mbarrier.init(sent, 1)  # BUG: not yet visible to the peer
        if missing != "fence":
            k.fence.mbarrier_init()
    if missing != "barrier":
        k.cluster.arrive(sem="relaxed")
        k.cluster.wait()
    with k.if_(k.cluster_rank.eq(1)), k.role("sender", 0), k.elected():
        k.mem.load(value, X[0])
        k.mem.store(word.view().at(0)[0], value)
        k.mbarrier.arrive(sent[0].at(0), scope="cluster")
    with k.if_(k.cluster_rank.eq(0)), k.role("receiver", 0):
        k.mbarrier.wait(sent, 0, scope="cluster")
        with k.elected():
            k.mem.load(value, word[0])
            k.mem.store(Y[0], value)
    k.cluster.sync()


@kernel(warps=1, family="bugs", reference=_twice)
def mask_outside(k: Builder, *, ctas: int = 2, fixed: bool = False) -> None:
    """NVIDIA/cutlass #3658: the multicast mask names a CTA outside the cluster.

    The mask is the CTAs along one direction of the cluster, and a peer in the other direction; the
    cluster has one CTA in that direction, so the peer is the first CTA that does not exist.
    (Reported for the commit of an SM100 MMA; a TMA load's mask fails in the same way.)

    Fix: intersect the mask with the cluster.
    """
    k.launch(grid=ctas, cluster=ctas)
    X = k.tensor("X", f32, (ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (ctas * ROWS, COLUMNS))
    x_map = k.tensor_map(X, (ROWS, COLUMNS))
    tile, loaded = k.shared("tile", f32, (ROWS, COLUMNS)), k.mbarriers("loaded")
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cluster(k, (loaded, 1))

    cluster = (1 << ctas) - 1
    mask = cluster | 1 << (k.cluster_rank + ctas)
    with k.role("copy", 0):
        with k.elected():
            k.mbarrier.arrive_expect_tx(loaded, TILE_BYTES)
            with k.if_(k.cluster_rank.eq(0)):
                named = mask & cluster if fixed else mask
                k.tma.load(x_map, tile, (0, 0), loaded, multicast=named)  # BUG: names rank `ctas`
        k.mbarrier.wait(loaded, 0)
        k.tile.load(part, tile)
        k.tile.store(Y[ds(k.cluster_rank * ROWS, ROWS)], part)
    k.cluster.sync()


_GONE = frozenset({"peer-exit"})
_INIT = frozenset({"init-visibility", "uninitialised-barrier"})

CASES = (
    Case(last_arrive, {}, "bugs", "failed", rule=_GONE, source="B081"),
    Case(last_arrive, {"fixed": True}, "bugs", "proved", source="B081"),
    Case(early_return, {}, "bugs", "failed", rule=_GONE, source="B082"),
    Case(early_return, {"fixed": True}, "bugs", "proved", source="B082"),
    Case(unfenced_init, {}, "bugs", "failed", rule=_INIT, source="B085"),
    Case(unfenced_init, {"missing": "barrier"}, "bugs", "failed", rule=_INIT, source="B085"),
    Case(unfenced_init, {"missing": "nothing"}, "bugs", "proved", source="B085"),
    Case(
        mask_outside, {}, "bugs", "failed", rule=frozenset({"out-of-bounds"}), source="B088",
        note="the CTA does not exist",
    ),
    Case(mask_outside, {"fixed": True}, "bugs", "proved", source="B088"),
)  # fmt: skip
