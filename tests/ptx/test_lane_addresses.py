"""Addresses that some lanes hold for all: a lane for each stage, and a number in the others."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, report

#: lanes below 4 hold the address of a stage; each turn asks the next lane, and stores there
BODY = """
mov.u32 %r1, smem; mov.u32 %r2, %tid.x; and.b32 %r2, %r2, 31;
mul.lo.s32 %r4, %r2, 256; add.s32 %r4, %r4, %r1; CHOSEN
mov.u32 %r6, 0;
L: shfl.sync.idx.b32 %r7|%p2, %r5, %r6, 31, -1;
shl.b32 %r8, %r2, 2; add.s32 %r8, %r8, %r7;
st.shared.u32 [%r8], %r2;
add.s32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, TURNS;
@%p3 bra L;
"""
SELECTED = "setp.lt.u32 %p1, %r2, 4; selp.b32 %r9, %r4, OTHER, %p1; mov.u32 %r5, %r9;"


def stored(turns: int, other: int, *, chosen: str = SELECTED) -> str:
    body = BODY.replace("CHOSEN", chosen).replace("TURNS", str(turns))
    return body.replace("OTHER", str(other))


@pytest.mark.parametrize("other", [0, 1536])
def test_only_lanes_that_hold_an_address_are_asked(other: int) -> None:
    right = report(stored(4, other))
    assert (right.verdict, right.reasons) == ("proved", ())


def test_a_lane_is_asked_that_holds_nothing() -> None:
    wrong = report(stored(5, 8192))
    assert wrong.verdict == "failed"
    assert wrong.rules == {"out-of-bounds"}
    assert lines(wrong) == [6]


@pytest.mark.parametrize("other", [0, 1536])
def test_a_lane_is_asked_that_holds_a_number_which_may_be_an_address_once(other: int) -> None:
    """It is into what is declared where this launch has its shared memory."""
    wrong = report(stored(5, other))
    assert wrong.verdict == "bounded"
    (reason,) = wrong.reasons
    assert reason == (
        f"lane 4 has no address to give, as others have: what shfl.sync at k.ptx:{12} gives of it "
        "is not known to be one in every launch"
    )


@pytest.mark.parametrize("lanes", ["4", "%r10"])
def test_which_lanes_hold_one_is_known_before_it_runs(lanes: str) -> None:
    """Not if a loaded number says it."""
    loaded = (
        "st.shared.u32 [%r1], 4; bar.warp.sync -1; ld.shared.u32 %r10, [%r1]; bar.warp.sync -1;"
    )
    chosen = loaded + SELECTED.replace("%r2, 4", f"%r2, {lanes}")
    assert report(stored(4, 0, chosen=chosen)).verdict == ("proved" if lanes == "4" else "bounded")
