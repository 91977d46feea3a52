"""Warps that make the same of the same data, turn by turn, and store it to the same place (H23)."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, report
from tests.ptx.test_replicated import END, LOAD, OWN, SAME, START, STORE
from tilesim.checker import Report
from tilesim.ir.program import Strict
from tilesim.ptx.launch import Pointer

#: how often, and which warp it is
WARP = "shr.u32 %r9, %r1, 5; add.u32 %r10, %r9, 19; setp.eq.u32 %p2, %r9, 0;\n"
#: a sum over rows of what both warps load
LOOP = (
    "mov.f32 %f3, {start}; mov.u32 %r20, 0; mov.u32 %r21, %r3;\n"
    "L: cvt.u64.u32 %rd3, %r21; add.u64 %rd4, %rd1, %rd3; ld.global.f32 %f1, [%rd4];\n"
    "{turn}\n"
    "add.u32 %r21, %r21, 128; add.u32 %r20, %r20, 1; setp.lt.u32 %p1, %r20, {turns}; @%p1 bra L;\n"
)
RIGHT = {"start": "0f00000000", "turn": "fma.rn.f32 %f3, %f1, %f1, %f3;", "turns": "20"}
SUM = RIGHT["turn"]
#: numbers in shared memory, which a turn reads
FILL = (
    "mov.f32 %f4, 0f3f800000; add.u32 %r7, %r4, %r6; st.shared.f32 [%r7+1024], %f4; bar.sync 0;\n"
)
READ = "ld.shared.f32 %f1, [%r5+1024]; "
CHANGE = "bar.sync 0; @%p2 st.shared.f32 [%r5+1024], %f3; bar.sync 0; "


def text(change: dict[str, str]) -> str:
    loop = LOOP.format(**{**RIGHT, **change})
    return START + WARP + change.get("before", "") + loop + STORE


def summed(change: dict[str, str], strict: Strict = "practice") -> Report:
    return report(
        text(change) + END, warps=2, strict=strict,
        params=(".param .u64 x", ".param .u64 y"),
        values=(Pointer("x", 1 << 16), Pointer("y", 1 << 16)),
    )  # fmt: skip


ALIKE = {
    "a sum": {},
    "many turns": {"turns": "400"},
    "of something that is made": {
        "turn": "ex2.approx.f32 %f2, %f1; " + SUM.replace("%f1,", "%f2,", 1)
    },
    "a turn is left out by all": {"turn": "setp.eq.u32 %p3, %r20, 7; @!%p3 " + SUM},
    "data says which turns": {"turn": "setp.gt.f32 %p3, %f1, 0f00000000; @%p3 " + SUM},
    "with other lanes": {
        "turn": "mov.b32 %r24, %f1; shfl.sync.bfly.b32 %r25, %r24, 1, 31, -1; mov.b32 %f1, %r25; "
        + SUM
    },
    "from shared memory": {"before": FILL, "turn": READ + SUM},
    "which is changed for all": {"before": FILL, "turn": READ + CHANGE + SUM},
}  # fmt: skip
OWN_TURN = "setp.eq.and.u32 %p3, %r20, 7, %p2; "
NOT_ALIKE = {
    "a turn more": {"turns": "%r10"},
    "one leaves a turn out": {"turn": OWN_TURN + "@!%p3 " + SUM},
    "another start": {"before": "cvt.rn.f32.u32 %f4, %r9;\n", "start": "%f4"},
    "in another order": {
        "before": "mov.u32 %r3, 0; @!%p2 mov.u32 %r3, 128;\n",
        "turn": "add.f32 %f3, %f3, %f1; xor.b32 %r21, %r21, 128; sub.u32 %r21, %r21, 128;",
        "turns": "2",
    },
    "another row in one turn": {"turn": SUM + OWN_TURN + "@%p3 add.u32 %r21, %r21, 64;"},
    "own data says which turns": {
        "before": OWN + "mov.f32 %f4, %f1;\n" + SAME,
        "turn": "setp.gt.f32 %p3, %f4, 0f00000000; @%p3 " + SUM,
    },
    "a register changed under a predicate": {"turn": "@%p2 mov.f32 %f1, 0f00000000; " + SUM},
    "with another lane": {
        "turn": "mov.b32 %r24, %f1; add.u32 %r25, %r9, 1; "
        "shfl.sync.bfly.b32 %r25, %r24, %r25, 31, -1; mov.b32 %f1, %r25; " + SUM
    },
    "one reads what it has changed": {"before": FILL, "turn": READ + CHANGE + "@%p2 " + READ + SUM},
    "one stores a turn's sum later": {
        "before": FILL,
        "turn": "@%p2 " + READ + CHANGE + "@!%p2 " + READ + SUM,
    },
}  # fmt: skip


@pytest.mark.parametrize("change", ALIKE.values(), ids=ALIKE)
def test_what_is_made_alike_in_a_loop(change: dict[str, str]) -> None:
    right = summed(change)
    assert right.verdict == "proved", (right.reasons, right.findings)
    assert "H23" in {leaning.name for leaning in right.leanings}


@pytest.mark.parametrize("change", NOT_ALIKE.values(), ids=NOT_ALIKE)
def test_what_differs_in_one_turn(change: dict[str, str]) -> None:
    wrong = summed(change)
    assert wrong.rules == {"race"}
    assert lines(wrong) == [text(change).count("\n") - 1]
    assert {p.warp for p in wrong.findings[0].participants} == {0, 1}


#: a sum over pairs of lanes, which both of them store to one place
PAIRS = (
    "mov.b32 %r24, %f1; shfl.sync.bfly.b32 %r25, %r24, {by}, 31, -1; mov.b32 %f2, %r25;\n"
    "{op} %f5, {operands}; add.f32 %f3, %f3, %f5;"
)
BY_PAIRS = "and.b32 %r11, %r2, 30; shl.b32 %r11, %r11, 2; add.u32 %r5, %r4, %r11;\n"


@pytest.mark.parametrize(
    ("by", "op", "operands", "alike"),
    [
        (1, "add.f32", "%f1, %f2", True),
        (1, "max.f32", "%f2, %f1", True),
        (1, "sub.f32", "%f1, %f2", False),
        (1, "fma.rn.f32", "%f1, %f2, %f1", False),
        (2, "add.f32", "%f1, %f2", False),
    ],
)
def test_lanes_that_add_what_they_get_from_each_other(
    by: int, op: str, operands: str, *, alike: bool
) -> None:
    """Triton's reductions over lanes leave each of these the same sum, and all warps store it."""
    turn = PAIRS.format(by=by, op=op, operands=operands)
    found = summed({"turn": turn, "before": BY_PAIRS})
    assert found.verdict == ("proved" if alike else "failed"), found.reasons
    if not alike:
        assert found.rules == {"race"}


