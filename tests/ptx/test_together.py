"""Instructions that compute data of the same data are one, and are told apart as before."""

from __future__ import annotations

import random

import pytest

from tests.ptx.test_check import lines, program
from tests.ptx.test_replicated_products import MINE, MORE, ONCE, OURS, body, multiplied
from tilesim.ir.mir import Instruction, Mir
from tilesim.ptx.compute import Data
from tilesim.ptx.launch import Pointer
from tilesim.ptx.together import Together

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


def steps(rng: random.Random, count: int) -> str:
    """Instructions on one line, which compute with registers of the tile and others."""
    found = []
    for _ in range(count):
        target, one, other = rng.choice((*TILE, *PLAIN[2:])), *rng.choices(TILE + PLAIN, k=2)
        found.append(
            rng.choice((
                f"mov.f32 {target}, {one};", f"mul.f32 {target}, {target}, {one};",
                f"ex2.approx.f32 {target}, {one};", f"ex2.approx.f32 {target}, {target};",
                f"fma.rn.f32 {target}, {one}, {other}, {target};", f"mov.f32 {target}, 0f00000000;",
            ))
        )  # fmt: skip
    return " ".join(found) + "\n"


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_proved_that_was_not_before(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two warpgroups, which compute the same but for some instructions, maybe."""
    rng = random.Random(seed)
    only = ("@%p2 bra E;\n", steps(rng, 2), "E:\n") if rng.random() < 0.3 else ()
    start = "mov.f32 %f3, %f1; mov.f32 %f4, 0f3F800000;\n"
    text = body(
        LOADED, start, ONCE, steps(rng, 6), *only, steps(rng, 3), what=rng.choice(TILE + PLAIN[2:])
    )
    together = multiplied(text)
    monkeypatch.setattr(Together, "add", apart)
    each = multiplied(text)
    assert (together.verdict, together.rules) == (each.verdict, each.rules)
