"""Arrivals between CTAs: on the wrong CTA, too few of them, with too small a scope.

* `local_arrive` (B086): an arrival for the peer that stays at home.
* `uneven_pair` (B089): a pair of CTAs with different numbers of iterations shares its stages.
* `cta_scope` (B090): an arrival that publishes to its own CTA only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import f32, s32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.ir.expr import select
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cluster

ROWS, COLUMNS = 8, 32
TILE_BYTES = ROWS * COLUMNS * f32.bytes


def _copy(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"]}


def _sums(inputs: Arrays, *, long: int, short: int, **params: Any) -> Arrays:
    """Rank 0 adds ``long`` tiles, rank 1 ``short`` ones."""
    tiles = inputs["X"].reshape(long, ROWS, COLUMNS)
    return {"Y": np.concatenate([tiles.sum(axis=0), tiles[:short].sum(axis=0)])}


@kernel(warps=1, family="bugs", reference=_copy)
def local_arrive(k: Builder, *, fixed: bool = False) -> None:
    """facebookexperimental/triton #1096: a remote arrive lowered with the local address space.

    Rank 1 writes into rank 0 and arrives; the address is taken for one of its own CTA, so its own
    barrier counts the arrival and rank 0 waits for ever. (Reported on SM100.)

    Fix: ``mbarrier.arrive`` on ``shared::cluster``, with the address that ``mapa`` gives.
    """
    k.launch(grid=2, cluster=2)
    X, Y, word = k.tensor("X", s32, (1,)), k.tensor("Y", s32, (1,)), k.shared("word", s32, (1,))
    sent, value = k.mbarriers("sent"), k.var("value")
    open_cluster(k, (sent, 1))
    target = sent[0].at(0) if fixed else sent[0]

    with k.if_(k.cluster_rank.eq(1)), k.role("sender", 0), k.elected():
        k.mem.load(value, X[0])
        k.mem.store(word.view().at(0)[0], value)
        k.mbarrier.arrive(target, scope="cluster")  # BUG: its own barrier
    with k.if_(k.cluster_rank.eq(0)), k.role("receiver", 0):
        k.mbarrier.wait(sent, 0, scope="cluster")
        with k.elected():
            k.mem.load(value, word[0])
            k.mem.store(Y[0], value)
    k.cluster.sync()


@kernel(warps=2, family="bugs", reference=_sums)
def uneven_pair(
    k: Builder, *, long: int = 6, short: int = 2, stages: int = 2, fixed: bool = False
) -> None:
    """DeepGEMM #429: a cluster's CTAs belong to groups with different K.

    Each CTA loads one half of every tile and multicasts it, and waits until the consumers of both
    CTAs have released the stage. Rank 1 has fewer iterations: after its last one no CTA loads the
    second half for rank 0 or releases rank 0's stages.

    Fix: no multicast where the CTAs of a cluster can have different trip counts.
    """
    k.launch(grid=2, cluster=2)
    X = k.tensor("X", f32, (long * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (2 * ROWS, COLUMNS))
    half = ROWS // 2
    x_map = k.tensor_map(X, (half, COLUMNS))
    tile = k.shared("tile", f32, (stages, ROWS, COLUMNS))
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    acc, part = (k.fragment(name, f32, (ROWS, COLUMNS)) for name in ("acc", "part"))
    shared = not fixed or long == short
    open_cluster(k, (full, 1), (empty, 2 if shared else 1))

    trips = select(k.cluster_rank.eq(0), long, short)
    with k.role("producer", 1), k.elected(), k.loop(trips) as i:
        stage = i % stages
        k.mbarrier.wait(empty[stage], (i // stages + 1) & 1, scope="cluster")  # BUG: both CTAs'
        k.mbarrier.arrive_expect_tx(full[stage], TILE_BYTES)
        for part_of in (k.cluster_rank,) if shared else (0, 1):
            target = tile[stage, ds(part_of * half, half)]
            at = (i * ROWS + part_of * half, 0)
            k.tma.load(x_map, target, at, full[stage], multicast=0b11 if shared else None)
    with k.role("consumer", 0):
        k.tile.fill(acc, 0.0)
        with k.loop(trips) as i:
            k.mbarrier.wait(full[i % stages], (i // stages) & 1, scope="cluster")
            k.tile.load(part, tile[i % stages])
            k.tile.zip(acc, "add", acc, part)
            with k.elected():
                k.mbarrier.arrive(empty[i % stages], scope="cluster")
                if shared:
                    peer = 1 - k.cluster_rank
                    k.mbarrier.arrive(empty[i % stages].at(peer), scope="cluster")
        k.tile.store(Y[ds(k.cluster_rank * ROWS, ROWS)], acc)
    k.cluster.sync()


@kernel(warps=1, family="bugs", reference=_copy)
def cta_scope(k: Builder, *, fixed: bool = False) -> None:
    """Dao-AILab/quack #63, NVIDIA/cutlass #3324: a plain arrive releases to its own CTA only.

    Rank 1 gathers a tile with ``cp.async`` and arrives on rank 0's barrier; rank 0 reads the tile
    from rank 1's shared memory. The arrival's scope is ``.cta`` by default, and so is the wait's:
    by the text of PTX nothing orders the write before the read of another CTA. (Reported for a
    2-CTA MMA on SM100. Shipping code relies on the default scope: lenient checks accept it.)

    Fix: ``fence.acq_rel.cluster`` and a relaxed arrive at cluster scope; a wait at cluster scope.
    """
    k.launch(grid=2, cluster=2)
    X, Y = (k.tensor(name, f32, (ROWS, COLUMNS)) for name in ("X", "Y"))
    tile, ready = k.shared("tile", f32, (ROWS, COLUMNS)), k.mbarriers("ready")
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    open_cluster(k, (ready, 1))

    with k.if_(k.cluster_rank.eq(1)), k.role("gather", 0), k.elected():
        k.cp_async.copy(tile, X)
        k.cp_async.wait_all()
        if fixed:
            k.fence.memory("acq_rel", scope="cluster")
            k.mbarrier.arrive(ready[0].at(0), sem="relaxed", scope="cluster")
        else:
            k.mbarrier.arrive(ready[0].at(0))  # BUG: release.cta
    with k.if_(k.cluster_rank.eq(0)), k.role("mma", 0):
        k.mbarrier.wait(ready, 0, scope="cluster" if fixed else "cta")
        k.tile.load(part, tile.view().at(1))
        k.tile.store(Y, part)
    k.cluster.sync()


_DEADLOCK = frozenset({"deadlock"})

CASES = (
    Case(local_arrive, {}, "bugs", "failed", rule=_DEADLOCK, source="B086"),
    Case(local_arrive, {"fixed": True}, "bugs", "proved", source="B086"),
    Case(uneven_pair, {}, "bugs", "failed", rule=_DEADLOCK, source="B089"),
    Case(uneven_pair, {"fixed": True}, "bugs", "proved", source="B089"),
    Case(uneven_pair, {"short": 6}, "bugs", "proved", source="B089", note="equal trip counts"),
    Case(
        cta_scope, {}, "bugs", "failed", rule=frozenset({"race"}), strict="ptx", source="B090",
        note="the text of PTX",
    ),
    Case(cta_scope, {}, "bugs", "proved", source="B090", note="what shipping code relies on"),
    Case(cta_scope, {"fixed": True}, "bugs", "proved", strict="ptx", source="B090"),
)  # fmt: skip
