"""Loops that a warp never leaves, whatever others do: what they test is read once, before them."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, report
from tilesim.checker import Report
from tilesim.ptx.launch import Pointer
from tilesim.sim.machine import machine

#: warp 0 stores, and says so by a flag; warp 1 looks at that until it is set
AROUND = """
mov.u32 %r1, smem; mov.u32 %r4, %tid.x; setp.eq.u32 %p0, %r4, 0;
@%p0 st.shared.u32 [%r1+512], 0;
bar.sync 0;
mul.lo.u32 %r3, %r4, 4; add.u32 %r3, %r3, %r1;
setp.lt.u32 %p2, %r4, 32; @!%p2 bra W;
st.shared.u32 [%r3+64], 1;
bar.warp.sync -1; fence.acq_rel.cta;
@%p0 st.relaxed.cta.shared.u32 [%r1+512], 1;
ret;
W: setp.ne.u32 %p6, %r4, 32; @%p6 bra OVER;
{loop}
OVER: bar.warp.sync -1; fence.acq_rel.cta;
ld.shared.u32 %r7, [%r3-64];
"""
AGAIN = (
    "AGAIN: ld.relaxed.cta.shared.u32 %r6, [%r1+512];\nsetp.eq.u32 %p3, %r6, 0;\n@%p3 bra AGAIN;"
)
#: how compilers leave `while (flag == 0)` where the flag is a plain variable
ONCE = {
    "test in the loop": "ld.relaxed.cta.shared.u32 %r6, [%r1+512];\n"
    "AGAIN: setp.eq.u32 %p3, %r6, 0;\n@%p3 bra AGAIN;",
    "test before it": "ld.relaxed.cta.shared.u32 %r6, [%r1+512];\nsetp.eq.u32 %p3, %r6, 0;\n"
    "AGAIN: @%p3 bra AGAIN;",
    "no test": "ld.relaxed.cta.shared.u32 %r6, [%r1+512];\nsetp.ne.u32 %p3, %r6, 0;\n"
    "@%p3 bra OUT;\nAGAIN: bra.uni AGAIN;\nOUT:",
}


def check(loop: str) -> tuple[Report, list[str]]:
    body = AROUND.format(loop=loop).strip()
    return report(body, warps=2), body.splitlines()


def test_who_looks_at_the_flag_in_each_turn_leaves() -> None:
    """One store ends the wait, and none comes after it: it passes in every schedule, in which it
    has seen that store."""
    assert check(AGAIN)[0].verdict == "proved"


@pytest.mark.parametrize("loop", ONCE.values(), ids=ONCE)
def test_who_has_read_the_flag_once_never_leaves(loop: str) -> None:
    found, lines = check(loop)
    assert found.verdict == "failed"
    assert found.rules == {"deadlock"}
    (finding,) = found.findings
    (waiting,) = finding.participants
    assert "bra" in lines[waiting.loc.line - FIRST]
    assert "AGAIN;" in lines[waiting.loc.line - FIRST]
    assert "in each iteration" in finding.fix


@pytest.mark.parametrize(
    "loop",
    [
        "mov.u32 %r6, 4096;\nAGAIN: shr.u32 %r6, %r6, 1; setp.ne.u32 %p3, %r6, 0; @%p3 bra AGAIN;",
        "mov.u32 %r6, 1; setp.eq.u32 %p5, %r6, 1; setp.ne.u32 %p3, %r6, 1;\n"
        "AGAIN: @%p3 mov.u32 %r6, 0; setp.eq.u32 %p3, %r6, 1; @%p3 bra AGAIN;",
        "mov.u32 %r6, 1; mov.u32 %r8, 0;\nAGAIN: setp.eq.u32 %p3, %r6, 1; mov.u32 %r6, %r8;\n"
        "@%p3 bra AGAIN;",
    ],
    ids=["halves", "sets by a predicate", "sets for the next turn"],
)
def test_loops_that_come_to_an_end(loop: str) -> None:
    assert check(f"{loop}\n{AGAIN.replace('AGAIN', 'LOOK')}")[0].verdict == "proved"


def test_a_warp_that_computes_for_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    turn = "mad.lo.u32 %r6, %r6, 5, 2; setp.ne.u32 %p3, %r6, 0; @%p3 bra AGAIN;"
    monkeypatch.setattr(machine, "_STRETCH", 50_000)
    found = check(f"mov.u32 %r6, 1;\nAGAIN: {turn}")[0]
    assert found.verdict == "bounded"
    assert any("where a warp does not end" in why for why in found.reasons)


def test_who_waits_for_a_copy_that_has_not_landed_is_no_deadlock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When the other warp is cut off, the copy is still on its way."""
    monkeypatch.setattr(machine, "_STRETCH", 50_000)
    body = """
ld.param.u64 %rd1, [x]; mov.u32 %r1, smem; mov.u32 %r2, 1; mov.u32 %r4, %tid.x;
setp.eq.u32 %p0, %r4, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r1], %r2;
bar.sync 0;
setp.lt.u32 %p2, %r4, 32; @!%p2 bra W;
@%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 128;
@%p0 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+128], [%rd1], 128, [%r1];
A: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0; @!%p1 bra A;
ret;
W: bar.sync 1, 32; bar.sync 1, 32; bar.sync 1, 32; bar.sync 1, 32; mov.u32 %r6, 1;
AGAIN: mad.lo.u32 %r6, %r6, 5, 2; setp.ne.u32 %p3, %r6, 0; @%p3 bra AGAIN;
"""
    values = (Pointer("x", 128),)
    found = report(body.strip(), warps=2, params=(".param .u64 x",), values=values)
    assert found.verdict == "bounded", found
    assert found.reasons == ("the run was cut off where a warp does not end",)


