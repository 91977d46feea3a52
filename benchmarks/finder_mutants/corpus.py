"""Checks that tests made, as files of a folder: what was checked, how, and what came of it.

Files are pickles: a corpus is made and read by the same user, and is no input from elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

if TYPE_CHECKING:
    from tilesim.ir.mir import Mir
    from tilesim.ptx.launch import Launch
    from tilesim.verdict import Report

SUFFIX = ".check"
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
        """The kernel in machine form; raises as `tilesim.ptx.reader.read` and `lower` do."""
        module = import_module("tilesim.ptx.reader").read(self.text, self.file)
        (entry,) = (e for e in module.entries if e.name == self.entry)
        mir: Mir = import_module("tilesim.ptx.program").lower(module, entry, self.launch)
        return mir


@dataclass(frozen=True)
class Check:
    """A call of `check`, and what came of it: the verdict (with `for_all`, also what is said of all
    values) and the rules of its findings."""

    program: Any
    arguments: Mapping[str, Any]
    verdict: str
    rules: tuple[str, ...]

    @property
    def is_wrong(self) -> bool:
        """Whether a fault was found, or a value for which nothing is proved."""
        return is_wrong(self.verdict)

    def again(self) -> tuple[str, tuple[str, ...]]:
        """The verdict and the rules that it gets now.

        The checker is imported here and not before, so that a mutant of it can be put in its place.
        """
        check = import_module("tilesim.checker").check
        program = self.program
        if isinstance(program, PtxSource):
            program = program.program()
        return said(check(program, **self.arguments))


def said(report: Report) -> tuple[str, tuple[str, ...]]:
    """The verdict and the rules of a report."""
    verdict: str = report.verdict
    if (claim := report.for_all) is not None:
        limit = None if claim.limit is None else claim.limit[0]
        verdict += f" for all up to {limit}" if claim.proved else f" not for {claim.at}"
    return verdict, tuple(sorted(report.rules))


def is_wrong(verdict: str) -> bool:
    """Whether `said` says that a fault was found, or that not all values are proved."""
    return verdict.startswith("failed") or " not for " in verdict


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
