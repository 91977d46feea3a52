"""For which values a condition holds, against trying all of them."""

from __future__ import annotations

import random

import pytest

from tilesim.analysis.preimage import NoPreimage, Preimage, next_run
from tilesim.arith.operators import BINARY, UNARY
from tilesim.arith.types import DType, s8, s16, u8, u16
from tilesim.ir.arithmetic import Typing
from tilesim.ir.expr import Binary, BinaryOp, Const, Expr, Unary, Var, binary, unary

VALUE, OTHER = "value", Var("other", u8)
_JOINS: tuple[BinaryOp, ...] = ("and", "or")
_COMPARE: tuple[BinaryOp, ...] = ("<", "<=", ">", ">=", "==", "!=")


def evaluated(expr: Expr, registers: dict[str, int]) -> int:
    """The value of an expression whose operations leave no type."""
    match expr:
        case Const(value):
            return int(value)
        case Var(name):
            return registers[name]
        case Unary(op, operand):
            return int(UNARY[op](evaluated(operand, registers)))
        case Binary(op, lhs, rhs):
            return int(BINARY[op](evaluated(lhs, registers), evaluated(rhs, registers)))
        case _:
            raise TypeError(expr)


def conditions(rng: random.Random, var: Var) -> Expr:
    """A condition as loops have it that wait."""
    made: Expr = var
    for _ in range(rng.randrange(4)):
        operand: Expr = rng.choice([OTHER, Const(rng.choice([1, 2, 3, 64, 127, 128, 200]))])
        match rng.randrange(7):
            case 0:
                made = made + operand
            case 1:
                made = made - operand
            case 2:
                made = operand - made
            case 3:
                made = binary("&", made, rng.choice([128, 192, 255, 15, 65535]))
            case 4:
                made = binary("^", made, operand)
            case 5:
                made = binary("//", made, rng.choice([1, 3, 16]))
            case _:
                made = unary("-", made)
    last: Expr = rng.choice([OTHER, Const(rng.randrange(-3, 260))])
    cond = binary(rng.choice(_COMPARE), *rng.sample([made, last], 2))
    if not rng.randrange(4):
        cond = binary(rng.choice(_JOINS), cond, binary(rng.choice(_COMPARE), var, last))
    return unary("not", cond) if rng.randrange(2) else cond


@pytest.mark.parametrize("dtype", [u8, s8, u16, s16], ids=str)
def test_it_is_what_trying_all_values_says(dtype: DType) -> None:
    var, rng, compared = Var(VALUE, dtype), random.Random(1), 0
    size = 1 << min(dtype.bits, 9)
    low = 0 if dtype.kind == "uint" else -size // 2
    for _ in range(120):
        cond = conditions(rng, var)
        try:
            passing = Preimage(cond, var, Typing())
        except NoPreimage:
            continue
        other = rng.randrange(256)
        leaves = [evaluated(leaf, {"other": other}) for leaf in passing.leaves]
        spans = passing.spans(leaves)
        if not spans:
            continue  # or too many intervals: nothing is certified
        compared += 1
        for value in range(low, low + size):
            expected = bool(evaluated(cond, {VALUE: value, "other": other}))
            assert any(a <= value < b for a, b in spans) is expected, (str(cond), value, other)
        told = [evaluated(e, {"other": other}) for e in passing.decides]
        twin = next(
            (x for x in rng.sample(range(256), 256) if x != other
             and [evaluated(e, {"other": x}) for e in passing.decides] == told),
            other,
        )  # fmt: skip
        assert passing.spans([evaluated(e, {"other": twin}) for e in passing.leaves]) == spans
    assert compared > 40


def test_the_next_values_that_pass_come_again_and_again() -> None:
    upper = ((128, 256),)
    assert next_run(upper, 0, 256) == (128, 256)
    assert next_run(upper, 200, 256) == (200, 256)
    assert next_run(upper, 256, 256) == (384, 512)
    assert next_run(((0, 3), (250, 256)), 100, 256) == (250, 259)
    assert next_run((), 0, 256) is None
