"""An instruction that n lanes execute is n events: phases that end in between, tokens, tickets."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tilesim import Builder, s32, u32, u64
from tilesim.ir.declarations import Mbarriers

from .trial import trial


def phases(out: NDArray[Any]) -> str:
    """Which phases were seen to end."""
    return ", ".join(
        f"phase {n} {'ends' if ended else 'is open'}" for n, ended in enumerate(out.tolist())
    )


def _barrier(k: Builder, count: int) -> Mbarriers:
    b = k.mbarriers("b")
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.init(b, count)
    k.sync_threads()
    return b


@trial("tx-complete", "24 lanes complete 16 bytes of 256, then 128 are expected", "A9, A12",
       read=phases, lanes=24)  # fmt: skip
@trial("tx-complete-exact", "16 lanes complete 16 bytes of 256", "A9", read=phases, lanes=16)
def lanes_complete(k: Builder, *, lanes: int) -> None:
    """One event of 384 bytes would leave -128 and phase 0 open; n events end it at the 16th."""
    k.launch(warps=1)
    b, p, q = _barrier(k, 1), k.var("p", 0), k.var("q", 0)
    out = k.tensor("out", s32, (2,))
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.arrive_expect_tx(b, 256)
    k.sync_warp()
    with k.if_(k.lane_id < lanes):
        k.mbarrier.complete_tx(b, 16)
    k.sync_warp()
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.test_wait(p, b, 0)
        k.mem.store(out[0], p)
        k.mbarrier.arrive_expect_tx(b, 16 * (lanes - 16))
        k.mbarrier.test_wait(q, b, 1)
        k.mem.store(out[1], q)


@trial("tx-expect", "24 lanes expect 16 bytes where 256 have come already", "A9, U3", read=phases)
def lanes_expect(k: Builder) -> None:
    k.launch(warps=1)
    b, p, q = _barrier(k, 1), k.var("p", 0), k.var("q", 0)
    out = k.tensor("out", s32, (2,))
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.complete_tx(b, 256)
        k.mbarrier.arrive(b)
    k.sync_warp()
    with k.if_(k.lane_id < 24):
        k.mbarrier.expect_tx(b, 16)
    k.sync_warp()
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.test_wait(p, b, 0)
        k.mem.store(out[0], p)
        k.mbarrier.complete_tx(b, 128)
        k.mbarrier.arrive(b)
        k.mbarrier.test_wait(q, b, 1)
        k.mem.store(out[1], q)


@trial("arrive-lanes", "24 lanes arrive on a count of 16, then 8", "A9, A13", read=phases)
def lanes_arrive(k: Builder) -> None:
    """One event of 24 would be too many."""
    k.launch(warps=1)
    b, p, q = _barrier(k, 16), k.var("p", 0), k.var("q", 0)
    out = k.tensor("out", s32, (2,))
    with k.if_(k.lane_id < 24):
        k.mbarrier.arrive(b)
    k.sync_warp()
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.test_wait(p, b, 0)
        k.mem.store(out[0], p)
    k.sync_warp()
    with k.if_(k.lane_id < 8):
        k.mbarrier.arrive(b)
    k.sync_warp()
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.test_wait(q, b, 1)
        k.mem.store(out[1], q)


def two_phases(out: NDArray[Any]) -> str:
    """Whether exactly two phases have ended."""
    return "two phases end" if out.tolist() == [0, 1] else phases(out)


@trial("arrive-whole", "32 lanes arrive on a count of 16", "A9, A13", read=two_phases)
def lanes_arrive_for_two_phases(k: Builder) -> None:
    """As many as two whole phases need."""
    k.launch(warps=1)
    b, p = _barrier(k, 16), k.var("p", 0)
    out = k.tensor("out", s32, (2,))
    k.mbarrier.arrive(b)
    k.sync_warp()
    with k.if_(k.lane_id.eq(0)), k.loop(2) as phase:
        k.mbarrier.test_wait(p, b, phase)
        k.mem.store(out[phase], p)


@trial("arrive-counts", "Lanes arrive by 1 and by 2 in turns, 48 in all, on a count of 24", "A32",
       read=phases)  # fmt: skip
def lanes_arrive_by_different_counts(k: Builder) -> None:
    k.launch(warps=1)
    b, p = _barrier(k, 24), k.var("p", 0)
    out = k.tensor("out", s32, (1,))
    k.mbarrier.arrive(b, 1 + (k.lane_id & 1))
    k.sync_warp()
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.test_wait(p, b, 0)
        k.mem.store(out[0], p)


@trial("arrive-remote", "24 lanes arrive on a count of 16 of another CTA, then 8", "A32",
       read=phases)  # fmt: skip
def lanes_arrive_far_away(k: Builder) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    b, out = k.mbarriers("b"), k.tensor("out", s32, (2,))
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.init(b, 16)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(1)):
        with k.if_(k.lane_id < 24):
            k.mbarrier.arrive(b.at(0), scope="cluster")
        k.sync_warp()
        with k.if_(k.lane_id < 8):
            k.mbarrier.arrive(b.at(0), scope="cluster")
    with k.else_(), k.if_(k.lane_id.eq(0)):
        k.mbarrier.wait(b, 0, scope="cluster")
        k.mem.store(out[0], 1)
        k.mbarrier.wait(b, 1, scope="cluster")
        k.mem.store(out[1], 1)
    k.cluster.sync()


@trial("arrive-copies", "32 lanes' `cp.async` arrive on a count of 24", "C6, A32", read=phases)
def copies_of_lanes_arrive(k: Builder) -> None:
    k.launch(warps=1)
    b, out, p = _barrier(k, 24), k.tensor("out", s32, (1,)), k.var("p", 0)
    g, s = k.tensor("g", s32, (32, 4)), k.shared("s", s32, (32, 4))
    k.cp_async.copy(s, g)
    k.cp_async.mbarrier_arrive(b, noinc=True)
    k.cp_async.wait_all()
    k.time.sleep(5000)
    k.sync_warp()
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.test_wait(p, b, 0)
        k.mem.store(out[0], p)


@trial("tx-st-async", "24 lanes' `st.async` complete 4 bytes of 64 each, then 32 are expected",
       "A12, A32", read=phases)  # fmt: skip
def remote_stores_of_lanes(k: Builder) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    b, s, out = k.mbarriers("b"), k.shared("s", s32, (24,)), k.tensor("out", s32, (2,))
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.init(b, 1)
        k.fence.mbarrier_init()
        with k.if_(k.cluster_rank.eq(0)):
            k.mbarrier.arrive_expect_tx(b, 64)
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(1)), k.if_(k.lane_id < 24):
        k.cluster.st_async(s.view().at(0)[k.lane_id], 1, b[0].at(0))
    with k.else_(), k.if_(k.lane_id.eq(0)):
        k.mbarrier.wait(b, 0)
        k.mem.store(out[0], 1)
        k.mbarrier.arrive_expect_tx(b, 32)
        k.mbarrier.wait(b, 1)
        k.mem.store(out[1], 1)
    k.cluster.sync()


@trial("tx-bulk", "24 lanes' bulk copies complete 16 bytes of 256 each, then 128 are expected",
       "A12, B5", read=phases, most=10)  # fmt: skip
def copies_of_lanes(k: Builder) -> None:
    k.launch(warps=1)
    b, out = _barrier(k, 1), k.tensor("out", s32, (2,))
    g, s = k.tensor("g", s32, (24, 4)), k.shared("s", s32, (24, 4))
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.arrive_expect_tx(b, 256)
    k.sync_warp()
    with k.if_(k.lane_id < 24):
        k.bulk.load(s[k.lane_id], g[k.lane_id], b)
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.wait(b, 0)
        k.mem.store(out[0], 1)
        k.mbarrier.arrive_expect_tx(b, 128)
        k.mbarrier.wait(b, 1)
        k.mem.store(out[1], 1)


@trial("arrive-halves", "Two warps of 32 lanes arrive on a count of 48", "A32", read=phases)
def a_phase_ends_between_lanes(k: Builder) -> None:
    """By the text a phase is over and 16 of the next are missing."""
    k.launch(warps=2)
    b, out = _barrier(k, 48), k.tensor("out", s32, (1,))
    k.mbarrier.arrive(b)
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.wait(b, 0)
        k.mem.store(out[0], 1)


@trial("arrive-branches", "Two branches of 16 and 8 lanes arrive on a count of 16, then 8", "A32",
       read=phases)  # fmt: skip
def branches_arrive(k: Builder) -> None:
    """Two instructions: each is an event of its own."""
    k.launch(warps=1)
    b, p, q = _barrier(k, 16), k.var("p", 0), k.var("q", 0)
    out = k.tensor("out", s32, (2,))
    with k.if_(k.lane_id < 16):
        k.mbarrier.arrive(b)
    with k.else_():
        k.mbarrier.wait(b, 0)
        with k.if_(k.lane_id < 24):
            k.mbarrier.arrive(b)
    k.sync_warp()
    with k.if_(k.lane_id < 8):
        k.mbarrier.arrive(b)
    k.sync_warp()
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.test_wait(p, b, 0)
        k.mem.store(out[0], 1 - p)
        k.mbarrier.test_wait(q, b, 1)
        k.mem.store(out[1], q)


def mask(out: NDArray[Any]) -> str:
    """Which lanes' arrivals counted for the phase that is over."""
    lanes = [lane for lane, over in enumerate(out.tolist()) if over]
    if lanes == list(range(len(lanes))):
        return f"the first {len(lanes)} lanes"
    if lanes == list(range(32 - len(lanes), 32)):
        return f"the last {len(lanes)} lanes"
    return f"{len(lanes)} other lanes"


