"""LITMUS section H for one CTA: acquire patterns, and reuse of memory across proxies."""

from __future__ import annotations

from typing import Literal

from tilesim import Builder, s32, select, u32

from .notation import begin, global_words, thread, words
from .table import completes, defect, fails, rejected, row


@row(
    "LH02",
    fails(defect("race", T0="k.mem.store(g[0], 42)", T1="k.mem.load(r, g[0])")),
)
def red_as_acquire(k: Builder) -> None:
    k.launch(warps=2)
    g, f, r = global_words(k, "g"), global_words(k, "f"), k.var("r")
    begin(k, zero=[g, f])
    with thread(k, 0):
        k.mem.store(g[0], 42)
        k.mem.store(f[0], 1, sem="release", scope="gpu")
    with thread(k, 1):
        k.mem.atomic(f[0], "add", 1, scope="gpu")
        k.fence.memory("acquire", scope="gpu")
        k.mem.load(r, g[0])


@row("LH03", completes({"s": range(64)}, g=range(1, 65)), fence=True)
@row(
    "LH03-no-fence",
    fails(
        defect("proxy-fence", T0="k.bulk.store(g, d)", **{"warp 0": "k.mem.store(d["}),
        defect("proxy-fence", T0="k.bulk.store(g, d)", **{"warp 1": "k.mem.store(d["}),
    ),
    fence=False,
)
def load_modify_store(k: Builder, *, fence: bool) -> None:
    k.launch(warps=2)
    s, g, d = global_words(k, "s", 64), global_words(k, "g", 64), words(k, "d", 64)
    b, r = k.mbarriers("b"), k.var("r")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 256)
        k.bulk.load(d, s, b)
    k.mbarrier.wait(b, 0)
    k.mem.load(r, d[k.thread_id])
    k.mem.store(d[k.thread_id], r + 1)
    if fence:
        k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.bulk.store(g, d)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@row(
    "LH04",
    practice=completes({"g": range(32)}, out=range(32)),
    ptx=fails(defect("proxy-fence", W0="k.mem.load(r, d[", T32="# again")),
    fence=False,
)
@row("LH04-fence", completes({"g": range(32)}, out=range(32)), fence=True)
def refill_after_generic_read(k: Builder, *, fence: bool) -> None:
    k.launch(warps=2)
    d, g, out, r = (
        words(k, "d", 32),
        global_words(k, "g", 32),
        global_words(k, "out", 32),
        k.var("r"),
    )
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    begin(k, (full, 1), (empty, 32))
    with k.role("W0", 0):
        k.mbarrier.wait(full, 0)
        k.mem.load(r, d[k.lane_id])
        if fence:
            k.fence.proxy_async()
        k.mbarrier.arrive(empty)
        k.mem.store(out[k.lane_id], r)
    with thread(k, 1, "T32"):
        k.mbarrier.arrive_expect_tx(full, 128)
        k.bulk.load(d, g, full)
        k.mbarrier.wait(empty, 0)
        k.mbarrier.arrive_expect_tx(full, 128)
        k.bulk.load(d, g, full)  # again
        k.mbarrier.wait(full, 1)


_LAST = {"warp 2": "k.mem.load(part, parts[n])"}
_UNFENCED = (
    defect("race", **_LAST, **{"warp 0": "k.mem.store(parts["}),
    defect("race", **_LAST, **{"warp 1": "k.mem.store(parts["}),
)


@row("LH05", completes(out=[6, 0], verdicts=("exhausted",), note="whoever is last adds"))
@row("LH05-relaxed", fails(*_UNFENCED), sem="relaxed")
@row("LH05-signed", rejected("operand", 'k.mem.atomic(count[0], "inc", '), signed=True)
def the_last_of_three_adds_what_all_have_left(
    k: Builder, *, sem: Literal["acq_rel", "relaxed"] = "acq_rel", signed: bool = False
) -> None:
    """``atom.inc`` begins again at 0 after it has counted all: the counter can be used again."""
    k.launch(warps=3)
    parts, out = k.shared("parts", u32, (3,)), k.tensor("out", u32, (2,))
    count = k.shared("count", s32 if signed else u32, (1,))
    turn, part, total = (k.var(name, 0, u32) for name in ("turn", "part", "total"))
    with k.if_(k.thread_id.eq(0)):
        k.mem.store(count[0], 0)
    k.sync_threads()
    with k.elected():
        k.mem.store(parts[k.warp_id], k.warp_id + 1)
        k.mem.atomic(count[0], "inc", 2, result=turn, sem=sem, scope="cta")
        with k.if_(turn.eq(2)):
            for n in range(3):
                k.mem.load(part, parts[n])
                k.assign(total, total + part)
            k.mem.store(out[0], total)
            k.mem.load(part, count[0], sem="relaxed", scope="cta")
            k.mem.store(out[1], part)


_MOST = 2**32 - 1


@row("LH06", completes({"starts": [0, 9, 3, 4, 7, _MOST]}, out=[2, 0, 4, 0, 0, 0]), op="inc")
@row("LH06-dec", completes({"starts": [0, 9, 3, 0, 7, 0]}, out=[3, 4, 2, 4, 0, _MOST]), op="dec")
def numbers_that_wrap(k: Builder, *, op: Literal["inc", "dec"]) -> None:
    """32 lanes at once; from above the bound, below it, at it; a bound of 0 and the largest."""
    k.launch(warps=1)
    starts, out = k.tensor("starts", u32, (6,)), k.tensor("out", u32, (6,))
    found, bound = k.var("found", 0, u32), k.var("bound", 4, u32)
    counts = k.shared("counts", u32, (6,))
    with k.if_(k.lane_id < 6):
        k.mem.load(found, starts[k.lane_id])
        k.mem.store(counts[k.lane_id], found)
    k.sync_warp()
    k.mem.atomic(counts[0], op, 4)
    k.assign(bound, select(k.lane_id.eq(4), 0, select(k.lane_id.eq(5), _MOST, 4)))
    with k.if_((k.lane_id > 0) & (k.lane_id < 6)):
        k.mem.atomic(counts[k.lane_id], op, bound)
    k.sync_warp()
    with k.if_(k.lane_id < 6):
        k.mem.load(found, counts[k.lane_id])
        k.mem.store(out[k.lane_id], found)
