"""Exploration: all schedules that can differ, each once; and what `check` makes of it."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest

from tilesim import Builder, Program, s32
from tilesim.checker import check
from tilesim.sim.explore import explore
from tilesim.sim.schedule import ReplayChooser
from tilesim.sim.simulate import Simulation

BIG = 1 << 30


def arrivals(warps: int, count: int) -> Program:
    """``warps`` threads arrive once on one barrier; a further warp waits for the first phase."""
    k = Builder("arrivals", warps=warps + 1)
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, count)
    k.sync_threads()
    for warp in range(warps):
        with k.role(f"T{warp}", warp), k.elected():
            k.mbarrier.arrive(b)
    with k.role("waiter", warps):
        k.mbarrier.wait(b, 0)
    return k.finish()


def explored(program: Program) -> tuple[int, bool, bool]:
    result = explore(
        Simulation(program, numbers=False, strict="practice"), 0, {},
        budget=BIG, max_schedules=5000,
    )  # fmt: skip
    return result.schedules, result.complete, result.failure is not None


def test_arrivals_of_one_phase_commute() -> None:
    """Six arrivals have 720 orders; none of them matters."""
    assert explored(arrivals(6, 6)) == (1, True, False)


def test_arrivals_that_can_end_different_phases_do_not() -> None:
    schedules, _, failed = explored(arrivals(3, 2))
    assert schedules > 1 or failed


def test_a_waiter_that_can_miss_its_phase_is_found() -> None:
    """Two phases may complete before the waiter looks: parity 0 is then the wrong one."""
    program = arrivals(2, 1)
    assert explored(program)[2]
    report = check(program)
    assert report.verdict == "failed"
    assert "deadlock" in report.rules
    (deadlock,) = (f for f in report.findings if f.rule == "deadlock")
    assert deadlock.roles == ("waiter",)


def lock_free_flag(sem: str) -> Program:
    """One thread publishes a word behind a flag; the other reads it if the flag is set."""
    k = Builder("flag", warps=2)
    flag, word = k.shared("flag", s32, (1,)), k.shared("word", s32, (1,))
    seen, value = k.var("seen", 0), k.var("value", 0)
    with k.one_thread():
        k.mem.store(flag[0], 0)
        k.mem.store(word[0], 0)
    k.sync_threads()
    with k.role("writer", 0), k.elected():
        k.mem.store(word[0], 1)
        k.mem.store(flag[0], 1, sem="release" if sem == "right" else "relaxed")
    with k.role("reader", 1), k.elected():
        k.mem.load(seen, flag[0], sem="acquire")
        with k.if_(seen.eq(1)):
            k.mem.load(value, word[0])
    return k.finish()


def test_message_passing_is_exhausted_when_right_and_a_race_when_relaxed() -> None:
    right = check(lock_free_flag("right"))
    assert right.verdict == "exhausted"
    assert right.stats.schedules >= 2
    wrong = check(lock_free_flag("relaxed"))
    assert wrong.rules == {"race"}
    assert set(wrong.findings[0].roles) == {"reader", "writer"}


def test_budget_and_number_of_schedules_bound_the_search() -> None:
    simulation = Simulation(lock_free_flag("right"), numbers=False, strict="practice")
    none = explore(simulation, 0, {}, budget=0, max_schedules=10)
    assert (none.schedules, none.complete) == (0, False)
    one = explore(simulation, 0, {}, budget=BIG, max_schedules=1)
    assert (one.schedules, one.complete) == (1, False)


def _always(chooser: ReplayChooser, cluster: int) -> ReplayChooser:
    return chooser


def outcomes_of_all_choices(program: Program, depth: int) -> set[frozenset[str]]:
    """The rules found under every sequence of picks among the first agents, by brute force."""
    simulation = Simulation(program, numbers=False, strict="practice")
    found: set[frozenset[str]] = set()
    for picks in product(range(3), repeat=depth):
        chooser = ReplayChooser(picks)
        run = simulation.run({}, partial(_always, chooser))
        found.add(frozenset(f.rule for f in run.findings))
    return found


@pytest.mark.parametrize(("warps", "count"), [(2, 1), (2, 2), (3, 2), (1, 1), (3, 3)])
def test_search_and_brute_force_agree_on_whether_it_can_fail(warps: int, count: int) -> None:
    program = arrivals(warps, count)
    brute = any(rules for rules in outcomes_of_all_choices(program, 7))
    _, complete, failed = explored(program)
    assert failed == brute
    assert failed or complete


def flag_decides_whether_to_wait(*, arrives: bool) -> Program:
    """The poller waits if it reads the flag before the setter has written it."""
    k = Builder("decides", warps=2)
    flag, b, seen = k.tensor("flag", s32, (1,)), k.mbarriers("b"), k.var("seen", 0)
    with k.one_thread():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    with k.role("setter", 0), k.elected():
        k.mem.store(flag[0], 1, sem="release", scope="gpu")
        with k.if_(k.lane_id < (32 if arrives else 0)):
            k.mbarrier.arrive(b)
    with k.role("poller", 1), k.elected():
        k.mem.load(seen, flag[0], sem="acquire", scope="gpu")
        with k.if_(seen.eq(0)):
            k.mbarrier.wait(b, 0)
    return k.finish()


def test_an_acquire_load_may_read_before_the_release_it_usually_reads() -> None:
    """The timed schedule always reads 1; that orders nothing in the others."""
    report = check(flag_decides_whether_to_wait(arrives=False))
    assert report.verdict == "failed"
    assert report.findings[0].rule == "deadlock"
    assert report.findings[0].roles == ("poller",)
    assert check(flag_decides_whether_to_wait(arrives=True)).verdict == "exhausted"
