"""Single faults in the text of PTX, for tools that read nothing else.

Each is one of the catalogue (`tilesim.fuzz`), made by changing one line: an instruction is left
out, or a count, a number of bytes or a parity is another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_LINE = re.compile(
    r"(?P<guard>\s*(?:@!?[%\w$]+\s+)?)(?P<opcode>[a-z][\w.:]*)(?:\s+(?P<rest>.*?))?\s*;\s*$"
)
_DROPPED = {
    "arrive dropped": r"mbarrier\.arrive(?!.*expect_tx)|tcgen05\.commit",
    "init dropped": r"mbarrier\.init",
    "copy dropped": r"cp\.async\.bulk.*shared::(cluster|cta)\.global|tcgen05\.cp",
    "fence dropped": r"fence\.(proxy|mbarrier_init)|tcgen05\.fence",
    "group wait dropped": r"cp\.async\.bulk\.wait_group|tcgen05\.wait",
    "group commit dropped": r"cp\.async\.bulk\.commit_group",
    "named barrier dropped": r"bar(rier)?\.(cta\.)?sync",
    "cluster barrier dropped": r"barrier\.cluster",
    "columns not freed": r"tcgen05\.dealloc",
}
#: that only fences are missing in
FENCES = "fence dropped"


@dataclass(frozen=True)
class Spoiled:
    """A text with one fault: which one, in which line (from 1), and what was done there."""

    fault: str
    line: int
    what: str
    text: str

    def __str__(self) -> str:
        return f"{self.fault}, line {self.line}: {self.what}"


def spoiled(text: str) -> Iterator[Spoiled]:
    """Every text that a fault can make of another."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        for fault, what, instead in _edits(line, f"%fault{number}"):
            changed = [*lines[:number], *instead, *lines[number + 1 :]]
            yield Spoiled(fault, number + 1, what, "\n".join(changed) + "\n")


def _edits(line: str, register: str) -> Iterator[tuple[str, str, list[str]]]:
    found = _LINE.match(line)
    if found is None:
        return
    opcode = found["opcode"]
    for fault, pattern in _DROPPED.items():
        if re.match(pattern, opcode) and not _has_result(opcode, found["rest"] or ""):
            yield fault, f"{opcode} removed", []
    for name, edits in _CHANGED.items():
        if opcode.startswith(name):
            yield from edits(found, register)


def _has_result(opcode: str, rest: str) -> bool:
    return opcode.startswith("mbarrier.arrive") and not rest.startswith(("_", "["))


def _initialised(found: re.Match[str], register: str) -> Iterator[tuple[str, str, list[str]]]:
    yield from _numbers("wrong arrival count", found, lambda n: (n + 1, n - 1))


def _expected(found: re.Match[str], register: str) -> Iterator[tuple[str, str, list[str]]]:
    if "expect_tx" in found["opcode"]:
        yield from _numbers("wrong bytes", found, lambda n: (2 * n, n // 2))


def _numbers(
    fault: str, found: re.Match[str], others: Callable[[int], tuple[int, ...]]
) -> Iterator[tuple[str, str, list[str]]]:
    """The last operand, if it is a number, is another one."""
    head, comma, last = (found["rest"] or "").rpartition(",")
    if comma and last.strip().isdigit():
        before = int(last)
        for after in others(before):
            if after > 0 and after != before:
                new = f"{found['guard']}{found['opcode']} {head}, {after};"
                yield fault, f"{after} instead of {before}", [new]


def _waited(found: re.Match[str], register: str) -> Iterator[tuple[str, str, list[str]]]:
    operands = [part.strip() for part in found["rest"].split(",")]
    predicate, parity = operands[0], operands[2]
    yield "wait dropped", "its predicate is true", [f"setp.eq.u32 {predicate}, 0, 0;"]
    if parity.isdigit():
        changed, before = str(int(parity) ^ 1), []
    else:
        changed = register
        before = [f".reg .b32 {register};", f"xor.b32 {register}, {parity}, 1;"]
    rest = ", ".join((predicate, operands[1], changed, *operands[3:]))
    yield "wrong parity", "the parity is inverted", [*before, f"{found['opcode']} {rest};"]


_CHANGED = {
    "mbarrier.init": _initialised,
    "mbarrier.arrive": _expected,
    "mbarrier.expect_tx": _expected,
    "mbarrier.try_wait.parity": _waited,
}
