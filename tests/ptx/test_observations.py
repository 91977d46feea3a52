"""Who comes after what a strong read of one lane has observed: that lane, and who synchronises with
it (H5)."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import FIRST, HEAD
from tilesim.checker import Report, check
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Contents, Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: %p0: not CTA 0, %p1: not the first lane, %p2: not the second, %p3: not the first warp
START = (
    "ld.param.u64 %rd1, [c]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; "
    "setp.ne.u32 %p0, %r0, 0; setp.ne.u32 %p1, %r2, 0; setp.ne.u32 %p2, %r2, 1; "
    "setp.gt.u32 %p3, %r1, 31;\n"
)
TELL = "st.relaxed.gpu.global.u32 [%rd1], 1;\n"
COUNT = "red.relaxed.gpu.global.add.u32 [%rd1], 1;\n"
#: the first lane of CTA 1, which stays apart from the others of its warp
LOOK = (
    "@%p1 bra SEEN;\nLOOK: ld.relaxed.gpu.global.u32 %r5, [%rd1]; setp.eq.u32 %p4, %r5, 0; "
    "@%p4 bra LOOK;\nSEEN:\n"
)
#: all lanes of its warp
LOOK_ALL = LOOK.replace("@%p1 bra SEEN;\n", "")
RESET = "st.global.u32 [%rd1], 0;\n"
WARP, CTA = "bar.warp.sync -1;\n", "barrier.sync 0;\n"
#: what comes between: the second lane resets the word, or the first one of the other warp
LANE = "{meet}@%p2 bra OUT;\n"
OTHER = "LATER: {meet}@!%p3 bra OUT;\n@%p1 bra OUT;\n"


def run(told: str, between: str, strict: Strict, look: str = LOOK) -> tuple[Report, list[str]]:
    apart = "@%p3 bra LATER;\n" if "LATER" in between else "@%p3 bra OUT;\n"
    sends = f"@%p0 bra WAITS;\n@%p1 bra OUT;\n@%p3 bra OUT;\n{told}bra OUT;\nWAITS:\n"
    body = f"{START}{sends}{apart}{look}{between}{RESET}OUT: ret;\n}}\n"
    module = read(HEAD.format(params=".param .u64 c") + body, "k.ptx")
    values = (Pointer("c", 4, contents=Contents("u32", (0,))),)
    launch = Launch("k", (2, 1, 1), (64, 1, 1), cooperative=True, params=values)
    program = lower(module, module.entries[0], launch)
    return check(program, strict=strict, schedules=0, budget=0), body.splitlines()


@pytest.mark.parametrize("told", [TELL, COUNT])
@pytest.mark.parametrize(("between", "meet"), [(LANE, WARP), (OTHER, CTA)])
def test_who_meets_the_lane_comes_after_what_it_observed(
    between: str, meet: str, told: str
) -> None:
    right, _ = run(told, between.replace("{meet}", meet), "ptx")
    assert right.verdict == "proved", right.findings
    wrong, text = run(told, between.replace("{meet}", ""), "practice")
    assert wrong.rules == {"race"}
    lines = {text[p.loc.line - FIRST] for f in wrong.findings for p in f.participants}
    assert {RESET.strip(), told.strip()} <= lines


@pytest.mark.parametrize("told", [TELL, COUNT])
@pytest.mark.parametrize(("between", "meet"), [(LANE, WARP), (OTHER, CTA)])
def test_lanes_that_look_together_have_all_observed(between: str, meet: str, told: str) -> None:
    """A lane that has looked itself comes after the write, but not after the other lanes."""
    right, _ = run(told, between.replace("{meet}", meet), "ptx", LOOK_ALL)
    assert right.verdict == "proved", right.findings
    wrong, text = run(told, between.replace("{meet}", ""), "practice", LOOK_ALL)
    assert wrong.rules == {"race"}
    lines = {text[p.loc.line - FIRST] for f in wrong.findings for p in f.participants}
    assert RESET.strip() in lines
    assert (told.strip() in lines) == (between == OTHER)
    assert any("ld.relaxed" in line for line in lines)


@pytest.mark.parametrize(("between", "meet"), [(LANE, WARP), (OTHER, CTA)])
def test_a_store_before_the_one_that_was_observed(between: str, meet: str) -> None:
    """It comes before what follows if its thread has released it there (H3), and not by itself."""
    first, second = TELL.replace("relaxed", "release"), TELL.replace("1;", "2;")
    look = LOOK.replace("ld.relaxed", "ld.acquire").replace(
        "setp.eq.u32 %p4, %r5, 0", "setp.lt.u32 %p4, %r5, 2"
    )
    right, _ = run(first + second, between.replace("{meet}", meet), "ptx", look)
    assert right.verdict == "proved", right.findings
    wrong, text = run(TELL + second, between.replace("{meet}", meet), "practice", look)
    assert wrong.rules == {"race"}
    lines = {text[p.loc.line - FIRST] for f in wrong.findings for p in f.participants}
    assert lines == {RESET.strip(), TELL.strip()}
    unseen, text = run(first + second, between.replace("{meet}", ""), "practice", look)
    assert unseen.rules == {"race"}


def test_a_scope_without_the_writer_observes_nothing() -> None:
    report, text = run(TELL.replace("gpu", "cta"), LANE.replace("{meet}", WARP), "practice")
    assert report.rules == {"race"}
    lines = {text[p.loc.line - FIRST] for f in report.findings for p in f.participants}
    assert RESET.strip() in lines
