"""Member masks of what lanes execute together: one rule for all of it.

`shfl.sync`, `vote.sync`, `match.sync`, `redux.sync`, `elect.sync`, `bar.warp.sync`
wait for all lanes of their mask that have not exited (PTX 9.7.9.6, 9.7.13; U22). A shuffle
gets nothing from a lane that does not execute it.
"""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, report
from tests.sim.sites import BOTH
from tilesim.ir.program import Strict

#: an instruction of the lanes of MASK
TOGETHER = {
    "shfl.sync.idx": "shfl.sync.idx.b32 %r3, %r2, 0, 31, MASK;",
    "shfl.sync.idx, in the same part": "shfl.sync.idx.b32 %r3|%p4, %r2, 0, 31, MASK;",
    "shfl.sync.up": "shfl.sync.up.b32 %r3, %r2, 0, 0, MASK;",
    "shfl.sync.down": "shfl.sync.down.b32 %r3, %r2, 0, 31, MASK;",
    "shfl.sync.bfly": "shfl.sync.bfly.b32 %r3|%p4, %r2, 1, 31, MASK;",
    "shfl.sync.bfly, of parts": "shfl.sync.bfly.b32 %r3, %r2, 1, 0x1c1f, MASK;",
    "vote.sync": "vote.sync.ballot.b32 %r3, %p1, MASK;",
    "match.sync": "match.any.sync.b32 %r3, %r2, MASK;",
    "redux.sync": "redux.sync.add.u32 %r3, %r2, MASK;",
    "elect.sync": "elect.sync %r3|%p4, MASK;",
    "bar.warp.sync": "bar.warp.sync MASK;",
}
#: lanes 12 to 31 go to L
SOME = (
    "mov.u32 %r2, %tid.x; mov.u32 %r5, smem; setp.gt.u32 %p1, %r2, 11; "
    "shl.b32 %r7, %r2, 2; add.u32 %r7, %r7, %r5;\n"
)


def _with(text: str, mask: str) -> str:
    return text.replace("MASK", mask)


def _is_right(text: str, mask: str, strict: Strict) -> bool:
    # which lane is elected is not said at ptx (E12)
    verdicts = {"proved", "bounded"} if "elect" in text and strict == "ptx" else {"proved"}
    return report(_with(text, mask), strict=strict).verdict in verdicts


@pytest.mark.parametrize("strict", BOTH)
@pytest.mark.parametrize(
    ("elsewhere", "again"), [("bar.warp.sync -1;", "@!%p1 bra M;"), ("bar.sync 0;", "")]
)
@pytest.mark.parametrize("what", TOGETHER)
def test_lanes_of_the_mask_that_wait_elsewhere(
    what: str, elsewhere: str, again: str, strict: Strict
) -> None:
    body = f"{SOME}@%p1 bra L;\n{TOGETHER[what]}\nL: {again}{elsewhere}\nM:"
    if what != "bar.warp.sync" or "sync 0" in elsewhere:
        wrong = report(_with(body, "-1"), strict=strict)
        assert wrong.rules == {"participation"}
        assert lines(wrong) == [2]
        # the lanes that are missing, and no others
        assert "0xfffff000" in wrong.findings[0].message
    if not again:
        assert _is_right(body, "0xfff", strict)


@pytest.mark.parametrize("strict", BOTH)
@pytest.mark.parametrize("what", TOGETHER)
def test_nobody_waits_for_lanes_that_have_exited(what: str, strict: Strict) -> None:
    """Early, by a branch to the one ``ret``, or from the other arm of a branch to it: compilers
    write ``if (...) { ...; return; }`` in each of these ways."""
    early = f"{SOME}@%p1 ret;\n{TOGETHER[what]}"
    assert _is_right(early, "-1", strict)
    to_the_end = f"{SOME}@%p1 bra L;\n{TOGETHER[what]}\nL:"
    assert _is_right(to_the_end, "-1", strict)
    arm = f"{SOME}@%p1 bra L;\n{TOGETHER[what]}\nbra.uni M;\nL: DOES\nM:"
    assert _is_right(arm.replace("DOES", "st.shared.u32 [%r7], 1;"), "-1", strict)
    wrong = report(_with(arm.replace("DOES", "bar.sync 0;"), "-1"), strict=strict)
    assert wrong.rules == {"participation"}
    assert lines(wrong) == [2]


@pytest.mark.parametrize("strict", BOTH)
@pytest.mark.parametrize("what", [name for name in TOGETHER if name != "bar.warp.sync"])
def test_a_lane_is_in_its_own_mask(what: str, strict: Strict) -> None:
    wrong = report(SOME + _with(TOGETHER[what], "0xffff"), strict=strict)
    assert wrong.rules == {"participation"}
    assert lines(wrong) == [1]
    assert _is_right(SOME + TOGETHER[what], "-1", strict)


