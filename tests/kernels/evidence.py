"""Judging kernels: which findings, participants and lines, what the notes say, which numbers."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.checker import Report, check, prove_alone
from tilesim.dsl.kernel import Kernel
from tilesim.findings.finding import Finding
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.kernels.registry import Case
from tilesim.limits import Timer
from tilesim.sim.machine.simulate import Policy, simulate

from .mutate import SCHEDULES, inputs


def verdict(
    program: Program | Mir, strict: Strict = "practice",
    given: Mapping[str, NDArray[Any]] | None = None, **options: Any,
) -> str:  # fmt: skip
    """What a check says. Most verdicts stand after one schedule; causes are not looked for then."""
    alone = prove_alone(strict, program, Timer(None), lambda _: None, given).verdict
    if alone in ("proved", "failed"):
        return alone
    return check(program, strict=strict, inputs=given, **options).verdict


def assert_computes(
    case: Case,
    schedules: Iterable[tuple[Policy, int]] = SCHEDULES,
    *,
    rtol: float = 0,
    empty: bool = False,
) -> None:
    """The kernel leaves what NumPy computes, and that is not only zeros unless it is ``empty``."""
    program, params = case.build(), {**case.kernel.params, **case.params}
    given = inputs(case.kernel, program, params)
    assert case.kernel.reference is not None
    expected = case.kernel.reference(given, **params)
    for policy, seed in schedules:
        result = simulate(program, given, policy=policy, seed=seed)
        assert result.findings == ()
        for tensor, value in expected.items():
            assert empty or np.any(value)
            if rtol:
                np.testing.assert_allclose(result.outputs[tensor], value, rtol=rtol)
            else:
                np.testing.assert_array_equal(result.outputs[tensor], value)


def finding(program: Program, rule: str, strict: Strict = "practice") -> Finding:
    """The first finding of ``rule``; the check must have failed."""
    report = check(program, strict=strict)
    assert report.verdict == "failed", report
    assert rule in report.rules, report.findings
    return next(f for f in report.findings if f.rule == rule)


def failed(kernel: Kernel, **params: Any) -> Report:
    """The report of a check that must have failed."""
    report = check(kernel.build(**params))
    assert report.verdict == "failed", report
    return report


def participating(finding: Finding) -> list[int]:
    """The lines of a finding's participants in order, without repetition."""
    return list(dict.fromkeys(p.loc.line for p in finding.participants))


def found(report: Report, rule: str) -> Finding:
    """The only finding of ``rule``."""
    (finding,) = (f for f in report.findings if f.rule == rule)
    return finding


def at(kernel: Kernel, text: str) -> int:
    """Number of the only line with ``text`` in the source of ``kernel``."""
    lines, first = inspect.getsourcelines(kernel.function)
    numbers = [first + i for i, row in enumerate(lines) if text in row]
    assert len(numbers) == 1, f"{kernel.name} has {len(numbers)} lines with {text!r}"
    return numbers[0]


def sites(finding: Finding) -> set[tuple[str, int]]:
    """Role and line of every participant."""
    return {(p.role, p.loc.line) for p in finding.participants}


def symptoms(kernel: Kernel, seeds: int = 40, **params: Any) -> set[str]:
    """Rules that random schedules of the kernel show."""
    program = kernel.build(**params)
    runs = (simulate(program, numbers=False, policy="random", seed=seed) for seed in range(seeds))
    return {f.rule for run in runs for f in run.findings}


def first(report: Report, rule: str) -> Finding:
    """The first finding of ``rule`` in a report that must have failed."""
    assert report.verdict == "failed", report
    return next(f for f in report.findings if f.rule == rule)
