"""A row of a verdict file: what a check says of a program at a level, and what its recheck says.

A row holds no time and no numbers of lines: a line is its text, so that a row stays the same where
other lines of its file move. It is the same on every machine: what bounds a recheck is a number of
executed instructions.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import PurePath
from typing import Any
from unittest.mock import patch

from tilesim.checker import check
from tilesim.checker.certificates import certified
from tilesim.checker.report import Report, whole
from tilesim.errors import Diagnostic, InvalidProgram, TilesimError
from tilesim.findings.finding import Finding, Participant
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.proof.rules import Answer

LEVELS: tuple[Strict, ...] = ("practice", "ptx")
CERTIFIED = "certified"
#: of instructions that the proof kernel executes of one cluster, unless another number is given
MOST_STEPS = 20_000
#: of the text of a line
_TEXT = 48


@dataclass(frozen=True)
class Found:
    """A finding: its rule, the places to change first, the sides (a role and a place each).

    Of findings behind a program's first one, only the place that is named first is kept, and of
    equal ones one.
    """

    rule: str
    first: tuple[str, ...] = ()
    sides: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """What is said of a program at a level.

    ``verdict``: `Report.overall`; ``rejected``, if it is refused before it runs; ``crash`` with the
    name of an exception. ``values``: of which values of parameters it is said, if that was asked.
    ``leans``: what makes the proof conditional. ``recheck``: what the proof kernel says without a
    look at the verdict, ``certified``, ``refuted`` with the rule, ``not covered`` with what it
    lacks; "" of a program that is rejected.
    """

    program: str
    level: Strict
    verdict: str
    values: str = ""
    findings: tuple[Found, ...] = ()
    leans: tuple[str, ...] = ()
    recheck: str = ""

    @property
    def key(self) -> tuple[str, Strict]:
        """What names the row in its file."""
        return self.program, self.level

    @property
    def rules(self) -> frozenset[str]:
        """The rules of the findings."""
        return frozenset(found.rule for found in self.findings)

    @property
    def is_proved(self) -> bool:
        """Whether the verdict is a proof."""
        return self.verdict == "proved"

    def fields(self) -> dict[str, Any]:
        """The row as JSON has it, without what is empty, and without the level `practice`."""
        findings = [
            {name: value for name, value in vars(found).items() if value} for found in self.findings
        ]
        known = {**vars(self), "findings": findings}
        return {name: value for name, value in known.items() if value and value != LEVELS[0]}


def row_from(fields: Mapping[str, Any]) -> Row:
    """The row of what `Row.fields` has made, also if that was written as JSON and read."""
    findings = tuple(
        Found(each["rule"], tuple(each.get("first", ())), tuple(each.get("sides", ())))
        for each in fields.get("findings", ())
    )
    known = {"level": LEVELS[0], **fields}
    return Row(**{**known, "findings": findings, "leans": tuple(fields.get("leans", ()))})


def judged(
    name: str,
    levels: Sequence[Strict],
    build: Callable[[], Program | Mir],
    inputs: Callable[[], Mapping[str, Any] | None],
    steps: int = MOST_STEPS,
) -> tuple[Row, ...]:
    """The rows of a program, one for each level, with what its tensors hold."""
    try:
        program, given = build(), inputs()
        reports = [whole(check(program, strict=level, inputs=given)) for level in levels]
    except TilesimError as error:
        return tuple(rejected(name, error, level) for level in levels)
    except Exception as error:
        return tuple(Row(name, level, f"crash: {type(error).__name__}") for level in levels)
    answers = rechecked(program, levels, steps, given)
    rows = (row_of(name, report, level) for level, report in zip(levels, reports, strict=True))
    return tuple(replace(row, recheck=answers[row.level]) for row in rows)


def row_of(name: str, report: Report, level: Strict) -> Row:
    """The row of a report, without its recheck."""
    values = "" if report.for_all is None else report.for_all.said
    findings = (
        *(_found(finding) for finding in report.findings[:1]),
        *(_named(finding) for finding in report.findings[1:]),
    )
    different = tuple(dict.fromkeys(findings))
    return Row(name, level, report.overall, values, different, tuple(sorted(report.conditions)))


def rejected(name: str, error: TilesimError, level: Strict) -> Row:
    """The row of a program that is refused before it runs."""
    said = error.diagnostics if isinstance(error, InvalidProgram) else ()
    return Row(name, level, "rejected", findings=tuple(dict.fromkeys(map(_refused, said))))


def rechecked(
    program: Program | Mir,
    levels: Iterable[Strict],
    steps: int,
    inputs: Mapping[str, Any] | None = None,
) -> dict[Strict, str]:
    """What the proof kernel says of a program at some levels, of which no check has said anything,
    with what its tensors hold, if these begin with 0 where nothing says more, and
    what data names in them is inside.

    Of each cluster at most ``steps`` instructions are executed.
    """
    try:
        with patch("tilesim.proof.machine.MOST_STEPS", steps):
            given = ("in-bounds", "zero-state")
            return {
                level: said(certified(program, level, given, None, inputs)[1]) for level in levels
            }
    except TilesimError:
        return dict.fromkeys(levels, "")
    except Exception as error:
        return dict.fromkeys(levels, f"crash: {type(error).__name__}")


def said(answer: Answer) -> str:
    """Of an answer, what a row holds."""
    if answer.verdict == "refuted":
        return f"refuted: {answer.rule}"
    return ": ".join(filter(None, (answer.verdict, kind(answer.what))))


def kind(text: str) -> str:
    """A reason without its numbers and names."""
    text = re.sub(r"instruction \d+ \(([^)]*)\) of warp \d+ of CTA \d+", r"\1", text)
    return re.sub(r"\d+", "N", text)[:60]


def _found(finding: Finding) -> Found:
    first = dict.fromkeys(place(p.loc) for p in finding.culprits)
    return Found(finding.rule, tuple(first), tuple(dict.fromkeys(map(_side, finding.participants))))


def _named(finding: Finding) -> Found:
    return Found(finding.rule, tuple(place(loc) for loc in finding.locations[:1]))


def _side(participant: Participant) -> str:
    return f"{participant.role} @ {place(participant.loc)}"


def _refused(diagnostic: Diagnostic) -> Found:
    return Found(diagnostic.rule, (place(diagnostic.loc),))


def place(loc: Loc) -> str:
    """A line by its file and text, and which of the file's lines with that text it is if it is not
    the first; by its number, if the file cannot be read."""
    text = linecache.getline(loc.file, loc.line).strip()
    if not text:
        return loc.short
    number = _lines(loc.file)[text].index(loc.line)
    again = f" [{number + 1}]" if number else ""
    return f"{PurePath(loc.file).name}: {text[:_TEXT]}{again}"


@cache
def _lines(file: str) -> Mapping[str, list[int]]:
    """By text, the numbers of the lines of a file."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(linecache.getlines(file), 1):
        found.setdefault(line.strip(), []).append(number)
    return found
