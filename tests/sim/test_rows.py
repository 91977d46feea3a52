"""Assignments in a row, made together: the same as one after the other, whatever registers hold."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilesim.arith.types import DType, pred, s32, s64, u16, u32, u64
from tilesim.ir.arithmetic import Typing, integer_limits
from tilesim.ir.expr import (
    Base,
    Binary,
    BinaryOp,
    Const,
    DeclaredSpace,
    Expr,
    Select,
    Unary,
    UnaryOp,
    Var,
)
from tilesim.ir.ops.scalar import Assign
from tilesim.limits import patient
from tilesim.sim.machine import assignment_jit
from tilesim.sim.machine.assignment_jit import Assignment, Row, one_by_one, stretches
from tilesim.sim.machine.errors import UnassignedVariable
from tilesim.sim.machine.expression import assign, compile_expr, fit_register, merged
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.unknown import Unknown

TYPES = (pred, u16, u32, u64, s32, s64)
UNARY: tuple[UnaryOp, ...] = ("-", "~", "not")
SHIFTS: tuple[BinaryOp, ...] = ("<<", ">>")
SPACES: tuple[DeclaredSpace, ...] = ("shared", "global")
BINARY: tuple[BinaryOp, ...] = (
    "+", "-", "*", "&", "|", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or",
)  # fmt: skip


def expression(rng: random.Random, registers: list[Var], depth: int = 2) -> Expr:
    def inner() -> Expr:
        return expression(rng, registers, depth - 1)

    if not depth or rng.random() < 0.2:
        return rng.choice((rng.choice(registers), Const(rng.choice((0, 1, 7, -3, 2**31, 2**40)))))
    match rng.randrange(6):
        case 0:
            return Unary(rng.choice(UNARY), inner())
        case 1:
            return Select(inner(), inner(), inner())
        case 2:
            return Binary(rng.choice(SHIFTS), inner(), Const(rng.randrange(33)))
        case 3:
            return Binary("+", Base("x", rng.choice(SPACES)), inner())
        case _:
            return Binary(rng.choice(BINARY), inner(), inner())


def held(rng: random.Random, dtype: DType) -> int:
    low, high = integer_limits(dtype)
    return rng.choice((low, high, 0, 1, rng.randint(low, high)))


def warp(registers: list[Any], mask: int = FULL) -> Any:
    plan = SimpleNamespace(bases={"x": 4096})
    machine = SimpleNamespace(plan=plan, split_groups=[])
    cta = SimpleNamespace(rank=3)
    return SimpleNamespace(
        registers=list(registers), mask=mask, pc=1, executed=0, machine=machine, cta=cta
    )


def made(row: list[Assignment], slots: dict[str, int]) -> Row:
    typing = Typing()

    def alone(var: Var, value: Expr) -> Any:
        evaluate, fit = compile_expr(value, slots, typing), fit_register(var.dtype, value, typing)

        def step(w: Any) -> None:
            found = evaluate(w)
            assign(w, slots[var.name], found if fit is None else fit(found))

        return step, True

    return Row(row, [alone(*one) for one in row], slots, typing, assign)


@pytest.mark.parametrize("seed", range(60))
def test_a_row_does_what_its_instructions_do(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignment_jit, "_OFTEN", 1)
    rng = random.Random(seed)
    registers = [Var(f"r{n}", rng.choice(TYPES)) for n in range(5)]
    slots = {var.name: number for number, var in enumerate(registers)}
    row: list[Assignment] = []
    while len(row) < 4:
        value = expression(rng, registers)
        op = Assign(var=rng.choice(registers), value=value)
        found = assignment_jit.assignment(op, Typing())
        row += [] if found is None else [found]
    together = made(row, slots)
    values: list[Any] = [held(rng, var.dtype) for var in registers]
    together.step(warp(values))  # from now on it is one function
    for mask in (FULL, 1):
        for strange in (None, np.arange(32), Unknown("a test")):
            start = [v if strange is None or n else strange for n, v in enumerate(values)]
            one, other = warp(start, mask), warp(start, mask)
            together.step(one)
            one_by_one(other, together._alone)
            assert (one.pc, one.executed) == (other.pc, other.executed) == (4, 3)
            for a, b in zip(one.registers, other.registers, strict=True):
                told = type(b) is not Unknown or mask == FULL  # of lanes that are not active
                assert not told or a is b or np.array_equal(a, b), (row, start)
                assert mask != FULL or type(a) is type(b)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("form", ["left", "right", "then", "cond", "unary"])
def test_a_deep_expression_is_no_text_of_python(
    dtype: DType, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes 200 parentheses in each other."""
    monkeypatch.setattr(assignment_jit, "_OFTEN", 1)
    x, far = Var("x", dtype), Var("far", u64)
    grow: dict[str, Callable[[Expr], Expr]] = {
        "left": lambda e: Binary("*", e, far),
        "right": lambda e: Binary("-", far, e),
        "then": lambda e: Select(far, e, Const(7)),
        "cond": lambda e: Select(e, far, x),
        "unary": lambda e: Unary("-", e),
    }
    value: Expr = x
    for _ in range(assignment_jit.DEEPEST - 1):
        value = grow[form](value)
    found = assignment_jit.assignment(Assign(var=x, value=value), Typing())
    assert found is not None
    row = made([found, found], {"x": 0, "far": 1})
    row.step(warp([1, 2**63 + 5]))  # from now on it is one function
    one, other = warp([1, 2**63 + 5]), warp([1, 2**63 + 5])
    row.step(one)
    one_by_one(other, row._alone)
    assert one.registers == other.registers
    assert assignment_jit.assignment(Assign(var=x, value=grow[form](value)), Typing()) is None


