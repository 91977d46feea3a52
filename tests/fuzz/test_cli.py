"""``tilesim fuzz``, ``tilesim sweep`` and the campaign engine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tilesim.cli import main
from tilesim.fuzz import campaign
from tilesim.fuzz.cases import Case, Outcome, Settings, generate, kernel_of, run_case, space

KERNELS = str(Path(__file__).with_name("kernels.py"))
RING = f"{KERNELS}::ring"


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


def test_same_seed_same_report_whatever_the_jobs() -> None:
    arguments = ("fuzz", RING, "--cases", "12", "--seed", "3")
    alone = invoke(*arguments)
    assert invoke(*arguments).output == alone.output
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


def test_a_case_that_kills_its_worker_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILESIM_TEST_DIE", "1")
    target = f"{KERNELS}::picky"
    result = invoke("sweep", target, "--trips", "trips", "--param", "trips=2,3,4,6", "--jobs", "2")
    assert result.exit_code == 1, result.output
    rows = [line.split() for line in result.output.splitlines()]
    assert [row[:2] for row in rows[1:5]] == [
        ["2", "proved"], ["3", "refused"], ["4", "error"], ["6", "proved"],
    ]  # fmt: skip
    assert "the worker process dies on this case" in result.output


class Flaky:
    """An executor that loses the first attempt at every case."""

    def __init__(self) -> None:
        self.seen: set[int] = set()

    def submit(self, function: Callable[[Case], Outcome], case: Case, /) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        if case.number in self.seen:
            future.set_result(function(case))
        else:
            self.seen.add(case.number)
            future.set_exception(RuntimeError("worker lost"))
        return future


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
    assert [r[:2] for r in rows[1:-1]] == [
        (s, t)
        for s, trips in (("1", "0123"), ("2", "01235"))
        for t in trips
    ]  # fmt: skip
    assert result.output.endswith("9 configurations, 9 proved\n")


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
    assert "1 configurations, 1 proved" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("fuzz", KERNELS), "name one parametrised kernel"),
        (("fuzz", RING, "--param", "depth=1"), "has no parameter depth"),
        (("fuzz", RING, "--param", "stages=two"), "neither a value like 2 nor a range"),
        (("fuzz", RING, "--param", "stages=5..4"), "is empty"),
        (("fuzz", RING, "--jobs", "2", "--scheduler", "tcp://x:1"), "exclude each other"),
        (("sweep", RING, "--stages", "depth"), "has the parameters stages, trips, carried"),
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
