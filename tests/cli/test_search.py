"""``tilesim check``: how far to search, going on later, several processes, smaller parameters."""

from __future__ import annotations

import json
import re
import shlex
from concurrent.futures import Future
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tilesim.checker import Report
from tilesim.sim.machine.schedule import ChoiceEnvironment

from . import kernels
from .conftest import Invoke, Write

#: 90 schedules that can differ; none fails (drawn integers would be no matter of exploration)
TICKETS = (
    kernels.HEAD
    + """
@ts.kernel(warps=3)
def tickets(k, *, rounds=2):
    counter = k.tensor("counter", ts.f32, (1,))
    mine = k.var("mine", 0.0, dtype=ts.f32)
    for warp in range(3):
        with k.role(f"taker {warp}", warp), k.elected(), k.loop(rounds):
            k.mem.atomic(counter[0], "add", 1, result=mine)
"""
)


@pytest.fixture
def tickets(write: Write) -> str:
    return write("tickets.py", TICKETS)


# ------------------------------------------------------------------ limits


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("0", 0), ("50000", 50_000), ("60s", timedelta(seconds=60)), ("5m", timedelta(minutes=5)),
        ("1.5h", timedelta(minutes=90)), ("0.25s", timedelta(milliseconds=250)),
    ],
)  # fmt: skip
def test_a_budget_is_instructions_or_time(
    text: str,
    budget: object,
    tickets: str,
    tilesim_cli: Invoke,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[object] = []

    def spy(program: object, **options: Any) -> Report:
        seen.append(options["budget"])
        return Report("tickets", "proved", "")

    monkeypatch.setattr("tilesim.cli.examine.check", spy)
    assert tilesim_cli("check", tickets, "--budget", text).exit_code == 0
    assert seen == [budget]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--budget", "5x"], ["--budget", "1.5"], ["--budget", "-1s"], ["--budget", "s"],
        ["--budget", "9" * 13], ["--budget", "99999999h"], ["--preemptions", "-1"],
        ["--max-schedules", "-1"], ["--jobs", "0"], ["--jobs", "513"],
    ],
)  # fmt: skip
def test_limits_that_make_no_sense_exit_2(
    tickets: str, tilesim_cli: Invoke, arguments: list[str]
) -> None:
    result = tilesim_cli("check", tickets, *arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")


def test_the_report_says_how_much_was_explored(tickets: str, tilesim_cli: Invoke) -> None:
    whole = tilesim_cli("check", tickets)
    assert whole.exit_code == 0
    assert "every schedule of the CTA, by exploring 91;" in whole.stdout
    some = tilesim_cli("check", tickets, "--max-schedules", "10", "--schedules", "0")
    assert some.exit_code == 3
    assert "covers    11 schedules of the CTA, none failed; not a proof" in some.stdout
    assert "exploration stopped after 10 schedules: its limit of 10 schedules is" in some.stdout
    none = tilesim_cli("check", tickets, "--budget", "0s", "--schedules", "0")
    assert "exploration stopped after 0 schedules: its budget of 0 s is used up" in none.stdout


def test_bounded_preemptions_are_no_proof(tickets: str, tilesim_cli: Invoke) -> None:
    result = tilesim_cli("check", tickets, "--preemptions", "1", "--schedules", "0")
    assert result.exit_code == 3
    said = re.sub(r"\s+", " ", result.stdout)
    assert "explored with at most 1 preemption each, none failed; not a proof" in said
    assert "exploration was bounded to at most 1 preemption per schedule" in said
    assert tilesim_cli("check", tickets, "--preemptions", "9").exit_code == 0


# ------------------------------------------------------------------ going on later


def test_an_exploration_goes_on_where_it_stopped(
    tickets: str, tilesim_cli: Invoke, tmp_path: Path
) -> None:
    whole = tilesim_cli("check", tickets, "--schedules", "0")
    command = ["check", tickets, "--schedules", "0", "--max-schedules", "40", "--resume", "x.json"]
    for explored in (40, 80):
        result = tilesim_cli(*command)
        assert result.exit_code == 3
        assert f"exploration stopped after {explored} schedules" in result.stdout
        assert "what is left to explore is in x.json" in result.stdout
        assert (tmp_path / "x.json").exists()
    result = tilesim_cli(*command)
    assert (result.exit_code, result.stdout) == (0, whole.stdout)
    assert not (tmp_path / "x.json").exists()


def test_one_file_keeps_the_explorations_of_several_kernels(
    tickets: str, write: Write, tilesim_cli: Invoke, tmp_path: Path
) -> None:
    other, good = write("other.py", TICKETS), write("good.py", kernels.GOOD)
    options = ("--schedules", "0", "--resume", "x.json")
    tilesim_cli("check", tickets, other, good, "--max-schedules", "5", *options)
    kept = json.loads((tmp_path / "x.json").read_text())["explorations"]
    assert set(kept) == {"tickets.py::tickets", "other.py::tickets"}
    assert tilesim_cli("check", tickets, *options).exit_code == 0
    kept = json.loads((tmp_path / "x.json").read_text())["explorations"]
    assert set(kept) == {"other.py::tickets"}


def test_an_interrupted_exploration_is_kept(
    tickets: str, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = tilesim_cli("check", tickets, "--schedules", "0")
    real = ChoiceEnvironment.step
    left = iter(range(100))

    def step(env: ChoiceEnvironment) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        real(env)

    options = ("--schedules", "0", "--resume", "x.json")
    with monkeypatch.context() as patch:
        patch.setattr(ChoiceEnvironment, "step", step)
        result = tilesim_cli("check", tickets, *options)
    assert result.exit_code == 130
    assert "because   interrupted by the user" in result.stdout
    assert (tmp_path / "x.json").exists()
    assert tilesim_cli("check", tickets, *options).stdout == whole.stdout


def test_a_file_of_another_program_is_refused(
    tickets: str, write: Write, tilesim_cli: Invoke
) -> None:
    options = ("--schedules", "0", "--resume", "x.json")
    tilesim_cli("check", tickets, "--max-schedules", "5", *options)
    write("tickets.py", TICKETS.replace("range(3)", "range(2)"))
    result = tilesim_cli("check", tickets, *options)
    assert result.exit_code == 2
    said = re.sub(r"\s+", " ", result.output)
    assert "x.json: this exploration was begun with another program" in said
    assert "delete the file to start again" in said


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x.json is not JSON"),
        ("[]", "x.json does not hold tilesim explorations"),
        ('{"schema": 2}', "explorations (x.json) of version 2 of the format; tilesim"),
        ('{"schema": 1}', "x.json holds no explorations by target"),
        ('{"schema": 1, "explorations": {"a": 1}}', "x.json holds no explorations by target"),
        ('{"schema": 1, "explorations": {}, "reports": {"a": 1}}', "x.json holds no reports by"),
        (
            '{"schema": 1, "explorations": {"tickets.py::tickets": {}}}',
            "x.json: this is not a tilesim exploration: it names no version",
        ),
        (
            '{"schema": 1, "explorations": {"tickets.py::tickets": {"schema": 2}}}',
            "x.json: what the exploration left is damaged",
        ),
    ],
)
def test_a_file_that_holds_no_exploration_is_refused(
    text: str, message: str, tickets: str, write: Write, tilesim_cli: Invoke
) -> None:
    write("x.json", text)
    result = tilesim_cli("check", tickets, "--resume", "x.json")
    assert result.exit_code == 2
    assert message in re.sub(r"\s+", " ", result.output)


