"""LITMUS section B for one CTA: bulk and tensor copies, bulk groups, proxy fences."""

from __future__ import annotations

from typing import Literal

from tilesim import Builder, ds, s32, u8

from .notation import begin, global_words, thread, words
from .table import completes, defect, fails, rejected, row

Fence = Literal["none", "writer", "issuer"]


@row(
    "LB01",
    fails(defect("proxy-fence", W0=("k.mem.store(d[", "k.bulk.store(g, d)"))),
    fence="none",
)
@row("LB02", completes(g=range(1, 33)), fence="writer")
@row("LB03", completes(g=range(1, 33)), fence="issuer")
def store_through_tma(k: Builder, *, fence: Fence) -> None:
    k.launch(warps=1)
    d, g = words(k, "d", 32), global_words(k, "g", 32)
    with k.role("W0", 0):
        k.mem.store(d[k.lane_id], k.lane_id + 1)
        if fence == "writer":
            k.fence.proxy_async()
        k.sync_threads()
        with k.elected():
            if fence == "issuer":
                k.fence.proxy_async()
            k.bulk.store(g, d)
            k.bulk.commit_group()
            k.bulk.wait_group(0)


# LB04 and LB06 end with a store in no group, which may be reported too (B29, B34).
@row(
    "LB04",
    fails(
        defect("proxy-fence", T1="k.mem.store(d[0], 1)", T0="k.bulk.store(g, d)"),
        also=("bulk-group", "async-at-exit"),
    ),
)
def fence_too_early(k: Builder) -> None:
    k.launch(warps=2)
    d, g = words(k, "d", 4), global_words(k, "g", 4)
    begin(k, zero=[d])
    with thread(k, 1):
        k.mem.store(d[0], 1)
    with thread(k, 0):
        k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.bulk.store(g, d)


@row("LB05", completes({"g": [7] * 4}, g=[0] * 4), commit=True)
@row(
    "LB06",
    fails(
        defect("race", T0=("k.bulk.store(g, d)", "k.mem.store(d[0], 2)")),
        also=("bulk-group", "async-at-exit"),
    ),
    commit=False,
)
def reuse_after_wait_read(k: Builder, *, commit: bool) -> None:
    k.launch(warps=1)
    d, g = words(k, "d", 4), global_words(k, "g", 4)
    begin(k, zero=[d])
    with thread(k, 0):
        k.bulk.store(g, d)
        if commit:
            k.bulk.commit_group()
        k.bulk.wait_group(0, read=True)
        k.mem.store(d[0], 2)


@row(
    "LB07",
    fails(
        defect("race", T0="k.bulk.store(g, d)", T32="k.mem.store(d[0], 2)"),
        also=("async-at-exit",),
    ),
    waiter=32,
)
@row("LB07-own-wait", completes({"g": [7] * 4}, g=[0] * 4), waiter=0)
def reuse_waited_by(k: Builder, *, waiter: int) -> None:
    k.launch(warps=2)
    d, g = words(k, "d", 4), global_words(k, "g", 4)
    begin(k, zero=[d])
    with thread(k, 0):
        k.bulk.store(g, d)
        k.bulk.commit_group()
        if waiter == 0:
            k.bulk.wait_group(0, read=True)
    k.bar.sync(1, 64)
    with thread(k, 1, "T32"):
        if waiter == 32:
            k.bulk.wait_group(0, read=True)
        k.mem.store(d[0], 2)


SPIN = "whether the loop goes round again depends on when the flag is set"


# The other side is a second warp here, not another CTA; the flag keeps its gpu scope.
@row(
    "LB08",
    fails(defect("race", T0="k.bulk.store(g, d)", T1="k.mem.load(r, g[0])")),
    read=True,
)
@row(
    "LB08-written",
    completes({"g": [7] * 4}, out=[0], verdicts=("proved", "exhausted", "bounded"), note=SPIN),
    read=False,
)
def publish_after_wait(k: Builder, *, read: bool) -> None:
    k.launch(warps=2)
    d, g, flag = words(k, "d", 4), global_words(k, "g", 4), global_words(k, "flag")
    out, r, seen = global_words(k, "out"), k.var("r"), k.var("seen", 0)
    begin(k, zero=[d, flag])
    with thread(k, 0):
        k.bulk.store(g, d)
        k.bulk.commit_group()
        k.bulk.wait_group(0, read=read)
        k.mem.store(flag[0], 1, sem="release", scope="gpu")
    with thread(k, 1):
        with k.while_(seen.eq(0)):
            k.mem.load(seen, flag[0], sem="acquire", scope="gpu")
        k.mem.load(r, g[0])
        k.mem.store(out[0], r)


