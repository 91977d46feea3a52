"""Whether accesses to global memory that move with a parameter may meet, for any of its values.

What is accessed at a place that is the same for all values is judged by the run that is followed.
An access that moves has to stay apart from all that do not move along with it, in one dimension at
least: that is decided for all values and repetitions at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.affine.parameter_shifts import Ray

_Ints: TypeAlias = NDArray[np.int64]
#: pairs of accesses that are compared, at most
_MOST = 1 << 24


@dataclass(frozen=True)
class Reach:
    """Boxes [low, high) of elements of a tensor that are accessed.

    In the run for a parameter that is k steps larger they are k times ``a`` of a `Ray` per
    dimension further. ``repetition``: they are accessed again in each of 1 to ``times + often * k``
    repetitions, ``b`` further each time; 0: they are not.
    """

    memory: str
    low: tuple[int, ...]
    high: tuple[int, ...]
    ways: tuple[Ray, ...]
    write: bool
    repetition: int = 0
    often: int = 0
    times: int = 0


def may_meet(reaches: Iterable[Reach]) -> str | None:
    """The tensor in which accesses may conflict for some values of the parameter, though they do
    not in the run that was followed, or of which that cannot be said."""
    by_memory: dict[str, dict[Reach, None]] = defaultdict(dict)
    for reach in reaches:
        by_memory[reach.memory][reach] = None
    for name, found in by_memory.items():
        every = list(found)
        moving = any(way for reach in every for way in reach.ways)
        if moving and any(r.write for r in every) and not _are_apart(every):
            return name
    return None


def _are_apart(reaches: Sequence[Reach]) -> bool:
    if len(reaches) ** 2 > _MOST:
        return False
    table = _Table(reaches)
    return all(table.is_apart(number) for number in range(len(reaches)))


class _Table:
    """Accesses to one tensor as arrays, (n, dimensions) or (n, 1)."""

    def __init__(self, reaches: Sequence[Reach]) -> None:
        def column(values: list[int]) -> _Ints:
            return np.array(values, dtype=np.int64)[:, None]

        self.low = np.array([r.low for r in reaches], dtype=np.int64)
        self.size = np.array([r.high for r in reaches], dtype=np.int64) - self.low
        self.a = np.array([[w.a for w in r.ways] for r in reaches], dtype=np.int64)
        self.b = np.array([[w.b for w in r.ways] for r in reaches], dtype=np.int64)
        self.repetition = np.array([r.repetition for r in reaches], dtype=np.int64)
        self.write = np.array([r.write for r in reaches])
        self.often = column([r.often for r in reaches])
        self.times = column([r.times for r in reaches])

    def is_apart(self, n: int) -> bool:
        """Whether an access is apart from those before it, and from itself at other times."""
        along = (self.a[: n + 1] == self.a[n]).all(axis=1)
        along &= (self.b[: n + 1] == self.b[n]).all(axis=1)
        same = along & (self.repetition[: n + 1] == self.repetition[n])
        # those in no repetition that move alike: the run that was followed has judged them
        fine = same & (self.repetition[: n + 1] == 0)
        fine |= ~(self.write[: n + 1] | self.write[n])
        apart = np.where(same, self._at_other_times(n), self._never_meets(n))
        return bool((fine | apart).all())

    def _at_other_times(self, n: int) -> NDArray[np.bool_]:
        """Whether accesses of the same repetitions that move alike meet in the same only: in some
        dimension no other distance between two repetitions lets them meet."""
        step = np.abs(self.b[n])
        distance = self.low[n] - self.low[: n + 1]
        least, most = -self.size[n] - distance + 1, self.size[: n + 1] - distance - 1
        by = np.where(step == 0, 1, step)
        first, last = -(-least // by), most // by
        once = (first >= 0) & (last <= 0)
        never = (least > 0) | (most < 0)
        return np.asarray(np.where(step == 0, never, once | (first > last)).any(axis=1))

    def _never_meets(self, n: int) -> NDArray[np.bool_]:
        """Whether accesses are apart in some dimension, whatever the value and the repetitions."""
        distance = self.low[n] - self.low[: n + 1]
        over, under = self.size[: n + 1], self.size[n]
        more, own, other = self.a[n] - self.a[: n + 1], self.b[n], self.b[: n + 1]
        # positions differ by multiples of what all steps are multiples of
        common = np.gcd(np.gcd(np.abs(more), np.abs(own)), np.abs(other))
        rest = distance % np.where(common == 0, 1, common)
        apart = (common > 0) & (rest >= over) & (common - rest >= under)
        # or one is always beyond the other: linear, so at the ends and in all directions
        directions = np.stack([
            more + x * own - y * other
            for x in (0, self.often[n]) for y in (0, self.often[: n + 1])
        ])  # fmt: skip
        ends = np.stack([
            distance + x * own - y * other
            for x in (0, self.times[n]) for y in (0, self.times[: n + 1])
        ])  # fmt: skip
        apart |= (directions >= 0).all(axis=0) & (ends >= over).all(axis=0)
        apart |= (directions <= 0).all(axis=0) & (ends <= -under).all(axis=0)
        return np.asarray(apart.any(axis=1))
