"""Pipelines as users write them: their turns are left out, and one proof stands for every value."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

import tilesim as ts
from tests.sim.forall_campaign import judged
from tests.sim.steady_programs import ring
from tests.sim.timed import timed
from tilesim import Builder, s32, u32
from tilesim.checker.launch_control import are_the_same
from tilesim.ir.expr import Expr
from tilesim.ir.program import Program
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.schedule import Stealing
from tilesim.sim.affine.free_parameter import Free, Scope
from tilesim.sim.machine.simulate import Simulation


def steps(n: int, *, late: int = -1) -> Program:
    """A ring whose warps go on in steps of three while there is something left; at turn ``late``
    the producer fills what may still be read."""
    k = Builder("steps", warps=2)
    data = k.shared("data", s32, (2, 32))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    with k.one_thread():
        for bar in (*full, *empty):
            k.mbarrier.init(bar, 32)
    k.sync_threads()
    with k.role("producer", 0):
        i = k.var("i", 0)
        with k.while_(i * 3 < n):
            k.mbarrier.wait(empty[i % 2], (i // 2 & 1) ^ 1)
            k.mem.store(data[i % 2, k.lane_id], 7)
            with k.if_(i.eq(late)):
                k.mem.store(data[(i + 1) % 2, k.lane_id], 8)
            k.mbarrier.arrive(full[i % 2])
            k.assign(i, i + 1)
    with k.role("consumer", 1):
        j, value = k.var("j", 0), k.var("value", 0)
        with k.while_(j * 3 < n):
            k.mbarrier.wait(full[j % 2], j // 2 & 1)
            k.mem.load(value, data[j % 2, k.lane_id])
            k.mbarrier.arrive(empty[j % 2])
            k.assign(j, j + 1)
    return k.finish()


def copied(n: int, *, stages: int = 2, behind: int = 0) -> Program:
    """A ring that ``cp.async`` fills, whose copies arrive on the barriers themselves; the consumer
    reads what is ``behind`` the stage that it has waited for."""
    k = Builder("copied", warps=2)
    source = k.tensor("source", s32, (stages, 32))
    data = k.shared("data", s32, (stages, 32))
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    with k.one_thread():
        for bar in (*full, *empty):
            k.mbarrier.init(bar, 32)
    k.sync_threads()
    with k.role("producer", 0), k.loop(n) as i:
        k.mbarrier.wait(empty[i % stages], (i // stages & 1) ^ 1)
        k.cp_async.copy(data[i % stages], source[i % stages], size=4)
        k.cp_async.mbarrier_arrive(full[i % stages], noinc=True)
    with k.role("consumer", 1), k.loop(n) as i:
        value = k.var("value", 0)
        k.mbarrier.wait(full[i % stages], i // stages & 1)
        k.mem.load(value, data[(i + behind) % stages, k.lane_id])
        k.mbarrier.arrive(empty[i % stages])
    return k.finish()


@pytest.mark.parametrize("build", [steps, copied])
def test_what_repeats_is_left_out(build: Callable[[int], Program]) -> None:
    stats = timed(build(60_000)).stats
    assert stats.instructions - stats.skipped < 20_000
    program = build(200)
    assert ts.check(program).verdict == "proved"
    assert ts.check(program) == ts.check(program, skip=False)


@pytest.mark.parametrize("build", [steps, copied])
def test_they_are_proved_for_every_value(build: Callable[[int], Program]) -> None:
    claim = ts.check(build, for_all={"n": None}).for_all
    assert claim is not None
    assert claim.proved, claim.obstacle


@ts.kernel(warps=2)
def passed(k: Builder, *, late: int = -1) -> None:
    """A ring whose number of turns the host passes; turn ``late`` is not given back."""
    n = k.scalar("n", 5)
    pipe = Pipeline(k, 2, consumers=1)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("producer", 0), k.one_thread(0), k.loop(n) as i:
        pipe[i].acquire()
        pipe[i].commit()
    with k.role("consumer", 1), k.one_thread(1), k.loop(n) as i:
        pipe[i].wait()
        with k.if_(i.ne(late)):
            pipe[i].release()


def test_scalars_that_the_host_passes_are_open_as_parameters_are() -> None:
    """A turn that is not given back is waited for two turns later, up to where s32 ends."""
    report = ts.check(passed, for_all={"n": None})
    assert report.verdict == "proved"
    assert report.for_all is not None
    assert report.for_all.proved, report.for_all.obstacle
    assert report.for_all.limit is not None
    assert report.for_all.limit[0] < 2**31
    late = ts.check(passed, for_all={"n": None}, params={"late": 60})
    assert late.for_all is not None
    assert (late.verdict, late.for_all.at) == ("failed", 63)
    assert late.rules == {"deadlock"}
    with pytest.raises(ts.UsageError, match=r"^kernel \w+ has no parameter m; it has late, n$"):
        ts.check(passed, for_all={"m": None})


def test_faults_in_them_are_found() -> None:
    program = steps(900, late=203)
    report = ts.check(program, schedules=2, budget=500)
    assert report == ts.check(program, schedules=2, budget=500, skip=False)
    assert report.rules == {"race"}
    (finding,) = report.findings
    assert {p.role for p in finding.participants} == {"producer", "consumer"}
    late = ts.check(lambda n: steps(n, late=40), for_all={"n": None})
    assert late.for_all is not None
    assert (late.verdict, late.for_all.at) == ("failed", 3 * 40 + 1)
    assert ts.check(copied(200, behind=1), schedules=2, budget=500).rules == {"race"}


@pytest.mark.parametrize(
    "asks",
    [
        lambda n: n == 137.0,
        lambda n: (n, 1) == (137.0, 1),
        lambda n: Decimal(137) == n,
        lambda n: n == 137 + 0j,
    ],
)
def test_a_question_that_is_no_integers_is_refused(asks: Callable[[Any], bool]) -> None:
    """It is about one value, which is not among the first ones: nothing may be said of all."""
    claim = ts.check(lambda n: ring(n, faulty=lambda i: i.eq(2) & asks(n)), for_all={"n": None})
    assert claim.for_all is not None
    assert not claim.for_all.proved
    assert "test_forall_pipelines.py" in str(claim.for_all.obstacle) or claim.for_all.at == 137


@pytest.mark.parametrize(("number", "said"), [(205, "clusters: proved"), (149, "failed")])
def test_a_random_pipeline(number: int, said: str) -> None:
    found = judged(number)
    assert not found.wrong
    assert said in found.said


@pytest.mark.parametrize(("number", "said"), [(4, "proved"), (32, "not shown"), (9, "failed")])
def test_a_random_register_in_several_roles(number: int, said: str) -> None:
    """The kernel of 32 fails from 159 on: a vote in place decides."""
    found = judged(number, "places")
    assert not found.wrong
    assert found.said.startswith(f"places: {said}")


# ---------------------------------------------------------------------- launch control


def stolen(n: int, *, at: Callable[[Expr, Expr, int], Expr] | None = None) -> Program:
    """CTAs that take over each other's tiles, of ``n`` turns of a ring; where ``at`` holds of the
    tile, the turn and ``n`` the producer fills what may still be read."""
    k = Builder("stolen", "sm_100a", warps=3)
    k.launch(grid=2)
    data = k.shared("data", s32, (2, 32))
    answers = Pipeline(k, 2, name="answer", consumers=3)
    pipe = Pipeline(k, 2, consumers=32)
    schedule = Stealing(k, answers, k.shared("response", u32, (2, 4)))
    with k.one_thread():
        answers.init()
        pipe.init()
    k.sync_threads()
    with k.role("scheduler", 0):
        schedule.ask("scheduler")
    with k.role("producer", 1):
        filling = pipe.cursor("filling")
        with schedule.each("producer") as tile, k.loop(n) as i:
            slot = filling.slot
            slot.acquire()
            k.mem.store(data[slot.stage, k.lane_id], 7)
            if at is not None:
                with k.if_(at(tile, i, n)):
                    k.mem.store(data[(slot.stage + 1) % 2, k.lane_id], 8)
            k.sync_warp()
            with k.elected():
                slot.commit()
            filling.advance()
    with k.role("consumer", 2):
        reading, value = pipe.cursor("reading"), k.var("value", 0)
        with schedule.each("consumer"), k.loop(n):
            slot = reading.slot
            slot.wait()
            k.mem.load(value, data[slot.stage, k.lane_id])
            slot.release()
            reading.advance()
    return k.finish()


def test_tiles_that_are_taken_over() -> None:
    claim = ts.check(stolen, for_all={"n": None}).for_all
    assert claim is not None
    assert claim.proved, claim.obstacle
    program = stolen(40, at=lambda tile, i, n: i.eq(30) & tile.eq(1))
    report = ts.check(program, schedules=2, budget=500)
    assert report == ts.check(program, schedules=2, budget=500, skip=False)
    assert report.rules == {"race"}


@pytest.mark.parametrize(
    ("at", "same"),
    [
        (None, True),
        (lambda tile, i, n: i.eq(n - 1), True),
        (lambda tile, i, n: i.eq(1) & tile.eq(n - 100), False),
        (lambda tile, i, n: (tile % 3).eq(n), False),
    ],
)
def test_which_answers_are_tried_must_not_depend_on_the_parameter(
    at: Callable[[Expr, Expr, int], Expr] | None, same: bool
) -> None:
    program = stolen(Free(7, Fraction(1), Scope("n")), at=at)
    assert are_the_same(Simulation(program, numbers=False, strict="practice")) is same
