"""What lanes of a warp exchange, and special registers that no launch says."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import WAIT, report
from tilesim.ptx.launch import Pointer


@pytest.mark.parametrize(
    "name", ["smid", "warpid", "nwarpid", "globaltimer_lo", "is_explicit_cluster"]
)
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
