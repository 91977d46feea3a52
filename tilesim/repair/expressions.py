"""Other values that an index, a parity or a count may have been meant to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tilesim.ir.expr import (
    Binary,
    Const,
    Expr,
    Select,
    Special,
    Unary,
    Var,
    binary,
    constant,
    select,
    unary,
)
from tilesim.ir.program import For


def simple(expr: Expr) -> Expr:
    """``expr`` without ``^ 1 ^ 1`` and other steps that come of editing it twice."""
    match expr:
        case Binary("^", Binary("^", inner, Const(a)), Const(b)):
            both = int(a) ^ int(b)
            return simple(inner) if not both else binary("^", simple(inner), both)
        case Binary("^", inner, Const(0)):
            return simple(inner)
        case Binary("+" | "-" as op, Binary("+" | "-" as inner_op, inner, Const(a)), Const(b)):
            total = (int(a) if inner_op == "+" else -int(a)) + (int(b) if op == "+" else -int(b))
            return binary("+", inner, total) if total >= 0 else binary("-", inner, -total)
        case Binary("%", Binary("+", Binary("%", inner, Const(n)), Const(a)), Const(m)) if n == m:
            return binary("%", inner, m) if not int(a) % int(n) else expr
        case _:
            return expr


def flipped(expr: Expr) -> Expr:
    """The other parity."""
    return simple(binary("^", expr, 1))


def shifted(expr: Expr, by: int, count: int) -> Expr:
    """The slot ``by`` further on in a ring of ``count``."""
    match expr:
        case Binary("%", Binary("+", Binary("%", inner, Const(n)), Const(a)), Const(m)) if n == m:
            by, expr = by + int(a), binary("%", inner, n)
    known = constant(expr)
    if known is not None:
        return Const((known + by) % count)
    return expr if not by % count else binary("%", binary("+", expr, by % count), count)


def replaced(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """``expr`` with other values in place of some registers."""
    match expr:
        case Var(name=name):
            return values.get(name, expr)
        case Unary(op, operand):
            return unary(op, replaced(operand, values))
        case Binary(op, lhs, rhs):
            return binary(op, replaced(lhs, values), replaced(rhs, values))
        case Select(cond, then, other):
            return select(*(replaced(e, values) for e in (cond, then, other)))
        case _:
            return expr


def at_rank(expr: Expr, rank: int) -> Expr:
    """``expr`` as it is in the CTA of this rank in its cluster."""
    match expr:
        case Special("cluster_rank"):
            return Const(rank)
        case Unary(op, operand):
            return unary(op, at_rank(operand, rank))
        case Binary(op, lhs, rhs):
            return binary(op, at_rank(lhs, rank), at_rank(rhs, rank))
        case Select(cond, then, other):
            return select(*(at_rank(e, rank) for e in (cond, then, other)))
        case _:
            return expr


def numbers(loops: Iterable[For]) -> Iterator[Expr]:
    """The numbers of the turn that loops around a statement count: each by itself, the innermost
    first, and all of them together, as if they were one loop."""
    around = tuple(loops)
    for loop in reversed(around):
        yield loop.var
    for first in range(len(around) - 2, -1, -1):
        yield together(around[first:])


def together(loops: tuple[For, ...]) -> Expr:
    """The number of the turn, counted over several loops: ``i * inner + j``."""
    total: Expr = _turn(loops[0])
    for loop in loops[1:]:
        total = binary("+", binary("*", total, _trips(loop)), _turn(loop))
    return total


def _turn(loop: For) -> Expr:
    step, start = constant(loop.step), constant(loop.start)
    turn: Expr = loop.var if start == 0 else binary("-", loop.var, loop.start)
    return turn if step == 1 else binary("//", turn, loop.step)


def _trips(loop: For) -> Expr:
    span = loop.stop if constant(loop.start) == 0 else binary("-", loop.stop, loop.start)
    return span if constant(loop.step) == 1 else binary("//", span, loop.step)


def parities(number: Expr, count: int) -> Iterator[Expr]:
    """The parity of use ``number`` of a ring of ``count``, and the other one."""
    use = number if count == 1 else binary("//", number, count)
    parity = binary("&", use, 1)
    yield parity
    yield binary("^", parity, 1)


def numerator(index: Expr) -> Expr | None:
    """``x`` of a slot ``x % n``."""
    match index:
        case Binary("%", number, Const()):
            return number
        case _:
            return None


def matched(loops: tuple[For, ...], others: tuple[For, ...]) -> dict[str, Expr]:
    """By name of a counter of ``loops``, the counter of the loop that stands for it among
    ``others``: as deep, from the inside."""
    pairs = zip(reversed(loops), reversed(others), strict=False)
    return {mine.var.name: other.var for mine, other in pairs}
