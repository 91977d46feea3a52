"""What the reader of PTX understands, its errors, and that no text makes it crash."""

from __future__ import annotations

import gc
import time
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilesim.ptx.parser import read
from tilesim.ptx.syntax import (
    Address,
    Float,
    Generic,
    Group,
    Guard,
    Instruction,
    Integer,
    Located,
    Module,
    Name,
    Negated,
    Pair,
    Pointer,
    PtxError,
    Sink,
    Sum,
    Vector,
)

HEAD = ".version 9.4\n.target sm_90a\n.address_size 64\n"


def module(text: str) -> Module:
    return read(HEAD + text, "k.ptx")


def body(text: str) -> tuple[Instruction, ...]:
    """The instructions of a kernel with this body."""
    found = module(f".visible .entry k(.param .u64 p)\n{{\n{text}\n}}\n").entries[0].body
    assert found is not None
    return found.code


def only(text: str) -> Instruction:
    (found,) = body(text)
    return found


def error(text: str) -> PtxError:
    with pytest.raises(PtxError) as caught:
        module(text)
    return caught.value


def test_the_head_of_a_module_is_read() -> None:
    found = read('.version 8.8\n.target sm_90a, debug\n.address_size 64\n.file 1 "a.py"\n')
    assert found.version == (8, 8)
    assert (found.target, found.options) == ("sm_90a", ("debug",))
    assert found.files == {1: "a.py"}


def test_an_entry_has_parameters_and_directives() -> None:
    found = module(
        ".extern .shared .align 16 .b8 smem[];\n"
        ".visible .entry k(.param .align 64 .b8 m[128], .param .u64 .ptr .global .align 1 p,\n"
        "  .param .u32 n)\n.reqntid 128, 2, 1\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n"
        ".maxnreg 168\n{\nret;\n}\n"
    )
    entry = found.entries[0]
    assert [(p.name, p.size, p.alignment) for p in entry.params] == [
        ("m", 128, 64), ("p", 8, 8), ("n", 4, 4)
    ]  # fmt: skip
    assert entry.params[1].pointer == Pointer("global", 1)
    assert entry.directives == {
        "reqntid": (128, 2, 1), "explicitcluster": (), "reqnctapercluster": (2, 1, 1),
        "maxnreg": (168,),
    }  # fmt: skip
    assert found.variables[0].linkage == "extern"
    assert found.variables[0].shape == (None,)


def test_variables_have_initial_values() -> None:
    found = module(
        ".global .align 4 .b8 s[4] = {104, 0x69, 0};\n"
        ".const .s32 t[2][2] = {{-1, 2}, {(1 << 4) - 1, -2 + 1}};\n"
        ".global .u64 q[2] = {s+4, generic(s)};\n.global .f32 f = 0f3F800000, g;\n"
    )
    s, t, q, f, g = found.variables
    assert (s.size, s.initial) == (4, (Integer(104), Integer(0x69), Integer(0)))
    assert t.initial == ((Integer(-1), Integer(2)), (Integer(15), Integer(-1)))
    assert q.initial == (Sum(Name("s"), 4), Generic(Name("s")))
    assert f.initial == Float(0x3F800000, 32)
    assert (g.name, g.type, g.initial) == ("g", "f32", ())


