"""Whether boxes that move meet, against a look at every pair in every repetition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from tilesim.sim.machine import moving_boxes
from tilesim.sim.machine.moving_boxes import Course, Family, may_conflict

Corners = NDArray[np.int64]


def boxes(draw: np.random.Generator, count: int, dims: int) -> tuple[Corners, Corners]:
    """[low, high) of some boxes."""
    lows = draw.integers(0, 30, (count, dims))
    return lows, lows + draw.integers(1, 5, (count, dims))


def rows(steps: Corners) -> tuple[tuple[int, ...], ...]:
    return tuple(map(tuple, steps.tolist()))


def places(family: Family, k: int) -> tuple[Corners, Corners, Corners]:
    """The repetitions, lows and highs of all boxes, for a parameter that is ``k`` steps larger."""
    course = family.course
    turns = np.arange(course.times + k * course.often + 1)
    by = (
        turns[:, None] * np.array(course.iteration)
        if course.steps is None
        else np.array(course.steps)
    )
    by = by + np.array(course.slope) * k
    lows, highs = (np.concatenate(ends + by[:, None]) for ends in (family.lows, family.highs))
    return np.repeat(turns, len(family.lows)), lows, highs


def meet(one: Family, other: Family, most: int = 0) -> bool:
    """Whether boxes meet, in different repetitions if they are of one course."""
    for k in range(most + 1):
        (i, low, high), (j, start, end) = places(one, k), places(other, k)
        both = ((low[:, None] < end) & (start < high[:, None])).all(axis=-1)
        if one.course == other.course:
            both &= i[:, None] != j
        if both.any():
            return True
    return False


@pytest.mark.parametrize("pairs", [1, 7, 1 << 18])
def test_boxes_that_meet_in_two_repetitions(pairs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving_boxes, "_PAIRS", pairs)
    draw = np.random.default_rng(pairs)
    found = 0
    for number in range(150):
        dims, times = int(draw.integers(1, 4)), int(draw.integers(1, 5))
        still = (0,) * dims
        if number % 2:
            course = Course(still, still, times, rows(draw.integers(-60, 60, (times + 1, dims))))
        else:
            course = Course(tuple(draw.integers(-9, 9, dims).tolist()), still, times)
        one, other = (
            Family(*boxes(draw, int(draw.integers(1, 4)), dims), course, write=True)
            for _ in range(2)
        )
        pairs_of = (one, one), (one, other), (other, other)
        truth = any(meet(a, b) for a, b in pairs_of)
        found += truth
        assert may_conflict([one, other]) is truth
        reads = [Family(f.lows, f.highs, f.course, write=False) for f in (one, other)]
        assert not may_conflict(reads)
    assert 15 < found < 135


def test_boxes_of_different_courses() -> None:
    draw = np.random.default_rng(3)
    found = 0
    for number in range(900):
        dims = 1 + number % 2
        still = (0,) * dims
        steps = rows(draw.integers(-15, 15, (4, dims))) if number % 5 == 0 else None
        turn = tuple(draw.integers(-7, 8, dims).tolist())
        one = Family(*boxes(draw, 2, dims), Course(turn, still, 3, steps), write=True)
        other = Family.at_rest(*boxes(draw, 1, dims))
        if number % 3 == 0:
            course = Course(tuple(draw.integers(-7, 8, dims).tolist()), still, 2)
            other = Family(other.lows, other.highs, course, write=False)
        truth = meet(one, other)
        found += truth
        assert one.meets(other) is other.meets(one) is truth
        assert may_conflict([one, other]) is (truth or meet(one, one))
    assert 90 < found < 810


@pytest.mark.parametrize("kind", ["alike", "other loop", "one rests", "rows", "any"])
def test_boxes_that_move_with_a_parameter(kind: str) -> None:
    """What is said to be apart is so for many values; where it is not, most of it meets."""
    draw = np.random.default_rng(len(kind))
    said = met = 0
    for _ in range(250):
        slope = tuple(draw.integers(-3, 4, 2).tolist()) if draw.integers(0, 3) else (0, 0)
        turns = [tuple(draw.integers(-6, 7, 2).tolist()) for _ in range(2)]
        first = Course(turns[0], slope, int(draw.integers(0, 3)), often=int(draw.integers(0, 3)))
        match kind:
            case "alike":
                second = first
            case "other loop":
                second = replace(first, loop=1)
            case "one rests":
                second = Course((0, 0), slope)
            case "rows":
                by = 8 << int(draw.integers(0, 2))
                first = Course((16, 0), (by, 0), 1, often=1)
                second = Course((16, 0), (0, 0), 1, often=int(draw.integers(0, 2)), loop=1)
            case _:
                second = Course(turns[1], tuple(draw.integers(-3, 4, 2).tolist()), 2, often=1)
        one = Family(*boxes(draw, 2, 2), first, write=True)
        other = Family(*boxes(draw, 2, 2), second, write=False)
        apart = not may_conflict([one, other])
        assert apart is not may_conflict([other, one])
        truth = meet(one, one, 12) or meet(one, other, 12)
        said, met = said + apart, met + truth
        assert not (apart and truth)
        if kind in ("alike", "one rests"):
            assert apart or truth or meet(one, one, 60) or meet(one, other, 60)
    assert said > 10
    assert met > 10
