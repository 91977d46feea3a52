"""mbarrier.inval is a write: what was done with the barrier happens before it, not only in time."""

from __future__ import annotations

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, u32
from tilesim.checker import check
from tilesim.ir.ops.mbarrier import ArriveSem


@kernel(warps=3)
def ended(k: Builder, *, sem: ArriveSem = "release") -> None:
    """A warp tells another one that it is done with a barrier, by a barrier of its own."""
    b, told = k.mbarriers("b"), k.mbarriers("told")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.init(told, 1)
    k.sync_threads()
    with k.role("user", 1), k.elected():
        k.mbarrier.arrive(b)
        k.mbarrier.arrive(told, sem=sem)
    with k.role("ender", 2), k.elected():
        k.mbarrier.wait(told, 0)
        k.mbarrier.inval(b)


def test_end_that_comes_after_an_arrival_in_time_only() -> None:
    report = check(ended.build(sem="relaxed"))
    assert report.verdict == "failed"
    finding = found(report, "barrier-lifetime")
    assert "although it comes later" in finding.message
    assert {role for role, _ in sites(finding)} == {"user", "ender"}
    assert check(ended.build()).verdict == "proved"


@kernel(warps=1)
def outlived(k: Builder, *, waits: bool = True, hands_on: bool = False) -> None:
    """CTA 1 arrives on a barrier of CTA 0 and exits, which counts for the cluster barrier."""
    k.launch(grid=2, cluster=2)
    bar, word, value = k.mbarriers("bar"), k.shared("word", u32, (1,)), k.var("value", 0, u32)
    with k.elected():
        k.mbarrier.init(bar, 1)
    k.fence.mbarrier_init()
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(1)), k.elected():
        if hands_on:
            k.mem.store(word[0].at(0), 1)
        k.mbarrier.arrive(bar.at(0), sem="relaxed")
    with k.if_(k.cluster_rank.eq(0)):
        if waits:
            k.cluster.sync()
        if hands_on:
            k.mem.load(value, word[0])


def test_an_exit_comes_before_the_round_it_counts_for_in_time_only() -> None:
    assert check(outlived.build(), strict="ptx").verdict == "proved"
    finding = found(check(outlived.build(waits=False)), "peer-exit")
    assert ("warp 0", at(outlived, "k.mbarrier.arrive(")) in sites(finding)
    race = found(check(outlived.build(hands_on=True)), "race")
    assert {line for _, line in sites(race)} == {
        at(outlived, "k.mem.store("), at(outlived, "k.mem.load("),
    }  # fmt: skip


@kernel(warps=1)
def by_lanes(k: Builder, *, early: bool = False) -> None:
    """CTA 1 tells lane 0 of CTA 0 that it runs; ``early``: lane 1 does not wait to hear of it."""
    k.launch(grid=2, cluster=2)
    flag, words = k.tensor("flag", u32, (1,)), k.shared("words", u32, (32,))
    seen = k.var("seen", 0, u32)
    with k.if_(k.cluster_rank.eq(1)), k.elected():
        k.mem.store(flag[0], 1, sem="release", scope="gpu")
    with k.if_(k.cluster_rank.eq(0)):
        with k.if_(k.lane_id.eq(0), sync=False):
            with k.while_(seen.eq(0)):
                k.mem.load(seen, flag[0], sem="acquire", scope="gpu")
            k.mem.store(words[0].at(1), 1)
        if not early:
            k.sync_warp()
        with k.if_(k.lane_id.eq(1)):
            k.mem.store(words[1].at(1), 1)
    k.cluster.sync()


def test_lanes_know_for_themselves_that_a_peer_has_started() -> None:
    assert check(by_lanes.build(), strict="ptx").findings == ()
    finding = found(check(by_lanes.build(early=True)), "peer-start")
    assert "(D8)" in finding.message
    assert {line for _, line in sites(finding)} == {at(by_lanes, "k.mem.store(words[1]")}


@kernel(target="sm_100a", warps=1)
def last_commit(k: Builder, *, waits: bool = False) -> None:
    """A commit that nobody waits for before its barrier is over, and many that are waited for."""
    tile, slot = k.shared("tile", u32, (32, 4)), k.shared("slot", u32, (1,))
    done, free, address = k.mbarriers("done"), k.mbarriers("free"), k.var("address", dtype=u32)
    with k.elected():
        k.mbarrier.init(done, 1)
        k.mbarrier.init(free, 1)
        k.fence.mbarrier_init()
    for i in range(4):
        k.mem.store(tile[k.lane_id, i], 0)
    k.fence.proxy_async()
    k.tcgen05.alloc(slot, 32)
    k.sync_warp()
    k.mem.load(address, slot[0])
    first, columns = (k.tcgen05.tensor(address + n, u32, (32, 4)) for n in (0, 4))
    with k.elected():
        k.tcgen05.cp(first, tile, "32x128b", multicast="warpx4")
        k.tcgen05.commit(free)
    with k.loop(10) as n:
        with k.elected():
            k.tcgen05.cp(columns, tile, "32x128b", multicast="warpx4")
            k.tcgen05.commit(done)
        k.mbarrier.wait(done, n & 1)
        k.tcgen05.fence_after_thread_sync()
    if waits:
        k.mbarrier.wait(free, 0)
    k.sync_warp()
    with k.elected():
        k.mbarrier.inval(free)
    k.sync_warp()
    k.tcgen05.dealloc(address, 32)


def test_what_may_come_last_is_held_back() -> None:
    """In one schedule: that of a failed condition I, whose late operation moves when it must."""
    assert check(last_commit.build(waits=True)).verdict == "proved"
    report = check(last_commit.build(), schedules=1, budget=0)
    assert report.verdict == "failed"
    assert report.rules == {"barrier-lifetime"}
    commit = at(last_commit, "k.tcgen05.commit(free)")
    assert commit in {line for _, line in sites(report.findings[0])}
