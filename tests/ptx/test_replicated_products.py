"""Warpgroups that compute the same product, and store it to the same place (SEMANTICS H23, F6).

Where a tile has fewer rows than the warps of a kernel, Triton has two warpgroups compute it.
"""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, report
from tests.ptx.test_replicated import END, LOAD, START
from tilesim.checker import Report
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Pointer

#: warps in warpgroups, and what both of these load
GROUPS = (
    "shr.u32 %r9, %r1, 7; setp.eq.u32 %p2, %r9, 0; add.u32 %r10, %r9, 4;\n"
    "and.b32 %r11, %r1, 127; shl.b32 %r11, %r11, 2; add.u32 %r12, %r4, %r11;\n"
    "mul.lo.u32 %r17, %r9, 512; add.u32 %r15, %r4, %r17;\n"
)
FILL = (
    "mov.f32 %f4, 0f00000000; add.u32 %r7, %r4, %r6; st.shared.f32 [%r7], %f4;\n"
    "st.shared.f32 [%r7+1024], %f4; st.shared.f32 [%r7+2048], %f4; fence.proxy.async; bar.sync 0;\n"
)
PLACE = (
    "and.b32 %r13, {at}, 262143; shr.u32 %r16, %r13, 4; cvt.u64.u32 %rd9, %r16;\n"
    f"mov.u64 %rd8, {(8 << 16) | (8 << 32)}; or.b64 %rd7, %rd9, %rd8;\n"
)
HEAD = "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
TAIL = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\n"
SHARED = HEAD + "{%f5, %f6, %f7, %f8}, %rd7, %rd7, SCALE, 1, 1, 0, 0;\n" + TAIL
LOADED = HEAD + "{%f5, %f6, %f7, %f8}, {%r20, %r21, %r22, %r23}, %rd7, 0, 1, 1, 0;\n" + TAIL
ONCE = SHARED.replace("SCALE", "0")
START_AT = "mov.f32 %f5, {of}; mov.f32 %f6, {of}; mov.f32 %f7, 0f00000000; mov.f32 %f8, {of};\n"
LOOP = (
    "mov.u32 %r14, 0;\n"
    "L: {turn}add.u32 %r14, %r14, 1; setp.lt.u32 %p1, %r14, {turns}; @%p1 bra L;\n"
)
MORE = SHARED.replace("SCALE", "1")
SCALED = (
    "mul.f32 %f5, %f5, {a}; mul.f32 %f6, %f6, {b}; mul.f32 %f7, %f7, {a}; mul.f32 %f8, %f8, {b}; "
)
STORE = "bar.sync 0;\nst.shared.f32 [%r12], {what};\n"
OURS, MINE = LOAD.format(at="%r11"), LOAD.format(at="%r6")
A = "".join(f"cvt.rn.f16x2.f32 %r{n}, %f1, {{{'a' if n == 20 else 'b'}}};\n" for n in range(20, 24))


def loop(turn: str = MORE, turns: str = "5", of: str = "0f00000000") -> str:
    return START_AT.format(of=of) + LOOP.format(turn=turn, turns=turns)


def body(*parts: str, at: str = "%r4", what: str = "%f5") -> str:
    return START + GROUPS + FILL + PLACE.format(at=at) + "".join(parts) + STORE.format(what=what)


def multiplied(text: str, strict: Strict = "practice") -> Report:
    return report(
        text + END, warps=8, strict=strict, params=(".param .u64 x", ".param .u64 y"),
        values=(Pointer("x", 4096), Pointer("y", 4096)),
    )  # fmt: skip


