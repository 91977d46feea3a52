"""Accesses to global memory of turns that are left out: each at its own place, and one is wrong.

Two warps that nothing orders access rows of a tensor, one for each turn. The rows of a wrong
program are those of the right one, but for one that both access.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.sim.timed import timed
from tilesim import Builder, Program, s32
from tilesim.checker import check
from tilesim.ir.expr import Expr, as_expr

TURNS = 300
#: where a turn accesses
At = Callable[[Expr], Expr]


@dataclass(frozen=True)
class Rows:
    """Where the first warp stores in each turn, and where the second one accesses: of the wrong
    program, of the right one; in each turn of its own, or only before it ``begins``, or where that
    ``ends``."""

    first: At
    wrong: At
    right: At
    write: bool = True
    begins: bool = False
    ends: bool = False


def _same(row: int) -> At:
    return lambda i: as_expr(row) + 0 * i


T, HALF = TURNS, TURNS // 2
#: steps of which no two multiples are the same in so many turns, and a turn of each warp
A, B, TURN, OTHER = 301, 299, 150, 120
ROWS: dict[str, Rows] = {
    "ahead": Rows(lambda i: i, lambda i: i + HALF, lambda i: i + T),
    "behind": Rows(lambda i: i + HALF, lambda i: i, lambda i: i + 2 * T),
    "towards": Rows(lambda i: i, lambda i: T - 1 - i, lambda i: 2 * T - i),
    "downwards": Rows(lambda i: T - i, lambda i: T + HALF - i, lambda i: 2 * T - i),
    "every second": Rows(lambda i: 2 * i, lambda i: 2 * i + T, lambda i: 2 * i + T + 1),
    "every second, every third": Rows(
        lambda i: 2 * i, lambda i: 3 * i + T, lambda i: 3 * i + 2 * T
    ),
    "of all turns once": Rows(
        lambda i: A * i, lambda i: B * i + A * TURN - B * OTHER, lambda i: B * i + A * T
    ),
    "once, downwards": Rows(
        lambda i: A * i, lambda i: A * TURN + B * (OTHER + 50 - i), lambda i: A * T + B * (T - i)
    ),
    "read": Rows(lambda i: i, lambda i: i + HALF, lambda i: i + T, write=False),
    "read once": Rows(
        lambda i: A * i, lambda i: B * i + A * TURN - B * OTHER, lambda i: B * i + A * T,
        write=False,
    ),
    "one in each turn": Rows(lambda i: 2 * i, _same(T), _same(T + 1)),
    "one in each turn, read": Rows(lambda i: 2 * i, _same(T), _same(T + 1), write=False),
    "one in between": Rows(lambda i: 3 * i, _same(3 * HALF), _same(3 * HALF + 1)),
    "one before": Rows(lambda i: i, _same(HALF), _same(3 * T), begins=True),
    "one before, in between": Rows(lambda i: 2 * i, _same(T), _same(T + 1), begins=True),
    "one behind": Rows(lambda i: i, _same(HALF), _same(3 * T), ends=True),
    "one behind, downwards": Rows(
        lambda i: 3 * (3 * T - i), _same(6 * T), _same(6 * T + 1), ends=True
    ),
    "one behind, read": Rows(lambda i: i, _same(HALF), _same(3 * T), write=False, ends=True),
    "remainders": Rows(lambda i: i % 7, lambda i: i % 5 + 6, lambda i: i % 5 + 7),
    "far remainders": Rows(
        lambda i: 7 * i % (4 * T), lambda i: 4 * T - 3 + i, lambda i: 4 * T + i
    ),
}  # fmt: skip


def rows(of: Rows, *, wrong: bool) -> Program:
    """Two warps that access rows, and nothing orders them."""
    k = Builder("places", warps=2)
    out, got = k.tensor("out", s32, (A * 3 * TURNS, 32)), k.var("got", 0)
    at = of.wrong if wrong else of.right
    turns = 2 * TURNS if of.begins or of.ends else TURNS

    def second(i: Expr) -> None:
        if of.write:
            k.mem.store(out[at(i), k.lane_id], 2)
        else:
            k.mem.load(got, out[at(i), k.lane_id])

    with k.role("first", 0), k.loop(turns) as i:
        k.mem.store(out[of.first(i), k.lane_id], 1)
        k.bar.sync(1, 32)
    with k.role("second", 1):
        if of.begins:
            second(as_expr(0))
        with k.loop(turns + 9) as i:
            if not of.begins and not of.ends:
                with k.if_(i < turns):
                    second(i)
            k.bar.sync(2, 32)
        if of.ends:
            second(as_expr(0))
    return k.finish()


#: nothing of these is left out: that the places of different turns are apart is not decided
NEVER = {"read", "read once", "one in each turn, read", "one behind, read", "remainders"}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_two_warps_access(name: str) -> None:
    right = rows(ROWS[name], wrong=False)
    assert check(right).verdict == "proved"
    assert bool(timed(right).stats.skipped) is (name not in NEVER)
    wrong = check(rows(ROWS[name], wrong=True))
    assert wrong.rules == {"race"}
    assert {p.role for p in wrong.findings[0].participants} == {"first", "second"}