@trial("arrive-tokens", "32 lanes arrive on a count of 24: whose arrivals end phase 0?", "A20, A26",
       read=mask)  # fmt: skip
def tokens_of_lanes(k: Builder) -> None:
    k.launch(warps=1)
    b, out, p = _barrier(k, 24), k.tensor("out", s32, (32,)), k.var("p", 0)
    token = k.var("token", 0, u64)
    k.mbarrier.arrive(b, token=token)
    k.sync_warp()
    k.mbarrier.test_wait(p, b, token=token)
    k.mem.store(out[k.lane_id], p)


def tickets(out: NDArray[Any]) -> str:
    """In which order lanes drew."""
    drawn = out.tolist()
    if sorted(drawn) != list(range(len(drawn))):
        return "not one number each"
    if drawn == sorted(drawn):
        return "in the order of lanes"
    return "in the reverse order" if drawn == sorted(drawn)[::-1] else "in another order"


@trial("tickets-shared", "In which order does one `atom.add` of 32 lanes happen? (shared)", "H4",
       read=tickets, space="shared")  # fmt: skip
@trial("tickets-global", "In which order does one `atom.add` of 32 lanes happen? (global)", "H4",
       read=tickets, space="global")  # fmt: skip
def tickets_of_lanes(k: Builder, *, space: str) -> None:
    k.launch(warps=1)
    out, r = k.tensor("out", s32, (32,)), k.var("r", 0)
    count = k.shared("count", s32, (1,)) if space == "shared" else k.tensor("count", s32, (1,))
    if space == "shared":
        with k.if_(k.lane_id.eq(0)):
            k.mem.store(count[0], 0)
    k.sync_threads()
    k.mem.atomic(count[0], "add", 1, result=r)
    k.mem.store(out[k.lane_id], r)