# ------------------------------------------------------------------ several processes


@pytest.mark.parametrize("name", ["tickets", "rare"])
def test_any_number_of_jobs_gives_the_same_bytes(
    name: str, tickets: str, write: Write, tilesim_cli: Invoke
) -> None:
    target = tickets if name == "tickets" else write("rare.py", kernels.RARE)
    command = ("check", target, "--budget", "0", "--schedules", "24", "--format", "json")
    one, two = tilesim_cli(*command), tilesim_cli(*command, "--jobs", "2")
    assert one.exit_code == two.exit_code == (3 if name == "tickets" else 1)
    assert one.stdout == two.stdout


class Dying:
    """An executor whose workers die at once."""

    def submit(self, function: object, task: bytes, /) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(RuntimeError("worker lost"))
        return future


def test_workers_that_die_are_reported(
    tickets: str, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "tilesim.sim.schedulers.sampling.processes", lambda jobs: lambda: nullcontext(Dying())
    )
    result = tilesim_cli("check", tickets, "--budget", "0", "--jobs", "2")
    assert result.exit_code == 2
    assert "the processes that run schedules die" in re.sub(r"\s+", " ", result.output)


class Interrupted:
    """An executor that does two tasks, and then the user presses Ctrl-C."""

    def __init__(self) -> None:
        self.done = 0

    def submit(self, function: Any, task: bytes, /) -> Future[Any]:
        if self.done == 2:
            raise KeyboardInterrupt
        self.done += 1
        future: Future[Any] = Future()
        future.set_result(function(task))
        return future


