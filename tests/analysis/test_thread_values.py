"""What registers hold in each thread, and the instructions that so no thread executes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.ptx.test_check import program
from tilesim.analysis.cfg import graph_of
from tilesim.analysis.executing_warps import never
from tilesim.analysis.thread_values import Threads
from tilesim.ir.expr import Const, ScalarParam, Special
from tilesim.ptx.launch import Pointer
from tilesim.sim.affine.free_parameter import UNBOUNDED, Free, Scope

#: %r1 is the thread, %p7 is not known
START = """ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; ld.global.u32 %r4, [%rd1];
setp.gt.u32 %p7, %r4, 9;
"""
#: predicates that hold in all threads of two warps, and their twins that may not
TWINS = {
    "all": ("setp.lt.u32 %p8, %r1, 64;", "setp.lt.u32 %p8, %r1, 63;"),
    "or": (
        "setp.lt.u32 %p1, %r1, 64; or.pred %p8, %p1, %p7;",
        "setp.lt.u32 %p1, %r1, 63; or.pred %p8, %p1, %p7;",
    ),
    "and": (
        "setp.gt.u32 %p1, %r1, 63; and.pred %p2, %p1, %p7; not.pred %p8, %p2;",
        "setp.gt.u32 %p1, %r1, 62; and.pred %p2, %p1, %p7; not.pred %p8, %p2;",
    ),
    "select": (
        "setp.gt.u32 %p1, %r1, 7; selp.u32 %r6, %r1, 8, %p1; setp.gt.u32 %p8, %r6, 7;",
        "setp.gt.u32 %p1, %r1, 7; selp.u32 %r6, %r1, 7, %p1; setp.gt.u32 %p8, %r6, 7;",
    ),
    "a register that holds something else later": (
        "mov.u32 %r6, 8; setp.eq.u32 %p8, %r6, 8; mov.u32 %r6, %r4; setp.eq.u32 %p7, %r6, 8;",
        "mov.u32 %r6, %r4; setp.eq.u32 %p8, %r6, 8; mov.u32 %r6, 8; setp.eq.u32 %p7, %r6, 8;",
    ),
    "turns": (
        "mov.u32 %r6, 8;\nL: setp.gt.u32 %p8, %r6, 7; mov.u32 %r6, 8;\n@%p7 bra L;",
        "mov.u32 %r6, 8;\nL: setp.gt.u32 %p8, %r6, 7; sub.u32 %r6, %r6, 1;\n@%p7 bra L;",
    ),
    "numbers that wrap": (
        "sub.u32 %r6, %r1, 64; setp.gt.u32 %p8, %r6, 64;",
        "sub.u32 %r6, %r1, 63; setp.gt.u32 %p8, %r6, 64;",
    ),
    "in all lanes": (
        "mov.u32 %r6, 8; setp.eq.u32 %p8, %r6, 8;",
        "@%p7 mov.u32 %r6, 8; setp.eq.u32 %p8, %r6, 8;",
    ),
    "one number": (
        "mov.u32 %r6, 8;\n@%p7 bra L;\nmov.u32 %r6, 8;\nL: setp.eq.u32 %p8, %r6, 8;",
        "mov.u32 %r6, 8;\n@%p7 bra L;\nmov.u32 %r6, 7;\nL: setp.eq.u32 %p8, %r6, 8;",
    ),
}


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("guard", [True, False])
def test_an_instruction_that_no_thread_executes(name: str, guard: bool) -> None:
    store = "st.global.u32 [%rd1+64], %r1;\n"
    way = f"@!%p8 {store}" if guard else f"@%p8 bra END;\n{store}END:"
    values, params = (Pointer("x", 1 << 16),), (".param .u64 x",)
    for text, expected in zip(TWINS[name], (True, False), strict=True):
        mir = program(f"{START}{text}\n{way}", warps=2, params=params, values=values)
        (number,) = (op.number for op in mir.ops() if op.mnemonic.startswith("st"))
        assert (number in never(mir)) is expected


@pytest.mark.parametrize("free", [False, True])
def test_a_parameter_that_may_have_any_value_is_not_known(free: bool) -> None:
    """Nor is it asked for anything that holds for some of its values only."""
    scope = Scope("n")
    number = Free(4, Fraction(1), scope) if free else 4
    values, params = (Pointer("x", 1 << 16),), (".param .u64 x",)
    mir = program(START, warps=2, params=params, values=values)
    mir = replace(mir, kernel=replace(mir.kernel, grid=(number, 1, 1)))
    threads = Threads(graph_of(mir), launch=True)
    for expr in (Const(number), ScalarParam("n", number), Special("grid_x")):
        assert threads.value(expr, 0) == (None if free else 4)
    assert (scope.last, scope.modulus) == (UNBOUNDED, 1)