@pytest.mark.parametrize(
    ("low", "high", "right"),
    [("0xffff", "0xffff0000", True), ("0x1ffff", "0xffff0000", False), ("0xffff", "-1", False)],
)
@pytest.mark.parametrize("what", ["shfl.sync.bfly", "vote.sync", "match.sync", "redux.sync"])
def test_lanes_with_different_masks(what: str, low: str, high: str, right: bool) -> None:
    masks = f"setp.lt.u32 %p2, %r2, 16; selp.b32 %r6, {low}, {high}, %p2;\n"
    found = report(SOME + masks + _with(TOGETHER[what], "%r6"))
    assert found.rules == (set() if right else {"participation"})
    if not right:
        assert lines(found) == [2]


@pytest.mark.parametrize(
    ("some", "reads", "right"),
    [
        ("lt.u32 %p2, %r2, 8", "shfl.sync.down.b32 %r3, %r2, 4, 0x181f, 0xff;", True),
        ("lt.u32 %p2, %r2, 8", "shfl.sync.down.b32 %r3, %r2, 4, 31, 0xff;", False),
        ("ge.u32 %p2, %r2, 8", "shfl.sync.up.b32 %r3, %r2, 4, 0x1800, 0xffffff00;", True),
        ("ge.u32 %p2, %r2, 8", "shfl.sync.up.b32 %r3, %r2, 4, 0, 0xffffff00;", False),
        ("ge.u32 %p2, %r2, 24", "shfl.sync.idx.b32 %r3, %r2, 2, 0x181f, 0xff000000;", True),
        ("ge.u32 %p2, %r2, 24", "shfl.sync.idx.b32 %r3, %r2, 2, 31, 0xff000000;", False),
        ("ge.u32 %p2, %r2, 24", "shfl.sync.bfly.b32 %r3, %r2, 4, 31, 0xff000000;", True),
        ("ge.u32 %p2, %r2, 24", "shfl.sync.bfly.b32 %r3, %r2, 8, 31, 0xff000000;", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("strict", BOTH)
def test_nothing_comes_from_lanes_outside_of_the_mask(
    some: str, reads: str, right: bool, strict: Strict
) -> None:
    found = report(f"{SOME}setp.{some}; @!%p2 bra L;\n{reads}\nL:", strict=strict)
    assert found.rules == (set() if right else {"participation"})
    if not right:
        assert lines(found) == [2]


@pytest.mark.parametrize("lanes", [20, 12])
def test_a_mask_that_lanes_have_voted_for(lanes: int) -> None:
    """The mask is that of the lanes below 20; it is executed by those, or by fewer."""
    vote = "setp.lt.u32 %p2, %r2, 20; vote.sync.ballot.b32 %r6, %p2, -1;\n"
    body = f"{vote}setp.lt.u32 %p3, %r2, {lanes}; @!%p3 bra L;\n{TOGETHER['shfl.sync.idx']}\nL:"
    found = report(f"{SOME}{_with(body, '%r6')}\nbar.warp.sync -1;")
    assert found.rules == (set() if lanes == 20 else {"participation"})


@pytest.mark.parametrize("what", ["shfl.sync.bfly", "vote.sync", "match.sync", "redux.sync"])
def test_lanes_that_execute_it_at_several_places(what: str) -> None:
    """They wait for each other as long as qualifiers and mask are the same: no finding, and no
    verdict."""
    body = f"{SOME}@%p1 bra L;\n{TOGETHER[what]}\nbra M;\nL: {TOGETHER[what]}\nM:"
    assert report(_with(body, "-1")).verdict == "unsupported"
    other = body.replace("MASK", "0xfff", 1).replace("MASK", "0xfffff000", 1)
    assert report(other).verdict == "proved"


@pytest.mark.parametrize(
    "what",
    [
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1,%f1,%f1,%f1}, "
        "{%r2,%r2,%r2,%r2}, {%r2,%r2}, {%f2,%f2,%f2,%f2};",
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r5];",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {%r3};",
    ],
)
def test_what_is_undefined_if_a_lane_has_exited(what: str) -> None:
    """PTX says so of products and of loads and stores of matrices, and of these only."""
    fill = "mov.f32 %f2, 0f00000000; shl.b32 %r6, %r2, 4; add.u32 %r5, %r5, %r6; mov.b32 %r3, 0;\n"
    fill += "mov.b64 %rd1, 0; st.shared.v2.b64 [%r5], {%rd1, %rd1}; bar.warp.sync -1;\n"
    assert report(f"{SOME}{fill}{what}").verdict == "proved"
    wrong = report(f"{SOME}{fill}@%p1 ret;\n{what}")
    assert wrong.rules == {"participation"}
    assert lines(wrong) == [4]
