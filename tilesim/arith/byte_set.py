"""Sets of bytes, or of any integers: a base, and a form that lies there.

Warps and CTAs that execute an instruction access the same form at bases of their own: what the
bytes of a form are is worked out once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache
from math import gcd
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

#: bounds of intervals, or any numbers
Integers: TypeAlias = NDArray[np.int64]
#: per dimension of a tensor the indices of a box's elements
Indices: TypeAlias = "tuple[range, ...]"

#: bytes that a swizzle moves as one, and those after which it moves them alike
_CHUNK, _PERIOD = 16, 1024
#: forms that are remembered
_FORMS = 4096
#: sets that lie within so many bytes are compared as numbers, bit by bit
_SMALL = 1 << 16


class Form:
    """Bytes counted from a base: ascending intervals [low, high) of which no two touch."""

    def __init__(self, lows: Integers, highs: Integers) -> None:
        self.lows, self.highs = lows, highs
        self.low, self.high = (int(lows[0]), int(highs[-1])) if len(lows) else (0, 0)
        self.nbytes = int((highs - lows).sum())

    @cached_property
    def bits(self) -> int:
        """The bytes as a number, that at ``low`` first."""
        changes = np.zeros(self.high - self.low + 1, dtype=np.int8)
        changes[self.lows - self.low] = 1
        changes[self.highs - self.low] -= 1
        inside = np.add.accumulate(changes, dtype=np.int8)
        return int.from_bytes(np.packbits(inside, bitorder="little").tobytes(), "little")


def _merged(lows: Integers, highs: Integers) -> Form:
    """The form of intervals in any order, which may overlap or be empty."""
    order = np.argsort(lows, kind="stable")
    order = order[(lows < highs)[order]]
    lows, highs = lows[order], np.maximum.accumulate(highs[order])
    new = np.ones(len(lows) + 1, dtype=bool)
    np.greater(lows[1:], highs[:-1], out=new[1:-1])
    return Form(lows[new[:-1]], highs[new[1:]])


@lru_cache(maxsize=_FORMS)
def _of_pieces(starts: bytes, width: int) -> Form:
    """Pieces of ``width`` bytes that begin at these numbers."""
    lows = np.frombuffer(starts, dtype=np.int64)
    return _merged(lows, lows + width)


@lru_cache(maxsize=_FORMS)
def _of_box(first: int, steps: tuple[tuple[int, int], ...], itemsize: int, mask: int) -> Form:
    """Elements of which the first one is ``first`` bytes behind the base; ``steps``: the bytes
    between neighbours and the number of elements, per dimension, the nearest neighbours first.
    ``mask``: which address bits of the 128-byte line a swizzle adds to the chunk (B18)."""
    length, starts = itemsize, np.full(1, first, dtype=np.int64)
    for step, count in steps:
        if step <= length and len(starts) == 1:
            length += step * (count - 1)
        else:
            starts = (starts[:, None] + np.arange(count, dtype=np.int64) * step).ravel()
    form = _merged(starts, starts + length)
    return _swizzled(form, mask) if mask else form


def _swizzled(form: Form, mask: int) -> Form:
    """Bytes at linear addresses where a swizzle moves them to."""
    first = form.lows // _CHUNK
    run, number = repeated(-(-form.highs // _CHUNK) - first)
    chunks = (first[run] + number) * _CHUNK
    moved = (chunks ^ (((chunks >> 7) & mask) << 4)) - chunks
    lows, highs = np.maximum(form.lows[run], chunks), np.minimum(form.highs[run], chunks + _CHUNK)
    return _merged(lows + moved, highs + moved)


def repeated(counts: Integers) -> tuple[Integers, Integers]:
    """Every number below ``len(counts)`` so many times, and which time it is."""
    which = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    return which, np.arange(len(which), dtype=np.int64) - (np.cumsum(counts) - counts)[which]


class ByteSet:
    """The bytes of ``form``, counted from ``base``.

    ``low`` and ``high`` are the first one and the one behind the last. ``indices``: they are the
    elements of ``space`` that have these, and no two of its elements share a byte; two such sets
    are compared without looking at bytes.
    """

    __slots__ = ("_runs", "base", "form", "high", "indices", "low", "space")

    def __init__(
        self, base: int, form: Form, space: str = "", indices: Indices | None = None
    ) -> None:
        self.base, self.form, self.space, self.indices = base, form, space, indices
        self.low, self.high = base + form.low, base + form.high
        self._runs: tuple[Integers, Integers] | None = None

    @staticmethod
    def interval(low: int, high: int) -> ByteSet:
        """All from ``low`` to ``high`` (not included)."""
        return ByteSet(low, _of_box(0, (), high - low, 0))

    @staticmethod
    def intervals(lows: Integers, highs: Integers) -> ByteSet:
        """Those in intervals [low, high), in any order, which may overlap."""
        return ByteSet(0, _merged(lows, highs))

    @staticmethod
    def elements(addresses: Integers, size: int) -> ByteSet:
        """Those of elements of ``size`` bytes at these addresses."""
        lows = addresses.ravel()
        return ByteSet.intervals(lows, lows + size)

    @staticmethod
    def pieces(starts: Integers, width: int) -> ByteSet:
        """The same of few elements, one at least, whose form others may have."""
        base = int(starts[0])
        return ByteSet(base, _of_pieces((starts - base).tobytes(), width))

    @staticmethod
    def box(
        base: int, indices: Indices, strides: tuple[int, ...], itemsize: int, *,
        mask: int = 0, space: str | None = None,
    ) -> ByteSet:  # fmt: skip
        """Those of the elements of a tensor at ``base`` that have these indices; ``mask``: that of
        its swizzle. ``space``: its name, if no two of all its elements share a byte."""
        sizes = list(zip(indices, strides, strict=True))
        first = base + sum(x.start * s for x, s in sizes)
        phase = first % _PERIOD if mask else 0
        steps = sorted((x.step * s, len(x)) for x, s in sizes if len(x) > 1)
        form = _of_box(phase, tuple(steps), itemsize, mask)
        return ByteSet(first - phase, form, space or "", None if space is None else indices)

    @staticmethod
    def union(sets: Iterable[ByteSet]) -> ByteSet:
        """What is in one of them at least."""
        runs = [s.runs for s in sets]
        if not runs:
            return ByteSet.interval(0, 0)
        lows, highs = (np.concatenate(ends) for ends in zip(*runs, strict=True))
        return ByteSet.intervals(lows, highs)

    @property
    def runs(self) -> tuple[Integers, Integers]:
        """First and one past the last byte of every interval, ascending; no two touch."""
        if self._runs is None:
            self._runs = self.form.lows + self.base, self.form.highs + self.base
        return self._runs

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The intervals one by one."""
        lows, highs = self.runs
        return list(zip(lows.tolist(), highs.tolist(), strict=True))

    @property
    def nbytes(self) -> int:
        """How many they are."""
        return self.form.nbytes

    def __iter__(self) -> Iterator[int]:
        return (byte for low, high in self.pairs for byte in range(low, high))

    def meets(self, other: ByteSet) -> bool:
        """True if the two share a byte."""
        if self.high <= other.low or other.high <= self.low:
            return False
        if self.indices is not None and other.indices is not None and self.space == other.space:
            return all(map(progressions_meet, self.indices, other.indices))
        if self._is_small and other._is_small:
            return self._shared(other) != 0
        (lows, highs), (mine, ends) = self.runs, other.runs
        if len(lows) < len(mine):
            (lows, highs), (mine, ends) = (mine, ends), (lows, highs)
        place = np.searchsorted(highs, mine, side="right")
        inside = place < len(lows)
        return bool((lows[place[inside]] < ends[inside]).any())

    def contains(self, other: ByteSet) -> bool:
        """True if every byte of ``other`` is in this set."""
        if self.indices is not None and other.indices is not None and self.space == other.space:
            return all(map(progression_within, other.indices, self.indices))
        if other.low < self.low or other.high > self.high:
            return not other.nbytes
        if self._is_small and other._is_small:
            return self._shared(other) == other.form.bits
        place = np.searchsorted(self.runs[0], other.runs[0], side="right") - 1
        return bool((self.runs[1][place] >= other.runs[1]).all())

    @property
    def _is_small(self) -> bool:
        return self.high - self.low <= _SMALL

    def _shared(self, other: ByteSet) -> int:
        """The bytes that are in both as a number, from the one on at which both have begun."""
        apart = other.low - self.low
        if apart >= 0:
            return self.form.bits >> apart & other.form.bits
        return self.form.bits & other.form.bits >> -apart

    def __and__(self, other: ByteSet) -> ByteSet:
        (lows, highs), (mine, ends) = self.runs, other.runs
        first = np.searchsorted(highs, mine, side="right")
        run, number = repeated(np.searchsorted(lows, ends, side="left") - first)
        place = first[run] + number
        return ByteSet.intervals(
            np.maximum(lows[place], mine[run]), np.minimum(highs[place], ends[run])
        )

    def __sub__(self, other: ByteSet) -> ByteSet:
        lows, highs = other.runs
        low, high = np.array([min(self.low, other.low)]), np.array([max(self.high, other.high)])
        between = ByteSet.intervals(np.append(low, highs), np.append(lows, high))
        return self & between


def progressions_meet(a: range, b: range) -> bool:
    """Whether two ascending, non-empty progressions have a number in common."""
    low, high = max(a.start, b.start), min(a[-1], b[-1])
    if low > high:
        return False
    if a.step == b.step == 1:
        return True
    common = gcd(a.step, b.step)
    if (b.start - a.start) % common:
        return False
    # the numbers of both are one residue of the least common multiple of the steps
    step = b.step // common
    turns = (b.start - a.start) // common * pow(a.step // common, -1, step) % step
    first = a.start + a.step * turns
    whole = a.step * step
    return low + (first - low) % whole <= high


def progression_within(inner: range, outer: range) -> bool:
    """Whether every number of one ascending, non-empty progression is in the other."""
    if inner.start not in outer or inner[-1] not in outer:
        return False
    return len(inner) == 1 or inner.step % outer.step == 0


def elements_apart(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether elements of different indices share no byte, as each stride spans what is inside it.

    Sufficient, not necessary: other layouts are compared byte by byte.
    """
    reach = itemsize
    for stride, extent in sorted(zip(strides, shape, strict=True)):
        if extent == 1:
            continue
        if stride < reach:
            return False
        reach += stride * (extent - 1)
    return True
