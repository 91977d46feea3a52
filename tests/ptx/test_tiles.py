"""Accumulators of wgmma that a compiler moves from registers to registers."""

from __future__ import annotations

import re

import pytest

from tests.ptx.test_check import lines, program, report
from tilesim.checker import Report
from tilesim.ir.program import Strict
from tilesim.proof.check import certify
from tilesim.ptx.plain import plain
from tilesim.sim.machine.interface import Core

#: rows of 32 bytes under their swizzle: A at 0, B behind its 2 KiB
START = (
    "mov.u32 %r1, smem; bfe.u32 %r2, %r1, 4, 14; cvt.u64.u32 %rd1, %r2;\n"
    "or.b64 %rd2, %rd1, 0xC000001000010000; add.u64 %rd3, %rd2, 128; setp.eq.u32 %p1, %r2, %r2;\n"
    "mov.u32 %r3, %tid.x; shl.b32 %r4, %r3, 4; add.u32 %r4, %r4, %r1;\n"
    "st.shared.v4.b32 [%r4], {%r3, %r3, %r3, %r3};"
    "st.shared.v4.b32 [%r4+2048], {%r3, %r3, %r3, %r3};\n"
    "fence.proxy.async.shared::cta; bar.sync 0;\n"
    "mov.f32 %f1, 0f00000000; mov.f32 %f5, %f6; mov.f32 %f2, %f5; mov.f32 %f3, %f5;\n"
    "mov.f32 %f4, %f5; mov.f32 %f7, %f5; mov.u32 %r5, 0;\n"
    "L: wgmma.fence.sync.aligned;\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd2, %rd3, %p1,"
    " 1, 1, 0, 0;\nwgmma.commit_group.sync.aligned;\n"
)
END = (
    "wgmma.wait_group.sync.aligned 0;\n"
    "add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 3;\n@%p2 bra L;\nadd.f32 %f8, %f1, %f7;\n"
)


def multiplied(
    between: str, after: str = "", *, fenced: str = "", strict: Strict = "practice"
) -> Report:
    """The report on a loop with instructions between a wgmma and the wait for it, and after;
    and between the fence and the wgmma."""
    turn, rest = END.split("add.u32 %r5", 1)
    start = START.replace("sync.aligned;\nwgmma.mma", f"sync.aligned; {fenced}\nwgmma.mma", 1)
    return report(f"{start}{between}\n{turn}{after}\nadd.u32 %r5{rest}", warps=4, strict=strict)


def test_a_register_that_began_with_the_same_number_is_no_accumulator() -> None:
    """%f7 and the accumulators are copies of %f5, and differ from then on."""
    assert multiplied("fma.rn.f32 %f7, %f7, %f7, %f7;").findings == ()
    wrong = multiplied("fma.rn.f32 %f7, %f4, %f4, %f4;")
    assert wrong.verdict == "failed"
    assert wrong.rules == {"wgmma-order"}
    assert lines(wrong) == [8, 10]


def test_a_move_of_an_accumulator_that_goes_on_under_another_name_is_left_out() -> None:
    """It may be one register with the accumulator, unless the accumulator is still used."""
    assert multiplied("mov.f32 %f8, %f4;", "mov.f32 %f4, %f8;").findings == ()
    both = "add.f32 %f4, %f4, %f8;"
    wrong = multiplied("mov.f32 %f8, %f4; add.f32 %f8, %f8, %f8;", both)
    assert wrong.verdict == "failed"
    assert wrong.rules == {"wgmma-order"}
    assert lines(wrong) == [8, 10]


def test_zeros_that_a_compiler_moves_behind_the_fence_are_accepted_in_practice() -> None:
    """`wgmma.fence` names no registers, and ptxas puts another one behind the moves (F3)."""
    zeros = "mov.b32 %f1, 0f00000000; mov.b32 %f2, %f1;"
    found = multiplied("", fenced=zeros)
    assert found.findings == ()
    assert "F3" in {one.name for one in found.leanings}
    strict = multiplied("", fenced=zeros, strict="ptx")
    assert strict.rules == {"wgmma-order"}
    assert lines(strict) == [8]


@pytest.mark.parametrize(("fenced", "leans"), [("", False), ("mov.b32 %f1, %f6;", True)])
def test_moves_before_the_first_fence_ask_for_no_leave(
    fenced: str, leans: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is leant on is looked at in a second run, which kernels without it are spared."""
    asked: set[str] = set()
    monkeypatch.setattr(Core, "lean", lambda _core, switch, *_ops, **_how: asked.add(switch))
    assert multiplied("", fenced=fenced).findings == ()
    assert ("F3" in asked) is leans


def test_numbers_that_are_computed_behind_the_fence_are_not() -> None:
    wrong = multiplied("", fenced="add.f32 %f1, %f1, %f1;")
    assert wrong.rules == {"wgmma-order"}
    assert lines(wrong) == [8]


def test_zeros_without_any_fence_are_not() -> None:
    zeros = "mov.b32 %f1, 0f00000000; mov.b32 %f2, %f1;"
    none = START.replace("wgmma.fence.sync.aligned;", zeros)
    wrong = report(none + END, warps=4)
    assert wrong.rules == {"wgmma-order"}
    assert lines(wrong) == [8]


def test_moves_that_no_product_follows_lean_on_nothing() -> None:
    """The accumulators are read behind the last product, and moved behind the last fence (F3)."""
    zeros = "wgmma.fence.sync.aligned; mov.b32 %f1, 0f00000000; mov.b32 %f2, %f1;"
    found = report(f"{START}{END}{zeros}", warps=4)
    assert found.verdict == "proved"
    assert "F3" not in {one.name for one in found.leanings}


#: a product in %r10 and %r11, in a loop whose turns %r5 counts
IN_HALVES = re.sub("mov.f32 %f1, .*\n.*\n", "{zeros}\n", START).replace(
    "k16.f32.f16.f16 {%f1, %f2, %f3, %f4}", "k16.f16.f16.f16 {%r10, %r11}"
) + END.replace("add.f32 %f8, %f1, %f7;", "add.u32 %r12, %r10, %r11;")  # fmt: skip


@pytest.mark.parametrize(
    ("zeros", "known"),
    [
        ("mov.u32 %r10, 0; mov.u32 %r11, %r10; mov.u32 %r5, %r10;", True),
        ("mov.u32 %r10, 0; mov.u32 %r11, %r10; mov.u32 %r10, 2; mov.u32 %r5, %r11;", True),
        ("mov.u32 %r11, 0; mov.u32 %r10, 0; add.u32 %r10, %r10, 1; mov.u32 %r5, %r10;", False),
        ("mov.u32 %r11, 0; mov.u32 %r10, 0; @!%p1 mov.u32 %r10, 1; mov.u32 %r5, %r10;", False),
        ("mov.u32 %r11, 0; mov.u32 %r10, 0; @%p1 bra K; mov.u32 %r10, 1; K: mov.u32 %r5, %r10;",
         False),
    ],
)  # fmt: skip
def test_a_number_that_is_moved_out_of_an_accumulator_is_known(zeros: str, known: bool) -> None:
    """If the same straight line has moved it there, and nothing has set that register since."""
    answer = certify(program(IN_HALVES.replace("{zeros}", zeros), warps=4, by=plain), [[0]])
    assert answer.verdict == ("certified" if known else "not covered")
    assert known or "data decides the branch" in answer.what
