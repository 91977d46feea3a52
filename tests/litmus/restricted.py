"""Fences for shared memory alone: ``fence.{release,acquire}.sync_restrict`` (SEMANTICS H18)."""

from __future__ import annotations

from tilesim import Builder

from .clusters import cta, pair
from .notation import global_words, words
from .table import completes, defect, fails, row

_STORE, _LOAD = "k.mem.store(x.view().at(of)[0], 1)", "k.mem.load(r, x.view().at(of)[0])"
_LOST = fails(defect("race", CTA0=_STORE, CTA1=_LOAD))
_LOST_GLOBAL = fails(defect("race", CTA0="k.mem.store(g[0], 2)", CTA1="k.mem.load(r, g[0])"))


@row("LV09", completes(out=1), release="restricted", acquire="restricted")
@row("LV09-whole", completes(out=1), release="whole", acquire="whole")
@row("LV09-mixed", completes(out=1), release="whole", acquire="restricted")
@row("LV09-no-release", _LOST, release="", acquire="restricted")
@row("LV09-no-acquire", _LOST, release="restricted", acquire="")
@row("LV09-global", _LOST_GLOBAL, release="restricted", acquire="restricted", in_global=True)
@row("LV09-global-release", _LOST_GLOBAL, release="restricted", acquire="whole", in_global=True)
@row("LV09-global-acquire", _LOST_GLOBAL, release="whole", acquire="restricted", in_global=True)
@row("LV09-global-whole", completes(out=2), release="whole", acquire="whole", in_global=True)
@row("LV09-peer", _LOST, release="restricted", acquire="restricted", of=1)
@row("LV09-peer-acquire", _LOST, release="restricted", acquire="whole", of=1)
@row("LV09-peer-whole", completes(out=1), release="whole", acquire="restricted", of=1)
def relaxed_arrive_between_fences(
    k: Builder, *, release: str, acquire: str, in_global: bool = False, of: int = 0
) -> None:
    """CTA 0 stores to the shared memory ``of`` one of both; a release is for its own (H18)."""
    pair(k)
    x, g, out, r = words(k, "x"), global_words(k, "g"), global_words(k, "out"), k.var("r")
    b = k.mbarriers("b")
    with k.elected():
        k.mbarrier.init(b, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with cta(k, 0), k.elected():
        k.mem.store(x.view().at(of)[0], 1)
        if in_global:
            k.mem.store(g[0], 2)
        if release == "restricted":
            k.fence.sync_restrict("release")
        elif release:
            k.fence.memory("release", scope="cluster")
        k.mbarrier.arrive(b.at(1), sem="relaxed", scope="cluster")
    with cta(k, 1), k.elected():
        k.mbarrier.wait(b, 0, sem="relaxed", scope="cluster")
        if acquire == "restricted":
            k.fence.sync_restrict("acquire")
        elif acquire:
            k.fence.memory("acquire", scope="cluster")
        if in_global:
            k.mem.load(r, g[0])
        else:
            k.mem.load(r, x.view().at(of)[0])
        k.mem.store(out[0], r)
    k.cluster.sync()


_SPIN = ("k.mem.store(x[0], 1)", "k.mem.load(r, x.view().at(0)[0])")
_UNSEEN = fails(defect("race", CTA0=_SPIN[0], CTA1=_SPIN[1]))


@row("LV10", completes(out=1), in_shared=True, release="restricted", acquire="restricted")
@row("LV10-far", _UNSEEN, in_shared=False, release="restricted", acquire="restricted")
@row("LV10-far-release", _UNSEEN, in_shared=False, release="restricted", acquire="whole")
@row("LV10-far-acquire", _UNSEEN, in_shared=False, release="whole", acquire="restricted")
@row("LV10-far-whole", completes(out=1), in_shared=False, release="whole", acquire="whole")
def flag_between_fences(k: Builder, *, in_shared: bool, release: str, acquire: str) -> None:
    """A fence for shared memory is about operations on objects there, not on a flag elsewhere."""
    pair(k)
    x, f, g = words(k, "x"), words(k, "f"), global_words(k, "g")
    out, r, seen = global_words(k, "out"), k.var("r"), k.var("seen", 0)
    with k.elected():
        k.mem.store(f[0], 0)
    k.cluster.sync()
    with cta(k, 0), k.elected():
        k.mem.store(x[0], 1)
        if release == "restricted":
            k.fence.sync_restrict("release")
        else:
            k.fence.memory("release", scope="cluster")
        flag = f.view().at(1)[0] if in_shared else g[0]
        k.mem.store(flag, 1, sem="relaxed", scope="cluster")
    with cta(k, 1), k.elected():
        with k.while_(seen.eq(0)):
            k.mem.load(seen, f[0] if in_shared else g[0], sem="relaxed", scope="cluster")
        if acquire == "restricted":
            k.fence.sync_restrict("acquire")
        else:
            k.fence.memory("acquire", scope="cluster")
        k.mem.load(r, x.view().at(0)[0])
        k.mem.store(out[0], r)
    k.cluster.sync()


@row("LV11", completes(out=1), fence=True)
@row(
    "LV11-none",
    fails(defect("race", CTA0="k.mem.store(x[0], 1)", CTA1="k.mem.load(r, x.view().at(0)[0])")),
    fence=False,
)
def relaxed_cluster_arrive(k: Builder, *, fence: bool) -> None:
    pair(k)
    x, out, r = words(k, "x"), global_words(k, "out"), k.var("r")
    with cta(k, 0):
        with k.elected():
            k.mem.store(x[0], 1)
        if fence:
            k.fence.sync_restrict("release")
        k.cluster.arrive(sem="relaxed")
    with cta(k, 1):
        k.cluster.arrive()
    k.cluster.wait()
    with cta(k, 1), k.elected():
        k.mem.load(r, x.view().at(0)[0])
        k.mem.store(out[0], r)
    k.cluster.sync()
