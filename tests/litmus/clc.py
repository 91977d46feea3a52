"""LITMUS LD11, LD12: cluster launch control."""

from __future__ import annotations

import numpy as np

from tilesim import Builder, u32

from .notation import begin, global_words
from .table import completes, defect, fails, row


@row(
    "LD11",
    fails(
        defect(
            "launch-control",
            T0=("k.clc.query_is_canceled(found, r)  # seen", "k.clc.try_cancel(r, b)  # again"),
        )
    ),
    observe=True,
)  # fmt: skip
# Issuing the second before observing the first is legal.
@row("LD11-before", completes(out=0), observe=False)
def retry_after_failure(k: Builder, *, observe: bool) -> None:
    k.launch(warps=1, target="sm_100a")
    r, b, found = k.shared("r", u32, (4,)), k.mbarriers("b"), k.var("found")
    out = global_words(k, "out")
    begin(k, (b, 1))
    with k.role("T0", 0), k.elected():
        k.clc.try_cancel(r, b)
        k.mbarrier.arrive_expect_tx(b, 16)
        k.mbarrier.wait(b, 0)
        if observe:
            k.clc.query_is_canceled(found, r)  # seen
            k.fence.proxy_async()
        k.clc.try_cancel(r, b)  # again
        k.mbarrier.arrive_expect_tx(b, 16)
        k.mbarrier.wait(b, 1)
        k.clc.query_is_canceled(found, r)  # last
        k.mem.store(out[0], found)


@row(
    "LD11-two",
    fails(
        defect("launch-control", second="# again", first="# failure"),
    ),
    ordered=False,
)
@row("LD11-two-ordered", completes(), ordered=True)
def retry_beside_failure(k: Builder, *, ordered: bool) -> None:
    """One warp asks again while another may already have seen the first request fail."""
    k.launch(warps=2, grid=2, target="sm_100a")
    r, b0, b1 = k.shared("r", u32, (2, 4)), k.mbarriers("b0"), k.mbarriers("b1")
    go, asked, found = k.mbarriers("go"), k.mbarriers("asked"), k.var("found")
    begin(k, (b0, 1), (b1, 1), (go, 1), (asked, 1))
    with k.role("first", 0):
        with k.elected():
            k.mbarrier.arrive_expect_tx(b0, 16)
            k.clc.try_cancel(r[0], b0)
            k.mbarrier.arrive(go)
        k.mbarrier.wait(b0, 0)
        if ordered:
            k.mbarrier.wait(asked, 0)
        k.clc.query_is_canceled(found, r[0])  # failure
    with k.role("second", 1):
        with k.elected():
            k.mbarrier.wait(go, 0)
            k.mbarrier.arrive_expect_tx(b1, 16)
            k.clc.try_cancel(r[1], b1)  # again
            k.mbarrier.arrive(asked)
        k.mbarrier.wait(b1, 0)


@row("LD11-ctaid", fails(defect("launch-control", T0="k.clc.query_first_ctaid(found, r)")))
def coordinates_of_failure(k: Builder) -> None:
    k.launch(warps=1, target="sm_100a")
    r, b, found = k.shared("r", u32, (4,)), k.mbarriers("b"), k.var("found")
    begin(k, (b, 1))
    with k.role("T0", 0), k.elected():
        k.clc.try_cancel(r, b)
        k.mbarrier.arrive_expect_tx(b, 16)
        k.mbarrier.wait(b, 0)
        k.clc.query_first_ctaid(found, r)


#: every CTA of the grid is done once, by whichever CTA
DONE = np.arange(1, 7)


@row(
    "LD12",
    practice=completes(out=DONE),
    ptx=fails(
        *(
            defect("proxy-fence", **{reader: query}, T0="k.clc.try_cancel(r, b)")
            for reader in ("warp 0", "warp 1")
            for query in ("k.clc.query_is_canceled(found, r)", "k.clc.query_first_ctaid(x, r)")
        ),
    ),
    fence="",
)
@row("LD12-fence", completes(out=DONE), fence="proxy_async")
@row("LD12-pair", completes(out=DONE), fence="pair")
def slot_reuse(k: Builder, *, fence: str) -> None:
    k.launch(warps=2, grid=6, target="sm_100a")
    r, b = k.shared("r", u32, (4,)), k.mbarriers("b")
    out = global_words(k, "out", 6)
    x, found, parity = k.var("x", k.cta_x), k.var("found", 1), k.var("parity", 0)
    begin(k, (b, 1))
    with k.while_(found.ne(0)):
        with k.role("T0", 0), k.elected():
            if fence == "pair":
                k.fence.proxy_async_generic("acquire")
            k.clc.try_cancel(r, b)
            k.mbarrier.arrive_expect_tx(b, 16)
        with k.if_(k.thread_id.eq(0)):
            k.mem.store(out[x], x + 1)
        k.mbarrier.wait(b, parity)
        k.assign(parity, parity ^ 1)
        k.clc.query_is_canceled(found, r)
        with k.if_(found.ne(0)):
            k.clc.query_first_ctaid(x, r)
        if fence == "proxy_async":
            k.fence.proxy_async()
        if fence == "pair":
            k.fence.proxy_async_generic("release")
        k.sync_threads()
