"""Groups of copies that threads have of their own (`tilesim.sim.machine.async_groups`)."""

from __future__ import annotations

import random
from bisect import bisect_right

import pytest

from tilesim.sim.machine.async_groups import Stream


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_counts_its_operations_among_those_of_all_lanes(seed: int) -> None:
    draw, stream = random.Random(seed), Stream(mask=1, component=0)
    own: list[int] = []
    for number in range(1, 30):
        if draw.random() < 0.7:
            own.append(number)
            assert stream.issue(number) == len(own)
        assert [stream.complete(n) for n in range(32)] == [bisect_right(own, n) for n in range(32)]
        assert [stream.number_of(k) for k in range(1, len(own) + 1)] == own


def test_a_stream_of_lanes_that_issue_alone_does_not_grow() -> None:
    stream = Stream(mask=1, component=0)
    for number in range(5, 1_000):
        stream.issue(number)
    assert (stream.firsts, stream.before, stream.issued) == ([5], [0], 995)
