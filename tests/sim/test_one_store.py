"""Lanes that only predicates have divided make one weak store, of which one stays (H23)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ptx.test_check import ARRIVE, INIT, lines, report
from tilesim.checker import Report
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Pointer

#: every four lanes of a warp have one sum, which they store at one place; an elected one has ended
#: the lifetime of a barrier before
SUMS = (
    INIT + "mov.u32 %r3, %tid.x; ld.param.u64 %rd1, [a]; mul.wide.u32 %rd2, %r3, 4;\n"
    "add.u64 %rd1, %rd1, %rd2; ld.global.u32 %r4, [%rd1]; and.b32 %r6, %r3, 28;\n"
    "shfl.sync.bfly.b32 %r5, %r4, 1, 31, -1; add.u32 %r4, %r4, %r5;\n"
    "shfl.sync.bfly.b32 %r5, %r4, 2, 31, -1; add.u32 %r4, %r4, %r5;\n"
    "add.u32 %r6, %r6, %r1; elect.sync _|%p2, -1;\n"
    "{apart}\n{store}\n{barrier}\nld.shared.u32 %r8, [%r1+80];\n{after}\n"
)
PREDICATED = "@%p2 mbarrier.inval.shared::cta.b64 [%r1];"
BRANCH = "@!%p2 bra S; mbarrier.inval.shared::cta.b64 [%r1]; S:"
LOOP = (
    "mov.u32 %r9, 2; @!%p2 bra S; L: sub.u32 %r9, %r9, 1; setp.ne.u32 %p3, %r9, 0; @%p3 bra L; S:"
)
LOOKS = "@!%p2 bra S; mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r1], 1; S:"
STORE = "st.shared.u32 [%r6+64], %r4;"
RIGHT = {"apart": PREDICATED, "store": STORE, "barrier": "bar.warp.sync -1;", "after": ""}
#: where they differ: the store, the load behind it, and what decides by what was loaded
AT, LOAD = 9, 11


def sums(strict: Strict = "practice", warps: int = 1, **change: str) -> Report:
    body = SUMS.format(**{**RIGHT, **change})
    return report(
        body, warps=warps, strict=strict, params=(".param .u64 a",), values=(Pointer("a", 1024),)
    )


@pytest.mark.parametrize("apart", [PREDICATED, BRANCH])
@pytest.mark.parametrize("store", [STORE, "st.shared.v2.u32 [%r1+80], {%r4, %r6};"])
def test_an_elected_lane_has_invalidated_a_barrier(store: str, apart: str) -> None:
    """As Triton's fused attention does before it stores the row sums, by a predicate or a branch
    around that instruction."""
    right = sums(store=store, apart=apart)
    assert right.verdict == "proved", (right.reasons, right.findings)
    assert "H23" in {x.name for x in right.leanings}
    wrong = sums("ptx", store=store, apart=apart)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [AT]
    assert {p.warp for p in wrong.findings[0].participants} == {0}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"apart": LOOP}, [AT]),
        ({"apart": LOOKS}, [AT]),
        ({"store": f"@%p2 {STORE} @!%p2 {STORE}"}, [AT]),
        ({"barrier": ""}, [AT, LOAD]),
        ({"barrier": "@%p2 bar.warp.sync 1;"}, [AT, LOAD]),
    ],
    ids=[
        "a loop",
        "a look that may take its time",
        "two stores",
        "read by others",
        "read by others that have met alone",
    ],
)
def test_what_is_more_than_one_store_races(change: dict[str, Any], where: list[int]) -> None:
    wrong = sums(**change)
    assert wrong.rules == {"race"}
    assert lines(wrong) == where
    assert {p.warp for p in wrong.findings[0].participants} == {0}


def test_lanes_are_one_again_where_they_meet() -> None:
    met = sums(apart=BRANCH + " bar.warp.sync -1;")
    assert met.verdict == "proved", (met.reasons, met.findings)


def test_which_number_stays_decides_nothing() -> None:
    """Known numbers of several lanes, one of which says what is executed."""
    number = "mov.u32 %r4, %r3; st.shared.u32 [%r1+80], %r4;"
    assert sums(store=number).verdict == "proved"
    looped = sums(store=number, after="setp.gt.u32 %p3, %r8, 40;\nL: @%p3 bra L;")
    assert looped.verdict != "proved"


#: warp 1 has read what warp 0 overwrites, of which one lane has waited for that
TURNS = (
    "mov.u32 %r1, smem; mov.u32 %r3, %tid.x; mov.u32 %r2, 1; setp.eq.u32 %p0, %r3, 0;\n"
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], %r2; st.shared.u32 [%r1+64], 7;\nbar.sync 0;\n"
    "setp.lt.u32 %p4, %r3, 32; @%p4 bra WRITER;\nld.shared.u32 %r5, [%r1+64];\n"
    "bar.warp.sync -1; elect.sync _|%p0, -1;\n" + ARRIVE + "ret;\n"
    "WRITER: elect.sync _|%p2, -1; setp.eq.u32 %p1, 0, 0;\n{wait}\n{meet}\n"
    "st.shared.u32 [%r1+64], 9;\n"
)
ONE_WAITS = (
    "@!%p2 bra S; L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0; @!%p1 bra L; S:"
)


def test_what_one_lane_has_acquired_the_others_do_not_know() -> None:
    """Its store is ordered behind the read; that of the others is one with it, and is not."""
    met = report(TURNS.format(wait=ONE_WAITS, meet="bar.warp.sync -1;"), warps=2)
    assert met.verdict == "proved", (met.reasons, met.findings)
    wrong = report(TURNS.format(wait=ONE_WAITS, meet=""), warps=2)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [4, 11]
    assert {p.warp for p in wrong.findings[0].participants} == {0, 1}


#: warps 0 and 2 store one number where warp 1 has read: warp 0 has met it, and warp 2 waits for
#: warp 0 without a release
WARPS = (
    "mov.u32 %r1, smem; mov.u32 %r3, %tid.x; shr.u32 %r4, %r3, 5; setp.eq.u32 %p0, %r3, 0;\n"
    "mov.u32 %r2, 32; @%p0 mbarrier.init.shared::cta.b64 [%r1], %r2; st.shared.u32 [%r1+64], 7;\n"
    "bar.sync 0;\nsetp.eq.u32 %p1, %r4, 1; @%p1 bra READ; setp.eq.u32 %p2, %r4, 0;\n"
    "@%p2 bra SYNC;\n"
    "L: mbarrier.try_wait.parity{wait}.shared::cta.b64 %p1, [%r1], 0; @!%p1 bra L;\nbra STORE;\n"
    "READ: ld.shared.u32 %r6, [%r1+64];\nbar.arrive 1, 64;\nret;\n"
    "SYNC: bar.sync 1, 64;\nmbarrier.arrive{arrive}.shared::cta.b64 _, [%r1];\n"
    "STORE: st.shared.u32 [%r1+64], 9;\n"
)


def test_one_number_by_several_warps_comes_after_who_has_read_there() -> None:
    """The first store is ordered behind the read, and the second need not be ordered behind it."""
    right = report(WARPS.format(wait="", arrive=""), warps=3)
    assert right.verdict == "proved", (right.reasons, right.findings)
    relaxed = ".relaxed.cta"
    wrong = report(WARPS.format(wait=relaxed, arrive=relaxed), warps=3)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [7, 12]
    assert {p.warp for p in wrong.findings[0].participants} == {1, 2}