ALIKE = {
    "a product": body(ONCE),
    "many of them": body(loop()),
    "scaled alike": body(OURS, loop(MORE + SCALED.format(a="%f1", b="%f1"))),
    "of registers": body(OURS, A.format(a="%f1", b="%f1"), LOADED),
    "zeros that are moved": body(ONCE, "mov.f32 %f5, 0f00000000; mov.f32 %f6, 0f00000000;\n"),
}
OWN = MINE + "mov.f32 %f2, %f1;\n" + OURS
NOT_ALIKE = {
    "of operands of their own": body(ONCE, at="%r15"),
    "another number of products": body(loop(turns="%r10")),
    "one more in a branch": body(loop(), "@%p2 bra E;\n", MORE, "E:\n"),
    "another start": body("cvt.rn.f32.u32 %f2, %r9;\n", loop(of="%f2")),
    "in two places of the code": body(
        "@%p2 bra E;\n", loop(), "bra F;\nE:\n", loop().replace("L", "M"), "F:\n"
    ),
    "one register scaled otherwise": body(OWN, loop(MORE + SCALED.format(a="%f2", b="%f1"))),
    "of other registers": body(OWN, A.format(a="%f2", b="%f1"), LOADED),
    "its own moved into one": body(ONCE, MINE, "mov.f32 %f5, %f1; mov.f32 %f6, 0f00000000;\n"),
    "a register of A, which holds its own": body(
        OWN, A.format(a="%f2", b="%f1"), LOADED, what="%r20"
    ),
    "one of which is moved on": body(
        ONCE, "mov.f32 %f2, %f5; @%p2 bra E;\nmov.f32 %f2, %f6;\nE:\n", what="%f2"
    ),
}


@pytest.mark.parametrize("text", ALIKE.values(), ids=ALIKE)
def test_warpgroups_that_compute_the_same(text: str) -> None:
    right = multiplied(text)
    assert right.verdict == "proved", (right.reasons, right.findings)
    assert "H23" in {leaning.name for leaning in right.leanings}
    assert multiplied(text, strict="ptx").rules == {"race"}


@pytest.mark.parametrize("text", NOT_ALIKE.values(), ids=NOT_ALIKE)
def test_warpgroups_that_do_not(text: str) -> None:
    wrong = multiplied(text)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [text.count("\n") - 1]
    warps = sorted(p.warp for p in wrong.findings[0].participants if p.warp is not None)
    assert warps == [warps[0], warps[0] + 4]


def test_a_tile_that_one_warpgroup_writes_in_between() -> None:
    """The second one reads its operand when the first has changed it."""
    change = "bar.sync 0; @%p2 st.shared.f32 [%r4], %f4; fence.proxy.async; bar.sync 0;\n"
    again = "{0}bra F;\nE: {1}{0}F:\n"
    assert multiplied(body(change, ONCE)).verdict == "proved"
    wrong = body("@%p2 bra E;\n", again.format(ONCE + change, change))
    assert multiplied(wrong).rules == {"race"}


TURNS = (
    START + GROUPS + FILL + PLACE.format(at="%r4") + "mov.u32 %r14, 0;\n"
    "L: ld.shared.b32 %r24, [%r7]; ld.shared.b32 %r25, [%r7+1024];\n"
    "BEFORE wgmma.wait_group.sync.aligned 0;\nAFTER "
    + LOADED.replace("wgmma.wait_group.sync.aligned 0;", "")
    + "add.u32 %r14, %r14, 1; setp.lt.u32 %p1, %r14, 5; @%p1 bra L;\n"
    "wgmma.wait_group.sync.aligned 0;\n"
)
MOVE = "mov.b32 %r20, %r24; mov.b32 %r21, %r25; mov.b32 %r22, %r24; mov.b32 %r23, %r25;\n"


def test_registers_of_a_are_read_until_the_product_is_waited_for() -> None:
    """What is loaded meanwhile, and moved there behind the wait, is in registers of its own."""

    def turned(before: str = "", after: str = "") -> Report:
        return report(
            TURNS.replace("BEFORE", before).replace("AFTER", after), warps=4,
            params=(".param .u64 x", ".param .u64 y"),
            values=(Pointer("x", 4096), Pointer("y", 4096)),
        )  # fmt: skip

    right = turned(after=MOVE)
    assert right.verdict == "proved", (right.reasons, right.findings)
    wrong = turned(before=MOVE)
    assert wrong.rules == {"wgmma-order"}
    assert lines(wrong) == [9, 13]