@row(
    "LB09",
    fails(
        defect("race", T0=("k.bulk.load(d, g, b)", "k.mem.load(r, d[0])")),
        also=("async-at-exit",),
    ),
    wait=False,
)
@row("LB09-waited", completes({"g": [7] * 8}, out=[7]), wait=True)
def read_before_wait(k: Builder, *, wait: bool) -> None:
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), words(k, "d", 8), global_words(k, "g", 8)
    out, r = global_words(k, "out"), k.var("r")
    begin(k, (b, 1), zero=[d])
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 32)
        k.bulk.load(d, g, b)
        if wait:
            k.mbarrier.wait(b, 0)
        k.mem.load(r, d[0])
        k.mem.store(out[0], r)


@row("LB10-size", rejected("operand", "k.bulk.load(d, g, b)"), count=6, offset=1024)
@row("LB10-align", rejected("out-of-bounds", "k.bulk.load(d, g, b)"), count=8, offset=1032)
@row("LB10-right", completes(), count=8, offset=1024)
def bad_size_or_alignment(k: Builder, *, count: int, offset: int) -> None:
    k.launch(warps=1)
    b, g = k.mbarriers("b", offset=0), global_words(k, "g", count)
    d = k.shared("d", s32, (count,), align=8, offset=offset)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 4 * count)
        k.bulk.load(d, g, b)
        k.mbarrier.wait(b, 0)


@row("LB14", completes({"g": [[7] * 64] * 32}, out=[7, 0]), expected=4096)
@row("LB14-inside", fails(defect("deadlock", T0="k.mbarrier.wait(b, 0)")), expected=2048)
def box_out_of_bounds(k: Builder, *, expected: int) -> None:
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), k.shared("d", u8, (64, 64)), k.tensor("g", u8, (32, 64))
    box, out, r = k.tensor_map(g, (64, 64)), global_words(k, "out", 2), k.var("r")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, expected)
        k.tma.load(box, d, (0, 0), b)
        k.mbarrier.wait(b, 0)
        for i, y in enumerate((31, 32)):
            k.mem.load(r, d[y, 0])
            k.mem.store(out[i], r)


# 32 copies run: they race with one another and, when the bytes cancel early, with the reader.
@row(
    "LB16",
    fails(
        defect("race", W0="k.bulk.load(d, g, b)"),
        defect("race", W0="k.bulk.load(d, g, b)", T1="k.mem.load(r, d[0])"),
        also=("deadlock", "phase-ambiguity", "async-at-exit"),
    ),
    elect=False,
)
@row("LB16-elected", completes({"g": [7] * 8}, out=[7]), elect=True)
def warp_wide_issue(k: Builder, *, elect: bool) -> None:
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), words(k, "d", 8), global_words(k, "g", 8)
    out, r = global_words(k, "out"), k.var("r")
    begin(k, (b, 1), zero=[d])
    with k.role("W0", 0):
        with k.if_(k.lane_id < (1 if elect else 32)):
            k.bulk.load(d, g, b)
        with k.if_(k.lane_id.eq(0)):
            k.mbarrier.arrive_expect_tx(b, 32)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, d[0])
        k.mem.store(out[0], r)


_READ, _STORED = "k.bulk.load_ignoring(", "k.mem.store(g[stored], 7)"


@row("LB28", completes({"g": range(30)}, out=[28, 29]), start=28, right=8)
@row("LB28-beyond", fails(defect("out-of-bounds", T0=_READ)), start=28, right=4)
@row("LB28-dynamic", completes({"g": range(30)}, out=[26, 27]), start=24, left=8, stored=25)
@row("LB28-race", fails(defect("race", T0=_READ, T1=_STORED)), start=24, left=8, stored=26)
@row("LB28-too-many", fails(defect("out-of-bounds", T0=_READ)), start=24, left=16)
@row("LB28-rows", rejected("operand", _READ), start=24, left=8, rows=2)
@row(
    "LB28-steers",
    completes({"g": range(30)}, verdicts=("bounded",), note="an ignored byte may be anything"),
    start=28, right=8, steers=True,
)  # fmt: skip
def bytes_at_the_ends_are_ignored(
    k: Builder, *, start: int, left: int = 0, right: int = 0, stored: int | None = None,
    rows: int = 1, steers: bool = False,
) -> None:  # fmt: skip
    """The last four words of 30 are the last two, and two that are not there."""
    k.launch(warps=2)
    g, out, d = global_words(k, "g", 30), global_words(k, "out", 2), words(k, "d", 4)
    more = k.tensor("more", s32, (2, 4))
    b, r, skip = k.mbarriers("b"), k.var("r"), k.var("skip", left)
    begin(k, (b, 1))
    source = g[ds(start, 4)] if rows == 1 else more[:, 0:2]
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.load_ignoring(d, source, b, left=skip, right=right)
        k.mbarrier.wait(b, 0)
        for n in range(2):
            k.mem.load(r, d[min(left, 8) // 4 + n])
            k.mem.store(out[n], r)
        if steers:
            k.mem.load(r, d[2])
            with k.if_(r.eq(0)):
                k.mbarrier.arrive(b)
    with thread(k, 1):
        if stored is not None:
            k.mem.store(g[stored], 7)
