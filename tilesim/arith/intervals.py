"""What the operators of expressions do to intervals of integers, both ends included."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Interval: TypeAlias = tuple[int, int]

#: what is left of the range from ``a`` to ``b`` where a number in it is so to ``c``
BOUNDS: dict[str, Callable[[int, int, int], Interval]] = {
    "==": lambda a, b, c: (max(a, c), min(b, c)),
    "!=": lambda a, b, c: (a + (a == c), b - (b == c)),
    "<": lambda a, b, c: (a, min(b, c - 1)),
    "<=": lambda a, b, c: (a, min(b, c)),
    ">": lambda a, b, c: (max(a, c + 1), b),
    ">=": lambda a, b, c: (max(a, c), b),
}


def _product(a: Interval, b: Interval) -> Interval:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _quotient(a: Interval, b: Interval) -> Interval | None:
    if b[0] <= 0 <= b[1]:
        return None
    ends = [x // y for x in a for y in b]
    return min(ends), max(ends)


def _remainder(a: Interval, b: Interval) -> Interval | None:
    if b[0] <= 0:
        return None
    return (a[0], a[1]) if a[0] >= 0 and a[1] < b[0] else (0, b[1] - 1)


def _and(a: Interval, b: Interval) -> Interval | None:
    tops = [high for low, high in (a, b) if low >= 0]
    return (0, min(tops)) if tops else None


def _or(a: Interval, b: Interval) -> Interval | None:
    if a[0] < 0 or b[0] < 0:
        return None
    return 0, (1 << max(a[1], b[1]).bit_length()) - 1


def _shift_left(a: Interval, b: Interval) -> Interval | None:
    return _product(a, (1 << b[0], 1 << b[1])) if b[0] >= 0 and b[1] < 64 else None


def _shift_right(a: Interval, b: Interval) -> Interval | None:
    if not 0 <= b[0] <= b[1] < 64:
        return None
    ends = [x >> y for x in a for y in b]
    return min(ends), max(ends)


#: bounds of ``a op b`` of those of a and b; None where they are of no use
INTERVALS: dict[str, Callable[[Interval, Interval], Interval | None]] = {
    "+": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "-": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "*": _product,
    "//": _quotient,
    "%": _remainder,
    "&": _and,
    "|": _or,
    "^": _or,
    "<<": _shift_left,
    ">>": _shift_right,
    "min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}
