"""Threads that store one number to one word of shared memory, by one instruction (H23)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernels.evidence import at
from tests.ptx.test_check import FIRST, lines, report
from tilesim import Builder, check, kernel, u32
from tilesim.checker import Report
from tilesim.ir.declarations import ds
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Pointer

#: all warps store the word, warp 0 reads it behind a barrier
ROLE = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shr.u32 %r5, %r2, 5; mov.u32 %r3, {number};\n"
    "{store}\n{barrier}\nsetp.ge.u32 %p1, %r2, 32;\n@%p1 ret;\nld.shared.u32 %r4, [%r1+64];\n"
)
RIGHT = {"number": "7", "store": "st.shared.b32 [%r1+64], %r3;", "barrier": "bar.sync 0;"}
WRONG = {
    "a number of each warp": {"number": "0; add.u32 %r3, %r3, %r5"},
    "a number of each thread": {"number": "%tid.x"},
    "two instructions": {
        "store": "setp.ge.u32 %p2, %r2, 32; @!%p2 st.shared.b32 [%r1+64], %r3;"
        "@%p2 st.shared.b32 [%r1+64], %r3;"
    },
    "data of each warp": {
        "number": "0; mov.b32 %f1, %r5; ex2.approx.f32 %f1, %f1; mov.b32 %r3, %f1"
    },
}


def role(strict: Strict = "practice", warps: int = 2, **change: str) -> Report:
    return report(ROLE.format(**{**RIGHT, **change}), warps=warps, strict=strict)


def test_one_number_by_one_instruction() -> None:
    assert role().verdict == "proved"
    assert role(warps=4).verdict == "proved"
    places = "and.b32 %r6, %r2, 4; add.u32 %r6, %r6, %r1; st.shared.b32 [%r6+64], %r3;"
    assert role(store=places).verdict == "proved"
    wrong = role("ptx")
    assert wrong.rules == {"race"}
    assert lines(wrong) == [1]
    sides = [{(p.warp, p.action.split()[0]) for p in f.participants} for f in wrong.findings]
    assert {(0, "writes"), (1, "writes")} in sides


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_anything_else_races(change: dict[str, str]) -> None:
    wrong = role("practice", 2, **change)
    assert "race" in wrong.rules
    assert lines(wrong) == [1]


def test_all_of_them_come_before_who_reads() -> None:
    wrong = role(barrier="bar.warp.sync -1;")
    assert wrong.rules == {"race"}
    assert lines(wrong) == [1, 5]
    some = "setp.lt.u32 %p2, %r2, 64; @%p2 bar.sync 1, 64;"
    assert role(warps=3, barrier=some).rules == {"race"}
    assert role(warps=3, barrier="bar.sync 0;").verdict == "proved"


def test_lanes_that_have_parted_store_a_vector_of_constants() -> None:
    """A lane that went ahead and the others leave what the whole warps leave."""
    ahead = "setp.eq.u32 %p2, %r2, 0;\n@%p2 bra S;\nadd.u32 %r7, %r2, 1;\nS: "
    same = ahead + "st.shared.v2.b32 [%r1+64], {0, 9};"
    assert role(warps=4, store=same).verdict == "proved"
    assert role("ptx", 4, store=same).rules == {"race"}
    lane = "mov.u32 %r7, %laneid; " + ahead + "st.shared.v2.b32 [%r1+64], {%r7, 9};"
    assert "race" in role(warps=4, store=lane).rules
    other = ahead + "st.shared.v2.b32 [%r1+64], {%r2, 9};"
    assert "race" in role(warps=4, store=other).rules
    each = ahead + "st.shared.v2.b32 [%r1+64], {%r5, 9};"
    assert role(warps=4, store=each).rules == {"race"}


def test_each_lane_stores_a_vector_of_constants_to_its_place() -> None:
    """As a layout has it that repeats the rows of a tile over warps: it used to be a race."""
    places = "and.b32 %r6, %r2, 31; shl.b32 %r6, %r6, 4; add.u32 %r6, %r6, %r1;\n"
    rows = places + "st.shared.v4.b32 [%r6+64], {{{a}, %r3, 7, {b}}};"
    for change in ({"a": "7", "b": "9"}, {"a": "%r3", "b": "%r3"}):
        assert role(store=rows.format(**change)).verdict == "proved"
        assert role("ptx", store=rows.format(**change)).rules == {"race"}
    wrong = role(store=rows.format(a="7", b="%r5"))
    assert wrong.rules == {"race"}
    assert lines(wrong) == [2]
    assert {p.warp for p in wrong.findings[0].participants} == {0, 1}
    other = "shl.b32 %r7, %r5, 4; add.u32 %r6, %r6, %r7; st.shared.v4.b32 [%r6+64], {7, 7, 7, 7};"
    assert role(store=places + other).verdict == "proved"


def test_lanes_behind_a_branch_store_it_one_by_one() -> None:
    parted = (
        "setp.lt.u32 %p2, %r2, 2;\n@!%p2 bra E;\nsetp.eq.u32 %p3, %r2, 1; @%p3 bra F;\n"
        "add.u32 %r7, %r2, 1; st.shared.b32 [%r1+80], %r7;\nF: st.shared.b32 [%r1+64], {what};\nE:"
    )
    assert role(warps=1, store=parted.format(what="%r3")).verdict == "proved"
    wrong = role(warps=1, store=parted.format(what="%r2"))
    assert wrong.rules == {"race"}
    assert lines(wrong) == [5]


@kernel(warps=2)
def one_place(
    k: Builder, *, what: str = "lane", space: str = "shared", apart: bool = False,
    vector: bool = False, alone: bool = True, steers: bool = False,
) -> None:  # fmt: skip
    """A warp stores to one place, or each lane to one of its own; a second warp may do the same."""
    place = 4 * k.lane_id if apart else 0
    shape = (128,)
    words = k.shared("words", u32, shape) if space == "shared" else k.tensor("words", u32, shape)
    seen = k.var("seen", 0, u32)
    with k.if_(k.warp_id < (1 if alone else 2)):
        value = k.lane_id if what == "lane" else 7
        if vector:
            k.mem.store_vector(words[ds(place, 4)], [value] * 4)
        else:
            k.mem.store(words[place], value)
    k.sync_threads()
    if steers:
        k.mem.load(seen, words[0])
        with k.if_(seen > 9):
            k.sync_threads()


STORE = {False: "k.mem.store(words", True: "k.mem.store_vector(words"}


@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("vector", [False, True])
@pytest.mark.parametrize("what", ["lane", "seven"])
def test_lanes_of_one_store_at_one_place(what: str, vector: bool, space: str) -> None:
    """One of them stays in practice; PTX has no such exception for lanes of a warp."""
    case: dict[str, Any] = {"what": what, "vector": vector, "space": space}
    assert check(one_place.build(**case, apart=True), strict="ptx").verdict == "proved"
    right = check(one_place.build(**case))
    assert right.verdict == "proved"
    assert "H23" in {x.name for x in right.leanings}
    wrong = check(one_place.build(**case), strict="ptx")
    (finding,) = wrong.findings
    assert finding.rule == "race"
    assert "lanes 0 and 1 of this one store" in finding.message
    assert {(p.warp, p.loc.line) for p in finding.participants} == {
        (0, at(one_place, STORE[vector]))
    }


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_which_lane_stays_is_chance(strict: Strict) -> None:
    """So no store of another warp leaves the same, and nothing that it decides is proved."""
    assert check(one_place.build(what="seven", alone=False)).verdict == "proved"
    report = check(one_place.build(alone=False), strict=strict)
    pair = {(w, at(one_place, STORE[False])) for w in (0, 1)}
    assert pair in [{(p.warp, p.loc.line) for p in f.participants} for f in report.findings]
    assert {f.rule for f in report.findings} == {"race"}
    assert check(one_place.build(steers=True)).verdict == "bounded"
    assert check(one_place.build(what="seven", steers=True)).verdict == "proved"


@kernel(warps=1)
def sent(k: Builder, *, apart: bool = False) -> None:
    """Lanes store a number each in the peer's memory, to one word or to words of their own."""
    k.launch(grid=2, cluster=2)
    words, full = k.shared("words", u32, (32,)), k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.arrive_expect_tx(full, 4 * 8)
        k.fence.mbarrier_init()
    k.cluster.sync()
    place, peer = k.lane_id if apart else 0, k.cluster_rank ^ 1
    with k.if_(k.lane_id < 8):
        k.cluster.st_async(words[place].at(peer), k.lane_id, full.at(peer))
    k.mbarrier.wait(full, 0)
    k.cluster.sync()


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_lanes_that_send_to_one_place(strict: Strict) -> None:
    """Of lanes of one store one writes, says CUDA's guide: how many bytes arrive then of an
    asynchronous one, nothing says."""
    assert check(sent.build(apart=True), strict=strict).verdict == "proved"
    findings = check(sent.build(), strict=strict).findings
    assert {f.rule for f in findings} == {"race"}
    assert {(p.warp, p.loc.line) for f in findings for p in f.participants} == {
        (0, at(sent, "k.cluster.st_async("))
    }


