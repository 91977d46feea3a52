"""Where among the values of a parameter one is wrong, and what tells it from its neighbours.

Turns are of one step of the parameter here (`_turning`), so that what is asked of a number decides
for how many steps a run stands: the first values, which are run one by one; the last one of a
range; one residue; the first value of a quotient. Accesses of two warps meet in a turn that the
runs which are followed do not have yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
import pytest

import tilesim as ts
from tests.sim.steady_programs import one_stage
from tilesim import Builder, Program, s32, select, u8, u32
from tilesim.ir.expr import as_expr

#: a value that is not asked for: of the right twin
NEVER = 99_776
#: the first turn in which accesses meet, and the numbers of turns that are asked for
BAD, TURNS = 27, "1..90"
Number = Any
Place = Callable[[Any], Any]


class Build(Protocol):
    """A kernel of ``n``, which is wrong as it is told by ``b``."""

    def __call__(self, n: Number, b: int) -> Program: ...


def _turning(k: Builder, n: Number) -> None:
    """So many turns, of which nothing is wrong, and each of which is like the one before."""
    with k.loop(n):
        k.sync_threads()


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


def _wrong_if(n: Number, holds: object) -> Program:
    """An arrival is missing if something holds, which Python has found out."""
    return _arrivals(n, wanted=2 if holds else 1)


def _unequal(first: Number, second: Number) -> Program:
    """A producer of a stage and a consumer, which make so many turns."""
    k = Builder("unequal", warps=2)
    one_stage(k, first, second)
    return k.finish()


def _arriving_turns(k: Builder, trips: Number, skipped: Callable[[Any], Any]) -> Program:
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
    return k.finish()


def _turns(trips: Number, skipped: Callable[[Any], Any]) -> Program:
    return _arriving_turns(Builder("turns", warps=1), trips, skipped)


def _counted(n: Number, kind: Any, skipped: Place, by: int = 1, first: int = 0) -> Program:
    """``n`` turns with an arrival in each; but for those in which a register says otherwise."""
    k = Builder("counted", warps=1)
    count = k.var("count", first, kind)

    def counted(_: Any) -> Any:
        k.assign(count, count + by)
        return skipped(count)

    return _arriving_turns(k, n, counted)


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


def _rows(n: Number, rows: Number, first: Number, second: Number = None) -> Program:
    """A row of a tensor of so many is written, and another one by another warp."""
    k = Builder("rows", warps=2)
    x = k.tensor("x", s32, (rows, 32))
    for warp, row in enumerate((first, second)):
        with k.role(f"w{warp}", warp):
            if row is not None:
                k.mem.store(x[k.var(f"at{warp}", as_expr(row)), k.lane_id], 1)
    _turning(k, n)
    return k.finish()


def _copied(n: Number, first: Place, second: Number) -> Program:
    """A warp stores a tile by a tensor map in each turn, and another one stores a tile once."""
    k = Builder("copied", "sm_90a", warps=2)
    x, data = k.tensor("x", s32, (2048, 64)), k.shared("data", s32, (8, 32), align=128)
    box = k.tensor_map(x, (8, 32))
    with k.role("fills", 0):
        for line in range(8):
            k.mem.store(data[line, k.lane_id], line)
        k.fence.proxy_async()
    k.sync_threads()
    for warp, (trips, row) in enumerate(((n, first), (1, lambda i: second))):
        with k.role(f"w{warp}", warp), k.if_(k.lane_id.eq(0)), k.loop(trips) as i:
            k.tma.store(box, data, (8 * as_expr(row(i)), 0))
            k.bulk.commit_group()
            k.bulk.wait_group(0)
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


def _both(
    n: Number, first: Place, second: Place, *, trips: Number = None,
    rows: Number = 256,
) -> Program:  # fmt: skip
    """Each of two warps accesses a place of a tensor in each turn, the second one in ``trips``."""
    k = Builder("both", warps=2)
    x = k.tensor("x", s32, (rows, 4, 32))
    for warp, place in enumerate((first, second)):
        with k.role(f"w{warp}", warp), k.loop(n if trips is None or not warp else trips) as i:
            k.bar.sync(warp + 1, 32)
            row, column = place(i)
            at = x[as_expr(row), as_expr(column), k.lane_id]
            k.mem.store(at, warp)
    return k.finish()


#: what Python asks of the object, which the number does not see: ``b`` is named, and a value beside
OBJECTS: dict[str, Build] = {
    "itself": lambda n, b: _wrong_if(n, n is b),
    "the next one": lambda n, b: _wrong_if(n, n - 1 is b),
    "the one before": lambda n, b: _wrong_if(n, n + 1 is b),
}
Asked = str


def _packed(n: Number, column: Number) -> Program:
    """A box of elements of four bits is copied, which begins at a multiple of 128 of them."""
    k = Builder("packed", "sm_100a", warps=1)
    source, bar = k.tensor("source", u8, (4, 512)), k.mbarriers("bar")
    data = k.shared("data", u8, (2, 128), align=128)
    box = k.tensor_map(source, (2, 128), packing="b4x16_p64")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
        k.mbarrier.arrive_expect_tx(bar, 128)
        k.tma.load(box, data, (0, k.var("column", as_expr(column))), bar)
        k.mbarrier.wait(bar, 0)
    _turning(k, n)
    return k.finish()


def _looked_up(n: Number, place: Number) -> Program:
    """An arrival is missing if a table has a 5 at some place."""
    k = Builder("looked_up", warps=1)
    table, own, bar = k.tensor("table", s32, (512,)), k.var("own", 0), k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_warp()
    with k.one_thread(0):
        k.mem.load(own, table[as_expr(place)])
        with k.if_(own.ne(5)):
            k.mbarrier.arrive(bar)
    k.mbarrier.wait(bar, 0)
    _turning(k, n)
    return k.finish()


def _refusing(n: Number, *, wrong: bool) -> Program:
    """Refused for some values, and wrong for others; for all of these the object is another."""
    if n % 4 == 1 and n > 60:
        if n + 1 - 1 is not n:
            raise ValueError("another object")
        if n < 80:
            raise AssertionError("few")
        return _arrivals(n, wanted=2 if wrong else 1)
    return _arrivals(n)


#: a kernel by what of its number is asked, and which values it is wrong for if it is told ``b``:
#: the least of them, among those asked for. Up to which value each question of Python has one
#: answer is in `test_forall_python`
QUESTIONS: dict[str, tuple[Build, Asked, dict[int, int]]] = {
    "compared": (lambda n, b: _wrong_if(n, n == b), "40..400", {b: b for b in (41, 400)}),
    "compared by the machine": (
        lambda n, b: _arrivals(n, skipped=as_expr(n).eq(b)), "40..400",
        {400: 400},
    ),
    "every third value": (lambda n, b: _wrong_if(n, n == b), "40..400:3", {115: 115}),
    "values from below zero on": (
        lambda n, b: _wrong_if(n + 60, n == b), "-30..300", {0: 0},
    ),
    "trip counts": (
        lambda n, b: _unequal(n, n + (1 if n == b else 0)), TURNS, {b: b for b in (2, 3, BAD)},
    ),
    "a rest and a part": (
        lambda n, b: _wrong_if(n, n % 3 == b % 3 and n // 7 >= b // 7), "40..400", {71: 71},
    ),
    "CTAs": (lambda n, b: _gridded(n, b - 1), "10..25", {17: 17}),
}  # fmt: skip
#: by what is accessed: a kernel of which two accesses meet from turn ``b`` on, and its right twin
PLACES: dict[str, tuple[Build, Callable[[Any], Program]]] = {
    "rows ahead of another's": (
        lambda n, b: _both(n, lambda i: (i, 0), lambda i: (i + b - 1, 0)),
        lambda n: _both(n, lambda i: (2 * i, 0), lambda i: (2 * i + 1, 0)),
    ),
    "rows two apart": (
        lambda n, b: _both(n, lambda i: (2 * i, 1), lambda i: (2 * i + 2 * b - 2, 1)),
        lambda n: _both(n, lambda i: (2 * i, 1), lambda i: (2 * i + 51, 1)),
    ),
    "columns": (
        lambda n, b: _both(n, lambda i: (i, 2), lambda i: (i + b - 1, 2)),
        lambda n: _both(n, lambda i: (i, 2), lambda i: (i + 26, 1)),
    ),
    "rows of which one overtakes": (
        lambda n, b: _both(n, lambda i: (2 * i, 1), lambda i: (i + 2 * b - 2, 1), trips=1),
        lambda n: _both(n, lambda i: (2 * i, 1), lambda i: (i + 2 * BAD - 1, 1), trips=1),
    ),
    "rows of which one goes down": (
        lambda n, b: _both(n, lambda i: (200 - 2 * i, 3), lambda i: (202 - 2 * b, 3), trips=1),
        lambda n: _both(n, lambda i: (200 - 2 * i, 3), lambda i: (201 - 2 * BAD, 3), trips=1),
    ),
    "a row that is written again": (
        lambda n, b: _both(n, lambda i: (i, 0), lambda i: (b - 1, 0)),
        lambda n: _both(n, lambda i: (i + 1, 0), lambda i: (0, 0), trips=1),
    ),
    "rows beside the end": (
        lambda n, b: _both(n, lambda i: (n - 1 - i, 0), lambda i: (n + b - 2 - i, 0)),
        lambda n: _both(n, lambda i: (n - 1 - i, 0), lambda i: (n + i, 0)),
    ),
    "one row beside the end": (
        lambda n, b: _both(n, lambda i: (2 * i, 0), lambda i: (n + b - 2, 0), trips=1),
        lambda n: _both(n, lambda i: (i, 0), lambda i: (n, 0), trips=1),
    ),
}  # fmt: skip
#: by what decides: a kernel that is wrong for BAD, if it is told that, and the rule that it breaks
USES: dict[str, tuple[Build, str]] = {
    "a number that is true": (
        lambda n, b: _arrivals(n, wanted=2 if b - n else 1, came=2), "over-arrival",
    ),
    "a choice": (
        lambda n, b: _arrivals(n, came=select(as_expr(n).eq(b), 1, 2), wanted=2), "deadlock",
    ),
    "a lower bound": (
        lambda n, b: _arrivals(n, skipped=(as_expr(n) >= b) & (as_expr(n) < b + 1)), "deadlock",
    ),
    "the last turn": (lambda n, b: _turns(n, lambda i: i.eq(b - 1) & as_expr(n).eq(b)), "deadlock"),
    "a turn from the end": (
        lambda n, b: _turns(n, lambda i: (i + 3).eq(n) & i.eq(b - 3)), "deadlock",
    ),
    "turns of a sum": (
        lambda n, b: _turns(n + 1, lambda i: i.eq(0) & as_expr(n).eq(b)), "deadlock",
    ),
    "trip counts that cross": (
        lambda n, b: _unequal(n, select(as_expr(n).eq(b), n + 1, n)), "deadlock",
    ),
    "bytes": (lambda n, b: _bytes(n, select(as_expr(n).eq(b), 32, 16)), "deadlock"),
    "rows": (lambda n, b: _rows(n, n, n - 1 + (1 if n == b else 0)), "out-of-bounds"),
    "a row too far": (lambda n, b: _rows(n, 20 if n == b else 90, n - 1), "out-of-bounds"),
    "rows that meet": (lambda n, b: _rows(n, 256, n, min(b, 200)), "race"),
    "rows that cross": (lambda n, b: _rows(n, 256, 2 * n, n + b if b < 99 else 255), "race"),
    "rows from the end": (lambda n, b: _rows(n, 256, 200 - n, 200 - b if b < 99 else 255), "race"),
    "a row of each other turn": (
        lambda n, b: _both(
            n, lambda i: (min(b, 200) - 1, 0), lambda i: (i, 0), trips=(n + 1) // 2 * 2
        ), "race",
    ),
    "turns beyond the rows": (
        lambda n, b: _both(
            n, lambda i: (i + 1, 0), lambda i: (0, 1), trips=1, rows=min(b, 256)
        ), "out-of-bounds",
    ),
    "rows that come from both ends": (
        lambda n, b: _both(
            n, lambda i: (i, 0), lambda i: (2 * min(b, 99) - 2 - i + (0 if b < 99 else 1), 0)
        ), "race",
    ),
    "rows that one overtakes": (
        lambda n, b: _both(
            n, lambda i: (3 * i, 0), lambda i: (i + 3 * (b - 1) if b < 99 else 3 * i + 1, 0),
            rows=300,
        ), "race",
    ),
    "tiles from the end": (
        lambda n, b: _copied(n, lambda i: 150 - i, 151 - b if b < 99 else 200), "race",
    ),
    "a counter": (lambda n, b: _counted(n, u32, lambda c: c.eq(b)), "deadlock"),
    "a counter of 8 bits": (
        lambda n, b: _counted(n, u8, lambda c: c < 4, by=4, first=256 - 4 * b) if b < 99
        else _counted(n, u8, lambda c: c < 1, by=3), "deadlock",
    ),
    "a counter down": (lambda n, b: _counted(n, s32, lambda c: c.eq(-2 * b), by=-2), "deadlock"),
}  # fmt: skip


def _claimed(build: Callable[[Any], Program], asked: Asked) -> ts.Report:
    return ts.check(build, for_all={"n": asked}, schedules=0)


def _require_proved(build: Callable[[Any], Program], asked: Asked) -> None:
    right = _claimed(build, asked)
    assert right.verdict == "proved", right
    assert right.for_all is not None
    assert right.for_all.proved, right.for_all


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_least_value_that_is_wrong(name: str) -> None:
    use, asked, wrong = QUESTIONS[name]
    _require_proved(partial(use, b=NEVER), asked)
    for told, least in wrong.items():
        found = _claimed(partial(use, b=told), asked)
        assert found.verdict == "failed", found.for_all
        assert found.rules == {"deadlock"}
        assert found.covers.startswith(f"n = {least};")


@pytest.mark.parametrize("name", PLACES)
def test_the_first_turn_in_which_accesses_meet(name: str) -> None:
    wrong, right = PLACES[name]
    _require_proved(right, TURNS)
    found = _claimed(partial(wrong, b=BAD), TURNS)
    assert found.verdict == "failed", found.for_all
    assert found.rules == {"race"}
    assert found.covers.startswith(f"n = {BAD};")


@pytest.mark.parametrize("name", USES)
def test_the_value_that_is_wrong(name: str) -> None:
    use, rule = USES[name]
    _require_proved(partial(use, b=NEVER), TURNS)
    found = _claimed(partial(use, b=BAD), TURNS)
    assert found.verdict == "failed", found.for_all
    assert found.rules == {rule}
    assert found.covers.startswith(f"n = {BAD};")


def test_the_end_of_a_tensor_far_behind_the_values_that_are_run() -> None:
    """Rows end that do not grow with what is asked for them; those that do are there."""
    found = _claimed(lambda n: _rows(n, 200, n - 1), "40..")
    assert found.rules == {"out-of-bounds"}
    assert found.covers.startswith("n = 201;")
    right = _claimed(lambda n: _rows(n, n, n - 1), "40..")
    assert right.verdict == "proved"
    assert "every n >= 40" in right.covers


class _Made:
    """A kernel that an object makes, which keeps the number."""

    def __init__(self, use: Build, b: int) -> None:
        self._use, self._b = use, b

    def __call__(self, n: Any) -> Program:
        return self._use(n, self._b)

    def of(self, n: Any) -> Program:
        return self(n)


#: by how a kernel gets to know a number: the kernel, and what it is given
TOLD: dict[str, Callable[[Build, int], tuple[Callable[..., Program], dict[str, int]]]] = {
    "a closure": lambda use, b: (lambda n: use(n, b), {}),
    "a default": lambda use, b: (lambda n, b=b: use(n, b), {}),
    "a part of a call": lambda use, b: (partial(use, b=b), {}),
    "an object": lambda use, b: (_Made(use, b), {}),
    "a method": lambda use, b: (_Made(use, b).of, {}),
    "a parameter": lambda use, b: (use, {"b": b}),
}


@pytest.mark.parametrize(
    ("name", "told"),
    [*((name, "a closure") for name in OBJECTS), *(("itself", told) for told in TOLD)][1:],
)
def test_a_value_beside_one_that_is_named(name: str, told: str) -> None:
    def claim(b: int) -> ts.Report:
        build, params = TOLD[told](OBJECTS[name], b)
        return ts.check(build, for_all={"n": "40..400"}, params=params, schedules=0)

    right, found = claim(NEVER), claim(61)
    assert right.for_all is not None
    assert right.for_all.proved, right.for_all
    assert found.verdict == "proved"
    assert found.for_all is not None
    assert not found.for_all.proved
    assert "differs from what it makes of an unknown number" in str(found.for_all.obstacle)


def test_a_column_of_packed_elements_between_two_rows_of_them() -> None:
    _require_proved(lambda n: _packed(n, 128 + 128 * ((n - 40) // 30)), "40..200")
    found = _claimed(lambda n: _packed(n, 128 + 64 * ((n - 40) // 30)), "40..200")
    assert found.verdict == "failed", found.for_all
    assert found.rules == {"out-of-bounds"}
    assert found.covers.startswith("n = 70;")


def test_the_first_of_all_values() -> None:
    found = _claimed(lambda n: _wrong_if(n, n == 40), "40..400")
    assert found.rules == {"deadlock"}
    assert found.for_all is not None
    assert found.for_all.said == "failed for n = 40: deadlock"


def test_a_table_in_which_a_value_is_looked_up() -> None:
    """What it holds is known: nothing is said of places that move."""

    def claim(place: Callable[[Number], Number]) -> ts.Report:
        table = np.zeros(512, np.int32)
        table[61] = 5
        return ts.check(
            lambda n: _looked_up(n, place(n)), for_all={"n": "40..400"}, schedules=0,
            inputs={"table": table},
        )  # fmt: skip

    still, wrong, moving = claim(lambda n: 60), claim(lambda n: 61), claim(lambda n: n)
    assert still.for_all is not None
    assert still.for_all.proved, still.for_all
    assert wrong.rules == {"deadlock"}
    assert moving.for_all is not None
    assert not moving.for_all.proved


@pytest.mark.parametrize("wrong", [False, True])
def test_a_refusal_of_the_object_is_none_of_the_number(wrong: bool) -> None:
    """A value that is refused for another reason does not stand for those that are not."""
    claim = _claimed(partial(_refusing, wrong=wrong), "40..").for_all
    assert claim is not None
    assert not claim.proved
    assert claim.upto == 60
    assert "another object" in str(claim.obstacle)
