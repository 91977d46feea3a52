"""Which roles take part in findings, and at which lines."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from tilesim.checker import Report
from tilesim.ir.program import Strict

BOTH: tuple[Strict, ...] = ("practice", "ptx")


def deciding(wrong: object) -> Strict:
    """The level that decides where the same is said at both: the text of a right program, practice
    of a wrong one, where less is forbidden."""
    return "practice" if wrong else "ptx"


def sites(report: Report, function: Callable[..., None]) -> list[tuple[str, set[tuple[str, str]]]]:
    """Per finding, its rule and (role, source line) of its participants."""
    lines, first = inspect.getsourcelines(function)
    return [
        (f.rule, {(p.role, lines[p.loc.line - first].strip()) for p in f.participants})
        for f in report.findings
    ]
