"""What the operators of expressions do to numbers; ``//`` and ``%`` round as in Python."""

from __future__ import annotations

from collections.abc import Callable

Scalar = int | float | bool


def integer(value: Scalar) -> int:
    """A number as an integer; one that is an integer already is that very one."""
    return value if isinstance(value, int) and not isinstance(value, bool) else int(value)


UNARY: dict[str, Callable[[Scalar], Scalar]] = {
    "-": lambda a: -a,
    "~": lambda a: ~int(a),
    "not": lambda a: int(not a),
}
BINARY: dict[str, Callable[[Scalar, Scalar], Scalar]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "&": lambda a, b: int(a) & int(b),
    "|": lambda a, b: int(a) | int(b),
    "^": lambda a, b: int(a) ^ int(b),
    "<<": lambda a, b: int(a) << int(b),
    ">>": lambda a, b: int(a) >> int(b),
    "min": min,
    "max": max,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
}
#: what is folded, of integers that `integer` keeps
FOLDED: dict[str, Callable[[Scalar, Scalar], Scalar]] = BINARY | {
    "&": lambda a, b: integer(a) & integer(b),
    "|": lambda a, b: integer(a) | integer(b),
    "^": lambda a, b: integer(a) ^ integer(b),
    "<<": lambda a, b: integer(a) << integer(b),
    ">>": lambda a, b: integer(a) >> integer(b),
}
