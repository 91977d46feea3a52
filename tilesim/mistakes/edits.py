"""Changes of a program: edits that mend a mistake, and faults that inject one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar, overload

from tilesim.errors import UsageError
from tilesim.ir import effects as fx
from tilesim.ir.expr import Var
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Control, Instruction, Mir
from tilesim.ir.op import Op
from tilesim.ir.program import If, Program, Stmt
from tilesim.ir.program import walk as all_in
from tilesim.mistakes.context import Facts, Focus, Place, has
from tilesim.records import dataclass, field, replace
from tilesim.transforms.rewrite import Instead, Patch, edited, renumbered, statements, stretches

P = TypeVar("P", Program, Mir)
Block = tuple[Stmt, ...]


# ------------------------------------------------------------------ edits that mend


@dataclass(frozen=True)
class Edit:
    """A change of some statements of a program.

    ``family`` is the kind of change, ``what`` a clause that says it. ``size`` counts: 1 for an
    operand, 2 for an instruction that comes, goes or is exchanged, 3 for one that is moved; 1 more
    for each further line. ``lines`` are those that change.
    """

    family: str
    what: str
    instead: Mapping[int, Instead]
    size: int
    lines: tuple[Loc, ...]
    #: registers that are new
    variables: tuple[Var, ...] = ()
    #: of a program that was compiled from a source at hand: the lines of that which change
    patches: tuple[Patch, ...] = ()
    #: of machine code, what stands where with its guards; ``instead`` has the same without
    code: Mapping[int, tuple[Instruction, ...]] | None = None

    def of(self, program: Program | Mir) -> Program | Mir:
        """The program with the change."""
        if self.variables and isinstance(program, Program):
            program = replace(program, variables=(*program.variables, *self.variables))
        if self.code is not None and isinstance(program, Mir):
            return renumbered(program, self.code)
        return edited(program, self.instead)

    @property
    def numbers(self) -> tuple[int, ...]:
        """The statements that it changes."""
        return tuple(sorted(self.instead))


#: what one kind of mistake may have been, in a fixed order
Family = Callable[[Facts, Focus], Iterator[Edit]]
#: by name; the modules of topics register them
FAMILIES: dict[str, Family] = {}


def family(name: str) -> Callable[[Family], Family]:
    """Decorator: registers a family of edits."""

    def register(function: Family) -> Family:
        FAMILIES[name] = function
        return function

    return register


def of_places(
    family: str, what: str, places: Iterable[tuple[Place, Instead]], size: int,
    *, alike: bool = False,
) -> Edit:  # fmt: skip
    """An edit of some statements; ``size`` is that of the first line, or (``alike``) of all of
    them, where one number or name is changed wherever it is used."""
    instead = {place.number: new for place, new in places}
    lines = tuple(dict.fromkeys(place.loc for place, _ in places))
    return Edit(family, what, instead, size if alike else size + len(lines) - 1, lines)


def before(place: Place, *new: Stmt | Control) -> Instead:
    """``new``, then what is there."""
    return (*new, place.what)


def after(place: Place, *new: Stmt | Control) -> Instead:
    """What is there, then ``new``."""
    return (place.what, *new)


def beside(place: Place, late: bool, *new: Stmt | Control) -> tuple[Instead, str]:
    """``new`` behind what is there (``late``), or before it; and in words, where that is."""
    return (after(place, *new), "after") if late else (before(place, *new), "before")


def by_line(places: Iterable[Place]) -> list[list[Place]]:
    """The statements of one class that each line makes."""
    found: dict[object, list[Place]] = {}
    for place in places:
        found.setdefault((place.loc, type(place.what)), []).append(place)
    return [*found.values()]


def changed(op: Any, **operands: Any) -> Op:
    """An instruction of any class with some operands replaced."""
    new: Op = replace(op, **operands)
    return new


# ------------------------------------------------------------------ faults that inject


@dataclass(frozen=True)
class Spoiled:
    """One way to inject a fault into a block: where, what was done (a clause), and the block."""

    loc: Loc
    what: str
    block: Block


Inject = Callable[[Block], Iterator[Spoiled]]
#: of a program in machine form: numbers of instructions, what was done, and what is in their place
InPredicates = Callable[[Mir], Iterator[tuple[int, str, Instruction | None]]]


@dataclass(frozen=True)
class Fault:
    """A kind of mistake; ``inject`` gives every way to make it in a block, ``predicates`` those to
    make it in the predicates of a program in machine form."""

    name: str
    summary: str
    inject: Inject
    predicates: InPredicates | None = None


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


#: by name; the modules of topics register them
FAULTS: dict[str, Fault] = {}


@overload
def mutants(program: Program, faults: Iterable[str] | None = None) -> Iterator[Mutant[Program]]: ...
@overload
def mutants(program: Mir, faults: Iterable[str] | None = None) -> Iterator[Mutant[Mir]]: ...
def mutants(
    program: Program | Mir, faults: Iterable[str] | None = None
) -> Iterator[Mutant[Program]] | Iterator[Mutant[Mir]]:
    """Every program with one fault of the table (or of ``faults``), in a fixed order.

    A fault rewrites one block of statements in one place: a region of a tree, or a run of
    instructions of a program in machine form (PTX), where predicates are another place. The
    verifier may reject what comes of it; `tilesim.check` should find the rest, unless the fault
    changes nothing.

    Raises:
        UsageError: there is no such fault.
    """
    wanted = _wanted(faults)
    return _in_tree(program, wanted) if isinstance(program, Program) else _in_list(program, wanted)


def _in_tree(program: Program, faults: Iterable[Fault]) -> Iterator[Mutant[Program]]:
    every, blocks = statements(program), list(stretches(program))
    for fault in faults:
        for block in blocks:
            old = tuple(s for n in block if not isinstance(s := every[n], Control))
            for made in fault.inject(old):
                instead: dict[int, Instead] = dict.fromkeys(block, ())
                instead[block[0]] = made.block
                yield Mutant(fault.name, made.loc, made.what, partial(edited, program, instead))


def _in_list(mir: Mir, faults: Iterable[Fault]) -> Iterator[Mutant[Mir]]:
    runs = list(stretches(mir))
    for fault in faults:
        for run in runs:
            block = tuple(op for n in run if isinstance(op := mir.code[n].what, Op))
            for made in fault.inject(block):
                rewritten = partial(_rewritten, mir, run, made.block)
                yield Mutant(fault.name, made.loc, made.what, rewritten)
        for number, what, new in () if fault.predicates is None else fault.predicates(mir):
            replaced = partial(_replaced, mir, {number: () if new is None else (new,)})
            yield Mutant(fault.name, mir.code[number].loc, what, replaced)


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
    new = renumbered(mir, instead)
    return replace(new, typing=replace(new.typing, ranges={}))


def _wanted(names: Iterable[str] | None) -> Iterator[Fault]:
    for name in FAULTS if names is None else names:
        if name not in FAULTS:
            raise UsageError(f"there is no fault {name!r}; there are {', '.join(FAULTS)}")
        yield FAULTS[name]


#: replacements of one statement, each with a clause
Replace = Callable[[Any], Iterator[tuple[str, Block]]]


def block_fault(name: str, summary: str) -> Callable[[Inject], Inject]:
    """Registers a fault that rewrites a block."""

    def register(inject: Inject) -> Inject:
        FAULTS[name] = Fault(name, summary, inject)
        return inject

    return register


#: a unit of a block that is moved past others: its place, its new one, and in words where that is
Move = tuple[int, int, str]


def moving_fault(
    name: str, summary: str
) -> Callable[[Callable[[list[Block]], Iterator[Move]]], object]:
    """Registers a fault that moves a unit of a block: a statement, or an election with the region
    that it guards."""

    def register(moves: Callable[[list[Block]], Iterator[Move]]) -> object:
        def inject(block: Block) -> Iterator[Spoiled]:
            units = list(_units(block))
            for place, target, where in moves(units):
                order = [*units[:place], *units[place + 1 :]]
                order.insert(target, units[place])
                op = next(s for s in all_in(units[place]) if has(s, fx.Arrives, fx.Commits))
                what = f"{op.mnemonic} moved {where}" if isinstance(op, Op) else where
                yield Spoiled(op.loc, what, tuple(chain.from_iterable(order)))

        FAULTS[name] = Fault(name, summary, inject)
        return moves

    return register


def _units(block: Block) -> Iterator[Block]:
    place = 0
    while place < len(block):
        pair = has(block[place], fx.Elects) and isinstance(next(iter(block[place + 1 :]), None), If)
        yield block[place : place + 1 + pair]
        place += 1 + pair


def statement_fault(name: str, summary: str, *kinds: type[Any]) -> Callable[[Replace], Replace]:
    """Registers a fault that replaces single statements of some classes: instructions, if none."""

    def register(function: Replace) -> Replace:
        def inject(block: Block) -> Iterator[Spoiled]:
            for place, stmt in enumerate(block):
                if isinstance(stmt, kinds or Op):
                    for what, new in function(stmt):
                        yield Spoiled(stmt.loc, what, (*block[:place], *new, *block[place + 1 :]))

        FAULTS[name] = Fault(name, summary, inject)
        return function

    return register


def predicates_of(name: str) -> Callable[[InPredicates], InPredicates]:
    """Registers how a fault is made in predicates of machine code."""

    def register(function: InPredicates) -> InPredicates:
        FAULTS[name] = replace(FAULTS[name], predicates=function)
        return function

    return register


def dropped(fault: str, summary: str, which: Callable[[Op], bool]) -> None:
    """Registers the fault of leaving out an instruction of this kind."""

    @statement_fault(fault, summary)
    def drop(op: Op) -> Iterator[tuple[str, Block]]:
        if which(op):
            yield f"{op.mnemonic} removed", ()


def with_effect(*kinds: type, **fields: object) -> Callable[[Op], bool]:
    """Whether an instruction has an effect of one of these classes, with these fields."""
    return lambda op: has(op, *kinds, **fields)
