"""arrive_drop: in which phase it counts decides how many arrivals the next one takes (A16)."""

from __future__ import annotations

import pytest

from tilesim import Builder, Program
from tilesim.checker import check


def drop_and_arrive(count: int, *, dropper: int, delay: int) -> Program:
    """One thread drops out of a barrier, another arrives on it; nobody waits."""
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
    """Count 1: if the drop comes first the barrier expects nobody and the arrival overflows."""
    report = check(drop_and_arrive(1, dropper=dropper, delay=delay))
    assert report.verdict == "failed"
    (over,) = (f for f in report.findings if f.rule == "over-arrival")
    assert over.roles[0] == "arriver"


@pytest.mark.parametrize("dropper", [0, 1])
def test_drop_and_arrival_of_one_phase_are_right_in_any_order(dropper: int) -> None:
    report = check(drop_and_arrive(2, dropper=dropper, delay=0))
    assert report.verdict == "proved"
