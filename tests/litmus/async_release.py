"""Asynchronous accesses to global memory, which release (D14): ``st.async``, ``red.async``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tilesim import Builder, u32
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.expr import Expr

from .table import completes, defect, fails, rejected, row


@contextmanager
def _cta(k: Builder, rank: int, name: str = "") -> Iterator[None]:
    """``CTAn``: one thread of the one warp of a CTA."""
    with k.if_(k.cta_x.eq(rank)), k.role(name or f"CTA{rank}", 0), k.elected():
        yield


def _word(k: Builder, name: str, count: int = 1) -> GlobalTensor:
    return k.tensor(name, u32, (count,))


def _begin(k: Builder, grid: int = 2, target: str = "sm_100a") -> None:
    k.launch(target=target, warps=1, grid=grid, cooperative=True)


_STORED = "k.mem.store(x[0], 7)"


@row("LS01", completes(out=7))
@row("LS01-sys", completes(out=7), scope="sys")
@row(
    "LS01-relaxed",
    fails(defect("race", CTA0=_STORED, CTA1="k.mem.load(r, x[0])  # behind")),
    sem="relaxed",
)
@row(
    "LS01-cta",
    fails(
        defect("race", CTA0=_STORED, CTA1="k.mem.load(r, x[0])  # behind"),
        defect("race", CTA0="k.mem.store_async(f[0]", CTA1="k.mem.load(seen, f[0]"),
    ),
    seen_by="cta",
)
@row(
    "LS01-early",
    fails(defect("race", CTA0=_STORED, CTA1="k.mem.load(r, x[0])  # before")),
    early=True,
)
@row(
    "LS01-late",
    fails(defect("race", CTA0="k.mem.store(x[0], 8)", CTA1="k.mem.load(r, x[0])  # behind")),
    late=True,
)
@row(
    "LS01-weak",
    fails(defect("race", CTA0="k.mem.store_async(f[0]", CTA1="k.mem.load(r, f[0])")),
    weak=True,
)
@row("LS01-sm90", rejected("target", "k.mem.store_async(f[0]"), target="sm_90a")
def message_passing(
    k: Builder, *, scope: Literal["gpu", "sys"] = "gpu",
    sem: Literal["relaxed", "acquire"] = "acquire", seen_by: Literal["cta", "gpu"] = "gpu",
    early: bool = False, late: bool = False, weak: bool = False, target: str = "sm_100a",
) -> None:  # fmt: skip
    """It releases what its thread did before; an acquire that finds it comes after that."""
    _begin(k, target=target)
    x, f, out = _word(k, "x"), _word(k, "f"), _word(k, "out")
    r, seen = k.var("r", 0, u32), k.var("seen", 0, u32)
    with _cta(k, 0):
        k.mem.store(x[0], 7)
        k.mem.store_async(f[0], 1, scope=scope)
        if late:
            k.mem.store(x[0], 8)
    with _cta(k, 1):
        if early:
            k.mem.load(r, x[0])  # before
        if weak:
            k.mem.load(r, f[0])
        with k.while_(seen < 1):
            k.mem.load(seen, f[0], sem=sem, scope=seen_by)
        k.mem.load(r, x[0])  # behind
        k.mem.store(out[0], r)


@row(
    "LS02",
    fails(defect("race", CTA0=("k.mem.store_async(f[0]", "k.mem.load(r, f[0])  # back"))),
)
@row(
    "LS02-store",
    fails(defect("race", CTA0=("k.mem.store_async(f[0]", "k.mem.store(f[0], 2)"))),
    store=True,
)
@row(
    "LS02-add",
    fails(defect("race", CTA0=("k.mem.reduce_async(f[0]", "k.mem.load(r, f[0])  # back"))),
    add=True,
)
@row("LS02-waits", completes(f=2), store=True, waits=True)
@row("LS02-add-waits", completes(f=2), add=True, store=True, waits=True)
def its_own_thread_comes_in_no_order_with_it(
    k: Builder, *, store: bool = False, add: bool = False, waits: bool = False
) -> None:
    """What the thread does next with the word races with it, until an acquire has found it."""
    _begin(k, grid=1)
    f, out = _word(k, "f"), _word(k, "out")
    r, seen = k.var("r", 0, u32), k.var("seen", 0, u32)
    with _cta(k, 0):
        if add:
            k.mem.reduce_async(f[0], 1)
        else:
            k.mem.store_async(f[0], 1)
        if waits:
            with k.while_(seen < 1):
                k.mem.load(seen, f[0], sem="acquire", scope="gpu")
        if store:
            k.mem.store(f[0], 2)
        else:
            k.mem.load(r, f[0])  # back
            k.mem.store(out[0], r)


@row(
    "LS03",
    fails(defect("race", CTA0="k.mem.store_async(a[0]", CTA1="k.mem.load(r, a[0])")),
)
@row(
    "LS03-released",
    fails(defect("race", CTA0="k.mem.store_async(a[0]", CTA1="k.mem.load(r, a[0])")),
    later="store",
)
@row("LS03-plain", completes(out=5), plain=True)
@row(
    "LS03-waits",
    completes(out=5, verdicts=("exhausted",), note="the word that is polled is read as data, too"),
    waits=True,
)
def a_later_release_says_nothing_of_it(
    k: Builder, *, later: Literal["async", "store"] = "async", plain: bool = False,
    waits: bool = False,
) -> None:  # fmt: skip
    """Neither another asynchronous store nor a release of its thread hands it over."""
    _begin(k)
    a, f, out = _word(k, "a"), _word(k, "f"), _word(k, "out")
    r, seen = k.var("r", 0, u32), k.var("seen", 0, u32)
    with _cta(k, 0):
        if plain:
            k.mem.store(a[0], 5)
        else:
            k.mem.store_async(a[0], 5)
        if waits:
            with k.while_(seen < 5):
                k.mem.load(seen, a[0], sem="acquire", scope="gpu")
        if later == "async":
            k.mem.store_async(f[0], 1)
        else:
            k.mem.store(f[0], 1, sem="release", scope="gpu")
    found = k.var("found", 0, u32)
    with _cta(k, 1):
        with k.while_(found < 1):
            k.mem.load(found, f[0], sem="acquire", scope="gpu")
        k.mem.load(r, a[0])
        k.mem.store(out[0], r)


@row("LS04", fails(defect("deadlock")))
@row("LS04-plain", completes(), plain=True)
def it_may_come_after_what_its_thread_does_next(k: Builder, *, plain: bool = False) -> None:
    """A thread that has found the next store may find the old value here, and waits."""
    _begin(k)
    a, f, r = _word(k, "a"), _word(k, "f"), k.var("r", 0, u32)
    seen, never = k.var("seen", 0, u32), k.var("never", 0, u32)
    with _cta(k, 0):
        if plain:
            k.mem.store(a[0], 1, sem="release", scope="gpu")
        else:
            k.mem.store_async(a[0], 1)
        k.mem.store(f[0], 1, sem="release", scope="gpu")
    with _cta(k, 1):
        with k.while_(seen < 1):
            k.mem.load(seen, f[0], sem="acquire", scope="gpu")
        k.mem.load(r, a[0], sem="relaxed", scope="gpu")
        with k.if_(r.eq(0)), k.while_(never < 2):
            k.mem.load(never, f[0], sem="acquire", scope="gpu")


_PART, _SUM = "k.mem.store(x[k.cta_x], 7)", "k.mem.load(r, x[i])"


@row("LS05", completes(out=21))
@row("LS05-short", fails(defect("race", P=_PART, C=_SUM)), goal=2)
@row("LS05-relaxed", fails(defect("race", P=_PART, C=_SUM)), sem="relaxed")
@row("LS05-more", fails(defect("deadlock")), goal=4)
def counted_arrivals_of_ctas(
    k: Builder, *, goal: int = 3, sem: Literal["relaxed", "acquire"] = "acquire"
) -> None:
    """``red.async`` of three CTAs: when all are counted, all that was released is known."""
    _begin(k, grid=4)
    x, f, out = _word(k, "x", 3), _word(k, "f"), _word(k, "out")
    r, total, seen = (k.var(name, 0, u32) for name in ("r", "total", "seen"))
    with k.if_(k.cta_x < 3), k.role("P", 0), k.elected():
        k.mem.store(x[k.cta_x], 7)
        k.mem.reduce_async(f[0], 1)
    with _cta(k, 3, "C"):
        with k.while_(seen < goal):
            k.mem.load(seen, f[0], sem=sem, scope="gpu")
        for i in range(3):
            k.mem.load(r, x[i])
            k.assign(total, total + r)
        k.mem.store(out[0], total)


@row("LS06", completes(out=[7] * 32))
@row(
    "LS06-31",
    fails(defect("race", P="k.mem.store(x[k.lane_id], 7)", C="k.mem.load(r, x[k.lane_id])")),
    goal=31,
)
@row("LS06-own", completes(out=[7] * 32), each="own")
@row(
    "LS06-other",
    fails(defect("race", P="k.mem.store(x[k.lane_id], 7)", C="k.mem.load(r, x[k.lane_id])")),
    each="other",
)
def lanes_have_operations_of_their_own(
    k: Builder, *, goal: int = 32, each: Literal["", "own", "other"] = ""
) -> None:
    """Each lane's releases what that lane did, and nothing of the others."""
    _begin(k)
    x, f, out = _word(k, "x", 32), _word(k, "f", 32), _word(k, "out", 32)
    r, seen = k.var("r", 0, u32), k.var("seen", 0, u32)
    at: Expr | int = 0
    if each:
        at = k.lane_id if each == "own" else 31 - k.lane_id
    with k.if_(k.cta_x.eq(0)), k.role("P", 0):
        k.mem.store(x[k.lane_id], 7)
        if each:
            k.mem.store_async(f[k.lane_id], 1)
        else:
            k.mem.reduce_async(f[0], 1)
    with k.if_(k.cta_x.eq(1)), k.role("C", 0):
        with k.while_(seen < (1 if each else goal), sync=False):
            k.mem.load(seen, f[at], sem="acquire", scope="gpu")
        k.mem.load(r, x[k.lane_id])
        k.mem.store(out[k.lane_id], r)


@row("LS07", completes())
@row(
    "LS07-many",
    completes(verdicts=("bounded",), note="a warp has more under way than it has positions"),
    count=70,
)
def stores_that_nothing_waits_for(k: Builder, *, count: int = 20) -> None:
    """Words of their own, and nothing but the end of the kernel comes after them."""
    _begin(k, grid=1)
    f = _word(k, "f", 128)
    with _cta(k, 0), k.loop(count) as i:
        k.mem.store_async(f[i], i)


@row("LS08", rejected("operand", "k.mem.store_async(s[0]"))
@row("LS08-add", rejected("operand", "k.mem.reduce_async(h[0]"), add=True)
def of_integers_in_global_memory(k: Builder, *, add: bool = False) -> None:
    _begin(k, grid=1)
    s, h = k.shared("s", u32, (1,)), k.tensor("h", "f32", (1,))
    with _cta(k, 0):
        if add:
            k.mem.reduce_async(h[0], 1)
        else:
            k.mem.store_async(s[0], 1)
