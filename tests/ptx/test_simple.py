"""What is read off PTX before it runs: which predicates decide, what differs between lanes, and
whether it matters which one is elected."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import WAIT, lines, program, report
from tests.ptx.test_tiles import START
from tests.sim.sites import BOTH
from tilesim.analysis.cfg import graph_of
from tilesim.analysis.divergence import parts_of
from tilesim.analysis.elected_lane import depends_on_elected
from tilesim.analysis.uniformity import diverging
from tilesim.checker import Report, check
from tilesim.ir.mir import Branch
from tilesim.ptx.launch import Pointer
from tilesim.sim.machine.execute.wgmma import in_a_row

ELECT = "elect.sync _|%p0, -1; selp.u32 %r6, 1, 0, %p0; setp.eq.s32 %p3, %r6, 0;\n"
ARRIVES = (
    "mov.u32 %r1, smem; mov.u32 %r2, 1; mov.u32 %r9, %tid.x;\n{before}\n{elect}@%p3 bra OUT;\n"
    "mbarrier.init.shared::cta.b64 [%r1], %r2;\nmbarrier.arrive.shared::cta.b64 _, [%r1];\n"
    "OUT:\nbar.warp.sync -1;\n"
)


@pytest.mark.parametrize(
    ("text", "differs"),
    [
        ("shr.u32 %r6, %r5, 5;", False),
        ("shr.u32 %r6, %r5, 4;", True),
        ("and.b32 %r6, %r5, -32;", False),
        ("and.b32 %r6, %r5, -16;", True),
        ("add.u32 %r7, %r5, 64; shr.u32 %r6, %r7, 6;", False),
        ("add.u32 %r7, %r5, 16; shr.u32 %r6, %r7, 6;", True),
        ("div.u32 %r6, %r5, 96;", False),
        ("div.u32 %r6, %r5, 48;", True),
        ("shl.b32 %r7, %r5, 1; shr.u32 %r6, %r7, 5;", True),
        ("setp.lt.s32 %p1, %r5, 64; selp.u32 %r6, 1, 2, %p1;", False),
        ("setp.lt.s32 %p1, %r5, 65; selp.u32 %r6, 1, 2, %p1;", True),
        ("setp.gt.u32 %p1, %r5, 31; selp.u32 %r6, 1, 2, %p1;", False),
        ("setp.gt.u32 %p1, %r5, 32; selp.u32 %r6, 1, 2, %p1;", True),
        ("shfl.sync.idx.b32 %r6|%p1, %r5, 0, 31, -1;", False),
        ("shfl.sync.idx.b32 %r6|%p1, %r5, 0, 0x1f1f, -1;", True),
        ("shfl.sync.bfly.b32 %r6, %r5, 1, 31, -1;", True),
        ("mov.u32 %r7, %ctaid.x; mul.hi.s32 %r6, %r7, 715827883;", False),
        ("mul.hi.s32 %r6, %r5, 715827883;", True),
    ],
)  # fmt: skip
def test_registers_that_are_the_same_in_all_lanes_of_a_warp(text: str, differs: bool) -> None:
    stores = "st.shared.u32 [%r1], %r6; st.shared.u32 [%r1+4], %r6;"
    body = f"mov.u32 %r5, %tid.x; mov.u32 %r1, smem;\n{text}\n{stores}"
    found = diverging(graph_of(program(body, warps=4)))
    assert ("r6" in found.names) is differs


@pytest.mark.parametrize(("after", "differs"), [("", False), ("mov.u32 %r8, %r7;", True)])
def test_what_only_some_lanes_count_differs_where_all_read_it(after: str, differs: bool) -> None:
    body = (
        f"mov.u32 %r1, smem;\nbar.warp.sync -1;\n{ELECT}@%p3 bra OUT;\nmov.u32 %r7, 0;\n"
        "LOOP: add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 3;\n@%p4 bra LOOP;\n"
        f"OUT:\nbar.warp.sync -1;\n{after}\nst.shared.u32 [%r1], %r8;"
    )
    graph = graph_of(program(body))
    assert ("r7" in diverging(graph).names) is differs
    assert bool(parts_of(graph)) is differs


def test_a_predicate_that_goes_through_a_number_decides_itself() -> None:
    mir = program(ARRIVES.format(before="bar.warp.sync -1;", elect=ELECT))
    ((branch,),) = ([i.what for i in mir.code if isinstance(i.what, Branch)],)
    assert (str(branch.cond), branch.sense) == ("%p0", False)
    assert not {"r6", "p3"} & set(mir.setters)
    changed = ELECT.replace("setp", "add.u32 %r6, %r6, %r2; setp")
    mir = program(ARRIVES.format(before="bar.warp.sync -1;", elect=changed))
    ((branch,),) = ([i.what for i in mir.code if isinstance(i.what, Branch)],)
    assert str(branch.cond) == "(%r6 == 0)"


@pytest.mark.parametrize(
    ("before", "matters"),
    [
        ("bar.warp.sync -1;", False),
        ("bar.sync 0;", False),
        ("", False),
        ("mov.u32 %r3, 5;", False),
        ("add.u32 %r4, %r1, %r9; st.shared.u8 [%r4+64], %r2;", True),
        ("add.u32 %r4, %r1, %r9; st.shared.u8 [%r4+64], %r2; bar.warp.sync -1;", False),
        ("add.u32 %r4, %r1, %r9; st.shared.u8 [%r4+64], %r2; bar.warp.sync 1;", True),
        ("setp.eq.u32 %p4, %r9, 0; @%p4 st.shared.u8 [%r1+64], %r2;", True),
        ("setp.eq.u32 %p4, %r9, 0; @%p4 st.shared.u8 [%r1+64], %r2; bar.sync 0;", False),
    ],
)  # fmt: skip
def test_which_lane_is_elected_matters_where_something_tells_lanes_apart(
    before: str, matters: bool
) -> None:
    mir = program(ARRIVES.format(before=before, elect=ELECT))
    assert bool(depends_on_elected(graph_of(mir))) is matters


def test_what_an_elected_lane_has_of_its_own_matters() -> None:
    """The elected lane waits for copies that each lane has made, or for its own."""
    copies = (
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; ld.param.u64 %rd1, [a];\n{every}bar.warp.sync -1;"
        "\nelect.sync _|%p0, -1;\n@!%p0 bra OUT;\n{one}cp.async.wait_all;\n"
        "OUT:\nbar.warp.sync -1;\n"
    )
    copy = "cp.async.ca.shared.global [%r1], [%rd1], 16;\n"
    params = (".param .u64 a",)
    for every, one, matters in (("", copy, False), (copy, "", True)):
        body = copies.format(every=every, one=one)
        mir = program(body, params=params, values=(Pointer("a", 64),))
        assert bool(depends_on_elected(graph_of(mir))) is matters


def test_a_proof_that_only_the_first_lane_gives_says_so() -> None:
    """Lane 0 writes a word; without a meeting it is the elected lane's only if that is lane 0."""
    body = (
        "mov.u32 %r1, smem; mov.u32 %r9, %tid.x; setp.eq.u32 %p4, %r9, 0;\n"
        "@%p4 st.shared.u32 [%r1], %r9;\n{meet}{elect}@%p3 bra OUT;\nst.shared.u32 [%r1], 5;\n"
        "OUT:\nbar.warp.sync -1;\n"
    )
    apart = report(body.format(meet="", elect=ELECT))
    assert (apart.verdict, apart.conditions) == ("proved", ("E12",))
    met = report(body.format(meet="bar.warp.sync -1;\n", elect=ELECT))
    assert (met.verdict, met.conditions) == ("proved", ())


