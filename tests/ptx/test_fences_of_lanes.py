"""Fences act for relaxed operations of their own thread, also in one warp that has met since (H3).

In practice a barrier hands them on, which the proof then leans on.
"""

from __future__ import annotations

import pytest

from tests.ptx.test_check import HEAD
from tilesim.checker import Report, check
from tilesim.ir.mir import Mir
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Contents, Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.sim.machine.simulate import Simulation

#: each thread has a word of data, and reads that of its neighbour; %p0: not thread 0, %p1: not 1
START = (
    "ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [c]; mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x; "
    "setp.ne.u32 %p0, %r1, 0; setp.ne.u32 %p1, %r1, 1; setp.ne.u32 %p2, %r0, 0; "
    "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd7, %rd2, %rd3; "
    "xor.b32 %r2, %r1, 1; mul.wide.u32 %rd5, %r2, 4; add.u64 %rd6, %rd1, %rd5;\n"
)
FENCE, MEET, CTA = "fence.acq_rel.gpu;\n", "bar.warp.sync -1;\n", "bar.sync 0;\n"
STORE = "st.global.u32 [%rd4], %r1;\n"
RELEASE = MEET + "@%p0 bra TOLD;\nst.release.gpu.global.u32 [%rd2], 1;\nTOLD:\n"
TELL = "@%p0 bra TOLD;\nst.relaxed.gpu.global.u32 [%rd2], 1;\nTOLD:\n"
ACQUIRE = "LOOK: ld.acquire.gpu.global.u32 %r5, [%rd2]; setp.eq.u32 %p3, %r5, 0; @%p3 bra LOOK;\n"
LOOK = (
    "@%p0 bra SEEN;\n"
    "LOOK: ld.relaxed.gpu.global.u32 %r5, [%rd2]; setp.eq.u32 %p3, %r5, 0; @%p3 bra LOOK;\nSEEN:\n"
)
ONE = "@%p1 bra FENCED;\nfence.acq_rel.gpu;\nFENCED:\n"
FIRST = "@%p0 bra FENCED;\nfence.acq_rel.gpu;\nFENCED:\n"
LOAD = "ld.global.u32 %r6, [%rd6];\n"
#: each lane has a word of its own to tell that it has stored
EACH_TELLS = "st.relaxed.gpu.global.u32 [%rd7], 1;\n"
EACH_LOOKS = (
    "LOOK: ld.acquire.gpu.global.u32 %r5, [%rd7]; setp.eq.u32 %p3, %r5, 0; @%p3 bra LOOK;\n"
)
OWN = "ld.global.u32 %r6, [%rd4];\n"


def program(told: str, learned: str, load: str) -> Mir:
    params = ".param .u64 x, .param .u64 c"
    body = f"@%p2 bra OTHER;\n{STORE}{told}ret;\nOTHER:\n{learned}{load}ret;\n}}\n"
    module = read(f"{HEAD.format(params=params)}{START}{body}", "k.ptx")
    values = Pointer("x", 128), Pointer("c", 128, contents=Contents("u32", (0,) * 32))
    launch = Launch("k", (2, 1, 1), (32, 1, 1), cooperative=True, params=values)
    return lower(module, module.entries[0], launch)


def run(told: str, learned: str, strict: Strict, load: str = LOAD) -> Report:
    return check(program(told, learned, load), strict=strict, schedules=0, budget=0)


#: by name: what CTA 0 does after its stores, and CTA 1 before its loads
HANDED_ON = {
    "all fence, one tells": (FENCE + MEET + TELL, ACQUIRE),
    "all fence, one tells, behind a barrier of the CTA": (FENCE + CTA + TELL, ACQUIRE),
    "one fences, another tells": (MEET + ONE + MEET + TELL, ACQUIRE),
    "one has seen, all fence": (RELEASE, LOOK + MEET + FENCE),
    "one has seen, all fence, behind a barrier of the CTA": (RELEASE, LOOK + CTA + FENCE),
    "one has seen, another fences": (RELEASE, LOOK + MEET + ONE + MEET),
}
OF_ITS_OWN = {
    "the one that tells fences": (MEET + FIRST + TELL, ACQUIRE),
    "before a meeting": (MEET + FIRST + MEET + TELL, ACQUIRE),
    "all fence when they have met": (MEET + FENCE + TELL, ACQUIRE),
    "the one that has seen fences": (RELEASE, LOOK + FIRST + MEET),
    "behind a meeting": (RELEASE, LOOK + MEET + FIRST + MEET),
    "all fence and meet": (RELEASE, LOOK + MEET + FENCE + MEET),
}


@pytest.mark.parametrize("name", HANDED_ON)
def test_what_a_meeting_hands_on_in_practice(name: str) -> None:
    report = run(*HANDED_ON[name], "ptx")
    assert report.rules == {"race"}
    assert "x" in report.findings[0].message
    practice = run(*HANDED_ON[name], "practice")
    assert practice.verdict == "proved"
    assert "H3" in {leaning.name for leaning in practice.leanings}


def test_nothing_is_handed_on_where_no_fence_is_used_later() -> None:
    """The switch is noted at a meeting behind which lanes may use what they are handed alone."""

    def leans(told: str) -> set[str]:
        simulation = Simulation(program(told, ACQUIRE, LOAD), numbers=False, strict="practice")
        assert not simulation.run({}, lambda cluster: None).findings
        return {leant.name for leant in simulation.leaned}

    assert "H3" in leans(FENCE + CTA + TELL)
    assert "H3" not in leans(MEET + FIRST + TELL + CTA)


@pytest.mark.parametrize("name", OF_ITS_OWN)
def test_a_fence_of_its_own(name: str) -> None:
    assert run(*OF_ITS_OWN[name], "ptx").verdict == "proved"


@pytest.mark.parametrize("meet", ["", MEET])
def test_lanes_that_tell_at_words_of_their_own(meet: str) -> None:
    assert run(FENCE + meet + EACH_TELLS, EACH_LOOKS, "ptx", OWN).verdict == "proved"


@pytest.mark.parametrize("told", [EACH_TELLS, EACH_TELLS + FENCE])
def test_lanes_that_tell_before_they_fence(told: str) -> None:
    assert run(told, EACH_LOOKS, "practice", OWN).rules == {"race"}
