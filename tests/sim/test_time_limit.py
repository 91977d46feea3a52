"""A time limit bounds all of a check, and so does an interrupt; what was found is reported."""

from __future__ import annotations

import pickle
from datetime import timedelta
from functools import partial
from itertools import count
from os import times
from time import process_time

import numpy as np
import pytest

from tilesim import Builder, Program, s32
from tilesim.checker import INTERRUPTED, check
from tilesim.errors import UsageError
from tilesim.sim.machine.machine import Machine, Warp
from tilesim.sim.schedulers.sampling import Batch, run_batch
from tilesim.transforms.lower import lower


def rounds(number: int, grid: int = 1, *, race: bool = False) -> Program:
    """Two warps that meet ``number`` times; with ``race`` each writes its number before."""
    k = Builder("rounds", warps=2)
    k.launch(grid=grid)
    word = k.shared("word", s32, (1,))
    if race:
        with k.if_(k.lane_id.eq(0)):
            k.mem.store(word[0], k.warp_id)
    with k.loop(number):
        k.sync_threads()
    return k.finish()


def alone(number: int) -> Program:
    """One warp that never lets anybody else move."""
    k = Builder("alone", warps=1)
    x = k.var("x", 0)
    with k.loop(number):
        k.assign(x, x + 1)
    return k.finish()


def tickets(warps: int, number: int) -> Program:
    """Atomics whose order decides."""
    k = Builder("tickets", warps=warps)
    counter, ticket = k.tensor("counter", s32, (1,)), k.var("ticket", 0)
    with k.loop(number), k.elected():
        k.mem.atomic(counter[0], "add", 1, result=ticket)
    return k.finish()


ZERO = np.zeros(1, np.int32)


CLOCKS = ("limits", "sim.schedulers.exhaustive", "sim.machine.simulate", "sim.machine.machine")


@pytest.fixture
def cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits count the CPU time of this process: how busy the machine is changes nothing."""
    for module in CLOCKS:
        monkeypatch.setattr(f"tilesim.{module}.monotonic", process_time)
    monkeypatch.setattr("tilesim.limits._MOMENT", 600)  # alarms ring by the clock on the wall


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> count[int]:
    """The only time that passes is a second with every look at a clock."""
    seconds = count()
    for module in CLOCKS:
        monkeypatch.setattr(f"tilesim.{module}.monotonic", partial(next, seconds))
    return seconds


@pytest.mark.parametrize(
    "program",
    [rounds(10**7), alone(10**8), rounds(10**6, 30), rounds(10**6, 1000)],
    ids=["one CTA", "no scheduling point", "30 CTAs", "1000 CTAs"],
)
def test_a_time_limit_bounds_the_first_run(program: Program, cpu_time: None) -> None:
    start = process_time()
    report = check(program, time_limit=timedelta(seconds=0.5), skip=False)
    assert process_time() - start < 5
    assert report.verdict == "bounded"
    assert report.reasons == ("its time limit of 0.5 s is used up",)
    assert "warp instructions of the timed schedule" in report.covers
    assert "not a proof" in report.covers
    assert report.stats.instructions > 0


def together(ctas: int, *, warps: int = 8, mbarriers: int = 0) -> Program:
    """CTAs that wait for each other are one machine: a word says when all have come."""
    k = Builder("together", warps=warps)
    k.launch(grid=ctas, cooperative=True)
    word = k.tensor("word", s32, (1,))
    if mbarriers:
        k.mbarriers("unused", mbarriers)
    with k.elected():
        k.mem.atomic(word[0], "add", 1, sem="release", scope="gpu")
    seen = k.var("seen", 0)
    with k.while_(seen < warps * ctas):
        k.mem.load(seen, word[0], sem="acquire", scope="gpu")
    k.sync_threads()
    return k.finish()


def test_a_time_limit_bounds_what_is_done_before_a_machine_runs(looks: count[int]) -> None:
    # a look for each CTA that is made, of 600
    report = check(together(600), time_limit=timedelta(seconds=100), inputs={"word": ZERO})
    assert next(looks) < 150
    assert report.reasons == ("its time limit of 100 s is used up",)
    assert report.covers.startswith("0 warp instructions")


def test_a_grid_that_is_too_large_to_simulate_together_is_not_begun() -> None:
    # the GPU holds them all, 16 on each multiprocessor
    report = check(together(2_000, warps=4, mbarriers=32), inputs={"word": ZERO})
    assert report.verdict == "bounded"
    assert report.reasons[0].startswith("2000 CTAs that wait for each other are simulated together")
    assert check(together(3), inputs={"word": ZERO}).verdict == "proved"


def test_a_budget_of_time_bounds_the_first_run(cpu_time: None) -> None:
    start = process_time()
    report = check(rounds(10**7), budget=timedelta(seconds=0.5), skip=False)
    assert process_time() - start < 5
    assert report.verdict == "bounded"
    assert report.reasons == ("its budget of 0.5 s is used up",)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_time_limit_bounds_the_search(jobs: int) -> None:
    start = sum(times()[:4])
    report = check(
        tickets(4, 200), time_limit=timedelta(seconds=2), budget=0, schedules=100_000, jobs=jobs
    )
    assert sum(times()[:4]) - start < 20  # CPU seconds, those of the workers too
    assert report.verdict == "bounded"
    assert report.reasons[0] == "its time limit of 2 s is used up"


def test_the_end_of_the_time_between_two_schedules_is_no_failure_of_the_process() -> None:
    what = pickle.dumps((lower(tickets(4, 200)), "practice", {}, [0], (0.0, 1_000_000)))
    assert run_batch(Batch(what, seed=0, attempts=range(8))) == (0, None, True)


def test_enough_time_changes_nothing() -> None:
    assert check(rounds(3), time_limit=timedelta(hours=1)) == check(rounds(3))
    assert check(rounds(3), budget=timedelta(hours=1)) == check(rounds(3))


@pytest.mark.parametrize("seconds", [0, -1])
def test_no_time_is_refused(seconds: int) -> None:
    with pytest.raises(UsageError, match="time_limit"):
        check(rounds(3), time_limit=timedelta(seconds=seconds))


@pytest.fixture
def interrupted_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C at the 500th scheduling point."""
    points = count()
    pause = Machine.pause

    def counted(machine: Machine, warp: Warp, cost: float) -> None:
        if next(points) == 500:
            raise KeyboardInterrupt
        pause(machine, warp, cost)

    monkeypatch.setattr(Machine, "pause", counted)


@pytest.mark.parametrize("grid", [1, 40, 1000])
@pytest.mark.usefixtures("interrupted_late")
def test_an_interrupt_of_the_first_run_is_reported(grid: int) -> None:
    report = check(rounds(1000, grid), skip=False)
    assert report.verdict == "bounded"
    assert report.reasons == (INTERRUPTED,)
    assert "of the timed schedule" in report.covers


@pytest.mark.usefixtures("interrupted_late")
def test_what_was_found_before_an_interrupt_is_reported() -> None:
    report = check(rounds(1000, race=True))
    assert report.verdict == "failed"
    assert report.rules == {"race"}
    assert report.reasons == (INTERRUPTED,)