def test_operands_of_all_kinds() -> None:
    assert only("mov.b64 {%r1,%r2}, %rd1;").operands == (
        Vector((Name("%r1"), Name("%r2"))), Name("%rd1"),
    )  # fmt: skip
    assert only("ld.shared.v4.u32{%r1,_,%r3,%r4}, [smem+-16];").operands == (
        Vector((Name("%r1"), Sink(), Name("%r3"), Name("%r4"))), Address(Name("smem"), -16),
    )  # fmt: skip
    assert only("setp.lt.and.s32 %p1|%p2, %r1, -5, !%p3;").operands == (
        Pair(Name("%p1"), Name("%p2")), Name("%r1"), Integer(-5), Negated(Name("%p3")),
    )  # fmt: skip
    assert only("elect.sync _|p, %r8;").operands == (Pair(Sink(), Name("p")), Name("%r8"))
    assert only("mov.u32 %r1, %tid.x;").operands[1] == Name("%tid.x")
    assert only("mov.f32 %f1, 0fBF800000;").operands[1] == Float(0xBF800000, 32)
    assert only("mov.f64 %d1, -1.5;").operands[1] == Float(0xBFF8 << 48, 64)
    assert only("and.b32 %r1, %r2, 0xFFU;").operands[2] == Integer(255)
    assert only("mov.b32 %r1, 017;").operands[1] == Integer(15)
    assert only("mov.u64 %rd1, smem+128;").operands[1] == Sum(Name("smem"), 128)
    assert only("add.s32 %r1, %r2, (3 + 4) * WARP_SZ - 1 ? 7 : 8;").operands[2] == Integer(7)


def test_a_tensor_copy_has_coordinates() -> None:
    found = only(
        "@!%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%r1], [%rd1, {%r2, %r3}], [%r4];"
    )
    assert found.base == "cp"
    assert found.qualifiers[-1] == "mbarrier::complete_tx::bytes"
    assert found.guard == Guard("%p1", True)
    coordinates = Vector((Name("%r2"), Name("%r3")))
    assert found.operands == (
        Address(Name("%r1")), Address(Name("%rd1"), 0, (coordinates,)), Address(Name("%r4")),
    )  # fmt: skip


def test_calls_have_groups() -> None:
    found = body("call (r), f, (a, b);\ncall.uni g;\ncall (r), %rd1, (a), proto;")
    assert found[0].operands == (
        Group((Name("r"),)), Name("f"), Group((Name("a"), Name("b"))),
    )  # fmt: skip
    assert found[1].operands == (Name("g"),)
    assert found[2].operands[-1] == Name("proto")


def test_scopes_have_registers_and_labels_of_their_own() -> None:
    text = (
        ".reg .pred p;\n.reg .b32 %r<3>, x;\n.reg .v2 .f32 v;\n"
        "{\n.reg .pred p;\nwait: mov.u32 %r1, 0;\n@p bra wait;\n}\n"
        "{wait:\n.reg .b64 p;\nbra.uni wait;}\n"
        'brx.idx %r1, ts;\nts: .branchtargets a, b;\na:b: ret;\n.pragma "nounroll";'
    )
    found = module(f".entry k()\n{{\n{text}\n}}").entries[0].body
    assert found is not None
    outer, first, second = found.scopes
    assert outer.registers == {
        "p": "pred", "%r0": "b32", "%r1": "b32", "%r2": "b32", "x": "b32", "v.x": "f32",
        "v.y": "f32",
    }  # fmt: skip
    assert (first.labels, second.labels) == ({"wait": 0}, {"wait": 2})
    assert second.registers == {"p": "b64"}
    assert (first.parent, second.parent) == (0, 0)
    assert outer.targets == {"ts": ("a", "b")}
    assert (outer.labels["a"], outer.labels["b"]) == (4, 4)
    assert [i.scope for i in found.code] == [1, 1, 2, 0, 0]


def test_a_function_that_no_line_calls_is_on_its_own_lines() -> None:
    """A partition of warps: called from the first column, where the kernel is defined."""
    text = (
        ".entry k()\n{{\n.loc 1 24 9, function_name $L0, inlined_at 1 94 {}\nbar.sync 0;\n"
        ".loc 1 8 9, function_name $L0, inlined_at 1 25 4\nbar.sync 1;\n}}\n"
    )
    for column, line in ((1, 24), (5, 94)):
        body = module(text.format(column)).entries[0].body
        assert body is not None
        located = body.code[0].located
        assert located is not None
        assert located.outermost.line == line


