"""What the operators of expressions do to numbers, and what NumPy calls that of arrays.

``//`` and ``%`` round as in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Scalar: TypeAlias = int | float | bool
_Binary: TypeAlias = Callable[[Scalar, Scalar], Scalar]


def integer(value: Scalar) -> int:
    """A number as an integer; one that is an integer already is that very one."""
    return value if isinstance(value, int) and not isinstance(value, bool) else int(value)


UNARY: dict[str, Callable[[Scalar], Scalar]] = {
    "-": lambda a: -a,
    "~": lambda a: ~int(a),
    "not": lambda a: int(not a),
}
#: by operator: of two numbers, and the name of NumPy's function
_ROWS: dict[str, tuple[_Binary, str]] = {
    "+": (lambda a, b: a + b, "add"),
    "-": (lambda a, b: a - b, "subtract"),
    "*": (lambda a, b: a * b, "multiply"),
    "//": (lambda a, b: a // b, "floor_divide"),
    "%": (lambda a, b: a % b, "mod"),
    "&": (lambda a, b: int(a) & int(b), "bitwise_and"),
    "|": (lambda a, b: int(a) | int(b), "bitwise_or"),
    "^": (lambda a, b: int(a) ^ int(b), "bitwise_xor"),
    "<<": (lambda a, b: int(a) << int(b), "left_shift"),
    ">>": (lambda a, b: int(a) >> int(b), "right_shift"),
    "min": (min, "minimum"),
    "max": (max, "maximum"),
    "==": (lambda a, b: int(a == b), "equal"),
    "!=": (lambda a, b: int(a != b), "not_equal"),
    "<": (lambda a, b: int(a < b), "less"),
    "<=": (lambda a, b: int(a <= b), "less_equal"),
    ">": (lambda a, b: int(a > b), "greater"),
    ">=": (lambda a, b: int(a >= b), "greater_equal"),
    "and": (lambda a, b: int(bool(a) and bool(b)), "logical_and"),
    "or": (lambda a, b: int(bool(a) or bool(b)), "logical_or"),
}
BINARY: dict[str, _Binary] = {symbol: number for symbol, (number, _) in _ROWS.items()}
NUMPY_NAMES: dict[str, str] = {symbol: name for symbol, (_, name) in _ROWS.items()}
#: what is folded, of integers that `integer` keeps
FOLDED: dict[str, _Binary] = BINARY | {
    "&": lambda a, b: integer(a) & integer(b),
    "|": lambda a, b: integer(a) | integer(b),
    "^": lambda a, b: integer(a) ^ integer(b),
    "<<": lambda a, b: integer(a) << integer(b),
    ">>": lambda a, b: integer(a) >> integer(b),
}
#: by operator that compares two numbers: the one that says the opposite, and that of both swapped
NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
RELATIONS = frozenset(NEGATED)
#: operators whose result is a truth value
COMPARE = RELATIONS | {"and", "or"}
