"""Instructions that compute data of the same data are one, and are told apart as before."""

from __future__ import annotations

import random

import pytest

from tests.ptx.test_check import lines, program, report
from tests.ptx.test_replicated_products import MINE, MORE, ONCE, OURS, body, multiplied
from tilesim.ir.mir import Instruction, Mir
from tilesim.ir.ops.compute import Data
from tilesim.ptx.launch import Pointer
from tilesim.ptx.passes.simplify import Together

#: %f1 is the same in both warpgroups, %f2 is the own one's; %f5 to %f8 are the tile
LOADED = MINE + "mov.f32 %f2, %f1;\n" + OURS
TILE = ("%f5", "%f6", "%f7", "%f8")
PLAIN = ("%f1", "%f2", "%f3", "%f4")


def lowered(*parts: str) -> Mir:
    pointers = (Pointer("x", 4096), Pointer("y", 4096))
    params = (".param .u64 x", ".param .u64 y")
    return program(body(*parts), warps=8, params=params, values=pointers)


def data(mir: Mir, opcode: str) -> list[Data]:
    ops = [i.what for i in mir.code if isinstance(i.what, Data)]
    return [op for op in ops if op.opcode == opcode]


def apart(together: Together, instruction: Instruction) -> None:
    """Each instruction by itself."""
    together.code.append(instruction)


def converted(first: str, second: str, between: str = "") -> str:
    """Both results are read."""
    one = "cvt.rn.f16x2.f32 {}, {}, {};"
    return (
        f"{one.format('%r20', *first.split())} {between} {one.format('%r21', *second.split())}\n"
        "st.shared.b32 [%r12], %r20;\nst.shared.b32 [%r12], %r21;\n"
    )


def test_what_is_made_of_a_tile_is_made_by_one_instruction() -> None:
    (both,) = data(lowered(ONCE, converted("%f5 %f6", "%f7 %f8")), "cvt.rn.f16x2.f32")
    assert [var.name for var in both.results] == ["r20", "r21"]
    assert len(set(both.sources)) == 1


@pytest.mark.parametrize(
    "between",
    [
        "bar.sync 0;", "st.shared.b32 [%r12], %r20;", "mul.f32 %f7, %f7, %f1;", "mov.b32 %r21, 1;",
        "add.u32 %r22, %r21, 1;", "\n", "E:",
    ],
)  # fmt: skip
def test_not_where_something_stands_between(between: str) -> None:
    """A barrier, what sets a source or reads or sets a result, another line, a place to go to."""
    text = converted("%f5 %f6", "%f7 %f8", between)
    to_label = "@%p2 bra E;\n" if between == "E:" else ""
    before = f"mov.b32 %r21, 5; {to_label}"
    assert len(data(lowered(LOADED, ONCE, before, text), "cvt.rn.f16x2.f32")) == 2


def test_a_register_that_has_changed_is_another_source() -> None:
    """Both scale one register with the same, and another one with what they have got since."""
    same = "mul.f32 %f5, %f5, %f1; {}mul.f32 %f6, %f6, %f1;\n"
    assert len(data(lowered(LOADED, ONCE, same.format("")), "ptx.compute")) == 1
    right = multiplied(body(LOADED, ONCE, same.format("")))
    assert right.verdict == "proved", right.findings
    wrong = multiplied(body(LOADED, ONCE, same.format("mov.f32 %f1, %f2; ")))
    assert wrong.rules == {"race"}
    assert len(lines(wrong)) == 1


def test_a_tile_that_is_set_register_by_register() -> None:
    """The second one holds what the first has been set to; before that, nothing holds anything."""
    zeros = "mov.f32 %f5, 0f00000000; mov.f32 %f6, %f5; mov.f32 %f7, %f5; mov.f32 %f8, %f6;\n"
    assert multiplied(body(zeros, MORE)).verdict == "proved"
    unset = zeros.replace("0f00000000", "%f5")
    assert "uninitialised-read" in multiplied(body(unset, MORE)).rules


@pytest.mark.parametrize("moved", ["mov.f32 %f5, %f6;", "mov.f32 %f5, 0f3F800000;"])
def test_what_one_warpgroup_alone_does_to_a_tile(moved: str) -> None:
    again = f"{moved} {moved}\n"
    assert multiplied(body(ONCE, again)).verdict == "proved"
    assert multiplied(body(ONCE, f"{moved} @%p2 bra E;\n", again, "E:\n")).rules == {"race"}


#: a mask of a tile, by comparisons of numbers and of data: each predicate is set before its use
MASK = (
    "setp.gt.u32 %p3, %r11, {n}; selp.f32 %f5, 0fFF800000, %f5, %p3; "
    "setp.lt.u32 %p4, %r11, 9; selp.f32 %f6, %f6, 0fFF800000, %p4; "
    "setp.gt.f32 %p5, {of}, 0f00000000; selp.f32 %f7, 0fFF800000, %f7, %p5; "
    "not.pred %p6, %p5; selp.f32 %f8, %f8, 0fFF800000, %p6;\n"
)