def test_inline_assembly_lies_where_it_begins() -> None:
    """LLVM counts its lines on from that of the source: a wait would lie lines below."""
    found = module(
        ".entry k()\n{\n.loc 1 10 3\n// begin inline asm\n\n{\n\t.loc 1 12 3\n"
        "bar.sync 0;\n.loc\t1 13 3 // a.py:13\nbar.sync 1;\n}\n// end inline asm\n"
        ".loc 1 12 1\nbar.sync 2;\n}\n"
    )
    body = found.entries[0].body
    assert body is not None
    assert [i.located.line for i in body.code if i.located] == [10, 10, 12]


def test_positions_lead_to_the_source_and_through_inlined_functions() -> None:
    text = (
        '.file 1 "a.py"\n.entry k()\n{\n.loc 1 10 3\nbar.sync 0;\n'
        ".loc 2 5 1, function_name $L__info_string0, inlined_at 1 10 3 // b.py:5\nbar.sync 1;\n"
        ".loc 2 7 1, function_name $L__info_string0 + 4, inlined_at 2 5 1\n\tbar.sync 2;\n}\n"
        ".section .debug_str\n{\n$L__info_string0:\n.b8 102,111,111\n.b8 0\n}\n"
    )
    entry = module(text).entries[0]
    assert entry.body is not None
    first, second, third = (i.located for i in entry.body.code)
    assert first == Located(1, 10, 3)
    assert second == Located(2, 5, 1, "foo", Located(1, 10, 3))
    assert third == Located(2, 7, 1, "foo", second)
    assert third.outermost == first
    assert [*third.frames] == [third, second, first]
    assert [(i.place.line, i.place.column) for i in entry.body.code] == [(8, 1), (10, 1), (12, 2)]


def test_a_function_that_is_inlined_twice_is_called_from_two_places() -> None:
    """nvcc writes the same directives inside it, each time below the call's own."""
    inside = (
        ".loc 2 5 1, function_name $L0, inlined_at 1 {} 7\n"
        ".loc 3 8 1, function_name $L1, inlined_at 2 5 1\nbar.sync {};\n"
    )
    text = (
        f'{HEAD}.file 1 "a.cu"\n.file 2 "b.h"\n.file 3 "c.h"\n.entry k()\n{{\n'
        f".loc 1 30 7\n{inside.format(30, 0)}.loc 1 50 7\n{inside.format(50, 1)}"
        f".loc 1 30 7\n{inside.format(30, 2)}}}\n"
    )
    body = read(text).entries[0].body
    assert body is not None
    found = [x.located for x in body.code]
    assert [x.outermost.line for x in found if x is not None] == [30, 50, 30]
    assert [x.line for x in found if x is not None] == [8, 8, 8]


@pytest.mark.parametrize("moved", [True, False])
def test_moved_code_keeps_its_calls(moved: bool) -> None:
    """Behind line 0, nvcc names the place in the inlined function alone."""
    body = (
        module(
            ".entry k()\n{\n.loc 1 59 2, function_name $L0, inlined_at 1 69 28\nbar.sync 0;\n"
            + ".loc 1 0 2\n" * moved
            + ".loc 1 59 2\nbar.sync 1;\n}\n"
        )
        .entries[0]
        .body
    )
    assert body is not None
    assert [i.located.outermost.line for i in body.code if i.located] == [69, 69 if moved else 59]


TILE_IR = """
.nv_intermediate_source_section {
.code_block {
.ir_name: "tile ir"
.sourceFileName: 2
.source_begin
entry @k(%0: tile<ptr<f32>>) { // an "open string and a /* comment
  %1 = load_ptr_tko weak %0 } }}
.source_end
}
.code_block {
.source: <<< { " >>>
}
}
"""


