"""Single faults: what people get wrong in barrier code, injected into a program.

A fault rewrites one block of statements in one place: a region of a tree, or a run of instructions
of a program in machine form (PTX), where predicates are another place. `mutants` gives every
program that a fault can make of another; the verifier may reject it, `tilesim.check` should find
the rest, unless the fault changes nothing. The faults themselves are in `tilesim.fuzz.catalogue`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar, overload

from tilesim.errors import UsageError
from tilesim.fuzz.predicates import Predicates
from tilesim.ir.edits import Instead, edited, statements, stretches
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Control, Instruction, Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Stmt
from tilesim.ir.renumber import renumbered

P = TypeVar("P", Program, Mir)
Block = tuple[Stmt, ...]


@dataclass(frozen=True)
class Edit:
    """One way to spoil a block: where, what was done (a clause), and the spoiled block."""

    loc: Loc
    what: str
    block: Block


Spoil = Callable[[Block], Iterator[Edit]]
#: of a program in machine form: numbers of instructions, what was done, and what is in their place
Unconditional = Callable[[Predicates], Iterator[tuple[int, str, Instruction | None]]]


@dataclass(frozen=True)
class Fault:
    """A kind of mistake; ``spoil`` gives every way to make it in a block, ``predicates`` those to
    make it in the predicates of a program in machine form."""

    name: str
    summary: str
    spoil: Spoil
    predicates: Unconditional | None = None


@dataclass(frozen=True)
class Mutant(Generic[P]):
    """A program with one fault in it: which one, at which line, and what was changed."""

    fault: str
    loc: Loc
    what: str
    make: Callable[[], P] = field(compare=False, repr=False)

    @property
    def program(self) -> P:
        """The program, made anew each time."""
        return self.make()

    def __str__(self) -> str:
        behind = self.loc.innermost
        line = "" if behind is self.loc else f" ({behind})"
        return f"{self.fault} at {self.loc}{line}: {self.what}"


#: the catalogue by name, in the order of its modules
FAULTS: dict[str, Fault] = {}


@overload
def mutants(program: Program, faults: Iterable[str] | None = None) -> Iterator[Mutant[Program]]: ...
@overload
def mutants(program: Mir, faults: Iterable[str] | None = None) -> Iterator[Mutant[Mir]]: ...
def mutants(
    program: Program | Mir, faults: Iterable[str] | None = None
) -> Iterator[Mutant[Program]] | Iterator[Mutant[Mir]]:
    """Every program with one fault of the catalogue (or of ``faults``), in a fixed order.

    Raises:
        UsageError: there is no such fault.
    """
    wanted = _wanted(faults)
    return _in_tree(program, wanted) if isinstance(program, Program) else _in_list(program, wanted)


def _in_tree(program: Program, faults: Iterable[Fault]) -> Iterator[Mutant[Program]]:
    every, blocks = statements(program), list(stretches(program))
    for fault in faults:
        for block in blocks:
            for edit in fault.spoil(_of_tree(every[number] for number in block)):
                instead: dict[int, Instead] = dict.fromkeys(block, ())
                instead[block[0]] = edit.block
                yield Mutant(fault.name, edit.loc, edit.what, partial(edited, program, instead))


def _of_tree(block: Iterable[Stmt | Control]) -> Block:
    return tuple(stmt for stmt in block if not isinstance(stmt, Control))


def _in_list(mir: Mir, faults: Iterable[Fault]) -> Iterator[Mutant[Mir]]:
    predicates, runs = Predicates(mir), list(stretches(mir))
    for fault in faults:
        for run in runs:
            block = tuple(op for n in run if isinstance(op := mir.code[n].what, Op))
            for edit in fault.spoil(block):
                made = partial(_rewritten, mir, run, edit.block)
                yield Mutant(fault.name, edit.loc, edit.what, made)
        for number, what, new in () if fault.predicates is None else fault.predicates(predicates):
            made = partial(_replaced, mir, {number: () if new is None else (new,)})
            yield Mutant(fault.name, mir.code[number].loc, what, made)


def _rewritten(mir: Mir, run: tuple[int, ...], block: Block) -> Mir:
    """A run of instructions replaced. Each instruction keeps its guard where it goes; a new one has
    that of the one at its place."""
    old = {id(mir.code[n].what): mir.code[n] for n in run}
    kept = [stmt for stmt in block if id(stmt) in old]
    gone = [i for i in old.values() if not any(i.what is stmt for stmt in kept)]
    pattern = gone[0] if gone else next(iter(old.values()))
    new = (old.get(id(op)) or replace(pattern, what=op) for op in block if isinstance(op, Op))
    return _replaced(mir, dict.fromkeys(run, ()) | {run[0]: tuple(new)})


def _replaced(mir: Mir, instead: Mapping[int, tuple[Instruction, ...]]) -> Mir:
    """Instructions replaced; ranges of registers are not known any more."""
    changed = renumbered(mir, instead)
    return replace(changed, typing=replace(changed.typing, ranges={}))


def _wanted(names: Iterable[str] | None) -> Iterator[Fault]:
    for name in FAULTS if names is None else names:
        if name not in FAULTS:
            raise UsageError(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")
        yield FAULTS[name]


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


def predicates_of(name: str) -> Callable[[Unconditional], Unconditional]:
    """Registers how a fault of the catalogue is made in predicates of machine code."""

    def register(function: Unconditional) -> Unconditional:
        FAULTS[name] = replace(FAULTS[name], predicates=function)
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
