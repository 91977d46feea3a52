"""Lanes that end where others of their warp go on: behind a branch, in an arm of it, in a turn.

Those that go on store a word each and read the one of a neighbour, right behind a `bar.warp.sync`.
Whatever lets a lane end that goes on, or waits for one that has ended, says something else of the
right kernel, or of its twin without the barrier.
"""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, report
from tilesim.checker import Report

#: %r3: a word of the lane in shared memory, %r4: its neighbour's; %p1: who takes the branch; %p2:
#: who ends, which are pairs of neighbours
START = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r3, %r3, %r1;"
    " xor.b32 %r4, %r3, 4; setp.{taken} %p1, %r2, 5; setp.{ends} %p2, %r2, 9; mov.u32 %r6, 0;"
    " selp.u32 %r7, 1, 0, %p1;\n"
)
OWN = "st.shared.u32 [%r3+1024], %r2;"
OTHER = "st.shared.u32 [%r3+1536], %r2;"
#: by what is in front of the end: the branch, up to where its lanes meet
BRANCHES = {
    "a jump over an arm": f"@%p1 bra A;\n{OWN}\nA: ",
    "an arm behind": f"@%p1 bra B;\nbra.uni A;\nB: {OWN}\nA: ",
    "two arms": f"@%p1 bra B;\n{OWN}\nbra.uni A;\nB: {OTHER}\nA: ",
    "an arm in an arm": f"@%p1 bra A;\n{OWN}\nsetp.gt.u32 %p3, %r2, 2;\n@%p3 bra A;\n{OTHER}\nA: ",
    "a table": f"T: .branchtargets B, A;\nbrx.idx %r7, T;\nB: {OWN}\nA: ",
    "turns": f"B: {OWN}\nadd.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, %r2;\n@%p3 bra B;\nA: ",
    "nothing": "A: ",
}
ENDS = {
    "some exit": "@%p2 exit;\n",
    "some return": "@%p2 ret;\n",
    "some exit behind a branch": "@!%p2 bra C;\nexit;\nC: ",
    "some exit in an arm that does more": f"@!%p2 bra C;\n{OTHER}\nret;\nC: ",
    "none": "",
}
STORE, LOAD = "st.shared.u32 [%r3], %r2;\n", "ld.shared.u32 %r5, [%r4];\n"
#: which lanes take the branch, and which end
TAKEN = (("ne.u32", "gt.u32"), ("gt.u32", "le.u32"), ("le.u32", "gt.u32"))


def check(branch: str, end: str, taken: str, ends: str, *, sync: bool) -> tuple[Report, list[int]]:
    """What is said, and the lines of the store and the load of those that go on."""
    before = START.format(taken=taken, ends=ends) + BRANCHES[branch] + ENDS[end]
    first = before.count("\n")
    middle = "bar.warp.sync -1;\n" if sync else ""
    return report(before + STORE + middle + LOAD), [first, first + 1 + sync]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("branch", BRANCHES)
def test_lanes_that_go_on_where_others_end(branch: str, end: str) -> None:
    for taken, ends in TAKEN:
        right, _ = check(branch, end, taken, ends, sync=True)
        assert right.verdict == "proved"
        wrong, places = check(branch, end, taken, ends, sync=False)
        assert wrong.rules == {"race"}
        assert lines(wrong) == places
