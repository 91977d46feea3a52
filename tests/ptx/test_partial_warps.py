"""CTAs whose last warp has fewer than 32 threads."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import HEAD, lines
from tilesim.checker import Report, check
from tilesim.ptx.launch import Launch, Triple
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

THREADS = 40
START = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3;\n"
    "st.shared.u32 [%r4], %r2;\n"
)
#: thread 0 loads what the last one has stored
LAST = "setp.eq.u32 %p1, %r2, 0;\n@%p1 ld.shared.u32 %r5, [%r1+156];\n"


def run(body: str, block: Triple = (THREADS, 1, 1), shared: int = 4 * THREADS) -> Report:
    module = read(f"{HEAD.format(params='')}{body}\nret;\n}}\n", "k.ptx")
    launch = Launch("k", (1, 1, 1), block, dynamic_shared=shared)
    return check(lower(module, module.entries[0], launch))


def test_lanes_that_there_are_not_access_nothing() -> None:
    """All 40 words are there; the 41st is not."""
    assert run(START).verdict == "proved"
    wrong = run(START.replace("[%r4]", "[%r4+4]"))
    assert wrong.rules == {"out-of-bounds"}
    assert lines(wrong) == [1]


def test_a_vote_is_one_of_the_lanes_that_there_are() -> None:
    """Each lane of the second warp finds 8 of its kind."""
    votes = START + (
        "vote.sync.ballot.b32 %r6, 1, -1; popc.b32 %r7, %r6; setp.eq.u32 %p2, %r7, {lanes};\n"
        "setp.lt.u32 %p3, %r2, 32; or.pred %p4, %p2, %p3;\n@!%p4 trap;\n"
    )
    assert run(votes.format(lanes=8)).verdict == "proved"
    wrong = run(votes.format(lanes=32))
    assert wrong.verdict == "unsupported"  # the trap
    assert lines(wrong) == [4]


@pytest.mark.parametrize("block", [(5, 8, 1), (2, 4, 5)])
def test_threads_of_a_block_in_several_dimensions(block: Triple) -> None:
    x, y, _ = block
    number = (
        f"mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mov.u32 %r6, %tid.y; mad.lo.u32 %r2, %r6, {x}, "
        f"%r2; mov.u32 %r6, %tid.z; mad.lo.u32 %r2, %r6, {x * y}, %r2; shl.b32 %r3, %r2, 2; "
        "add.u32 %r4, %r1, %r3;\nst.shared.u32 [%r4], %r2;\n"
    )
    assert run(number + "bar.sync 0;\n" + LAST, block).verdict == "proved"
    assert run(number + "\n" + LAST, block).rules == {"race"}


def test_what_a_whole_warp_has_to_execute() -> None:
    """``setmaxnreg`` takes every thread of a warpgroup; of one warp there is a part only."""
    assert run("setmaxnreg.dec.sync.aligned.u32 24;\n", (128, 1, 1)).verdict == "proved"
    assert run("setmaxnreg.dec.sync.aligned.u32 24;\n", (120, 1, 1)).verdict != "proved"


#: threads from 36 on leave, before the others store and meet
RETURNS = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3;\n"
    "setp.ge.u32 %p2, %r2, 36; @%p2 bra OUT;\n"
    "st.shared.u32 [%r4], %r2;\n{meet}\nsetp.eq.u32 %p1, %r2, 0;\n"
    "@%p1 ld.shared.u32 %r5, [%r1+140];\nOUT:\n"
)


@pytest.mark.parametrize("leaves", ["@%p2 bra OUT;", "@%p2 exit;", "@%p2 ret;"])
def test_threads_that_return_before_a_barrier(leaves: str) -> None:
    """The one ``ret`` of a kernel is where they go, and all that they do there (E2, E9)."""
    body = RETURNS.replace("@%p2 bra OUT;", leaves)
    assert run(body.format(meet="bar.sync 0;")).verdict == "proved"
    wrong = run(body.format(meet=""))
    assert wrong.rules == {"race"}
    assert lines(wrong) == [2, 5]


def test_threads_that_do_more_before_they_return() -> None:
    """Whichever arm stands first: its lanes have ended when the others wait for them."""
    arms = (
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3;\n"
        "setp.lt.u32 %p2, %r2, 36; @%p2 bra MEET;\n"
        "st.shared.u32 [%r4], 7;{last}\nbra.uni OUT;\n"
        "MEET: bar.sync 0;\nst.shared.u32 [%r4], %r2;\nOUT:\n"
    )
    assert run(arms.format(last="")).verdict == "proved"
    wrong = run(arms.format(last=" bar.sync 0;"))
    assert wrong.rules == {"participation"}


def test_threads_that_wait_elsewhere_have_not_returned() -> None:
    """Behind the branch all go on: a barrier in one arm is executed by part of a warp."""
    body = RETURNS.replace("OUT:", "OUT: st.shared.u32 [%r4], 1;").format(meet="bar.sync 0;")
    assert run(body).rules == {"participation"}