@trial("store-same-word", "Which of 32 lanes' numbers stays in one word?", "H6, H23",
       read=lambda out: f"lane {int(out[0])}")  # fmt: skip
def one_word(k: Builder) -> None:
    k.launch(warps=1)
    s, out, r = k.shared("s", s32, (1,)), k.tensor("out", s32, (1,)), k.var("r", 0)
    k.mem.store(s[0], k.lane_id)
    k.sync_warp()
    with k.if_(k.lane_id.eq(0)):
        k.mem.load(r, s[0])
        k.mem.store(out[0], r)


@trial("try-wait", "Does `try_wait` give up on a phase that stays open?", "A25", hint=None,
       read=lambda out: "gives up" if not out[0] else "says yes")  # fmt: skip
@trial("try-wait-hint", "The same with a hint of 20 microseconds", "A25", hint=20_000,
       read=lambda out: "gives up" if not out[0] else "says yes")  # fmt: skip
@trial("try-wait-short", "The same with a hint of 1 nanosecond", "A25", hint=1,
       read=lambda out: "gives up" if not out[0] else "says yes")  # fmt: skip
def a_phase_that_stays_open(k: Builder, *, hint: int | None) -> None:
    k.launch(warps=1)
    b, p, out = _barrier(k, 1), k.var("p", 0), k.tensor("out", s32, (1,))
    took, start, now = k.tensor("took", u64, (1,)), k.var("start", 0, u64), k.var("now", 0, u64)
    with k.elected():
        k.time.read(start, "globaltimer")
        k.mbarrier.try_wait(p, b, 0, time_hint=hint)
        k.time.read(now, "globaltimer")
        k.mem.store(out[0], p)
        k.mem.store(took[0], now - start)


@trial("try-wait-late", "Does one `try_wait` see an arrival that comes while it waits?", "A25",
       read=lambda out: "gives up" if not out[0] else "says yes")  # fmt: skip
def an_arrival_in_time(k: Builder) -> None:
    k.launch(warps=2)
    b, p, out, d = _barrier(k, 1), k.var("p", 0), k.tensor("out", s32, (1,)), k.var("d", 0, u32)
    delay = k.tensor("delay", u32, (1,))
    with k.role("waits", 0), k.elected():
        k.mbarrier.try_wait(p, b, 0)
        k.mem.store(out[0], p)
    with k.role("arrives", 1), k.elected():
        k.mem.load(d, delay[0])
        k.time.sleep(d * 4)
        k.mbarrier.arrive(b)
