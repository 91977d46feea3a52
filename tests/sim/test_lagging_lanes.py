"""Lanes that wait together and then act apart: some may still be looking when others go on."""

from __future__ import annotations

import pytest

from tilesim import Builder, kernel
from tilesim.checker import check
from tilesim.ir.program import Strict

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


@kernel(warps=2)
def halves(k: Builder, *, sync: bool = True) -> None:
    """Half of a warp leaves the barrier in the first phase; the other half ends the second one."""
    b = k.mbarriers("b")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 32)
    k.sync_threads()
    with k.role("W1", 1):
        with k.if_(k.lane_id < 16):
            k.mbarrier.arrive_drop(b)
        with k.if_(k.lane_id >= 16):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)
        if sync:
            k.sync_warp()
        with k.if_(k.lane_id >= 16):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 1)


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_that_met_have_all_passed(strict: Strict) -> None:
    assert check(halves.build(), strict=strict).verdict == "proved"


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_that_did_not_may_miss_the_phase(strict: Strict) -> None:
    """No schedule of the simulator shows it, so exploration must not say that there is none. That a
    thread has waited (A24) is true all the same: each lane that arrives has waited itself."""
    report = check(halves.build(sync=False), strict=strict)
    assert report.verdict == "bounded"
    assert report.findings == ()
    assert any("(condition C2" in reason for reason in report.reasons)
