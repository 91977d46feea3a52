"""Checks that tests made, as files of a folder: what was checked, how, and what came of it.

Files are pickles: a corpus is made and read by the same user, and is no input from elsewhere.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilesim.ir.mir import Mir
    from tilesim.ptx.launch import Launch

SUFFIX = ".check"


@dataclass(frozen=True)
class PtxSource:
    """A kernel as PTX, read and lowered again under each mutant: passes of PTX are mutated, too."""

    text: str
    file: str
    entry: str
    launch: Launch

    def program(self) -> Mir:
        """The kernel in machine form; raises as `tilesim.ptx.reader.read` and `lower` do."""
        module = import_module("tilesim.ptx.reader").read(self.text, self.file)
        (entry,) = (e for e in module.entries if e.name == self.entry)
        mir: Mir = import_module("tilesim.ptx.program").lower(module, entry, self.launch)
        return mir


@dataclass(frozen=True)
class Check:
    """A call of `check`, and what came of it: the verdict and the rules of its findings."""

    program: Any
    arguments: Mapping[str, Any]
    verdict: str
    rules: tuple[str, ...]

    @property
    def is_wrong(self) -> bool:
        """Whether the program is one in which a fault was found."""
        return self.verdict == "failed"

    def again(self) -> tuple[str, tuple[str, ...]]:
        """The verdict and the rules that it gets now.

        The checker is imported here and not before, so that a mutant of it can be put in its place.
        """
        check = import_module("tilesim.checker").check
        program = self.program
        if isinstance(program, PtxSource):
            program = program.program()
        report = check(program, **self.arguments)
        return report.verdict, tuple(sorted({finding.rule for finding in report.findings}))


def read(path: Path) -> Check:
    """The check of a file that `tests_of` has written."""
    check: Check = pickle.loads(path.read_bytes())
    return check
