"""Expressions of MIR for arithmetic of PTX give what PTX gives, for one number and for 32 lanes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilesim.arith import types
from tilesim.arith.opcodes import operation
from tilesim.ir.arithmetic import Typing
from tilesim.ir.expr import Const, Expr, Var
from tilesim.ptx.expressions import expressions
from tilesim.sim.machine.expression import compile_expr, fit_register
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.unknown import plain

TYPES = {1: types.pred, 8: types.u8, 16: types.u16, 32: types.u32, 64: types.u64}
OPCODES = (
    "add.s32", "add.u16", "add.s64", "sub.s32", "sub.u16", "sub.s64", "and.b32", "and.b64",
    "or.b16", "xor.b32", "not.b32", "not.b16", "not.pred", "and.pred", "shl.b32", "shl.b16",
    "shr.u32", "shr.s32", "shr.s16", "mul.lo.s32", "mul.lo.u16", "mul.wide.s32", "mul.wide.u32",
    "mul.wide.s16", "mul.wide.u16", "mad.lo.s32", "mad.wide.u32", "mad.wide.s32", "selp.b32",
    "setp.lt.s32", "setp.lt.u32", "setp.ge.s16", "setp.eq.s64", "setp.gt.and.s32",
    "setp.ne.or.b32", "min.s32", "min.u32", "max.s16", "cvt.s64.s32", "cvt.u64.u32",
    "cvt.u32.u64", "cvt.s32.s8", "cvt.u16.u32", "mov.b32", "add.u64", "or.b64", "xor.b64",
    "not.b64", "mul.lo.u64", "mul.lo.s64", "mad.lo.u64", "selp.b64", "setp.ne.u64", "cvt.s32.s64",
    "cvt.u16.s64", "cvt.s64.s16", "mov.b64", "mul24.lo.u32", "mul24.lo.s32",
    "mad24.lo.u32", "mad24.lo.s32",
)  # fmt: skip
EDGES = st.sampled_from([0, 1, 31, 32, 33, 0x7FFF, 0x8000, 0xFFFF, 1 << 31, (1 << 31) - 1,
                         (1 << 32) - 1, (1 << 32) - 16, (1 << 62) + 5, (1 << 63) - 1, 1 << 63,
                         (1 << 63) + 1, (1 << 64) - 16, (1 << 64) - 1])  # fmt: skip
NUMBERS = st.one_of(EDGES, st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 62) - 1))


def held(column: list[int]) -> Any:
    """Numbers as registers hold them."""
    return np.array(column, dtype=np.int64 if max(column) < 1 << 63 else object)


def value_of(expr: Expr, registers: list[Any], names: dict[str, int], width: int) -> Any:
    typing = Typing()
    warp = cast(Any, SimpleNamespace(registers=registers, mask=FULL))
    value = plain(compile_expr(expr, names, typing)(warp))
    fit = fit_register(TYPES[width], expr, typing)
    return value if fit is None else plain(fit(value))


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(OPCODES), st.lists(NUMBERS, min_size=96, max_size=96), st.booleans())
@example("mul.wide.u32", [(1 << 32) - 1] * 96, True)
def test_an_expression_gives_what_the_operation_gives(
    opcode: str, numbers: list[int], lanes: bool
) -> None:
    found = operation(opcode)
    assert found is not None
    variables = tuple(Var(f"r{i}", TYPES[w]) for i, w in enumerate(found.sources))
    exprs = expressions(found, variables)
    assert exprs is not None
    names = {v.name: i for i, v in enumerate(variables)}
    columns = [
        [n & (1 << w) - 1 for n in numbers[32 * i : 32 * i + 32]]
        for i, w in enumerate(found.sources)
    ]
    registers: list[Any] = [held(c) if lanes else c[0] for c in columns]
    for place, expr in enumerate(exprs):
        width = found.results[place]
        got = value_of(expr, registers, names, width)
        rows = list(zip(*columns, strict=True))[: 32 if lanes else 1]
        for lane, row in enumerate(rows):
            assert int(got if np.ndim(got) == 0 else got[lane]) == found(*row)[place]


@pytest.mark.parametrize(
    ("opcode", "constants"),
    [
        ("bfe.u32", (4, 14)), ("bfe.u32", (0, 8)), ("shl.b64", (4,)), ("shl.b32", (40,)),
        ("add.s64", ((1 << 64) - 16,)), ("and.b64", ((1 << 64) - 16,)), ("div.u32", (7,)),
        ("rem.u32", (7,)), ("add.s32", ((1 << 32) - 16,)), ("and.b32", ((1 << 32) - 16,)),
        ("or.b64", ((1 << 64) - 16,)), ("or.b64", (0x8000_4000_0001_0000,)), ("shr.u64", (4,)),
        ("shr.u64", (1,)), ("shr.u64", (63,)), ("shr.b64", (32,)),
        ("shl.b64", (63,)), ("div.u64", (7,)), ("rem.u64", (7,)), ("mul.lo.u64", (1 << 62,)),
        ("mul24.lo.s32", ((1 << 24) - 3,)), ("mul24.lo.u32", ((1 << 25) + 3,)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("lanes", [False, True])
def test_constants(opcode: str, constants: tuple[int, ...], lanes: bool) -> None:
    found = operation(opcode)
    assert found is not None
    register = Var("r0", TYPES[found.sources[0]])
    exprs = expressions(found, (register, *map(Const, constants)))
    assert exprs is not None
    numbers = [64, 77, 1 << 20, (1 << 31) + 5, (1 << 32) - 1] * 6 + [99, 100]
    if found.sources[0] == 64:
        numbers[-2:] = [(1 << 63) + 99, (1 << 64) - 1]
    value: Any = held(numbers) if lanes else numbers[1]
    got = value_of(exprs[0], [value], {"r0": 0}, found.results[0])
    for lane, number in enumerate(numbers if lanes else numbers[1:2]):
        assert int(got[lane] if lanes else got) == found(number, *constants)[0]
