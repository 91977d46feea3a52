"""Edits of a program: of a wrong one they may mend a mistake, of a right one they inject one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tilesim.ir.expr import Const, Expr, Var
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Control, Instruction, Mir
from tilesim.ir.op import ANNOTATIONS, Op
from tilesim.ir.program import Program, Stmt
from tilesim.mistakes.context import Facts, Focus, Place
from tilesim.records import dataclass, fields, replace
from tilesim.transforms.rewrite import Instead, Patch, edited, renumbered


@dataclass(frozen=True)
class Edit:
    """A change of some statements of a program.

    ``family`` is the kind of change, ``what`` a clause that says it. ``size`` counts: 1 for an
    operand, 2 for an instruction that comes, goes or is exchanged, 3 for one that is moved; 1 more
    for each further line. ``lines`` are those that change.
    """

    what: str
    instead: Mapping[int, Instead]
    size: int
    lines: tuple[Loc, ...]
    #: of a repair; that of a fault is the fault's name
    family: str = ""
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
        def edits(facts: Facts, focus: Focus) -> Iterator[Edit]:
            return (replace(edit, family=name) for edit in function(facts, focus))

        FAMILIES[name] = edits
        return function

    return register


def of_places(
    what: str, places: Iterable[tuple[Place, Instead]], size: int, *, as_one: bool = False
) -> Edit:
    """An edit of some statements; ``size`` is that of the first line, or (``as_one``) of all of
    them, where one number or name is changed wherever it is used."""
    instead = {place.number: new for place, new in places}
    lines = tuple(dict.fromkeys(place.loc for place, _ in places))
    return Edit(what, instead, size if as_one else size + len(lines) - 1, lines)


def before(place: Place, *new: Stmt | Control) -> Instead:
    """``new``, then what is there."""
    return (*new, place.what)


def after(place: Place, *new: Stmt | Control) -> Instead:
    """What is there, then ``new``."""
    return (place.what, *new)


def beside(place: Place, late: bool, *new: Stmt | Control) -> tuple[Instead, str]:
    """``new`` behind what is there (``late``), or before it; and in words, where that is."""
    return (after(place, *new), "after") if late else (before(place, *new), "before")


def by_line(
    places: Iterable[Place],
    line: Callable[[Place], object] = lambda place: (place.loc, type(place.what)),
) -> list[list[Place]]:
    """The statements that each line makes: those of one class, unless ``line`` says what is one."""
    found: dict[object, list[Place]] = {}
    for place in places:
        found.setdefault(line(place), []).append(place)
    return [*found.values()]


def differ(one: object, other: object) -> bool:
    """Whether two values of an operand are different ones; a number is its constant."""
    if isinstance(one, Const) and isinstance(other, bool | int):
        return one.value != other
    if isinstance(one, Expr) or isinstance(other, Expr):
        return type(one) is not type(other) or one != other
    return one != other


def changed_operand(old: Op, new: Op) -> tuple[str, Any, Any] | None:
    """The one operand in which two instructions of a class differ, with both values."""
    names = (f.name for f in fields(old) if f.name not in ANNOTATIONS)
    apart = [(n, getattr(old, n), getattr(new, n)) for n in names
             if type(old) is type(new) and differ(getattr(old, n), getattr(new, n))]  # fmt: skip
    return apart[0] if len(apart) == 1 else None


def whole_number(value: object) -> int | None:
    """The whole number that an operand is, if it is one."""
    if isinstance(value, Const):
        return int(value.value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def changed(op: Any, **operands: Any) -> Op:
    """An instruction of any class with some operands replaced."""
    new: Op = replace(op, **operands)
    return new
