"""By the text any lane may be elected (E12): what only some choices do is not proved at `ptx`, and
what the first lane does wrong fails there, too."""

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

import tilesim as ts
from tilesim import Builder
from tilesim.analysis.cfg import graph_of
from tilesim.analysis.elected_lane import depends_on_elected
from tilesim.arith.types import u32
from tilesim.transforms.lower import lower

from .sites import BOTH, sites

ELECTED = -1


def _only(k: Builder, lane: int) -> AbstractContextManager[object]:
    return k.elected(sync=False) if lane == ELECTED else k.if_(k.lane_id.eq(lane))


@ts.kernel(warps=2)
def own_barrier(k: Builder, *, waits: int = 0, own: bool = True) -> None:
    """The elected lane arrives at the mbarrier of its number, or at the one waited for."""
    ready = k.mbarriers("ready", 32)
    with k.one_thread(), k.loop(32) as i:
        k.mbarrier.init(ready[i], 1)
    k.sync_threads()
    with k.role("arrives", 0), k.elected():
        k.mbarrier.arrive(ready[k.lane_id if own else waits])
    with k.role("waits", 1):
        k.mbarrier.wait(ready[waits], 0)  # wait


@ts.kernel(warps=2)
def own_number(k: Builder, *, wanted: int = 0, own: bool = True) -> None:
    """The elected lane leaves its number in memory, and what is read there decides."""
    done = k.mbarriers("done")
    number = k.shared("number", u32, (1,))
    seen = k.var("seen", 0, u32)
    with k.one_thread():
        k.mbarrier.init(done, 1)
    with k.role("arrives", 0), k.elected():
        k.mem.store(number[0], k.lane_id if own else wanted)
    k.sync_threads()
    with k.role("arrives", 0), k.one_thread(0):
        k.mem.load(seen, number[0])
        with k.if_(seen.eq(wanted)):
            k.mbarrier.arrive(done)
    with k.role("waits", 1):
        k.mbarrier.wait(done, 0)  # wait


@ts.kernel(warps=2)
def staged(k: Builder, *, issues: int = ELECTED, waits: int = ELECTED, meet: bool = False) -> None:
    """One lane stores a tile and another one waits for it, before it is filled again; that they
    meet in between hands no groups over."""
    tile = k.shared("tile", u32, (32,))
    out = k.tensor("out", u32, (32,))
    with k.role("filler", 1):
        k.mem.store(tile[k.lane_id], 1)
        k.fence.proxy_async("shared::cta")
    k.sync_threads()
    with k.role("storer", 0):
        with _only(k, issues):
            k.bulk.store(out, tile)  # issue
            k.bulk.commit_group()
        if meet:
            k.sync_warp()
        with _only(k, waits):
            k.bulk.wait_group(0)
    k.sync_threads()
    with k.role("filler", 1):
        k.mem.store(tile[k.lane_id], 2)  # refill


@ts.kernel(warps=1)
def own_word(k: Builder) -> None:
    """Right whichever lane is elected, but no run shows it."""
    words = k.shared("words", u32, (32,))
    with k.elected():
        k.mem.store(words[k.lane_id], 1)  # word


@ts.kernel(warps=2)
def relaxed_wait(k: Builder, *, reader: int = 0, fence: bool = True, meet: bool = True) -> None:
    """The elected lane waits relaxed, and others fence: which acts for their own operations."""
    full = k.mbarriers("full")
    data = k.shared("data", u32, (1,))
    seen = k.var("seen", 0, u32)
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.role("producer", 0), k.one_thread(0):
        k.mem.store(data[0], 7)
        k.mbarrier.arrive(full)
    with k.role("consumer", 1):
        with k.elected(sync=False):
            k.mbarrier.wait(full, 0, sem="relaxed")
            if not fence:
                k.fence.memory("acq_rel", "cta")
        if meet:
            k.sync_warp()
        if fence:
            k.fence.memory("acq_rel", "cta")
        with k.if_(k.lane_id.eq(reader)):
            k.mem.load(seen, data[0])


@pytest.mark.parametrize("kernel", [own_barrier, own_number])
@pytest.mark.parametrize("lane", [0, 31])
def test_a_barrier_or_a_number_of_the_elected_lane(kernel: ts.Kernel, lane: int) -> None:
    """Whichever lane is waited for, another one may be elected."""
    name = "waits" if kernel is own_barrier else "wanted"
    wrong = [
        (
            "deadlock",
            {
                (
                    "waits",
                    f"k.mbarrier.wait({'ready[waits]' if name == 'waits' else 'done'}, 0)  # wait",
                )
            },
        )
    ]
    practice = ts.check(kernel.build(**{name: lane}))
    if lane:
        assert sites(practice, kernel.function) == wrong
    else:
        assert practice.said == "proved, leaning on E12"
    report = ts.check(kernel.build(**{name: lane}), strict="ptx")
    assert sites(report, kernel.function) == wrong
    right = kernel.build(**{name: lane}, own=False)
    assert ts.check(right).said == "proved"
    assert ts.check(right, strict="ptx").verdict == "proved"


