"""Checking one case of the gallery and comparing the verdict with the expected one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.checker import check
from tilesim.errors import Diagnostic, InvalidProgram
from tilesim.findings.finding import Finding
from tilesim.ir.loc import Loc
from tilesim.kernels.registry import Case

#: what the check of a program says, or why the verifier refuses it
Problem = Finding | Diagnostic


@dataclass(frozen=True)
class Outcome:
    """What the check of ``case`` said, and how long it took."""

    case: Case
    target: str
    verdict: str
    problems: tuple[Problem, ...]
    seconds: float

    @property
    def rules(self) -> tuple[str, ...]:
        """Rules of the findings, without repetition, in order."""
        return tuple(dict.fromkeys(problem.rule for problem in self.problems))

    @property
    def ok(self) -> bool:
        """Whether this is the outcome the case expects."""
        return self.case.accepts(self.verdict, self.rules)

    def json(self) -> dict[str, Any]:
        """This outcome as a row of ``python -m tilesim.kernels --json``."""
        return {
            "kernel": self.case.target,
            "target": self.target,
            "family": self.case.family,
            "expected": self.case.expected,
            "verdict": self.verdict,
            "findings": [_json(problem) for problem in self.problems],
            "ok": self.ok,
            "seconds": round(self.seconds, 3),
        }


def run(case: Case) -> Outcome:
    """Builds and checks ``case``; a program the verifier refuses has the verdict ``rejected``."""
    start = perf_counter()
    target = case.kernel.target
    try:
        program = case.build()
        target = program.target.name
        report = check(program, strict=case.strict, inputs=inputs_of(case))
        verdict: str = report.verdict
        problems: tuple[Problem, ...] = report.findings
    except InvalidProgram as error:
        verdict, problems = "rejected", error.diagnostics
    return Outcome(case, target, verdict, problems, perf_counter() - start)


def inputs_of(case: Case) -> Mapping[str, NDArray[Any]] | None:
    """The kernel's own inputs, where it has some: addresses or control flow depend on them."""
    make = case.kernel.inputs
    if make is None:
        return None
    return make(np.random.default_rng(0), **{**case.kernel.params, **case.params})


def locations(problem: Problem) -> tuple[Loc, ...]:
    """Source lines of a finding (several) or a diagnostic (one)."""
    return problem.locations if isinstance(problem, Finding) else (problem.loc,)


def _json(problem: Problem) -> dict[str, Any]:
    lines = [{"file": loc.file, "line": loc.line} for loc in locations(problem)]
    return {"rule": problem.rule, "message": problem.message, "locations": lines}
