"""Kernels that are wrong for some values only are claimed for none of these (`forall_wrong`)."""

from __future__ import annotations

import pytest

import tilesim as ts
from tests.sim.forall_wrong import Wrong, all_wrong

#: those that are looked at in every run of the tests
_QUICK = frozenset(
    {
        "counter of 8 bits",
        "clamped",
        "rows that meet",
        "drained",
        "strides",
        "groups",
        "added to",
        "one register for two places",
        "shuffled in place",
    }
)


def _marked(wrong: Wrong) -> object:
    marks = () if wrong.name in _QUICK else pytest.mark.slow
    return pytest.param(wrong, id=wrong.name, marks=marks)


@pytest.mark.parametrize("wrong", [_marked(wrong) for wrong in all_wrong()])
def test_what_is_wrong_for_a_value_is_not_claimed_for_it(wrong: Wrong) -> None:
    try:
        alone = ts.check(lambda n: wrong.build(n), params={"n": wrong.bad}, schedules=0)
    except ts.InvalidProgram:
        alone = None  # what nobody can run is not claimed either
    assert alone is None or alone.verdict != "proved"
    claim = ts.check(wrong.build, for_all={"n": None}, schedules=0).for_all
    if claim is not None and claim.proved:
        assert claim.limit is not None
        assert claim.limit[0] < wrong.bad
