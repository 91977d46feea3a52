"""Residue classes between bounds: what operations give has all results, against trying them."""

from __future__ import annotations

import random

import pytest

from tilesim.analysis.number_sets import Numbers


def some(rng: random.Random) -> Numbers:
    """A set of small numbers."""
    step, at = rng.choice([0, 1, 2, 3, 8]), rng.randrange(-9, 10)
    if not step:
        return Numbers.single(at)
    low = rng.randrange(-20, 10)
    return Numbers(step, at, low, low + rng.randrange(20))


@pytest.mark.parametrize("seed", range(200))
def test_all_results_are_in_what_operations_give(seed: int) -> None:
    rng = random.Random(seed)
    one, other, number = some(rng), some(rng), rng.randrange(-9, 17)
    mine, theirs = ([n for n in range(-40, 40) if n in which] for which in (one, other))
    assert all(n in one | other for n in (*mine, *theirs))
    assert all(a + b in one + other for a in mine for b in theirs)
    assert all(a * number in one * number for a in mine)
    assert all(a & number in one & number for a in mine)
    assert [n for n in range(-40, 40) if n in one.within(-3, number)] == [
        n for n in mine if -3 <= n <= number
    ]


def test_what_is_no_result_is_left_out() -> None:
    spots = Numbers(8, 0, 0, 24) + Numbers.single(4)
    assert [n for n in range(64) if n in spots] == [4, 12, 20, 28]
    assert [n for n in range(64) if n in Numbers.single(4) | Numbers.single(16)] == [4, 16]
    assert [n for n in range(64) if n in Numbers(1, 0) & 24] == [0, 8, 16, 24]
    assert [n for n in range(-64, 64) if n in Numbers(1, 0, 0, 20) & -16] == [0, 16]
