"""Reading findings: which participants, which lines, what the notes say."""

from __future__ import annotations

import inspect
from typing import Any

from tilesim.checker import Report, check
from tilesim.ir.kernel import Kernel
from tilesim.sim.findings import Finding
from tilesim.sim.simulate import simulate


def failed(kernel: Kernel, **params: Any) -> Report:
    """The report of a check that must have failed."""
    report = check(kernel.build(**params))
    assert report.verdict == "failed", report
    return report


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


def notes(finding: Finding, *texts: str) -> None:
    """Asserts that every text is in one of the notes."""
    for text in texts:
        assert any(text in note for note in finding.notes), (text, finding.notes)


def symptoms(kernel: Kernel, seeds: int = 40, **params: Any) -> set[str]:
    """Rules that random schedules of the kernel show."""
    program = kernel.build(**params)
    runs = (simulate(program, numbers=False, policy="random", seed=seed) for seed in range(seeds))
    return {f.rule for run in runs for f in run.findings}


def first(report: Report, rule: str) -> Finding:
    """The first finding of ``rule`` in a report that must have failed."""
    assert report.verdict == "failed", report
    return next(f for f in report.findings if f.rule == rule)
