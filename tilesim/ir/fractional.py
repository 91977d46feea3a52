"""Numbers with digits behind the point where integers are meant."""

from __future__ import annotations

from tilesim.arith.operators import COMPARE
from tilesim.ir.expr import Binary, Const, Expr, ScalarParam, Var


def fraction(expr: Expr) -> Const | None:
    """A number with digits behind the point in an expression whose other values are integers."""
    found: list[Const] = []
    todo, seen = [expr], {id(expr)}
    while todo:
        one = todo.pop()
        if isinstance(one, Const):
            found += [one] if isinstance(one.value, float) and one.value % 1 else []
        elif isinstance(one, Var | ScalarParam) and one.dtype.kind == "float":
            return None
        elif not (isinstance(one, Binary) and one.op in COMPARE):
            parts = [part for part in vars(one).values() if isinstance(part, Expr)]
            todo += [part for part in parts if id(part) not in seen]
            seen.update(map(id, parts))  # one that is shared is not of a reasonable size yet
    return found[0] if found else None
