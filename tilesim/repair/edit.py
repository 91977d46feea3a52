"""One repair to try: what stands where in its stead, and how large it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilesim.ir.edits import Instead, edited
from tilesim.ir.expr import Var
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Control, Instruction, Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Stmt
from tilesim.ir.renumber import renumbered
from tilesim.repair.facts import Facts, Place
from tilesim.repair.focus import Focus
from tilesim.repair.source import Patch


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
#: by name; the catalogue's modules register them
FAMILIES: dict[str, Family] = {}


def family(name: str) -> Callable[[Family], Family]:
    """Decorator: registers a family of edits."""

    def register(function: Family) -> Family:
        FAMILIES[name] = function
        return function

    return register


def of_places(
    family: str,
    what: str,
    places: Iterable[tuple[Place, Instead]],
    size: int,
    *,
    alike: bool = False,
) -> Edit:
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


def changed(op: Any, **operands: Any) -> Op:
    """An instruction of any class with some operands replaced."""
    new: Op = replace(op, **operands)
    return new


def at(op: Op, loc: Loc) -> Op:
    """An instruction that is said to be at a line."""
    return replace(op, loc=loc)