def test_a_mask_whose_predicates_are_set_one_by_one() -> None:
    """A mask is a `selp` into each register, of a predicate that has been set in between."""
    right = multiplied(body(LOADED, ONCE, MASK.format(n="5", of="%f1")))
    assert right.verdict == "proved", right.findings
    wrong = body(LOADED, ONCE, MASK.format(n="5", of="%f2"))
    assert multiplied(wrong).rules == {"race"}
    assert lines(multiplied(wrong)) == [wrong.count("\n") - 1]


def test_a_mask_by_a_predicate_that_is_not_set() -> None:
    """On another way to it the predicate is set."""
    unset = MASK.replace("setp.lt.u32 %p4, %r11, 9; ", "")
    jump = "setp.ge.u32 %p2, %r1, 1024; @!%p2 bra E;\nsetp.lt.u32 %p4, %r11, 9;\nE:\n"
    text = body(LOADED, ONCE, jump, unset.format(n="5", of="%f1"))
    wrong = multiplied(text)
    assert wrong.rules == {"uninitialised-read"}
    assert "%p4" in wrong.findings[0].message
    assert lines(wrong) == [n for n, line in enumerate(text.split("\n")) if "%p4;" in line]


def test_the_last_that_reads_a_register_counts() -> None:
    """%f3 is the same in both warpgroups while it is read; what sets it to the own one's is not
    made with the lg2 before, though another that reads it is made further up."""
    text = body(
        LOADED, "mov.f32 %f3, %f1;\n", ONCE,
        "ex2.approx.f32 %f0, %f3; lg2.approx.f32 %f4, %f2; sin.approx.f32 %f5, %f3; "
        "ex2.approx.f32 %f0, %f3; lg2.approx.f32 %f3, %f2;\n",
    )  # fmt: skip
    assert multiplied(text).verdict == "proved"
    own = text.replace("sin.approx.f32 %f5, %f3", "sin.approx.f32 %f5, %f4")
    assert multiplied(own).rules == {"race"}
    assert lines(multiplied(own)) == [own.count("\n") - 1]


def steps(rng: random.Random, count: int) -> str:
    """Instructions on one line, which compute with registers of the tile and others."""
    found = []
    for _ in range(count):
        target, one, other = rng.choice((*TILE, *PLAIN[2:])), *rng.choices(TILE + PLAIN, k=2)
        predicate = rng.choice(("%p3", "%p4"))
        found.append(
            rng.choice((
                f"mov.f32 {target}, {one};", f"mul.f32 {target}, {target}, {one};",
                f"ex2.approx.f32 {target}, {one};", f"ex2.approx.f32 {target}, {target};",
                f"fma.rn.f32 {target}, {one}, {other}, {target};", f"mov.f32 {target}, 0f00000000;",
                f"setp.gt.f32 {predicate}, {one}, {other};", f"setp.gt.u32 {predicate}, %r11, 5;",
                f"selp.f32 {target}, {target}, {one}, {predicate};",
                f"@{predicate} mov.f32 {target}, {one};",
            ))
        )  # fmt: skip
    return " ".join(found) + "\n"


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 60))]
)
def test_nothing_is_proved_that_was_not_before(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two warpgroups, which compute the same but for some instructions, maybe."""
    rng = random.Random(seed)
    only = ("@%p2 bra E;\n", steps(rng, 2), "E:\n") if rng.random() < 0.3 else ()
    start = (
        "mov.f32 %f3, %f1; mov.f32 %f4, 0f3F800000; setp.gt.f32 %p3, %f1, %f4; "
        "setp.gt.u32 %p4, %r11, 7;\n"
    )
    text = body(
        LOADED, start, ONCE, steps(rng, 9), *only, steps(rng, 4), what=rng.choice(TILE + PLAIN[2:])
    )
    together = multiplied(text)
    monkeypatch.setattr(Together, "add", apart)
    each = multiplied(text)
    assert (together.verdict, together.rules) == (each.verdict, each.rules)


@pytest.mark.parametrize("stores", ["%p1", "!%p1"])
def test_what_is_computed_of_a_register_that_no_lane_has_set(stores: str) -> None:
    """One of two warps loads; both compute; what the other one computes it may not store."""
    text = (
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32; mov.u32 %r4, smem;\n"
        "shl.b32 %r3, %r1, 2; add.u32 %r4, %r4, %r3; ld.param.u64 %rd1, [x];\n"
        "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd1, %rd3;\n"
        "@!%p1 bra S;\nld.global.f32 %f1, [%rd4];\nS:\nex2.approx.f32 %f2, %f1;\n"
        f"@{stores} st.shared.f32 [%r4], %f2;\nret;\n"
    )
    found = report(text, warps=2, params=(".param .u64 x",), values=(Pointer("x", 4096),))
    if stores == "%p1":
        assert found.verdict == "proved"
    else:
        (finding,) = found.findings
        assert finding.message == "st reads %f2 before it is assigned"
