"""One statement as text, for those who show it by itself."""

from __future__ import annotations

from tilesim.errors import InvalidProgram
from tilesim.ir.expr import Expr
from tilesim.ir.loc import UNKNOWN
from tilesim.ir.memory import Mbar, Mbarriers
from tilesim.ir.mir import Control
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Stmt
from tilesim.ir.text.printer import Printer
from tilesim.ir.text.values import Values


def statement_text(program: Program, stmt: Stmt | Control) -> str:
    """The first line of a statement, as `tilesim.ir.text` writes it in ``program``."""
    if isinstance(stmt, Control):
        return type(stmt).__name__.lower()
    try:
        return Printer(program, locations=False).head(stmt)
    except (InvalidProgram, TypeError):
        return stmt.mnemonic if isinstance(stmt, Op) else type(stmt).__name__.lower()


def statement_lines(program: Program, stmt: Stmt | Control) -> tuple[str, ...]:
    """All lines of a statement of ``program``: see `statement_text`."""
    if isinstance(stmt, Control):
        return (statement_text(program, stmt),)
    try:
        return tuple(Printer(program, locations=False).written(stmt))
    except (InvalidProgram, TypeError):
        return (statement_text(program, stmt),)


def value_text(program: Program, value: object) -> str:
    """An operand: an expression or an mbarrier as the text form has it, others as Python does."""
    values = Values(program)
    try:
        match value:
            case Expr():
                return values.expression(value, UNKNOWN)
            case Mbar(array=Mbarriers(name=name), index=index, cta=cta):
                at = "" if cta is None else f".at({values.expression(cta, UNKNOWN)})"
                return f"{name}[{values.expression(index, UNKNOWN)}]{at}"
            case _:
                return str(value)
    except (InvalidProgram, TypeError):
        return str(value)
