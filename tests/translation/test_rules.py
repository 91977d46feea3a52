"""Each rule of what may differ between PTX and SASS, and a mistake that it does not excuse."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tilesim.translation import immediates, retries
from tilesim.translation.comparison import Comparison
from tilesim.translation.validation import Difference, Undecided

from .small_kernels import compared


def outcomes(comparison: Comparison) -> Mapping[str, str]:
    """The outcome of each synchronising instruction that is not kept, by kind."""
    return {one.kind: one.outcome for one in comparison.instructions if one.outcome != "kept"}


def lost(comparison: Comparison) -> set[str]:
    """What is lost."""
    found = {f"{d.kind} {d.text}" for d in comparison.differences() if d.effect == "weaker"}
    return {text.rstrip(";").replace(";", "") for text in found}


def unclear(comparison: Comparison) -> set[str]:
    """The kinds of what is undecided."""
    return {one.kind for one in comparison.undecided() if not one.always}


HANDED_OVER = """
st.shared.u32 [%r1], %r2; //store
bar.sync 0; //bar
ld.shared.u32 %r3, [%r1]; //load
st.global.u32 [%d1], %r3; //out
"""


def test_what_stands_in_order_is_kept() -> None:
    right = compared(
        HANDED_OVER,
        """
        store STS [R1], R2
        bar BAR.SYNC.DEFER_BLOCKING 0x0
        load LDS R3, [R1]
        out STG.E desc[UR4][R4.64], R3
        EXIT
        """,
    )
    assert (outcomes(right), lost(right), unclear(right)) == ({}, set(), set())
    counts = {kind: one.shown for kind, one in right.relations.items()}
    assert counts == {"acquire": 4, "release": 3, "order": 0}


@pytest.mark.parametrize(
    ("sass", "what"),
    [
        ("bar BAR.SYNC 0x0 / store STS [R1], R2 / load LDS R3, [R1] / out STG [R4], R3",
         {"release st.shared.u32 [%r1], %r2", "release bar.sync 0"}),
        ("store STS [R1], R2 / load LDS R3, [R1] / bar BAR.SYNC 0x0 / out STG [R4], R3",
         {"acquire bar.sync 0"}),
        ("store STS [R1], R2 / load LDS R3, [R1] / out STG [R4], R3", {"lost bar.sync 0"}),
        ("store STS [R1], R2 / bar @P0 BAR.SYNC 0x0 / load LDS R3, [R1] / out STG [R4], R3",
         {"acquire bar.sync 0", "release bar.sync 0"}),
    ],
)  # fmt: skip
def test_what_is_moved_or_missing_is_lost(sass: str, what: set[str]) -> None:
    wrong = compared(HANDED_OVER, "\n".join(sass.split(" / ")) + "\nEXIT")
    assert lost(wrong) == what


LOOP = """
mov.u32 %r5, 0;
LOOP:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2; //wait
@!%p1 bra LOOP; //again
ld.shared.u32 %r3, [%r4]; //load
mbarrier.arrive.shared::cta.b64 _, [%r6]; //arrive
add.u32 %r5, %r5, 1;
st.global.u32 [%d1], %r3; //out
setp.lt.u32 %p2, %r5, 8;
@%p2 bra LOOP; //back
"""
UNROLLED = """
LOOP:
wait SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R1], R2
again @!P0 BRA LOOP
load LDS R3, [R4]
arrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R6], RZ
out STG [R8], R3
SECOND:
wait SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R1], R2
again @!P0 BRA SECOND
load LDS R3, [R4]
arrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R6], RZ
out STG [R8], R3
ISETP.GE.AND P1, PT, R5, 0x8, PT
back @!P1 BRA LOOP
EXIT
"""


def test_an_unrolled_loop_is_as_the_loop() -> None:
    assert lost(compared(LOOP, UNROLLED)) == set()


@pytest.mark.parametrize("copy", [0, 1])
@pytest.mark.parametrize("what", ["wait SYNCS", "arrive SYNCS"])
def test_each_copy_of_an_unrolled_loop_counts(what: str, copy: int) -> None:
    rows = UNROLLED.splitlines()
    places = [number for number, row in enumerate(rows) if row.startswith(what)]
    del rows[places[copy]]
    assert lost(compared(LOOP, "\n".join(rows)))


def test_a_second_try_is_no_wait_of_its_own() -> None:
    body = """
    LOOP:
    mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2, 1000; //wait
    @!%p1 bra LOOP; //again
    ld.shared.u32 %r3, [%r4]; //load
    st.global.u32 [%d1], %r3; //out
    """
    sass = """
    LOOP:
    {}
    wait @!P0 NANOSLEEP.SYNCS 0x3e8
    wait @!P0 SYNCS.PHASECHK.TRANS64 P0, [R1], R2
    again @!P0 BRA LOOP
    load LDS R3, [R4]
    out STG [R8], R3
    EXIT
    """
    first = "wait SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R1], R2"
    right = compared(body, sass.format(first))
    assert (lost(right), [one.pcs for one in right.instructions]) == (set(), [(0,)])
    assert outcomes(compared(body, sass.format("wait NOP"))) == {"mbarrier.wait": "lost"}


COPIED = """
mov.u32 %r5, 0;
LOOP:
cp.async.ca.shared.global [%r1], [%d1], 16; //copy
{}add.u32 %r5, %r5, 1;
setp.lt.u32 %p2, %r5, 8;
@%p2 bra LOOP; //back
cp.async.wait_all; //wait
"""
TESTED = """
ISETP.GE.AND P1, PT, R5, 0x8, PT
back @P1 BRA REST
LOOP:
copy LDGSTS.E.128 [R5], desc[UR4][R2.64]
{}copy LDGSTS.E.128 [R5], desc[UR4][R2.64]
{}back @!P1 BRA LOOP
REST:
back @P2 BRA BEHIND
copy LDGSTS.E.128 [R5], desc[UR4][R2.64]
{}BEHIND:
wait LDGDEPBAR
wait DEPBAR.LE SB0, 0x0
EXIT
"""


def test_whether_an_unrolled_loop_runs_is_not_decided() -> None:
    tested = compared(COPIED.format(""), TESTED.format("", "", ""))
    assert (lost(tested), unclear(tested)) == (set(), {"order"})


def test_what_is_missing_in_an_unrolled_loop_is_lost() -> None:
    body = COPIED.format("bar.sync 0; //bar\n")
    rows = ["bar BAR.SYNC 0x0\n"] * 3
    assert lost(compared(body, TESTED.format(*rows))) == set()
    for copy in range(3):
        other = [*rows[:copy], "", *rows[copy + 1 :]]
        assert lost(compared(body, TESTED.format(*other)))


def test_what_sass_does_not_show_is_said() -> None:
    fences = compared(
        "fence.mbarrier_init.release.cluster;\ntcgen05.fence::before_thread_sync;\n", "EXIT"
    )
    assert outcomes(fences) == {
        "fence.mbarrier_init": "not shown in SASS",
        "tcgen05.fence": "not shown in SASS",
    }
    assert lost(fences) == set()


EXPECTED = """
mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 512; //expect
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d1], 512, [%r1]; //first
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 512; //arrive
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%d1], 512, [%r1]; //second
"""
MERGED = """
first UBLKCP.S.G [UR4], [UR8], UR6
arrive SYNCS.ARRIVE.TRANS64 RZ, [R1], R3
second UBLKCP.S.G [UR4], [UR8], UR6
EXIT
"""


def test_bytes_are_expected_by_a_pending_arrival() -> None:
    assert outcomes(compared(EXPECTED, MERGED)) == {"mbarrier.arrive": "merged"}
    assert lost(compared(EXPECTED, MERGED)) == set()


@pytest.mark.parametrize(
    ("sets", "kinds"), [("R3, 0x400", []), ("R3, 0x200", ["bytes"]), ("R3, R9", ["not seen"])]
)
def test_bytes_that_are_merged_are_those_of_both(sets: str, kinds: list[str]) -> None:
    """512 and 512: an arrival that expects its own bytes only has lost those of the other."""
    found = compared(EXPECTED, f"first MOV {sets}\n{MERGED}")
    said = [*immediates.compare(found.translation, found.merged)]
    assert [
        one.kind if isinstance(one, Difference) else one.why.split("is ")[1] for one in said
    ] == kinds
    assert all(
        one.line == (8 if isinstance(one, Difference) else 6)
        for one in said
        if isinstance(one, Difference | Undecided)
    )


MORE_EXPECTED = EXPECTED.replace(
    "mbarrier.arrive.",
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 256; //more\nmbarrier.arrive.",
)


@pytest.mark.parametrize(("sets", "kinds"), [("0x500", []), ("0x400", ["bytes"])])
def test_an_arrival_expects_the_bytes_of_two(sets: str, kinds: list[str]) -> None:
    """512, 256 and 512, in one arrival."""
    found = compared(MORE_EXPECTED, f"first MOV R3, {sets}\n{MERGED}")
    assert [one.outcome for one in found.instructions if one.kind == "mbarrier.arrive"] == [
        "merged", "merged", "kept",
    ]  # fmt: skip
    assert lost(found) == set()
    assert [one.kind for one in immediates.compare(found.translation, found.merged)] == kinds


def test_an_arrival_between_does_not_let_bytes_be_expected_later() -> None:
    """It may complete the phase that is to expect them."""
    body = MORE_EXPECTED.replace(
        "mbarrier.arrive.", "mbarrier.arrive.shared::cta.b64 _, [%r1]; //one\nmbarrier.arrive.", 1
    )
    sass = MERGED.replace(
        "arrive SYNCS", "one SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R1], RZ\narrive SYNCS"
    )
    outcomes_of = [one.outcome for one in compared(body, sass).instructions]
    assert outcomes_of.count("lost") == 2


@pytest.mark.parametrize(
    ("ptx", "sass", "what"),
    [
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64", "SYNCS.ARRIVE.TRANS64.A0TR", set()),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _,", "SYNCS.ARRIVE.TRANS64",
         {"release st.shared.u32 [%r4], %r2",
          "release mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 512"}),
    ],
)  # fmt: skip
def test_bytes_that_are_expected_hand_nothing_on(ptx: str, sass: str, what: set[str]) -> None:
    """An arrival does, also if it expects bytes."""
    body = f"st.shared.u32 [%r4], %r2; //store\n{ptx} [%r1], 512; //it\n"
    moved = compared(body, f"it {sass} RZ, [R1], R3\nstore STS [R4], R2\nEXIT")
    assert lost(moved) == what


COUNTED = """
mbarrier.init.shared::cta.b64 [%r1], 4; //init
mbarrier.arrive.shared::cta.b64 _, [%r1], 3; //three
mbarrier.arrive.shared::cta.b64 _, [%r1]; //one
"""


@pytest.mark.parametrize(
    ("low", "high", "count", "last", "kinds"),
    [
        ("0x1ffff8", "0x7fffe000", "0x3", "A1T0 RZ, [R1], RZ", []),
        ("0x1ffffa", "0x7fffe800", "0x3", "A1T0 RZ, [R1], RZ", ["expected arrivals"]),
        ("0x1ffff8", "0x7fffe800", "0x3", "A1T0 RZ, [R1], RZ", ["expected arrivals"]),
        ("0x1ffff8", "0x7fffe000", "0x2", "A1T0 RZ, [R1], RZ", ["arrivals"]),
        ("0x1ffff8", "0x7fffe000", "0x3", "ART0 RZ, [R1], R3", ["arrivals"]),
        ("R9", "0x7fffe000", "R9", "ART0 RZ, [R1], R9", []),
    ],
)
def test_counts_of_an_mbarrier(
    low: str, high: str, count: str, last: str, kinds: list[str]
) -> None:
    """4 is expected by the word with twice 2^20 - 4 below, and 2^11 times that above."""
    sass = f"""
    init MOV R4, {low}
    init MOV R5, {high}
    init SYNCS.EXCH.64 URZ, [R1], R4
    three MOV R3, {count}
    three SYNCS.ARRIVE.TRANS64.ART0 RZ, [R1], R3
    one SYNCS.ARRIVE.TRANS64.{last}
    EXIT
    """
    assert [kind for kind, _, _ in numbers(COUNTED, sass)] == kinds


@pytest.mark.parametrize(
    "opcode",
    [
        "multimem.red.release.gpu.global.add.u32 [%d1], %r1",
        "tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r1], 2",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
        "[%d1], [%r1], 128",
    ],
)
def test_what_is_of_no_kind_is_undecided(opcode: str) -> None:
    found = compared(f"{opcode}; //it\nst.local.u32 [%r1], %r2;\nbar.sync 0; //bar\n",
                     "bar BAR.SYNC 0x0\nEXIT")  # fmt: skip
    assert unclear(found) == {"instruction"}
    (one,) = (one for one in found.undecided() if not one.always)
    assert one.line == 6
    assert one.why == f"{opcode.split()[0]} is of no kind that is compared"


def test_bytes_of_another_mbarrier_are_not() -> None:
    other = EXPECTED.replace("_, [%r1]", "_, [%r7]")
    assert "lost mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 512" in lost(
        compared(other, MERGED)
    )


def test_bytes_of_a_register_with_another_mbarrier_are_not() -> None:
    moved = EXPECTED.replace("mbarrier.arrive.", "add.u32 %r1, %r1, 8;\nmbarrier.arrive.")
    assert moved != EXPECTED
    assert outcomes(compared(moved, MERGED)) == {"mbarrier.arrive": "lost"}


def test_an_instruction_whose_guard_is_never_true_is_deleted() -> None:
    body = "setp.ne.u32 %p1, 1, {};\n@%p1 bar.sync 0;\n"
    assert outcomes(compared(body.format(1), "EXIT")) == {"bar": "deleted"}
    assert outcomes(compared(body.format(2), "EXIT")) == {"bar": "lost"}


def test_a_load_of_tensor_memory_without_use_is_deleted() -> None:
    body = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r3}, [%r1];\n"
    assert outcomes(compared(body, "EXIT")) == {"tcgen05.ld": "deleted"}
    assert outcomes(compared(f"{body}st.global.u32 [%d1], %r3;", "8 STG [R4], R3\nEXIT")) == {
        "tcgen05.ld": "lost"
    }


def test_one_of_two_fences_is_enough() -> None:
    two = "fence.proxy.async.shared::cta; //one\n{}fence.proxy.async.shared::cta; //two\n"
    sass = "two FENCE.VIEW.ASYNC.S\nEXIT"
    assert outcomes(compared(two.format(""), sass)) == {"fence.proxy.async": "merged"}
    stored = two.format("bar.sync 0; //bar\n")
    assert outcomes(compared(stored, f"bar BAR.SYNC 0x0\n{sass}")) == {"fence.proxy.async": "lost"}


ELECTED = """
elect.sync _|%p1, 0xffffffff; //elect
@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 512; //arrive
@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d1], 512, [%r1]; //copy
"""


def test_the_uniform_datapath_loses_the_guard_of_an_elected_lane() -> None:
    sass = """
    elect {} P0, URZ, PT
    arrive @P0 SYNCS.ARRIVE.TRANS64 RZ, [R1], R3
    copy UBLKCP.S.G [UR4], [UR8], UR6
    EXIT
    """
    assert lost(compared(ELECTED, sass.format("ELECT"))) == set()
    assert lost(compared(ELECTED, sass.format("ISETP.NE.AND")))


ELECTED_TWICE = """
elect.sync _|%p1, 0xffffffff; //elect
not.pred %p2, %p1;
@%p2 bra FIRST; //skip
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 512; //arrive
FIRST:
elect.sync _|%p3, 0xffffffff; //elect
not.pred %p4, %p3;
@%p4 bra SECOND; //over
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d1], 512, [%r1]; //copy
SECOND:
"""
ARRIVE, COPY = "arrive SYNCS.ARRIVE.TRANS64 RZ, [R1], R3", "copy UBLKCP.S.G [UR4], [UR8], UR6"


@pytest.mark.parametrize("uniform", [False, True])
def test_the_same_lane_is_elected_each_time(uniform: bool) -> None:
    sass = f"""
    elect ELECT P0, URZ, PT
    skip @!P0 BRA FIRST
    {{}}
    FIRST:
    elect ELECT P1, URZ, PT
    {"" if uniform else "over @!P1 BRA SECOND"}
    {{}}
    SECOND:
    EXIT
    """
    assert lost(compared(ELECTED_TWICE, sass.format(ARRIVE, COPY))) == set()
    assert lost(compared(ELECTED_TWICE, sass.format(COPY, ARRIVE)))


def test_copies_of_a_predicate_are_one_guard() -> None:
    body = """
    setp.eq.u32 %p1, %r1, 0;
    @%p1 mbarrier.init.shared::cta.b64 [%r2], 1; //init
    @%p1 mbarrier.arrive.shared::cta.b64 _, [%r2]; //arrive
    """
    sass = """
    ISETP.NE.AND P0, PT, R1, RZ, PT
    VOTEU.ALL UP0, {}
    init @!UP0 SYNCS.EXCH.64 URZ, [UR6], UR4
    arrive @!P0 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR6], RZ
    EXIT
    """
    assert lost(compared(body, sass.format("P0"))) == set()
    assert lost(compared(body, sass.format("P3")))


def test_a_stricter_wait_stands_for_one_that_is_missing() -> None:
    body = """
    wgmma.fence.sync.aligned; //fence
    wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f0,%f1,%f2,%f3}, %d1, %d2, 1, 1, 1; //one
    wgmma.commit_group.sync.aligned; //commit
    wgmma.wait_group.sync.aligned 0; //wait
    st.global.f32 [%d1], %f0; //out
    """
    sass = """
    fence WARPGROUP.ARRIVE
    one HGMMA.64x8x8.F32.TF32 R24, gdesc[UR4], R24, gsb0
    {}
    out STG [R4], R24
    EXIT
    """
    assert outcomes(compared(body, sass.format("wait WARPGROUP.DEPBAR.LE gsb0, 0x0"))) == {}
    serialised = compared(body, sass.format("one WARPGROUP.DEPBAR.LE gsb0, 0x0"))
    assert outcomes(serialised) == {"wgmma.wait": "strengthened"}
    assert lost(serialised) == set()
    weak = compared(body, sass.format("one WARPGROUP.DEPBAR.LE gsb0, 0x1"))
    assert outcomes(weak) == {"wgmma.wait": "lost"}


BULK = """
cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 64; //copy
cp.async.bulk.commit_group; //commit
fence.proxy.async.shared::cta; //fence
cp.async.bulk.wait_group{} 0; //wait
st.{}.u32 [{}], %r3; //store
"""
BULK_SASS = {
    "copy": "copy UBLKCP.G.S [UR4], [UR6], UR8", "commit": "commit UTMACMDFLUSH",
    "fence": "fence FENCE.VIEW.ASYNC.S", "wait": "wait DEPBAR.LE SB0, 0x0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("read", "store", "rows", "loses"),
    [
        (".read", "global", "copy commit fence store wait", False),
        ("", "global", "copy commit fence store wait", True),
        (".read", "shared", "copy commit fence store wait", True),
        (".read", "global", "copy fence commit wait store", False),
        (".read", "global", "copy fence wait commit store", True),
        (".read", "global", "commit copy fence wait store", True),
        ("", "shared", "copy commit fence store wait", True),
    ],
)
def test_what_a_commit_and_a_wait_for_sources_do_not_order(
    read: str, store: str, rows: str, loses: bool
) -> None:
    body = BULK.format(read, store, "%d1" if store == "global" else "%r1")
    last = "store STG.E [R4], R3" if store == "global" else "store STS [R1], R3"
    known = {**BULK_SASS, "store": last}
    found = compared(body, "\n".join([*(known[row] for row in rows.split()), "EXIT"]))
    assert bool(lost(found)) is loses


@pytest.mark.parametrize(
    ("other", "sass", "loses"),
    [
        ("fence.proxy.async.shared::cta;", "FENCE.VIEW.ASYNC.S", False),
        ("cp.async.bulk.commit_group;", "UTMACMDFLUSH", False),
        (
            "mbarrier.arrive.shared::cta.b64 _, [%r6];",
            "SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R6], RZ",
            True,
        ),
    ],
)
def test_loads_of_tensor_memory_are_not_ordered_by_what_is_of_other_memory(
    other: str, sass: str, loses: bool
) -> None:
    body = f"""
    {other} //other
    tcgen05.ld.sync.aligned.32x32b.x2.b32 {{%r2, %r3}}, [%r1]; //load
    tcgen05.wait::ld.sync.aligned;
    st.global.u32 [%d1], %r3; //out
    """
    load, out = "load LDTM.x2 R2, tmem[UR4]", "out STG.E desc[UR6][R8.64], R3"
    right = compared(body, f"other {sass}\n{load}\n{out}\nEXIT")
    assert lost(right) == set()
    moved = compared(body, f"{load}\nother {sass}\n{out}\nEXIT")
    assert bool(lost(moved)) is loses


@pytest.mark.parametrize(
    ("rows", "loses"),
    [
        ("small end large wait load", False),
        ("small large end wait load", False),
        ("small end large load wait", False),
        ("end small large wait load", True),
    ],
)
def test_a_commit_of_small_copies_and_loads_of_what_bulk_copies_read(
    rows: str, loses: bool
) -> None:
    body = """
    cp.async.ca.shared.global [%r1], [%d1], 16; //small
    cp.async.commit_group; //end
    cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r1], 64; //large
    cp.async.bulk.wait_group 0; //wait
    ld.shared.u32 %r3, [%r1]; //load
    """
    sass = {
        "small": "small LDGSTS.E.128 [R1], desc[UR4][R4.64]", "end": "end LDGDEPBAR",
        "large": BULK_SASS["copy"].replace("copy", "large"), "wait": BULK_SASS["wait"],
        "load": "load LDS R3, [R1]",
    }  # fmt: skip
    found = compared(body, "\n".join([*(sass[row] for row in rows.split()), "EXIT"]))
    assert bool(lost(found)) is loses


CLUSTER = """
barrier.cluster.arrive.relaxed.aligned; //arrive
barrier.cluster.wait.acquire.aligned; //wait
"""


def test_a_cluster_barrier_is_that_of_a_launch_with_clusters() -> None:
    sass = """
    arrive @!P2 BRA ALONE
    arrive UCGABAR_ARV
    arrive BRA JOINED
    ALONE:
    arrive NOP
    JOINED:
    wait @!P2 BRA OTHER
    wait UCGABAR_WAIT
    wait BRA END
    OTHER:
    wait BAR.SYNC.DEFER_BLOCKING 0x0
    END:
    EXIT
    """
    assert lost(compared(CLUSTER, sass)) == set()
    assert "barrier.cluster.wait" in outcomes(
        compared(CLUSTER, sass.replace("UCGABAR_WAIT", "NOP"))
    )


def test_a_load_is_left_out_where_it_is_not_used_but_not_moved_behind_a_release() -> None:
    body = """
    ld.shared.u32 %r3, [%r1]; //load
    @%p1 bra SKIP; //skip
    st.global.u32 [%d1], %r3; //out
    SKIP:
    mbarrier.arrive.shared::cta.b64 _, [%r6]; //arrive
    """
    sunk = """
    skip @P0 BRA SKIP
    load LDS R3, [R1]
    out STG [R4], R3
    SKIP:
    arrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R6], RZ
    EXIT
    """
    assert lost(compared(body, sunk)) == set()
    moved = """
    arrive SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R6], RZ
    skip @P0 BRA SKIP
    load LDS R3, [R1]
    out STG [R4], R3
    SKIP:
    EXIT
    """
    assert "release ld.shared.u32 %r3, [%r1]" in lost(compared(body, moved))


def test_collective_code_and_calls_are_passed() -> None:
    sass = """
    store STS [R1], R2
    WARPSYNC.COLLECTIVE R2, BEHIND
    bar BAR.SYNC.DEFER_BLOCKING R12, R12
    ENDCOLLECTIVE
    BEHIND:
    load LDS R3, [R1]
    out STG [R4], R3
    EXIT
    """
    assert lost(compared(HANDED_OVER, sass)) == set()


def test_inserted_synchronisation_is_said() -> None:
    body = "mbarrier.init.shared::cta.b64 [%r1], 1; //init\n"
    (one,) = compared(
        body, "init FENCE.VIEW.ASYNC.S\ninit SYNCS.EXCH.64 URZ, [UR6], UR4\nEXIT"
    ).inserted()
    assert (one.pc, one.sass) == (0, "FENCE.VIEW.ASYNC.S")
    assert one.why.startswith("orders earlier accesses")


def numbers(body: str, sass: str) -> list[tuple[str, str, str]]:
    """The constants that differ: what, how, and the sentence."""
    comparison = compared(body, sass)
    return [
        (one.kind, one.effect, one.sentence.partition(", ")[2])
        for one in immediates.compare(comparison.translation, comparison.merged)
        if isinstance(one, Difference)
    ]


@pytest.mark.parametrize(
    ("sass", "what"),
    [
        ("BAR.SYNC.DEFER_BLOCKING 0x3, 0x60", []),
        ("BAR.SYNC.DEFER_BLOCKING R4, R4", []),
        ("BAR.SYNC.DEFER_BLOCKING 0x2, 0x60",
         [("barrier", "weaker", "barrier: 3 in the PTX, 2 in the SASS")]),
        ("BAR.SYNC.DEFER_BLOCKING 0x3, 0x40",
         [("threads of a barrier", "weaker",
           "threads of a barrier: 96 in the PTX, 64 in the SASS")]),
    ],
)  # fmt: skip
def test_a_barrier_and_its_threads_are_those_of_the_ptx(
    sass: str, what: list[tuple[str, str, str]]
) -> None:
    body = "mov.u32 %r1, 3;\nbarrier.sync %r1, 96; //bar"
    assert numbers(body, f"bar {sass}\nEXIT") == what


@pytest.mark.parametrize(("left", "effect"), [(1, []), (0, ["stronger"]), (2, ["weaker"])])
def test_a_wait_leaves_as_many_groups_as_the_ptx(left: int, effect: list[str]) -> None:
    body = "cp.async.bulk.wait_group.read 1; //wait"
    found = numbers(body, f"wait DEPBAR.LE SB0, {left:#x}\nEXIT")
    assert [(one[0], one[1]) for one in found] == [("wait count", one) for one in effect]


SOMETIMES = """
setp.eq.u32 %p1, %r1, 0;
setp.eq.u32 %p2, %r2, 0;
@%p1 bra SKIP; //skip
tcgen05.mma.cta_group::1.kind::f16 [%r3], %d1, %d2, %r4, 1; //mma
SKIP:
@%p2 bra LEAVE; //leave
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r5]; //commit
LEAVE:
"""


def test_what_only_some_paths_execute_is_in_order() -> None:
    """No path must pass the first before the second: but none may pass it behind that."""
    sass = """
    skip @P0 BRA SKIP
    {}
    SKIP:
    leave @P1 BRA LEAVE
    {}
    LEAVE:
    EXIT
    """
    mma, commit = "mma UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10]", "commit UTCBAR [UR4]"
    assert lost(compared(SOMETIMES, sass.format(mma, commit))) == set()
    (said,) = lost(compared(SOMETIMES, sass.format(commit, mma)))
    assert said.startswith("order tcgen05.mma")


def test_arms_of_a_branch_that_become_guards_are_not_behind_each_other() -> None:
    body = """
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra OTHER; //branch
    barrier.arrive 1, 64; //arrive
    bra END;
    OTHER:
    barrier.sync 1, 64; //sync
    END:
    """
    sass = """
    {}arrive @!P0 BAR.ARV 0x1, 0x40
    {}sync @{} BAR.SYNC 0x1, 0x40
    EXIT
    """
    compare = "ISETP.EQ.AND P0, PT, R1, RZ, PT\n"
    assert lost(compared(body, sass.format(compare, "", "P0"))) == set()
    assert lost(compared(body, sass.format(compare, "", "P1")))
    assert lost(compared(body, sass.format(compare, compare, "P0")))


WAITED = """
AGAIN:
mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r2; //wait
@!%p1 bra AGAIN; //again
ld.shared.u32 %r3, [%r4]; //load
st.global.u32 [%d1], %r3; //out
"""


@pytest.mark.parametrize(
    ("between", "said"),
    [
        ("again @!P0 BRA AGAIN", False),
        ("MOV R9, R8\nagain @!P0 BRA AGAIN", False),
        ("LDL R9, [R1+0x10]\nagain @!P0 BRA AGAIN", False),
        ("again @P0 BRA BEHIND\nagain BRA AGAIN\nBEHIND:", False),
        ("again @P0 BRA AGAIN", True),
        ("NOP", True),
        ("ISETP.NE.AND P0, PT, R1, RZ, PT\nagain @!P0 BRA AGAIN", True),
        ("@!P1 BRA BEHIND\nagain @!P0 BRA AGAIN\nBEHIND:", True),
    ],
)
def test_an_answer_is_asked_for(between: str, said: bool) -> None:
    sass = f"""
    AGAIN:
    wait SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R1], R2
    {between}
    load LDS R3, [R4]
    out STG [R8], R3
    EXIT
    """
    assert bool([*retries.compare(compared(WAITED, sass).translation)]) == said