def test_the_schedule_with_another_lane_is_replayed() -> None:
    program = own_barrier.build(waits=31)
    report = ts.check(program, strict="ptx")
    assert "elect.sync chooses the first lane" in report.covers
    assert report.witness is not None
    assert report.witness["first_lane"] is True
    assert [f.rule for f in ts.replay(program, report.witness).findings] == ["deadlock"]
    report = ts.check(own_barrier.build(waits=0), strict="ptx")
    assert report.witness is not None
    assert "first_lane" not in report.witness


@pytest.mark.parametrize("meet", [False, True])
@pytest.mark.parametrize("lane", [0, 31])
@pytest.mark.parametrize("elected", ["issues", "waits"])
def test_groups_stay_with_the_lane_that_is_elected(elected: str, lane: int, meet: bool) -> None:
    other = "waits" if elected == "issues" else "issues"
    program = staged.build(**{elected: ELECTED, other: lane}, meet=meet)
    report = ts.check(program, strict="ptx")
    race = ("race", {("storer", "k.bulk.store(out, tile)  # issue"),
                     ("filler", "k.mem.store(tile[k.lane_id], 2)  # refill")})  # fmt: skip
    assert race in sites(report, staged.function)
    assert ts.check(program).said == ("failed" if lane else "proved, leaning on E12")


@pytest.mark.parametrize("lane", [0, 31, ELECTED])
def test_groups_of_one_lane(lane: int) -> None:
    assert ts.check(staged.build(issues=lane, waits=lane), strict="ptx").verdict == "proved"


def test_what_is_right_for_two_lanes_is_not_proved_for_all() -> None:
    assert ts.check(own_word.build()).said == "proved, leaning on E12"
    report = ts.check(own_word.build(), strict="ptx")
    assert report.verdict == "bounded"
    assert any("which lane elect.sync chooses (E12)" in reason for reason in report.reasons)


@pytest.mark.parametrize("reader", [0, 31])
def test_a_relaxed_wait_is_no_other_lanes(reader: int) -> None:
    """A fence of lane 31 acts for what the elected lane has waited for only if that is lane 31."""
    assert depends_on_elected(graph_of(lower(relaxed_wait.build(reader=reader))))
    report = ts.check(relaxed_wait.build(reader=reader), strict="ptx")
    assert report.verdict != "proved"
    fenced = relaxed_wait.build(reader=reader, fence=False)
    assert not depends_on_elected(graph_of(lower(fenced)))
    assert ts.check(fenced, strict="ptx").verdict == "proved"


@ts.kernel(warps=5)
def handed_on(k: Builder, *, lane: int = 0) -> None:
    """A lane of a fixed number draws, all are told, and the elected one hands it on."""
    count, slot = k.tensor("count", u32, (1,)), k.shared("slot", u32, (1,))
    tile, seen = k.var("tile", k.cta_x, u32), k.var("seen", 0, u32)
    with k.role("producer", 4):
        with k.if_(k.lane_id.eq(lane)):
            k.mem.atomic(count[0], "add", 1, result=tile)
            k.assign(tile, tile + 1)
        k.mem.shuffle(tile, tile, lane)
        with k.elected():
            k.mem.store(slot[0], tile)
    k.sync_threads()
    k.mem.load(seen, slot[0])


def test_what_all_lanes_are_told_is_the_same_in_the_elected_one() -> None:
    """The register differs between lanes before they are told, and not after."""
    for strict in BOTH:
        assert ts.check(handed_on.build(lane=3), strict=strict).said == "proved"


@ts.kernel(warps=2)
def told_by_shuffle(k: Builder, *, lane: int = 0) -> None:
    """All lanes are told what one of them knows, which is whether it was elected."""
    done, own, told = k.mbarriers("done"), k.var("own", 0, u32), k.var("told", 0, u32)
    with k.one_thread():
        k.mbarrier.init(done, 1)
    k.sync_threads()
    with k.role("arrives", 0):
        with k.elected():
            k.assign(own, 1)
        k.mem.shuffle(told, own, lane)
        with k.if_(told.eq(1)), k.one_thread(0):
            k.mbarrier.arrive(done)
    with k.role("waits", 1):
        k.mbarrier.wait(done, 0)  # wait


@pytest.mark.parametrize("lane", [0, 31])
def test_what_is_the_same_in_all_lanes_may_depend_on_the_elected_one(lane: int) -> None:
    program = told_by_shuffle.build(lane=lane)
    wrong = [("deadlock", {("waits", "k.mbarrier.wait(done, 0)  # wait")})]
    assert sites(ts.check(program, strict="ptx"), told_by_shuffle.function) == wrong
    assert ts.check(program).said == ("failed" if lane else "proved, leaning on E12")