#: rows 0, 2, 4, 6 of a matrix go to one place, the others to another one, from every warp
MATRIX = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; and.b32 %r5, %r2, {lanes}; shr.u32 %r6, %r2, 5;\n"
    "{value}\nshl.b32 %r8, %r2, 4; and.b32 %r8, %r8, {places}; add.u32 %r8, %r8, %r1;\n"
    "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r8+128], {{%r3}};\nbar.sync 0;\n"
    "ld.shared.u32 %r4, [%r1+128]; setp.gt.u32 %p3, %r4, 1000;\nL: @%p3 bra L;\n"
)
KNOWN = "mov.u32 %r3, %r5;"
PLACES = {"lanes": 3, "places": 16, "value": KNOWN}
LOADED = (
    "ld.param.u64 %rd1, [a]; mul.wide.u32 %rd2, %r5, 4; add.u64 %rd1, %rd1, %rd2;\n"
    "ld.global.u32 %r3, [%rd1];"
)


def matrix(strict: Strict = "practice", **change: Any) -> Report:
    text = {**PLACES, **change}
    body = MATRIX.format(**text)
    if text["value"].startswith(LOADED):  # nobody knows what is stored: it must not steer
        body = body[: body.index("ld.shared")]
    return report(
        body, warps=2, strict=strict, params=(".param .u64 a",), values=(Pointer("a", 1024),)
    )


