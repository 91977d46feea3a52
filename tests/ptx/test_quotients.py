"""What compilers make of quotients, remainders and masks in loops: a claim for every trip count."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from tilesim.arith.types import u32
from tilesim.cli import main
from tilesim.ir.arithmetic import Typing
from tilesim.ir.expr import Binary, Const, Expr, Var, binary
from tilesim.ptx.passes.forwarding import as_quotient

ALL_BITS = (1 << 64) - 1
#: a warp fills three slots of shared memory in turns, another one reads them; what each makes of
#: the number of the turn, %r10 or %r33, and of how many there are, %r20
RING = """.version 8.4
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 a, .param .u32 n)
.maxntid 64
{{
.reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<40>;
.shared .align 128 .b8 smem[384];
.shared .align 8 .b8 full[24];
.shared .align 8 .b8 empty[24];
ld.param.u64 %rd1, [a]; ld.param.u32 %r20, [n]; cvta.to.global.u64 %rd1, %rd1;
mov.u32 %r4, %tid.x; and.b32 %r5, %r4, 31; shl.b32 %r5, %r5, 2;
mov.u32 %r1, smem; mov.u32 %r2, full; mov.u32 %r3, empty; mov.u32 %r10, 0;
setp.ne.u32 %p4, %r4, 0;
@%p4 bra TOGETHER;
mbarrier.init.shared.b64 [%r2], 32; mbarrier.init.shared.b64 [%r3], 32;
mbarrier.init.shared.b64 [%r2+8], 32; mbarrier.init.shared.b64 [%r3+8], 32;
mbarrier.init.shared.b64 [%r2+16], 32; mbarrier.init.shared.b64 [%r3+16], 32;
TOGETHER:
bar.sync 0;
setp.gt.u32 %p1, %r4, 31;
@%p1 bra READER;
{writer}
setp.ge.s32 %p2, %r10, %r20;
@%p2 bra DONE;
FILL:
mul.wide.u32 %rd2, %r10, -1431655765; shr.u64 %rd3, %rd2, 33; cvt.u32.u64 %r11, %rd3;
mul.lo.s32 %r12, %r11, 3; sub.s32 %r6, %r10, %r12; and.b32 %r13, %r11, 1; xor.b32 %r7, %r13, 1;
shl.b32 %r14, %r6, 3; add.u32 %r15, %r3, %r14; add.u32 %r16, %r2, %r14;
EMPTY:
mbarrier.try_wait.parity.shared.b64 %p3, [%r15], %r7;
@!%p3 bra EMPTY;
shl.b32 %r17, %r10, 5; mul.wide.s32 %rd4, %r17, 4; add.s64 %rd5, %rd1, %rd4;
ld.global.u32 %r18, [%rd5];
mad.lo.u32 %r19, %r6, 128, %r1; add.u32 %r8, %r19, %r5; st.shared.u32 [%r8], %r18;
mbarrier.arrive.shared.b64 _, [%r16];
add.s32 %r10, %r10, 1; setp.lt.s32 %p2, %r10, %r20;
@%p2 bra FILL;
bra DONE;
READER:
{reader}
setp.ge.s32 %p2, %r10, %r20;
@%p2 bra DONE;
READ:
{turn}
mul.wide.u32 %rd6, %r33, -1431655765; shr.u64 %rd7, %rd6, {count}; cvt.u32.u64 %r21, %rd7;
mul.hi.u32 %r22, %r33, -1431655765; shr.u32 %r23, %r22, 1;
mul.lo.s32 %r24, %r23, 3; sub.s32 %r25, %r33, %r24; and.b32 %r26, %r21, 1;
shl.b32 %r27, %r25, 3; add.u32 %r28, %r3, %r27; add.u32 %r29, %r2, %r27;
FULL:
mbarrier.try_wait.parity.shared.b64 %p6, [%r29], %r26;
@!%p6 bra FULL;
mad.lo.u32 %r30, %r25, 128, %r1; add.u32 %r31, %r30, %r5; ld.shared.u32 %r32, [%r31];
mbarrier.arrive.shared.b64 _, [%r28];
add.s32 %r10, %r10, 1; setp.lt.s32 %p7, %r10, %r20;
@%p7 bra READ;
DONE:
ret;
}}
"""
TURN = "mov.b32 %r33, %r10;"
EVEN = "and.b32 %r20, %r20, -2;"


def said(
    folder: Path, *options: str, writer: str = "", reader: str = "", turn: str = TURN,
    count: int = 33, n: int = 2,
) -> tuple[int, str]:  # fmt: skip
    """The exit code and the output, in one line, of a check."""
    text = RING.format(writer=writer, reader=reader, turn=turn, count=count)
    (folder / "f.ptx").write_text(text)
    pointer = {"kind": "pointer", "name": "a", "bytes": 1 << 26}
    scalar = {"kind": "scalar", "type": "u32", "value": n, "name": "n"}
    launch = {"schema": "tilesim.launch/1", "entry": "f", "grid": [1], "block": [64]}
    (folder / "f.json").write_text(json.dumps({**launch, "params": [pointer, scalar]}))
    result = CliRunner().invoke(main, ["check", str(folder / "f.ptx"), *options])
    return result.exit_code, " ".join(result.output.split())


def test_a_ring_of_three_is_proved_for_every_trip_count(tmp_path: Path) -> None:
    """Up to where the buffer of 2^26 bytes ends, of which each turn reads 128."""
    code, text = said(tmp_path, "--for-all", "n", writer=EVEN, reader=EVEN)
    assert code == 0, text
    found = re.search(r"every n >= 1 up to (\d+) \(then: `ld r18", text)
    assert found
    assert 0 <= (1 << 19) - int(found[1]) < 16


@pytest.mark.parametrize(
    ("writer", "reader", "count", "first"),
    [("", "", 34, 4), (EVEN, "", 33, 3), ("", "add.u32 %r20, %r20, 1;", 33, 1)],
)
def test_the_first_trip_count_that_fails_is_found(
    tmp_path: Path, writer: str, reader: str, count: int, first: int
) -> None:
    """Phases that turn every six turns, or a reader of turns that nobody fills."""
    code, text = said(tmp_path, "--for-all", "n=2..", writer=writer, reader=reader, count=count)
    assert code == 1, text
    assert ("race" if count == 34 else "deadlock") in text
    assert f"n = {max(first, 2)}" in text


def test_a_turn_that_is_counted_in_16_bits_begins_again(tmp_path: Path) -> None:
    """The ring of three does not: after the last number it goes on elsewhere."""
    last = 1 << 16
    mask = f"and.b32 %r33, %r10, {last - 1};"
    code, text = said(tmp_path, "--for-all", f"n=2..{last + 2}", turn=mask)
    assert code == 1, text
    assert f"covers n = {last + 1}; " in text
    assert said(tmp_path, "--for-all", f"n=2..{last}", turn=mask)[0] == 0


@pytest.mark.parametrize("count", [33, 34])
def test_what_repeats_is_left_out_and_nothing_else(tmp_path: Path, count: int) -> None:
    """With an address that is the product of a number with a sign, in 64 bits without one."""
    plain = said(tmp_path, "--no-skip", n=300, count=count)
    assert said(tmp_path, n=300, count=count) == plain
    assert plain[0] == (0 if count == 33 else 1), plain[1]


X = Var("x", u32)
TYPING = Typing()


def shifted(factor: int, count: int) -> Expr:
    """As an instruction computes it of a register of 32 bits."""
    product = binary("*", binary("-", X, 0), factor)
    return binary(">>", binary("&", product, ALL_BITS), count)


@pytest.mark.parametrize("divisor", [2, 3, 5, 6, 9, 10, 12, 100, 641, 1_000])
def test_a_quotient_is_told_where_it_is_one_for_every_number(divisor: int) -> None:
    for count in range(32, 48):
        factor = -(-(1 << count) // divisor)
        if factor >= 1 << 32:
            continue
        found = as_quotient(shifted(factor, count), TYPING)
        edges = [m * divisor + d for m in (1, (1 << 32) // divisor) for d in (-1, 0)]
        numbers = [x for x in (0, *edges, (1 << 32) - 1) if x < 1 << 32]
        is_one = all(x * factor >> count == x // divisor for x in numbers)
        quotients = [p for p in _parts(found) if isinstance(p, Binary) and p.op == "//"]
        assert bool(quotients) == is_one, (divisor, count)
        assert not quotients or quotients[0].rhs == Const(divisor)
        assert TYPING.type_of(found) == "u64"


def _parts(expr: Expr) -> list[Expr]:
    if isinstance(expr, Binary):
        return [expr, *_parts(expr.lhs), *_parts(expr.rhs)]
    return [expr]
