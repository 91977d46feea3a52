"""Expressions over a loop counter, and the values they must have."""

from __future__ import annotations

from tilesim.export.values import Evaluator, Known, Runtime, Value, everywhere
from tilesim.ir.expr import Expr, Var, maximum, minimum, select

i = Var("i")
LOW, HIGH = 0, 12
COUNTER = Runtime("v_i", (LOW, HIGH))

EXPRESSIONS: tuple[Expr, ...] = (
    i + 3, 3 - i, i * i, i // 3, i % 3, (i - 9) // 4, (i - 9) % 4, -i // 2, i & 6, i ^ 5, i | 8,
    ~i, i << 2, (i - 9) >> 1, minimum(i, 4), maximum(3 - i, i), select(i > 4, i, 4 - i),
    i.eq(3), (i > 2) & (i < 5), -(i - 4) % 8, i - (-3), (i % 4 - 2) * -3,
)  # fmt: skip


def evaluated(expr: Expr, value: Value) -> Value:
    """``expr`` where the counter is ``value``."""
    return Evaluator(0, {}, lambda var, mask: value)(expr, 1)


def run_time(expr: Expr) -> Runtime:
    """``expr`` as a Promela expression."""
    value = evaluated(expr, COUNTER)
    assert isinstance(value, Runtime)
    return value


def values(expr: Expr) -> dict[int, int]:
    """``expr`` for every value of the counter, as Python computes it."""
    result = {}
    for number in range(LOW, HIGH + 1):
        value = evaluated(expr, everywhere(number))
        assert isinstance(value, Known)
        assert value.lanes[0] is not None
        result[number] = value.lanes[0]
    return result
