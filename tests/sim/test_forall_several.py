"""Proofs for all values of several parameters."""

from __future__ import annotations

import tilesim as ts
from tests.sim.steady_programs import ring
from tilesim.ir.program import Program


def test_two_parameters_without_end() -> None:
    """All values of one are looked at, the other one is what it is: that is said, and no more."""

    def rings(a: int, b: int) -> Program:
        return ring(a + b)

    report = ts.check(rings, for_all={"a": None, "b": None}, params={"b": 3})
    claim = report.for_all
    assert claim is not None
    assert not claim.proved
    assert claim.wanted == "every a >= 1, every b >= 1"
    assert "b has values without end as well" in str(claim.obstacle)
    assert "with b = 3 it is shown for every a >= 1" in str(claim.obstacle)
    assert "every a" not in report.covers
    assert any("b has values without end" in reason for reason in report.reasons)


def test_two_parameters_without_end_one_of_which_fails() -> None:
    report = ts.check(
        lambda a, b: ring(a + b, faulty=lambda i: i.eq(60)), for_all={"a": None, "b": None}
    )
    assert report.for_all is not None
    assert (report.verdict, report.for_all.at) == ("failed", 60)