def test_rows_are_of_neighbours() -> None:
    assert [*stretches([0, 1, 3, 5, 6, 7])] == [(0, 1), (5, 6, 7)]
    assert [len(row) for row in stretches(range(100))] == [
        assignment_jit.LONGEST,
        100 - assignment_jit.LONGEST,
    ]


def test_a_register_that_nothing_was_assigned_to_is_found_in_a_row() -> None:
    x, y = Var("x", s32), Var("y", s32)
    row = made([(x, Binary("+", x, Const(1))), (y, Binary("+", y, x))], {"x": 0, "y": 1})
    with pytest.raises(UnassignedVariable, match="y"):
        row.step(warp([0, None]))


@pytest.fixture
def thresholds() -> Iterator[None]:
    """Whatever the process looks for garbage by, which other tests and tools change."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
def test_garbage_is_looked_for_as_before_when_a_check_is_over() -> None:
    gc.set_threshold(700, 10, 5)
    with patient():
        assert gc.get_threshold()[0] > 700
        with patient():
            pass
        assert gc.get_threshold()[0] > 700
    assert gc.get_threshold() == (700, 10, 5)


@pytest.mark.usefixtures("thresholds")
def test_checks_that_overlap_leave_nothing_behind() -> None:
    """Two threads: the first one ends while the second one is at it."""
    gc.set_threshold(700, 10, 5)
    first, second = patient(), patient()
    with first:
        second.__enter__()
    assert gc.get_threshold()[0] > 700
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 10, 5)


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize("young", [0, 2_000_000])
def test_who_looks_for_garbage_never_or_more_seldom_still_is_left_alone(young: int) -> None:
    gc.set_threshold(young, 10, 10)
    with patient():
        assert gc.get_threshold() == (young, 10, 10)
    assert gc.get_threshold() == (young, 10, 10)


def test_lanes_that_hold_great_numbers_keep_them_beside_others() -> None:
    """A u64 beyond 2^63 in some lanes is no negative number."""
    found = merged(np.arange(32) < 2, (1 << 64) - 4, 8)
    assert found[0] == (1 << 64) - 4
    assert found[2] == 8
    evaluate = compile_expr(Binary("<", Var("x", u64), Const(16)), {"x": 0}, Typing())
    assert evaluate(warp([found])).tolist() == [0, 0, *[1] * 30]
