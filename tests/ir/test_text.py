"""The text form: round trips, what it looks like, and what is said about malformed text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.litmus.sections import all_rows
from tests.litmus.table import Row
from tilesim import Builder, InvalidProgram, bf16, ds
from tilesim.arith.operators import BINARY, UNARY
from tilesim.arith.types import s32
from tilesim.checker import check
from tilesim.ir.declarations import Mbarriers, View
from tilesim.ir.expr import SPECIALS, Binary, Const, Expr, Special, Unary, Var
from tilesim.ir.loc import Loc
from tilesim.ir.op import OPS, Op
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierInit, MbarrierWait
from tilesim.ir.ops.scalar import Assign
from tilesim.ir.program import Break, For, If, Program, Role, While, walk
from tilesim.ir.target import TARGETS, Target
from tilesim.ir.text import parse, to_text
from tilesim.ir.text.forms import (
    CALLS,
    MAX_DEPTH,
    MAX_REGIONS,
    PRECEDENCE,
    PREFIX,
    form_of,
    operands,
)
from tilesim.kernels.registry import Case, cases

from .strategies import BARRIERS, EXPRESSIONS, SCALARS, TENSORS, VARIABLES, instructions, program

HERE = Path(__file__).parent
GUIDE = HERE.parents[1] / "docs" / "text-form.md"

EXAMPLES = settings(max_examples=100, deadline=None)


def assert_round_trip(original: Program) -> None:
    """Equal, of the same types all the way down, and at the same places if they are printed."""
    parsed = parse(to_text(original))
    assert repr(parsed) == repr(original)
    assert to_text(parsed) == to_text(original)
    placed = parse(to_text(original, locations=True))
    assert repr(placed) == repr(original)
    assert places(placed) == places(original)


def places(item: Program) -> list[Loc]:
    """Locations of everything in the program that has one."""
    declared = (*item.params, *item.maps, *item.shared, *item.fragments)
    return [item.loc, *(d.loc for d in declared if hasattr(d, "loc")),
            *(s.loc for s in walk(item.body))]  # fmt: skip


def built(case: Case) -> Program | None:
    """The case's program, None if the builder refuses it."""
    try:
        return case.build()
    except InvalidProgram:
        return None


