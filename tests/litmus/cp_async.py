"""LITMUS section C: non-bulk cp.async, what completes it and who may then read."""

from __future__ import annotations

import numpy as np

from tilesim import Builder, bf16, ds, f32, s32, select

from .notation import begin, global_words, thread, words
from .table import completes, defect, fails, row

SEVENS = {"g": [7] * 4}
OWN_RACE = defect("race", T0=("k.cp_async.copy(d, g)", "k.mem.load(r, d[0])"))


@row("LC01", completes(SEVENS, out=[7]), wait="wait_all")
@row("LC06", fails(OWN_RACE, also=("bulk-group", "async-at-exit")), wait="bulk")
def own_wait(k: Builder, *, wait: str) -> None:
    k.launch(warps=1)
    d, g, out, r = words(k, "d", 4), global_words(k, "g", 4), global_words(k, "out"), k.var("r")
    begin(k, zero=[d])
    with thread(k, 0):
        k.cp_async.copy(d, g)
        if wait == "wait_all":
            k.cp_async.wait_all()
        else:
            k.bulk.commit_group()
            k.bulk.wait_group(0)
        k.mem.load(r, d[0])
        k.mem.store(out[0], r)


_COPY = defect("out-of-bounds", T0="k.cp_async.copy(d[")


@row("LC09", completes({"g": [7] * 8}, out=[7]), to=4, start=4, size=16)
@row("LC09-small", completes({"g": [7] * 8}, out=[7]), to=2, start=1, size=4)
@row("LC09-shared", fails(_COPY), to=2, start=4, size=16)
@row("LC09-global", fails(_COPY), to=4, start=1, size=8)
def both_ends_are_aligned(k: Builder, *, to: int, start: int, size: int) -> None:
    """Words from ``start`` on are copied to those from ``to`` on, so many bytes at a time."""
    k.launch(warps=1)
    d, g, out, r = words(k, "d", 8), global_words(k, "g", 8), global_words(k, "out"), k.var("r")
    with thread(k, 0):
        k.cp_async.copy(d[ds(to, 4)], g[ds(start, 4)], size=size)
        k.cp_async.wait_all()
        k.mem.load(r, d[to])
        k.mem.store(out[0], r)


@row(
    "LC02",
    fails(
        defect("race", T0="k.cp_async.copy(d, g)", T32="k.mem.load(r, d[0])"),
        also=("bulk-group", "async-at-exit"),
    ),
    wait=False,
)
@row("LC03", completes(SEVENS, out=[7]), wait=True)
def hand_over_by_barrier(k: Builder, *, wait: bool) -> None:
    k.launch(warps=2)
    d, g, out, r = words(k, "d", 4), global_words(k, "g", 4), global_words(k, "out"), k.var("r")
    begin(k, zero=[d])
    with thread(k, 0):
        k.cp_async.copy(d, g)
        if wait:
            k.cp_async.commit_group()
            k.cp_async.wait_group(0)
    k.sync_threads()
    with thread(k, 1, "T32"):
        k.mem.load(r, d[0])
        k.mem.store(out[0], r)


@row("LC04", completes({"g": [[i] * 4 for i in range(32)]}, out=[sum(range(32))]))
def noinc_counted(k: Builder) -> None:
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (32, 4)), k.tensor("g", s32, (32, 4))
    out, r, total = global_words(k, "out"), k.var("r"), k.var("total", 0)
    begin(k, (b, 32))
    with k.role("W0", 0):
        k.cp_async.copy(d, g)
        k.cp_async.mbarrier_arrive(b, noinc=True)
    with thread(k, 1, "T32"):
        k.mbarrier.wait(b, 0)
        for i in range(32):
            k.mem.load(r, d[i, 0])
            k.assign(total, total + r)
        k.mem.store(out[0], total)


@row("LC05", fails(defect("deadlock", T32="k.mbarrier.wait(b, 0)")), arrive=False)
@row("LC05-arrive", completes(SEVENS, out=[7]), arrive=True)
def inc_form(k: Builder, *, arrive: bool) -> None:
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4)
    out, r = global_words(k, "out"), k.var("r")
    begin(k, (b, 1))
    with thread(k, 0):
        k.cp_async.copy(d, g)
        k.cp_async.mbarrier_arrive(b)
        if arrive:
            k.mbarrier.arrive(b)
    with thread(k, 1, "T32"):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, d[0])
        k.mem.store(out[0], r)


RNG = np.random.default_rng(0)
INPUTS = {"ga": RNG.integers(-3, 4, (64, 16)), "gb": RNG.integers(-3, 4, (32, 16))}
PRODUCT = INPUTS["ga"] @ INPUTS["gb"].T
MMA = "k.wgmma.mma_async("


@row(
    "LC07",
    practice=completes(INPUTS, out=PRODUCT),
    ptx=fails(
        defect("proxy-fence", WG=("k.cp_async.copy(a[rows]", MMA)),
        defect("proxy-fence", WG=("k.cp_async.copy(b[columns]", MMA)),
    ),
    fence=False,
)
@row("LC07-fence", completes(INPUTS, out=PRODUCT), fence=True)
def into_wgmma(k: Builder, *, fence: bool) -> None:
    k.launch(warps=4)
    ga, gb = k.tensor("ga", bf16, (64, 16)), k.tensor("gb", bf16, (32, 16))
    a, b = k.shared("a", bf16, (64, 16), swizzle=32), k.shared("b", bf16, (32, 16), swizzle=32)
    out, acc = k.tensor("out", f32, (64, 32)), k.fragment("acc", f32, (64, 32), "warpgroup")
    rows, columns = ds(k.warp_id * 16, 16), ds(k.warp_id * 8, 8)
    with k.role("WG", range(4)):
        k.cp_async.copy(a[rows], ga[rows])
        k.cp_async.copy(b[columns], gb[columns])
        k.cp_async.wait_all()
        if fence:
            k.fence.proxy_async()
        k.sync_threads()
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a, b, accumulate=0)
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)
        k.tile.store(out, acc)


TAIL = [[float(i + 4)] for i in range(28)] + [[0.0]] * 4


@row(
    "LC08",
    fails(defect("out-of-bounds", W="k.cp_async.copy(s[k.lane_id], g[row], src_bytes=size)")),
    beyond=4,
)
@row("LC08-zero", completes({"g": [[float(i)] * 4 for i in range(32)]}, out=TAIL), beyond=0)
def rows_beyond_the_end(k: Builder, *, beyond: int) -> None:
    """A copy of no bytes reads nothing, wherever its source lies; it fills with zeros."""
    k.launch(warps=1)
    g, out = k.tensor("g", f32, (32, 4)), k.tensor("out", f32, (32, 1))
    s, r = k.shared("s", f32, (32, 4)), k.var("r", dtype=f32)
    row = k.lane_id + 4
    size = select(row < 32, 16, beyond)
    with k.role("W", 0):
        k.cp_async.copy(s[k.lane_id], g[row], src_bytes=size)
        k.cp_async.wait_all()
        k.mem.load(r, s[k.lane_id, 0])
        k.mem.store(out[k.lane_id, 0], r)
