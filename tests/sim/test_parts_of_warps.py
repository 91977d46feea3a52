"""Parts of a warp that go their own ways: at barriers, in the arms of a branch, and at exit."""

from __future__ import annotations

import pytest

import tilesim as ts
from tests.kernels.evidence import at, found, sites
from tilesim import Builder, Program, check
from tilesim.arith.types import s32


@ts.kernel(warps=2)
def halves(k: Builder, *, same: bool = True, aligned: bool = False) -> None:
    """The halves of a warp come to one barrier at two places (or to two barriers)."""
    words, value = k.shared("words", s32, (32,)), k.var("value", 0)
    with k.role("split", 0):
        with k.if_(k.lane_id < 16):
            k.mem.store(words[k.lane_id], 1)
            k.bar.sync(1, 64, aligned=aligned)  # low
        with k.else_():
            k.mem.store(words[k.lane_id], 2)
            k.bar.sync(1 if same else 2, 64, aligned=aligned)  # high
    with k.role("whole", 1):
        k.bar.sync(1, 64)
        k.mem.load(value, words[k.lane_id])


def test_halves_of_a_warp_at_one_barrier() -> None:
    """A warp has arrived when all of its threads have, wherever they are (E2)."""
    assert ts.check(halves.build()).verdict == "proved"


def test_halves_of_a_warp_at_two_barriers() -> None:
    report = ts.check(halves.build(same=False))
    assert report.verdict == "failed"
    assert {"low", "high"} <= {
        mark for mark in ("low", "high")
        if at(halves, f"# {mark}") in {line for _, line in sites(found(report, "deadlock"))}
    }  # fmt: skip


def test_an_aligned_barrier_has_one_place() -> None:
    report = ts.check(halves.build(aligned=True))
    assert report.verdict == "failed"
    assert report.rules == {"participation"}


@ts.kernel(warps=2)
def leaves(k: Builder) -> None:
    """The other half of the warp exits, before or after the barrier is reached."""
    with k.role("split", 0):
        with k.if_(k.lane_id < 16):
            k.bar.sync(1, 64, aligned=False)
        with k.else_():
            k.exit()
    with k.role("whole", 1):
        k.bar.sync(1, 64)


def test_the_other_half_exits() -> None:
    assert ts.check(leaves.build()).verdict == "proved"


@ts.kernel(warps=2)
def early(k: Builder) -> None:
    """A warp works, and exits before a barrier of the whole CTA: exit releases it."""
    words = k.shared("words", s32, (32,))
    with k.role("early", 0):
        k.mem.store(words[k.lane_id], 1)
        k.bar.arrive(1, 64)
        k.exit()
    with k.role("late", 1):
        k.bar.sync(1, 64)
    k.sync_threads()


def test_exit_releases_a_barrier_of_the_whole_cta() -> None:
    assert ts.check(early.build()).verdict == "proved"


@ts.kernel(warps=2)
def cluster_halves(k: Builder, *, both: bool = True) -> None:
    """The halves of a warp come to the cluster barrier at two places."""
    k.launch(warps=2, grid=2, cluster=2)
    with k.role("split", 0):
        with k.if_(k.lane_id < 16):
            k.cluster.arrive(aligned=False)
            k.cluster.wait(aligned=False)
        with k.else_():
            k.cluster.arrive(aligned=False)
            if both:
                k.cluster.wait(aligned=False)
    with k.role("whole", 1):
        k.cluster.sync()


def test_halves_of_a_warp_at_the_cluster_barrier() -> None:
    assert ts.check(cluster_halves.build()).verdict == "proved"


@ts.kernel(warps=2)
def arms(k: Builder, *, swapped: bool = False, arrives: bool = True) -> None:
    """One arm of a branch waits for the other one."""
    bars = k.mbarriers("bars")
    words, value = k.shared("words", s32, (1,)), k.var("value", 0)
    with k.one_thread():
        k.mbarrier.init(bars, 1)
        k.mem.store(words[0], 0)
    k.sync_threads()
    with k.role("both", 0):
        with k.if_(k.lane_id.eq(0) if swapped else k.lane_id > 0):
            k.mbarrier.wait(bars, 0)  # waits
            k.mem.load(value, words[0])
        with k.else_(), k.if_(k.lane_id.eq(31 if swapped else 0)):
            k.mem.store(words[0], 1)
            if arrives:
                k.mbarrier.arrive(bars)
    with k.role("other", 1), k.elected():
        if not arrives:
            with k.if_(k.warp_id.eq(5)):
                k.mbarrier.arrive(bars)


@pytest.mark.parametrize("swapped", [False, True])
def test_one_arm_waits_for_the_other(swapped: bool) -> None:
    assert ts.check(arms.build(swapped=swapped)).verdict == "proved"


def test_nobody_arrives_for_an_arm() -> None:
    report = ts.check(arms.build(arrives=False))
    deadlock = found(report, "deadlock")
    assert report.verdict == "failed"
    assert sites(deadlock) == {("both", at(arms, "# waits"))}


def nested(*, arrives: bool) -> Program:
    """Lanes part behind a meeting, and some of them once more."""
    k = Builder("nested", warps=1)
    bar = k.mbarriers("bar", 1)
    with k.one_thread():
        k.mbarrier.init(bar[0], 1)
    k.sync_threads()
    with k.elected():
        if arrives:
            k.mbarrier.arrive(bar[0])
    with k.if_(k.lane_id < 2), k.if_(k.lane_id < 1):
        k.mbarrier.wait(bar[0], 0)
    return k.finish()


@pytest.mark.parametrize(("arrives", "verdict"), [(True, "proved"), (False, "failed")])
def test_there_is_room_for_lanes_that_part_among_those_that_have(
    arrives: bool, verdict: str
) -> None:
    report = check(nested(arrives=arrives))
    assert report.verdict == verdict
    assert report.rules == (set() if arrives else {"deadlock"})
