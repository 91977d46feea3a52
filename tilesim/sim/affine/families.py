"""What skipped repetitions have accessed in global memory, and whether any two of them meet.

The accesses of an instruction in all repetitions are a family: boxes, moved in every repetition.
A family is compared with others by its boxes; `BoxIndex` finds those near a box without looking at
all of them. As none that is skipped conflicts with another access up to then, all that a family is
asked for later is whether another access gets near.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.machine.noncoherent import noncoherent

if TYPE_CHECKING:
    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.clock import Clock


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

    def near(self, boxes: Iterable[Box]) -> Iterator[T]:
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


# ------------------------------------------------------------------ families of accesses


#: (n, dimensions)
Corners = NDArray[np.int64]
#: boxes of families that are listed one by one
LISTED = 1 << 16
#: pairs of boxes that are compared at once
_PAIRS = 1 << 18


class Unskippable(Exception):
    """What was skipped matters, after all: the run has to be made without skipping."""


@dataclass(frozen=True, eq=False)
class Family:
    """Boxes [low, high) of elements or bytes that are accessed in repetitions 0 to ``times``.

    They lie ``step`` further in each, or in the k-th ``steps[k]`` further: (1 + times, dimensions).
    """

    lows: Corners
    highs: Corners
    times: int
    step: NDArray[np.int64] | None
    steps: Corners | None
    #: whether it writes
    write: bool

    @property
    def size(self) -> int:
        """How many boxes."""
        return len(self.lows) * (self.times + 1)

    def hull(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The box around all."""
        if self.step is not None:
            way = self.step * self.times
            first, last = np.minimum(way, 0), np.maximum(way, 0)
        else:
            assert self.steps is not None
            first, last = self.steps.min(axis=0), self.steps.max(axis=0)
        return self.lows.min(axis=0) + first, self.highs.max(axis=0) + last

    def listed(self) -> tuple[Corners, Corners]:
        """All boxes."""
        if self.step is not None:
            steps = np.arange(self.times + 1, dtype=np.int64)[:, None] * self.step
        else:
            assert self.steps is not None
            steps = self.steps
        dims = self.lows.shape[1]
        lows, highs = (
            (corners[None] + steps[:, None]).reshape(-1, dims)
            for corners in (self.lows, self.highs)
        )
        return lows, highs

    def meets(self, lows: Corners, highs: Corners) -> bool:
        """Whether one of these boxes meets one of the family."""
        low, high = self.hull()
        near = ((lows < high) & (low < highs)).all(axis=1)
        if not near.any():
            return False
        lows, highs = lows[near], highs[near]
        if self.step is None:
            return _meet(*self.listed(), lows, highs)
        for own_low, own_high in zip(self.lows, self.highs, strict=True):
            first, last = _when(own_low, own_high, self.step, lows, highs)
            if (np.maximum(first, 0) <= np.minimum(last, self.times)).any():
                return True
        return False

    def meets_family(self, other: Family) -> bool:
        """Whether two families meet in any repetitions; true where that takes too long to say."""
        low, high = self.hull()
        other_low, other_high = other.hull()
        if not ((low < other_high) & (other_low < high)).all():
            return False
        listed, kept = (self, other) if self.size < other.size else (other, self)
        return listed.size > LISTED or kept.meets(*listed.listed())


def _when(
    low: NDArray[np.int64], high: NDArray[np.int64], step: NDArray[np.int64],
    lows: Corners, highs: Corners,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    """In which repetitions, from the first to the last, a box that moves meets each of others."""
    far = np.int64(1) << 62
    first, last = np.full(len(lows), -far), np.full(len(lows), far)
    for d, by in enumerate(step.tolist()):
        # low + k by < highs and lows < high + k by
        above, below = highs[:, d] - low[d] - 1, lows[:, d] - high[d] + 1
        if not by:
            never = (above < 0) | (below > 0)
            last[never] = -far
        elif by > 0:
            first, last = np.maximum(first, -(-below // by)), np.minimum(last, above // by)
        else:
            first, last = np.maximum(first, -(above // -by)), np.minimum(last, -below // -by)
    return first, last


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


def meet_themselves(families: Sequence[Family]) -> bool:
    """Whether accesses of different repetitions meet, of which one writes; families of one memory.

    Those of one repetition lie as they do in the one that was watched, if they move alike.
    """
    for number, one in enumerate(families):
        for other in families[: number + 1]:
            if not one.write and not other.write:
                continue
            if _alike(one, other):
                if _meet_at_other_times(one, other):
                    return True
            elif one.meets_family(other):
                return True
    return False


def _alike(one: Family, other: Family) -> bool:
    """Whether two families move in the same way."""
    if one.step is not None and other.step is not None:
        return bool((one.step == other.step).all())
    return one.steps is not None and one.steps is other.steps


def _meet_at_other_times(one: Family, other: Family) -> bool:
    """Whether boxes of two families that move alike meet in different repetitions."""
    if one.step is None:
        return _any_twice(one, other)
    for low, high in zip(one.lows, one.highs, strict=True):
        first, last = _when(low, high, one.step, other.lows, other.highs)
        first, last = np.maximum(first, -one.times), np.minimum(last, one.times)
        if ((first <= last) & ((first < 0) | (last > 0))).any():
            return True
    return False


def _any_twice(one: Family, other: Family) -> bool:
    """The same of families that do not move by a step."""
    if one.size > LISTED or other.size > LISTED:
        return True
    assert one.steps is not None
    times = np.arange(len(one.steps))
    apart = np.repeat(times, len(one.lows)), np.repeat(times, len(other.lows))
    return _meet(*one.listed(), *other.listed(), apart)


def corners(boxes: list[Box]) -> tuple[Corners, Corners]:
    """Boxes as [low, high)."""
    bounds = np.array(boxes, dtype=np.int64)
    return bounds[:, :, 0], bounds[:, :, 1]


@dataclass(frozen=True, eq=False)
class Past:
    """A family that has been skipped, with the accesses as they are in its last repetition."""

    family: Family
    accesses: tuple[Access, ...]

    def require_over(
        self, access: Access, clock: Clock, rows: dict[tuple[bool, bool], int]
    ) -> None:
        """Raises `Unskippable` unless an access to the same bytes is surely ordered after these."""
        for record in self.accesses:
            row = rows[record.asynchronous, record.write]
            foreign = record.warp.machine is not access.warp.machine or noncoherent(access, record)
            if foreign or access.warp.exchanges or clock[row + record.component] < record.tick:
                raise Unskippable
