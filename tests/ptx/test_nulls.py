"""What a kernel does with a pointer that the launch leaves null."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, program, report
from tilesim.checker import Report
from tilesim.ir.mir import Branch
from tilesim.ptx.launch import Field, Pointer, Scalar, Struct

#: loads a pointer out of a struct, then through it, if it is not null
BODY = """ld.param.u64 %rd1, [s+8]; mov.u32 %r1, 0; {test}
{guard} bra OUT;
ld.u64 %rd2, [%rd1]; ld.u32 %r1, [%rd2];
OUT: mov.u32 %r2, smem; mov.u32 %r3, %tid.x; mad.lo.u32 %r2, %r3, 4, %r2; st.shared.u32 [%r2], %r1;
"""
NULL = "setp.eq.s64 %p1, %rd1, 0;"
SET = "setp.ne.s64 %p1, %rd1, 0;"


def run(test: str, guard: str, *, given: bool = False) -> Report:
    fields = (Field(8, Pointer("a", 64)),) if given else ()
    params = (".param .align 8 .b8 s[16]",)
    body = BODY.format(test=test, guard=guard)
    return report(body, params=params, values=(Struct("s", 16, fields, bytes(16)),))


@pytest.mark.parametrize(("test", "guard"), [(NULL, "@%p1"), (SET, "@!%p1")])
def test_nothing_goes_through_a_pointer_that_is_asked_for(test: str, guard: str) -> None:
    assert run(test, guard).verdict == "proved"


@pytest.mark.parametrize(("test", "guard"), [(NULL, "@!%p1"), (SET, "@%p1")])
def test_the_question_the_wrong_way_round(test: str, guard: str) -> None:
    found = run(test, guard)
    assert found.verdict == "failed"
    assert found.rules == {"out-of-bounds"}
    assert lines(found) == [2]


def test_what_lies_behind_a_pointer_that_is_given_is_not_known() -> None:
    """The pointer that is loaded there leads nowhere that is declared."""
    found = run(NULL, "@%p1", given=True)
    assert found.verdict == "bounded"
    assert "not known" in found.reasons[0]


def test_a_number_that_is_not_null_is_asked() -> None:
    """Another launch may give another one: it is a number that ``--for-all`` takes."""
    body = (
        "ld.param.u64 %rd1, [n]; setp.eq.s64 %p1, %rd1, {than};\n"
        "@%p1 bra OUT;\nbar.sync 0;\nOUT: bar.sync 0;"
    )

    def branches(value: int, than: int) -> int:
        number = Scalar("n", "u64", value)
        mir = program(body.format(than=than), params=(".param .u64 n",), values=(number,))
        return sum(isinstance(i.what, Branch) and i.what.cond is not None for i in mir.code)

    assert branches(7, 7) == branches(7, 0) == 1
    assert branches(0, 0) == 0
