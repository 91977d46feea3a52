"""What PTX computes, told apart from everything else: one number decides whether an arrival comes.

In one lane, CTA, turn or launch a kernel compares what instructions give with what they give by
the PTX ISA. The right kernel arrives where all of it is the same; the wrong one leaves its arrival
out just there, and arrives if anything else is computed: whatever takes a result for another one
calls that one proved. Operands come from where passes over PTX and the machine look at them in
another way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.ptx.test_check import FIRST, HEAD
from tilesim.checker import Report, check
from tilesim.ptx.launch import Launch, Parameter, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower

#: the lane, CTA or turn in which it counts
ODD = {"lanes": 29, "sums of lanes": 29, "clusters": 37, "turns": 37}
TURNS = 64
#: operands there, by the register they are in; registers of 64 bits have capital letters
OPERANDS = {
    "a": 0xC9A35E87, "b": 0x00000B53, "n": 13, "c": 0x7FFF0124, "A": 0x9234567890ABCDEF,
    "B": 0x0000000180000003,
}  # fmt: skip
#: by how much an operand is more in the next lane, CTA or turn
STEPS = {"a": 0x10003, "b": 7, "n": 1, "c": 3, "A": 0x100000005, "B": 9}
a, b, n, c, A, B = OPERANDS.values()
M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def s(value: int, width: int = 32) -> int:
    """The number with a sign."""
    value &= (1 << width) - 1
    return value - (value >> width - 1 << width)


@dataclass(frozen=True)
class Row:
    """Instructions that leave a result in %v, or if ``wide`` in %w, and the number that it is."""

    text: str
    result: int
    wide: bool = False


def _row(text: str, result: int) -> Row:
    return Row(text, result & M32)


def _wide(text: str, result: int) -> Row:
    return Row(text, result & M64, wide=True)


def _selected(compare: str) -> str:
    return f"setp.{compare}; selp.b32 %v, 7, 9, %q;"


#: by family
ROWS: dict[str, tuple[Row, ...]] = {
    "sums": (
        _row("add.u32 %v, %a, %a;", 2 * a),
        _row("sub.u32 %v, %b, %a;", b - a),
        _wide("add.u64 %w, %A, %A;", 2 * A),
        _wide("sub.s64 %w, %B, %A;", B - A),
        _row("neg.s32 %v, %b;", -b),
        _row("add.u16 %h, %ah, 40000; cvt.u32.u16 %v, %h;", (a + 40000) & 0xFFFF),
        _row("sub.s16 %h, %bh, %ah; cvt.s32.s16 %v, %h;", s(b - a, 16)),
        _row("abs.s32 %v, %a;", abs(s(a))),
        _row("sad.u32 %v, %a, %b, %n;", a - b + n),
    ),
    "products": (
        _row("mul.lo.u32 %v, %a, %b;", a * b),
        _row("mul.hi.u32 %v, %a, %b;", a * b >> 32),
        _row("mul.hi.s32 %v, %a, %b;", s(a) * b >> 32),
        _wide("mul.wide.u32 %w, %a, %b;", a * b),
        _wide("mul.wide.s32 %w, %a, %b;", s(a) * b),
        _wide("mad.wide.s32 %w, %a, %b, %A;", s(a) * b + A),
        _wide("mad.wide.u32 %w, %a, %c, %B;", a * c + B),
        _row("mad.lo.s32 %v, %a, %n, %b;", a * n + b),
        _row("mad.hi.u32 %v, %a, %c, %b;", (a * c >> 32) + b),
        _row("mul.wide.u16 %v, %ah, %bh;", (a & 0xFFFF) * (b & 0xFFFF)),
        _row("mul.wide.s16 %v, %ch, %bh;", s(c, 16) * s(b, 16)),
    ),
    "long products": (
        _wide("mul.lo.u64 %w, %A, %B;", A * B),
        _wide("mul.hi.u64 %w, %A, %B;", A * B >> 64),
        _wide("mul.hi.s64 %w, %A, %B;", s(A, 64) * B >> 64),
        _wide("mad.lo.u64 %w, %A, 3, %B;", A * 3 + B),
        _row("mul24.lo.u32 %v, %a, %b;", (a & 0xFFFFFF) * b),
        _row("mul24.hi.u32 %v, %a, %b;", (a & 0xFFFFFF) * b >> 16),
        _row("mul24.lo.s32 %v, %a, %b;", s(a, 24) * b),
        _row("mul24.hi.s32 %v, %a, %b;", s(a, 24) * b >> 16),
        _row("mad24.lo.u32 %v, %a, %b, %n;", (a & 0xFFFFFF) * b + n),
        _row("mad24.hi.s32 %v, %a, %b, %n;", (s(a, 24) * b >> 16) + n),
    ),
    "quotients": (
        _row("div.u32 %v, %a, %n;", a // n),
        _row("rem.u32 %v, %a, %n;", a % n),
        _row("div.s32 %v, %a, %n;", -(-s(a) // n)),
        _row("rem.s32 %v, %a, %n;", -(-s(a) % n)),
        _row("and.b32 %r30, %n, 0; rem.u32 %v, %a, %r30;", M32),
        _wide("div.u64 %w, %A, %B;", A // B),
        _wide("rem.s64 %w, %A, %B;", -(-s(A, 64) % B)),
        _row("mul.wide.u32 %w, %a, -1431655765; shr.u64 %w, %w, 33; cvt.u32.u64 %v, %w;", a // 3),
        _row("mul.hi.u32 %v, %a, -858993459; shr.u32 %v, %v, 2;", a // 5),
        # like quotients, but for a sum and a product that wraps
        _row("and.b32 %r30, %n, 255; mul.lo.u32 %r31, %r30, 171; add.u32 %r32, %r31, 5;"
             " shr.u32 %v, %r32, 9;", (n * 171 + 5) >> 9),
        _wide("cvt.u64.u32 %rd20, %a; mul.lo.u64 %rd21, %rd20, 6871947674; shr.u64 %w, %rd21, 35;",
              (a * 6871947674 & M64) >> 35),
        _row("cvt.u64.u32 %rd20, %n; mul.lo.u64 %rd21, %rd20, 3; shr.u64 %w, %rd21, 1;"
             " cvt.u32.u64 %v, %w;", n * 3 // 2),
        _row("mul.hi.s32 %v, %a, 1431655766; shr.u32 %r30, %v, 31; add.s32 %v, %v, %r30;",
             -(-s(a) // 3)),
        # quotients, by factors that are large enough, and such as are not
        _wide("mul.wide.u32 %rd20, %a, -1431655765; shr.u64 %w, %rd20, 33;", a // 3),
        _row("mul.hi.u32 %r30, %a, -858993459; shr.u32 %v, %r30, 2;", a // 5),
        _row("mul.hi.u32 %r30, %a, 613566757; shr.u32 %v, %r30, 1;", a * 613566757 >> 33),
        _row("add.u32 %r31, %a, 3; mul.hi.u32 %r30, %r31, 613566757; shr.u32 %v, %r30, 0;",
             (a + 3) * 613566757 >> 32),
        _row("mul.hi.u32 %r30, %a, 613566756; shr.u32 %v, %r30, 1;", a * 613566756 >> 33),
        _row("and.b32 %r30, %n, 255; mul.lo.u32 %r31, %r30, 171; shr.u32 %v, %r31, 9;", n // 3),
        _row("and.b32 %r30, %a, 1023; mul.lo.u32 %r31, %r30, 171; shr.u32 %v, %r31, 9;",
             (a & 1023) * 171 >> 9),
        _row("and.b32 %r30, %a, 1023; mul.lo.u32 %r31, %r30, 171; shr.u32 %r32, %r31, 5;"
             " shr.u32 %v, %r32, 5;", (a & 1023) * 171 >> 10),
        _row("mul.lo.u32 %r31, %a, 171; shr.u32 %v, %r31, 9;", (a * 171 & M32) >> 9),
        _row("and.b32 %r30, %n, 255; mul.lo.u32 %r31, %r30, 171; shr.u32 %v, %r31, %b;", 0),
        _row("and.b32 %r30, %n, 255; mul.lo.u32 %r31, %r30, 512; shr.u32 %v, %r31, 9;", n),
    ),
    "shifts": (
        _row("shl.b32 %v, %a, %n;", a << n),
        _row("shl.b32 %v, %a, 3;", a << 3),
        _row("shr.u32 %v, %a, %n;", a >> n),
        _row("shr.s32 %v, %a, %n;", s(a) >> n),
        _row("add.u32 %r30, %n, 30; shl.b32 %v, %a, %r30;", 0),
        _row("add.u32 %r30, %n, 30; shr.u32 %v, %a, %r30;", 0),
        _row("add.u32 %r30, %n, 30; shr.s32 %v, %a, %r30;", -1),
        _wide("shl.b64 %w, %A, %n;", A << n),
        _wide("shr.u64 %w, %A, %n;", A >> n),
        _wide("shr.s64 %w, %A, 33;", s(A, 64) >> 33),
        _row("shf.l.wrap.b32 %v, %a, %b, %n;", (b << 32 | a) << n >> 32),
        _row("shf.r.wrap.b32 %v, %a, %b, %n;", (b << 32 | a) >> n),
        _row("shr.s16 %h, %ch, 2; cvt.u32.u16 %v, %h;", (s(c, 16) >> 2) & 0xFFFF),
        _row("shl.b16 %h, %ah, 5; cvt.u32.u16 %v, %h;", (a << 5) & 0xFFFF),
    ),
    "bits": (
        _row("and.b32 %v, %a, %c;", a & c),
        _row("or.b32 %v, %a, %b;", a | b),
        _row("xor.b32 %v, %a, -1;", a ^ M32),
        _row("not.b32 %v, %a;", ~a),
        _row("lop3.b32 %v, %a, %b, %c, 0xCA;", (a & b) | (~a & c)),
        _row("lop3.b32 %v, %a, %b, %c, 0x96;", a ^ b ^ c),
        _wide("and.b64 %w, %A, 0xFF00FF00;", A & 0xFF00FF00),
        _wide("not.b64 %w, %A;", ~A),
        _row("popc.b32 %v, %a;", a.bit_count()),
        _row("clz.b32 %v, %b;", 32 - b.bit_length()),
        _row("brev.b32 %v, %a;", int(f"{a:032b}"[::-1], 2)),
        _row("bfind.u32 %v, %b;", b.bit_length() - 1),
    ),
    "fields": (
        _row("bfe.u32 %v, %a, 5, 9;", a >> 5 & 511),
        _row("bfe.s32 %v, %a, 4, 4;", s(a >> 4 & 15, 4)),
        _row("bfe.u32 %v, %a, %n, 30;", a >> n),
        _row("bfe.s32 %v, %a, %n, 30;", s(a) >> n),
        _wide("bfe.u64 %w, %A, 20, 40;", A >> 20 & (1 << 40) - 1),
        _row("bfi.b32 %v, %a, %b, 8, 12;", b & ~(0xFFF << 8) | (a & 0xFFF) << 8),
        _row("bfi.b32 %v, %b, %a, %n, 6;", a & ~(63 << n) | (b & 63) << n),
        _row("prmt.b32 %v, %a, %b, 0x5410;", (b & 0xFFFF) << 16 | a & 0xFFFF),
        # bytes 2 and 7, and between and above them the sign of byte 3
        _row("prmt.b32 %v, %a, %b, 0xB7B2;", 0xFF00FF00 | (b >> 24) << 16 | a >> 16 & 0xFF),
        _row("prmt.b32 %v, %a, %b, 0x0123;", int.from_bytes(a.to_bytes(4, "little"), "big")),
    ),
    "conversions": (
        _wide("cvt.u64.u32 %w, %a;", a),
        _wide("cvt.s64.s32 %w, %a;", s(a)),
        _row("cvt.u32.u64 %v, %A;", A),
        _row("cvt.u32.u8 %v, %a;", a & 0xFF),
        _row("cvt.s32.s8 %v, %a;", s(a, 8)),
        _row("cvt.s32.s16 %v, %ah;", s(a, 16)),
        _row("cvt.u32.u16 %v, %ah;", a & 0xFFFF),
        # to a type that is narrower than its register, which it fills (PTX 9.4.1)
        _row("cvt.s8.s32 %v, %a;", s(a, 8)),
        _row("cvt.u8.s32 %v, %a;", a & 0xFF),
        _row("cvt.s16.u32 %v, %a;", s(a, 16)),
        _row("cvt.u16.s32 %v, %a;", a & 0xFFFF),
        _row("cvt.sat.s8.s32 %v, %a;", -128),
        _row("cvt.s8.u32 %h, %a; cvt.u32.u16 %v, %h;", s(a, 8) & 0xFFFF),
        _wide("cvt.s32.s64 %w, %A;", s(A)),
        _wide("cvt.u32.s16 %w, %ah;", s(a, 16) & M32),
        _wide("cvt.s8.u32 %w, %a;", s(a, 8)),
        _wide("and.b32 %r30, %n, 0; or.b32 %r31, %r30, 511; cvt.u32.u8 %r32, %r31;"
              " mov.b64 %w, {%a, %r32};", 255 << 32 | a),
        _wide("mov.b64 %w, {%a, %b};", b << 32 | a),
        _row("mov.b64 {%r30, %v}, %A;", A >> 32),
        _row("mov.b64 {%v, %r30}, %A;", A),
        _row("mov.b32 {%h, %g}, %a; cvt.u32.u16 %v, %g;", a >> 16),
        _row("mov.b32 %v, {%bh, %ah};", (a & 0xFFFF) << 16 | b & 0xFFFF),
        _row("mov.b32 %v, {%bh, -1};", 0xFFFF << 16 | b & 0xFFFF),
        _wide("mov.b64 %w, {%a, -1};", M32 << 32 | a),
        _row("cvt.rn.sat.f32.s32 %v, %a;", 0),
        _row("cvt.rn.sat.f32.u32 %v, %a;", 0x3F800000),
    ),
    "choices": (
        _row("min.u32 %v, %a, %b;", min(a, b)),
        _row("max.u32 %v, %a, %b;", max(a, b)),
        _row("min.s32 %v, %a, %b;", min(s(a), b)),
        _row("max.s32 %v, %a, %b;", max(s(a), b)),
        _wide("min.s64 %w, %A, %B;", min(s(A, 64), B)),
        _wide("max.u64 %w, %A, %B;", max(A, B)),
        _row("slct.b32.s32 %v, %b, %c, %a;", c),
        _row("setp.lt.s32 %q, %a, 0; selp.b32 %v, %b, %c, %q;", b),
        _row("mov.u32 %v, 3; setp.gt.u32 %q, %n, 12; @%q mov.u32 %v, 4;", 4),
        _row("mov.u32 %v, 3; setp.gt.u32 %q, %n, 13; @%q mov.u32 %v, 4; @!%q add.u32 %v, %v, 7;",
             10),
    ),
    "comparisons": (
        _row(_selected("lt.u32 %q, %a, %b"), 9),
        _row(_selected("lt.s32 %q, %a, %b"), 7),
        _row(_selected("ge.u32 %q, %a, %a"), 7),
        _row(_selected("hi.u32 %q, %a, %c"), 7),
        _row(_selected("gt.s32 %q, %a, %c"), 9),
        _row(_selected("le.s64 %q, %A, %B"), 7),
        _row(_selected("ls.u64 %q, %A, %B"), 9),
        _row(_selected("eq.b32 %q, %n, 13"), 7),
        _row(_selected("ne.s16 %q, %ah, 24199"), 9),
        _row("setp.eq.u32 %q, %n, 13; " + _selected("lt.and.u32 %q, %n, 14, %q"), 7),
        _row("setp.eq.u32 %q, %n, 12; " + _selected("lt.or.u32 %q, %n, 13, %q"), 9),
        _row("setp.eq.u32 %q, %n, 13; " + _selected("lt.xor.u32 %q, %n, 14, %q"), 9),
        _row("setp.lt.s32 %q|%p8, %a, %b; selp.b32 %v, 7, 9, %p8;", 9),
        _row("setp.gt.s32 %q|%p8, %n, 12; selp.b32 %v, 7, 9, %p8;", 9),
        _row("setp.eq.u32 %q, %n, 13; selp.b32 %r30, 1, 0, %q; " + _selected("eq.u32 %q, %r30, 0"),
             9),
        _row("setp.eq.u32 %q, %n, 13; selp.b32 %r30, 0, -1, %q; " + _selected("eq.s32 %q, %r30, 0"),
             7),
        _row("setp.eq.u32 %q, %n, 13; selp.b32 %r30, 5, 3, %q; " + _selected("ne.s32 %q, %r30, 3"),
             7),
        _row("set.lt.u32.s32 %v, %a, %b;", M32),
        # two less than zero
        _row("cvt.s64.s32 %w, %n; sub.s64 %w, %w, 15; " + _selected("lt.u64 %q, %w, 10"), 9),
        _row("cvt.s64.s32 %w, %n; sub.s64 %w, %w, 15; " + _selected("lt.s64 %q, %w, 10"), 7),
        _row("sub.s32 %v, %n, 15; " + _selected("gt.u32 %q, %v, 10"), 7),
        _row("sub.s32 %v, %n, 15; " + _selected("ge.s32 %q, %v, 0"), 9),
    ),
    "chains": (
        _row("setp.eq.u32 %q, %n, 13; selp.b32 %r30, 1, 0, %q; add.u32 %r31, %r30, 4;"
             " setp.eq.u32 %p8, %r31, 5; selp.b32 %v, 7, 9, %p8;", 7),
        _row("setp.eq.u32 %q, %n, 13; selp.b32 %r30, 6, 2, %q; sub.u32 %r31, %r30, 2;"
             " setp.gt.u32 %p8, %r31, 3; selp.b32 %v, 7, 9, %p8;", 7),
        _row("setp.eq.u32 %q, %n, 12; selp.b32 %r30, 6, 2, %q; and.b32 %r31, %r30, 4;"
             " setp.ne.u32 %p8, %r31, 0; selp.b32 %v, 7, 9, %p8;", 9),
        _row("setp.lt.u32 %q, %n, 13; selp.b32 %r30, 1, 0, %q; mov.u32 %v, 3;"
             " setp.ne.u32 %p8, %r30, 0; @%p8 mov.u32 %v, 4;", 3),
        _row("setp.lt.u32 %q, %n, 14; selp.b32 %r30, 0, 1, %q; mov.u32 %v, 3;"
             " setp.eq.u32 %p8, %r30, 0; @%p8 mov.u32 %v, 4;", 4),
        _row("setp.lt.u32 %q, %n, 14; selp.b32 %r30, 1, 0, %q; add.u32 %r31, %r30, 4;"
             " setp.eq.u32 %p8, %r31, 5; mov.u32 %v, 3; @%p8 mov.u32 %v, 4;", 4),
        _row("setp.lt.u32 %q, %n, 13; selp.b32 %r30, 6, 2, %q; shr.u32 %r31, %r30, 1;"
             " setp.eq.u32 %p8, %r31, 1; mov.u32 %v, 3; @!%p8 mov.u32 %v, 4;", 3),
        _row("setp.eq.u32 %q, %n, 13; selp.b32 %r30, 6, 0, %q; setp.eq.u32 %p8, %r30, 1;"
             " selp.b32 %v, 7, 9, %p8;", 9),
        _row("setp.eq.u32 %q, %n, 13; selp.b32 %r30, 0, 6, %q; setp.lt.u32 %p8, %r30, 2;"
             " selp.b32 %v, 7, 9, %p8;", 7),
        _row("setp.gt.u32 %q, %n, 12; not.pred %p8, %q; mov.u32 %v, 3; @!%p8 mov.u32 %v, 4;", 4),
        _row("setp.gt.u32 %q, %n, 12; setp.lt.u32 %p8, %n, 14; and.pred %p7, %q, %p8;"
             " selp.b32 %v, 7, 9, %p7;", 7),
        _row("setp.gt.u32 %q, %n, 13; setp.lt.u32 %p8, %n, 13; or.pred %p7, %q, %p8;"
             " selp.b32 %v, 7, 9, %p7;", 9),
        _row("mov.u32 %r30, 5; mov.u32 %r31, %r30; add.u32 %r32, %r31, %n; sub.u32 %v, %r32, %r30;",
             n),
        _row("shl.b32 %r30, %n, 3; shr.u32 %r31, %r30, 2; and.b32 %v, %r31, 31;", n << 1),
        _row("add.u32 %r30, %n, -1; xor.b32 %r31, %r30, 12; setp.eq.u32 %q, %r31, 0;"
             " selp.b32 %v, %n, 3, %q;", n),
        _wide("cvt.u64.u32 %rd20, %a; add.s64 %rd21, %rd20, -1; shl.b64 %rd22, %rd21, 1;"
              " or.b64 %w, %rd22, 1;", (a - 1) * 2 + 1),
    ),
}  # fmt: skip

REGISTERS = (
    ".reg .pred %q, %bad, %here, %ok; .reg .b16 %h, %g, %ah, %bh, %ch; "
    ".reg .b32 %v, %t, %a, %b, %n, %c; .reg .b64 %w, %A, %B;\n"
)
START = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; setp.eq.u32 %p0, %r2, {arriving};\n"
    "@%p0 mbarrier.init.shared::cta.b64 [%r1], 1;\nbar.warp.sync -1;\n"
)
HALVES = "cvt.u16.u32 %ah, %a; cvt.u16.u32 %bh, %b; cvt.u16.u32 %ch, %c;\n"
PARAMS = ", ".join(
    [f".param .u{64 if x.isupper() else 32} p{x}" for x in OPERANDS] + [".param .u32 p_one"]
)
VALUES: tuple[Parameter, ...] = (
    *(Scalar(f"p{x}", "u64" if x.isupper() else "u32", v) for x, v in OPERANDS.items()),
    Scalar("p_one", "u32", 1),
)


def _each(line: Callable[[str, int, int], str]) -> str:
    """What is done for each operand: its name, its width and its value."""
    return "".join(line(x, 64 if x.isupper() else 32, v) for x, v in OPERANDS.items()) + "\n"


def _moving(place: int) -> str:
    """Operands that are more in the next place, of which the number is in %t."""

    def line(x: str, width: int, value: int) -> str:
        first = (value - place * STEPS[x]) & (1 << width) - 1
        if width == 64:
            return f"cvt.u64.u32 %w, %t; mad.lo.u64 %{x}, %w, {STEPS[x]}, {first}; "
        return f"mad.lo.u32 %{x}, %t, {STEPS[x]}, {first}; "

    return f"setp.eq.u32 %here, %t, {place};\n{_each(line)}"


def _through_memory() -> str:
    stores = _each(
        lambda x, w, v: f"mov.u{w} %{x}, {v}; st.shared.u{w} [smem+{64 + 8 * ord(x) % 512}], %{x}; "
    )
    loads = _each(lambda x, w, v: f"ld.shared.u{w} %{x}, [smem+{64 + 8 * ord(x) % 512}]; ")
    return f"@!%p0 bra STORED;\n{stores}STORED: bar.warp.sync -1;\n{loads}"


def _two_arms() -> str:
    other = _each(lambda x, w, v: f"mov.u{w} %{x}, {v ^ 5}; ")
    these = _each(lambda x, w, v: f"mov.u{w} %{x}, {v}; ")
    return (
        "ld.param.u32 %r20, [p_one]; setp.eq.u32 %q, %r20, 1;\n@%q bra THESE;\n"
        f"{other}bra.uni BOTH;\nTHESE: {these}BOTH: "
    )


def _an_arm_beside() -> str:
    """Where lanes do not go, operands are small numbers."""
    other = _each(lambda x, w, v: f"mov.u{w} %{x}, {v & 7}; ")
    these = _each(lambda x, w, v: f"mov.u{w} %{x}, {v}; ")
    return (
        "ld.param.u32 %r20, [p_one]; setp.ne.u32 %q, %r20, 1;\n@%q bra OTHERS;\n"
        f"{these}bra.uni BOTH;\nOTHERS: {other}BOTH: "
    )


#: where operands come from
SOURCES: dict[str, str] = {
    "constants": _each(lambda x, w, v: f"mov.u{w} %{x}, {v}; "),
    "sums of constants": _each(
        lambda x, w, v: f"mov.u{w} %{x}, {v - 77}; add.u{w} %{x}, %{x}, 77; "
    ),
    "parameters": _each(lambda x, w, v: f"ld.param.u{w} %{x}, [p{x}]; "),
    "two arms": _two_arms(),
    "an arm beside": _an_arm_beside(),
    "memory": _through_memory(),
    "lanes": "mov.u32 %t, %tid.x;\n" + _moving(29),
    "sums of lanes": "mov.u32 %t, %laneid; add.u32 %t, %t, %t; shr.u32 %t, %t, 1;\n" + _moving(29),
    "clusters": "mov.u32 %t, %ctaid.x;\n" + _moving(37),
    "turns": "mov.u32 %t, %r10;\n" + _moving(37),
}


#: sources of which each row has registers of its own, of which passes see all uses
SCOPED = frozenset(
    {"parameters", "two arms", "an arm beside", "memory", "sums of lanes", "clusters"}
)
SCOPE = (
    ".reg .pred %q, %p7, %p8; .reg .b16 %h, %g; .reg .b32 %v, %r30, %r31, %r32; "
    ".reg .b64 %w, %rd20, %rd21, %rd22; "
)


def _text(rows: tuple[Row, ...], source: str, wrong: bool) -> str:
    own, end = ("{ " + SCOPE, "}\n") if source in SCOPED else ("", "\n")
    compared = "".join(
        f"{own}{row.text} setp.ne.{'b64 %q, %w' if row.wide else 'b32 %q, %v'}, {row.result}; "
        f"or.pred %bad, %bad, %q; {end}"
        for row in rows
    )
    fails = "not.pred %q, %bad; and.pred %q, %here, %q;" if wrong else "and.pred %q, %here, %bad;"
    arrive = (
        f"{fails} not.pred %ok, %q; and.pred %ok, %ok, %p0;\n"
        "@%ok mbarrier.arrive.shared::cta.b64 _, [%r1];\n"
    )
    clear = "setp.ne.u32 %bad, %r2, %r2; setp.eq.u32 %here, %r2, %r2;\n"
    body = f"{clear}{SOURCES[source]}{HALVES}{compared}{arrive}"
    start = REGISTERS + START.format(arriving=29 if "lanes" in source else 0)
    if source != "turns":
        return (
            f"{start}{body}L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;\n"
            "@!%p1 bra L;\n"
        )
    return (
        f"{start}mov.u32 %r10, 0;\nTURN:\n{body}and.b32 %r11, %r10, 1;\n"
        "L: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r11;\n@!%p1 bra L;\n"
        f"bar.warp.sync -1; add.u32 %r10, %r10, 1; setp.lt.u32 %q, %r10, {TURNS};\n@%q bra TURN;\n"
    )


def run(rows: tuple[Row, ...], source: str, *, wrong: bool) -> tuple[Report, list[int]]:
    """The report, and the lines of the waits in the kernel."""
    text = f"{HEAD.format(params=PARAMS)}{_text(rows, source, wrong)}ret;\n}}\n"
    grid = 64 if source == "clusters" else 1
    launch = Launch("k", (grid, 1, 1), (32, 1, 1), (1, 1, 1), 4096, params=VALUES)
    module = read(text, "k.ptx")
    waits = [k for k, line in enumerate(text.splitlines(), 1) if line.startswith("L: ")]
    assert waits[0] > FIRST
    return check(lower(module, module.entries[0], launch)), waits


def pairs() -> Iterator[Any]:
    """Families and sources: half of the families for each source, the others in campaigns."""
    for one, family in enumerate(ROWS):
        for other, source in enumerate(SOURCES):
            yield pytest.param(family, source, marks=pytest.mark.slow if (one + other) % 2 else ())


@pytest.mark.parametrize(("family", "source"), pairs())
def test_an_arrival_that_hangs_on_what_is_computed(family: str, source: str) -> None:
    right, _ = run(ROWS[family], source, wrong=False)
    assert right.verdict == "proved", right
    found, waits = run(ROWS[family], source, wrong=True)
    assert found.verdict == "failed", found
    assert found.rules == {"deadlock"}
    participants = found.findings[0].participants
    assert {p.loc.line for p in participants} == set(waits)
    if source == "clusters":
        assert {p.cta for p in participants} == {ODD["clusters"]}


#: families of which each row is a kernel as well: of little, more is known
ALONE = {
    "parameters": ("quotients", "fields", "choices", "comparisons", "chains"),
    "sums of lanes": ("choices", "comparisons", "chains"),
}


@pytest.mark.parametrize(
    ("source", "family", "number"),
    [(source, family, n) for source, families in ALONE.items()
     for family in families for n in range(len(ROWS[family]))],
)  # fmt: skip
def test_an_arrival_that_hangs_on_one_thing_that_is_computed(
    source: str, family: str, number: int
) -> None:
    row = ROWS[family][number]
    assert run((row,), source, wrong=False)[0].verdict == "proved"
    found, waits = run((row,), source, wrong=True)
    assert found.rules == {"deadlock"}
    assert {p.loc.line for p in found.findings[0].participants} == set(waits)
