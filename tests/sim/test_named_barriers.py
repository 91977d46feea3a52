"""Warpgroups that take turns by named barriers, the first of which signals itself (E6)."""

from __future__ import annotations

import pytest

import tilesim as ts
from tilesim import Builder
from tilesim.arith.types import f32

ROWS = 128


@ts.kernel(warps=12)
def turns(
    k: Builder, *, groups: int = 2, trips: int = 3, first_signals: int = 1, skip: int = 1
) -> None:
    """Group g works when group g - 1 is done; the first turn is given before.

    ``first_signals``: how often the first group arrives at its own barrier for that.
    """
    buffer = k.shared("buffer", f32, (ROWS,))
    value = k.var("value", dtype=f32)
    with k.role("start", range(4)):
        for _ in range(first_signals):
            k.bar.arrive(1, 2 * ROWS, aligned=False)  # signal
    for group in range(groups):
        with k.role(f"group{group}", range(4 * group, 4 * group + 4)), k.loop(trips):
            k.bar.sync(1 + group, 2 * ROWS, aligned=False)
            k.mem.store(buffer[k.thread_id - ROWS * group], 1.0)
            k.mem.load(value, buffer[k.thread_id - ROWS * group])
            k.bar.arrive(1 + (group + skip) % groups, 2 * ROWS, aligned=False)


@pytest.mark.parametrize("groups", [2, 3])
def test_the_first_group_signals_itself(groups: int) -> None:
    assert ts.check(turns.build(groups=groups)).verdict == "proved"


def test_the_text_warns_of_that() -> None:
    report = ts.check(turns.build(), strict="ptx")
    assert report.rules == {"named-barrier"}
    assert "E6" in report.findings[0].message


def test_two_signals_are_one_too_many() -> None:
    report = ts.check(turns.build(first_signals=2))
    assert report.rules == {"named-barrier"}
    assert {p.role for p in report.findings[0].participants} == {"start"}


def test_no_signal() -> None:
    report = ts.check(turns.build(first_signals=0))
    assert report.findings[0].rule == "deadlock"


def test_a_group_keeps_the_turn() -> None:
    report = ts.check(turns.build(skip=0))
    assert report.findings[0].rule == "deadlock"
    assert "group1" in {p.role for p in report.findings[0].participants}
