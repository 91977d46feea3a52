"""Exploration: all schedules that can differ, each once; and what `check` makes of it."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import cache, partial
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from tilesim import Builder, Program, UsageError, f32, s32
from tilesim.checker import Report, check
from tilesim.sim.machine.schedule import ChoiceEnvironment, Move, PctChooser, ReplayChooser
from tilesim.sim.machine.simulate import Simulation
from tilesim.sim.schedulers.exhaustive import explore, outcomes
from tilesim.sim.schedulers.frontier import Limits
from tilesim.wording import count

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
    simulation = Simulation(program, numbers=False, strict="practice")
    result = explore(simulation, [0], {}, Limits(BIG, 5000))
    return result.explored.schedules, result.complete, result.failure is not None


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
    none = explore(simulation, [0], {}, Limits(0, 10))
    assert (none.explored.schedules, none.complete) == (0, False)
    assert none.stopped == "its budget of 0 warp instructions is used up"
    one = explore(simulation, [0], {}, Limits(BIG, 1))
    assert (one.explored.schedules, one.complete) == (1, False)
    assert one.stopped == "its limit of 1 schedule is reached"


def _always(chooser: ReplayChooser, cluster: int) -> ReplayChooser:
    return chooser


@cache
def outcomes_of_all_choices(warps: int, count: int) -> set[frozenset[str]]:
    """The rules found in `arrivals` under every sequence of picks among the first agents, by brute
    force."""
    simulation = Simulation(arrivals(warps, count), numbers=False, strict="practice")
    found: set[frozenset[str]] = set()
    for picks in product(range(3), repeat=6):
        chooser = ReplayChooser(picks)
        run = simulation.run({}, partial(_always, chooser))
        found.add(frozenset(f.rule for f in run.findings))
    return found


@pytest.mark.parametrize(("warps", "count"), [(2, 1), (2, 2), (3, 2)])
def test_search_and_brute_force_agree_on_whether_it_can_fail(warps: int, count: int) -> None:
    brute = any(rules for rules in outcomes_of_all_choices(warps, count))
    _, complete, failed = explored(arrivals(warps, count))
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


# ------------------------------------------------------------------ outcomes


@pytest.mark.parametrize(("warps", "count"), [(2, 1), (2, 2), (3, 2)])
def test_reduced_exploration_has_the_outcomes_of_all_schedules(warps: int, count: int) -> None:
    simulation = Simulation(arrivals(warps, count), numbers=False, strict="practice")
    found, complete = outcomes(simulation, 0, {})
    assert complete
    assert found == outcomes_of_all_choices(warps, count)


def test_outcomes_go_on_after_a_failure() -> None:
    """Which of two unrelated things goes wrong first ends the run; both orders are looked at."""
    k = Builder("either", warps=2)
    a, b = k.mbarriers("a"), k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(a, 1)
        k.mbarrier.init(b, 1)
    k.sync_threads()
    with k.role("first", 0), k.elected():
        k.mbarrier.arrive(a, 2)
    with k.role("second", 1), k.elected():
        k.mbarrier.inval(b)
        k.mbarrier.arrive(b)
    simulation = Simulation(k.finish(), numbers=False, strict="practice")
    found, complete = outcomes(simulation, 0, {})
    assert complete
    assert set(map(tuple, found)) == {("over-arrival",), ("barrier-lifetime",)}
    assert outcomes(simulation, 0, {}, schedules=0) == (frozenset(), False)


# ------------------------------------------------------------------ preemptions


def lost_update(*, atomic: bool = False) -> Program:
    """Two threads count to two; a third waits for ever unless both counted."""
    k = Builder("lost_update", warps=3)
    total = k.tensor("total", s32, (1,))
    both, never = k.mbarriers("both"), k.mbarriers("never")
    seen = k.var("seen", 0)
    with k.one_thread():
        k.mbarrier.init(both, 2)
        k.mbarrier.init(never, 2)
        k.mbarrier.arrive(never)
    k.sync_threads()
    for warp in range(2):
        with k.role(f"counter {warp}", warp):
            with k.loop(200 * warp):  # in the timed schedule one comes after the other
                k.sync_warp()
            with k.elected():
                if atomic:
                    k.mem.atomic(total[0], "add", 1, result=seen)
                else:
                    k.mem.load(seen, total[0], sem="relaxed", scope="gpu")
                    k.mem.store(total[0], seen + 1, sem="relaxed", scope="gpu")
                k.mbarrier.arrive(both)
    with k.role("judge", 2), k.elected():
        k.mbarrier.wait(both, 0)
        k.mem.load(seen, total[0], sem="relaxed", scope="gpu")
        with k.if_(seen < 2):
            k.mbarrier.wait(never, 0)
    return k.finish()


def test_a_lost_update_needs_one_preemption() -> None:
    none = check(lost_update(), schedules=0, preemptions=0)
    assert none.verdict == "bounded"
    assert "explored with at most 0 preemptions each" in none.covers
    assert "exploration was bounded to at most 0 preemptions per schedule" in none.reasons
    one = check(lost_update(), schedules=0, preemptions=1)
    assert one.verdict == "failed"
    assert one.rules == {"deadlock"}
    assert one.findings[0].roles == ("judge",)
    assert check(lost_update(), schedules=0).verdict == "failed"


def test_a_bound_that_cuts_nothing_off_does_not_weaken_the_verdict() -> None:
    program = lost_update(atomic=True)
    assert check(program, schedules=0).verdict == "exhausted"
    assert check(program, schedules=0, preemptions=50).verdict == "exhausted"
    assert check(program, schedules=0, preemptions=0).verdict == "bounded"


# ------------------------------------------------------------------ limits and going on


def tickets(rounds: int, takers: int, *, forbidden: int = -1) -> Program:
    """Numbers are taken by whoever comes first; who draws ``forbidden`` last waits for ever.

    They are floats, as the orders in which integers are drawn are not left to exploration.
    """
    k = Builder("tickets", warps=takers)
    counter = k.tensor("counter", f32, (1,))
    never, mine = k.mbarriers("never"), k.var("mine", 0.0, dtype=f32)
    with k.one_thread():
        k.mbarrier.init(never, 2)
        k.mbarrier.arrive(never)
    k.sync_threads()
    for warp in range(takers):
        with k.role(f"taker {warp}", warp), k.elected():
            with k.loop(rounds):
                k.mem.atomic(counter[0], "add", 1, result=mine)
            if warp == 0:
                with k.if_(mine.eq(forbidden)):
                    k.mbarrier.wait(never, 0)
    return k.finish()


#: nothing fails; everything fails late; barriers with phases to distinguish
PROGRAMS = {
    "tickets": tickets(2, 3),
    "unlucky": tickets(2, 3, forbidden=1),
    "flag": lock_free_flag("right"),
    "lost update": lost_update(atomic=True),
    "phases": flag_decides_whether_to_wait(arrives=True),
}


@cache
def explored_at_once(name: str, preemptions: int | None = None) -> Report:
    """What is said of a program that is explored without an end in between."""
    return check(PROGRAMS[name], schedules=0, budget=BIG, preemptions=preemptions)


def as_read_back(report: Report) -> Any:
    """The frontier after a round trip through JSON."""
    return json.loads(json.dumps(report.frontier))


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("preemptions", "step"), [(None, 7), (1, 7)])
def test_exploring_in_pieces_ends_like_exploring_at_once(
    name: str, preemptions: int | None, step: int
) -> None:
    program = PROGRAMS[name]
    whole = explored_at_once(name, preemptions)
    assert whole.frontier is None
    frontier: Any = None
    for piece in range(1, 200):
        report = check(
            program, schedules=0, preemptions=preemptions, max_schedules=step, frontier=frontier
        )
        if report.frontier is None:
            break
        assert f"exploration stopped after {count(piece * step, 'schedule')}" in "".join(
            report.reasons
        )
        frontier = as_read_back(report)
    assert report == whole


def test_the_programs_have_something_to_explore() -> None:
    costs = {name: explored_at_once(name) for name in PROGRAMS}
    assert costs["tickets"].stats.schedules == 91  # the timed one, and 6! / (2! 2! 2!) orders
    assert costs["unlucky"].verdict == "failed"
    assert costs["unlucky"].stats.schedules > 7
    assert {r.verdict for n, r in costs.items() if n != "unlucky"} == {"exhausted"}


class Impatient:
    """Raises KeyboardInterrupt at the n-th scheduling step made while exploring."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
        self.left = after
        real = ChoiceEnvironment.step

        def step(env: ChoiceEnvironment) -> None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            real(env)

        monkeypatch.setattr(ChoiceEnvironment, "step", step)


