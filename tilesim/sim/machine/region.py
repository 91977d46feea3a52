"""Exact sets of bytes and of elements: progressions per dimension, and runs of bytes.

A box of a tensor is one arithmetic progression of element indices per dimension. Where the elements
of the tensor lie apart, two boxes share bytes exactly if they share an index in every dimension.
Everywhere else sets of bytes are compared as runs: sorted, disjoint intervals of addresses.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

#: per dimension the indices of a box's elements
Spans: TypeAlias = "tuple[range, ...]"
#: first and one past the last byte of every interval, ascending; no two touch
Runs: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.int64]]"

#: bytes that a swizzle moves as one
_CHUNK = 16
#: boxes whose bytes are remembered
_BOXES = 1024


def lies_apart(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
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


def meet(a: Spans, b: Spans) -> bool:
    """Whether two boxes share an element."""
    return all(progressions_meet(x, y) for x, y in zip(a, b, strict=True))


def within(inner: Spans, outer: Spans) -> bool:
    """Whether every element of one box is in the other."""
    return all(progression_within(x, y) for x, y in zip(inner, outer, strict=True))


# ---------------------------------------------------------------------- bytes


def merged(lows: NDArray[np.int64], highs: NDArray[np.int64]) -> Runs:
    """Intervals in any order, which may overlap, as runs."""
    order = np.argsort(lows, kind="stable")
    lows, highs = lows[order], np.maximum.accumulate(highs[order])
    opens = np.empty(len(lows), dtype=bool)
    opens[:1] = True
    np.greater(lows[1:], highs[:-1], out=opens[1:])
    closes = np.empty(len(lows), dtype=bool)
    closes[-1:] = True
    closes[:-1] = opens[1:]
    return lows[opens], highs[closes]


def runs_of(addresses: NDArray[np.int64], itemsize: int) -> Runs:
    """The bytes of elements at these addresses."""
    lows = addresses.ravel()
    return merged(lows, lows + itemsize)


@lru_cache(maxsize=_BOXES)
def runs_of_box(
    base: int, spans: Spans, strides: tuple[int, ...], itemsize: int, chunk_mask: int = 0
) -> Runs:
    """The bytes of a box of a tensor at address ``base`` with these byte strides.

    ``chunk_mask``: which address bits of the 128-byte line a swizzle adds to the chunk (B18). CTAs
    that run one after the other have the same boxes: the answers are remembered.
    """
    start = base + sum(span.start * s for span, s in zip(spans, strides, strict=True))
    length, starts = itemsize, np.full(1, start, dtype=np.int64)
    steps = sorted((x.step * s, len(x)) for x, s in zip(spans, strides, strict=True) if len(x) > 1)
    for step, count in steps:
        if step <= length and len(starts) == 1:
            length += step * (count - 1)
        else:
            offsets = np.arange(count, dtype=np.int64) * step
            starts = (starts[:, None] + offsets).ravel()
    if not chunk_mask:
        return merged(starts, starts + length)
    return _swizzled(*merged(starts, starts + length), chunk_mask)


def _swizzled(lows: NDArray[np.int64], highs: NDArray[np.int64], chunk_mask: int) -> Runs:
    """Runs of linear addresses as runs of the addresses that a swizzle moves them to."""
    first = lows // _CHUNK
    counts = -(-highs // _CHUNK) - first
    which = np.repeat(np.arange(len(lows)), counts)
    within_run = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    chunks = (first[which] + within_run) * _CHUNK
    moved = (chunks ^ (((chunks >> 7) & chunk_mask) << 4)) - chunks
    parts = np.maximum(lows[which], chunks), np.minimum(highs[which], chunks + _CHUNK)
    return merged(parts[0] + moved, parts[1] + moved)


def runs_meet(a: Runs, b: Runs) -> bool:
    """Whether two sets share a byte."""
    if len(a[0]) > len(b[0]):
        a, b = b, a
    place = np.searchsorted(b[1], a[0], side="right")
    inside = place < len(b[0])
    return bool((b[0][place[inside]] < a[1][inside]).any())


def runs_within(inner: Runs, outer: Runs) -> bool:
    """Whether every byte of one set is in the other."""
    place = np.searchsorted(outer[0], inner[0], side="right") - 1
    if len(place) and place[0] < 0:
        return False
    return bool((outer[1][place] >= inner[1]).all())


def bits_of(runs: Runs, base: int) -> int:
    """The bytes as a number: one bit each, that of the byte at address ``base`` first."""
    lows, highs = runs
    if len(lows) == 1:
        low, high = lows.item(), highs.item()
        return (1 << high - low) - 1 << low - base
    if not len(lows):
        return 0
    changes = np.zeros(int(highs[-1]) - base + 1, dtype=np.int8)
    changes[lows - base] = 1
    changes[highs - base] = -1
    inside = np.add.accumulate(changes, dtype=np.int8)
    return int.from_bytes(np.packbits(inside, bitorder="little").tobytes(), "little")


def union(sets: list[Runs]) -> Runs:
    """The bytes that are in one of the sets at least."""
    return merged(np.concatenate([s[0] for s in sets]), np.concatenate([s[1] for s in sets]))


def intersection(a: Runs, b: Runs) -> Runs:
    """The bytes that are in both sets."""
    lows: list[int] = []
    highs: list[int] = []
    i = j = 0
    a_low, a_high, b_low, b_high = a[0].tolist(), a[1].tolist(), b[0].tolist(), b[1].tolist()
    while i < len(a_low) and j < len(b_low):
        low, high = max(a_low[i], b_low[j]), min(a_high[i], b_high[j])
        if low < high:
            lows.append(low)
            highs.append(high)
        if a_high[i] < b_high[j]:
            i += 1
        else:
            j += 1
    return np.array(lows, dtype=np.int64), np.array(highs, dtype=np.int64)
