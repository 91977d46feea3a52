"""Sets of bytes against sets of integers, of random forms and operations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesim.arith import byte_set
from tilesim.arith.byte_set import (
    ByteSet,
    elements_apart,
    progression_within,
    progressions_meet,
    repeated,
)
from tilesim.ir.layout import swizzled

PROGRESSIONS = st.builds(range, st.integers(-9, 9), st.integers(10, 40), st.integers(1, 7))


@st.composite
def sets(draw: st.DrawFn) -> tuple[ByteSet, set[int]]:
    """A set of bytes of each way in which one is made, and what it is."""
    match draw(st.sampled_from(("interval", "intervals", "pieces", "box", "swizzled", "union"))):
        case "interval":
            low, size = draw(st.integers(-40, 40)), draw(st.integers(0, 30))
            return ByteSet.interval(low, low + size), set(range(low, low + size))
        case "intervals":
            ends = [(low, low + draw(st.integers(0, 9)))
                    for low in draw(st.lists(st.integers(-40, 40), max_size=6))]  # fmt: skip
            lows, highs = (np.array([e[i] for e in ends], dtype=np.int64) for i in (0, 1))
            return ByteSet.intervals(lows, highs), {x for a, b in ends for x in range(a, b)}
        case "pieces":
            starts, width = (
                draw(st.lists(st.integers(-40, 40), min_size=1)),
                draw(st.integers(1, 9)),
            )
            return ByteSet.pieces(np.array(starts), width), {
                x for start in starts for x in range(start, start + width)
            }
        case "union":
            parts = draw(st.lists(sets(), max_size=3))
            return ByteSet.union(s for s, _ in parts), set().union(
                *(numbers for _, numbers in parts)
            )
        case form:
            mask = draw(st.sampled_from((1, 3, 7))) if form == "swizzled" else 0
            shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
            strides = [draw(st.sampled_from((0, 1, 4, 6, 16, 20, 64, 128, 140))) for _ in shape]
            size, base = draw(st.integers(1, 9)), draw(st.integers(-40, 40))
            base += 2048 if mask else 0
            indices = tuple(range(first, n, draw(st.integers(1, 3))) for n in shape
                            for first in [draw(st.integers(0, n - 1))])  # fmt: skip
            apart = not mask and elements_apart(tuple(shape), tuple(strides), size)
            space = f"{base} {shape} {strides} {size}" if apart else None
            made = ByteSet.box(base, indices, tuple(strides), size, mask=mask, space=space)
            starts = [base + sum(i * s for i, s in zip(index, strides, strict=True))
                      for index in product(*indices)]  # fmt: skip
            by = {0: 0, 1: 32, 3: 64, 7: 128}[mask]
            return made, {swizzled(x, by) for start in starts for x in range(start, start + size)}


@settings(max_examples=120)
@given(sets(), sets(), st.sampled_from((1 << 16, 0)))
def test_they_are_what_sets_of_integers_are(
    one: tuple[ByteSet, set[int]], other: tuple[ByteSet, set[int]], small: int
) -> None:
    (a, x), (b, y) = one, other
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(byte_set, "_SMALL", small)
        assert a.meets(b) is b.meets(a) is bool(x & y)
        assert a.contains(b) is (y <= x)
    for result, wanted in ((a, x), (a & b, x & y), (a - b, x - y), (ByteSet.union([a, b]), x | y)):
        assert list(result) == sorted(wanted)
        assert result.nbytes == len(wanted)
        if wanted:
            assert (result.low, result.high) == (min(wanted), max(wanted) + 1)
            assert result.form.bits == sum(1 << n - result.low for n in wanted)
        highs, lows = (ends.tolist() for ends in result.runs[::-1])
        assert all(high < low for high, low in zip(highs, lows[1:], strict=False))


@settings(max_examples=100)
@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_boxes_of_one_tensor_are_compared_by_their_indices(
    data: st.DataObject, shape: list[int]
) -> None:
    strides = tuple(4 * int(np.prod(shape[d + 1 :])) for d in range(len(shape)))
    boxes = [
        tuple(
            range(first, n, data.draw(st.integers(1, 3)))
            for n in shape for first in [data.draw(st.integers(0, n - 1))]
        )
        for _ in range(2)
    ]  # fmt: skip
    by_index = [ByteSet.box(0, box, strides, 4, space="t") for box in boxes]
    by_bytes = [ByteSet.box(0, box, strides, 4) for box in boxes]
    assert by_index[0].meets(by_index[1]) is by_bytes[0].meets(by_bytes[1])
    assert by_index[0].contains(by_index[1]) is by_bytes[0].contains(by_bytes[1])


@given(PROGRESSIONS, PROGRESSIONS)
def test_progressions_are_compared_as_sets(a: range, b: range) -> None:
    assert progressions_meet(a, b) == bool(set(a) & set(b))
    assert progression_within(a, b) == (set(a) <= set(b))


@given(st.lists(st.integers(0, 5)))
def test_what_is_repeated_is_numbered(counts: list[int]) -> None:
    which, number = repeated(np.array(counts, dtype=np.int64))
    wanted = [(i, k) for i, count in enumerate(counts) for k in range(count)]
    assert list(zip(which.tolist(), number.tolist(), strict=True)) == wanted
