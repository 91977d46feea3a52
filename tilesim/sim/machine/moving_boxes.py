"""Boxes of elements or bytes, boxes that move, and whether any two of them meet.

What an instruction accesses in all repetitions, for all values of a parameter, is a `Family`: boxes
with an affine base. `may_conflict` compares those of one memory with each other; `BoxIndex` finds
boxes that lie near another one without looking at all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilesim.records import dataclass

#: per dimension the bounds [low, high) of a box
Box: TypeAlias = "tuple[tuple[int, int], ...]"
_Cell: TypeAlias = "tuple[int, ...]"
T = TypeVar("T")


class BoxIndex(Generic[T]):
    """Items by boxes in a space of integers.

    A box is kept in the cells of a grid whose cells are as large as the box, rounded up to a power
    of two per dimension, so in two of them per dimension at most. There is one grid for every such
    size. A look at one grid costs as many cells as the box that is looked up covers there, or as it
    has, whatever is less. ``steps`` counts the cells that have been looked at or filled.
    """

    def __init__(self) -> None:
        self._grids: dict[_Cell, dict[_Cell, list[T]]] = {}
        self.steps = 0

    def add(self, boxes: Iterable[Box], item: T) -> None:
        """Keeps ``item`` under every one of ``boxes``."""
        for box in boxes:
            size = tuple((high - low - 1).bit_length() for low, high in box)
            grid = self._grids.setdefault(size, {})
            for cell in product(*_cells(box, size)):
                self.steps += 1
                kept = grid.setdefault(cell, [])
                if not kept or kept[-1] is not item:
                    kept.append(item)

    def candidates(self, boxes: Iterable[Box]) -> Iterator[T]:
        """The items with a box in a cell that one of ``boxes`` covers; some of them repeatedly."""
        for box in boxes:
            for size, grid in self._grids.items():
                ranges = _cells(box, size)
                if prod(map(len, ranges)) <= len(grid):
                    for cell in product(*ranges):
                        self.steps += 1
                        yield from grid.get(cell, ())
                else:
                    self.steps += len(grid)
                    for cell, kept in grid.items():
                        if all(at in covered for at, covered in zip(cell, ranges, strict=True)):
                            yield from kept


def _cells(box: Box, size: _Cell) -> list[range]:
    """Per dimension the cells of a grid that a box covers."""
    return [
        range(low >> bits, (high - 1 >> bits) + 1)
        for (low, high), bits in zip(box, size, strict=True)
    ]


# ------------------------------------------------------------------ boxes that move


#: (n, dimensions)
Corners = NDArray[np.int64]
#: boxes of families that are listed one by one
LISTED = 1 << 16
#: pairs of boxes that are compared at once
_PAIRS = 1 << 18
#: later than any repetition
_FAR = 1 << 62


@dataclass(frozen=True)
class Course:
    """How boxes move: by ``iteration`` in each of the repetitions 0 to ``times``, and by ``slope``
    for each step of a parameter, which makes ``often`` repetitions more.

    ``steps``, if they are given, say how far it is in each repetition, instead of ``iteration``:
    (1 + times, dimensions). ``loop`` is the loop whose repetitions these are. What has one course
    is in the same repetition at the same time.
    """

    iteration: tuple[int, ...]
    slope: tuple[int, ...]
    times: int = 0
    steps: tuple[tuple[int, ...], ...] | None = None
    often: int = 0
    loop: int = 0

    @property
    def depends(self) -> bool:
        """Whether it is another one for each value of the parameter."""
        return any(self.slope) or self.often > 0

    @property
    def rests(self) -> bool:
        """Whether boxes are in one place, for a given value of the parameter."""
        repeated = self.times or self.often
        return self.steps is None and not (repeated and any(self.iteration))

    @property
    def most(self) -> int:
        """The last repetition, of any value of the parameter."""
        return _FAR if self.often else self.times

    def listed(self) -> Corners:
        """How far boxes are in each repetition: (1 + times, dimensions)."""
        if self.steps is not None:
            return np.array(self.steps, dtype=np.int64)
        iteration = np.array(self.iteration, dtype=np.int64)
        return np.arange(self.times + 1, dtype=np.int64)[:, None] * iteration


@dataclass(frozen=True, eq=False)
class Family:
    """Boxes [low, high) of elements or bytes, (n, dimensions), that are accessed on a course."""

    lows: Corners
    highs: Corners
    course: Course
    #: whether that writes
    write: bool

    @classmethod
    def at_rest(cls, lows: Corners, highs: Corners, *, write: bool = False) -> Family:
        """Boxes that do not move."""
        still = (0,) * lows.shape[1]
        return cls(lows, highs, Course(still, still), write)

    @property
    def size(self) -> int:
        """How many boxes, in all repetitions."""
        return len(self.lows) * (self.course.times + 1)

    def hull(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The box around all, of one value of the parameter."""
        course = self.course
        if course.steps is None:
            way = np.array(course.iteration, dtype=np.int64) * course.times
            first, last = np.minimum(way, 0), np.maximum(way, 0)
        else:
            steps = course.listed()
            first, last = steps.min(axis=0), steps.max(axis=0)
        return self.lows.min(axis=0) + first, self.highs.max(axis=0) + last

    def listed(self) -> Family:
        """All boxes, as ones that do not move."""
        steps, dims = self.course.listed(), self.lows.shape[1]
        lows, highs = (
            (corners[None] + steps[:, None]).reshape(-1, dims)
            for corners in (self.lows, self.highs)
        )
        return Family(lows, highs, Course((0,) * dims, self.course.slope), self.write)

    def meets(self, other: Family) -> bool:
        """Whether two families meet, in any repetitions of both, for any value of the parameter;
        true where that cannot be said, or takes too long."""
        depends = self.course.depends or other.course.depends
        if not depends and not _overlap(self.hull(), other.hull()):
            return False
        moves, rests = (self, other) if other.course.rests else (other, self)
        if rests.course.rests and moves.course.slope == rests.course.slope:
            return moves._meets_resting(rests)
        if depends:
            return not self._stays_apart(other)
        less, more = (self, other) if self.size < other.size else (other, self)
        return less.size > LISTED or more.meets(less.listed())

    def _meets_resting(self, other: Family) -> bool:
        """The same, if the other moves with the parameter only, and as this does."""
        lows, highs, course = other.lows, other.highs, self.course
        if not course.depends:
            low, high = self.hull()
            near = ((lows < high) & (low < highs)).all(axis=1)
            lows, highs = lows[near], highs[near]
        if course.steps is not None or course.rests:
            listed = self if course.rests else self.listed()
            return _meet(listed.lows, listed.highs, lows, highs)
        return any(
            (np.maximum(first, 0) <= np.minimum(last, course.most)).any()
            for first, last in self._times_of_meeting(lows, highs)
        )

    def meets_at_other_times(self, other: Family) -> bool:
        """Whether two families of one course meet in different repetitions."""
        course = self.course
        if course.steps is not None:
            if self.size > LISTED or other.size > LISTED:
                return True
            times = np.arange(course.times + 1)
            apart = np.repeat(times, len(self.lows)), np.repeat(times, len(other.lows))
            one, two = self.listed(), other.listed()
            return _meet(one.lows, one.highs, two.lows, two.highs, apart)
        for first, last in self._times_of_meeting(other.lows, other.highs):
            first, last = np.maximum(first, -course.most), np.minimum(last, course.most)
            if ((first <= last) & ((first < 0) | (last > 0))).any():
                return True
        return False

    def _times_of_meeting(
        self, lows: Corners, highs: Corners
    ) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For each of these boxes, how many repetitions it takes, from the first to the last,
        until it meets each of those."""
        for low, high in zip(self.lows, self.highs, strict=True):
            first, last = np.full(len(lows), -_FAR), np.full(len(lows), _FAR)
            for d, by in enumerate(self.course.iteration):
                # low + k by < highs and lows < high + k by
                above, below = highs[:, d] - low[d] - 1, lows[:, d] - high[d] + 1
                if not by:
                    last[(above < 0) | (below > 0)] = -_FAR - 1  # never
                    continue
                begin, end = (below, above) if by > 0 else (-above, -below)
                first = np.maximum(first, -(-begin // abs(by)))
                last = np.minimum(last, end // abs(by))
            yield first, last

    def _stays_apart(self, other: Family) -> bool:
        """Whether each two boxes are apart in some dimension, whatever the value of the parameter
        and the repetitions."""
        one, two = self.course, other.course
        own, others = np.array(one.iteration), np.array(two.iteration)
        more = np.array(one.slope) - np.array(two.slope)
        # positions differ by multiples of what all steps are multiples of
        common = np.gcd(np.gcd(np.abs(more), np.abs(own)), np.abs(others))
        by = np.where(common == 0, 1, common)
        # or one is always beyond the other: linear, so at the ends and in all directions
        ways = [more + x * own - y * others for x in (0, one.often) for y in (0, two.often)]
        ends = [x * own - y * others for x in (0, one.times) for y in (0, two.times)]
        up, down = np.min(ways, axis=0) >= 0, np.max(ways, axis=0) <= 0
        over = other.highs - other.lows
        for low, high in zip(self.lows, self.highs, strict=True):
            distance, under = low - other.lows, high - low
            rest = distance % by
            apart = (common > 0) & (rest >= over) & (common - rest >= under)
            apart |= up & (distance + np.min(ends, axis=0) >= over)
            apart |= down & (distance + np.max(ends, axis=0) <= -under)
            if not apart.any(axis=1).all():
                return False
        return True


def _overlap(one: tuple[Corners, Corners], other: tuple[Corners, Corners]) -> bool:
    return bool(((one[0] < other[1]) & (other[0] < one[1])).all())


def _meet(
    lows: Corners, highs: Corners, others: Corners, ends: Corners,
    apart: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None,
) -> bool:  # fmt: skip
    """Whether a box of one list meets one of the other; ``apart``: numbers of both, of which those
    that have the same one do not count."""
    if not len(lows) or not len(others):
        return False
    # those that begin near enough in the dimension that tells most of them apart
    dim = int(np.ptp(others, axis=0).argmax())
    order = np.argsort(others[:, dim], kind="stable")
    begin = others[order, dim]
    widest = (ends[:, dim] - others[:, dim]).max()
    first = np.searchsorted(begin, lows[:, dim] - widest, side="right")
    last = np.maximum(first, np.searchsorted(begin, highs[:, dim], side="left"))
    until = np.cumsum(last - first)
    start = 0
    while start < len(lows):
        before = int(until[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(until, before + _PAIRS, side="right")))
        counts = (last - first)[start:stop]
        one = np.repeat(np.arange(start, stop), counts)
        within = np.arange(len(one)) - np.repeat(np.cumsum(counts) - counts, counts)
        other = order[first[one] + within]
        meet = ((lows[one] < ends[other]) & (others[other] < highs[one])).all(axis=1)
        if apart is not None:
            meet &= apart[0][one] != apart[1][other]
        if meet.any():
            return True
        start = stop
    return False


def may_conflict(families: Sequence[Family]) -> bool:
    """Whether accesses to one memory meet, of which one writes, that are not in one repetition of
    one course: those lie as they do in the one that was watched."""
    return any(
        one.meets_at_other_times(other) if one.course == other.course else one.meets(other)
        for number, one in enumerate(families)
        for other in families[: number + 1]
        if one.write or other.write
    )


def corners(boxes: Sequence[Box]) -> tuple[Corners, Corners]:
    """Boxes as [low, high)."""
    bounds = np.array(boxes, dtype=np.int64)
    return bounds[:, :, 0], bounds[:, :, 1]
