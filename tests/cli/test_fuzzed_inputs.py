"""Files that others wrote, changed at random: an answer or an error with its place, within bounds.

Texts are changed as texts (lines and words cut, repeated, exchanged, numbers replaced by extreme
ones), JSON by its structure (another value, kind or nesting where one stands).
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilesim.checker import check
from tilesim.checker.witness import load, replay
from tilesim.errors import TilesimError
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.ir.text import mir as machine
from tilesim.ir.text import parse
from tilesim.ptx.description import loads_all
from tilesim.ptx.parser import read
from tilesim.ptx.program import lower as lowered
from tilesim.transforms.lower import lower

TILE = (Path(__file__).parents[1] / "ir" / "golden" / "pipeline.tile").read_text()
MIR = machine.to_text(lower(parse(TILE)))
PTX = """.version 8.8
.target sm_90a
.address_size 64
.global .align 8 .b64 word = 5;
.visible .entry k(.param .u64 a, .param .u32 n)
{
.reg .pred %p<3>;
.reg .b32 %r<9>;
.reg .b64 %rd<4>;
.shared .align 8 .b64 bar;
.shared .align 128 .b8 tile[1024];
mov.u32 %r1, %tid.x;
setp.ne.s32 %p1, %r1, 0;
@%p1 bra READY;
mbarrier.init.shared::cta.b64 [bar], 32;
READY:
bar.sync 0;
ld.param.u32 %r4, [n];
mbarrier.arrive.shared::cta.b64 %rd1, [bar];
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [bar], 0;
@!%p2 bra WAIT;
ld.param.u64 %rd2, [a];
cvta.to.global.u64 %rd3, %rd2;
st.global.u32 [%rd3], %r4;
ret;
}
"""
LAUNCH: dict[str, Any] = {
    "entry": "k", "grid": [2, 1], "block": [32], "cluster": [1],
    "params": [
        {"kind": "pointer", "name": "a", "bytes": 64, "contents": {"type": "s32", "values": [1]}},
        {"kind": "scalar", "name": "n", "type": "u32", "value": 5},
    ],
    "variables": {"word": {"type": "u64", "values": [1]}},
}  # fmt: skip
#: kernels that are small enough to be checked whatever their numbers are
CHECK: dict[str, Any] = {"schedules": 1, "budget": 300, "time_limit": timedelta(seconds=2)}

NUMBERS = [0, 1, -1, 31, 33, 256, 65536, 2**31 - 1, 2**31, 2**32, 2**48, 2**63, 2**64 - 1, 2**64]
_NUMBER = re.compile(r"(?<![\w.%])\d+(?![\w.])")
_WORD = re.compile(r"[%A-Za-z_][\w.%]*|[^\s\w]")


@st.composite
def edited(draw: st.DrawFn, text: str) -> str:
    """``text`` after one to three changes."""
    for _ in range(draw(st.integers(1, 3))):
        how = draw(st.sampled_from(("number", "number", "word", "cut", "again", "moved")))
        if how in ("number", "word"):
            spots = list((_NUMBER if how == "number" else _WORD).finditer(text))
            spot = draw(st.sampled_from(spots))
            new = (
                str(draw(st.sampled_from(NUMBERS)))
                if how == "number"
                else draw(st.sampled_from(spots)).group()
            )
            text = text[: spot.start()] + new + text[spot.end() :]
            continue
        lines = text.split("\n")
        here = draw(st.integers(0, len(lines) - 1))
        line = lines[here]
        if how != "again":
            del lines[here]
        if how != "cut":
            lines.insert(draw(st.integers(0, len(lines))), line)
        text = "\n".join(lines)
    return text


VALUES: list[Any] = [
    *NUMBERS, 2**200, 1.5, float("inf"), None, True, "x", "", "a" * 5000, [], {}, [[]], {"": 0},
]  # fmt: skip


def places(document: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each value in a JSON document, but the whole."""
    inside = list(document) if isinstance(document, dict) else range(len(document))
    for key in inside:
        yield (*at, key)
        if isinstance(document[key], (dict, list)):
            yield from places(document[key], (*at, key))


