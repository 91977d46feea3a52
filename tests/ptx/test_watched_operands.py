"""What is read off the operands of a kernel before it runs, told apart by one store.

A product reads two core matrices of B that lie 256 bytes apart, and nothing between them. Where
they lie says a matrix descriptor, of which only the address is not known before the kernel runs: it
is put together in as many ways as there are rows. The wrong kernel stores into a matrix before the
product is waited for, the right one beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.ptx.test_check import HEAD
from tilesim.checker import Report, check
from tilesim.ptx.launch import Launch, Scalar
from tilesim.ptx.program import lower
from tilesim.ptx.reader import read

#: the bits of the descriptor above its address, and both halves of them
FORM = 16 << 16 | 8 << 32
LOW, HIGH = 16 << 16, 8

START = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 4; add.s32 %r4, %r1, %r3;\n"
    "st.shared.v4.b32 [%r4], {0,0,0,0}; st.shared.v4.b32 [%r4+2048], {0,0,0,0};\n"
    "fence.proxy.async.shared::cta; bar.sync 0; shr.u32 %r5, %r1, 4; and.b32 %r6, %r5, 16383;\n"
    "cvt.u64.u32 %rd1, %r6; add.s64 %rd5, %rd1, 64; and.b64 %rd2, %rd5, 16383;\n"
    f"or.b64 %rd4, %rd2, {8 << 16 | 16 << 32}; setp.eq.u32 %p1, %r2, 0;\n"
    "mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n"
)
END = (
    "wgmma.fence.sync.aligned;\n"
    "P: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f5,%f6,%f7,%f8}, %rd4, %rd3, 0, 1, 1, "
    "0, 0;\nwgmma.commit_group.sync.aligned;\nS: @%p1 st.shared.b32 [%r1+PLACE], 0;\n"
    "wgmma.wait_group.sync.aligned 0;\nret;\n}\n"
)
FUNCTIONS = (
    ".func (.param .b64 out) f(.param .align 8 .b8 in[8])\n{{ .reg .b32 %r<9>; .reg .b64 %rd<9>;\n"
    "{load}\nst.param.b64 [out], %rd1; ret; }}\n"
)


@dataclass(frozen=True)
class Row:
    """Instructions that leave B's descriptor in %rd3; its address is in %rd1 and %r6."""

    text: str
    #: of a function, how it loads its argument into %rd1
    load: str = ""


def _called(store: str, load: str) -> Row:
    """The bits of the form are given to a function, which gives them back."""
    text = (
        ".param .align 8 .b8 arg[8]; .param .b64 res;\n"
        f"{store} call (res), f, (arg); ld.param.b64 %rd9, [res]; or.b64 %rd3, %rd1, %rd9;"
    )
    return Row(text, load)


