"""fence.mbarrier_init hands over the inits that its thread made before it, by what the thread
publishes after it (A7, D6): a matter of order, not of time."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, s32
from tilesim.checker import check
from tilesim.ir.program import Strict

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


@kernel(warps=2)
def opening(k: Builder, *, fence: str = "before the arrive", sem: str = "relaxed") -> None:
    """Rank 0 initialises a barrier, rank 1 arrives on it; a fence of rank 0 at some place."""
    k.launch(grid=2, cluster=2)
    b = k.mbarriers("b")
    if fence == "before the init":
        with k.one_thread():
            k.fence.mbarrier_init()
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
        if fence == "before the arrive":
            k.fence.mbarrier_init()
    if fence == "of another warp":
        with k.one_thread(1):
            k.fence.mbarrier_init()
    if fence == "of another lane":
        with k.role("fencing", 0), k.if_(k.lane_id.eq(7)):
            k.fence.mbarrier_init()
    if fence == "of the whole warp":
        k.fence.mbarrier_init()
    k.cluster.arrive(sem="relaxed" if sem == "relaxed" else "release")
    if fence == "after the arrive":
        with k.one_thread():
            k.fence.mbarrier_init()
    k.cluster.wait()
    with k.role("other", 0), k.if_(k.cluster_rank.eq(1)), k.elected():
        k.mbarrier.arrive(b.at(0), scope="cluster")
    k.cluster.sync()


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize(
    "fence",
    ["missing", "before the init", "of another warp", "of another lane", "after the arrive"],
)
def test_fence_that_does_not_lie_between_publishes_nothing(fence: str, strict: Strict) -> None:
    report = check(opening.build(fence=fence), strict=strict)
    assert report.verdict == "failed"
    assert report.rules == {"init-visibility"}
    finding = found(report, "init-visibility")
    assert sites(finding) == {
        ("other", at(opening, "k.mbarrier.arrive(b.at(0)")),
        ("opener", at(opening, "k.mbarrier.init(b, 1)")),
    }


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize("fence", ["before the arrive", "of the whole warp"])
def test_fence_between_the_init_and_the_arrive_publishes_it(fence: str, strict: Strict) -> None:
    assert check(opening.build(fence=fence), strict=strict).verdict == "proved"


@pytest.mark.parametrize("strict", LEVELS)
def test_release_needs_no_fence(strict: Strict) -> None:
    assert check(opening.build(fence="missing", sem="release"), strict=strict).verdict == "proved"


@kernel(warps=2)
def two_inits(k: Builder, *, late: bool = False) -> None:
    """A fence covers what comes before it, and what its thread publishes after it says so."""
    k.launch(grid=2, cluster=2)
    b = k.mbarriers("b", 2)
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b[0], 1)
        if not late:
            k.mbarrier.init(b[1], 1)
        k.fence.mbarrier_init()
        if late:
            k.mbarrier.init(b[1], 1)
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()
    with k.role("other", 0), k.if_(k.cluster_rank.eq(1)), k.elected():
        k.mbarrier.arrive(b[0].at(0), scope="cluster")
        k.mbarrier.arrive(b[1].at(0), scope="cluster")
    k.cluster.sync()


def test_fence_covers_the_inits_before_it_only() -> None:
    report = check(two_inits.build(late=True))
    assert report.rules == {"init-visibility"}
    assert ("other", at(two_inits, "k.mbarrier.arrive(b[1].at(0)")) in sites(report.findings[0])
    assert check(two_inits.build()).verdict == "proved"


@kernel(warps=2)
def data_behind_the_fence(k: Builder, *, fence: str = "memory") -> None:
    """What was stored before a fence.mbarrier_init is not handed over by it."""
    k.launch(grid=2, cluster=2)
    b = k.mbarriers("b")
    x = k.tensor("x", s32, (2,))
    y = k.var("y")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
        k.mem.store(x[k.cluster_rank], 1)
        k.fence.mbarrier_init()
        if fence == "memory":
            k.fence.memory("acq_rel", "cluster")
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()
    with k.role("other", 1), k.elected():
        k.mem.load(y, x[1 - k.cluster_rank])
        k.mbarrier.arrive(b.at(1 - k.cluster_rank), scope="cluster")
    k.cluster.sync()


def test_fence_hands_over_nothing_but_inits() -> None:
    report = check(data_behind_the_fence.build(fence="none"))
    assert report.rules == {"race"}
    assert sites(report.findings[0]) == {
        ("opener", at(data_behind_the_fence, "k.mem.store(x[")),
        ("other", at(data_behind_the_fence, "k.mem.load(y, x[")),
    }
    assert check(data_behind_the_fence.build()).verdict == "proved"


@kernel(warps=3)
def onwards(k: Builder, *, wait: bool = True) -> None:
    """Who acquires from somebody that comes after the initialisation comes after it, too."""
    k.launch(grid=2, cluster=2)
    b, go = k.mbarriers("b"), k.mbarriers("go")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.init(go, 1)
        k.fence.mbarrier_init()
    k.cluster.arrive(sem="relaxed")
    with k.role("first", 0):
        k.cluster.wait()
        with k.elected():
            k.mbarrier.arrive(go)
    with k.role("second", 1):
        if wait:
            k.cluster.wait()
        with k.elected():
            k.mbarrier.wait(go, 0)
            k.mbarrier.arrive(b.at(1 - k.cluster_rank), scope="cluster")
        if not wait:
            k.cluster.wait()
    with k.role("third", 2):
        k.cluster.wait()
    k.cluster.sync()


def test_initialisation_is_known_through_others() -> None:
    assert check(onwards.build()).verdict == "proved"
    report = check(onwards.build(wait=False))
    assert report.rules == {"init-visibility"}
    assert ("second", at(onwards, "k.mbarrier.wait(go, 0)")) in sites(report.findings[0])
