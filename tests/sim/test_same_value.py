"""Threads that store one number to one word of shared memory, by one instruction (H23)."""

from __future__ import annotations

import pytest

from tests.ptx.test_check import lines, report
from tilesim.checker import Report
from tilesim.ir.program import Strict

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
    assert {(p.warp, p.action.split()[0]) for p in wrong.findings[0].participants} == {
        (0, "writes"), (1, "writes"),
    }  # fmt: skip


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


def test_lanes_behind_a_branch_store_it_one_by_one() -> None:
    parted = (
        "setp.lt.u32 %p2, %r2, 2;\n@!%p2 bra E;\nsetp.eq.u32 %p3, %r2, 1; @%p3 bra F;\n"
        "add.u32 %r7, %r2, 1;\nF: st.shared.b32 [%r1+64], {what};\nE:"
    )
    assert role(warps=1, store=parted.format(what="%r3")).verdict == "proved"
    wrong = role(warps=1, store=parted.format(what="%r2"))
    assert wrong.rules == {"race"}
    assert lines(wrong) == [5]