#: what comes back after so many turns; a lane alone, and a search whose middle does not move on
COMES_BACK = {
    "after eight turns": "mov.u32 %r6, 0;\nAGAIN: add.u32 %r6, %r6, 1; and.b32 %r6, %r6, {mask};\n"
    "setp.lt.u32 %p3, %r6, 10; @%p3 bra AGAIN;",
    "after a thousand": "mov.u32 %r6, 1;\nAGAIN: mul.lo.u32 %r6, %r6, 5; and.b32 %r6, %r6, 4095;\n"
    "setp.ne.u32 %p3, %r6, {odd}; @%p3 bra AGAIN;",
    "a search": "mov.u32 %r6, 0; mov.u32 %r8, 9;\n"
    "AGAIN: add.u32 %r9, %r6, %r8; shr.u32 %r9, %r9, 1;\n"
    "ld.shared.u32 %r10, [%r1+512]; setp.eq.u32 %p4, %r10, 0; @%p4 add.u32 %r6, %r9, {more};\n"
    "@!%p4 mov.u32 %r8, %r9; setp.lt.u32 %p3, %r6, %r8; @%p3 bra AGAIN;",
}


@pytest.mark.parametrize("loop", COMES_BACK.values(), ids=COMES_BACK)
@pytest.mark.parametrize("lanes", [1, 32])
def test_who_computes_the_same_again_and_again_never_leaves(loop: str, lanes: int) -> None:
    def judged(**numbers: int) -> tuple[Report, list[str]]:
        body = (
            f"mov.u32 %r1, smem; mov.u32 %r4, %tid.x; setp.ge.u32 %p6, %r4, {lanes};\n"
            "@!%p6 st.shared.u32 [%r1+512], 0;\nbar.sync 0;\n@%p6 bra OVER;\n"
            f"{loop.format(**numbers)}\nOVER: bar.warp.sync -1;"
        )
        return report(body), body.splitlines()

    assert judged(mask=15, odd=625, more=1)[0].verdict == "proved"
    wrong, lines = judged(mask=7, odd=2, more=0)
    assert wrong.verdict == "failed"
    assert wrong.rules == {"deadlock"}
    (turning,) = wrong.findings[0].participants
    assert "@%p3 bra AGAIN;" in lines[turning.loc.line - FIRST]
    assert wrong.stats.instructions < 100_000
