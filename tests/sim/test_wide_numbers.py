"""64-bit arithmetic on lanes at once gives what it gives lane by lane with integers of Python."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilesim import Builder, Program, check, u32, u64
from tilesim.arith import types
from tilesim.arith.operators import BINARY
from tilesim.ir.arithmetic import LIMITS, Typing, binary_type, variable_type, wrap
from tilesim.ir.expr import Binary, BinaryOp, Const, Expr, Select, Var
from tilesim.sim.machine.expression import compile_expr, fit_register
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.unknown import plain

OPERATORS: tuple[BinaryOp, ...] = (
    "+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "min", "max", "==", "!=", "<", "<=", ">",
    ">=", "and", "or",
)  # fmt: skip
KINDS = (types.u64, types.s64, types.u32, types.s32)
EDGES = (0, 1, 2, 63, 64, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 62) + 1,
         (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 2, (1 << 64) - 1)  # fmt: skip
#: lanes of an array
COUNT = 32
NUMBERS = st.one_of(st.sampled_from(EDGES), st.integers(0, (1 << 64) - 1))
LANES = st.lists(NUMBERS, min_size=COUNT, max_size=COUNT)


def held(column: list[int]) -> Any:
    """Numbers as registers hold them."""
    return np.array(column, dtype=np.int64 if max(column) < 1 << 63 else object)


def evaluated(expr: Expr, registers: list[Any]) -> Any:
    warp = cast(Any, SimpleNamespace(registers=registers, mask=FULL))
    return plain(compile_expr(expr, {"a": 0, "b": 1, "c": 2}, Typing())(warp))


def at(value: Any, lane: int) -> Any:
    return value if np.ndim(value) == 0 else value[lane]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(OPERATORS), st.sampled_from(KINDS), st.sampled_from(KINDS), LANES, LANES,
       st.booleans())  # fmt: skip
@example("*", types.u64, types.u64, [(1 << 63) + 1] * COUNT, [3] * COUNT, True)
@example("^", types.u64, types.u64, list(range(COUNT)), [1 << 63] * COUNT, True)
@example("-", types.u64, types.u64, list(range(COUNT)), [1 << 63] * COUNT, True)
def test_lanes_and_numbers(
    op: BinaryOp, left: types.DType, right: types.DType, a: list[int], b: list[int], literal: bool
) -> None:
    kinds = variable_type(left), variable_type(right)
    x, y = ([wrap(n, kind) for n in c] for kind, c in zip(kinds, (a, b), strict=True))
    if literal:
        y = y[:1] * COUNT
    if op in ("//", "%"):
        y = [n or 1 for n in y]
    rhs: Expr = Const(y[0]) if literal else Var("b", right)
    expr = Binary(op, Var("a", left), rhs)
    got = evaluated(expr, [held(x), held(y)])
    kind = Typing().type_of(expr)
    for lane in range(COUNT):
        alone = evaluated(expr, [x[lane], y[lane]])
        assert at(got, lane) == alone, (x[lane], y[lane])
        assert LIMITS[kind][0] <= alone <= LIMITS[kind][1]
        if kind == binary_type(op, *kinds) == "u64" and op not in ("<<", ">>"):
            operands = wrap(x[lane], "u64"), wrap(y[lane], "u64")
            assert alone == wrap(int(BINARY[op](*operands)), "u64")


@settings(max_examples=40, deadline=None)
@given(st.sampled_from((*KINDS, types.u8, types.pred)), st.sampled_from(KINDS),
       st.sampled_from(KINDS), LANES, LANES, LANES)  # fmt: skip
def test_a_choice_and_the_register_that_takes_it(
    into: types.DType, left: types.DType, right: types.DType, a: list[int], b: list[int],
    c: list[int],
) -> None:  # fmt: skip
    x, y = ([wrap(n, variable_type(k)) for n in v] for k, v in ((left, a), (right, b)))
    z = [n & 1 for n in c]
    expr = Select(Var("c", types.pred), Var("a", left), Var("b", right))
    fit = fit_register(into, expr, Typing())

    def written(registers: list[Any]) -> Any:
        value = evaluated(expr, registers)
        return value if fit is None else plain(fit(value))

    got = written([held(x), held(y), held(z)])
    for lane in range(COUNT):
        assert at(got, lane) == written([x[lane], y[lane], z[lane]])


# Elements that registers of 64 bits name.


def stores(first: int, *, lanes: bool, shared: bool) -> Program:
    """Each lane stores to an element from ``first`` on, or all to this one."""
    k = Builder("stores", warps=1)
    x = k.shared("x", u32, (32,)) if shared else k.tensor("x", u32, (32,))
    index = k.var("index", first, dtype=u64)
    if lanes:
        k.mem.store(x[index + k.lane_id], 1)
    else:
        with k.elected():
            k.mem.store(x[index], 1)
    return k.finish()


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("lanes", [True, False])
@pytest.mark.parametrize("first", [1 << 63, (1 << 64) - 32, (1 << 64) - 1])
def test_an_index_beyond_a_tensor_is_found_however_large(
    first: int, *, lanes: bool, shared: bool
) -> None:
    assert check(stores(first, lanes=lanes, shared=shared)).rules == {"out-of-bounds"}
    assert check(stores(0, lanes=lanes, shared=shared)).verdict == "proved"