@pytest.mark.parametrize(("place", "practice", "ptx"), [
    ("add.u32 %r4, %r1, 8;", "proved", "proved"),
    ("and.b32 %r5, %r9, 8; add.u32 %r4, %r1, %r5;", "failed", "failed"),
    ("not.b32 %r5, %r9; and.b32 %r5, %r5, 8; add.u32 %r4, %r1, %r5;", "proved", "failed"),
])  # fmt: skip
def test_an_elected_lane_that_arrives_by_its_number(place: str, practice: str, ptx: str) -> None:
    """Lane 31 at the second mbarrier, which is waited for, and lane 0 at the first one; or not."""
    body = (
        "mov.u32 %r1, smem; mov.u32 %r2, 1; mov.u32 %r9, %tid.x; setp.ne.u32 %p4, %r9, 0;\n"
        "@%p4 bra START;\nmbarrier.init.shared::cta.b64 [%r1], %r2;\n"
        "mbarrier.init.shared::cta.b64 [%r1+8], %r2;\nSTART:\nbar.warp.sync -1;\n"
        f"{ELECT}@%p3 bra OUT;\n{place}\nmbarrier.arrive.shared::cta.b64 _, [%r4];\n"
        "OUT:\nbar.warp.sync -1;\nWAIT:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 %p5, [%r1+8], 0;\n@!%p5 bra WAIT;\n"
    )
    found = {strict: check(program(body), strict=strict) for strict in BOTH}
    assert {s: r.verdict for s, r in found.items()} == {"practice": practice, "ptx": ptx}
    assert {rule for r in found.values() for rule in r.rules} <= {"deadlock"}


