"""A register that some lanes of a warp have set: in the others it holds any number, on which
nothing may depend; they may take it from one that has set it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.litmus.notation import begin, global_words, thread, words
from tests.ptx.test_check import report
from tilesim import Builder, Program, check, pred, s32, u32
from tilesim.checker import Report
from tilesim.ir.expr import Const, Operand, Var, as_expr
from tilesim.ir.ops.compute import Exchange
from tilesim.ptx.launch import Pointer

Body = Callable[..., None]


def program(body: Body, *, right: bool, grid: int = 1) -> Program:
    k = Builder(body.__name__, warps=2)
    k.launch(grid=grid)
    body(k, right=right)
    return k.finish()


def set_by_half(k: Builder, value: Operand, *, right: bool) -> Var:
    """What the first half of the lanes sets; ``right``: so does the other one."""
    late = k.var("late", dtype=u32)
    with k.if_(k.lane_id < 16):
        k.assign(late, value)
    if right:
        with k.if_(k.lane_id >= 16):
            k.assign(late, value)
    return late


def shuffled(k: Builder, value: Var, lane: Operand) -> Var:
    """What a lane holds."""
    result, inside = k.var("result", dtype=s32), k.var("inside", dtype=pred)
    k.emit(Exchange(result=result, inside=inside, value=value, mode="idx", lane=as_expr(lane),
                    clamp=Const(31), mask=Const(0xFFFFFFFF)))  # fmt: skip
    return result


def stored(k: Builder, *, right: bool) -> None:
    late, x = set_by_half(k, 1, right=right), words(k, "x", 64)
    k.mem.store(x[k.thread_id], late)


def addressed(k: Builder, *, right: bool) -> None:
    late, x = set_by_half(k, k.thread_id, right=right), words(k, "x", 64)
    k.mem.store(x[late], 1)


def addressed_by_a_sum(k: Builder, *, right: bool) -> None:
    late, x = set_by_half(k, k.thread_id, right=right), words(k, "x", 65)
    later = k.var("later", late + 1)
    k.mem.store(x[later], 1)


def branched_on(k: Builder, *, right: bool) -> None:
    b = k.mbarriers("b")
    begin(k, (b, 64))
    late = set_by_half(k, 1, right=right)
    with k.if_(late.eq(1)):
        k.mbarrier.arrive(b)
    k.mbarrier.wait(b, 0)


def counted(k: Builder, *, right: bool) -> None:
    b = k.mbarriers("b")
    begin(k, (b, 64))
    k.mbarrier.arrive(b, count=set_by_half(k, 1, right=right))
    k.mbarrier.wait(b, 0)


def parity(k: Builder, *, right: bool) -> None:
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b)
    k.mbarrier.wait(b, set_by_half(k, 0, right=right))


def of_another_lane(k: Builder, *, right: bool) -> None:
    """Right: of one that has set it."""
    late, x = set_by_half(k, 5, right=False), words(k, "x", 64)
    place = shuffled(k, late, 3 if right else 20)
    with thread(k, 0):
        k.mem.store(x[place], 1)


def ticket_of_one_lane(k: Builder, *, right: bool) -> None:
    """One lane draws; right: it tells the others what."""
    counter, out = global_words(k, "counter"), k.tensor("out", s32, (2, 32))
    ticket = k.var("ticket", dtype=s32)
    with k.role("W0", 0):
        with k.if_(k.lane_id.eq(0)):
            k.mem.atomic(counter[0], "add", 1, result=ticket)
        drawn = shuffled(k, ticket, 0 if right else k.lane_id)
        with k.if_(drawn < 2):
            k.mem.store(out[drawn, k.lane_id], 1)


def loaded_by_one_warp(k: Builder, *, right: bool) -> None:
    """All warps exchange and add what the first one loads, as Triton reduces over warps."""
    late, x = k.var("late", dtype=s32), words(k, "x", 64)
    given = k.tensor("given", s32, (64,))
    with k.if_(k.thread_id < 32):
        k.mem.load(late, given[k.thread_id])
    later = k.var("later", shuffled(k, late, k.lane_id ^ 1) + late)
    with k.if_(k.thread_id < (32 if right else 64)):
        k.mem.store(x[k.thread_id], later)


BODIES = (stored, addressed, addressed_by_a_sum, branched_on, counted, parity, of_another_lane,
          ticket_of_one_lane, loaded_by_one_warp)  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_what_lanes_have_not_set_is_not_used(body: Body) -> None:
    report = check(program(body, right=False))
    assert report.verdict == "failed"
    assert report.rules == {"uninitialised-read"}


@pytest.mark.parametrize("body", BODIES)
def test_its_twin_is_proved(body: Body) -> None:
    assert check(program(body, right=True)).verdict == "proved"


def test_the_lanes_are_named() -> None:
    (finding,) = check(program(stored, right=False)).findings
    assert finding.message == "st reads %late in lanes 16 to 31 before it is assigned"


def test_where_no_lane_of_a_warp_has_set_it_none_is_named() -> None:
    (finding,) = check(program(loaded_by_one_warp, right=False)).findings
    assert finding.message == "st reads %later before it is assigned"
    assert str(finding.participants[0]).startswith("warp 1 executes st ")


def test_what_is_made_of_it_may_be_left_unused() -> None:
    k = Builder("left_unused", warps=1)
    x = words(k, "x", 33)
    later = k.var("later", set_by_half(k, k.lane_id, right=False) + 1)
    with k.if_(k.lane_id < 16):
        k.mem.store(x[later], later)
    assert check(k.finish()).verdict == "proved"


def of_two_tensors(body: str) -> Report:
    """The report on PTX whose parameters point to two tensors."""
    return report(
        body, params=(".param .u64 x", ".param .u64 y"),
        values=(Pointer("x", 4096), Pointer("y", 4096)),
    )  # fmt: skip


@pytest.mark.parametrize(
    "made",
    [
        "cvt.rzi.u32.f32 %r9, %f1;",
        "mov.b32 %r9, %f1;",
        "add.f32 %f1, %f1, %f1; mov.b32 %r9, %f1;",
        "selp.f32 %f1, %f1, %f1, %p2; mov.b32 %r9, %f1;",
    ],
)
def test_what_data_says_of_a_place_is_said_in_each_lane(made: str) -> None:
    """Half of the lanes load what says where all of them read: where that is, is not known; that
    it is in bounds is assumed of what was loaded, and of nothing else."""
    body = (
        "mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; "
        "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; setp.lt.u32 %p1, %r1, 16; "
        "setp.lt.u32 %p2, %r1, 8;\n{before}@%p1 ld.global.f32 %f1, [%rd4];\n{made}\n"
        "mul.wide.u32 %rd5, %r9, 4; add.u64 %rd6, %rd2, %rd5; {guard}ld.global.u32 %r8, [%rd6];"
    )

    def said(before: str = "", guard: str = "") -> Report:
        return of_two_tensors(body.format(before=before, made=made, guard=guard))

    wrong = said()
    assert wrong.verdict == "failed"
    assert wrong.rules == {"uninitialised-read"}
    for right in (said("mov.f32 %f1, 0f00000000;\n"), said(guard="@%p1 ")):
        assert right.verdict == "proved", right
        assert "in-bounds" in {leaning.name for leaning in right.leanings}


#: how a number gets into memory and back
THROUGH_MEMORY = {
    "shared": "st.shared.u32 [%r4], %r8;\nld.shared.u32 %r9, [%r4];",
    "global": "st.global.u32 [%rd4], %r8;\nld.global.u32 %r9, [%rd4];",
    "local": ".local .align 4 .b8 l[4];\nst.local.u32 [l], %r8;\nld.local.u32 %r9, [l];",
    "a vector": "st.global.v2.u32 [%rd7], {%r1, %r8};\nld.global.u32 %r9, [%rd7+4];",
    "an exchange": "st.shared.u32 [%r4], %r1; atom.shared.exch.b32 %r10, [%r4], %r8;\n"
                   "ld.shared.u32 %r9, [%r4];",
}  # fmt: skip


@pytest.mark.parametrize("through", THROUGH_MEMORY.values(), ids=THROUGH_MEMORY)
def test_lanes_store_what_they_have_set(through: str) -> None:
    """A number that some lanes have loaded, and all of them store, is no place for all of them."""
    body = (
        "mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; "
        "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; add.u64 %rd7, %rd4, %rd3; "
        "mov.u32 %r2, smem; mad.lo.u32 %r4, %r1, 4, %r2; setp.lt.u32 %p1, %r1, 16;\n"
        f"{{guard}}ld.global.u32 %r8, [%rd2];\n{through.replace('{', '{{').replace('}', '}}')}\n"
        "mul.wide.u32 %rd5, %r9, 4; add.u64 %rd6, %rd2, %rd5; ld.global.u32 %r7, [%rd6];"
    )
    assert of_two_tensors(body.format(guard="@%p1 ")).rules == {"uninitialised-read"}
    assert of_two_tensors(body.format(guard="")).verdict == "proved"


#: what may set %r9: it is set in the lanes of %p1 only; %p6 is what data says
DECIDED = {
    "under a branch": "@!%p1 bra D;\nmov.u32 %r9, 1;\n@%p6 add.u32 %r9, %r9, 1;\nD:",
    "loads under a branch": "@!%p1 bra D;\nmov.u32 %r9, 1;\n@%p6 ld.global.u32 %r9, [%rd4];\nD:",
    "a side": "@!%p1 bra D;\nmov.u32 %r9, 1;\n@%p6 bra E;\nadd.u32 %r9, %r9, 1;\n"
              "E: mov.u32 %r8, 0;\nD:",
    "a side that stores": "@%p6 bra E;\nst.global.u32 [%rd4], %r1;\n@%p1 mov.u32 %r9, 1;\nbra D;\n"
                          "E: @%p1 mov.u32 %r9, 2;\nD:",
    "what it was": "@%p1 mov.u32 %r9, 3;\n@%p6 bra D;\n@%p1 add.u32 %r9, %r9, 1;\nD:",
}  # fmt: skip


@pytest.mark.parametrize("decided", DECIDED.values(), ids=DECIDED)
def test_what_data_decides_sets_no_other_lane(decided: str) -> None:
    """Right: the other lanes have set it before, or do not use it."""
    body = (
        "mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; "
        "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; setp.lt.u32 %p1, %r1, 16; "
        "ld.global.u32 %r6, [%rd4]; setp.eq.u32 %p6, %r6, 1;\n{before}{decided}\n"
        "mul.wide.u32 %rd5, %r9, 4; add.u64 %rd6, %rd2, %rd5; {guard}ld.global.u32 %r7, [%rd6];"
    )

    def said(before: str = "", guard: str = "") -> Report:
        return of_two_tensors(body.format(before=before, decided=decided, guard=guard))

    assert said().rules == {"uninitialised-read"}
    for right in (said("mov.u32 %r9, 0;\n"), said(guard="@%p1 ")):
        assert right.verdict == "proved", right


@pytest.mark.parametrize(
    "combined",
    [
        "vote.sync.ballot.b32 %r9, %p4, -1;",
        "match.any.sync.b32 %r9, %r8, -1;",
        "redux.sync.add.u32 %r9, %r8, -1;",
    ],
)
def test_what_lanes_make_together_needs_each_of_them(combined: str) -> None:
    """Right: lanes that have loaded nothing give 0, or say no by what decides in them."""
    body = (
        "mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; "
        "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3; setp.lt.u32 %p1, %r1, 16;\n"
        "{before}@%p1 ld.global.u32 %r8, [%rd4];\n{asked}\n{combined}\n"
        "mul.wide.u32 %rd5, %r9, 4; add.u64 %rd6, %rd2, %rd5; ld.global.u32 %r7, [%rd6];"
    )

    def said(asked: str, before: str = "") -> Report:
        return of_two_tensors(body.format(before=before, asked=asked, combined=combined))

    asked = "setp.gt.s32 %p4, %r8, 0;"
    assert said(asked).rules == {"uninitialised-read"}
    assert said(asked, "mov.u32 %r8, 0;\n").verdict == "proved"
    chosen = "selp.u32 %r8, %r8, 0, %p1;"
    for decides in ("setp.gt.and.s32 %p4, %r8, 0, %p1;", asked + " and.pred %p4, %p4, %p1;"):
        assert said(decides + chosen).verdict == "proved"


def test_what_is_masked_out_is_not_used() -> None:
    body = (
        "mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd3, %r1, 4; "
        "add.u64 %rd4, %rd1, %rd3; setp.lt.u32 %p1, %r1, 16; setp.lt.u32 %p2, %r1, 17;\n"
        "@%p1 mov.u32 %r8, 3;\nsetp.gt.{mask}.s32 %p4, %r8, 0, %p{by};\n{later}"
        "@%p4 st.global.u32 [%rd4], %r1;"
    )
    values, params = (Pointer("x", 4096),), (".param .u64 x",)

    def said(by: int, mask: str = "and", later: str = "") -> Report:
        text = body.format(by=by, mask=mask, later=later)
        return report(text, params=params, values=values)

    assert said(1).verdict == "proved"
    assert said(2).rules == {"uninitialised-read"}
    assert said(2, later="and.pred %p4, %p4, %p1;\n").verdict == "proved"
    assert said(1, "or").rules == {"uninitialised-read"}


def test_what_is_masked_out_in_a_warp_that_has_not_set_it_at_all() -> None:
    body = (
        "mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; mul.wide.u32 %rd3, %r1, 4; "
        "add.u64 %rd4, %rd1, %rd3; setp.lt.u32 %p1, %r1, 16; setp.lt.u32 %p2, %r1, 33;\n"
        "@%p1 mov.u32 %r8, 3;\n{masked}\n@%p4 st.global.u32 [%rd4], %r1;"
    )

    def said(masked: str) -> Report:
        text = body.format(masked=masked)
        return report(text, warps=2, params=(".param .u64 x",), values=(Pointer("x", 4096),))

    for mask in ("setp.gt.and.s32 %p4, %r8, 0, %p1;",
                 "setp.gt.s32 %p3, %r8, 0; and.pred %p4, %p1, %p3;"):  # fmt: skip
        assert said(mask).verdict == "proved"
        assert said(mask.replace("%p1", "%p2")).rules == {"uninitialised-read"}
        assert said(mask.replace("and", "or")).rules == {"uninitialised-read"}


def test_one_lane_says_where_all_read() -> None:
    """It has loaded that: the others take it from there."""
    body = (
        "mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; "
        "setp.eq.u32 %p1, %r1, 0;\n@%p1 ld.global.u32 %r8, [%rd1];\n"
        "shfl.sync.idx.b32 %r9, %r8, LANE, 31, -1;\n"
        "mul.wide.u32 %rd5, %r9, 4; add.u64 %rd6, %rd2, %rd5; ld.global.u32 %r7, [%rd6];"
    )
    values, params = (Pointer("x", 4096), Pointer("y", 4096)), (".param .u64 x", ".param .u64 y")
    assert report(body.replace("LANE", "0"), params=params, values=values).verdict == "proved"
    wrong = report(body.replace("LANE", "1"), params=params, values=values)
    assert wrong.rules == {"uninitialised-read"}