@pytest.mark.parametrize("after", [1, 64, 333])
def test_interrupted_exploration_goes_on_as_if_nothing_had_happened(
    after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, whole = PROGRAMS["tickets"], explored_at_once("tickets")
    with monkeypatch.context() as patch:
        Impatient(patch, after)
        report = check(program, schedules=0, budget=BIG)
    assert report.verdict == "bounded"
    assert report.reasons[0] == "interrupted by the user"
    assert check(program, schedules=0, budget=BIG, frontier=as_read_back(report)) == whole


def test_an_interrupt_before_anything_is_explored_keeps_the_frontier(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = arrivals(3, 2)
    report = check(tickets(2, 3), schedules=0, max_schedules=3)

    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilesim.sim.schedulers.sampling.directed", interrupt)
    again = check(tickets(2, 3), frontier=report.frontier)
    assert again.reasons[0] == "interrupted by the user"
    assert again.frontier == report.frontier
    assert check(program).frontier is None


def test_a_limit_in_time_ends_the_exploration() -> None:
    report = check(tickets(2, 3), schedules=0, budget=timedelta(0))
    assert report.verdict == "bounded"
    assert "exploration stopped after 0 schedules: its budget of 0 s is used up" in report.reasons
    assert check(tickets(2, 3), schedules=0, budget=timedelta(hours=1)).verdict == "exhausted"


def test_a_frontier_fits_one_program_one_bound_and_one_set_of_inputs() -> None:
    left = check(tickets(2, 3), schedules=0, max_schedules=3).frontier
    with pytest.raises(UsageError, match="begun with another program"):
        check(tickets(3, 3), schedules=0, frontier=left)
    with pytest.raises(UsageError, match="begun with another program"):
        check(tickets(2, 3), schedules=0, frontier=left, strict="ptx")
    with pytest.raises(UsageError, match="begun with another program"):
        check(tickets(2, 3), frontier=left, inputs={"counter": np.ones(1, np.int32)})
    with pytest.raises(UsageError, match="with any number of preemptions"):
        check(tickets(2, 3), schedules=0, frontier=left, preemptions=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 1}, "reads version 2"),
        ({"path": []}, "damaged"),
        ({"extra": 1}, "damaged"),
        ({"explored": [0, 0, True]}, "damaged"),
    ],
)
def test_a_damaged_frontier_is_refused(change: dict[str, Any], message: str) -> None:
    """A path with a node missing would make the exploration look finished."""
    left = as_read_back(check(tickets(2, 3), schedules=0, max_schedules=3))
    with pytest.raises(UsageError, match=message):
        check(tickets(2, 3), frontier={**left, **change})


