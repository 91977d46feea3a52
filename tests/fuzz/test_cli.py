"""``tilesim fuzz``, ``tilesim sweep`` and the campaign engine."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from time import sleep
from typing import TypeVar

import pytest
from click.testing import CliRunner, Result

import tilesim
from tilesim.cli import main, options
from tilesim.fuzz import campaign
from tilesim.fuzz.cases import Case, Outcome, Settings, generate, kernel_of, run_case, space
from tilesim.mistakes.table import mutants
from tilesim.sim.machine import simulate
from tilesim.sim.machine.machine import Machine
from tilesim.sim.machine.simulate import run_machine as run_machine

from .kernels import HELD

T = TypeVar("T")
R = TypeVar("R")

KERNELS = str(Path(__file__).with_name("kernels.py"))
RING = f"{KERNELS}::ring"
LATE = f"{KERNELS}::late"
SLOW = f"{KERNELS}::logged"
#: a command line that Ctrl-C reaches, also where the tests run in the background
_INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from tilesim.cli import main; main()"
)


def line_of(text: str) -> int:
    """The number of the first line of the kernels that has this."""
    lines = Path(KERNELS).read_text().splitlines()
    return next(n for n, line in enumerate(lines, 1) if text in line)


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_fuzz_finds_the_wrong_member_of_a_family_and_says_how_to_repeat_it() -> None:
    result = invoke("fuzz", RING, "--cases", "25")
    assert result.exit_code == 1, result.output
    assert "(deadlock)" in result.output or "(race)" in result.output
    assert "carried=False" in result.output
    assert "tilesim check" in result.output
    assert "25 cases (seed 0)" in result.output
    again = next(line for line in result.output.splitlines() if "again " in line)
    repeated = invoke(*again.split("tilesim ")[1].replace("'", "").split())
    assert repeated.exit_code == 1, repeated.output


def test_fuzz_of_a_correct_family_passes() -> None:
    result = invoke("fuzz", RING, "--cases", "15", "--param", "carried=1")
    assert result.exit_code == 0, result.output
    assert "15 proved" in result.output


def test_no_configuration_is_checked_twice_and_all_are_if_there_are_few() -> None:
    result = invoke("fuzz", RING, "--param", "carried=1", "--param", "stages=1,2", "--param",
                    "trips=1..3", "--format", "json")  # fmt: skip
    document = json.loads(result.output)
    configurations = [tuple(case["params"].items()) for case in document["cases"]]
    assert len(configurations) == len(set(configurations)) == 6
    assert document["configurations"] == {"checked": 6, "of": 6}
    text = invoke("fuzz", RING, "--cases", "4", "--param", "carried=1", "--param", "stages=1,2,2")
    assert text.output.endswith("4 proved; 4 configurations, of 10\n")


def test_fuzz_says_that_nothing_varies() -> None:
    given = ("--param", "carried=1", "--param", "stages=2", "--param", "trips=3")
    result = invoke("fuzz", RING, *given)
    assert result.exit_code == 0
    assert "1 case (seed 0): 1 proved; nothing varies: give values with --param" in result.output


@pytest.mark.parametrize(
    ("params", "trips"),
    [
        ({"stages": 4, "iterations": 6}, {*range(1, 10)}),
        ({"stages": 4, "k_tiles": 64}, {*range(1, 10), 32, 64, 96, 128}),
        ({"stages": 12, "trips": 64}, {1, 2, 11, 12, 13, 23, 24, 25, 32, 64, 96, 128}),
        ({"size": 3, "trips": 2}, {*range(1, 6)}),
        ({"stages": 4, "size": 64}, None),
    ],
)
def test_trip_counts_are_around_the_rounds_of_the_ring(
    params: dict[str, int], trips: set[int] | None
) -> None:
    kernel = replace(kernel_of(RING), params=params)
    (name,) = params.keys() - {"stages", "size"} or {"size"}
    assert set(space(kernel, {})[name]) == (trips or {32, 64, 96, 128})


def test_every_fault_at_every_place_of_a_kernel() -> None:
    result = invoke("fuzz", RING, "--mutate", "--every", "--format", "json")
    document = json.loads(result.output)
    made = list(mutants(kernel_of(RING).build()))
    assert sorted(case["fault"] for case in document["cases"]) == sorted(map(str, made))
    text = invoke("fuzz", RING, "--mutate", "--every").output
    assert f": {len(made)} cases (seed 0)" in text
    assert re.search(r"score: 100.0 % of \d+ mutants that are not harmless are found", text)
    harmless = [case for case in document["cases"] if case["verdict"] == "proved"]
    assert harmless
    for case in harmless:
        assert f"  {case['fault']} [stages=2,trips=3,carried=True]" in text


def test_every_is_about_mutants() -> None:
    result = invoke("fuzz", RING, "--every")
    assert (result.exit_code, "add --mutate" in result.output) == (2, True)


def test_sweep_ends_when_time_is_up() -> None:
    result = invoke("sweep", RING, "--time-limit", "0.001")
    assert result.exit_code == 3, result.output
    assert "time is up after" in result.output


def test_progress_says_how_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([100.0, 110.0, 110.0, 400.0])
    monkeypatch.setattr(options, "monotonic", lambda: next(clock))
    progress = options.Progress()
    assert progress.share(1, 4) == "1 of 4 (25 %, 30 s left)"
    assert progress.share(4, 4) == "4 of 4 (100 %)"
    assert progress.share(1, 100) == "1 of 100 (1 %, 8 h 15 min left)"


def test_same_seed_same_report_whatever_the_jobs() -> None:
    arguments = ("fuzz", RING, "--cases", "12", "--seed", "3")
    alone = invoke(*arguments)
    assert invoke(*arguments, "--jobs", "2").output == alone.output
    assert invoke("fuzz", RING, "--cases", "12", "--seed", "4").output != alone.output


def test_fuzz_for_a_time() -> None:
    result = invoke("fuzz", RING, "--time", "0.3", "--param", "carried=1")
    assert result.exit_code == 0, result.output
    assert "proved" in result.output


def test_mutation_score() -> None:
    result = invoke("fuzz", RING, "--mutate", "--cases", "20", "--param", "carried=1")
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[0].split() == ["fault", "found", "harmless", "open"]
    assert " 20 cases" in result.output


def test_interrupt_reports_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(case: Case) -> Outcome:
        if case.number == 10:
            raise KeyboardInterrupt
        return run_case(case)

    monkeypatch.setattr(campaign, "run_case", interrupted)
    result = invoke("fuzz", RING, "--cases", "25")
    assert result.exit_code == 130
    assert "FAILED" in result.output
    assert "interrupted after 10 cases" in result.output


@pytest.mark.parametrize("number", range(1, 6))
@pytest.mark.parametrize("command", ["fuzz", "fuzz --mutate", "sweep", "check"])
def test_ctrl_c_in_a_run_ends_all_of_it(
    command: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = count(1)

    def interrupted(machine: Machine) -> None:
        if next(runs) == number:
            raise KeyboardInterrupt
        run_machine(machine)

    monkeypatch.setattr(simulate, "run_machine", interrupted)
    given = {
        "fuzz": ("--cases", "50"), "fuzz --mutate": ("--cases", "50"), "sweep": (),
        "check": ("--for-all", "trips"),
    }[command]  # fmt: skip
    result = invoke(*command.split(), RING, *given)
    assert result.exit_code == 130, result.output


@pytest.mark.parametrize("command", ["fuzz", pytest.param("sweep", marks=pytest.mark.slow)])
def test_ctrl_c_with_jobs_reports_what_was_found(command: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--param", "trips=1..200", *(["--cases", "1000"] if command == "fuzz" else [])]
    process = subprocess.Popen(
        [sys.executable, "-c", _INTERRUPTIBLE, command, SLOW, *options, "--jobs", "2",
         "--format", "json", "-o", str(report)],
        cwd=Path(tilesim.__file__).parents[1], start_new_session=True,
        env={**os.environ, "TILESIM_TEST_LOG": str(tmp_path)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        while len(list(tmp_path.glob("built-*"))) < HELD and process.poll() is None:
            sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    document = json.loads(report.read_text())
    assert document["interrupted"]["done"] == len(document["cases"]) > 0
    assert {case["verdict"] for case in document["cases"]} == {"proved"}


def test_a_case_that_kills_its_worker_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILESIM_TEST_DIE", "1")
    target = f"{KERNELS}::picky"
    result = invoke("sweep", target, "--trips", "trips", "--param", "trips=2,3,4,6", "--jobs", "2")
    assert result.exit_code == 1, result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert [row[:2] for row in rows[1:5]] == [
        ["2", "proved"], ["3", "refused"], ["4", "error"], ["6", "proved"],
    ]  # fmt: skip
    assert "the worker process dies on it" in result.output


class Flaky:
    """An executor that loses the first attempt at every case."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def submit(self, function: Callable[[T], R], task: T, /) -> Future[R]:
        assert isinstance(task, bytes)
        case = pickle.loads(task)
        assert isinstance(case, Case)
        future: Future[R] = Future()
        if case.number in self.seen:
            future.set_result(function(task))
        else:
            self.seen.add(case.number)
            future.set_exception(RuntimeError("worker lost"))
        return future


