"""LITMUS section H for one CTA: acquire patterns, and reuse of memory across proxies."""

from __future__ import annotations

from tilesim import Builder

from .notation import begin, global_words, thread, words
from .table import completes, defect, fails, row


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
        defect("proxy-fence", T0=("k.mem.store(d[", "k.bulk.store(g, d)")),
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
