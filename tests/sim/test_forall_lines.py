"""Where nothing is said of all values, the answer names the line that stands in the way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tilesim as ts
from tests.sim.steady_programs import ring
from tilesim import Builder, s32
from tilesim.ir.expr import select
from tilesim.ir.program import Program


def summed(n: int) -> Program:
    """A register grows by another number in each turn, and decides something in the end."""
    k = Builder("summed", warps=1)
    data, total = k.shared("data", s32, (32,)), k.var("total", 0)
    with k.loop(n) as i:
        k.assign(total, total + i)  # no shift
        k.bar.sync(1, 32)
    k.mem.store(data[select(total.eq(4_950), 32, k.lane_id)], 1)
    return k.finish()


def waiting(n: int) -> Program:
    """Turns in which nobody waits for anything are one move."""
    k = Builder("waiting", warps=1)
    count = k.var("count", 0)
    with k.loop(n):  # no state
        k.assign(count, count + 1)
    return k.finish()


def bits(n: int) -> Program:
    """The bits of a turn are those of no turn before."""
    return ring(n, faulty=lambda i: ((i & 0x55) + ((i >> 1) & 0x55)).eq(0x55 + 0x2A))


@pytest.mark.parametrize(
    ("build", "file", "text"),
    [
        (summed, __file__, "with k.loop(n) as i:"),
        (waiting, __file__, "# no state"),
        (bits, ring.__code__.co_filename, 'k.role("producer", 0), k.loop(turns)'),
    ],
)
def test_the_line_is_named(build: Callable[[int], Program], file: str, text: str) -> None:
    claim = ts.check(build, for_all={"n": None}).for_all
    assert claim is not None
    assert not claim.proved
    assert claim.obstacle is not None
    lines = Path(file).read_text().splitlines()
    assert claim.obstacle.loc.line == next(at for at, line in enumerate(lines, 1) if text in line)


def test_values_that_are_refused_from_some_on_say_why() -> None:
    def even(n: int) -> Program:
        if n > 90:
            raise ValueError("at most 90 turns")
        return ring(n)

    claim = ts.check(even, for_all={"n": None}).for_all
    assert claim is not None
    assert claim.limit is not None
    assert claim.limit[0] <= 90
    assert str(claim.limit[1]) == "at most 90 turns"
