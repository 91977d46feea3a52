"""What hardware chooses: who gets registers first, which CTAs start first; where copies land."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim import Builder, s32, u32

from .trial import trial


def first_group(out: NDArray[Any]) -> str:
    """Which warpgroup came first."""
    return f"warpgroup {1 if out[0] < out[1] else 2} first"


@trial("pool-order", "Two warpgroups ask for registers that serve one: which is first?", "E17",
       read=first_group, most=60)  # fmt: skip
def registers_for_one(k: Builder) -> None:
    """504 registers per three threads: 96 + 240 + 168, until the one that has 240 gives 72 back."""
    k.launch(warps=12, registers=168)
    out, count, r = k.tensor("out", s32, (2,)), k.tensor("count", s32, (1,)), k.var("r", 0)
    with k.warpgroup(0):
        k.setmaxnreg("dec", 96)
    for group in (1, 2):
        with k.warpgroup(group):
            k.setmaxnreg("inc", 240)
            with k.if_((k.thread_id % 128).eq(0)):
                k.mem.atomic(count[0], "add", 1, result=r)
                k.mem.store(out[group - 1], r)
            k.bar.sync(group, 128)
            k.setmaxnreg("dec", 168)


@trial("pool-24-232", "168 x 3 registers: 24, 232, 232", "E17, U23", down=24, up=232)
@trial("pool-40-232", "168 x 3 registers: 40, 232, 232", "E17, U23", down=40, up=232)
@trial("pool-24-240", "168 x 3 registers: 24, 240, 240", "E17, U23", down=24, up=240)
@trial("pool-32-240", "168 x 3 registers: 32, 240, 240, eight too many", "E17, U23", down=32,
       up=240)  # fmt: skip
def registers(k: Builder, *, down: int, up: int) -> None:
    k.launch(warps=12, registers=168)
    out = k.tensor("out", s32, (1,))
    with k.warpgroup(0):
        k.setmaxnreg("dec", down)
    for group in (1, 2):
        with k.warpgroup(group):
            k.setmaxnreg("inc", up)
    k.sync_threads()
    with k.if_(k.thread_id.eq(0)):
        k.mem.store(out[0], 1)


# ------------------------------------------------------------------ residency


def starts(out: NDArray[Any]) -> str:
    """Whether CTAs drew their numbers in the order of the grid."""
    return "in order" if np.all(np.diff(out) > 0) else "out of order"


def _fills_an_sm(k: Builder, ctas: int) -> None:
    """So that one CTA is resident on an SM at a time."""
    k.launch(grid=ctas, warps=1, smem_bytes=200 * 1024)


@trial("start-order", "500 CTAs, one on each of 132 SMs: do they start in the order of the grid?",
       "0.4a", read=starts, most=3, ctas=500)  # fmt: skip
@trial("start-order-few", "The same with 8 CTAs", "0.4a", read=starts, ctas=8)
def order_of_starts(k: Builder, *, ctas: int) -> None:
    _fills_an_sm(k, ctas)
    out, count, r = k.tensor("out", s32, (ctas,)), k.tensor("count", s32, (1,)), k.var("r", 0)
    with k.elected():
        k.mem.atomic(count[0], "add", 1, result=r, scope="gpu")
        k.mem.store(out[k.cta_x], r)


@trial("wait-for-later", "All CTAs wait for the last one; 150 on 132 SMs", "0.4a", ctas=150,
       most=1, last=True)  # fmt: skip
@trial("wait-for-later-fits", "The same with 64 CTAs", "0.4a", ctas=64, most=2,
       last=True)  # fmt: skip
@trial("wait-for-first", "All CTAs wait for the first one; 150 on 132 SMs", "0.4a", ctas=150,
       most=1, last=False)  # fmt: skip
def ctas_wait_for_one(k: Builder, *, ctas: int, last: bool) -> None:
    _fills_an_sm(k, ctas)
    out, flag, r = k.tensor("out", s32, (1,)), k.tensor("flag", s32, (1,)), k.var("r", 0)
    one = ctas - 1 if last else 0
    with k.elected():
        with k.if_(k.cta_x.eq(one)):
            k.mem.store(flag[0], 1, sem="release", scope="gpu")
            k.mem.store(out[0], 1)
        with k.else_(), k.while_(r.eq(0)):
            k.mem.load(r, flag[0], sem="acquire", scope="gpu")


# ------------------------------------------------------------------ boxes


def rows(out: NDArray[Any]) -> str:
    """Where the eight rows of a box lie, in words from its start."""
    flat = out.reshape(-1)
    places = [int(np.flatnonzero(flat == 100 + 4 * row)[0]) if np.any(flat == 100 + 4 * row) else -1
              for row in range(8)]  # fmt: skip
    apart = set(np.diff(places).tolist())
    if len(apart) == 1 and places[0] >= 0:
        return f"rows {apart.pop()} words apart"
    return "elsewhere"


@trial("box-dense", "How far apart are the rows of a box of 8 x 4 words?", "B17, B20",
       read=rows)  # fmt: skip
def a_box_in_shared_memory(k: Builder) -> None:
    k.launch(warps=1)
    g, out = k.tensor("g", s32, (8, 4)), k.tensor("out", s32, (256,))
    box, b = k.tensor_map(g, (8, 4)), k.mbarriers("b")
    tile, r = k.shared("tile", s32, (64, 4), align=1024), k.var("r", 0)
    with k.loop(8) as i:
        k.mem.store(tile[8 * i + k.lane_id // 4, k.lane_id % 4], 0)
    k.mem.store(g[k.lane_id // 4, k.lane_id % 4], 100 + k.lane_id)
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.init(b, 1)
    k.fence.proxy_async()
    k.sync_threads()
    with k.elected():
        k.mbarrier.arrive_expect_tx(b, 128)
        k.tma.load(box, tile[0:8], (0, 0), b)
        k.mbarrier.wait(b, 0)
    k.sync_warp()
    with k.loop(8) as i:
        k.mem.load(r, tile[8 * i + k.lane_id // 4, k.lane_id % 4])
        k.mem.store(out[32 * i + k.lane_id], r)


# ------------------------------------------------------------------ clusters


def who(out: NDArray[Any]) -> str:
    """Which CTAs of the cluster got the copy."""
    return "ranks " + " ".join(str(n) for n, got in enumerate(out.tolist()) if got)


@trial("multicast-mask", "Cluster of 2 x 2: which CTA does bit 1 of a multicast mask name?", "U9",
       read=who, bit=1)  # fmt: skip
@trial("multicast-mask-2", "The same for bit 2", "U9", read=who, bit=2)
def bit_of_a_mask(k: Builder, *, bit: int) -> None:
    k.launch(warps=1, grid=(2, 2), cluster=(2, 2))
    g, out = k.tensor("g", u32, (4,)), k.tensor("out", s32, (4,))
    s, b = k.shared("s", u32, (4,)), k.mbarriers("b")
    with k.if_(k.lane_id.eq(0)):
        k.mem.store(s[0], 0)
        k.mbarrier.init(b, 1)
        k.fence.mbarrier_init()
        k.fence.proxy_async()
        with k.if_(k.cluster_rank.eq(bit)):
            k.mbarrier.arrive_expect_tx(b, 16)
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(0)), k.elected():
        k.bulk.load(s, g, b, multicast=1 << bit)
    with k.if_(k.cluster_rank.eq(bit)), k.elected():
        k.mbarrier.wait(b, 0)
        k.mem.store(out[k.cluster_rank], 1)
    k.cluster.sync()


@trial("st-async-own", "`st.async` to the own CTA of a cluster of 2", "D11, U17")
def st_async_to_oneself(k: Builder) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    out, r = k.tensor("out", s32, (2,)), k.var("r", 0)
    s, b = k.shared("s", s32, (1,)), k.mbarriers("b")
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.init(b, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.arrive_expect_tx(b, 4)
        k.cluster.st_async(s.view().at(k.cluster_rank)[0], 7, b[0].at(k.cluster_rank))
        k.mbarrier.wait(b, 0)
        k.mem.load(r, s[0])
        k.mem.store(out[k.cluster_rank], r)
    k.cluster.sync()


@trial("cluster-wait-alone", "`barrier.cluster.wait` by a CTA that has not arrived", "D2, U30")
def wait_without_arrival(k: Builder) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    out = k.tensor("out", s32, (2,))
    with k.if_(k.cluster_rank.eq(0)):
        k.cluster.arrive()
        k.cluster.wait()
    with k.else_():
        k.cluster.wait()
        k.cluster.arrive()
    with k.if_(k.lane_id.eq(0)):
        k.mem.store(out[k.cluster_rank], 1)


@trial("arrive-then-sync", "A warp arrives at a barrier of 96 and then joins it, with another",
       "E6")  # fmt: skip
def arrive_then_sync(k: Builder) -> None:
    k.launch(warps=2)
    out = k.tensor("out", s32, (2,))
    with k.role("twice", 0):
        k.bar.arrive(1, 96, aligned=False)
    k.bar.sync(1, 96, aligned=False)
    with k.if_((k.thread_id % 32).eq(0)):
        k.mem.store(out[k.thread_id // 32], 1)


@trial("no-complete", "`arrive.noComplete` that would end the phase: does it?", "A13, U5",
       read=lambda out: "phase ends" if out[0] else "phase stays open")  # fmt: skip
def no_complete(k: Builder) -> None:
    k.launch(warps=1)
    b, p, out = k.mbarriers("b"), k.var("p", 0), k.tensor("out", s32, (1,))
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.init(b, 1)
        k.mbarrier.arrive(b, no_complete=True)
        k.mbarrier.test_wait(p, b, 0)
        k.mem.store(out[0], p)
