"""Tiles whose rows lie between those of other tiles: few intervals of all clusters are compared."""

from __future__ import annotations

import pytest

from tilesim import check
from tilesim.arith.types import u32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.sim.affine import footprints

CTAS, ROWS, WIDTH = 100, 8, 64


@kernel(warps=1)
def rows(k: Builder, *, last: int = 0) -> None:
    """Each CTA writes its columns of some rows; the last one begins ``last`` columns earlier."""
    k.launch(grid=CTAS)
    c = k.tensor("C", u32, (ROWS * CTAS * WIDTH,))
    first = k.var("first", k.cta_x * WIDTH)
    with k.if_(k.cta_x.eq(CTAS - 1)):
        k.assign(first, first - last)
    for row in range(ROWS):
        for half in range(0, WIDTH, 32):
            k.mem.store(c[first + (row * CTAS * WIDTH + half) + k.lane_id], k.cta_x)


def test_intervals_that_follow_each_other_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprints, "MAX_BOXES", CTAS * ROWS * 3 // 2)
    assert check(rows.build()).verdict == "proved"
    report = check(rows.build(last=1))
    assert (report.verdict, {f.rule for f in report.findings}) == ("failed", {"race"})
    assert {p.cta for f in report.findings for p in f.participants} == {CTAS - 2, CTAS - 1}