def test_json_of_fuzz_has_the_cases_and_the_defects(tmp_path: Path) -> None:
    arguments = ("fuzz", RING, "--cases", "25", "--format", "json")
    printed = invoke(*arguments)
    assert printed.exit_code == 1
    document = json.loads(printed.stdout)
    assert list(document) == [
        "schema", "target", "seed", "configurations", "cases", "defects", "faults",
    ]  # fmt: skip
    assert document["configurations"] == {"checked": 25, "of": 30}
    assert len(document["cases"]) == 25
    failed = [case for case in document["cases"] if case["verdict"] == "failed"]
    assert failed
    assert all(case["params"]["carried"] is False and case["rules"] for case in failed)
    assert sum(defect["cases"] for defect in document["defects"]) == len(failed)
    first = document["defects"][0]
    assert first["result"]["verdict"] == "failed"
    assert first["again"].startswith(f"tilesim check {RING} --param stages=")
    path = tmp_path / "reports" / "fuzz.json"
    written = invoke(*arguments, "-o", str(path))
    assert (written.exit_code, written.stdout, path.read_text()) == (1, "", printed.stdout)


def test_json_of_mutants_has_the_score() -> None:
    arguments = ("--mutate", "--cases", "20", "--param", "carried=1", "--format", "json")
    document = json.loads(invoke("fuzz", RING, *arguments).stdout)
    assert document["defects"] == []
    assert sum(sum(row.values()) for row in document["faults"].values()) == 20
    assert all(set(row) == {"found", "harmless", "open"} for row in document["faults"].values())
    assert all(
        case["fault"].partition(" at ")[0] in document["faults"] for case in document["cases"]
    )


