"""Whether accesses of skipped repetitions meet, against a look at every pair."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from tilesim.sim.affine import families
from tilesim.sim.affine.families import Family, meet_themselves

Corners = NDArray[np.int64]


def boxes(draw: np.random.Generator, count: int, dims: int) -> tuple[Corners, Corners]:
    """[low, high) of some boxes."""
    lows = draw.integers(0, 30, (count, dims))
    return lows, lows + draw.integers(1, 5, (count, dims))


@pytest.mark.parametrize("pairs", [1, 7, 1 << 18])
def test_boxes_that_meet_in_two_repetitions(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(families, "_PAIRS", pairs)
    draw = np.random.default_rng(pairs)
    found = 0
    for _ in range(150):
        dims, times = int(draw.integers(1, 4)), int(draw.integers(1, 5))
        steps = draw.integers(-60, 60, (times + 1, dims))
        one, other = (
            Family(*boxes(draw, int(draw.integers(1, 4)), dims), times, None, steps, write=True)
            for _ in range(2)
        )
        meet = any(
            bool(((low < end) & (start < high)).all())
            for a, b in ((one, one), (one, other), (other, other))
            for (i, by), (j, to) in product(enumerate(steps), enumerate(steps))
            if i != j
            for low, high in zip(a.lows + by, a.highs + by, strict=True)
            for start, end in zip(b.lows + to, b.highs + to, strict=True)
        )
        found += meet
        assert meet_themselves([one, other]) is meet
    assert 15 < found < 135


def test_lists_of_boxes_that_meet() -> None:
    draw = np.random.default_rng(3)
    still = np.zeros(2, dtype=np.int64)
    for _ in range(200):
        steps = draw.integers(-40, 40, (4, 2))
        one = Family(*boxes(draw, 2, 2), 3, None, steps, write=True)
        other = Family(*boxes(draw, 1, 2), 0, still, None, write=False)
        meet = any(
            bool(((low < other.highs[0]) & (other.lows[0] < high)).all())
            for low, high in zip(*one.listed(), strict=True)
        )
        assert one.meets_family(other) is meet
        assert one.meets(other.lows, other.highs) is meet
