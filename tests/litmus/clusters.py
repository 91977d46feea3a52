"""LITMUS section D: cluster barrier, peers' shared memory, remote stores, dependent launch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np

from tilesim import Builder, ds, s32, u32

from .notation import begin, global_words, words
from .table import Defect, completes, defect, fails, row

GRID = np.arange(128).reshape(4, 32)


@contextmanager
def cta(k: Builder, rank: int) -> Iterator[None]:
    """``CTAn``: the one warp of a CTA of the cluster."""
    with k.if_(k.cluster_rank.eq(rank)), k.role(f"CTA{rank}", 0):
        yield


def pair(k: Builder, *, grid: int = 2, cluster: int = 2) -> None:
    """Two CTAs of one warp each in one cluster."""
    k.launch(warps=1, grid=grid, cluster=cluster)


@row(
    "LD01",
    fails(defect("peer-start", CTA0="k.mem.load(r, x.view().at(1)[0])"), also=("race",)),
    prefix=False,
)
@row("LD01-prefix", completes(out=1), prefix=True)
def peer_not_started(k: Builder, *, prefix: bool) -> None:
    pair(k)
    x, out, r = words(k, "x"), global_words(k, "out"), k.var("r")
    with k.elected():
        k.mem.store(x[0], 1)
    if prefix:
        k.cluster.sync()
    with cta(k, 0), k.elected():
        k.mem.load(r, x.view().at(1)[0])
        k.mem.store(out[0], r)
    k.cluster.sync()


@row(
    "LD02",
    fails(defect("peer-exit", CTA0="k.mem.load(r, x.view().at(1)[0])")),
    trailing=False,
)
@row("LD02-trailing", completes(out=1), trailing=True)
def early_exit(k: Builder, *, trailing: bool) -> None:
    pair(k)
    x, out, r = words(k, "x"), global_words(k, "out"), k.var("r")
    with k.elected():
        k.mem.store(x[0], 1)
    k.cluster.sync()
    with cta(k, 0), k.elected():
        k.mem.load(r, x.view().at(1)[0])
        k.mem.store(out[0], r)
    if trailing:
        k.cluster.sync()


@row(
    "LD03",
    fails(defect("race", CTA0="k.mem.store(x[0], 1)", CTA1="k.mem.load(r, x.view().at(0)[0])")),
    fence=False,
)
@row("LD03-fence", completes(out=1), fence=True)
def relaxed_cluster_arrive(k: Builder, *, fence: bool) -> None:
    pair(k)
    x, out, r = words(k, "x"), global_words(k, "out"), k.var("r")
    with cta(k, 0):
        with k.elected():
            k.mem.store(x[0], 1)
        if fence:
            k.fence.memory("acq_rel", scope="cluster")
        k.cluster.arrive(sem="relaxed")
    with cta(k, 1):
        k.cluster.arrive()
    k.cluster.wait()
    with cta(k, 1), k.elected():
        k.mem.load(r, x.view().at(0)[0])
        k.mem.store(out[0], r)
    k.cluster.sync()


@row(
    "LD04",
    fails(
        defect("named-barrier", CTA0=("k.cluster.arrive()  # once", "k.cluster.arrive()  # twice"))
    ),
)
def double_arrive(k: Builder) -> None:
    pair(k)
    with cta(k, 0):
        k.cluster.arrive()  # once
        k.cluster.arrive()  # twice
    with cta(k, 1):
        k.cluster.arrive()
        k.cluster.wait()


@row(
    "LD05",
    fails(defect("deadlock", CTA0="k.cluster.wait()", CTA1="k.mbarrier.wait(b, 0)")),
    leaves=False,
)
@row("LD05-exited", completes(), leaves=True)
def absent_or_exited(k: Builder, *, leaves: bool) -> None:
    pair(k)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with cta(k, 0):
        k.cluster.arrive()
        k.cluster.wait()
        if not leaves:
            with k.elected():
                k.mbarrier.arrive(b[0].at(1))
    if not leaves:
        with cta(k, 1):
            k.mbarrier.wait(b, 0)


@row("LD06", completes())
def remote_init_idiom(k: Builder) -> None:
    pair(k)
    b = k.mbarriers("b")
    with k.elected():
        k.mbarrier.init(b, 1)
        k.fence.mbarrier_init()
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()
    with cta(k, 1), k.elected():
        k.mbarrier.arrive(b[0].at(0), scope="cluster")
    with cta(k, 0):
        k.mbarrier.wait(b, 0, scope="cluster")
    k.cluster.sync()


@row("LD07", completes(out=[1, 0]), trailing=True)
@row(
    "LD07-scope",
    practice=completes(out=[1, 0]),
    ptx=fails(Defect("race", frozenset(
        ("warp 0", step) for step in ("k.mem.load(r, d[0])", "k.cluster.st_async(")
    ))),
    trailing=True, scope="cta",
)  # fmt: skip
@row(
    "LD07-no-trailing",
    fails(defect("peer-exit")),
    trailing=False,
)
def st_async_ring(
    k: Builder, *, trailing: bool, scope: Literal["cta", "cluster"] = "cluster"
) -> None:
    pair(k)
    d, b, r = words(k, "d"), k.mbarriers("b"), k.var("r")
    out = global_words(k, "out", 2)
    peer = 1 - k.cluster_rank
    with k.elected():
        k.mbarrier.init(b, 1)
    k.cluster.sync()
    with k.elected():
        k.cluster.st_async(d.view().at(peer)[0], k.cluster_rank, b[0].at(peer))
        k.mbarrier.arrive_expect_tx(b, 4)
        if trailing:
            k.mbarrier.wait(b, 0, scope=scope)
            k.mem.load(r, d[0])
            k.mem.store(out[k.cluster_rank], r)
    if trailing:
        k.cluster.sync()


@row("LD08", fails(defect("out-of-bounds", CTA0="k.cluster.red_async")), rank=0)
@row("LD08-peer", completes(out=3), rank=1)
def red_async_to_itself(k: Builder, *, rank: int) -> None:
    pair(k)
    x, b, r = k.shared("x", u32, (1,)), k.mbarriers("b"), k.var("r")
    out = global_words(k, "out")
    with k.elected():
        k.mem.store(x[0], 2)
        k.mbarrier.init(b, 1)
    k.cluster.sync()
    with cta(k, 0), k.elected():
        k.cluster.red_async(x.view().at(rank)[0], "add", 1, b[0].at(rank))
    with cta(k, rank), k.elected():
        k.mbarrier.arrive_expect_tx(b, 4)
        k.mbarrier.wait(b, 0, scope="cluster")
        k.mem.load(r, x[0])
        k.mem.store(out[0], r)
    k.cluster.sync()


@row("LD08-alone", fails(defect("out-of-bounds", CTA0="k.cluster.st_async")))
def st_async_alone(k: Builder) -> None:
    pair(k, grid=1, cluster=1)
    x, b = words(k, "x"), k.mbarriers("b")
    begin(k, (b, 1))
    with cta(k, 0), k.elected():
        k.cluster.st_async(x.view().at(0)[0], 1, b[0].at(0))


@row("LD09", fails(defect("deadlock", **{"warp 0": "k.while_(r.eq(0))"})), cooperative=False)
@row("LD09-cooperative", completes(), cooperative=True)
def spin_on_other_cluster(k: Builder, *, cooperative: bool) -> None:
    k.launch(warps=1, grid=2, cooperative=cooperative)
    flag, r = global_words(k, "flag"), k.var("r", 0)
    with k.if_(k.cta_x.eq(0)), k.role("CTA0", 0), k.while_(r.eq(0)):
        k.mem.load(r, flag[0], sem="acquire", scope="gpu")
    with k.if_(k.cta_x.eq(1)), k.elected():
        k.mem.store(flag[0], 1, sem="release", scope="gpu")


@row("LD10", fails(defect("race", T0="k.mem.load(r, g[0])")), waits=False)
@row("LD10-wait", completes({"g": 1}, out=1), waits=True)
def dependent_launch(k: Builder, *, waits: bool) -> None:
    k.launch(warps=1)
    g, out, r = k.tensor("g", s32, (1,), dependent=True), global_words(k, "out"), k.var("r")
    with k.role("T0", 0):
        if waits:
            k.griddep.wait()
        with k.elected():
            k.mem.load(r, g[0])
            k.mem.store(out[0], r)


@row("LD-mask", fails(defect("out-of-bounds", CTA0="k.tma.load(")), mask=0b100)
@row("LD-mask-zero", fails(defect("out-of-bounds", CTA0="k.tma.load(")), mask=0)
@row("LD-mask-right", completes({"g": GRID}, out=GRID), mask=0b11)
@row(
    "LD-mask-scope",
    practice=completes({"g": GRID}, out=GRID),
    ptx=fails(defect("race", CTA0="k.tma.load(", **{"warp 0": "k.tile.load("})),
    mask=0b11, scope="cta",
)  # fmt: skip
def multicast_mask(k: Builder, *, mask: int, scope: Literal["cta", "cluster"] = "cluster") -> None:
    pair(k)
    g, out = k.tensor("g", s32, (4, 32)), k.tensor("out", s32, (4, 32))
    d, b = k.shared("d", s32, (4, 32)), k.mbarriers("b")
    m = k.tensor_map(g, (4, 32))
    part = k.fragment("part", s32, (2, 32))
    with k.elected():
        k.mbarrier.init(b, 1)
        k.fence.mbarrier_init()
        k.mbarrier.arrive_expect_tx(b, m.box_bytes)
    k.cluster.sync()
    with cta(k, 0), k.elected():
        k.tma.load(m, d, (0, 0), b, multicast=mask)
    k.mbarrier.wait(b, 0, scope=scope)
    k.tile.load(part, d[ds(2 * k.cluster_rank, 2)])
    k.tile.store(out[ds(2 * k.cluster_rank, 2)], part)
    k.cluster.sync()
