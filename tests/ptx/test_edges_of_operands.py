"""What is read off the operands of a kernel before it runs, told apart by one store.

A product reads two core matrices of B that lie 256 bytes apart, and nothing between them, and
sixteen of A behind them. Where they lie says a matrix descriptor, of which only the address is not
known before the kernel runs: it is put together in as many ways as there are rows. The wrong kernel
stores into a matrix before the product is waited for, the right one beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.ptx.test_check import HEAD
from tilesim.checker import Report, check
from tilesim.ptx.launch import Launch, Scalar
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower
from tilesim.ptx.syntax import Unsupported

#: of an operand, the bits of its descriptor above the address, at which byte of shared memory it
#: begins, and pairs of bytes beside and in it
OPERANDS = {
    "B": (16 << 16 | 8 << 32, 0, ((252, 256), (384, 380), (128, 124))),
    "A": (8 << 16 | 16 << 32, 1024, ((3072, 3068), (1020, 1024), (3200, 2936))),
}

START = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 4; add.s32 %r4, %r1, %r3;\n"
    "st.shared.v4.b32 [%r4], {0,0,0,0}; st.shared.v4.b32 [%r4+2048], {0,0,0,0};\n"
    "fence.proxy.async.shared::cta; bar.sync 0; setp.eq.u32 %p1, %r2, 0;\n"
    "mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n"
)
END = (
    "wgmma.fence.sync.aligned;\n"
    "P: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f5,%f6,%f7,%f8}}, {}, {}, 0, 1, 1, 0, "
    "0;\n"
    "wgmma.commit_group.sync.aligned;\nS: @%p1 st.shared.b32 [%r1+{place}], 0;\n"
    "wgmma.wait_group.sync.aligned 0;\nret;\n}}\n"
)
FUNCTIONS = (
    ".func (.param .b64 out) f(.param .align 8 .b8 in[8])\n{{ .reg .b32 %r<9>; .reg .b64 %rd<9>;\n"
    "{load}\nst.param.b64 [out], %rd1; ret; }}\n"
)


@dataclass(frozen=True)
class Row:
    """Instructions that leave the descriptor in %rd3, of which the address is in %rd1 and %r6,
    and in bytes in %r19."""

    text: str
    #: of a function, how it loads its argument into %rd1
    load: str = ""
    #: of the right kernel; bounded if the descriptor is only found out when it runs
    verdict: str = "proved"


def _called(store: str, load: str) -> Row:
    """The bits of the form are given to a function, which gives them back."""
    text = (
        ".param .align 8 .b8 arg[8]; .param .b64 res;\n"
        f"{store} call (res), f, (arg); ld.param.b64 %rd9, [res]; or.b64 %rd3, %rd1, %rd9;"
    )
    return Row(text, load)


def rows_of(form: int) -> dict[str, tuple[Row, ...]]:
    """By family, for the bits of a form."""
    low, high = form & (1 << 32) - 1, form >> 32
    return {
        "sums": (
            Row(f"or.b64 %rd3, %rd1, {form};"),
            Row(f"add.u64 %rd3, %rd1, {form};"),
            Row(f"add.u64 %rd6, %rd1, {low}; add.u64 %rd3, %rd6, {form - low};"),
            Row(f"mov.u64 %rd6, {form}; add.u64 %rd3, %rd6, %rd1;"),
            Row(f"mov.u64 %rd6, {form - 5}; add.u64 %rd7, %rd6, 5; or.b64 %rd3, %rd7, %rd1;"),
            Row(f"mad.lo.u64 %rd6, {high}, {1 << 32}, {low}; or.b64 %rd3, %rd1, %rd6;"),
            Row(f"sub.u64 %rd6, {form + 9}, 9; or.b64 %rd3, %rd6, %rd1;"),
        ),
        "masks": (
            Row(f"or.b64 %rd6, %rd1, {form | 1 << 40}; and.b64 %rd3, %rd6, {(1 << 40) - 1};"),
            Row(f"and.b64 %rd6, %rd1, {form | 16383}; or.b64 %rd3, %rd6, {form};"),
            Row(f"cvt.u64.u32 %rd6, %r19; and.b64 %rd7, %rd6, 262128; shr.u64 %rd8, %rd7, 4;"
                f" or.b64 %rd3, %rd8, {form};"),
            Row(f"bfe.u32 %r7, %r19, 4, 14; cvt.u64.u32 %rd6, %r7; or.b64 %rd3, %rd6, {form};"),
            # of a length (and a position) the lowest eight bits count
            Row(f"or.b64 %rd6, %rd1, {form | 1 << 40}; mov.b64 {{%r7, %r8}}, %rd6;"
                " bfe.u32 %r9, %r8, 0, 264; mov.b64 %rd3, {%r7, %r9};"),
        ),
        "shifts": (
            Row(f"mov.u64 %rd6, {form >> 16}; shl.b64 %rd7, %rd6, 16; or.b64 %rd3, %rd7, %rd1;"),
            Row(f"shl.b64 %rd6, %rd1, 9; or.b64 %rd7, %rd6, {form << 9}; shr.u64 %rd3, %rd7, 9;"),
            Row(f"or.b64 %rd6, %rd1, {form}; shl.b64 %rd7, %rd6, 8; shr.u64 %rd3, %rd7, 8;"),
            Row(f"shl.b32 %r7, %r6, 18; shr.u32 %r8, %r7, 18; cvt.u64.u32 %rd6, %r8;"
                f" or.b64 %rd3, %rd6, {form};"),
        ),
        "halves": (
            Row(f"or.b32 %r7, %r6, {low}; mov.u32 %r8, {high}; mov.b64 %rd3, {{%r7, %r8}};"),
            Row(f"or.b64 %rd6, %rd1, {form}; mov.b64 {{%r7, %r8}}, %rd6;"
                " mov.b64 %rd3, {%r7, %r8};"),
            Row(f"or.b64 %rd6, %rd1, {low}; mov.b64 {{%r7, %r8}}, %rd6; add.u32 %r9, %r8, {high};"
                " mov.b64 %rd3, {%r7, %r9};"),
            Row(f"or.b64 %rd6, %rd1, {low | 1 << 32}; mov.b64 {{%r7, %r8}}, %rd6;"
                f" shl.b32 %r9, %r8, {high.bit_length() - 1}; mov.b64 %rd3, {{%r7, %r9}};"),
            Row(f"shl.b64 %rd6, %rd1, 32; or.b64 %rd7, %rd6, {1 | low << 32};"
                " mov.b64 {%r7, %r8}, %rd7;"
                f" shl.b32 %r9, %r7, {high.bit_length() - 1}; mov.b64 %rd3, {{%r8, %r9}};"),
            Row(".reg .b16 %g<4>; cvt.u16.u32 %g0, %r6; mov.u16 %g1, 16; mov.b32 %r7, {%g0, %g1};"
                f" mov.u32 %r8, {high}; mov.b64 %rd3, {{%r7, %r8}};"),
            Row(f"mov.b64 %rd6, {form}; mov.b64 {{%r7, %r8}}, %rd6; or.b32 %r9, %r7, %r6;"
                " mov.b64 %rd3, {%r9, %r8};"),
        ),
        "items": (
            Row(f"shl.b64 %rd6, %rd1, 34; or.b64 %rd7, %rd1, {low}; or.b64 %rd8, %rd6, %rd7;"
                " mov.b64 {%r7, %r8}, %rd8; cvt.u64.u32 %rd9, %r7;"
                f" or.b64 %rd3, %rd9, {high << 32};", verdict="bounded"),
            Row(f"or.b64 %rd6, %rd1, {low | 1 << 32}; mov.b64 {{%r7, %r8}}, %rd6;"
                f" cvt.u64.u32 %rd7, %r7; or.b64 %rd3, %rd7, {high << 32};"),
            Row(f"mov.b64 %rd6, {high | 3 << 34}; mov.b64 {{%r7, %r8}}, %rd6;"
                f" cvt.u64.u32 %rd7, %r7; shl.b64 %rd8, %rd7, 32; or.b64 %rd9, %rd1, {low};"
                " or.b64 %rd3, %rd9, %rd8;"),
            Row(f"or.b64 %rd6, %rd1, {high << 32 | low}; mov.b64 {{%r7, %r8}}, %rd6;"
                " cvt.u64.u32 %rd7, %r8; shl.b64 %rd8, %rd7, 32; cvt.u64.u32 %rd9, %r7;"
                " or.b64 %rd3, %rd8, %rd9;"),
        ),
        "immediates": (
            Row(f"mov.b64 %rd6, {{{low}, {high}}}; or.b64 %rd3, %rd1, %rd6;"),
            Row(f"mov.u32 %r8, {high}; mov.b64 %rd6, {{{low}, %r8}}; or.b64 %rd3, %rd1, %rd6;"),
            Row(f"mov.u32 %r8, {high}; mov.b64 %rd6, {{-1, %r8}};"
                f" and.b64 %rd7, %rd6, {~0xFFFFFFFF | low}; or.b64 %rd3, %rd1, %rd7;"),
            Row(f"shr.u32 %r9, %r2, 31; add.u32 %r8, %r9, {high}; mov.b64 %rd6, {{-1, %r8}};"
                f" and.b64 %rd7, %rd6, {~0xFFFFFFFF | low}; or.b64 %rd3, %rd1, %rd7;",
                verdict="bounded"),
            Row(f"mov.u32 %r9, %ctaid.x; add.u32 %r8, %r9, {high}; mov.b64 %rd6, {{-1, %r8}};"
                f" and.b64 %rd7, %rd6, {~0xFFFFFFFF | low}; or.b64 %rd3, %rd1, %rd7;",
                verdict="bounded"),
            Row(f"mov.u32 %r9, %ctaid.x; add.u32 %r8, %r9, {high}; mov.b64 %rd6, {{%r8, %r9}};"
                f" shl.b64 %rd7, %rd6, 32; or.b64 %rd8, %rd7, {low}; or.b64 %rd3, %rd1, %rd8;"),
        ),
        "choices": (
            Row(f"setp.lt.u32 %p2|%p3, 7, 5; selp.b64 %rd6, 0, {form}, %p2;"
                " or.b64 %rd3, %rd1, %rd6;"),
            Row(f"setp.lt.u32 %p2|%p3, 7, 5; selp.b64 %rd6, {form}, 0, %p3;"
                " or.b64 %rd3, %rd1, %rd6;"),
            Row(f"setp.ge.s32 %p2|%p3, -7, 5; selp.b32 %r7, 0, {high}, %p2;"
                f" selp.b32 %r8, {low}, 0, %p3; or.b32 %r9, %r8, %r6; mov.b64 %rd3, {{%r9, %r7}};"),
        ),
        "parameters": (
            Row("ld.param.u64 %rd6, [form]; or.b64 %rd3, %rd1, %rd6;"),
            Row("ld.param.u32 %r7, [form]; ld.param.u32 %r8, [form+4]; or.b32 %r9, %r7, %r6;"
                " mov.b64 %rd3, {%r9, %r8};"),
            Row("ld.param.v2.u32 {%r7, %r8}, [form]; or.b32 %r9, %r7, %r6;"
                " mov.b64 %rd3, {%r9, %r8};"),
            Row(f"ld.param.v2.u32 {{_, %r8}}, [form]; or.b32 %r9, %r6, {low};"
                " mov.b64 %rd3, {%r9, %r8};"),
            Row("ld.param.u16 %r7, [form+2]; shl.b32 %r10, %r7, 16; or.b32 %r9, %r10, %r6;"
                f" mov.u32 %r8, {high}; mov.b64 %rd3, {{%r9, %r8}};"),
            Row("mov.u64 %rd7, form; ld.param.u64 %rd6, [%rd7]; or.b64 %rd3, %rd1, %rd6;"),
            Row("mov.u64 %rd7, form; add.u64 %rd8, %rd7, 4; ld.param.u32 %r8, [%rd8];"
                f" or.b32 %r9, %r6, {low}; mov.b64 %rd3, {{%r9, %r8}};"),
        ),
        "calls": (
            _called(f"mov.u64 %rd8, {form}; st.param.b64 [arg], %rd8;", "ld.param.b64 %rd1, [in];"),
            _called(f"st.param.b32 [arg], {low}; st.param.b32 [arg+4], {high};",
                    "ld.param.b32 %r1, [in]; ld.param.b32 %r2, [in+4]; mov.b64 %rd1, {%r1, %r2};"),
            _called(f"mov.u32 %r7, {low}; mov.u32 %r8, {high};"
                    " st.param.v2.b32 [arg], {%r7, %r8};",
                    "ld.param.b32 %r1, [in]; ld.param.b32 %r2, [in+4]; mov.b64 %rd1, {%r1, %r2};"),
            _called(f"mov.u32 %r7, {low}; mov.u32 %r8, {high};"
                    " st.param.v2.b32 [arg], {%r7, %r8};",
                    "ld.param.v2.b32 {%r1, %r2}, [in]; mov.b64 %rd1, {%r1, %r2};"),
            _called(f"st.param.b32 [arg], -3; st.param.b32 [arg+4], {high};",
                    f"ld.param.s32 %rd2, [in]; add.s64 %rd1, %rd2, {form + 3};"),
        ),
    }  # fmt: skip


FAMILIES = {name: len(rows) for name, rows in rows_of(OPERANDS["B"][0]).items()}


def run(row: Row, operand: str, place: int) -> tuple[Report, tuple[int, int]]:
    """The report, and the lines of the product and of the store."""
    head = HEAD.format(params=".param .u64 form")
    if row.load:
        head = head.replace(".visible", FUNCTIONS.format(load=row.load) + ".visible", 1)
    (form, at, _), (other, there, _) = OPERANDS[operand], OPERANDS["A" if operand == "B" else "B"]
    begin = (
        f"add.u32 %r19, %r1, {at}; shr.u32 %r20, %r19, 4; and.b32 %r6, %r20, 16383;\n"
        f"add.u32 %r21, %r1, {there}; shr.u32 %r22, %r21, 4; and.b32 %r23, %r22, 16383;\n"
        f"cvt.u64.u32 %rd1, %r6; cvt.u64.u32 %rd20, %r23; or.b64 %rd21, %rd20, {other};\n"
    )
    numbers = ("%rd3", "%rd21") if operand == "A" else ("%rd21", "%rd3")
    end = END.format(*numbers, place=place)
    text = f"{head}{START}{begin}{row.text}\n{end}"
    values = (Scalar("form", "u64", form),)
    launch = Launch("k", (1, 1, 1), (128, 1, 1), (1, 1, 1), 4096, params=values)
    module = read(text, "k.ptx")
    numbered = list(enumerate(text.splitlines(), 1))
    product, store = (
        next(k for k, line in numbered if line.startswith(label)) for label in ("P: ", "S: ")
    )
    entry = next(f for f in module.entries if f.name == "k")
    return check(lower(module, entry, launch)), (product, store)


def rows() -> Iterator[Any]:
    """Each row for one operand, in turns; for the other one in campaigns."""
    for family, count in FAMILIES.items():
        for number in range(count):
            for place, operand in enumerate(OPERANDS):
                marks = pytest.mark.slow if (number + place) % 2 else ()
                yield pytest.param(family, number, operand, marks=marks)


@pytest.mark.parametrize(("family", "number", "operand"), rows())
def test_a_store_beside_and_into_what_a_product_reads(
    family: str, number: int, operand: str
) -> None:
    form, _, pairs = OPERANDS[operand]
    row = rows_of(form)[family][number]
    beside, inside = pairs[number % 3]
    right, _ = run(row, operand, beside)
    assert right.verdict == row.verdict, right
    found, places = run(row, operand, inside)
    assert found.verdict == "failed", found
    assert found.rules == {"race"}
    assert {p.loc.line for p in found.findings[0].participants} == set(places)


#: a product of A in registers; what is written between it and the wait for it
HELD = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 4; add.s32 %r4, %r1, %r3;\n"
    "st.shared.v4.b32 [%r4], {{0,0,0,0}}; fence.proxy.async.shared::cta; bar.sync 0;\n"
    f"shr.u32 %r5, %r1, 4; cvt.u64.u32 %rd1, %r5; or.b64 %rd3, %rd1, {OPERANDS['B'][0]};\n"
    "mov.f32 %f1, 0f00000000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;\n"
    "add.u32 %r24, %r2, 1; add.u32 %r25, %r2, 2; {before}\n"
    "mov.b32 %r20, %r24; mov.b32 %r21, %r25; mov.b32 %r22, %r24; mov.b32 %r23, %r24;\n"
    "wgmma.fence.sync.aligned;\n"
    "P: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{%f1,%f2,%f3,%f4}}, "
    "{{%r20,%r21,%r22,%r23}}, %rd3, 1, 1, 1, 0;\nwgmma.commit_group.sync.aligned;\n"
    "{between}\nS: {then}\nwgmma.wait_group.sync.aligned 0;\n{behind}\n"
    "st.shared.f32 [%r4+2048], %f1; st.shared.u32 [%r4+2052], %r24;\nret;\n}}\n"
)
#: by name: what is before the product, between it and the wait, and behind that
KEPT = {
    "a copy of A": ("", "add.u32 %r24, %r24, 1;", ""),
    "another copy of A": ("", "mov.u32 %r25, 7;", "st.shared.u32 [%r4+2056], %r25;"),
    "A goes on elsewhere": ("", "mov.u32 %r26, 3;", "mov.u32 %r20, %r26;"),
    "a sum of A": ("add.u32 %r27, %r24, 5;", "add.u32 %r27, %r27, 3;", "mov.u32 %r24, %r27;"),
}


@pytest.mark.parametrize("name", KEPT)
def test_registers_that_a_product_reads_while_it_runs(name: str) -> None:
    """A copy of them is another register until the wait; they themselves are not to be set."""
    before, between, behind = KEPT[name]

    def run(then: str) -> tuple[Report, list[int]]:
        body = HELD.format(before=before, between=between, then=then, behind=behind)
        text = HEAD.format(params="") + body
        module = read(text, "k.ptx")
        launch = Launch("k", (1, 1, 1), (128, 1, 1), (1, 1, 1), 8192)
        places = [k for k, x in enumerate(text.splitlines(), 1) if x[:3] in ("P: ", "S: ")]
        return check(lower(module, module.entries[0], launch)), places

    right, _ = run("mov.u32 %r28, 1;")
    assert right.verdict == "proved", right
    for then in ("mov.u32 %r21, 1;", "add.u32 %r23, %r23, 1;", "mov.f32 %f3, %f4;"):
        found, places = run(then)
        assert found.rules == {"wgmma-order"}
        assert {p.loc.line for p in found.findings[0].participants} <= set(places)
        assert places[1] in {p.loc.line for p in found.findings[0].participants}


#: two products, each of registers that are said
TWO = (
    "mov.u32 %r1, smem; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 4; add.s32 %r4, %r1, %r3;\n"
    "st.shared.v4.b32 [%r4], {{0,0,0,0}}; st.shared.v4.b32 [%r4+2048], {{0,0,0,0}};\n"
    "fence.proxy.async.shared::cta; bar.sync 0;\n"
    "shr.u32 %r5, %r1, 4; cvt.u64.u32 %rd1, %r5; and.b64 %rd1, %rd1, 16383;\n"
    f"or.b64 %rd3, %rd1, {OPERANDS['B'][0]}; or.b64 %rd4, %rd1, {OPERANDS['A'][0]};\n"
    "wgmma.fence.sync.aligned;\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{{}}}, %rd4, %rd3, 0, 1, 1, 0, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {{{}}}, %rd4, %rd3, 0, 1, 1, 0, 0;\n"
    "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\nret;\n}}\n"
)


@pytest.mark.parametrize(
    ("one", "other"), [("1234", "2345"), ("1234", "2143"), ("1234", "5674"), ("1223", "1223")]
)
def test_products_have_registers_in_common_only_if_they_have_all_in_one_order(
    one: str, other: str
) -> None:
    """Of products of one shape PTX orders those of one accumulator: these are no such ones, nor
    are they told apart (F3)."""

    def run(*tiles: str) -> Report:
        text = TWO.format(*(", ".join(f"%f{n}" for n in tile) for tile in tiles))
        module = read(HEAD.format(params="") + text, "k.ptx")
        launch = Launch("k", (1, 1, 1), (128, 1, 1), (1, 1, 1), 4096)
        return check(lower(module, module.entries[0], launch))

    assert run("1234", "1234").verdict == run("1234", "5678").verdict == "proved"
    with pytest.raises(Unsupported, match="registers of a tile are in another one"):
        run(one, other)