@pytest.mark.parametrize(
    ("between", "descriptor", "flag", "together"),
    [
        ("add.u64 %rd5, %rd2, 128;", "%rd5", "%p3", True),
        (
            "add.u64 %rd5, %rd2, 128; setp.ne.u32 %p1, %r2, 0; selp.u32 %r21, 1, 0, %p1;",
            "%rd5",
            "%p3",
            False,
        ),
        ("add.u64 %rd5, %rd2, 128;", "%rd5", "%p1", False),
        ("add.u64 %rd5, %rd2, 128; bar.warp.sync -1;", "%rd5", "%p3", False),
    ],
)
def test_products_that_follow_each_other_are_one_step(
    between: str, descriptor: str, flag: str, together: bool
) -> None:
    """What the second one reads is computed before the first one, unless that reads it, too."""
    first, rest = START.split("wgmma.commit_group", 1)
    start = first.replace("L: ", "mov.u32 %r20, 1; setp.ne.u32 %p3, %r20, 0;\n")
    again = (
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, "
        f"{descriptor}, %rd3, {flag}, 1, 1, 0, 0;\n"
    )
    end = f"{again}wgmma.commit_group{rest}wgmma.wait_group.sync.aligned 0;\n"
    mir = program(f"{start}{between}\n{end}", warps=4)
    assert [len(row) for row, _ in in_a_row(mir)] == ([2] if together else [])
    assert check(mir).verdict == "proved"
    read = "add.f32 %f8, %f1, %f1; st.shared.f32 [%r4], %f8;\n"
    early = end.replace("wgmma.wait_group", f"{read}wgmma.wait_group")
    wrong = check(program(f"{start}{between}\n{early}", warps=4))
    assert wrong.rules >= {"wgmma-order"}


@pytest.mark.parametrize(("mask", "rule"), [("-1", set()), ("0xffff", {"participation"})])
def test_what_lanes_exchange_and_nobody_needs_is_exchanged_by_those_of_the_mask(
    mask: str, rule: set[str]
) -> None:
    body = f"mov.f32 %f1, 0f3F800000; shfl.sync.bfly.b32 %r3|%p4, %r4, 1, 31, {mask};"
    assert report(f"mov.u32 %r4, %tid.x;\n{body}").rules == rule


@pytest.mark.parametrize("width", ["u8", "u64"])
def test_a_buffer_of_no_bytes_is_nowhere(width: str) -> None:
    """It used to be one byte long."""
    body = f"ld.param.u64 %rd1, [p];\nld.global.{width} %{'r' if width == 'u8' else 'rd'}2, [%rd1];"
    found = report(body, params=(".param .u64 p",), values=(Pointer("x", 0),))
    assert found.rules == {"out-of-bounds"}
    assert lines(found) == [1]
    whole = report(body, params=(".param .u64 p",), values=(Pointer("x", 8),))
    assert whole.verdict == "proved"


