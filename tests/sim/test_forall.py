"""One proof for every value of a parameter (`tilesim.checker.for_all`), and never one too many."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import tilesim as ts
from tests.sim import steady_programs
from tests.sim.forall_campaign import judged
from tests.sim.steady_programs import ring
from tilesim import Builder, s32
from tilesim.checker import for_all
from tilesim.checker.report import Values
from tilesim.ir.expr import Expr, Operand, select
from tilesim.ir.program import Program
from tilesim.kernels.hopper import matmul_v0, matmul_v3
from tilesim.lib import Pipeline, open_cta
from tilesim.sim.affine.free_parameter import Free, Refused, Scope, scope_of
from tilesim.sim.affine.parameter_values import Demand, Ray

Fault = Callable[[Expr, int], Expr]


def line(text: str, file: str = __file__) -> int:
    """The first line of a file, this one if no other is named, with a text."""
    lines = Path(file).read_text().splitlines()
    return next(n for n, content in enumerate(lines, 1) if text in content)


#: the line of `written` in which the many stores are
STORE = line("k.mem.store(data[" + "row(i)")
#: the lines of `ring` with what races: the store to another stage, and the load
RACING = {
    line("k.mem.store(data[(i + 1) % stages", steady_programs.__file__),
    line("k.mem.load(value, data[i % stages", steady_programs.__file__),
}


def proof(build: Callable[..., Program], **values: str | None) -> ts.Report:
    """What is said of every value."""
    return ts.check(build, for_all=values)


def faulty(fault: Fault, stages: int = 2) -> Callable[..., Program]:
    """Rings of ``n`` turns; where ``fault`` holds of a turn and ``n`` there is a race."""
    return lambda n: ring(n, stages=stages, faulty=lambda i: fault(i, n))


# ---------------------------------------------------------------------- proved


def test_rings_are_proved_for_every_trip_count() -> None:
    report = proof(lambda n: ring(n, stages=3), n=None)
    assert report.for_all is not None
    assert report.for_all.proved
    assert "every n >= 1" in report.covers
    assert report.for_all.runs < 80


@pytest.mark.parametrize(
    ("kernel", "values", "params"),
    [
        (matmul_v0.matmul, {"depth": "64..:64"}, {"m": 64, "n": 64}),
        (matmul_v3.matmul, {"depth": "64..:64"}, {"m": 64, "n": 64, "stages": 1}),
    ],
)
def test_kernels_are_proved_for_every_trip_count(
    kernel: ts.Kernel, values: dict[str, str | None], params: dict[str, int]
) -> None:
    report = ts.check(kernel, for_all=values, params=params)
    assert report.verdict == "proved"
    assert report.for_all is not None
    assert report.for_all.proved, report.for_all


@ts.kernel(warps=1)
def bands(k: Builder, *, n: int = 4) -> None:
    """A loop that depends on ``n`` in one whose turns leave something of Python changed."""
    bar, state = k.mbarriers("bar"), dict[str, int]()
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_threads()
    with k.elected(), k.loop(2):
        for band in range(2):
            state["turns"] = 2 * n + 2 * band
            with k.loop(state["turns"]) as i:
                k.mbarrier.arrive(bar)
                k.mbarrier.wait(bar, i & 1)


def test_what_python_changes_in_a_loop_around() -> None:
    """The loop is recorded a second time, and the bounds in it are the same ones."""
    report = ts.check(bands, for_all={"n": None})
    assert report.for_all is not None
    assert report.for_all.proved, report.for_all


def test_a_finite_range_and_several_parameters() -> None:
    report = proof(lambda n, stages: ring(n, stages=stages), n="1..300", stages="1..2")
    assert report.covers.endswith("every n in 1..300, every stages in 1..2")


@pytest.mark.parametrize("wrong", [None, 3])
def test_a_few_values_are_checked_one_by_one(wrong: int | None) -> None:
    """A parameter that decides more than loops: what else it may be cannot be said."""

    def stages(stages: int) -> Program:
        return ring(6, stages=stages, faulty=lambda i: i.eq(2) & (stages == wrong))

    report = proof(stages, stages="1..4")
    assert report.for_all is not None
    if wrong is None:
        assert report.covers.endswith("every stages in 1..4")
    else:
        assert (report.verdict, report.for_all.at) == ("failed", wrong)
    unlimited = proof(stages, stages=None).for_all
    assert unlimited is not None
    assert not unlimited.proved


def test_a_kernel_that_takes_some_values_only() -> None:
    def even(n: int) -> Program:
        if n % 2:
            raise ValueError("n has to be even")
        return ring(n)

    report = ts.check(even, for_all={"n": None}, params={"n": 2})
    assert report.for_all is not None
    assert report.for_all.proved
    assert 1 in report.for_all.refused
    assert 2 not in report.for_all.refused


# ---------------------------------------------------------------------- faults for some values


@pytest.mark.parametrize(
    ("count", "first"),
    [
        (lambda n: 32 + n // 5000, 5000),
        (lambda n: 32 + (n == 777), 777),
        (lambda n: 32 + max(0, min(n - 4000, 1)), 4001),
    ],
)
def test_a_late_value_that_fails_is_found(count: Callable[[int], int], first: int) -> None:
    """Python decides for which one: arrivals are too few there."""
    report = proof(lambda n: signalled(n, count(n)), n=None)
    assert report.verdict == "failed"
    assert report.rules == {"deadlock"}
    assert report.for_all is not None
    assert report.for_all.at == first
    assert report.for_all.runs < 60


def signalled(n: int, count: int) -> Program:
    """As many turns of a row that 32 lanes fill; it takes ``count`` arrivals."""
    k = Builder("signalled", warps=2)
    data, full, empty = k.shared("data", s32, (32,)), k.mbarriers("full"), k.mbarriers("empty")
    with k.one_thread():
        k.mbarrier.init(full, count)
        k.mbarrier.init(empty, 32)
    k.sync_threads()
    with k.role("producer", 0), k.loop(n) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mem.store(data[k.lane_id], 7)
        k.mbarrier.arrive(full)
    with k.role("consumer", 1), k.loop(n) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(k.var("value", 0), data[k.lane_id])
        k.mbarrier.arrive(empty)
    return k.finish()


def test_what_is_shown_is_said_where_not_all_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer and longer rings, for ever: the search ends, and says how far it came."""
    monkeypatch.setattr(for_all, "ForAll", partial(for_all.ForAll, most=8_000))
    report = proof(lambda n: ring(n, stages=1 + n // 700), n=None)
    assert report.verdict == "proved"
    assert report.for_all is not None
    assert not report.for_all.proved
    assert "have executed 8,000 warp instructions" in str(report.for_all.obstacle)
    upto = report.for_all.upto
    assert upto is not None
    assert upto >= 699
    assert report.reasons[-1].endswith(f"; shown up to n = {upto}")
    assert "every n" not in report.covers


@pytest.mark.parametrize(
    ("fault", "first"),
    [
        (lambda i, n: i.eq(n - 70), 71),
        (lambda i, n: (i % 61).eq(60), 61),
        (lambda i, n: (i + ((1 << 31) - 90)) < 0, 91),
        (lambda i, n: (i + i).eq(-n), None),
    ],
)
def test_a_fault_for_some_values_is_found_or_nothing_is_said(
    fault: Fault, first: int | None
) -> None:
    """``first``: the least value for which a check alone fails; None: there is none."""
    build = faulty(fault)
    report = proof(build, n=None)
    assert report.for_all is not None
    if first is None:
        assert report.verdict == "proved"
        return
    assert not report.for_all.proved
    if report.verdict == "failed":
        assert report.for_all.at == first
        assert report.rules == {"race"}
        assert {f.locations[0].line for f in report.findings} <= RACING
        assert f"n = {first}; " in report.covers
        assert ts.check(build(n=first), schedules=0, budget=0).findings == report.findings
        assert ts.check(build(n=first - 1), schedules=0, budget=0).verdict == "proved"
    else:
        assert report.for_all.obstacle is not None
        assert "Branch" not in str(report.for_all.obstacle)


def test_a_fault_in_a_turn_far_away() -> None:
    report = proof(faulty(lambda i, n: i.eq(500)), n=None)
    assert report.for_all is not None
    assert report.for_all.at == 501


def test_what_depends_on_the_parameter_otherwise() -> None:
    """Places in shared memory, and in global memory that may end."""

    def shared(n: int) -> Program:
        k = Builder("shared", warps=1)
        data = k.shared("data", s32, (64,))
        with k.loop(n) as i:
            k.mem.store(data[select(i.eq(n - 1), 63, 0)], 1)
            k.sync_threads()
        return k.finish()

    def beyond(n: int) -> Program:
        k = Builder("beyond", warps=1)
        data, value = k.tensor("data", s32, (100, 32)), k.var("value", 0)
        with k.loop(n) as i:
            k.mem.load(value, data[i, k.lane_id])
            k.sync_threads()
        return k.finish()

    assert proof(beyond, n=None).verdict == "failed"
    report = proof(beyond, n="1..100")
    assert report.for_all is not None
    assert report.verdict == "proved"
    report = proof(shared, n=None)
    assert report.for_all is not None
    assert report.for_all.proved


# ---------------------------------------------------------------------- what is written


def written(
    n: int, row: Callable[[Expr], Operand] = lambda i: i, other: Operand | None = None,
    rows: int | None = None, ctas: int = 1, turns: int | None = None,
) -> Program:  # fmt: skip
    """In each of ``n`` turns a warp writes a row, in the end another one row ``other``."""
    k = Builder("written", warps=2)
    k.launch(grid=ctas)
    data = k.tensor("data", s32, (n if rows is None else rows, 32))
    with k.role("many", 0), k.loop(n if turns is None else turns) as i:
        k.mem.store(data[row(i) + k.cta_x * 90, k.lane_id], 1)
        k.bar.sync(1, 32, aligned=False)
    with k.role("one", 1):
        if other is not None:
            k.mem.store(data[other, k.lane_id], 2)
    return k.finish()


@pytest.mark.parametrize(
    "build",
    [
        lambda n: written(n),
        lambda n: written(n, rows=3 * n + 4, other=3 * n + 3, row=lambda i: 3 * i),
        lambda n: written(n, rows=3 * n + 4, other=1, row=lambda i: 3 * i),
        lambda n: written(n, rows=n + 1, other=n),
        lambda n: written(n, rows=n + 1, other=0, row=lambda i: n - i),
    ],
)
def test_what_is_written_may_grow(build: Callable[[int], Program]) -> None:
    report = proof(build, n=None)
    assert report.for_all is not None
    assert report.for_all.proved, report.for_all


@pytest.mark.parametrize(
    ("build", "first"),
    [
        (lambda n: written(n, rows=4096, ctas=2), 91),
        (lambda n: written(n, rows=4096, other=200 - n, turns=70), 131),
    ],
)
def test_accesses_that_meet_for_some_values(build: Callable[[int], Program], first: int) -> None:
    report = proof(build, n="1..199" if first == 131 else None)
    assert report.for_all is not None
    assert not report.for_all.proved
    if report.verdict == "failed":
        assert report.for_all.at == first
        assert report.rules == {"race"}
        lines = {loc.line for f in report.findings for loc in f.locations}
        assert STORE in lines
    else:
        assert report.for_all.obstacle is not None
        assert "data" in str(report.for_all.obstacle)


def test_a_fault_in_what_is_skipped_of_another_loop() -> None:
    """Turns of a loop that does not depend on ``n`` are left out as well: a fault in one of them
    is one."""

    def build(n: int, at: int) -> Program:
        k = Builder("two", warps=1)
        data = k.shared("data", s32, (32,))
        with k.loop(204) as i, k.if_((i % 8).eq(5)), k.if_(i.eq(at - n)):
            k.mem.store(data[k.lane_id + 1], 1)
        with k.loop(n):
            k.sync_threads()
        return k.finish()

    report = ts.check(build, for_all={"n": None}, params={"at": 500})
    assert report.for_all is not None
    assert report.for_all.at == 303
    assert report.rules == {"out-of-bounds"}
    report = ts.check(build, for_all={"n": None}, params={"at": -1})
    assert report.for_all is not None
    assert report.for_all.proved, report.for_all


# ---------------------------------------------------------------------- numbers that are not known


def test_answers_hold_as_far_as_the_scope_says() -> None:
    scope = Scope("n")
    n = Free(10, Fraction(1), scope)
    assert isinstance(n, int)
    assert n < 20
    assert scope.last == 9
    assert n != 15
    assert scope.last == 4
    assert (n // 4, scope.modulus) == (Free(2, Fraction(1, 4), scope), 4)
    assert (n + n - n, (n * 3) % 3) == (n, 0)
    asks: list[Callable[[], object]] = [
        lambda: range(n), lambda: n * n, lambda: [0] * n, lambda: n / 2, lambda: {n: 1},
    ]  # fmt: skip
    for refused in asks:
        with pytest.raises((Refused, TypeError)):
            refused()
    assert scope.refusal is not None


def test_numbers_of_another_program_and_of_numpy() -> None:
    n, other = (Free(10, Fraction(1), Scope("n")) for _ in range(2))
    assert n != other
    assert n + np.int64(2) == 12
    assert n // np.int32(10) == 1
    assert scope_of(n).modulus == 10


def test_a_demand_holds_before_and_behind_what_is_skipped() -> None:
    demand = Demand(1, Ray(0, -2), 1, None, fits=False)
    assert demand.lasts(often=1) == 0
    assert Demand(7, Ray(1, -1), 1, None, fits=False).lasts(often=1) is None
    assert Demand(7, Ray(1, -1), 1, None, fits=False).lasts(often=1, skipped=7) == 0
    assert Demand(7, Ray(0, -1), 1, None, fits=False).lasts(often=2) == 3


@pytest.mark.parametrize("text", ["1", "5..1", "a..", "1..:0", ""])
def test_ranges_that_are_none(text: str) -> None:
    with pytest.raises(ts.UsageError):
        Values.parse(text)


def test_values_in_words() -> None:
    assert Values.parse("64..:64").says("depth") == "every depth >= 64 in steps of 64"
    assert Values.of(range(2, 9, 3)) == Values(2, 8, 3)
    with pytest.raises(ts.UsageError):
        ts.check(ring(3), for_all={"n": None})


@pytest.mark.parametrize("number", [4, 11])
def test_random_programs(number: int) -> None:
    """Some of those of the campaign: one that is proved, and one that fails."""
    assert not judged(number, most=16).wrong


# ---------------------------------------------------------------------- several loops


def rings(
    n: int, second: int | None = None, around: int = 1, faulty: Fault | None = None
) -> Program:
    """A ring of 2 stages, around times after one another, and one of 3 stages with ``second``
    turns after it in the same warps; where ``faulty`` holds of a turn of that, there is a race."""
    k = Builder("rings", warps=2)
    counts = (2, 3)
    data = [k.shared(f"data{s}", s32, (s,)) for s in counts]
    full = [k.mbarriers(f"full{s}", s) for s in counts]
    empty = [k.mbarriers(f"empty{s}", s) for s in counts]
    with k.one_thread():
        for bar in (b for bars in (*full, *empty) for b in bars):
            k.mbarrier.init(bar, 1)
    k.sync_threads()
    turns = (n, n if second is None else second)
    with k.role("producer", 0), k.elected():
        for r, stages in enumerate(counts):
            count = k.var(f"made{r}", 0)
            with k.loop(around if not r else 1), k.loop(turns[r]) as i:
                k.mbarrier.wait(empty[r][count % stages], (count // stages & 1) ^ 1)
                k.mem.store(data[r][count % stages], 7)
                if r and faulty is not None:
                    with k.if_(faulty(i, n)):
                        k.mem.store(data[r][(count + 1) % stages], 8)
                k.mbarrier.arrive(full[r][count % stages])
                k.assign(count, count + 1)
    with k.role("consumer", 1), k.elected():
        for r, stages in enumerate(counts):
            count, value = k.var(f"used{r}", 0), k.var(f"value{r}", 0)
            with k.loop(around if not r else 1), k.loop(turns[r]) as i:
                k.mbarrier.wait(full[r][count % stages], count // stages & 1)
                k.mem.load(value, data[r][count % stages])
                k.mbarrier.arrive(empty[r][count % stages])
                k.assign(count, count + 1)
    return k.finish()


#: lines of the second store of the producer and of the load of the consumer in `rings`
_OVER, _LOAD = line("% stages" + "], 8)"), line("k.mem.load(value, " + "data[r]")


@pytest.mark.parametrize(
    ("second", "around"),
    [
        (None, 2),  # periods of 4 and 6 turns: 12 values apart
        (100, 1),
    ],
)
def test_two_loops_of_different_periods(second: int | None, around: int) -> None:
    right = proof(lambda n: rings(n, second, around), n=None)
    assert right.for_all is not None
    assert right.for_all.proved, right.for_all
    assert "every n >= 1" in right.covers


@pytest.mark.parametrize(
    ("faulty", "second", "around", "first"),
    [
        (lambda i, n: i.eq(n - 70), None, 2, 72),
        (lambda i, n: i.eq(5) & (n % 13 == 12), None, 2, 12),
    ],
)
def test_a_fault_in_the_second_of_two_loops(
    faulty: Fault, second: int | None, around: int, first: int
) -> None:
    wrong = proof(lambda n: rings(n, second, around, faulty), n=None)
    assert wrong.verdict == "failed"
    assert wrong.for_all is not None
    assert (wrong.for_all.proved, wrong.for_all.at) == (False, first)
    assert wrong.rules == {"race"}
    assert {loc.line for f in wrong.findings for loc in f.locations} >= {_OVER, _LOAD}
    roles = {p.role for f in wrong.findings for p in f.participants}
    assert roles == {"producer", "consumer"}


# Proofs for all values of several parameters.


def test_two_parameters_without_end() -> None:
    """All values of one are looked at, the other one is what it is: that is said, and no more."""

    def rings(a: int, b: int) -> Program:
        return ring(a + b)

    report = ts.check(rings, for_all={"a": None, "b": None}, params={"b": 3})
    claim = report.for_all
    assert claim is not None
    assert not claim.proved
    assert claim.wanted == "every a >= 1, every b >= 1"
    assert "b has values without end as well" in str(claim.obstacle)
    assert "with b = 3 it is shown for every a >= 1" in str(claim.obstacle)
    assert "every a" not in report.covers
    assert any("b has values without end" in reason for reason in report.reasons)


def test_two_parameters_without_end_one_of_which_fails() -> None:
    report = ts.check(
        lambda a, b: ring(a + b, faulty=lambda i: i.eq(60)), for_all={"a": None, "b": None}
    )
    assert report.for_all is not None
    assert (report.verdict, report.for_all.at) == ("failed", 60)


# Proofs for every trip count of loops that read ahead, up to the last there is.


def ahead(n: int, *, last: int = 1) -> ts.Program:
    """A ring of rows; the consumer also loads the row of the next turn by itself, after the last
    that one again. With ``last=0`` the row behind the last one."""
    k = ts.Builder("ahead", warps=2)
    data, ring = k.tensor("data", ts.f32, (n, 32)), k.shared("ring", ts.f32, (2, 32))
    row = k.fragment("row", ts.f32, (1, 32))
    pipe = Pipeline(k, 2)
    open_cta(k, pipe)
    with k.role("load", 0), k.elected(), k.loop(n) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(128)
        k.bulk.load(ring[slot.stage], data[i], slot.full)
    with k.role("use", 1), k.loop(n) as i:
        slot = pipe[i]
        k.tile.load(row, data[ts.minimum(i + 1, n - last)])
        slot.wait()
        with k.elected():
            slot.release()
    return k.finish()


def test_what_is_read_ahead_ends_with_the_data() -> None:
    """In the last turn both operands of the minimum are the same, and grow alike with ``n``."""
    report = ts.check(ahead, for_all={"n": None})
    assert report.for_all is not None
    assert report.for_all.proved


@pytest.mark.parametrize("values", [None, "3..9"])
def test_a_row_behind_the_last_is_found(values: str | None) -> None:
    report = ts.check(lambda n: ahead(n, last=0), for_all={"n": values})
    assert report.verdict == "failed"
    assert report.rules == {"out-of-bounds"}


# Where nothing is said of all values, the answer names the line that stands in the way.


def summed(n: int) -> Program:
    """A register grows by another number in each turn, and decides something in the end."""
    k = Builder("summed", warps=1)
    data, total = k.shared("data", s32, (32,)), k.var("total", 0)
    with k.loop(n) as i:  # no shift
        k.assign(total, total + i)
        k.bar.sync(1, 32)
    k.mem.store(data[select(total.eq(4_950), 32, k.lane_id)], 1)
    return k.finish()


def waiting(n: int) -> Program:
    """Iterations in which no warp waits are one move."""
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
        (summed, __file__, "# no shift"),
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
