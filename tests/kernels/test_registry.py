"""The registry of the gallery and ``python -m tilesim.kernels``."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.errors import UsageError
from tilesim.kernels import __main__ as command
from tilesim.kernels.hopper.matmul_v3 import matmul
from tilesim.kernels.outcome import run
from tilesim.kernels.registry import MODULES, Case, cases, modules

FIELDS = ["kernel", "target", "family", "expected", "verdict", "findings", "ok", "seconds"]


@kernel(warps=1)
def waits_forever(k: Builder, *, parity: int = 0) -> None:
    """A thread that waits for a phase nobody completes (with parity 0)."""
    b = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(b, 2)
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, parity)


@kernel(warps=1)
def refused(k: Builder) -> None:
    """Slices a tensor outside its extent, which the builder refuses."""
    k.tensor("X", f32, (8,))[8:9]


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(command.main, list(arguments))


# ------------------------------------------------------------------ Case and cases


def test_every_listed_module_has_cases_of_one_family() -> None:
    for name in MODULES:
        families = {c.family for c in cases() if c.kernel.function.__module__ == name}
        assert families == {name.split(".")[2]}, name


def test_bug_modules_are_found_in_alphabetical_order() -> None:
    bugs = [name for name in modules() if ".bugs." in name]
    assert bugs == sorted(bugs)
    assert modules()[: len(MODULES)] == MODULES


def test_every_module_of_the_gallery_has_kernels() -> None:
    found = {case.target.partition("::")[0] for case in cases()}
    assert [name for name in modules() if name not in found] == []


def test_no_case_is_listed_twice() -> None:
    keys = [(case.target, case.strict) for case in cases()]
    assert len(keys) == len(set(keys))


def test_target_names_module_kernel_and_the_parameters_that_differ() -> None:
    case = Case(matmul, {"m": 64, "stages": 3}, "hopper", "proved")
    assert case.target == "tilesim.kernels.hopper.matmul_v3::matmul[m=64]"
    assert Case(matmul, {}, "hopper", "proved").target == "tilesim.kernels.hopper.matmul_v3::matmul"


def test_family_selects_its_cases() -> None:
    assert {case.family for case in cases("hopper")} == {"hopper"}
    assert len(cases("hopper")) == sum(case.family == "hopper" for case in cases()) < len(cases())


def test_unknown_family_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(UsageError, match=r"no family 'ada'; the gallery has .*hopper, nvfuser"):
        cases("ada")


def test_unknown_expected_verdict_is_refused() -> None:
    unknown: Any = "clean"
    with pytest.raises(UsageError, match="expected verdict 'clean' is not one of proved,"):
        Case(matmul, {}, "hopper", unknown)


@pytest.mark.parametrize(
    ("expected", "rule", "verdict", "rules", "accepted"),
    [
        ("proved", (), "proved", (), True),
        ("proved", (), "bounded", (), False),
        ("proved", (), "failed", ("race",), False),
        ("failed", ("race",), "failed", ("deadlock", "race"), True),
        ("failed", ("race",), "failed", ("deadlock",), False),
        ("failed", (), "failed", ("deadlock",), True),
        ("failed", ("race",), "proved", (), False),
        ("rejected", ("operand",), "rejected", ("operand",), True),
        ("rejected", ("operand",), "failed", ("operand",), False),
    ],
)
def test_case_accepts_its_verdict_and_one_of_its_rules(
    expected: Any, rule: tuple[str, ...], verdict: str, rules: tuple[str, ...], accepted: bool
) -> None:
    case = Case(matmul, {}, "hopper", expected, frozenset(rule))
    assert case.accepts(verdict, rules) is accepted


# ------------------------------------------------------------------ outcomes


def test_outcome_has_verdict_rules_and_lines() -> None:
    outcome = run(Case(waits_forever, {}, "test", "failed", frozenset({"deadlock"})))
    assert (outcome.verdict, outcome.rules, outcome.ok) == ("failed", ("deadlock",), True)
    [found] = outcome.json()["findings"]
    assert found["rule"] == "deadlock"
    assert found["locations"][0]["file"].endswith("test_registry.py")


def test_outcome_that_differs_from_the_expected_one_is_not_ok() -> None:
    assert not run(Case(waits_forever, {}, "test", "proved")).ok
    assert not run(Case(waits_forever, {"parity": 1}, "test", "failed")).ok
    assert run(Case(waits_forever, {"parity": 1}, "test", "proved")).ok


def test_program_refused_before_it_runs_is_rejected() -> None:
    outcome = run(Case(refused, {}, "test", "rejected", frozenset({"out-of-bounds"})))
    assert (outcome.verdict, outcome.rules, outcome.ok) == ("rejected", ("out-of-bounds",), True)
    assert outcome.json()["findings"][0]["message"] == "slice 8:9 of X is outside 0:8"


# ------------------------------------------------------------------ the command


def test_family_checks_as_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    some = cases("nvfuser")[:4]
    monkeypatch.setattr(command, "cases", lambda family: some)
    result = invoke("--family", "nvfuser")
    assert result.exit_code == 0, result.output
    header, *rows, summary = result.output.splitlines()
    assert header.split() == FIELDS
    assert len(rows) == len(some)
    assert summary.startswith(f"{len(rows)} kernels, 0 not as expected, ")


def test_json_has_exactly_the_documented_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    some = cases("hopper")[:4]
    monkeypatch.setattr(command, "cases", lambda family: some)
    result = invoke("--json", "--family", "hopper")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert list(document) == ["results"]
    assert len(document["results"]) == len(some)
    for row in document["results"]:
        assert list(row) == FIELDS
        assert (row["target"], row["verdict"], row["findings"]) == ("sm_90a", "proved", [])


def test_mismatch_is_shown_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Case(waits_forever, {}, "test", "proved")
    monkeypatch.setattr(command, "cases", lambda family: (wrong,))
    result = invoke()
    assert result.exit_code == 1
    assert "MISMATCH" in result.output
    assert result.output.splitlines()[-1].startswith("1 kernels, 1 not as expected")


def test_unknown_family_ends_with_2_and_one_line() -> None:
    result = invoke("--family", "ada")
    assert result.exit_code == 2
    assert result.stderr.splitlines() == [
        f"error: there is no family 'ada'; the gallery has "
        f"{', '.join(sorted({c.family for c in cases()}))}"
    ]