def test_what_tile_compilers_say_of_their_own_language_is_passed_over() -> None:
    """PTX 9.3 to 9.5: `.language`, `.hidden` parameters, `.loc_intermediate` (11.5.5), the section
    with its text (11.5.6). What follows is where it was."""
    found = module(
        '.file 1 "k.py"\n.file 2 "k.tile"\n'
        + TILE_IR
        + ".visible .entry k(.param .u64 p, .hidden .param .align 64 .b8 q[128])\n"
        '.reqntid 128\n.language "tile ir", 3\n.minperctamemory 2048\n{\n'
        ".loc 1 10 5\n.loc_intermediate 2 4 1\nret;\n}\n.hidden .func f()\n.language 7\n{ ret; }\n"
    )
    entry, function = found.functions
    assert [(p.name, p.linkage, p.size) for p in entry.params] == [
        ("p", "", 8),
        ("q", "hidden", 128),
    ]
    assert entry.directives["reqntid"] == (128,)
    assert entry.directives["minperctamemory"] == (2048,)
    assert function.linkage == "hidden"
    assert entry.body is not None
    (only_one,) = entry.body.code
    assert only_one.located == Located(1, 10, 5)
    assert only_one.place.line == HEAD.count("\n") + 2 + TILE_IR.count("\n") + 8


def test_a_section_of_another_language_has_an_end() -> None:
    assert "no end" in error(TILE_IR.rstrip().removesuffix("}")).what


def test_comments_and_strings_do_not_confuse() -> None:
    found = module('.file 1 "//a;{"\n/* } */ .entry k() { // ret;\n/* ret;\n*/ ret; }')
    assert found.files == {1: "//a;{"}
    assert found.entries[0].body is not None
    assert len(found.entries[0].body.code) == 1


@pytest.mark.parametrize(
    ("text", "line", "what", "fix"),
    [
        (".entry k() {\n  mov.u32 %r1, ;\n}", 5, "operand is missing", ""),
        (".entry k() {\n  ret\n}", 5, "ret", "end it with ;"),
        (".entry k() {\n  ret;\n", 4, "has no end", "add }"),
        (".entry k() {\n  .loc 1 x 3\n}", 5, ".loc FILE LINE COLUMN", ""),
        (".entry k() {\n  .reg .b33 %r1;\n}", 5, "expected a type", ""),
        (".entry k() {\nA:\nA:\n ret;\n}", 6, "label A is defined twice", ""),
        (".entry k() {\n add.s32 %r1, %r2, 99999999999999999999;\n}", 5, "64 bits", ""),
        (".entry k() {\n add.s32 %r1, %r2, 1/0;\n}", 5, "divides by zero", ""),
        (".entry k() {\n add.s32 %r1, %r2 %r3;\n}", 5, "expected ','", ""),
        (".entry k() {\n .frobnicate 3;\n}", 5, ".frobnicate", ""),
        ("banana", 4, "expected a directive", "at module level"),
        ("/* a", 4, "has no end", "add */"),
        (".entry k() .frob 3 {\n}", 4, ".frob", ""),
        (".shared .align 3 .b8 x[4];", 4, "3 is not a valid alignment", "power of two"),
    ],
)
def test_errors_say_where_and_what_to_do(text: str, line: int, what: str, fix: str) -> None:
    found = error(text)
    assert (found.file, found.line) == ("k.ptx", line)
    message = str(found)
    assert what in message
    assert fix in message


@pytest.mark.parametrize("text", ["", "hello", "\x7fELF", ".target sm_90a", ".version 9.4\n"])
def test_what_is_no_module_is_refused(text: str) -> None:
    with pytest.raises(PtxError):
        read(text)


def test_reading_takes_time_linear_in_the_length() -> None:
    def seconds(n: int) -> float:
        lines = "".join(
            f".loc 1 {i} 0\n@%p1 add.s32 %r{i % 99}, %r{(i + 1) % 99}, {i}; // x\n"
            "{ .reg .pred p; setp.eq.s32 p, %r1, 0; }\n"
            for i in range(n)
        )
        text = f"{HEAD}.entry k() {{\n.reg .b32 %r<99>;\n{lines}}}\n"
        gc.collect()
        gc.disable()  # it would go through what other tests have left, the more often the longer
        try:
            start = time.process_time()
            read(text)
            return time.process_time() - start
        finally:
            gc.enable()

    small, large = (min(seconds(n) for _ in range(3)) for n in (1500, 12000))
    assert large < 24 * small