def test_at_ptx_no_two_stores_are_one() -> None:
    assert summed({}, strict="ptx").rules == {"race"}


def test_an_atomic_in_a_turn_is_no_load() -> None:
    """What it finds depends on who comes first."""
    wrong = summed({"turn": "atom.global.add.f32 %f1, [%rd2], %f1; " + SUM})
    assert wrong.verdict == "bounded"


#: a number that only the warps of the first CTA agree on
OF_CTA = "mov.u32 %r11, %ctaid.x; mul.lo.u32 %r12, %r11, %r9;\n"
MADE = "ex2.approx.f32 %f3, %f1;\n"
PLACE = "mul.lo.u32 %r13, {by}, 128; add.u32 %r13, %r13, %r3;\n" + LOAD.format(at="%r13") + MADE
NUMBER = "setp.gt.u32 %p1, %r12, 4000; @%p1 ret;\nadd.u32 %r13, {by}, 7; {made}\n"
OF_GRID = {
    "loaded": PLACE,
    "a number": NUMBER.replace("{made}", "mov.b32 %f3, %r13;"),
    "made of a number": NUMBER.replace("{made}", "cvt.rn.f32.u32 %f1, %r13; " + MADE.strip()),
}


READ_BACK = "bar.sync 0;\nld.shared.f32 %f4, [%r5];\n"


@pytest.mark.parametrize("grid", [2, 100])
@pytest.mark.parametrize("made", OF_GRID.values(), ids=OF_GRID)
def test_what_warps_of_one_cta_alone_agree_on(made: str, grid: int) -> None:
    """Of many CTAs one is run: that was the first one, and the others were taken to agree, too."""

    def stored(by: str) -> Report:
        return report(
            START + WARP + OF_CTA + made.format(by=by) + STORE + READ_BACK,
            warps=2, grid=grid,
            params=(".param .u64 x", ".param .u64 y"),
            values=(Pointer("x", 1 << 16), Pointer("y", 256)),
        )  # fmt: skip

    right = stored("%r11")
    assert right.verdict == "proved", (right.reasons, right.findings)
    assert stored("%r12").rules == {"race"}


def test_ctas_of_a_cluster_that_store_to_one_of_them() -> None:
    """A number of each CTA is no number of all."""

    def sent(made: str) -> Report:
        meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;\n"
        return report(
            START + SAME + made + "mapa.shared::cluster.u32 %r21, %r5, 0;\n" + meet
            + "st.shared::cluster.f32 [%r21], %f3;\n" + meet, grid=2, cluster=2,
            params=(".param .u64 x", ".param .u64 y"),
            values=(Pointer("x", 256), Pointer("y", 256)),
        )  # fmt: skip

    made = "mov.u32 %r20, {of}; cvt.rn.f32.u32 %f2, %r20; fma.rn.f32 %f3, %f1, %f2, %f1;\n"
    assert sent(made.format(of="%cluster_nctarank")).verdict == "proved"
    wrong = sent(made.format(of="%cluster_ctarank"))
    assert wrong.rules == {"race"}
    assert lines(wrong) == [5]