def pipeline() -> Program:
    """A producer and a consumer over two stages, with the main kinds of statements."""
    k = Builder("pipeline", warps=5)
    n = k.scalar("n", 4)
    source = k.tensor("A", bf16, (256, 64))
    tile_map = k.tensor_map(source, (64, 64), swizzle=128)
    tiles = k.shared("sA", bf16, (2, 64, 64), swizzle=128)
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    fragment = k.fragment("f", bf16, (16, 64))
    phase = k.var("phase", 0)
    with k.one_thread():
        for s in range(2):
            k.mbarrier.init(full[s], 1)
            k.mbarrier.init(empty[s], 4)
        k.fence.mbarrier_init()
    k.sync_threads()
    with k.role("producer", 4), k.elected(), k.loop(n) as i:
        k.mbarrier.wait(empty[i % 2], ((i // 2) & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[i % 2], tile_map.box_bytes)
        k.tma.load(tile_map, tiles[i % 2], (i * 64, 0), full[i % 2])
    with k.role("consumer", range(4)), k.loop(n) as i:
        k.mbarrier.wait(full[i % 2], phase)
        k.tile.load(fragment, tiles[i % 2][ds(k.warp_id * 16, 16), :])
        with k.if_((i % 2).eq(1)):
            k.assign(phase, phase ^ 1)
        with k.elected():
            k.mbarrier.arrive(empty[i % 2])
    return k.finish()


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.target.split("kernels.")[-1])
def test_gallery_kernels_round_trip(case: Case) -> None:
    original = built(case)
    if original is not None:
        assert_round_trip(original)


@pytest.mark.parametrize("row", all_rows(), ids=lambda row: row.id)
def test_litmus_programs_round_trip(row: Row) -> None:
    try:
        original = row.build()
    except InvalidProgram:
        return
    assert_round_trip(original)


@pytest.mark.parametrize(
    "row",
    [r for r in all_rows() if r.id[:4] in ("LA01", "LA02", "LB01", "LB02", "LE01", "LF01")],
    ids=lambda row: row.id,
)
def test_a_parsed_program_gets_the_verdict_of_the_original(row: Row) -> None:
    original = row.build()
    expected = verdict(original)
    assert verdict(parse(to_text(original))) == expected
    assert verdict(parse(to_text(original, locations=True))) == expected


def verdict(item: Program) -> tuple[str, list[str]]:
    """The verdict and the rules of what is reported."""
    try:
        report = check(item)
    except InvalidProgram as error:
        return "rejected", [d.rule for d in error.diagnostics]
    return report.verdict, [f.rule for f in report.findings]


@EXAMPLES
@given(EXPRESSIONS)
def test_expressions_round_trip(expr: Expr) -> None:
    assert_round_trip(program(Assign(var=VARIABLES[0], value=expr)))


@pytest.mark.parametrize("mnemonic", sorted(OPS))
def test_instructions_round_trip(mnemonic: str) -> None:
    @settings(max_examples=6, deadline=None)
    @given(instructions(OPS[mnemonic]))
    def round_trip(op: Op) -> None:
        assert_round_trip(program(op))

    round_trip()


def test_every_operator_has_a_precedence() -> None:
    assert set(PRECEDENCE) | CALLS == set(BINARY)
    assert set(PREFIX) == set(UNARY)


X, P = VARIABLES[0], VARIABLES[1]


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Const(-5), "-5"),
        (Unary("-", Const(5)), "-(5)"),
        (Unary("-", Const(-5)), "-(-5)"),
        (Unary("-", Unary("-", X)), "-(-i)"),
        (Const(True), "true"),
        (Const(1.0), "1.0"),
        (Const(-0.0), "-0.0"),
        (Const(1e300), "1e+300"),
        (Const(math.inf), "inf"),
        (Const(-math.inf), "-inf"),
        (Const(math.nan), "nan"),
        (X - (X - 1), "i - (i - 1)"),
        (X - 1 - X, "i - 1 - i"),
        (X * 64 + 1, "i * 64 + 1"),
        ((X + 1) * 64, "(i + 1) * 64"),
        (X % Special("warp_id"), "i % %warp_id"),
        ((X // 2 & 1) ^ 1, "((i // 2) & 1) ^ 1"),
        ((X & 1).eq(0), "(i & 1) == 0"),
        ((X < 4).eq(P), "(i < 4) == p"),
        (Binary("or", Binary("and", P, X < 4), Unary("not", P)), "p and i < 4 or not p"),
        (Binary("and", P, Binary("or", P, P)), "p and (p or p)"),
        (Unary("not", X < 4), "not (i < 4)"),
        (Binary("+", X, Unary("not", P)), "i + (not p)"),
        (Binary("min", X, Binary("max", X, VARIABLES[2])), "min(i, max(i, `min`))"),
        (-X % 3, "-i % 3"),
        (-(X % 3), "-(i % 3)"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_expressions_print_with_the_parentheses_they_need(expr: Expr, text: str) -> None:
    printed = to_text(program(Assign(var=X, value=expr)))
    assert f"    mov i, {text}\n" in printed
    assert_round_trip(program(Assign(var=X, value=expr)))


@pytest.mark.parametrize(
    ("text", "expr"),
    [
        ("i + 1 & 3 == 3", Binary("==", Binary("&", X + 1, Const(3)), Const(3))),
        ("not i < 4 and p", Binary("and", Unary("not", X < 4), P)),
        ("i%4", X % 4),
        ("i%n", Binary("%", X, SCALARS[0])),
        ("- i", -X),
        ("- 5", Const(-5)),
        ("0x1F", Const(31)),
        ("1e3", Const(1000.0)),
    ],
)
def test_what_people_write_parses_as_they_mean_it(text: str, expr: Expr) -> None:
    printed = to_text(program(Assign(var=X, value=Const(0)))).replace("mov i, 0", f"mov i, {text}")
    (stmt,) = parse(printed).body
    assert isinstance(stmt, Assign)
    assert repr(stmt.value) == repr(expr)


def test_every_kind_of_statement_round_trips() -> None:
    apart = If(cond=P, then=(Break(),), orelse=(Break(),), sync=False)
    repeated = (While(cond=Const(1), body=()), While(cond=P, body=(), sync=False))
    inner = (Break(), If(cond=P, then=(), orelse=(apart,)), *repeated)
    loops = [
        For(var=X, start=start, stop=X, step=step, body=inner, sync=start is X)
        for start in (Const(0), Const(False), X)
        for step in (Const(1), Const(1.0), Const(-1))
    ]
    warps = [(), (3,), (0, 1), (0, 1, 2, 3), (3, 2, 1), (0, 1, 2, 7, 9, 10, 11, -1), (1, 1)]
    roles = [Role(name='a "role"\n', warps=w, body=(If(cond=X, then=inner),)) for w in warps]
    assert_round_trip(program(*loops, *roles))


def test_launch_and_names_round_trip() -> None:
    assert_round_trip(
        Program(name="`a kernel`", target=TARGETS["sm_120a"], warps=8, grid=(4, 3, 2),
                cluster=(2, 1, 1), registers=168, smem_bytes=1 << 17)
    )  # fmt: skip


def test_golden_text_of_a_pipeline() -> None:
    assert to_text(pipeline()) == (HERE / "golden" / "pipeline.tile").read_text()


def test_golden_text_parses_to_the_pipeline() -> None:
    assert parse((HERE / "golden" / "pipeline.tile").read_text()) == pipeline()


def test_findings_name_the_line_of_the_text_unless_it_is_annotated() -> None:
    k = Builder("stuck", warps=1)
    barrier = k.mbarriers("b")
    with k.one_thread():
        k.mbarrier.init(barrier[0], 2)
        k.mbarrier.arrive(barrier[0])
        k.mbarrier.wait(barrier[0], 0)
    original = k.finish()
    text = to_text(original)
    line = next(n for n, s in enumerate(text.splitlines(), 1) if "mbarrier.wait" in s)
    for parsed, expected in (
        (parse(text, "stuck.tile"), {("stuck.tile", line)}),
        (parse(to_text(original, locations=True), "stuck.tile"), sites(original)),
    ):
        assert sites(parsed) == expected
        (finding,) = check(parsed).findings
        assert finding.rule == "deadlock"
        assert {(p.loc.file, p.loc.line) for p in finding.participants} == expected


def sites(item: Program) -> set[tuple[str, int]]:
    """Places of the waits."""
    return {(s.loc.file, s.loc.line) for s in walk(item.body) if isinstance(s, MbarrierWait)}


def test_comments_blank_lines_and_continuations_are_ignored() -> None:
    text = to_text(pipeline())
    spaced = text.replace("\n", '   # a comment: { " @\r\n\n').replace(", ", ",\n\t ")
    assert parse(spaced) == parse(text)


def test_the_guide_shows_text_that_parses() -> None:
    blocks = re.findall(r"```tile\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        assert to_text(parse(block)) == block


@pytest.mark.parametrize("mnemonic", sorted(OPS))
def test_every_field_has_a_form(mnemonic: str) -> None:
    assert all(o.form for o in operands(OPS[mnemonic]))


@dataclass(frozen=True, kw_only=True)
class Unwritable:
    """A class with a field of a type without a form."""

    payload: dict[str, int]


def test_a_field_of_an_unknown_type_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"Unwritable\.payload: the text form does not know"):
        operands(Unwritable)


@pytest.mark.parametrize(
    "hint",
    [Expr | int, Expr | Literal["a"], View | type(TENSORS[0]), tuple[int, ...] | tuple[str, str],
     Literal["x"] | Var],
)  # fmt: skip
def test_a_union_whose_members_look_alike_is_a_type_error(hint: Any) -> None:
    with pytest.raises(TypeError, match="Thing: the text form cannot tell"):
        form_of(hint, "Thing")


def arrive(**operands: Any) -> Program:
    return program(MbarrierArrive(mbar=BARRIERS[0][0], **operands))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda: arrive(count=4), "operand count is 4, expected an expression"),
        (lambda: arrive(sem="acquire"), "operand sem is 'acquire', expected release or relaxed"),
        (lambda: arrive(token=Var("other")), "other is used here, but"),
        (lambda: arrive(count=Const(1 << 64)), "integers below 2^64 only"),
        (lambda: program(MbarrierInit(mbar=Mbarriers("full", 5)[0], count=Const(1))),
         "full is used here, but the program does not declare it"),
        (lambda: program(Assign(var=X, value=chain(MAX_DEPTH + 1))), "at most 200 levels"),
        (lambda: program(*regions(MAX_REGIONS)), "at most 64 nested regions"),
        (lambda: Program(name="x", target=TARGETS["sm_90a"], warps=1, variables=(X, X)),
         "the name 'i' is declared twice"),
        (lambda: Program(name="x", target=Target("sm_90a", frozenset()), warps=1),
         "sm_90a is no Target of tilesim"),
    ],
)  # fmt: skip
def test_what_the_text_cannot_say_is_rejected_by_the_printer(broken: Any, message: str) -> None:
    with pytest.raises(InvalidProgram, match=re.escape(message)):
        to_text(broken())


def chain(height: int) -> Expr:
    """``i + (i + (i + ...))``."""
    expr: Expr = X
    for _ in range(height - 1):
        expr = Binary("+", X, expr)
    return expr


def regions(depth: int) -> tuple[If, ...]:
    """Ifs inside one another."""
    body: tuple[If, ...] = ()
    for _ in range(depth):
        body = (If(cond=P, then=body),)
    return body


def test_programs_at_the_limits_round_trip() -> None:
    assert_round_trip(program(Assign(var=X, value=chain(MAX_DEPTH))))
    left: Expr = X
    for _ in range(MAX_DEPTH - 1):
        left = Unary("-", left)
    assert_round_trip(program(Assign(var=X, value=left), *regions(MAX_REGIONS - 1)))


@EXAMPLES
@given(st.text(max_size=20), st.text(max_size=20))
def test_any_name_round_trips(kernel: str, role: str) -> None:
    body = (Role(name=role, warps=(0,), body=(), loc=Loc(role, 3, kernel)),)
    variables = (Var(kernel, s32),)
    original = Program(
        name=kernel, target=TARGETS["sm_90a"], warps=1, variables=variables,
        body=(*body, Assign(var=variables[0], value=variables[0])),
    )  # fmt: skip
    assert_round_trip(original)


def test_the_strategies_use_every_special_register() -> None:
    specials = [Assign(var=X, value=Special(name)) for name in SPECIALS]
    assert_round_trip(program(*specials))