#: by family
ROWS: dict[str, tuple[Row, ...]] = {
    "sums": (
        Row(f"or.b64 %rd3, %rd1, {FORM};"),
        Row(f"add.u64 %rd3, %rd1, {FORM};"),
        Row(f"add.u64 %rd6, %rd1, {LOW}; add.u64 %rd3, %rd6, {FORM - LOW};"),
        Row(f"mov.u64 %rd6, {FORM}; add.u64 %rd3, %rd6, %rd1;"),
        Row(f"mov.u64 %rd6, {FORM - 5}; add.u64 %rd7, %rd6, 5; or.b64 %rd3, %rd7, %rd1;"),
        Row(f"mad.lo.u64 %rd6, 8, {1 << 32}, {LOW}; or.b64 %rd3, %rd1, %rd6;"),
        Row(f"sub.u64 %rd6, {FORM + 9}, 9; or.b64 %rd3, %rd6, %rd1;"),
    ),
    "masks": (
        Row(f"or.b64 %rd6, %rd1, {FORM | 1 << 40}; and.b64 %rd3, %rd6, {(1 << 40) - 1};"),
        Row(f"and.b64 %rd6, %rd1, {FORM | 16383}; or.b64 %rd3, %rd6, {FORM};"),
        Row(f"cvt.u64.u32 %rd6, %r1; and.b64 %rd7, %rd6, 262128; shr.u64 %rd8, %rd7, 4;"
            f" or.b64 %rd3, %rd8, {FORM};"),
        Row(f"bfe.u32 %r7, %r1, 4, 14; cvt.u64.u32 %rd6, %r7; or.b64 %rd3, %rd6, {FORM};"),
    ),
    "shifts": (
        Row(f"mov.u64 %rd6, {FORM >> 16}; shl.b64 %rd7, %rd6, 16; or.b64 %rd3, %rd7, %rd1;"),
        Row(f"shl.b64 %rd6, %rd1, 20; or.b64 %rd7, %rd6, {FORM << 20}; shr.u64 %rd3, %rd7, 20;"),
        Row(f"or.b64 %rd6, %rd1, {FORM}; shl.b64 %rd7, %rd6, 8; shr.u64 %rd3, %rd7, 8;"),
        Row(f"shl.b32 %r7, %r6, 18; shr.u32 %r8, %r7, 18; cvt.u64.u32 %rd6, %r8;"
            f" or.b64 %rd3, %rd6, {FORM};"),
    ),
    "halves": (
        Row(f"or.b32 %r7, %r6, {LOW}; mov.u32 %r8, {HIGH}; mov.b64 %rd3, {{%r7, %r8}};"),
        Row(f"or.b64 %rd6, %rd1, {FORM}; mov.b64 {{%r7, %r8}}, %rd6; mov.b64 %rd3, {{%r7, %r8}};"),
        Row(f"or.b64 %rd6, %rd1, {LOW}; mov.b64 {{%r7, %r8}}, %rd6; add.u32 %r9, %r8, {HIGH};"
            " mov.b64 %rd3, {%r7, %r9};"),
        Row(".reg .b16 %g<4>; cvt.u16.u32 %g0, %r6; mov.u16 %g1, 16; mov.b32 %r7, {%g0, %g1};"
            f" mov.u32 %r8, {HIGH}; mov.b64 %rd3, {{%r7, %r8}};"),
        Row(f"mov.b64 %rd6, {FORM}; mov.b64 {{%r7, %r8}}, %rd6; or.b32 %r9, %r7, %r6;"
            " mov.b64 %rd3, {%r9, %r8};"),
    ),
    "parameters": (
        Row("ld.param.u64 %rd6, [form]; or.b64 %rd3, %rd1, %rd6;"),
        Row("ld.param.u32 %r7, [form]; ld.param.u32 %r8, [form+4]; or.b32 %r9, %r7, %r6;"
            " mov.b64 %rd3, {%r9, %r8};"),
        Row("ld.param.v2.u32 {%r7, %r8}, [form]; or.b32 %r9, %r7, %r6;"
            " mov.b64 %rd3, {%r9, %r8};"),
        Row("ld.param.u16 %r7, [form+2]; shl.b32 %r10, %r7, 16; or.b32 %r9, %r10, %r6;"
            f" mov.u32 %r8, {HIGH}; mov.b64 %rd3, {{%r9, %r8}};"),
        Row("mov.u64 %rd7, form; ld.param.u64 %rd6, [%rd7]; or.b64 %rd3, %rd1, %rd6;"),
        Row("mov.u64 %rd7, form; add.u64 %rd8, %rd7, 4; ld.param.u32 %r8, [%rd8];"
            f" or.b32 %r9, %r6, {LOW}; mov.b64 %rd3, {{%r9, %r8}};"),
    ),
    "calls": (
        _called(f"mov.u64 %rd8, {FORM}; st.param.b64 [arg], %rd8;", "ld.param.b64 %rd1, [in];"),
        _called(f"st.param.b32 [arg], {LOW}; st.param.b32 [arg+4], {HIGH};",
                "ld.param.b32 %r1, [in]; ld.param.b32 %r2, [in+4]; mov.b64 %rd1, {%r1, %r2};"),
        _called(f"mov.u32 %r7, {LOW}; mov.u32 %r8, {HIGH}; st.param.v2.b32 [arg], {{%r7, %r8}};",
                "ld.param.b32 %r1, [in]; ld.param.b32 %r2, [in+4]; mov.b64 %rd1, {%r1, %r2};"),
        _called(f"mov.u32 %r7, {LOW}; mov.u32 %r8, {HIGH}; st.param.v2.b32 [arg], {{%r7, %r8}};",
                "ld.param.v2.b32 {%r1, %r2}, [in]; mov.b64 %rd1, {%r1, %r2};"),
        _called(f"st.param.b32 [arg], -3; st.param.b32 [arg+4], {HIGH};",
                f"ld.param.s32 %rd2, [in]; add.s64 %rd1, %rd2, {FORM + 3};"),
    ),
}  # fmt: skip


def run(row: Row, place: int) -> tuple[Report, tuple[int, int]]:
    """The report, and the lines of the product and of the store."""
    head = HEAD.format(params=".param .u64 form")
    if row.load:
        head = head.replace(".visible", FUNCTIONS.format(load=row.load) + ".visible", 1)
    text = f"{head}{START}{row.text}\n{END.replace('PLACE', str(place))}"
    values = (Scalar("form", "u64", FORM),)
    launch = Launch("k", (1, 1, 1), (128, 1, 1), (1, 1, 1), 4096, params=values)
    module = read(text, "k.ptx")
    numbered = list(enumerate(text.splitlines(), 1))
    product, store = (
        next(k for k, line in numbered if line.startswith(label)) for label in ("P: ", "S: ")
    )
    entry = next(f for f in module.entries if f.name == "k")
    return check(lower(module, entry, launch)), (product, store)


@pytest.mark.parametrize(
    ("family", "number"), [(name, n) for name, rows in ROWS.items() for n in range(len(rows))]
)
def test_a_store_beside_and_into_what_a_product_reads(family: str, number: int) -> None:
    row = ROWS[family][number]
    beside, inside = ((252, 256), (384, 380), (128, 124))[number % 3]
    right, _ = run(row, beside)
    assert right.verdict == "proved", right
    found, places = run(row, inside)
    assert found.verdict == "failed", found
    assert found.rules == {"race"}
    assert {p.loc.line for p in found.findings[0].participants} == set(places)
