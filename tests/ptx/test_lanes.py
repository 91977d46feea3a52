"""What lanes of a warp exchange, and special registers that no launch says."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import WAIT, lines, report
from tilesim.ptx.launch import Pointer


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


#: each lane names the eight of its own tile, as cooperative groups do
TILES = (
    "mov.u32 %r2, %tid.x; and.b32 %r5, %r2, 24; mov.u32 %r6, 255; shl.b32 %r7, %r6, %r5;\n"
    "and.b32 %r8, %r2, 7; shr.u32 %r9, %r2, 3; setp.eq.u32 %p4, %r8, 2;\n"
)


def test_a_lane_of_another_tile_is_none_to_exchange_with() -> None:
    body = TILES + "shfl.sync.idx.b32 %r3, %r2, LANE, 0x181f, MASK;\n"
    assert report(body.replace("LANE", "3").replace("MASK", "%r7")).verdict == "proved"
    wide = body.replace("0x181f", "31").replace("MASK", "%r7")
    wrong = report(wide.replace("LANE", "3"))
    assert wrong.rules == {"participation"}
    assert lines(wrong) == [2]
    beside = "not.b32 %r10, %r7;\n" + body.replace("LANE", "3").replace("MASK", "%r10")
    assert report(beside.replace("not.b32 %r10, %r7;\n", "").replace("%r10;", "0xff;")).rules == {
        "participation"
    }


def test_lanes_of_a_tile_do_not_wait_for_those_of_another() -> None:
    """A shuffle orders no memory: what lanes tell each other they need a barrier for."""
    body = (
        TILES + "mov.u32 %r1, smem; shl.b32 %r10, %r2, 2; add.u32 %r10, %r10, %r1;\n"
        "st.shared.u32 [%r10+64], %r2;\n{meets}\nxor.b32 %r11, %r2, OTHER; shl.b32 %r11, %r11, 2; "
        "add.u32 %r11, %r11, %r1;\nld.shared.u32 %r12, [%r11+64];"
    )
    right = body.format(meets="bar.warp.sync %r7;")
    assert report(right.replace("OTHER", "4")).verdict == "proved"
    other = report(right.replace("OTHER", "8"))
    assert other.rules == {"race"}
    assert lines(other) == [3, 6]
    shuffles = body.format(meets="shfl.sync.idx.b32 %r13, %r2, 0, 0x181f, %r7;")
    assert report(shuffles.replace("OTHER", "4")).rules == {"race"}


@pytest.mark.parametrize(
    ("wait", "meets", "rules"),
    [
        ("%r9", "bar.warp.sync -1;", set()),
        ("%r9", "", {"race"}),
        ("%r8", "bar.warp.sync -1;", {"race", "async-at-exit"}),
    ],
)
def test_each_lane_makes_an_mbarrier(wait: str, meets: str, rules: set[str]) -> None:
    """One instruction makes as many as there are lanes: all of them are followed."""
    body = (
        "ld.param.u64 %rd1, [x]; mov.u32 %r1, smem; mov.u32 %r2, %laneid; mov.u32 %r4, %tid.x;\n"
        "mad.lo.u32 %r9, %r2, 8, %r1; mad.lo.u32 %r5, %r2, 16, %r1; and.b32 %r8, %r2, 15;\n"
        "mad.lo.u32 %r8, %r8, 8, %r1; mul.wide.u32 %rd2, %r2, 16; add.u64 %rd1, %rd1, %rd2;\n"
        "setp.ge.u32 %p0, %r4, 32; @%p0 bra MADE;\n"
        "mbarrier.init.shared::cta.b64 [%r9], 1;\nMADE: bar.sync 0;\n@%p0 bra READ;\n"
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 16;\n"
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5+256], [%rd1], 16, "
        f"[%r9];\nret;\nREAD: {WAIT.replace('%r1]', f'{wait}]')}{meets}\nxor.b32 %r5, %r5, 80;\n"
        "ld.shared.u32 %r6, [%r5+256];"
    )
    found = report(body, warps=2, params=(".param .u64 x",), values=(Pointer("x", 512),))
    assert found.rules == rules


def test_which_lane_is_asked_for_what_nobody_knows_does_not_matter() -> None:
    """CUTLASS asks by a register of an accumulator, of which nobody knows what it holds."""
    body = (
        "ld.param.u64 %rd1, [a]; mov.u32 %r2, %tid.x; ld.global.u32 %r4, [%rd1];\n"
        "shfl.sync.idx.b32 %r3, VALUE, %r4, 31, -1;\nst.global.u32 [%rd1+64], %r3;"
    )
    params, values = (".param .u64 a",), (Pointer("a", 128),)
    assert report(body.replace("VALUE", "%r4"), params=params, values=values).verdict == "proved"
    known = report(body.replace("VALUE", "%r2"), params=params, values=values)
    assert known.verdict == "bounded"
    assert "the contents of a" in known.reasons[0]
