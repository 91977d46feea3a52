"""Malformed text: every error is a `ParseError` with its place, what was expected and found."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilesim import ParseError
from tilesim.ir.program import Program
from tilesim.ir.text import parse, to_text
from tilesim.ir.text.forms import MAX_CHARS, MAX_DEPTH, MAX_REGIONS

GOLDEN = (Path(__file__).parent / "golden" / "pipeline.tile").read_text()

HEADER = """tile 1
kernel k: target=sm_90a, warps=4
global A: bf16, {256, 64}
mbarriers full: 2
fragment acc: f32, {64, 128}
var i
var p: pred
body {
"""
#: line of the first statement
FIRST = HEADER.count("\n") + 1


def message(text: str) -> str:
    """What the parser says about ``text``."""
    with pytest.raises(ParseError) as caught:
        parse(text, "x.tile")
    return str(caught.value)


STATEMENTS = [
    ("mbarrier.wiat full[0], 1", 1,
     "expected an instruction, found 'mbarrier.wiat' (did you mean mbarrier.wait"),
    ("mbarrier.init full[0]", 22,
     "expected operand count of mbarrier.init (mbar, count), found the end of the line"),
    ("mbarrier.init full[0], 1, 2", 27, "expected at most 2 operands of mbarrier.init"),
    ("mbarrier.init full[0], cuont=1", 24,
     "expected an operand of mbarrier.init (mbar, count), found 'cuont' (did you mean count?)"),
    ("mbarrier.init full[0], count=1, count=2", 33, "expected every operand once, found 'count'"),
    ("mbarrier.init mbar=full[0], 1", 29, "expected name=value after the first name=value"),
    ("mbarrier.init ful[0], 1", 15,
     "expected an mbarrier, found 'ful', which is not declared (did you mean full?)"),
    ("mbarrier.init A[0], 1", 15, "expected an mbarrier, found 'A', declared as global"),
    ("mbarrier.init full, 1", 19, "expected '[' after the mbarrier array full, found ','"),
    ("mbarrier.init full[2], 1", 20, "expected an index below 2 of full, found 2"),
    ("mbarrier.init full[0, 1", 21, "expected ']', found ','"),
    ("mbarrier.wait full[0], 1, sem=aquire", 31,
     "expected acquire or relaxed, found 'aquire' (did you mean acquire?)"),
    ("mbarrier.wait full[0], 1, parity=1", 34, "expected a flag (true, false), found '1'"),
    ("mbarrier.wait full[0], 1 2", 26, "expected the end of 'mbarrier.wait', found '2'"),
    ("mbarrier.wait full[0], 1 @3:4", 27, "expected the number of a source, found 3"),
    ("tile.zip acc, add, acc, bcc", 25,
     "expected a fragment or an expression, found 'bcc', which is not declared"),
    ("tile.load acc, A[0:+64]", 23, "expected ',' (A has 2 dimensions), found ']'"),
    ("tile.load acc, A[0, 1, 2]", 22, "expected ']' (A has 2 dimensions), found ','"),
    ("tile.load acc, A[0:+-1, :]", 21, "expected a number of elements, found '-'"),
    ("cp.async.bulk.wait_group 1.5", 26, "expected an integer, found '1.5'"),
    ("mov i, j", 8, "expected a variable or scalar parameter, found 'j', which is not declared"),
    ("mov i, 1 +", 11, "expected an expression, found the end of the line"),
    ("mov i, min(1)", 13, "expected ',' (min takes 2 arguments), found ')'"),
    ("mov i, i < 1 < 2", 14, "expected '(' around a comparison to compare, found '<'"),
    ("mov i, %warpid", 8, "expected a special register, found '%warpid' (did you mean warp_id?)"),
    ("mov i, % warp_id", 10, "expected the name of a special register after '%', found 'warp_id'"),
    ("mov i, 12ab", 8, "expected a number, found '12ab'"),
    ("mov i, 1e999", 8, "expected a floating-point number, found '1e999' beyond f64"),
    ("mov i, 18446744073709551616", 8, "expected an integer below 2^64"),
    ("mov i, 0x1" + 99 * "0", 8, "expected an integer below 2^64"),
    ("mov i, " + 5000 * "9", 8, "expected a number, found one of 5000 digits"),
    ("mov i, $", 8, "expected a token, found '$'"),
    ("mov i, " + 300 * "(", 8 + MAX_DEPTH, "expected an expression of at most 200 levels"),
    ("mov i, " + 300 * "i+" + "i", 407, "expected an expression of at most 200 levels"),
    ("mov i, " + 300 * "-" + "i", 108, "expected an expression of at most 200 levels"),
    ('role "producer warps 0 {', 6, 'expected a closing " on the line of the string, found none'),
    ('role "\\q" warps 0 {', 7, "expected an escape"),
    ("role producer warps 0 {", 6, "expected the role's name as a string, found 'producer'"),
    ('role "a" warps 3..0 {', 16, "expected a rising range of warps, found 3..0"),
    ('role "a" warps 0..99999999 {', 16, "expected at most 4096 warps, found more"),
    ("for q in range(2) {", 5, "expected the loop's variable, found 'q', which is not declared"),
    ("for i in range(1, 2, 3, 4) {", 23, "expected ')' (range takes at most start, stop, step)"),
    ("if p", 5, "expected '{' of the 'if' of line 9, found the end of the line"),
    ("else {", 1, "expected a statement, found an 'else' on no line of an if's '}'"),
    ("var q", 1, "expected an instruction, found 'var'"),
    ("7", 1, "expected a statement or '}', found '7'"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "column", "expected"), STATEMENTS, ids=lambda v: str(v)[:30])
def test_a_wrong_statement_is_reported_at_its_place(line: str, column: int, expected: str) -> None:
    assert message(f"{HEADER}{line}\n}}\n").startswith(f"x.tile:{FIRST}:{column}: {expected}")


TEXTS = [
    ("", "1:1: expected 'tile' and the version in the first line, found the end of the text"),
    ("tile 2\n", "1:6: expected version 1 of the format, found '2'"),
    ("tile 1\n# no kernel\n", "3:1: expected 'kernel' and the launch, found the end of the text"),
    ("tile 1\nkernel k: target=sm_91, warps=4\n", "2:18: expected a target"),
    ("tile 1\nkernel k: target=sm_90a\n", "2:24: expected operand warps of kernel"),
    ('tile 1\nsource 1 "a"\nsource 1 "b"\n', "3:8: expected a new source number, found 1 again"),
    (HEADER, f"{FIRST}:1: expected '}}' to close the 'body' of line 8, found the end of the text"),
    (HEADER + "if p {\n}\n", f"{FIRST + 2}:1: expected '}}' to close the 'body' of line 8"),
    (HEADER + "if p {\n", f"{FIRST + 1}:1: expected '}}' to close the 'if' of line {FIRST}"),
    (HEADER + "}\n}\n", f"{FIRST + 1}:1: expected the end of the text after the body, found '}}'"),
    (HEADER.replace("var p", "var i"), "7:5: expected a new name, found 'i', declared in line 6"),
    (HEADER.replace("var p", "var full"), "7:5: expected a new name, found 'full'"),
    (HEADER.replace("var p", "var min"), "7:5: expected a plain name"),
    (HEADER.replace("bf16", "bf61"), "3:11: expected an element type, found 'bf61'"),
    (HEADER.replace("var p", "vra p"), "7:1: expected global, scalar, map, shared, mbarriers"),
    (HEADER.replace("{64, 128}", "{64}"), "5:23: expected ',' (the list has 2 elements)"),
    (HEADER.replace("{256, 64}", "{256, 64"), "4:1: expected '}' to close the list of line 3"),
    (HEADER.replace("full: 2", "full: 2 3"), "4:19: expected the end of the declaration"),
    (HEADER + MAX_REGIONS * "if p {\n", f"{FIRST + MAX_REGIONS - 1}:6: expected at most 64 nested"),
    (" " * (MAX_CHARS + 1), "1:1: expected at most 16777216 characters, found 16777217"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), TEXTS, ids=lambda v: str(v)[:30])
def test_a_wrong_text_is_reported_at_its_place(text: str, expected: str) -> None:
    assert message(text).startswith(f"x.tile:{expected}")


def test_an_unknown_target_is_answered_with_the_known_ones() -> None:
    said = message(HEADER.replace("sm_90a", "sm_90b"))
    assert said.startswith("x.tile:2:18: expected a target (sm_90, sm_90a, sm_100a")
    assert "found 'sm_90b' (did you mean sm_90" in said


PIECES = [
    *sorted(set(re.findall(r"\w+(?:\.\w+)*|[^\w\s]+|\s+", GOLDEN))),
    "`", '"', "\\", "@1:1", "99999999999999999999", "1.5", "nan", "none", "true", "%", ".at(", "..",
    "not", "select(", "tmem(0, f32, {1, 32})", "bulk", "\x00", "é", "tcgen05.mma", "tile.zip",
]  # fmt: skip
CUTS = st.integers(0, len(GOLDEN))
EDITS = st.lists(st.tuples(CUTS, st.integers(0, 12), st.sampled_from(PIECES)), max_size=4)


def assert_parses_or_is_refused(text: str) -> None:
    """A program that prints and parses again, or an error with its place."""
    parsed = parsed_or_error(text)
    if isinstance(parsed, ParseError):
        assert re.match(r"x\.tile:\d+:\d+: expected .*found", str(parsed), re.DOTALL), parsed
    else:
        assert repr(parse(to_text(parsed))) == repr(parsed)


def parsed_or_error(text: str) -> Program | ParseError:
    """What parsing gives."""
    try:
        return parse(text, "x.tile")
    except ParseError as error:
        return error


@settings(max_examples=80, deadline=None)
@given(EDITS)
def test_edited_texts_parse_or_are_refused(edits: list[tuple[int, int, str]]) -> None:
    text = GOLDEN
    for place, removed, piece in edits:
        text = text[:place] + piece + text[place + removed :]
    assert_parses_or_is_refused(text)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=12).map(" ".join))
@example("mov i, 1 if p { }")
def test_arbitrary_statements_parse_or_are_refused(line: str) -> None:
    assert_parses_or_is_refused(f"{HEADER}{line}\n}}\n")


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=40))
def test_arbitrary_texts_are_refused(text: str) -> None:
    message(f"tile 1\n{text}")


@pytest.mark.parametrize("room", [100, 200, 300])
def test_a_nearly_full_stack_is_a_parse_error_too(room: int) -> None:
    def deeper(frames: int) -> None:
        if frames:
            deeper(frames - 1)
        else:
            message(GOLDEN.replace("phase ^ 1", f"{'(' * 199}phase ^ 1{')' * 199}"))

    deeper(sys.getrecursionlimit() - len(inspect.stack()) - room)


def test_an_open_parenthesis_is_reported_where_something_else_stands() -> None:
    said = message(f"{HEADER}mov i, (1 + 2\n}}\n")
    assert (
        said == f"x.tile:{FIRST + 1}:1: expected ')' to close the '(' of line {FIRST}, found '}}'"
    )