@st.composite
def restructured(draw: st.DrawFn, document: dict[str, Any]) -> Any:
    """``document`` with one or two values replaced, removed or repeated."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        *way, last = draw(st.sampled_from(list(places(changed))))
        inside = changed
        for key in way:
            inside = inside[key]
        how = draw(st.sampled_from(("value", "value", "removed", "nested", "more")))
        match how:
            case "removed":
                del inside[last]
            case "nested":
                inside[last] = [inside[last]]
            case "more" if isinstance(inside, list):
                inside += [inside[last]] * draw(st.integers(1, 40))
            case _:
                inside[last] = copy.deepcopy(draw(st.sampled_from(VALUES)))
        if not changed:
            break
    return changed


def answered(program: Program | Mir) -> None:
    """It is checked or refused."""
    with suppress(TilesimError):
        check(program, **CHECK)


#: of a loop of another role, whose variable this one has not set
WAIT_OF_ANOTHER = "mbarrier.wait empty[i % 2], ((i // 2) & 1) ^ 1"


@settings(max_examples=50, deadline=None)
@given(edited(TILE))
@example(TILE.replace("mbarriers full: 2", "mbarriers full: 4294967296"))
@example(TILE.replace("tile.load f, sA", f"{WAIT_OF_ANOTHER}\n            tile.load f, sA"))
@example(TILE.replace("warps=5", "warps=5, grid={2147483647, 65535, 65535}"))
def test_tile_texts(text: str) -> None:
    with suppress(TilesimError):
        answered(parse(text, "x.tile"))


@settings(max_examples=80, deadline=None)
@given(edited(MIR))
def test_machine_programs_are_read_or_refused(text: str) -> None:
    with suppress(TilesimError):
        machine.parse(text, "x.mir")


def read_ptx(text: str, launch: object) -> None:
    """Reads, lowers and checks, or refuses."""
    with suppress(TilesimError):
        module = read(text, "x.ptx")
        entries = {entry.name: entry for entry in module.entries}
        for one in loads_all(json.dumps(launch), "x.json"):
            if one.entry in entries:
                answered(lowered(module, entries[one.entry], one))


@settings(max_examples=60, deadline=None)
@given(edited(PTX))
@example(PTX.replace("mov.u32 %r1, %tid.x;", "mov.u32 %r1;"))
def test_ptx(text: str) -> None:
    read_ptx(text, LAUNCH)


@settings(max_examples=50, deadline=None)
@given(restructured(LAUNCH))
@example({**LAUNCH, "grid": [2**31 - 1, 2**31 - 1, 2**31 - 1]})
def test_launch_descriptions(launch: object) -> None:
    read_ptx(PTX, launch)


STUCK = parse(TILE.replace("mbarrier.arrive empty", "mbarrier.arrive full"), "x.tile")
WITNESS = check(STUCK, **CHECK).witness


@settings(max_examples=50, deadline=None)
@given(restructured(WITNESS or {}))
def test_witnesses(document: object) -> None:
    with suppress(TilesimError):
        replay(STUCK, load(json.dumps(document)))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "9" * 5000, "\ud800", ""])
def test_nested_and_odd_json_is_refused(text: str) -> None:
    for parser in (load, loads_all):
        with pytest.raises(TilesimError):
            parser(text)


DEEP = 100_000


@pytest.mark.parametrize(
    "text",
    [
        TILE.replace("i // 2", "(" * DEEP),
        TILE.replace("i // 2", "not " * DEEP),
        TILE.replace("body {", "body {" + "if elected {\n" * DEEP),
        TILE.replace("{2, 64, 64}", "{" * DEEP),
        PTX.replace("{\n", "{\n" * DEEP),
        PTX.replace("[bar], 32", f"[bar], {'(' * DEEP}32"),
        PTX.replace("[a]", "[" * DEEP),
        PTX.replace("= 5", f"= {'-' * DEEP}5"),
        "/*" * DEEP,
    ],
    ids=lambda text: text[:30],
)
def test_nested_texts_are_refused(text: str) -> None:
    with pytest.raises(TilesimError):
        (read if text.startswith((".", "/")) else parse)(text, "x")
