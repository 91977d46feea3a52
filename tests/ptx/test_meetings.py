"""One lane that acts between two barriers at which its warp waits: the others do nothing meanwhile.

So a warp is one part where nvcc's ``if (threadIdx.x == 0) { ... } __syncthreads();`` splits it.
"""

from __future__ import annotations

import pytest

from tests.ptx.test_check import program, report
from tilesim.analysis.cfg import graph_of
from tilesim.analysis.divergence import parts_of
from tilesim.checker import check
from tilesim.ptx.launch import Pointer

CTA = "bar.sync 0;"
CLUSTER = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;"
SELF = "mov.u32 %r1, smem; mov.u32 %r4, %tid.x; setp.ne.u32 %p0, %r4, 0;"
#: one lane stores, all load what it has stored
AROUND = f"{SELF}\n{{before}}\n@%p0 bra MET;\nst.shared.u32 [%r1], 1;\nMET:\n{{behind}}\n"
LOADS = "ld.shared.u32 %r5, [%r1];"


@pytest.mark.parametrize("before", ["", CTA, CLUSTER, "bar.warp.sync -1;"])
@pytest.mark.parametrize("behind", [CTA, CLUSTER, "bar.red.popc.u32 %r6, 0, %p0;"])
def test_a_warp_is_one_part(before: str, behind: str) -> None:
    body = AROUND.format(before=before, behind=f"{behind}\n{LOADS}")
    assert not parts_of(graph_of(program(body, cluster=2, grid=2)))
    assert report(body, cluster=2, grid=2).verdict == "proved"


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        (f"{CTA}\nst.shared.u32 [%r1+64], 1;", CTA),
        (CTA, "bar.arrive 1, 64;"),
        (CTA, CLUSTER.replace("release", "relaxed")),
        (CTA, f"st.shared.u32 [%r1+64], 1;\n{CTA}"),
        (CTA, CLUSTER.replace(";\n", f";\n{LOADS}\n")),
        (CTA, f"@%p0 {CTA}"),
        (CTA, CLUSTER.replace(".aligned", "")),
    ],
)
def test_lanes_that_do_more_or_do_not_meet_are_parts(before: str, behind: str) -> None:
    body = AROUND.format(before=before, behind=behind)
    assert parts_of(graph_of(program(body, cluster=2, grid=2)))


@pytest.mark.parametrize("behind", ["", "bar.arrive 1, 64;", CLUSTER.replace("release", "relaxed")])
def test_what_hands_nothing_over(behind: str) -> None:
    found = report(
        AROUND.format(before=CTA, behind=f"{behind}\n{LOADS}"), cluster=2, grid=2, warps=2
    )
    assert found.rules == {"race"}


def test_a_loop_back_to_the_first_instruction_is_no_start() -> None:
    """There lanes have not met: one may be a turn ahead, and store while others load."""
    body = AROUND.format(before="", behind=f"{CTA}\n{LOADS}")
    again = f"AGAIN: {body}setp.lt.u32 %p1, %r5, 2; @%p1 bra AGAIN;"
    assert parts_of(graph_of(program(again)))
    apart = (
        f"{SELF}\nAGAIN: {body}\nadd.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 2; @%p1 bra AGAIN;"
    )
    assert report(f"mov.u32 %r10, 0;\n{apart}").rules == {"race"}
    assert (
        report(f"mov.u32 %r10, 0;\n{apart.replace('add.u32', f'{CTA} add.u32')}").verdict
        == "proved"
    )


