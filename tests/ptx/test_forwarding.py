"""Expressions in place of registers: the same values, findings and lines as with the registers."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.ptx.test_check import FIRST, HEAD, lines, program, report
from tests.sim.sites import BOTH
from tilesim.analysis.cfg import FlowGraph
from tilesim.checker import check
from tilesim.ir.arithmetic import Typing
from tilesim.ir.mir import Instruction, Mir
from tilesim.ir.op import Op
from tilesim.ir.ops.compute import Compute
from tilesim.ptx.launch import Contents, Launch, Pointer
from tilesim.ptx.parser import read
from tilesim.ptx.passes import simplify
from tilesim.ptx.program import lower
from tilesim.sim.machine.simulate import simulate

OUT = (".param .u64 out",)
BINARY = ("add.u32", "sub.u32", "mul.lo.u32", "and.b32", "or.b32", "xor.b32", "min.s32", "max.u32")
SHIFTS = ("shl.b32", "shr.u32", "shr.s32")
WIDE = ("add.u64", "sub.s64", "xor.b64", "and.b64", "mul.lo.u64")
COMPARE = ("lt.s32", "lt.u32", "eq.u32", "ge.s32")
NUMBERS = (0, 1, 3, 31, 128, 4096, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def not_forwarded(
    graph: FlowGraph, code: list[Instruction], given: Collection[str], gone: Collection[int]
) -> Typing:
    return graph.mir.typing


def narrow(rng: random.Random) -> str:
    """A register of 32 bits, or a number."""
    return str(rng.choice(NUMBERS)) if rng.random() < 0.3 else f"%r{rng.randrange(10, 18)}"


def step(rng: random.Random) -> str:
    """An instruction that sets a register, of any kind of operation; sometimes with a guard."""
    guard = rng.choice(("", "", "", "@%p1 ", "@!%p2 "))
    target, kind = f"%r{rng.randrange(10, 18)}", rng.randrange(8)
    wide, other = f"%rd{rng.randrange(10, 14)}", f"%rd{rng.randrange(10, 14)}"
    match kind:
        case 0:
            return f"{guard}{rng.choice(SHIFTS)} {target}, {narrow(rng)}, {rng.randrange(36)};"
        case 1:
            flag = f"%p{rng.randrange(1, 3)}"
            return f"{guard}setp.{rng.choice(COMPARE)} {flag}, {narrow(rng)}, {narrow(rng)};"
        case 2:
            return f"{guard}selp.b32 {target}, {narrow(rng)}, {narrow(rng)}, %p1;"
        case 3:
            return f"{guard}cvt.u64.u32 {wide}, {target}; cvt.u32.u64 {target}, {other};"
        case 4:
            return f"{guard}{rng.choice(WIDE)} {wide}, {other}, {rng.choice((wide, '5', '-1'))};"
        case 5:
            return f"{guard}mov.u32 {target}, {rng.choice((narrow(rng), '%tid.x', '%laneid'))};"
        case 6:
            return f"{guard}not.b32 {target}, {narrow(rng)};"
        case _:
            return f"{guard}{rng.choice(BINARY)} {target}, {narrow(rng)}, {narrow(rng)};"


def kernel(seed: int) -> str:
    """Instructions, branches that lanes take differently, and a loop; then all is stored."""
    rng = random.Random(seed)

    def steps() -> str:
        return "\n".join(step(rng) for _ in range(rng.randrange(2, 9)))

    start = [f"mov.u32 %r{n}, {rng.choice((*map(str, NUMBERS), '%tid.x'))};" for n in range(10, 18)]
    start += [f"cvt.u64.u32 %rd{n}, %r{n};" for n in range(10, 14)]
    start += ["setp.lt.u32 %p1, %r10, 16; setp.gt.s32 %p2, %r11, 7; mov.u32 %r20, 0;"]
    body = f"{steps()}\n@%p1 bra A;\n{steps()}\nA:\n{steps()}\n@!%p2 bra B;\n{steps()}\nbra C;\n"
    body += f"B:\n{steps()}\nC:\n{steps()}\nadd.u32 %r20, %r20, 1; setp.lt.u32 %p3, %r20, 3;\n"
    place = "mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 64; ld.param.u64 %rd1, [out];\n"
    place += "add.u64 %rd1, %rd1, %rd2;\n"
    stores = [f"st.global.u32 [%rd1+{4 * k}], %r{10 + k};" for k in range(8)]
    stores += [f"st.global.u64 [%rd1+{32 + 8 * k}], %rd{10 + k};" for k in range(4)]
    return "\n".join([*start, f"L:\n{body}@%p3 bra L;", place, *stores])


def stored(mir: Mir) -> NDArray[np.uint8]:
    return np.asarray(simulate(mir).outputs["x"])


def made(body: str) -> Mir:
    return program(body, params=OUT, values=(Pointer("x", 2048),))


@pytest.mark.parametrize("seed", range(25))
def test_registers_hold_what_they_hold_without_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = kernel(seed)
    short = made(text)
    with monkeypatch.context() as patched:
        patched.setattr(simplify, "forward", not_forwarded)
        long = made(text)
    assert len(short.code) < len(long.code)
    np.testing.assert_array_equal(stored(short), stored(long))


def ops(mir: Mir) -> Iterator[str]:
    return (i.what.mnemonic for i in mir.code if isinstance(i.what, Op))


def test_an_address_is_an_operand() -> None:
    mir = program(
        "mov.u32 %r1, smem; add.u32 %r2, %r1, 64; mov.u32 %r3, 5; st.shared.u32 [%r2], %r3;"
    )
    assert [*ops(mir)][:1] == ["st"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        # what an address is made of is set again behind it, or before
        ("add.u32 %r2, %r1, 4032; {set}\nred.shared.add.u32 [%r2], 1;", False),
        ("{set} add.u32 %r2, %r1, 4032;\nred.shared.add.u32 [%r2], 1;", True),
        # in some lanes, in a turn of a loop
        ("add.u32 %r2, %r1, 4032; @%p1 {set}\nred.shared.add.u32 [%r2], 1;", False),
        ("@%p1 {set} add.u32 %r2, %r1, 4032;\nred.shared.add.u32 [%r2], 1;", True),
        ("add.u32 %r2, %r1, 4032; @%p1 bra OUT; {set} OUT:\nred.shared.add.u32 [%r2], 1;", False),
        ("@%p1 bra OUT; {set} OUT: add.u32 %r2, %r1, 4032;\nred.shared.add.u32 [%r2], 1;", True),
        # the address itself
        (
            "add.u32 %r2, %r1, 4096; @!%p2 add.u32 %r2, %r1, 64;\nred.shared.add.u32 [%r2], 1;",
            False,
        ),
        ("add.u32 %r2, %r1, 4096; @%p1 add.u32 %r2, %r1, 64;\nred.shared.add.u32 [%r2], 1;", True),
        ("add.u32 %r2, %r1, 4096; @%p1 bra OUT;\nred.shared.add.u32 [%r2], 1; OUT:", True),
    ],
)
def test_an_address_is_that_of_its_place(text: str, wrong: bool) -> None:
    """Shared memory has 4096 bytes."""
    start = (
        "mov.u32 %r1, smem; mov.u32 %r9, %tid.x; setp.lt.u32 %p1, %r9, 4; setp.gt.u32 %p2, %r9, 99;"
        " setp.eq.u32 %p3, %r9, 0; @%p3 st.shared.u32 [smem+64], 0;"
        " @%p3 st.shared.u32 [smem+4032], 0; bar.warp.sync -1;"
    )
    body = f"{start}\n{text.format(set='add.u32 %r1, %r1, 64;')}"
    for strict in BOTH:
        found = check(program(body), strict=strict)
        assert found.rules == ({"out-of-bounds"} if wrong else set()), body
        if wrong:
            assert lines(found) == [2]
        else:
            assert found.verdict == "proved"


@pytest.mark.parametrize(
    ("shift", "wrong"), [("shr.u32 %r3, %r2, 20;", False), ("shr.s32 %r3, %r2, 20;", True)]
)
def test_a_number_that_wraps_wraps_inside_of_an_expression(shift: str, wrong: bool) -> None:
    """2^32 - 4096 is no negative number to ``shr.u32``, and 4095 after it."""
    body = (
        "mov.u32 %r1, smem; mov.u32 %r9, %ctaid.x; sub.u32 %r2, %r9, 4096;\n"
        f"{shift} add.u32 %r4, %r1, %r3;\nst.shared.u8 [%r4], 1;"
    )
    found = report(body)
    assert found.rules == ({"out-of-bounds"} if wrong else set())
    assert not wrong or lines(found) == [2]


@pytest.mark.parametrize("decides", [False, True])
def test_what_is_computed_of_what_nobody_knows_says_where_that_comes_from(decides: bool) -> None:
    """So are maxima of it."""
    body = (
        "mov.u32 %r1, smem; mov.u32 %r9, %tid.x; mov.b32 %f6, %r9;\nex2.approx.f32 %f5, %f6;\n"
        "max.f32 %f7, %f5, %f5; max.f32 %f7, %f7, %f5; max.f32 %f8, %f7, 0f00000000;\n"
        "shl.b32 %r2, %r9, 2; add.u32 %r3, %r1, %r2; st.shared.f32 [%r3], %f8;\n"
    )
    if decides:
        body += "setp.gt.f32 %p5, %f8, 0f00000000;\n@%p5 bra LAST;\nbar.warp.sync 1;\nLAST:\n"
    found = report(body)
    assert found.verdict == ("bounded" if decides else "proved")
    assert not decides or "ex2.approx.f32" in " ".join(found.reasons)
    assert "k.ptx:9" in " ".join(found.reasons) or not decides
    computed = [i.what.opcode for i in program(body).code if isinstance(i.what, Compute)]
    assert not {opcode for opcode in computed if opcode.startswith("max")}


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("mov.b32 %r2, %r9; add.u32 %r2, %r9, 1;", 1),
        ("mov.b32 %r2, %r9; @%p1 add.u32 %r2, %r9, 1;", 2),
        ("mul.hi.u32 %r2, %r9, %r9; mul.hi.u32 %r2, %r9, 7;", 1),
        ("mul.hi.u32 %r2, %r9, %r9; st.shared.u32 [%r1+128], %r2; mul.hi.u32 %r2, %r9, 7;", 2),
    ],
)
def test_what_is_set_again_before_anybody_reads_it_is_left_out(text: str, left: int) -> None:
    start = "mov.u32 %r1, smem; mov.u32 %r9, %tid.x; setp.lt.u32 %p1, %r9, 4;\n"
    stores = "st.shared.u8 [%r1], %r2; st.shared.u8 [%r1+64], %r2;"
    mir = program(f"{start}{text}\n{stores}")
    assert len(mir.setters["r2"]) == left


@pytest.mark.parametrize("beside", [0, 1])
def test_a_number_beyond_those_with_a_sign_is_compared_as_it_is(beside: int) -> None:
    """In place of the register stands what it was made of, which is computed with a sign."""
    step = 0x123456789ABCDEF
    given = Contents("u64", tuple((lane * step << 2) + beside for lane in range(32)))
    text = HEAD.format(params=".param .u64 x") + (
        "ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 8; "
        f"add.u64 %rd3, %rd1, %rd2; cvt.u64.u32 %rd4, %r1; mul.lo.u64 %rd5, %rd4, {step}; "
        "shl.b64 %rd6, %rd5, 2;\nld.global.u64 %rd7, [%rd3]; setp.ne.u64 %p1, %rd6, %rd7;\n"
        "@%p1 trap;\nret;\n}\n"
    )
    module = read(text, "k.ptx")
    launch = Launch("k", (1, 1, 1), (32, 1, 1), params=(Pointer("x", 256, 0, given),))
    found = check(lower(module, module.entries[0], launch))
    assert found.verdict == ("unsupported" if beside else "proved")
    if beside:
        assert [p.loc.line - FIRST for p in found.findings[0].participants] == [2]
