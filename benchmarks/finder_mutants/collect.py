"""A pytest plugin that keeps each program that a test checks.

It stands in for `tilesim.checker.check` before any test is imported, and writes into the folder
that ``FINDER_CORPUS`` names: a file for each different check, named by its digest.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tilesim.checker
import tilesim.ptx.parser
import tilesim.ptx.program
from benchmarks.finder_mutants.corpus import FOLDER, Check, PtxSource, result_of, write
from tilesim.checker.report import Report
from tilesim.ir.mir import Mir
from tilesim.ptx.launch import Launch
from tilesim.ptx.syntax import Function, Module

#: a check that takes more warp instructions than this is too slow to be made under each mutant
MAX_INSTRUCTIONS = 20_000
#: arguments of `check` that change no verdict
INDIFFERENT = ("progress", "suggest", "jobs")


class Collector:
    """The sources of modules that were read, and the folder into which checks are written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._texts: dict[int, tuple[Module, str, str]] = {}
        self._sources: dict[int, tuple[Mir, PtxSource]] = {}

    def install(self) -> None:
        """Puts itself before the reader, the lowering and `check`."""
        read, lower = tilesim.ptx.parser.read, tilesim.ptx.program.lower
        check = tilesim.checker.check

        def reading(text: str, file: str = "kernel.ptx") -> Module:
            module = read(text, file)
            self._texts[id(module)] = (module, text, file)
            return module

        def lowering(module: Module, entry: Function, launch: Launch) -> Mir:
            mir = lower(module, entry, launch)
            if (known := self._texts.get(id(module))) is not None:
                _, text, file = known
                self._sources[id(mir)] = mir, PtxSource(text, file, entry.name, launch)
            return mir

        def checking(program: Any, **arguments: Any) -> Report:
            report = check(program, **arguments)
            self._keep(program, arguments, report)
            return report

        tilesim.ptx.parser.read = reading
        tilesim.ptx.program.lower = lowering
        tilesim.checker.check = checking

    def forget(self) -> None:
        """Lets go of the modules of a test that has ended."""
        self._texts.clear()
        self._sources.clear()

    def _keep(self, program: Any, arguments: Mapping[str, Any], report: Report) -> None:
        """Writes a check, if it is small, no cut-off one, and can be made in another process."""
        if report.stats.instructions > MAX_INSTRUCTIONS or "time_limit" in arguments:
            return
        if (known := self._sources.get(id(program))) is not None:
            _, program = known
        wanted = {name: v for name, v in arguments.items() if name not in INDIFFERENT}
        try:
            write(Check(program, wanted, result_of(report, 0)), self._folder)
        except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
            return  # it holds what cannot be kept: an open file, a module's attribute that is gone


_collector: Collector | None = None
if _folder := os.environ.get(FOLDER):
    Path(_folder).mkdir(parents=True, exist_ok=True)
    _collector = Collector(Path(_folder))
    _collector.install()


def pytest_runtest_teardown(item: Any) -> None:
    """Nothing that one test has read is needed by the next one."""
    if _collector is not None:
        _collector.forget()
