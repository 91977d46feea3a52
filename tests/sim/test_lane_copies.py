"""Groups of copies are per lane: what one has waited for is known to it, and to it alone."""

from __future__ import annotations

import pytest

import tilesim as ts
from tests.kernels.evidence import at, found, sites
from tilesim import Builder, ds
from tilesim.arith.types import u32
from tilesim.ir.program import Strict


@ts.kernel(warps=2)
def two_stores(k: Builder, *, waits: int = 3) -> None:
    """Lanes 0 and 3 store a tile each; one of them waits and hands tile 1 back."""
    tiles, out = k.shared("tiles", u32, (2, 32)), k.tensor("out", u32, (2, 32))
    done = k.mbarriers("done")
    with k.one_thread():
        k.mbarrier.init(done, 1)
    with k.role("filler", 1):
        k.mem.store(tiles[0, k.lane_id], 1)
        k.mem.store(tiles[1, k.lane_id], 1)
        k.fence.proxy_async("shared::cta")
    k.sync_threads()
    with k.role("storer", 0):
        with k.if_(k.lane_id.eq(0)):
            k.bulk.store(out[0], tiles[0])
            k.bulk.commit_group()
        with k.if_(k.lane_id.eq(3)):
            k.bulk.store(out[1], tiles[1])  # stores
            k.bulk.commit_group()
        with k.if_(k.lane_id.eq(waits)):
            k.bulk.wait_group(0)
            k.mbarrier.arrive(done)
        for lane in (0, 3):
            with k.if_(k.lane_id.eq(lane)):
                k.bulk.wait_group(0)
    with k.role("filler", 1):
        k.mbarrier.wait(done, 0)
        k.mem.store(tiles[1, k.lane_id], 2)  # refills


def test_a_lane_knows_of_its_own_finished_store() -> None:
    """Although an earlier one of another lane is still under way."""
    assert ts.check(two_stores.build()).verdict == "proved"


def test_a_lane_does_not_wait_for_the_store_of_another_one() -> None:
    report = ts.check(two_stores.build(waits=0))
    assert report.verdict == "failed"
    assert sites(found(report, "race")) == {
        ("storer", at(two_stores, "# stores")), ("filler", at(two_stores, "# refills")),
    }  # fmt: skip


@ts.kernel(warps=2)
def tracked(k: Builder, *, mine: int = 0, lanes: int = 1) -> None:
    """Lanes copy a word each; some let an arrival wait for theirs; another warp reads one."""
    source, bar = k.tensor("source", u32, (32,)), k.mbarriers("bar")
    words, value = k.shared("words", u32, (32,), align=16), k.var("value", 0, dtype=u32)
    with k.one_thread():
        k.mbarrier.init(bar, lanes)
    k.sync_threads()
    with k.role("copies", 0):
        k.cp_async.copy(words[k.lane_id], source[k.lane_id], size=4)
        with k.if_(k.lane_id < lanes):
            k.cp_async.mbarrier_arrive(bar, noinc=True)
        k.cp_async.wait_all()
    with k.role("reads", 1):
        k.mbarrier.wait(bar, 0)
        k.mem.load(value, words[mine])


@pytest.mark.parametrize("lanes", [1, 32])
def test_an_arrival_waits_for_the_copies_of_its_lane(lanes: int) -> None:
    """And not for those that other lanes made with the same instruction (C6)."""
    assert ts.check(tracked.build(lanes=lanes, mine=lanes - 1)).verdict == "proved"


def test_an_arrival_does_not_wait_for_the_copy_of_another_lane() -> None:
    report = ts.check(tracked.build(mine=1))
    assert report.verdict == "failed"
    assert sites(found(report, "race")) == {
        ("copies", at(tracked, "k.cp_async.copy(")), ("reads", at(tracked, "k.mem.load(")),
    }  # fmt: skip


@ts.kernel(warps=1)
def into_words(k: Builder, *, stride: int = 1) -> None:
    """Each lane copies four words, ``stride`` quarters of them behind those of the lane before."""
    source = k.tensor("source", u32, (32, 4))
    words, value = k.shared("words", u32, (128,), align=16), k.var("value", 0, dtype=u32)
    k.cp_async.copy(words[ds(k.lane_id * stride, 4)], source[k.lane_id], size=4)
    k.cp_async.wait_all()
    k.sync_warp()
    k.mem.load(value, words[k.lane_id])


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_copies_of_lanes_to_one_place_race(strict: Strict) -> None:
    assert ts.check(into_words.build(stride=4), strict=strict).verdict != "failed"
    copy = at(into_words, "k.cp_async.copy(")
    for stride in (0, 1, 3):
        wrong = ts.check(into_words.build(stride=stride), strict=strict)
        assert sites(found(wrong, "race")) == {("warp 0", copy)}
