"""Integer instructions of PTX: the kernel knows what they compute, where it decides a branch."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import program
from tilesim.proof.check import certify
from tilesim.ptx.plain import plain

#: computes a number in %r5, of 37 in %r3, -5 in %r4; and the number
COMPUTED = {
    "div.u32 %r5, %r3, 5;": 7,
    "div.s32 %r5, %r3, %r4;": -7,
    "rem.s32 %r5, %r4, 3;": -2,
    "rem.u32 %r5, %r3, 5;": 2,
    "neg.s32 %r5, %r4;": 5,
    "popc.b32 %r5, %r3;": 3,
    "bfe.s32 %r5, %r4, 0, 2;": -1,
    "setp.gt.u64 %p1, %rd1, %rd2; selp.b32 %r5, 3, 4, %p1;": 3,
}


def answer(computes: str, number: int) -> str:
    """Of a program that ends in a trap if the number is another one."""
    start = "mov.u32 %r3, 37; mov.u32 %r4, -5; cvt.s64.s32 %rd1, %r4; cvt.u64.u32 %rd2, %r3;\n"
    ends = f"setp.eq.s32 %p2, %r5, {number};\n@%p2 bra D;\ntrap;\nD: bar.warp.sync -1;"
    return str(certify(program(f"{start}{computes}\n{ends}", by=plain)))


@pytest.mark.parametrize(("computes", "number"), COMPUTED.items())
def test_what_is_computed_is_known(computes: str, number: int) -> None:
    assert answer(computes, number) == "certified"
    assert answer(computes, number + 1).startswith("refuted: trap")


def test_what_is_computed_of_data_is_not() -> None:
    data = "mul.f32 %f1, %f2, %f3; mov.b32 %r6, %f1; div.u32 %r5, %r6, 5;"
    assert answer(data, 7).startswith("not covered: data decides the branch")


@pytest.mark.parametrize("base", ["div", "rem"])
def test_what_is_divided_by_0_is_not_known(base: str) -> None:
    found = answer(f"sub.u32 %r6, %r3, 37; {base}.u32 %r5, %r3, %r6;", 37)
    assert found.startswith("not covered: data decides the branch")
