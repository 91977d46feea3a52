"""How large an expression may be.

Reading an expression goes through all of it, and Python makes a huge one in few steps: forty times
``x = x + x`` has 2^40 parts. So the size is looked at before anything else is, in a way that costs
no more than its distinct parts.
"""

from __future__ import annotations

from typing import Final

from tilesim.ir.expr import Binary, Expr, Select, Unary

#: levels of an expression, in a program and in the text form
MAX_LEVELS: Final = 200
#: operators, literals and names in an expression, however often they are shared
MAX_PARTS: Final = 10_000


def too_large(expr: Expr) -> str:
    """What there is too much of in an expression; nothing if it is of a size to work with."""
    levels, parts = size_of(expr)
    if levels > MAX_LEVELS:
        return f"{levels:,} levels, {MAX_LEVELS} at most"
    if parts > MAX_PARTS:
        shown = f"{parts:,}" if parts < 10**9 else "billions of"
        return f"{shown} operators and operands, {MAX_PARTS:,} at most"
    return ""


def size_of(expr: Expr) -> tuple[int, int]:
    """Levels of an expression, and its operators, literals and names."""
    operands = _operands(expr)
    if not any(map(_operands, operands)):
        return (2, 1 + len(operands)) if operands else (1, 1)
    sizes: dict[int, tuple[int, int]] = {}
    left: list[Expr] = [expr]
    while left:
        part = left[-1]
        operands = _operands(part)
        missing = [operand for operand in operands if id(operand) not in sizes]
        if missing and id(part) not in sizes:
            left += missing
            continue
        left.pop()
        below = [sizes[id(operand)] for operand in operands]
        sizes[id(part)] = (
            1 + max((levels for levels, _ in below), default=0),
            1 + sum(parts for _, parts in below),
        )
    return sizes[id(expr)]


def _operands(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Binary(_, lhs, rhs):
            return lhs, rhs
        case Unary(_, operand):
            return (operand,)
        case Select(cond, then, other):
            return cond, then, other
        case _:
            return ()
