"""What lanes of a warp exchange, and special registers that no launch says."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import HEAD, WAIT, lines, report
from tilesim.checker import Report, check
from tilesim.ptx.launch import Launch, Pointer, Triple
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower


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


# Addresses that some lanes hold for all: a lane for each stage, and a number in the others.


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


# CTAs whose last warp has fewer than 32 threads.


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