@pytest.mark.parametrize("value", [KNOWN, LOADED], ids=["known", "loaded"])
def test_warps_store_equal_rows_of_a_matrix_at_one_place(value: str) -> None:
    """As compilers do with data that a layout replicates over lanes and warps."""
    right = matrix(value=value)
    assert right.verdict == "proved", (right.reasons, right.findings)
    assert "H23" in {x.name for x in right.leanings}
    assert matrix("ptx", value=value).rules == {"race"}
    apart = matrix(value=value, places=112, lanes=31)
    assert apart.verdict == "proved", (apart.reasons, apart.findings)


@pytest.mark.parametrize(
    "change",
    [
        {"lanes": 31},
        {"lanes": 31, "value": LOADED},
        {"value": KNOWN + " add.u32 %r3, %r3, %r6;"},
        {"value": LOADED + " add.u32 %r3, %r3, %r6;"},
        {"value": LOADED + " mov.u32 %r9, %laneid; add.u32 %r3, %r3, %r9;"},
        {"value": LOADED + " shfl.sync.up.b32 %r3, %r3, 1, 0, -1;"},
    ],
    ids=["known", "loaded", "of warps", "loaded, of warps", "loaded, of lanes", "shuffled"],
)
def test_rows_that_differ_race_at_one_place(change: dict[str, Any]) -> None:
    """Which of them stays is chance, in each warp."""
    wrong = matrix(**change)
    assert wrong.rules == {"race"}
    before = MATRIX[: MATRIX.index("stmatrix")].format(**{**PLACES, **change})
    assert lines(wrong) == [before.count("\n")]
    assert {p.warp for p in wrong.findings[0].participants} == {0, 1}


