"""The table of litmus rows: a program, its parameters and the outcome expected of it.

A row is added by decorating the program's builder; a program with fixed twins has several rows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from tilesim import Builder, Program
from tilesim.findings.finding import RULES
from tilesim.ir.program import Strict

STRICTNESS: tuple[Strict, ...] = ("practice", "ptx")
Values = Mapping[str, Any]
#: (role, text of a source line)
Site = tuple[str, str]


@dataclass(frozen=True)
class Completes:
    """COMPLETES(v): every schedule ends without a finding.

    ``outputs`` are values `simulate` must leave in global tensors when run on ``inputs``.
    ``verdicts`` other than ``proved`` come with a ``note`` why there is no certificate.
    """

    inputs: Values
    outputs: Values
    verdicts: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class Defect:
    """A finding: its rule and its participants, each a role and the line where it is stopped."""

    rule: str
    sites: frozenset[Site]


@dataclass(frozen=True)
class Fails:
    """RACE, UB, MUST- or MAY-DEADLOCK: `check` fails and finds at least one of ``defects``.

    ``also`` are rules that may be reported beside them, never alone; nothing else may be.
    """

    defects: tuple[Defect, ...]
    also: frozenset[str]


@dataclass(frozen=True)
class Rejected:
    """LAUNCH-ERR, TARGET-ERR, or UB that is visible statically: `InvalidProgram` with ``rule``."""

    rule: str
    line: str


Outcome = Completes | Fails | Rejected


def completes(
    inputs: Values | None = None, /, *, verdicts: tuple[str, ...] = ("proved",), note: str = "",
    **outputs: Any,
) -> Completes:  # fmt: skip
    """Every schedule ends, with these values in the global tensors."""
    assert verdicts == ("proved",) or note, "a weaker verdict needs a reason"
    return Completes(inputs or {}, outputs, verdicts, note)


def defect(rule: str, **sites: str | tuple[str, ...]) -> Defect:
    """A finding whose participants are exactly these: ``role="text of its line"``.

    The text occurs on no other line of the builder. No participants given: any.
    """
    assert rule in RULES, f"{rule!r} is not the name of a rule"
    pairs = {
        (role, text)
        for role, texts in sites.items()
        for text in ((texts,) if isinstance(texts, str) else texts)
    }
    return Defect(rule, frozenset(pairs))


def fails(*defects: Defect, also: tuple[str, ...] = ()) -> Fails:
    """`check` finds one of ``defects`` at least, and nothing but them and ``also``."""
    return Fails(defects, frozenset(also))


def rejected(rule: str, line: str) -> Rejected:
    """The verifier rejects the line that contains this text."""
    return Rejected(rule, line)


@dataclass(frozen=True)
class Row:
    """One litmus program and what must be said about it at each strictness."""

    id: str
    function: Callable[..., None]
    practice: Outcome
    ptx: Outcome
    params: Mapping[str, Any]

    def build(self) -> Program:
        """The program of this row."""
        builder = Builder(self.id.replace("-", "_").lower())
        self.function(builder, **self.params)
        return builder.finish()

    def expected(self, strict: Strict) -> Outcome:
        """The outcome at this strictness."""
        return self.practice if strict == "practice" else self.ptx

    def line(self, text: str) -> int:
        """Number of the only line of the builder that contains ``text``."""
        found = [number for number, line in self._source if text in line]
        assert len(found) == 1, f"{self.id}: {text!r} is on {len(found)} lines of the builder"
        return found[0]

    @property
    def file(self) -> str:
        """Name of the file of the builder."""
        return Path(self.function.__code__.co_filename).name

    @cached_property
    def _source(self) -> list[tuple[int, str]]:
        """The numbered lines of the builder's body; the decorators above it quote them."""
        lines, first = inspect.getsourcelines(self.function)
        body = next(n for n, line in enumerate(lines) if line.startswith("def "))
        return [(first + n, lines[n]) for n in range(body, len(lines))]


ROWS: list[Row] = []

F = TypeVar("F", bound=Callable[..., None])


def row(
    id: str, both: Outcome | None = None, /, *, practice: Outcome | None = None,
    ptx: Outcome | None = None, **params: Any,
) -> Callable[[F], F]:  # fmt: skip
    """Decorator: adds a row for the builder with ``params``; ``both`` is the outcome where the
    text does not tell the strictness levels apart ("S:" is ``ptx``, "C:" is ``practice``)."""
    in_practice, in_ptx = practice or both, ptx or both
    assert in_practice is not None, f"{id}: the outcome in practice is missing"
    assert in_ptx is not None, f"{id}: the outcome by the text is missing"

    def add(function: F) -> F:
        assert all(r.id != id for r in ROWS), f"{id} is there twice"
        ROWS.append(Row(id, function, in_practice, in_ptx, params))
        return function

    return add
