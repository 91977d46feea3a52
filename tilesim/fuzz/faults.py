"""Single faults: what people get wrong in barrier code, injected into a program.

A fault rewrites one block of statements in one place. `mutants` gives every program that a fault
can make of another; the verifier may reject it, `tilesim.check` should find the rest, unless the
fault changes nothing. The faults themselves are in `tilesim.fuzz.catalogue`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tilesim.errors import UsageError
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.ir.program import For, If, Program, Role, Stmt, While, children

Block = tuple[Stmt, ...]


@dataclass(frozen=True)
class Edit:
    """One way to spoil a block: where, what was done (a clause), and the spoiled block."""

    loc: Loc
    what: str
    block: Block


Spoil = Callable[[Block], Iterator[Edit]]


@dataclass(frozen=True)
class Fault:
    """A kind of mistake; ``spoil`` gives every way to make it in a block."""

    name: str
    summary: str
    spoil: Spoil


@dataclass(frozen=True)
class Mutant:
    """A program with one fault in it: which one, at which line, and what was changed."""

    fault: str
    loc: Loc
    what: str
    program: Program

    def __str__(self) -> str:
        return f"{self.fault} at {self.loc}: {self.what}"


#: the catalogue by name, in the order of its modules
FAULTS: dict[str, Fault] = {}


def mutants(program: Program, faults: Iterable[str] | None = None) -> Iterator[Mutant]:
    """Every program with one fault of the catalogue (or of ``faults``), in a fixed order.

    Raises:
        UsageError: there is no such fault.
    """
    for name in FAULTS if faults is None else faults:
        if name not in FAULTS:
            raise UsageError(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")
        for edit in _everywhere(program.body, FAULTS[name].spoil):
            yield Mutant(name, edit.loc, edit.what, replace(program, body=edit.block))


def _everywhere(block: Block, spoil: Spoil) -> Iterator[Edit]:
    """Edits of a block and of the regions in it, as edits of the whole."""
    yield from spoil(block)
    for place, stmt in enumerate(block):
        for number, region in enumerate(children(stmt)):
            for edit in _everywhere(region, spoil):
                inside = _with_region(stmt, number, edit.block)
                yield replace(edit, block=(*block[:place], inside, *block[place + 1 :]))


def _with_region(stmt: Stmt, number: int, region: Block) -> Stmt:
    match stmt:
        case For() | While() | Role():
            return replace(stmt, body=region)
        case If():
            return replace(stmt, orelse=region) if number else replace(stmt, then=region)
        case _:
            raise AssertionError(stmt)


# ------------------------------------------------------------------ registering

#: replacements of one statement, each with a clause
Replace = Callable[[Any], Iterator[tuple[str, Block]]]


def block_fault(name: str, summary: str) -> Callable[[Spoil], Spoil]:
    """Registers a fault that rewrites a block."""

    def register(spoil: Spoil) -> Spoil:
        FAULTS[name] = Fault(name, summary, spoil)
        return spoil

    return register


def statement_fault(name: str, summary: str, *kinds: type[Any]) -> Callable[[Replace], Replace]:
    """Registers a fault that replaces single statements of some classes."""

    def register(function: Replace) -> Replace:
        def spoil(block: Block) -> Iterator[Edit]:
            for place, stmt in enumerate(block):
                if isinstance(stmt, kinds):
                    for what, new in function(stmt):
                        yield Edit(stmt.loc, what, (*block[:place], *new, *block[place + 1 :]))

        FAULTS[name] = Fault(name, summary, spoil)
        return function

    return register


def dropped(fault: str, summary: str, *kinds: type[Any]) -> None:
    """Registers the fault of leaving out an instruction with an effect of one of these classes."""

    @statement_fault(fault, summary, Op)
    def drop(op: Op) -> Iterator[tuple[str, Block]]:
        if has_effect(op, *kinds):
            yield f"{op.mnemonic} removed", ()


def has_effect(stmt: Stmt, *kinds: type[Any]) -> bool:
    """Whether a statement is an instruction with an effect of one of these classes."""
    return isinstance(stmt, Op) and any(isinstance(effect, kinds) for effect in stmt.effects())


def changed(op: Any, **operands: Any) -> Op:
    """An instruction of any class with some operands replaced."""
    new: Op = replace(op, **operands)
    return new
