"""Kernels as PTX and SASS that are written down, for tests of what validation says of them."""

from __future__ import annotations

import re
from typing import Any

from tilesim.cubin.sass import WIDTH, Function, Instruction
from tilesim.ptx.inline import flatten
from tilesim.ptx.parser import read
from tilesim.translation.comparison import Comparison
from tilesim.translation.validate import paired

_HEAD = """.version 8.8
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 p) {
.reg .b32 %r<40>; .reg .b64 %d<40>; .reg .pred %p<8>; .reg .f32 %f<16>;
"""
_ROW = re.compile(r"(?:(\d+|[a-z]\w*)\s+)?(?:@(!?\w+)\s+)?([A-Z][\w.]*)\s*(.*)$")


def ptx_of(body: str) -> str:
    """A module of a body; its first line is line 6."""
    return f"{_HEAD}{body.strip()}\nret;\n}}\n"


def function_of(sass: str, labels: dict[str, int]) -> Function:
    """Code from rows of the label of a PTX line (or its number), a guard, an opcode and operands;
    ``L1:`` is a place of SASS, to which ``BRA L1`` leads."""
    places: dict[str, int] = {}
    rows: list[re.Match[str]] = []
    for text in filter(None, map(str.strip, sass.strip().splitlines())):
        if text.endswith(":"):
            places[text[:-1]] = len(rows) * WIDTH
        elif found := _ROW.match(text):
            rows.append(found)
    code: dict[int, Instruction] = {}
    for number, row in enumerate(rows):
        line = labels.get(row[1], int(row[1]) if row[1] and row[1].isdecimal() else 0)
        operands = tuple(
            filter(None, (text.strip() for text in re.split(r",(?![^\[]*\])", row[4])))
        )
        target = places.get(operands[-1]) if operands else None
        code[number * WIDTH] = Instruction(
            number * WIDTH, row[2] or "", row[3], operands, (), line or None, target
        )
    after: dict[int, tuple[int, ...]] = {}
    for pc, one in code.items():
        following = {pc + WIDTH} if pc + WIDTH in code else set()
        always = not one.guard and len(one.operands) == 1 and one.modifiers != ("U", "ANY")
        if one.target is not None:
            following = {one.target} if always else {*following, one.target}
        elif one.base == "EXIT" and not one.guard:
            following = set()
        after[pc] = tuple(sorted(following))
    before: dict[int, list[int]] = {pc: [] for pc in code}
    for pc, places_after in after.items():
        for place in places_after:
            before[place].append(pc)
    return Function(
        "k", 0, len(code) * WIDTH, code, after, {pc: tuple(b) for pc, b in before.items()}
    )


def compared(body: str, sass: str) -> Comparison:
    """A kernel in PTX, in which ``//name`` names a line, and in SASS, whose rows name these."""
    labels: dict[str, int] = {}
    for number, line in enumerate(ptx_of(body).split("\n"), 1):
        if found := re.search(r"//(\w+)", line):
            labels[found[1]] = number
    text = re.sub(r"//\w+", "", ptx_of(body))
    module = read(text)
    nothing: Any = None
    return Comparison(
        paired(
            nothing, nothing, flatten(module, module.entries[0]), function_of(sass, labels), text
        )
    )