def test_json_of_sweep(tmp_path: Path) -> None:
    arguments = ("sweep", RING, "--param", "carried=0,1", "--param", "trips=1,3")
    path = tmp_path / "sweep.json"
    result = invoke(*arguments, "--format", "json", "-o", str(path))
    assert (result.exit_code, result.stdout) == (1, "")
    document = json.loads(path.read_text())
    assert list(document) == ["schema", "target", "cases"]
    assert [case["verdict"] for case in document["cases"]].count("failed") == 2
    assert document["cases"][2]["params"] == {"stages": 1, "trips": 3, "carried": False}


def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    result = invoke("sweep", f"{KERNELS}::plain", "-o", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: invalid value for '-o' / '--output'")


def test_lost_workers_lose_nothing() -> None:
    from contextlib import nullcontext

    domain = space(kernel_of(RING), {"carried": "1"})
    cases = list(islice(generate(RING, domain, Settings(), 0), 8))
    flaky = Flaky()
    done = campaign.run(cases, lambda: nullcontext(flaky), workers=4)
    assert [o.verdict for o in done.sorted()] == ["proved"] * 8


def test_sweep_covers_the_boundaries() -> None:
    result = invoke("sweep", RING, "--param", "carried=1")
    assert result.exit_code == 0, result.output
    rows = [tuple(line.split()) for line in result.output.splitlines()]
    assert rows[0][:3] == ("stages", "trips", "verdict")
    assert [r[:2] for r in rows[1:-3]] == [
        (s, t)
        for s, trips in (("1", "0123"), ("2", "01235"))
        for t in trips
    ]  # fmt: skip
    place = f"kernels.py:{line_of('k.mem.store(data[i % stages, 0], i)')})"
    said = [(*r[:5], r[5].endswith(place)) for r in rows[-3:-1]]
    assert said == [(s, "1..", "not", "shown", "`i`", True) for s in "12"]
    assert result.output.endswith("9 configurations, 9 proved; 0 of 2 for every trips\n")


def test_sweep_proves_every_trip_count() -> None:
    result = invoke("sweep", LATE, "--param", "wrong=0,2,40")
    assert result.exit_code == 1, result.output
    rows = [line.split(maxsplit=3) for line in result.output.splitlines() if "1.." in line]
    assert rows[0][:3] == ["1..", "0", "proved"]
    assert rows[0][3].startswith("up to ")
    assert rows[1][:3] == ["1..", "40", "failed"]
    line = line_of("mbarrier.init(full, count")
    assert re.fullmatch(rf"trips = 40: deadlock \(.*kernels.py:{line}\)", rows[1][3])
    assert len(rows) == 2  # there is a trip count of those tried that fails from two trips on
    assert result.output.endswith("; 1 of 2 for every trips\n")


def test_sweep_says_why_it_does_not_prove_every_trip_count() -> None:
    result = invoke("sweep", LATE, "--param", "hashed=1", "--format", "json")
    assert result.exit_code == 0, result.output
    (said,) = json.loads(result.stdout)["for_all"]
    assert said["verdict"] == "not shown"
    assert said["params"] == {"wrong": 0, "hashed": True}
    assert said["claim"]["obstacle"]["what"] == "trips is looked up in a table"
    assert said["claim"]["obstacle"]["line"] == line_of("count = {trips: 32}")


@pytest.mark.parametrize("option", [("--no-for-all",), ("--param", "trips=1,2")])
def test_sweep_is_asked_for_single_trip_counts(option: tuple[str, ...]) -> None:
    assert "1.." not in invoke("sweep", LATE, *option).output


def test_sweep_shows_which_configurations_fail() -> None:
    result = invoke("sweep", RING, "--param", "carried=0,1", "--param", "trips=1,3")
    assert result.exit_code == 1, result.output
    failing = [line.split() for line in result.output.splitlines() if "failed" in line]
    assert failing
    assert {row[2] for row in failing} == {"False"}
    assert all("kernels.py:" in " ".join(row) for row in failing)


def test_without_parameters_one_configuration_is_left() -> None:
    result = invoke("sweep", f"{KERNELS}::plain")
    assert result.exit_code == 0
    assert "1 configuration, 1 proved" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fuzz", KERNELS), "name one parametrised kernel"),
        (("fuzz", RING, "--param", "depth=1"), "has no parameter depth"),
        (("fuzz", RING, "--param", "stages=two"), "neither a value like 2 nor a range"),
        (("fuzz", RING, "--param", "stages=5..4"), "is empty"),
        (("fuzz", RING, "--param", f"trips=1..{10**30}"), "is more than 100000 values"),
        (("sweep", RING, "--param", f"trips=1..{10**30}"), "is more than 100000 values"),
        (("sweep", f"{KERNELS}::named_otherwise"), "a usual name for stages, trips or tiles"),
        (("fuzz", RING, "--jobs", "2", "--scheduler", "tcp://x:1"), "exclude each other"),
        (
            ("sweep", RING, "--stages", "depth"),
            "has no parameter 'depth'; it has stages, trips, carried",
        ),
        (("sweep", RING, "--param", "trips=1..600"), "too many"),
    ],
)
def test_misuse(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert message in result.output + result.stderr


def test_documented_table_is_what_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Path(__file__).parent
    page = (here.parents[1] / "docs" / "fuzzing.md").read_text()
    command, _, shown = page.partition("$ tilesim ")[2].partition("```")[0].partition("\n")
    monkeypatch.chdir(here)
    assert invoke(*command.split()).output == shown


SCALAR = """
import tilesim as ts

@ts.kernel(warps=1)
def counted(k):
    n = k.scalar("n", 2)
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    with k.one_thread(), k.loop(n) as i:
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, i // 4 & 0 if WRONG else i & 1)
"""


@pytest.mark.parametrize("command", ["fuzz", "sweep"])
def test_scalars_of_a_kernel_are_varied_as_its_parameters_are(command: str, tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(SCALAR.replace("WRONG", "False"))
    wrong.write_text(SCALAR.replace("WRONG", "True"))
    good = invoke(command, str(right), "--param", "n=1..3")
    assert good.exit_code == 0, good.output
    bad = invoke(command, str(wrong), "--param", "n=1..3")
    assert bad.exit_code == 1, bad.output
    assert "deadlock" in bad.output
    rows = {"fuzz": r"n=[23]", "sweep": r"^1 +proved\n2 +failed"}
    assert re.search(rows[command], bad.output, re.MULTILINE)
    unknown = invoke(command, str(right), "--param", "m=1..3")
    assert unknown.exit_code == 2
    assert "kernel counted has no parameter m; it has n" in " ".join(unknown.output.split())


def test_a_scalar_of_the_host_is_what_counts_trips(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(SCALAR.replace("WRONG", "False"))
    wrong.write_text(SCALAR.replace("WRONG", "True"))
    good = invoke("sweep", str(right), "--trips", "n")
    assert good.exit_code == 0, good.output
    assert re.search(r"^1\.\. +proved", good.output, re.MULTILINE)
    bad = invoke("sweep", str(wrong), "--trips", "n")
    assert bad.exit_code == 1, bad.output
    assert re.search(r"^1 +proved\n2 +failed", bad.output, re.MULTILINE)
    unknown = invoke("sweep", str(right), "--trips", "m")
    assert unknown.exit_code == 2
    assert "kernel counted has no parameter 'm'; it has n" in " ".join(unknown.output.split())
    every = invoke("check", str(right), "--for-all", "n")
    assert every.exit_code == 0, every.output
    assert "with n = 2;" in every.output
    assert "every n >= 1" in every.output
    refuted = invoke("check", str(wrong), "--for-all", "n=1..3")
    assert refuted.exit_code == 1
