"""Counts and bytes that a kernel computes are checked as literal ones are (A3)."""

from __future__ import annotations

import pytest

import tilesim as ts
from tilesim import Builder


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