#: each lane of each warp stores what it has loaded; a place in the same memory says where it reads
REPLICATED = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shr.u32 %r5, %r2, 5; and.b32 %r6, %r2, {columns};\n"
    "shl.b32 %r6, %r6, 2; cvt.u64.u32 %rd2, %r6; ld.param.u64 %rd1, [a];\n"
    "add.u64 %rd1, %rd1, %rd2;\n"
    "{first}\n{apart}\nld.global.u32 %r3, [%rd1]; {change}add.u32 %r4, %r3, 1;\n"
    "add.u32 %r7, %r1, %r6;\nst.shared.u32 [%r7+64], %r4;\n"
    "st.shared.u32 [%r1+32], 0;\nbar.sync 0;\nld.shared.u32 %r8, [%r1+32];\n"
    "add.u32 %r8, %r8, %r1; ld.shared.u32 %r9, [%r8+64];\n"
)
#: lane 0 of warp 0 knows what others do not: it goes on by itself
APART = "setp.eq.u32 %p2, %r2, 0; @%p2 st.shared.u32 [%r1+256], 1;"


def replicated(strict: Strict = "practice", **change: Any) -> Report:
    text = {"columns": 0, "first": "", "apart": "", "change": "", **change}
    return report(
        REPLICATED.format(**text), warps=2, strict=strict, params=(".param .u64 a",),
        values=(Pointer("a", 1024),),
    )  # fmt: skip


@pytest.mark.parametrize("columns", [0, 1, 7])
@pytest.mark.parametrize("apart", ["", APART], ids=["together", "apart"])
def test_data_that_may_decide_is_told_by_what_was_loaded(columns: int, apart: str) -> None:
    """Scales that every lane of every warp has loaded, which go where barriers lie as well."""
    right = replicated(columns=columns, apart=apart)
    assert right.verdict == "proved", (right.reasons, right.findings)
    assert "H23" in {x.name for x in right.leanings}
    assert replicated("ptx", columns=columns, apart=apart).rules == {"race"}


@pytest.mark.parametrize(
    "change",
    [
        {"change": "add.u32 %r3, %r3, %r5; "},
        {"columns": 1, "change": "add.u32 %r3, %r3, %r2; "},
        {"first": "mul.wide.u32 %rd2, %r5, 4; add.u64 %rd1, %rd1, %rd2;"},
        {"columns": 1, "first": "mul.wide.u32 %rd2, %r2, 4; add.u64 %rd1, %rd1, %rd2;"},
    ],
    ids=["of warps", "of lanes", "loaded by warps", "loaded by lanes"],
)
@pytest.mark.parametrize("apart", ["", APART], ids=["together", "apart"])
def test_data_that_differs_races(change: dict[str, Any], apart: str) -> None:
    wrong = replicated(**change, apart=apart)
    assert wrong.rules == {"race"}
    assert {7} in [{p.loc.line - FIRST for p in f.participants} for f in wrong.findings]


def test_what_was_written_in_between_is_something_else() -> None:
    """One warp loads a word before, the other one after it is written."""
    body = (
        "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.lt.u32 %p2, %r2, 32; mov.u32 %r5, 64;\n"
        "ld.param.u64 %rd1, [a]; ld.global.u32 %r3, [%rd1]; add.u32 %r6, %r3, 1;\n"
        "setp.eq.u32 %p3, %r2, 0; @%p3 st.shared.u32 [%r1+512], %r3; bar.sync 0;\n"
        "setp.eq.u32 %p3, %r2, 32; @!%p2 bar.sync 1, %r5; {written}bar.warp.sync -1;\n"
        "ld.shared.u32 %r4, [%r1+512]; @%p2 bar.sync 1, %r5;\n"
        "st.shared.u32 [%r1+64], %r4;\nbar.sync 0;\n"
    )
    given: dict[str, Any] = {
        "warps": 2, "params": (".param .u64 a",), "values": (Pointer("a", 1024),),
    }  # fmt: skip
    right = report(body.format(written=""), **given)
    assert right.verdict == "proved", (right.reasons, right.findings)
    wrong = report(body.format(written="@%p3 st.shared.u32 [%r1+512], %r6; "), **given)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [5]
