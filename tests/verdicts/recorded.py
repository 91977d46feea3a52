"""A pytest plugin, ``tests.verdicts.recorded``, that writes a row for each check that a test makes.

It stands in for `tilesim.checker.check` before any test is imported, and writes the rows into the
file that ``VERDICTS`` names. Left out are tests whose programs are drawn at random, and checks that
time or an interrupt cuts off.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tilesim.checker
from tests.verdicts.files import text_of
from tests.verdicts.row import Row, rechecked, rejected, row_of
from tilesim.checker.report import Report
from tilesim.dsl.kernel import Kernel
from tilesim.errors import InvalidProgram
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program

#: the environment's variable that names the file of rows
FILE = "VERDICTS"
#: arguments of checks whose reports are none of the program alone
_CUT_OFF = frozenset({"time_limit", "progress", "frontier"})
#: instructions that the proof kernel executes of a cluster, and CTAs of a launch that it is given:
#: there are many programs, and most are small
_STEPS, _CTAS = 1_000, 8


class Recorder:
    """The rows of the tests that have run, named by them and counted in each."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._test = ""
        self._checks: Counter[str] = Counter()

    def install(self) -> None:
        """Puts itself before `check`."""
        check = tilesim.checker.check

        def checking(program: Any, **arguments: Any) -> Report:
            try:
                report = check(program, **arguments)
            except InvalidProgram as error:
                if self._counts(arguments):
                    self.rows.append(rejected(self._name(), error, level(arguments)))
                raise
            if self._counts(arguments):
                self.rows.append(self._row(program, report, arguments))
            return report

        tilesim.checker.check = checking

    def begin(self, test: str) -> None:
        """A test begins."""
        self._test = test

    def _counts(self, arguments: Mapping[str, Any]) -> bool:
        by_clock = isinstance(arguments.get("budget"), timedelta)
        return bool(self._test) and not by_clock and not _CUT_OFF & arguments.keys()

    def _name(self) -> str:
        self._checks[self._test] += 1
        number = self._checks[self._test]
        return self._test + (f" ({number})" if number > 1 else "")

    def _row(self, program: Any, report: Report, arguments: Mapping[str, Any]) -> Row:
        strict = level(arguments)
        row = row_of(self._name(), report, strict)
        if isinstance(program, Kernel):
            program = program.build(**arguments.get("params") or {})
        launch = program.kernel if isinstance(program, Mir) else program
        # a claim about other values of parameters is no claim about this program
        if row.values or not isinstance(launch, Program) or launch.ctas > _CTAS:
            return row
        return replace(row, recheck=rechecked(program, (strict,), _STEPS)[strict])


def level(arguments: Mapping[str, Any]) -> Any:
    """The level of a check."""
    return arguments.get("strict", "practice")


_recorder = Recorder()
if _path := os.environ.get(FILE):
    _recorder.install()


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Leaves out what is drawn at random."""
    items[:] = [i for i in items if not getattr(i.obj, "is_hypothesis_test", False)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Any:
    """Names the checks of a test by it."""
    _recorder.begin(item.nodeid.removeprefix("tests/"))
    result = yield
    _recorder.begin("")
    return result


def pytest_sessionfinish() -> None:
    """Writes the rows."""
    if _path:
        Path(_path).write_text(text_of(_recorder.rows), encoding="utf-8")
