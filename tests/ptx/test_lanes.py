"""What lanes of a warp exchange, and special registers that no launch says."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import INIT, WAIT, lines, report
from tilesim.ptx.launch import Pointer

#: a kernel that ends if %r3 is what it should be, and waits for ever if not
ENDS = f"setp.eq.u32 %p3, %r3, NUMBER;\n@%p3 ret;\n{INIT}{WAIT}"


@pytest.mark.parametrize(
    ("text", "number", "wrong"),
    [
        ("shfl.sync.down.b32 %r3, %r4, 4, 0x181f, -1; and.b32 %r3, %r3, 7;", 7, 6),
        ("shfl.sync.idx.b32 %r3|%p4, %r2, 5, 0x181f, -1; and.b32 %r3, %r3, 7;", 5, 4),
        ("shfl.sync.up.b32 %r5|%p4, %r2, 1, 0, -1; selp.b32 %r3, %r5, 40, %p4; "
         "add.u32 %r3, %r3, 1; setp.eq.u32 %p5, %r2, 0; selp.b32 %r3, %r2, %r3, %p5; "
         "sub.u32 %r3, %r3, %r2;", 0, 1),
        ("shfl.sync.bfly.b32 %r5, %r2, %r6, 31, -1; xor.b32 %r3, %r5, %r2;", 16, 8),
        ("mov.u32 %r3, %lanemask_gt; mov.u32 %r5, %lanemask_le; xor.b32 %r3, %r3, %r5;", -1, 0),
    ],
)  # fmt: skip
def test_each_lane_gets_what_the_mode_says(text: str, number: int, wrong: int) -> None:
    start = "mov.u32 %r2, %tid.x; mov.u32 %r6, 16; or.b32 %r4, %r2, 7;\n"
    assert report(start + text + ENDS.replace("NUMBER", str(number))).verdict == "proved"
    assert report(start + text + ENDS.replace("NUMBER", str(wrong))).rules == {"deadlock"}


def test_lanes_shuffle_among_those_of_the_mask() -> None:
    body = (
        "mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 16;\n"
        "@%p1 shfl.sync.idx.b32 %r3, %r2, LANE, 31, 0xffff;"
    )
    assert report(body.replace("LANE", "15")).verdict == "proved"
    wrong = report(body.replace("LANE", "16"))
    assert wrong.rules == {"participation"}
    assert lines(wrong) == [1]
    missing = report(body.replace("LANE", "15").replace("16;", "8;"))
    assert missing.rules == {"participation"}


@pytest.mark.parametrize(
    ("form", "b", "more"),
    [
        ("mma.sync.aligned.m16n8k16", "%r2,%r2", ""),
        ("mma.sp.sync.aligned.m16n8k32", "%r2,%r2,%r2,%r2", ", %r2, 0x0"),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k32", "%r2,%r2,%r2,%r2", ", %r2, 0x1"),
    ],
)
def test_a_product_of_a_warp_needs_all_its_lanes(form: str, b: str, more: str) -> None:
    body = (
        "mov.u32 %r2, %tid.x; setp.lt.u32 %p1, %r2, 8; mov.f32 %f1, 0f00000000;\n"
        f"GUARD {form}.row.col.f32.f16.f16.f32 {{%f2,%f3,%f4,%f5}}, {{%r2,%r2,%r2,%r2}}, "
        f"{{{b}}}, {{%f1,%f1,%f1,%f1}}{more};"
    )
    assert report(body.replace("GUARD", "")).verdict == "proved"
    wrong = report(body.replace("GUARD", "@%p1"))
    assert wrong.rules == {"participation"}
    assert lines(wrong) == [1]


@pytest.mark.parametrize("name", ["smid", "warpid", "globaltimer_lo"])
def test_what_no_launch_says_leaves_the_verdict_open(name: str) -> None:
    start = f"mov.u32 %r5, %{name};\nsetp.eq.u32 %p2, %r5, 3;\n"
    steers = report(f"{start}@%p2 bra DONE;\nbar.sync 0;\nDONE:")
    assert steers.verdict == "bounded"
    assert f"what %{name} shows" in steers.reasons[0]
    assert report(f"{start}selp.b32 %r6, 1, 2, %p2;").verdict == "proved"


def test_an_atomic_whose_result_nobody_reads_is_a_reduction() -> None:
    params, values = (".param .u64 a",), (Pointer("a", 64),)
    body = (
        "ld.param.u64 %rd1, [a]; mov.u32 %r2, %ctaid.x; elect.sync _|%p1, -1;\n"
        "@%p1 atom.global.add.u32 %r3, [%rd1], 1;\nUSE"
    )
    dead = report(body.replace("USE", ""), grid=3, params=params, values=values)
    assert dead.verdict == "proved"
    used = body.replace("USE", "setp.eq.u32 %p2, %r3, 2;\n@%p2 ret;\nmov.u32 %r4, 0;")
    assert report(used, grid=3, params=params, values=values).verdict != "proved"


def test_a_policy_may_be_moved() -> None:
    body = (
        "createpolicy.fractional.L2::evict_first.b64 %rd1, 1.0; mov.b64 %rd2, %rd1;\n"
        "ld.param.u64 %rd3, [a];\n"
        "ld.global.L1::evict_last.L2::cache_hint.b32 {%r2}, [%rd3], %rd2;"
    )
    found = report(body, params=(".param .u64 a",), values=(Pointer("a", 64),))
    assert found.verdict == "proved"
