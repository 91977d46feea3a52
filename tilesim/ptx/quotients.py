"""Quotients that compilers compute by a product with a constant.

    mul.wide.u32 a, x, 0xAAAAAAAB; shr.u64 b, a, 33          ->    x // 3

A ring of three stages divides by 3 in every turn. Of a quotient it is known how it changes when
the dividend does, and that of a remainder nothing changes after so many turns.
"""

from __future__ import annotations

from tilesim.ir.arithmetic import Typing
from tilesim.ir.expr import Binary, Const, Expr, binary, constant

_ALL_BITS = (1 << 64) - 1
_NO_SIGN = (1 << 63) - 1


def as_quotient(expr: Expr, typing: Typing) -> Expr:
    """The quotient that ``expr`` is, of the same type; ``expr`` if it is not known to be one."""
    count, product = 0, expr
    while isinstance(product, Binary) and product.op == ">>":
        by = constant(product.rhs)
        if by is None or not 0 <= by < 64:
            return expr
        count, product = count + by, product.lhs
    match product:
        case Binary("&", Binary("*", x, Const(int() as factor)) as inner, Const(kept)) if (
            count and kept == _ALL_BITS
        ):
            most = _ALL_BITS
        case Binary("*", x, Const(int() as factor)) as inner if count and not typing.wraps(inner):
            most = _NO_SIGN
        case _:
            return expr
    known = typing.interval(x)
    if factor <= 0 or known is None or known[0] < 0 or known[1] * factor > most:
        return expr
    divisor = -(-(1 << count) // factor)
    # x factor / 2^count = (x + x excess / 2^count) / divisor: no further than the next integer
    excess = divisor * factor - (1 << count)
    if divisor < 2 or known[1] * excess >= 1 << count:
        return expr
    found = binary("//", x, divisor)
    if typing.type_of(found) != typing.type_of(expr):
        found = binary("&", found, _ALL_BITS)
    return found if typing.type_of(found) == typing.type_of(expr) else expr
