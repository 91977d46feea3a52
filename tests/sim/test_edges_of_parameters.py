"""A kernel is wrong for one value of a parameter, told by each kind of use of it.

The claim for all values has to say so, or to end before that value; the right twin is proved for
every value asked for. What is wrong is small: an arrival that does not come, or bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tilesim as ts
from tests.sim.steady_programs import one_stage
from tilesim import Builder, Program, s32, select, u8, u32
from tilesim.ir.expr import as_expr

#: the value that is wrong, among those that are asked for
BAD = 61
ASKED = "40..70"
#: a value that is not asked for: of the right twin
NEVER = 999
Number = Any


def _turning(k: Builder, n: Number) -> None:
    """So many turns of a warp, of which nothing is wrong: what is followed."""
    turns = k.mbarriers("turns")
    with k.one_thread():
        k.mbarrier.init(turns, 32)
    k.sync_threads()
    with k.role("turning", 0), k.loop(n) as i:
        k.mbarrier.arrive(turns)
        k.mbarrier.wait(turns, i & 1)


def _arrivals(n: Number, *, wanted: Number = 1, came: Number = 1, skipped: Any = 0) -> Program:
    """A barrier of so many arrivals, of which so many come; or none, if that is skipped."""
    k = Builder("arrivals", warps=1)
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, wanted)
    k.sync_warp()
    with k.if_(as_expr(skipped).eq(0)), k.one_thread(0):
        k.mbarrier.arrive(bar, came)
    k.mbarrier.wait(bar, 0)
    _turning(k, n)
    return k.finish()


def _arriving_turns(k: Builder, trips: Number, skipped: Callable[[Any], Any]) -> None:
    """So many turns with an arrival in each; but for turns that are skipped."""
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_warp()
    with k.loop(trips) as i:
        with k.if_(as_expr(skipped(i)).eq(0)), k.one_thread(0):
            k.mbarrier.arrive(bar)
        k.mbarrier.wait(bar, i & 1)
        k.sync_warp()


def _turns(n: Number, skipped: Callable[[Any], Any], *, trips: Number = None) -> Program:
    """``n`` turns with an arrival in each; but for turns that are skipped."""
    k = Builder("turns", warps=1)
    _arriving_turns(k, n if trips is None else trips, skipped)
    return k.finish()


def _unequal(first: Number, second: Number) -> Program:
    """One warp arrives so often, and the other one waits so often."""
    k = Builder("unequal", warps=2)
    one_stage(k, first, second)
    return k.finish()


def _bytes(n: Number, expected: Number) -> Program:
    """So many bytes are expected, where 16 come."""
    k = Builder("bytes", "sm_90a", warps=1)
    source, data, bar = k.tensor("x", s32, (4,)), k.shared("d", s32, (4,)), k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
        k.mbarrier.arrive_expect_tx(bar, expected)
        k.bulk.load(data, source, bar)
        k.mbarrier.wait(bar, 0)
    _turning(k, n)
    return k.finish()


def _row(n: Number, rows: Number, row: Number) -> Program:
    """A row of a tensor is read."""
    k = Builder("row", warps=1)
    x = k.tensor("x", s32, (rows, 32))
    at = k.var("at", as_expr(row))
    k.mem.load(k.var("value", 0), x[at, k.lane_id])
    _turning(k, n)
    return k.finish()


def _words(n: Number, first: Number, second: Number) -> Program:
    """Two warps store to a row each, which are to be two."""
    k = Builder("words", warps=2)
    x = k.tensor("x", s32, (256, 32))
    for warp, row in enumerate((first, second)):
        with k.role(f"w{warp}", warp):
            k.mem.store(x[as_expr(row), k.lane_id], 1)
    _turning(k, n)
    return k.finish()


Place = Callable[[Any], Any]


def _stored(
    n: Number, first: Place, second: Number, *, rows: Number = 512, trips: Number = None,
    how: str = "store",
) -> Program:  # fmt: skip
    """A warp accesses a row of a tensor in each turn, and another one stores to a row once."""
    k = Builder("stored", warps=2)
    x = k.tensor("x", s32, (rows, 32))
    value = k.var("value", 0)
    with k.role("turns", 0), k.loop(n if trips is None else trips) as i:
        place = x[as_expr(first(i)), k.lane_id]
        if how == "store":
            k.mem.store(place, 1)
        else:
            k.mem.load(value, place)
    with k.role("once", 1):
        k.mem.store(x[as_expr(second), k.lane_id], 2)
    return k.finish()


def _both(n: Number, first: Place, second: Place) -> Program:
    """Each of two warps stores to a row of a tensor in each turn."""
    k = Builder("both", warps=2)
    x = k.tensor("x", s32, (2048, 32))
    for warp, place in enumerate((first, second)):
        with k.role(f"w{warp}", warp), k.loop(n) as i:
            k.mem.store(x[as_expr(place(i)), k.lane_id], warp)
    return k.finish()


def _copied(n: Number, first: Place, second: Number) -> Program:
    """A warp stores a tile by a tensor map in each turn, and another one stores a tile once."""
    k = Builder("copied", "sm_90a", warps=2)
    x, data = k.tensor("x", s32, (2048, 64)), k.shared("data", s32, (8, 32), align=128)
    box = k.tensor_map(x, (8, 32))
    with k.role("fills", 0):
        for row in range(8):
            k.mem.store(data[row, k.lane_id], row)
        k.fence.proxy_async()
    k.sync_threads()
    with k.role("turns", 0), k.if_(k.lane_id.eq(0)), k.loop(n) as i:
        k.tma.store(box, data, (8 * as_expr(first(i)), 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    with k.role("once", 1), k.if_(k.lane_id.eq(0)):
        k.tma.store(box, data, (8 * as_expr(second), 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    return k.finish()


def _counted(
    n: Number, kind: Any, skipped: Callable[[Any], Any], by: int = 1, first: int = 0
) -> Program:
    """``n`` turns with an arrival in each; but for those in which a register says otherwise."""
    k = Builder("counted", warps=1)
    count = k.var("count", first, kind)

    def counted(_: Any) -> Any:
        k.assign(count, count + by)
        return skipped(count)

    _arriving_turns(k, n, counted)
    return k.finish()


def _gridded(n: Number, skipped: Any) -> Program:
    """``n`` CTAs, one of which does not arrive."""
    k = Builder("gridded", warps=1)
    k.launch(grid=n)
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_warp()
    with k.if_(k.cta_x.ne(skipped)), k.one_thread(0):
        k.mbarrier.arrive(bar)
    k.mbarrier.wait(bar, 0)
    return k.finish()


def _one_if(holds: bool) -> int:
    return 1 if holds else 0


Build = Callable[..., Program]
#: by kind of use: the kernel, with the number that is wrong or another one that never comes, and
#: the rule that it breaks
USES: dict[str, tuple[Build, str]] = {
    "Python compares": (lambda n, b: _arrivals(n, wanted=1 + _one_if(n == b)), "deadlock"),
    "Python compares twice": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(n > b - 1 and n < b + 1)), "deadlock",
    ),
    "Python bounds": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(b <= n <= b)), "deadlock",
    ),
    "Python is not": (lambda n, b: _arrivals(n, wanted=2 - _one_if(n != b)), "deadlock"),
    "Python's truth": (lambda n, b: _arrivals(n, wanted=1 + _one_if(not n - b)), "deadlock"),
    "Python's difference": (lambda n, b: _arrivals(n, wanted=1 + _one_if(b - n == 0)), "deadlock"),
    "Python's distance": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(abs(n - b) < 1)), "deadlock",
    ),
    "Python's least": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(min(n, b) == b and n < b + 1)), "deadlock",
    ),
    "Python's greatest": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(max(n, b) == b and n > b - 1)), "deadlock",
    ),
    "Python's multiple": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(3 * n + 1 == 3 * b + 1)), "deadlock",
    ),
    "Python's quotient": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(n // 8 == b // 8 and n % 8 == b % 8)),
        "deadlock",
    ),
    "Python's negative": (lambda n, b: _arrivals(n, wanted=1 + _one_if(-n == -b)), "deadlock"),
    "Python's bits": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(n & 7 == b & 7 and n >> 3 == b >> 3)),
        "deadlock",
    ),
    "Python's complement": (lambda n, b: _arrivals(n, wanted=1 + _one_if(~n == ~b)), "deadlock"),
    "a collection": (lambda n, b: _arrivals(n, wanted=1 + _one_if(n in (b,))), "deadlock"),
    "a condition": (lambda n, b: _arrivals(n, skipped=as_expr(n).eq(b)), "deadlock"),
    "a choice": (
        lambda n, b: _arrivals(n, came=select(as_expr(n).eq(b), 1, 2), wanted=2), "deadlock",
    ),
    "a lower bound": (lambda n, b: _arrivals(n, skipped=(as_expr(n) >= b) & (as_expr(n) < b + 1)),
                      "deadlock"),
    "the last turn": (lambda n, b: _turns(n, lambda i: i.eq(b - 1) & as_expr(n).eq(b)), "deadlock"),
    "a turn from the end": (
        lambda n, b: _turns(n, lambda i: (i + 3).eq(n) & i.eq(b - 3)), "deadlock",
    ),
    "turns of a sum": (
        lambda n, b: _turns(n, lambda i: i.eq(0) & as_expr(n).eq(b), trips=n + 1), "deadlock",
    ),
    "trip counts": (lambda n, b: _unequal(n, n + _one_if(n == b)), "deadlock"),
    "trip counts that cross": (
        lambda n, b: _unequal(n, select(as_expr(n).eq(b), n + 1, n)), "deadlock",
    ),
    "bytes": (lambda n, b: _bytes(n, 16 + 16 * _one_if(n == b)), "deadlock"),
    "bytes by the machine": (
        lambda n, b: _bytes(n, select(as_expr(n).eq(b), 32, 16)), "deadlock",
    ),
    "rows": (lambda n, b: _row(n, n, n - 1 + _one_if(n == b)), "out-of-bounds"),
    "a row too far": (lambda n, b: _row(n, 90 - 30 * _one_if(n == b), n - 1), "out-of-bounds"),
    "rows that meet": (lambda n, b: _words(n, n, b if b < 99 else 200), "race"),
    "rows that cross": (lambda n, b: _words(n, 2 * n, n + b if b < 99 else 255), "race"),
    "Python's lower bits cut": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(n & -8 == b & -8 and n & 7 == b & 7)),
        "deadlock",
    ),
    "Python's field": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(n & 120 == b & 120 and n & 7 == b & 7)),
        "deadlock",
    ),
    "Python's large remainder": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(3 * n % 600 == 3 * b % 600)), "deadlock",
    ),
    "Python's remainder from above": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if((2000 - n) % 1900 == (2000 - b) % 1900)),
        "deadlock",
    ),
    "Python's large quotient": (
        lambda n, b: _arrivals(n, wanted=1 + _one_if(b < 99 and (n + 600 - b) // 600 > 0)),
        "deadlock",
    ),
    "a number that is true": (
        lambda n, b: _arrivals(n, wanted=2 if b - n else 1, came=2), "over-arrival",
    ),
    "rows of turns": (lambda n, b: _stored(n, lambda i: i, b - 1 if b < 99 else 300), "race"),
    "rows of turns, two apart": (
        lambda n, b: _stored(n, lambda i: 2 * i + 1, 2 * b - 1 if b < 99 else 300), "race",
    ),
    "rows of turns from the end": (
        lambda n, b: _stored(n, lambda i: 300 - i, 301 - b if b < 99 else 400), "race",
    ),
    "rows of turns before the last": (
        lambda n, b: _stored(n, lambda i: n - 1 - i, b - 1 if b < 99 else 300), "race",
    ),
    "rows of turns that are read": (
        lambda n, b: _stored(n, lambda i: i, b - 1 if b < 99 else 300, how="load"), "race",
    ),
    "rows beside those of turns": (
        lambda n, b: _stored(n, lambda i: i + n, 2 * b - 1 if b < 99 else 300), "race",
    ),
    "one row of each other turn": (
        lambda n, b: _stored(n, lambda i: i, b - 1 if b < 99 else 300, trips=(n + 1) // 2 * 2),
        "race",
    ),
    "turns beyond the rows": (
        lambda n, b: _stored(n, lambda i: i + 1, 0, rows=b if b < 99 else 300, how="load"),
        "out-of-bounds",
    ),
    "rows that come from both ends": (
        lambda n, b: _both(n, lambda i: i, lambda i: 2 * (b - 1) - i + (0 if b < 99 else 1)),
        "race",
    ),
    "rows that one overtakes": (
        lambda n, b: _both(n, lambda i: 3 * i, lambda i: i + 3 * (b - 1) if b < 99 else 3 * i + 1),
        "race",
    ),
    "tiles of turns from the end": (
        lambda n, b: _copied(n, lambda i: 150 - i, 151 - b if b < 99 else 200), "race",
    ),
    "a counter": (lambda n, b: _counted(n, u32, lambda c: c.eq(b)), "deadlock"),
    "a counter of 8 bits": (
        lambda n, b: _counted(n, u8, lambda c: c < 4, by=4, first=12) if b < 99
        else _counted(n, u8, lambda c: c < 1, by=3), "deadlock",
    ),
    "a counter down": (lambda n, b: _counted(n, s32, lambda c: c.eq(-2 * b), by=-2), "deadlock"),
    "CTAs": (lambda n, b: _gridded(n, b - 1), "deadlock"),
    "rows from the end": (lambda n, b: _words(n, 200 - n, 200 - b if b < 99 else 255), "race"),
}  # fmt: skip


def claimed(use: Build, bad: int) -> ts.Report:
    return ts.check(lambda n: use(n, bad), for_all={"n": ASKED}, schedules=0)


@pytest.mark.parametrize("name", USES)
def test_a_value_that_is_wrong(name: str) -> None:
    use, rule = USES[name]
    right = claimed(use, NEVER)
    assert right.verdict == "proved", right
    assert right.for_all is not None
    assert right.for_all.proved, right.for_all
    wrong = claimed(use, BAD)
    assert wrong.verdict == "failed", wrong.for_all
    assert wrong.rules == {rule}
    assert wrong.covers.startswith(f"n = {BAD};")


def test_the_end_of_a_tensor_far_behind_the_values_that_are_run() -> None:
    """Rows end that do not grow with what is asked for them; those that do are there."""
    asked = {"n": "40.."}
    wrong = ts.check(lambda n: _row(n, 200, n - 1), for_all=asked, schedules=0)
    assert wrong.rules == {"out-of-bounds"}
    assert wrong.covers.startswith("n = 201;")
    right = ts.check(lambda n: _row(n, n, n - 1), for_all=asked, schedules=0)
    assert right.verdict == "proved"
    assert "every n >= 40" in right.covers