def test_an_interrupt_of_several_processes_reports_what_was_found(
    tickets: str, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = nullcontext(Interrupted())
    monkeypatch.setattr("tilesim.sim.schedulers.sampling.processes", lambda jobs: lambda: opened)
    monkeypatch.setattr("tilesim.parallel._WINDOW", 0.5)
    result = tilesim_cli("check", tickets, "--budget", "0", "--jobs", "2")
    assert result.exit_code == 130
    assert "covers    17 schedules of the CTA, none failed; not a proof" in result.stdout
    assert "because   interrupted by the user" in result.stdout


# ------------------------------------------------------------------ smaller parameters


def test_shrinking_reports_the_smallest_failing_parameters(
    write: Write, tilesim_cli: Invoke
) -> None:
    name = write("bad.py", kernels.BAD.replace("rounds=2", "rounds=5"))
    result = tilesim_cli("check", name, "--shrink", "--witness-dir", "w")
    assert result.exit_code == 1
    assert result.stdout.startswith("FAILED bad.py::handshake[rounds=1]  (deadlock)\n")
    said = re.sub(r"\s+", " ", result.stdout)
    assert "the smallest parameters found that fail like this: rounds=1 (of 5)" in said
    assert json.loads(Path("w/bad.py_handshake_rounds=1.json").read_text())["params"] == {
        "rounds": 1
    }

    line = next(row for row in result.stdout.splitlines() if row.startswith("  replay "))
    assert tilesim_cli(*shlex.split(line)[2:]).exit_code == 1
    wrong = tilesim_cli("check", name, "--replay", "w/bad.py_handshake_rounds=1.json")
    assert wrong.exit_code == 2
    said = re.sub(r"\s+", " ", wrong.output)
    assert "is a witness of parameters that bad.py::handshake has not: rounds=1" in said


def test_shrinking_keeps_the_parameters_that_the_failure_needs(
    write: Write, tilesim_cli: Invoke
) -> None:
    """The deadlock needs a third round; two and one are right."""
    late = kernels.GOOD.replace("rounds=2", "rounds=6").replace(
        "k.mbarrier.wait(full, i & 1)", "k.mbarrier.wait(full, ts.select(i < 2, i & 1, 1))"
    )
    result = tilesim_cli("check", write("late.py", late), "--shrink")
    assert result.stdout.startswith("FAILED late.py::handshake[rounds=3]  (")


def test_shrinking_changes_nothing_else(write: Write, tilesim_cli: Invoke) -> None:
    good = tilesim_cli("check", write("good.py", kernels.GOOD), "--shrink")
    assert good.exit_code == 0
    assert good.stdout.startswith("PROVED good.py::handshake\n")
    name = write("rare.py", kernels.RARE)
    assert tilesim_cli("check", name, "--shrink").stdout == tilesim_cli("check", name).stdout


def test_shrinking_can_be_interrupted(
    write: Write, tilesim_cli: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilesim.cli.smallest.smallest", interrupt)
    result = tilesim_cli("check", write("bad.py", kernels.BAD), "--shrink")
    assert result.exit_code == 130
    assert result.stdout.startswith("FAILED bad.py::handshake  (deadlock)\n")
    assert "because   interrupted by the user" in result.stdout


def test_replaying_does_not_search(tickets: str, tilesim_cli: Invoke) -> None:
    for option in (["--shrink"], ["--resume", "x.json"]):
        result = tilesim_cli("check", tickets, "--replay", "w.json", *option)
        assert result.exit_code == 2
        assert "--replay repeats one schedule" in result.stderr
