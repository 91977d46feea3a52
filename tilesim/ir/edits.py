"""Edits of a program: some of its statements replaced by others, in a tree or in machine code.

Faults and repairs (`tilesim.mistakes`) are functions of one statement that say what
stands there instead; where statements are, and how a program is put together again, is said here
for both forms of a program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import overload

from tilesim.ir.mir import Branch, Control, Mir, Switch, targets_of
from tilesim.ir.op import Op
from tilesim.ir.program import For, If, Program, Role, Stmt, While, children
from tilesim.ir.renumber import renumbered

#: what stands at the place of a statement; of machine code, control flow as well
Instead = tuple[Stmt | Control, ...]


@dataclass(frozen=True)
class Patch:
    """Lines ``first`` to ``last`` of a file, as they are and as they should be."""

    file: str
    first: int
    last: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def statements(program: Program | Mir) -> tuple[Stmt | Control, ...]:
    """All statements by number: those of a tree in program order, regions before what is in them;
    those of machine code as it numbers them."""
    if isinstance(program, Program):
        return program.statements
    return tuple(instruction.what for instruction in program.code)


@overload
def edited(program: Program, instead: Mapping[int, Instead]) -> Program: ...
@overload
def edited(program: Mir, instead: Mapping[int, Instead]) -> Mir: ...
@overload
def edited(program: Program | Mir, instead: Mapping[int, Instead]) -> Program | Mir: ...
def edited(program: Program | Mir, instead: Mapping[int, Instead]) -> Program | Mir:
    """``program`` with some statements, by number, replaced.

    In a tree a region that is replaced by one with the same body has the edits of that body, too.
    In machine code what is new has the guard, role and warps of what it replaces, and jumps to that
    lead to the first of it.
    """
    if isinstance(program, Mir):
        return renumbered(program, {
            number: tuple(replace(program.code[number], what=what) for what in new
                          if isinstance(what, Op | Control))
            for number, new in instead.items()
        })  # fmt: skip
    return replace(program, body=_block(program.body, instead, 0)[0])


def _block(
    block: tuple[Stmt, ...], instead: Mapping[int, Instead], number: int
) -> tuple[tuple[Stmt, ...], int]:
    """A block that begins with statement ``number``, and the number of what follows it."""
    result: list[Stmt] = []
    for stmt in block:
        own = number
        number += 1
        inside: dict[int, tuple[Stmt, ...]] = {}
        for region in children(stmt):
            inside[id(region)], number = _block(region, instead, number)
        new = instead.get(own, (stmt,))
        result += [_within(s, inside) for s in new if not isinstance(s, Control)]
    return tuple(result), number


def _within(stmt: Stmt, inside: Mapping[int, tuple[Stmt, ...]]) -> Stmt:
    """A statement with the regions that it kept as they have become."""
    match stmt:
        case For(body=body) | While(body=body) | Role(body=body) if id(body) in inside:
            return replace(stmt, body=inside[id(body)])
        case If(then=then, orelse=orelse):
            return replace(
                stmt, then=inside.get(id(then), then), orelse=inside.get(id(orelse), orelse)
            )
        case _:
            return stmt


def stretches(program: Program | Mir) -> Iterator[tuple[int, ...]]:
    """Numbers of statements that are executed one after another: the blocks of a tree, with regions
    as one statement each, or what lies between jumps and their targets in machine code."""
    if isinstance(program, Program):
        yield from _blocks(program.body, 0)[0]
        return
    targets = {t for i in program.code for t in targets_of(i.what)}
    stretch: list[int] = []
    for number, instruction in enumerate(program.code):
        if number in targets and stretch:
            yield tuple(stretch)
            stretch = []
        if isinstance(instruction.what, Op):
            stretch.append(number)
        elif stretch and isinstance(instruction.what, Branch | Switch):
            yield tuple(stretch)
            stretch = []
    if stretch:
        yield tuple(stretch)


def _blocks(block: tuple[Stmt, ...], number: int) -> tuple[list[tuple[int, ...]], int]:
    own: list[int] = []
    inside: list[tuple[int, ...]] = []
    for stmt in block:
        own.append(number)
        number += 1
        for region in children(stmt):
            further, number = _blocks(region, number)
            inside += further
    return [tuple(own), *inside], number