SEED = HEAD + (
    ".extern .shared .align 16 .b8 s[];\n.const .b32 t[2] = {1, 2};\n"
    ".func (.param .b32 r) f(.param .b32 a) { ret; }\n"
    ".visible .entry k(.param .u64 .ptr .global .align 1 p)\n.reqntid 128\n{\n"
    ".reg .pred %p<4>;\n.reg .b32 %r<9>;\n.loc 1 5 0, function_name $L0, inlined_at 1 2 3\n"
    "A: @!%p1 ld.shared.v4.u32 {%r1,%r2,_,%r3}, [s+16];\n{ .reg .pred p; elect.sync _|p, -1; }\n"
    "setp.lt.and.s32 %p1|%p2, %r1, (1+2)*3, !%p3;\nbrx.idx %r1, ts;\nts: .branchtargets A;\n"
    "call (r), f, (a);\nmov.f32 %r1, 0f3F800000;\n}\n.section .debug_str { $L0: .b8 65,0 }\n"
)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_no_change_of_a_text_makes_the_reader_crash(data: st.DataObject) -> None:
    text = SEED
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 20)))
        new = data.draw(st.one_of(
            st.text(alphabet="{}[]()<>.,;:|!@%$_ \n\"/*+-0x9fUArsb", max_size=6),
            st.sampled_from(["/*", '"', "<9999999999>", "[[[[" * 30, "-" * 100, "(" * 100, "1" * 99,
                             ".loc", ".reg", "_", "\0", "ä", ".section", ".entry", "{{"]),
        ))  # fmt: skip
        text = text[:start] + new + text[end:]
    with suppress(PtxError):
        read(text)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=200))
def test_no_text_makes_the_reader_crash(text: str) -> None:
    for whole in (text, HEAD + text, f"{HEAD}.entry k() {{\n{text}\n}}"):
        with suppress(PtxError):
            read(whole)


def test_qualifiers_may_stand_apart() -> None:
    together, apart = (
        only(f"cp.async.bulk.commit_group{blank}.L2::cache_hint [%rd1], %r1;")
        for blank in ("", " ")
    )
    assert together.opcode == apart.opcode
    assert together.operands == apart.operands


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # numbers without a sign: 9223372036854775808 is one, and so are ~ and remainders
        ("-9223372036854775808 > 1", 1),
        ("-1 <= 5U", 0),
        ("-1 <= 5", 1),
        ("~0 < 0", 0),
        ("-1 % (7)", 1),
        ("-7 / 2", -3),
        ("-8U / 2", (1 << 63) - 4),
        ("-8 >> 1", -4),
        ("-8U >> 1", (1 << 63) - 4),
        ("(-3 & 5U) > -1", 0),
        ("(-3 & 5) > -1", 1),
        ("(.s64) -3 < (.u64) 2", 0),
        ("1 ? -1 : 5U", -1),
        # a negation is of what is next to it
        ("!5 == 0", 1),
        ("!(5) + 3", 3),
        ("WARP_SZ * 2 - 1", 63),
    ],
)
def test_constant_expressions_have_the_types_of_ptxas(text: str, value: int) -> None:
    found = only(f"mov.b64 %rd1, {text};").operands[1]
    assert found == Integer(value)


def test_a_constant_expression_shifts_by_less_than_its_width() -> None:
    assert only("mov.b64 %rd1, 1 << 63;").operands[1] == Integer(-(1 << 63))
    for count in ("64", "-1"):
        with pytest.raises(PtxError, match="shifts by"):
            only(f"mov.b64 %rd1, 1 << {count};")
