"""Counts and bytes that a kernel computes are checked as literal ones are (A3)."""

from __future__ import annotations

import pytest

import tilesim as ts
from tilesim import Builder, Program
from tilesim.checker import check


@ts.kernel(warps=1)
def computed(k: Builder, *, arrivals: int = 1, nbytes: int = 0, lanes: bool = False) -> None:
    """Arrives and expects with numbers from registers; with ``lanes`` only lane 0 has them."""
    bar = k.mbarriers("bar")
    first = k.lane_id.eq(0)
    count, expected = k.var("count", arrivals), k.var("expected", nbytes)
    with k.one_thread():
        k.mbarrier.init(bar, 64)
    k.sync_warp()
    k.mbarrier.arrive(bar, ts.select(first, count, 1) if lanes else count)
    k.mbarrier.expect_tx(bar, ts.select(first, expected, 0) if lanes else expected)


@pytest.mark.parametrize("lanes", [False, True])
def test_in_range(lanes: bool) -> None:
    assert ts.check(computed.build(lanes=lanes)).verdict == "proved"


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("arrivals", [0, -3, 1 << 20])
def test_arrival_count_out_of_range(arrivals: int, lanes: bool) -> None:
    report = ts.check(computed.build(arrivals=arrivals, lanes=lanes))
    assert report.rules == {"over-arrival"}
    assert f"arrival count {arrivals} is outside 1..1048575" in report.findings[0].message


@pytest.mark.parametrize("lanes", [False, True])
def test_bytes_out_of_range(lanes: bool) -> None:
    report = ts.check(computed.build(nbytes=-16, lanes=lanes))
    assert report.rules == {"tx-mismatch"}
    assert "tx-count -16 is outside 0..1048575" in report.findings[0].message


# arrive_drop: in which phase it counts decides how many arrivals the next one takes (A16).


def drop_and_arrive(count: int, *, dropper: int, delay: int) -> Program:
    """One thread drops out of a barrier, another arrives on it; no warp waits."""
    k = Builder("drops", warps=2)
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, count)
    k.sync_threads()
    with k.role("dropper", dropper):
        with k.loop(delay):
            k.sync_warp()
        with k.elected():
            k.mbarrier.arrive_drop(b)
    with k.role("arriver", 1 - dropper), k.elected():
        k.mbarrier.arrive(b)
    return k.finish()


@pytest.mark.parametrize("dropper", [0, 1])
@pytest.mark.parametrize("delay", [0, 50])
def test_arrival_on_a_barrier_that_everybody_may_have_left_is_found(
    dropper: int, delay: int
) -> None:
    """Count 1: if the drop comes first the barrier expects no arrival, and this one overflows."""
    report = check(drop_and_arrive(1, dropper=dropper, delay=delay))
    assert report.verdict == "failed"
    (over,) = (f for f in report.findings if f.rule == "over-arrival")
    assert over.roles[0] == "arriver"


@pytest.mark.parametrize("dropper", [0, 1])
def test_drop_and_arrival_of_one_phase_are_right_in_any_order(dropper: int) -> None:
    report = check(drop_and_arrive(2, dropper=dropper, delay=0))
    assert report.verdict == "proved"
