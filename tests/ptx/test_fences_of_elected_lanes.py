"""A fence acts for relaxed operations of its own thread (H3), whichever lane is elected (E12).

The elected lane and the last one act for each other, with a fence that all lanes execute: it counts
if lanes meet between the access and the fence, and by chance if the last lane is elected.
"""

from __future__ import annotations

import pytest

from tests.verdicts.row import rechecked
from tilesim.checker import check
from tilesim.ir.mir import Mir
from tilesim.ptx.launch import Launch
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

START = """.version 9.4
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 smem[];
.visible .entry k()
{
.reg .pred %p<9>; .reg .b32 %r<10>;
mov.u32 %r1, %tid.x; mov.u32 %r2, smem; and.b32 %r3, %r1, 31;
setp.eq.u32 %p0, %r1, 0; setp.eq.u32 %p7, %r3, 31;
@%p0 st.shared.u32 [%r2+48], 0; @%p0 st.shared.u32 [%r2+64], 0; bar.sync 0;
setp.ge.u32 %p8, %r1, 32; @%p8 bra W;
"""
#: the other warp reads what is released, and releases what is read
READS = """ret;
W: ld.acquire.cta.shared::cta.u32 %r8, [%r2+48]; setp.lt.u32 %p5, %r8, 1; @%p5 bra W;
ld.shared.u32 %r7, [%r2+64]; ret; }
"""
WRITES = """ret;
W: setp.eq.u32 %p5, %r3, 0; @!%p5 bra Z;
st.shared.u32 [%r2+64], 7; st.release.cta.shared::cta.u32 [%r2+48], 1; Z: ret; }
"""
FENCE, MEET, ELECT = "fence.acq_rel.cta;\n", "bar.warp.sync -1;\n", "elect.sync _|%p2, -1;\n"
ELECTED, LAST = "%p2", "%p7"


def store(lane: str) -> str:
    return f"@{lane} st.shared.u32 [%r2+64], 7;\n"


def load(lane: str) -> str:
    return f"@{lane} ld.shared.u32 %r7, [%r2+64];\n"


def tell(lane: str) -> str:
    return f"@{lane} st.relaxed.cta.shared::cta.u32 [%r2+48], 1;\n"


def look(lane: str) -> str:
    return (
        f"@!{lane} bra S;\nQ: ld.relaxed.cta.shared::cta.u32 %r8, [%r2+48]; "
        "setp.lt.u32 %p5, %r8, 1; @%p5 bra Q;\nS:\n"
    )


#: by name: what comes before the fence and the meeting, in one order and the other, and behind both
ACROSS = {
    "the elected one stores": (ELECT + store(ELECTED), tell(LAST) + READS),
    "the elected one tells": (store(LAST), ELECT + tell(ELECTED) + READS),
    "one that was elected before tells": (ELECT + store(LAST), tell(ELECTED) + READS),
    "the elected one loads": (look(LAST), ELECT + load(ELECTED) + WRITES),
    "one that was elected before loads": (ELECT + look(LAST), load(ELECTED) + WRITES),
    "the elected one looks": (ELECT + look(ELECTED), load(LAST) + WRITES),
}


def program(text: str) -> Mir:
    module = read(START + text, "k.ptx")
    launch = Launch("k", (1, 1, 1), (64, 1, 1), dynamic_shared=128)
    return lower(module, module.entries[0], launch)


@pytest.mark.parametrize("name", ACROSS)
def test_lanes_meet_between_an_access_and_a_fence(name: str) -> None:
    before, behind = ACROSS[name]
    looks = "ld.relaxed" in before
    right, wrong = (FENCE + MEET, MEET + FENCE)[:: 1 if looks else -1]
    mir = program(before + right + behind)
    assert check(mir, strict="ptx").verdict == "proved"
    assert rechecked(mir, ["ptx"], 1000) == {"ptx": "certified"}
    assert check(program(before + wrong + behind), strict="ptx").rules == {"race"}


@pytest.mark.parametrize("fence", [f"@{LAST} {FENCE}", f"@{ELECTED} {FENCE}"])
def test_a_fence_of_the_last_lane_is_none_of_the_elected_one(fence: str) -> None:
    own, others = (ELECTED, LAST) if ELECTED in fence else (LAST, ELECTED)
    before = ELECT + store(ELECTED) + MEET + fence + MEET
    assert check(program(before + tell(own) + READS), strict="ptx").verdict == "proved"
    assert check(program(before + tell(others) + READS), strict="ptx").rules == {"race"}


def test_one_lane_acts_by_itself() -> None:
    """Where the elected lane makes both, no other lane has to have met it."""
    elected = ELECT + store(ELECTED) + FENCE + tell(ELECTED) + READS
    assert check(program(elected), strict="ptx").verdict == "proved"
    late = ELECT + store(ELECTED) + tell(ELECTED) + FENCE + READS
    assert check(program(late), strict="ptx").rules == {"race"}
