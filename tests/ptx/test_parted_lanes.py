"""Lanes that have not met since a branch come to barriers of the CTA and the cluster."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, program, report
from tilesim.checker import Report
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Pointer
from tilesim.sim.machine.simulate import Simulation
from tilesim.sim.schedulers.exhaustive import explore
from tilesim.sim.schedulers.frontier import Limits

#: %r4 is a word of each thread's own; lanes 0 and 1 of the first warp have parted from the others
START = """\
mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, smem; add.u32 %r4, %r3, %r2;
setp.gt.u32 %p1, %r1, 1; setp.ge.u32 %p2, %r1, 32; setp.gt.u32 %p3, %r1, 33;
@%p1 bra A;
st.shared.u32 [%r4+1200], %r1;
A:
"""
STORE = "@%p1 st.shared.u32 [%r4], %r1;\n"
#: the first warp hands over by ``arrive``, the second one comes after it by ``wait``
HANDED = "@%p2 bra B;\n{before}{arrive}\n{after}{then}\nbra.uni E;\nB: {wait}\n" \
    "@%p3 ld.shared.u32 %r6, [%r4-128];\nE: mov.u32 %r7, 0;\n"  # fmt: skip
BARRIERS = {
    "named": ("bar.arrive 1, 64;", "", "bar.sync 1, 64;"),
    "cluster": (
        "barrier.cluster.arrive;",
        "barrier.cluster.wait;",
        "barrier.cluster.arrive; barrier.cluster.wait;",
    ),
}


@pytest.mark.parametrize("barrier", BARRIERS)
def test_no_lane_hands_over_what_it_does_after_it_has_arrived(barrier: str) -> None:
    arrive, then, wait = BARRIERS[barrier]

    def run(before: str, after: str) -> Report:
        body = HANDED.format(before=before, arrive=arrive, after=after, then=then, wait=wait)
        return report(START + body, warps=2)

    assert run(STORE, "").verdict == "proved"
    late = run("", STORE)
    assert late.rules == {"race"}
    assert lines(late) == [7, 11]


NEXT = "xor.b32 %r5, %r4, 4;\nld.shared.u32 %r6, [%r5];\n"
OWN = "st.shared.u32 [%r4], %r1;\n"


@pytest.mark.parametrize("aligned", ["", ".aligned"])
def test_a_cluster_barrier_orders_the_lanes_of_a_warp(aligned: str) -> None:
    arrive, wait = f"barrier.cluster.arrive{aligned};\n", f"barrier.cluster.wait{aligned};\n"

    def run(*parts: str) -> Report:
        return report(START + "".join(parts) + NEXT, warps=2, cluster=2, grid=2)

    assert run(arrive, wait, OWN, arrive, wait).verdict == "proved"
    for parts in (
        (arrive, wait, OWN),
        (arrive, wait, arrive, OWN, wait),
        (arrive, wait, OWN, arrive.replace("arrive", "arrive.relaxed"), wait),
    ):
        wrong = run(*parts)
        assert wrong.rules == {"race"}
        assert lines(wrong) == [5 + parts.index(OWN), 6 + len(parts)]


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_lanes_that_pass_by_a_wait_at_the_cluster_barrier_arrive_again(strict: Strict) -> None:
    """Each thread waits for a round before it arrives at the next one (D2)."""
    arrive, wait = "barrier.cluster.arrive;\n", "barrier.cluster.wait;\n"
    for guard, rules in (("", set()), ("@%p1 ", {"named-barrier"})):
        body = START + arrive + guard + wait + OWN + arrive + wait + NEXT
        found = report(body, warps=2, cluster=2, grid=2, strict=strict)
        assert found.rules == rules
        assert found.verdict == ("failed" if rules else "proved")


#: lanes 0 and 1 wait for lane 5 at an mbarrier, before they wait for the cluster
_MBARRIER = """setp.eq.u32 %p4, %r1, 0; setp.eq.u32 %p6, %r1, 5; mov.u32 %r7, 1;
@%p4 mbarrier.init.shared::cta.b64 [%r3+2048], %r7; bar.sync 0;
barrier.cluster.arrive;
@%p1 bra B;
W: mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r3+2048], 0; @!%p5 bra W;
B: {before}barrier.cluster.wait;
{after}
"""


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_a_wait_at_the_cluster_barrier_is_one_for_the_lanes_of_the_warp(strict: Strict) -> None:
    """As its arrival is (D3)."""
    tells = "@%p6 mbarrier.arrive.shared::cta.b64 _, [%r3+2048]; "

    def run(before: str, after: str) -> Report:
        body = _MBARRIER.format(before=before, after=after)
        return report(START + body, warps=1, strict=strict)

    assert run(tells, "").verdict == "proved"
    wrong = run("", tells)
    assert wrong.rules == {"deadlock"}


def test_a_wait_at_the_cluster_barrier_is_for_no_lane_that_has_ended() -> None:
    """Lanes 0 and 1 end when the second warp has told them to, the others wait before that."""
    text = _MBARRIER.replace("eq.u32 %p6, %r1, 5", "eq.u32 %p6, %r1, 33")
    body = text.format(before="", after="").replace("bra W;\n", "bra W; ret;\n")
    first = "barrier.cluster.arrive;\n"
    late = "@!%p6 bra T; @%p6 mbarrier.arrive.shared::cta.b64 _, [%r3+2048];\nT: "
    assert report(START + body.replace(first, first + late), warps=2).verdict == "proved"
    assert report(START + body, warps=2).rules == {"deadlock"}


COPY = "ld.param.u64 %rd1, [x];\ncp.async.ca.shared.global [%r4], [%rd1], 4;\n"
DONE = "cp.async.wait_all;\n"


def test_copies_that_lanes_waited_for_after_they_arrived_are_known_to_each_alone() -> None:
    arrive, wait = "barrier.cluster.arrive;\n", "barrier.cluster.wait;\n"

    def run(*parts: str) -> Report:
        body = START + arrive + wait + COPY + "".join(parts) + NEXT
        return report(body, warps=2, params=(".param .u64 x",), values=(Pointer("x", 64),))

    assert run(DONE, arrive, wait).verdict == "proved"
    wrong = run(arrive, DONE, wait)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [8, 13]


#: a lane that has waited for the cluster copies; the others of its warp have not, and go on
VISIBLE = """mov.u32 %r1, smem; mov.u32 %r2, 1; mov.u32 %r4, %tid.x; setp.eq.u32 %p0, %r4, 0;
@%p0 mbarrier.init.shared::cta.b64 [%r1], %r2;
barrier.cluster.arrive.release.aligned;
setp.lt.u32 %p3, %r4, 32; setp.eq.u32 %p4, %r4, 32; ld.param.u64 %rd1, [a]; add.u32 %r5, %r1, 128;
@%p3 bra USE;
@!%p4 bra OTHERS;
{waits}
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 64;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], 64, [%r1];
bra END;
OTHERS: ld.relaxed.gpu.global.u32 %r7, [%rd1];
bra END;
USE: barrier.cluster.wait.acquire.aligned;
L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;
@!%p1 bra L;
END:
"""


def test_a_copy_completes_for_the_lane_that_has_issued_it() -> None:
    """What the others of its warp know then does not matter."""

    def copied(waits: str) -> Report:
        return report(
            VISIBLE.format(waits=waits), warps=2, cluster=2, grid=2, params=(".param .u64 a",),
            values=(Pointer("a", 64),),
        )  # fmt: skip

    right = copied("barrier.cluster.wait.acquire;")
    assert right.verdict == "proved", (right.reasons, right.findings)
    wrong = copied("")
    assert wrong.rules == {"init-visibility"}
    assert lines(wrong) == [1, 7]


#: lane 0 has parted from the others of the first warp where all of them store one number; some of
#: them arrive at the mbarrier that the second warp waits for
SAME = """\
mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p2, %r2, 0; setp.lt.u32 %p3, %r2, 32;
add.u32 %r4, %r1, 256; mov.u32 %r5, 1;
@%p2 mbarrier.init.shared::cta.b64 [%r4], {count};
bar.sync 0;
@!%p3 bra OTHER;
@!%p2 bra APART;
fence.acq_rel.cta;
APART: st.shared.u32 [%r1], %r5;
{who} mbarrier.arrive.shared::cta.b64 _, [%r4];
bra DONE;
OTHER:
L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r4], 0;
@!%p1 bra L;
ld.shared.u32 %r6, [%r1];
DONE:
"""


@pytest.mark.parametrize(("who", "count"), [("@%p2", 1), ("@!%p2", 31)])
def test_what_each_part_stores_has_to_be_handed_over(who: str, count: int) -> None:
    """Lanes that make one store as parts do not stand in for each other, whichever comes last."""
    assert report(SAME.format(who="", count=32), warps=2).verdict == "proved"
    wrong = report(SAME.format(who=who, count=count), warps=2)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [7, 13]


BRANCH = """\
mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p2, %r2, 0;
@!%p2 bra M;
st.shared.b32 [%r1], %r2;
{before}
M: {behind}
"""


@pytest.mark.parametrize(
    ("before", "behind", "fails"),
    [("", "bar.warp.sync -1;", False), ("bar.warp.sync -1;", "bar.warp.sync 1;", True)],
)
def test_a_lane_on_its_own_way_meets_the_others_behind_a_branch(
    before: str, behind: str, fails: bool
) -> None:
    """The copy of the code that the others execute ends by ``ret``, where no lanes of both meet."""
    loaded = program(BRANCH.format(before=before, behind=behind))
    apart = Simulation(loaded, numbers=False, strict="practice").lanes_apart(0, 1)
    assert (explore(apart, [0], {}, Limits(10_000, 100)).failure is not None) is fails


MATRIX = """\
mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p2, %r2, 0; shl.b32 %r3, %r2, 4;
add.u32 %r4, %r1, %r3; xor.b32 %r5, %r4, 16; mov.u32 %r9, 0;
st.shared.v4.b32 [%r4], {{%r9,%r9,%r9,%r9}};
bar.warp.sync -1;
@!%p2 bra APART;
fence.acq_rel.cta;
APART: ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r10,%r11,%r12,%r13}}, [%r4];
{sync}
stmatrix.sync.aligned.m8n8.x4.shared.b16 [{row}], {{%r10,%r11,%r12,%r13}};
"""


def test_a_lane_on_its_own_has_what_it_has_read_itself() -> None:
    """Each lane stores the row that it has read, in parts of a warp as well as together."""
    assert report(MATRIX.format(sync="", row="%r4")).verdict == "proved"
    assert report(MATRIX.format(sync="bar.warp.sync -1;", row="%r5")).verdict == "proved"
    wrong = report(MATRIX.format(sync="", row="%r5"))
    assert wrong.rules == {"race"}
    assert lines(wrong) == [6, 8]


#: the warp stores rows together, each lane reads one
ROW_READ = """\
mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 4; add.u32 %r4, %r1, %r3;
xor.b32 %r5, %r4, 16; mov.u32 %r9, 0;
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r4], {{%r9,%r9,%r9,%r9}};
{sync}
ld.shared.b32 %r10, [{row}];
"""


def test_a_row_that_the_warp_has_stored_is_of_the_lane_that_names_it() -> None:
    """PTX does not say of which lane it is (E23); what another one names needs an order."""
    assert report(ROW_READ.format(sync="", row="%r4")).verdict == "proved"
    assert report(ROW_READ.format(sync="bar.warp.sync -1;", row="%r5")).verdict == "proved"
    assert report(ROW_READ.format(sync="", row="%r5")).rules == {"race"}


#: a warp loads rows; the lane that says so to another warp, which stores into the sixth, names none
#: but the first
RELEASED = """\
mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p2, %r2, 0; setp.lt.u32 %p3, %r2, 32;
shl.b32 %r3, %r2, 4; add.u32 %r4, %r1, %r3; mov.u32 %r9, 0; add.u32 %r8, %r1, 2048;
@%p2 mbarrier.init.shared::cta.b64 [%r8], 1;
@%p3 st.shared.v4.b32 [%r4], {{%r9,%r9,%r9,%r9}};
bar.sync 0;
@!%p3 bra OTHER;
{load}
{sync}
@%p2 mbarrier.arrive.shared::cta.b64 _, [%r8];
bra DONE;
OTHER:
L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r8], 0;
@!%p1 bra L;
st.shared.b32 [%r1+80], %r2;
DONE:
"""
LOADS = (
    "ld.shared.v4.b32 {%r10,%r11,%r12,%r13}, [%r4];",
    "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10,%r11,%r12,%r13}, [%r4];",
    "wmma.load.a.sync.aligned.row.m8n8k32.shared.s4 {%r10}, [%r1], 32;",
)


@pytest.mark.parametrize("load", LOADS)
def test_lanes_meet_before_one_says_what_all_have_loaded(load: str) -> None:
    """An instruction that all lanes execute together orders no memory (E23, E26)."""
    assert report(RELEASED.format(load=load, sync="bar.warp.sync -1;"), warps=2).verdict == "proved"
    wrong = report(RELEASED.format(load=load, sync=""), warps=2)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [6, 13]
