"""A kernel is wrong for one value of a parameter, which only the guard of an instruction tells.

What follows a run for all values has to ask of the guard itself: an instruction that it leaves out
evaluates nothing, and the registers that it would set keep what they hold.
"""

from __future__ import annotations

from typing import Any

import pytest

import tilesim as ts
from tests.ptx.test_check import ARRIVE, FIRST, INIT, WAIT, program
from tilesim.checker import Report
from tilesim.ir.mir import Mir
from tilesim.ptx.launch import Scalar

#: the value that is wrong, and one that is not asked for
BAD, NEVER = 61, 9999
Number = Any

#: the parameter in %r12, as something that is not computed before the kernel runs
START = (
    f"{INIT}mov.u32 %r8, 32; @%p0 mbarrier.init.shared::cta.b64 [%r1+8], %r8;\nbar.warp.sync -1;\n"
    "ld.param.u32 %r9, [n]; mov.u32 %r12, 1; @%p0 mov.u32 %r12, %r9;\n"
)
#: so many turns of a warp, of which nothing is wrong: what is followed
TURNS = (
    "mov.u32 %r10, 0;\nT: mbarrier.arrive.shared::cta.b64 _, [%r1+8]; and.b32 %r11, %r10, 1;\n"
    "M: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1+8], %r11;\n@!%p1 bra M;\n"
    "add.u32 %r10, %r10, 1; setp.lt.u32 %p4, %r10, %r9;\n@%p4 bra T;\n"
)
LAST = "and.pred %p5, %p5, %p0;\n" + ARRIVE.replace("%p0", "%p5")
#: what decides whether lane 0 arrives
GUARDS = {
    "an arrival": "setp.ne.u32 %p5, %r12, BAD;\n" + LAST,
    "a move": (
        "setp.eq.u32 %p3, %r12, BAD; mov.u32 %r14, 1; @%p3 mov.u32 %r14, 2;\n"
        "setp.eq.u32 %p5, %r14, 1;\n" + LAST
    ),
    "a move, from below": (
        "setp.lt.u32 %p3, %r12, BAD; mov.u32 %r14, 2; @%p3 mov.u32 %r14, 1;\n"
        "setp.gt.u32 %p3, %r12, BAD; @%p3 mov.u32 %r14, 1;\nsetp.eq.u32 %p5, %r14, 1;\n" + LAST
    ),
    "a store": (
        "mov.u32 %r14, 1; @%p0 st.shared.u32 [%r1+64], %r14; setp.eq.u32 %p3, %r12, BAD; "
        "and.pred %p3, %p3, %p0; mov.u32 %r14, 2;\n@%p3 st.shared.u32 [%r1+64], %r14;\n"
        "bar.warp.sync -1; ld.shared.u32 %r15, [%r1+64]; setp.eq.u32 %p5, %r15, 1;\n" + LAST
    ),
}


def claimed(guard: str) -> Report:
    """What is said of all numbers of turns of a kernel with a guard."""

    def build(n: Number) -> Mir:
        body = f"{START}{guard}{WAIT}{TURNS}"
        return program(body, params=(".param .u32 n",), values=(Scalar("n", "u32", n),))

    return ts.check(build, for_all={"n": "40..400"}, schedules=0)


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_that_a_value_turns(name: str) -> None:
    right = claimed(GUARDS[name].replace("BAD", str(NEVER)))
    assert right.for_all is not None
    assert right.for_all.proved, right.for_all
    wrong = claimed(GUARDS[name].replace("BAD", str(BAD)))
    assert wrong.verdict == "failed", wrong.for_all
    assert wrong.rules == {"deadlock"}
    assert wrong.covers.startswith(f"n = {BAD};")
    waits = FIRST + (START + GUARDS[name]).count("\n")
    assert {p.loc.line for p in wrong.findings[0].participants} == {waits}


@pytest.mark.parametrize("bad", [BAD, NEVER])
def test_a_guard_that_is_not_followed(bad: int) -> None:
    """Whether the square of a number is another one: nothing is said but of the values that ran."""
    found = claimed(
        f"mul.lo.u32 %r13, %r12, %r12; setp.eq.u32 %p3, %r13, {bad * bad}; mov.u32 %r14, 1; "
        f"@%p3 mov.u32 %r14, 2;\nsetp.eq.u32 %p5, %r14, 1;\n{LAST}"
    )
    assert found.for_all is not None
    assert not found.for_all.proved
