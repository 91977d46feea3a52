"""The verifier: everything that is wrong with a program and visible without running it."""

from __future__ import annotations

from tilesim.errors import Diagnostic, InvalidProgram
from tilesim.ir.program import Program, instructions


def diagnose(program: Program) -> tuple[Diagnostic, ...]:
    """Every problem of ``program`` that is visible without running it."""
    found = []
    for op in instructions(program):
        for text in op.verify():
            head, _, tail = text.partition(": ")
            found.append(Diagnostic(head, tail, op.loc) if " " not in head else Diagnostic("operand", text, op.loc))
    return tuple(found)


def verify(program: Program) -> None:
    """Raises `InvalidProgram` with every problem `diagnose` finds."""
    problems = diagnose(program)
    if problems:
        raise InvalidProgram(problems)
