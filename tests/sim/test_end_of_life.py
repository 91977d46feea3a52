"""mbarrier.inval is a write: what was done with the barrier happens before it, not only in time."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, u32
from tilesim.checker import check
from tilesim.ir.ops.mbarrier import ArriveSem
from tilesim.ir.program import Strict

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


@kernel(warps=3)
def ended(k: Builder, *, use: str = "arrive", sem: ArriveSem = "release") -> None:
    """A warp tells another one that it is done with a barrier, by a barrier of its own."""
    b, told = k.mbarriers("b"), k.mbarriers("told")
    done = k.var("done")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.init(told, 1)
    k.sync_threads()
    with k.role("user", 1), k.elected():
        if use == "arrive":
            k.mbarrier.arrive(b)
        elif use == "wait":
            k.mbarrier.wait(b, 0)
        else:
            k.mbarrier.wait(b, 0, sem="relaxed")
            k.mbarrier.test_wait(done, b, 0)
        k.mbarrier.arrive(told, sem=sem)
    with k.role("ender", 2), k.elected():
        if use != "arrive":
            k.mbarrier.arrive(b)
        k.mbarrier.wait(told, 0)
        k.mbarrier.inval(b)


USES = {"arrive": "k.mbarrier.arrive(b)", "wait": "k.mbarrier.wait(b, 0)", "look": "test_wait("}


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize("use", ["wait", "look"])
def test_end_that_comes_after_a_use_in_time_only(use: str, strict: Strict) -> None:
    report = check(ended.build(use=use, sem="relaxed"), strict=strict)
    assert report.verdict == "failed"
    assert report.rules == {"barrier-lifetime"}
    assert ("user", at(ended, USES[use])) in sites(report.findings[0]) | sites(report.findings[-1])
    assert ("ender", at(ended, "k.mbarrier.inval(b)")) in sites(report.findings[0])
    assert check(ended.build(use=use), strict=strict).verdict == "proved"


def test_end_that_comes_after_an_arrival_in_time_only() -> None:
    report = check(ended.build(sem="relaxed"))
    assert report.verdict == "failed"
    finding = found(report, "barrier-lifetime")
    assert "although it comes later" in finding.message
    assert {role for role, _ in sites(finding)} == {"user", "ender"}
    assert check(ended.build()).verdict == "proved"


@kernel(warps=2)
def seen_to_end(k: Builder, *, waits: bool = True) -> None:
    """Who has waited for a phase comes after its arrivals on this barrier, whatever it acquires."""
    b = k.mbarriers("b")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    with k.role("user", 0), k.elected():
        k.mbarrier.arrive(b)
    with k.role("ender", 1), k.elected():
        if waits:
            k.mbarrier.wait(b, 0, sem="relaxed")
        k.mbarrier.inval(b)


def test_arrivals_that_the_warp_has_waited_for_come_before_the_end() -> None:
    assert check(seen_to_end.build()).verdict == "proved"
    report = check(seen_to_end.build(waits=False))
    assert report.verdict == "failed"
    assert report.rules == {"barrier-lifetime"}


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


@pytest.mark.parametrize("strict", LEVELS)
def test_an_exit_comes_before_the_round_it_counts_for_in_time_only(strict: Strict) -> None:
    assert check(outlived.build(), strict=strict).verdict == "proved"
    finding = found(check(outlived.build(waits=False), strict=strict), "peer-exit")
    assert ("warp 0", at(outlived, "k.mbarrier.arrive(")) in sites(finding)
    race = found(check(outlived.build(hands_on=True), strict=strict), "race")
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


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_know_for_themselves_that_a_peer_has_started(strict: Strict) -> None:
    assert check(by_lanes.build(), strict=strict).findings == ()
    finding = found(check(by_lanes.build(early=True), strict=strict), "peer-exit")
    assert "(D8)" in finding.message
    assert {line for _, line in sites(finding)} == {at(by_lanes, "k.mem.store(words[1]")}
