"""The lines in which a wrong program and the right one differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Any, NamedTuple

from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.ir.program import For, If, Program, Role, Stmt, While


class _Line(NamedTuple):
    """A statement without what is in it: what it says, and where it stands."""

    text: str
    loc: Loc


def culprits(wrong: Program, right: Program) -> frozenset[Loc]:
    """Where ``wrong`` has what ``right`` has not, or has not what ``right`` has.

    What is missing has no line in the wrong program. Its culprits are the line where it would be
    written (a kernel with a switch has that line) and the statements on both sides of the gap.
    """
    ours, theirs = [*_lines(wrong)], [*_lines(right)]
    matcher = SequenceMatcher(None, [s.text for s in ours], [s.text for s in theirs], False)
    found: list[Loc] = []
    for tag, first, last, begin, end in matcher.get_opcodes():
        if tag == "equal":
            continue
        found += [s.loc for s in (*ours[first:last], *theirs[begin:end])]
        if first == last:
            found += [s.loc for s in (*ours[max(0, first - 1) : first], *ours[first : first + 1])]
    return frozenset(loc for loc in found if loc != UNKNOWN)


def changed_lines(wrong: Program, right: Program) -> frozenset[Loc] | None:
    """The lines that an edit of ``wrong`` into ``right`` changes; None if declarations change."""
    ours, theirs = [*_lines(wrong)], [*_lines(right)]
    matcher = SequenceMatcher(None, [s.text for s in ours], [s.text for s in theirs], False)
    changed = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    code = sum(1 for _ in _block(wrong.body, "")), sum(1 for _ in _block(right.body, ""))
    if any(c[1] < len(ours) - code[0] or c[3] < len(theirs) - code[1] for c in changed):
        return None
    return frozenset(
        s.loc for _, first, last, begin, end in changed
        for s in (ours[first:last] or theirs[begin:end])
    )  # fmt: skip


def _lines(program: Program) -> Iterator[_Line]:
    """The declarations and statements, regions before what is in them."""
    launch = (program.grid, program.cluster, program.warps, program.registers, program.smem_bytes)
    yield _Line(f"launch {launch}", program.loc)
    for declared in (*program.params, *program.maps, *program.shared, *program.fragments):
        yield _Line(repr(declared), getattr(declared, "loc", program.loc))
    yield from _block(program.body, "")


def _block(block: Iterable[Stmt], inside: str) -> Iterator[_Line]:
    for stmt in block:
        match stmt:
            case For() | While() | Role():
                yield _head(inside, replace(stmt, body=()))
                yield from _block(stmt.body, f"{inside} ")
            case If():
                yield _head(inside, replace(stmt, then=(), orelse=()))
                yield from _block(stmt.then, f"{inside} ")
                yield from _block(stmt.orelse, f"{inside}|")
            case _:
                yield _head(inside, stmt)


def _head(inside: str, stmt: Any) -> _Line:
    return _Line(inside + repr(stmt), stmt.loc)