@pytest.mark.parametrize(
    ("null", "access"),
    [
        ("@{not_}%p1 bra END;", "st.global.u32 [%rd4], 1;"),
        ("", "@{not_}%p1 bra END; st.global.u32 [%rd4], 1;"),
        (
            "cvta.to.global.u64 %rd4, %rd4;",
            "@{not_}%p1 bra END; atom.global.add.u32 %r2, [%rd4], 1;",
        ),
        ("not.pred %p2, %p1;", "@{yes}%p2 ld.u32 %r2, [%rd4];"),
    ],
)
def test_an_access_that_a_comparison_with_null_leaves_out(null: str, access: str) -> None:
    """It used to be `bounded`: nobody knew where it was."""
    start = "ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;"
    start += " setp.eq.u64 %p1, %rd1, 0; add.s64 %rd4, %rd1, %rd3;"
    body = f"{start}\n{null}\n{access}\nEND: mov.u32 %r3, 0;"

    def found(nbytes: int, **marks: str) -> Report:
        text = body.format(**marks)
        return report(text, params=(".param .u64 p",), values=(Pointer("x", nbytes),))

    assert found(0, not_="", yes="").verdict == "proved"
    assert found(128, not_="", yes="").verdict == "proved"
    wrong = found(0, not_="!", yes="!")
    assert wrong.rules == {"out-of-bounds"}
    assert lines(wrong) == [2]


def test_an_access_that_nobody_leaves_out_is_to_a_buffer_or_nowhere() -> None:
    """A null pointer in place of an address is none of anything, which a run that uses it says."""
    body = (
        "ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q]; setp.eq.u64 %p1, %rd1, 0;\n"
        "selp.u64 %rd3, {chosen}, %p1; st.global.u32 [%rd3], 1;"
    )
    params, values = (".param .u64 p", ".param .u64 q"), (Pointer("x", 0), Pointer("y", 4))
    found = report(body.format(chosen="%rd2, %rd1"), params=params, values=values)
    assert found.verdict == "proved"
    null = report(body.format(chosen="%rd1, %rd2"), params=params, values=values)
    assert null.rules == {"out-of-bounds"}
    assert lines(null) == [1]


#: an mbarrier for the lanes of CTA 0 below 2, each for one of the pair: with the rank's bits set
RANKS = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; mov.u32 %r9, %cluster_ctarank; elect.sync _|%p0, -1;\n"
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;\n@%p0 fence.mbarrier_init.release.cluster;\n"
    "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
    "setp.lt.u32 %p2, %r2, {lanes}; setp.eq.u32 %p3, %r9, 0; and.pred %p2, %p2, %p3;\n"
    "shl.b32 %r3, %r2, {bit}; and.b32 %r4, %r3, {mask}; xor.b32 %r5, %r4, %r1;\n"
    "@%p2 mbarrier.arrive.shared::cluster.b64 _, [%r5];\n" + WAIT
    + "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
)  # fmt: skip


def test_the_bits_of_a_rank_that_lanes_set_in_an_address() -> None:
    """As Gluon has one CTA arrive for all of its cluster: it used to be `bounded`."""
    right = report(RANKS.format(lanes=2, bit=24, mask=1 << 24), cluster=2, grid=2)
    assert right.verdict == "proved"
    wrong = report(RANKS.format(lanes=1, bit=24, mask=1 << 24), cluster=2, grid=2)
    assert wrong.rules == {"deadlock"}
    first, *_ = wrong.findings[0].participants
    assert first.cta == 1
    assert lines(wrong) == [7, 9]


@pytest.mark.parametrize(("low", "verdict"), [(24, "proved"), (18, "proved"), (17, "bounded")])
def test_a_sum_sets_no_bits_below_those_of_its_parts(low: int, verdict: str) -> None:
    """The first lane of each CTA arrives at the other one's, with a sum for the rank's bits."""
    masked = "shl.b32 %r3, %r2, {bit}; and.b32 %r4, %r3, {mask};"
    added = f"shl.b32 %r3, %r2, {low}; add.u32 %r4, %r3, {1 << 24};"
    both = RANKS.replace("and.pred %p2, %p2, %p3;", "").replace(masked, added)
    found = report(both.format(lanes=1), cluster=2, grid=2)
    assert found.verdict == verdict
    if verdict == "bounded":
        assert "is not made from one of something declared" in found.reasons[0]


def test_bits_that_where_shared_memory_begins_may_set_as_well() -> None:
    found = report(RANKS.format(lanes=1, bit=10, mask=1 << 10))
    assert found.verdict == "bounded"
    assert "is not made from one of something declared" in " ".join(found.reasons)
