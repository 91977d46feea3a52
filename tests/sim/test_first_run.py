"""Which clusters the first run of a check is of."""

from __future__ import annotations

import pytest

from tilesim import check
from tilesim.kernels.bugs.launch_control import tile_ids


@pytest.mark.parametrize(
    ("short", "long_", "verdict"),
    [(1_280, 16_384, "proved"), (0, 16_384, "proved"), (0, 0, "bounded")],
    ids=["all at once", "all after those that stand for others", "those that stand for others"],
)
def test_all_are_run_where_those_that_stand_for_others_leave_anything_open(
    short: int, long_: int, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clusters that do the work of others stand for nobody."""
    monkeypatch.setattr("tilesim.checker.verdict._SHORT", short)
    monkeypatch.setattr("tilesim.checker.verdict._LONG", long_)
    report = check(tile_ids, strict="ptx")
    assert report.verdict == verdict
    open_ = "only 6 of 6 CTAs were run: clusters do the work of others (clusterlaunchcontrol)"
    assert (open_ in report.reasons) is (verdict == "bounded")