#: a follower arrives at one barrier of the leader, and waits for slots that he has used
RENDEZVOUS = f"""
{SELF} mov.u32 %r9, %cluster_ctarank;
@%p0 bra MADE;
mbarrier.init.shared::cta.b64 [%r1], 2; mbarrier.init.shared::cta.b64 [%r1+8], 1;
mbarrier.init.shared::cta.b64 [%r1+16], 1; mbarrier.init.shared::cta.b64 [%r1+24], 1;
fence.mbarrier_init.release.cluster;
MADE: {CLUSTER}
@%p0 bra DONE;
mov.u32 %r10, 0; mov.u32 %r11, 0; mov.u32 %r12, 1; mov.u32 %r13, 0;
mapa.shared::cluster.u32 %r20, %r1, 0; setp.eq.u32 %p1, %r9, 1;
TURN: mad.lo.u32 %r14, %r11, 8, %r1;
@%p1 bra FOLLOW;
mbarrier.arrive.shared::cta.b64 _, [%r1];
LEAD: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r1], %r13; @!%p2 bra LEAD;
xor.b32 %r13, %r13, 1; mapa.shared::cluster.u32 %r15, %r14, 1;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r15+8];
bra.uni NEXT;
FOLLOW: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [%r14+8], %r12;
@!%p2 bra FOLLOW;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r20];
NEXT: add.u32 %r11, %r11, 1; setp.eq.u32 %p4, %r11, {{slots}}; selp.u32 %r11, 0, %r11, %p4;
selp.u32 %r16, 1, 0, %p4; xor.b32 %r12, %r12, %r16;
add.u32 %r10, %r10, 1; setp.lt.u32 %p3, %r10, 5; @%p3 bra TURN;
DONE: {CTA}
{CLUSTER}
"""


@pytest.mark.parametrize(("slots", "right"), [(1, True), (2, True), (3, False)])
def test_a_peer_that_runs_ahead(slots: int, right: bool) -> None:
    """B016: with two slots arrivals may count for each other's phase, and nothing comes of it."""
    found = report(RENDEZVOUS.format(slots=slots).strip(), grid=2, cluster=2)
    assert found.verdict == ("proved" if right else "failed")
    assert right or "deadlock" in found.rules


#: two lanes of a warp that store a half of shared memory each; the second waits for its own
COPIES = f"""
ld.param.u64 %rd1, [x]; {SELF} setp.ne.u32 %p1, %r4, 1; mad.lo.u32 %r5, %r4, 4, %r1;
st.shared.u32 [%r5], 1; st.shared.u32 [%r5+128], 1; fence.proxy.async;
{{meet}}
@%p0 bra FIRST;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 128; cp.async.bulk.commit_group;
FIRST: {{meet}}
@%p1 bra SECOND;
cp.async.bulk.global.shared::cta.bulk_group [%rd1+128], [%r1+128], 128;
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;
SECOND: {{meet}}
st.shared.u32 [%r5+{{at}}], 2;
{{meet}}
@%p0 bra LAST;
cp.async.bulk.wait_group.read 0;
LAST: {{meet}}
st.shared.u32 [%r5], 3;
"""


@pytest.mark.parametrize("meet", [CTA, "bar.warp.sync -1;"])
@pytest.mark.parametrize(("at", "right"), [(128, True), (0, False)])
def test_groups_of_two_lanes(meet: str, at: int, right: bool) -> None:
    """Each lane has waited for its own copy, whichever copies of the other are under way (B29)."""
    body = COPIES.format(meet=meet, at=at).strip()
    loaded = program(body, params=(".param .u64 x",), values=(Pointer("x", 256),))
    found = check(loaded)
    assert found.verdict == ("proved" if right else "failed"), found
    assert right or found.rules == {"race"}


#: each of two lanes copies something and lets its mbarrier say when it is there
TOLD = f"""
ld.param.u64 %rd1, [x]; {SELF} setp.ne.u32 %p1, %r4, 1;
@%p0 bra MADE;
mbarrier.init.shared::cta.b64 [%r1], 1; mbarrier.init.shared::cta.b64 [%r1+8], 1;
MADE: {CTA}
@%p0 bra FIRST;
cp.async.ca.shared.global [%r1+64], [%rd1], 16;
cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1];
FIRST: {CTA}
@%p1 bra SECOND;
cp.async.ca.shared.global [%r1+128], [%rd1+64], 16;
cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r1+8];
SECOND: {CTA}
W: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1+8], 0; @!%p2 bra W;
ld.shared.u32 %r5, [%r1+{{at}}];
"""
LAST = "V: mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0; @!%p2 bra V;\n"


@pytest.mark.parametrize(
    ("at", "last", "rules"),
    [(128, LAST, set()), (64, LAST, {"race"}), (128, "", {"async-at-exit"})],
)
def test_copies_of_two_lanes_that_two_mbarriers_track(at: int, last: str, rules: set[str]) -> None:
    """Who has waited for both knows of both: nothing is under way at the end (C6)."""
    body = f"{TOLD.format(at=at).strip()}\n{last}"
    loaded = program(body, params=(".param .u64 x",), values=(Pointer("x", 256),))
    assert check(loaded).rules == rules
