"""Checks that tests made, as files of a folder: what was checked, how, and what came of it.

Files are pickles: a corpus is made and read by the same user, and is no input from elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import cloudpickle

if TYPE_CHECKING:
    from tilesim.checker.report import Report
    from tilesim.ir.mir import Mir
    from tilesim.ptx.launch import Launch

SUFFIX = ".check"
#: between what is claimed, and what that leans on
_LEANING = ", leaning on "
#: the environment's variable that names the folder into which `collect` writes
FOLDER = "FINDER_CORPUS"


@dataclass(frozen=True)
class PtxSource:
    """A kernel as PTX, read and lowered again under each mutant: passes of PTX are mutated, too."""

    text: str
    file: str
    entry: str
    launch: Launch

    def program(self) -> Mir:
        """The kernel in machine form; raises as `tilesim.ptx.parser.read` and `lower` do."""
        module = import_module("tilesim.ptx.parser").read(self.text, self.file)
        (entry,) = (e for e in module.entries if e.name == self.entry)
        mir: Mir = import_module("tilesim.ptx.program").lower(module, entry, self.launch)
        return mir


@dataclass(frozen=True)
class Result:
    """What a check says, and what that took.

    ``verdict``: with `for_all`, also what is said of all values, and the names of what makes a
    proof conditional. ``rules``: those of the findings. ``findings``: of each its rule, and what
    each participant does at which line; with `for_all`, what is said of which values. ``work``:
    warp instructions that were executed in all runs, without those of repetitions that were left
    out.
    """

    verdict: str
    rules: tuple[str, ...]
    findings: tuple[str, ...]
    work: int

    @property
    def is_wrong(self) -> bool:
        """Whether a fault was found, or a value for which nothing is proved."""
        return self.verdict.startswith("failed") or " not for " in self.verdict

    @property
    def is_claim(self) -> bool:
        """Whether this is said of all schedules, and of all values if that was asked."""
        return self.verdict.startswith(("proved", "exhausted")) and not self.is_wrong

    @property
    def is_unconditional(self) -> bool:
        """Whether a claim leans on nothing."""
        return self.is_claim and _LEANING not in self.verdict


@dataclass(frozen=True)
class Check:
    """A call of `check`, and what came of it in the test that has made it."""

    program: Any
    arguments: Mapping[str, Any]
    result: Result

    def again(self) -> Result:
        """What it says now.

        The checker is imported here and not before, so that a mutant of it can be put in its place.
        """
        check = import_module("tilesim.checker").check
        program = self.program
        if isinstance(program, PtxSource):
            program = program.program()
        with executed() as runs:
            report = check(program, **self.arguments)
        return result_of(report, sum(runs))


@contextmanager
def executed() -> Iterator[list[int]]:
    """Yields a list that gets, of each simulated run, the warp instructions that it executes."""
    simulation = import_module("tilesim.sim.machine.simulate").Simulation
    original = simulation.run_on
    runs: list[int] = []

    def counted(*arguments: Any, **named: Any) -> Any:
        run = original(*arguments, **named)
        runs.append(run.stats.instructions - run.stats.skipped)
        return run

    with patch.object(simulation, "run_on", counted):
        yield runs


def result_of(report: Report, work: int) -> Result:
    """What a report says."""
    verdict: str = report.verdict
    if (claim := report.for_all) is not None:
        limit = None if claim.limit is None else claim.limit[0]
        verdict += f" for all up to {limit}" if claim.proved else f" not for {claim.at}"
    if report.conditions:
        verdict += f"{_LEANING}{', '.join(sorted(report.conditions))}"
    findings = [f"{f.rule}: {'; '.join(map(str, f.participants))}" for f in report.findings]
    if claim is not None:
        findings.append(f"claim: {claim.said}")
    return Result(verdict, tuple(sorted(report.rules)), tuple(sorted(findings)), work)


def write(check: Check, folder: Path) -> None:
    """Keeps a check in a file that is named by its digest.

    Functions of tests are kept by value: no other process can import those that a test makes.
    """
    data = cloudpickle.dumps(check)
    target = folder / f"{hashlib.sha256(data).hexdigest()[:24]}{SUFFIX}"
    scratch = target.with_suffix(f".{os.getpid()}")
    scratch.write_bytes(data)
    scratch.rename(target)


def read(path: Path) -> Check:
    """The check of a file that `write` has written."""
    check: Check = pickle.loads(path.read_bytes())
    return check