@pytest.mark.parametrize(
    ("option", "value"),
    [("budget", -1), ("budget", timedelta(seconds=-1)), ("max_schedules", -1),
     ("preemptions", -1), ("jobs", 0), ("jobs", 10_000), ("schedules", -1)],
)  # fmt: skip
def test_limits_out_of_range(option: str, value: Any) -> None:
    with pytest.raises(UsageError, match=option):
        check(arrivals(2, 2), **{option: value})


# ------------------------------------------------------------------ several processes


@pytest.mark.parametrize("program", [lost_update(), tickets(2, 3)], ids=["fails", "does not"])
def test_any_number_of_jobs_gives_the_same_report(program: Program) -> None:
    alone = check(program, schedules=12, budget=0)
    assert alone.verdict == ("failed" if program.name == "lost_update" else "bounded")
    assert check(program, schedules=12, budget=0, jobs=2) == alone


# Schedules by chance let everybody move who can.


@pytest.mark.parametrize("seed", range(8))
def test_who_polls_for_ever_does_not_keep_others_from_moving(seed: int) -> None:
    """Four agents poll until the fifth has moved, of which two give way by chance."""
    chooser = PctChooser(seed)
    names = ("store", "a", "b", "c", "d")
    moves = [cast(Move, SimpleNamespace(agent=name)) for name in names]
    chosen = [moves[chooser.choose(moves)].agent for _ in range(20_000)]
    assert set(chosen[10_000:]) == set(names)


def test_priorities_decide_until_then() -> None:
    chooser = PctChooser(0, depth=1)
    moves = [cast(Move, SimpleNamespace(agent=name)) for name in ("poll", "store")]
    chosen = [moves[chooser.choose(moves)].agent for _ in range(2000)]
    assert len(set(chosen)) == 1
