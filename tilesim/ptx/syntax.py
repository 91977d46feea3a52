"""The syntax of a PTX module as immutable objects, in which no name is resolved; its errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import TypeAlias

from tilesim.arith.types import WIDTH
from tilesim.errors import TilesimError
from tilesim.records import dataclass, field, replace

_TARGET = re.compile(r"^[ \t]*\.target[ \t]+(\w+)", re.MULTILINE)


def target_of(text: str) -> str:
    """What a PTX text is compiled for, such as sm_90a, without reading all of it; empty: it does
    not say it."""
    found = _TARGET.search(text)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the text; line and column start at 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Located:
    """A position in the user's source (``.loc``): ``file`` is a number of ``.file``.

    ``function`` is the name of the inlined function, ``caller`` where it is called, if that is
    known; `outermost` is the place in the kernel itself, or in a function that no line of it calls.
    """

    file: int
    line: int
    column: int
    function: str = ""
    caller: Located | None = None

    @property
    def outermost(self) -> Located:
        """The position in the function that is not inlined.

        No call is in the first column: that is where Triton says its kernel calls a partition
        of warps, with the line of the kernel's definition.
        """
        at = self
        while at.caller is not None and (at.caller.caller is not None or at.caller.column > 1):
            at = at.caller
        return at

    @property
    def frames(self) -> Iterator[Located]:
        """The position and those of the calls around it, up to `outermost`."""
        at, last = self, self.outermost
        while at is not last and at.caller is not None:
            yield at
            at = at.caller
        yield at

    def called_at(self, call: Located) -> Located:
        """The same position in a function that is called at another one, where this is inlined."""
        caller = call if self.caller is None else self.caller.called_at(call)
        return replace(self, caller=caller)


@dataclass(frozen=True, slots=True)
class Name:
    """A register, special register, variable, parameter, label or function."""

    text: str


@dataclass(frozen=True, slots=True)
class Integer:
    """An integer constant: its 64 bits as a number that may be negative."""

    value: int


@dataclass(frozen=True, slots=True)
class Float:
    """A floating-point constant: ``bits`` of a number of ``width`` 32 or 64."""

    bits: int
    width: int


@dataclass(frozen=True, slots=True)
class Sum:
    """The address of a variable (or a register) and a constant: ``array + 8``."""

    base: Name
    offset: int


@dataclass(frozen=True, slots=True)
class Generic:
    """``generic(variable)``: its generic address, in an initialiser."""

    base: Name | Sum


@dataclass(frozen=True, slots=True)
class Address:
    """``[base + offset]``; ``rest`` is what follows a comma: the coordinates of a tensor."""

    base: Name | Integer
    offset: int = 0
    rest: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``a|b``: two results."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """``!predicate``."""

    operand: Name


@dataclass(frozen=True, slots=True)
class Group:
    """``(a, b)``: arguments or results of a call."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a result that is not used."""


Operand: TypeAlias = (
    Name | Integer | Float | Sum | Generic | Address | Vector | Pair | Negated | Group | Sink
)


@dataclass(frozen=True, slots=True)
class Guard:
    """``@predicate`` or ``@!predicate``."""

    predicate: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: ``opcode`` with all its qualifiers; ``scope`` is an index of `Body.scopes`.

    ``located`` is the position in the source that the last ``.loc`` gave.
    """

    opcode: str
    operands: tuple[Operand, ...]
    guard: Guard | None
    scope: int
    place: Place
    located: Located | None

    @property
    def base(self) -> str:
        """The opcode without qualifiers."""
        return self.opcode.partition(".")[0]

    @property
    def qualifiers(self) -> tuple[str, ...]:
        """What follows the opcode's dots."""
        return tuple(self.opcode.split(".")[1:])


@dataclass(frozen=True, slots=True)
class Pointer:
    """What ``.ptr`` says of a parameter: where it points to and how that is aligned."""

    space: str
    align: int


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable or parameter. ``shape`` has the dimensions of an array, None one that is open.

    ``align`` in bytes, 0 where the text names none; ``initial`` is nested as in the text.
    """

    name: str
    space: str
    type: str
    shape: tuple[int | None, ...]
    vector: int
    align: int
    place: Place
    linkage: str = ""
    pointer: Pointer | None = None
    initial: Initial = ()

    @property
    def size(self) -> int:
        """Bytes; 0 if a dimension is open."""
        return prod(n or 0 for n in self.shape) * self.vector * max(8, WIDTH[self.type]) // 8

    @property
    def alignment(self) -> int:
        """Alignment in bytes: as declared, else that of an element."""
        return self.align or self.vector * max(8, WIDTH[self.type]) // 8


Initial: TypeAlias = "Operand | tuple[Initial, ...]"


@dataclass(slots=True)
class Scope:
    """What is declared between two braces; ``parent`` is an index of `Body.scopes`, or None.

    ``labels`` map to the number of the instruction that follows; ``targets`` are lists of labels
    (``.branchtargets``) and functions (``.calltargets``), ``prototypes`` of indirect calls.
    """

    parent: int | None
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    prototypes: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Body:
    """What is between the braces of a function; scope 0 has its parameters' names outside of it."""

    code: tuple[Instruction, ...]
    scopes: tuple[Scope, ...]

    def chain(self, scope: int) -> Iterator[Scope]:
        """A scope and those around it, the innermost first."""
        at: int | None = scope
        while at is not None:
            yield self.scopes[at]
            at = self.scopes[at].parent


@dataclass(frozen=True, slots=True)
class Function:
    """An ``.entry`` or ``.func`` with directives such as ``reqntid``; without a body, declared."""

    name: str
    entry: bool
    results: tuple[Variable, ...]
    params: tuple[Variable, ...]
    directives: Mapping[str, tuple[int, ...]]
    body: Body | None
    place: Place
    linkage: str = ""


@dataclass(frozen=True, slots=True)
class Module:
    """A PTX text; ``files`` are the names that ``.loc`` refers to."""

    file: str
    version: tuple[int, int]
    target: str
    options: tuple[str, ...]
    files: Mapping[int, str]
    variables: tuple[Variable, ...]
    functions: tuple[Function, ...]

    @property
    def entries(self) -> tuple[Function, ...]:
        """The kernels."""
        return tuple(f for f in self.functions if f.entry and f.body is not None)

    def source_of(self, entry: Function) -> tuple[str, int] | None:
        """File and line of the first instruction of a kernel that has any, in the kernel itself."""
        code = () if entry.body is None else entry.body.code
        located = next((i.located for i in code if i.located), None)
        if located is None or located.outermost.file not in self.files:
            return None
        return self.files[located.outermost.file], located.outermost.line


class PtxError(TilesimError, ValueError):
    """A PTX text cannot be read; the message starts with ``file:line:column``.

    ``line`` and ``column`` start at 1; ``fix`` says what to do.
    """

    def __init__(self, file: str, line: int, column: int, what: str, fix: str = "") -> None:
        self.file, self.line, self.column = file, line, column
        self.what, self.fix = what, fix
        text = f"{file}:{line}:{column}: {what}"
        super().__init__(f"{text}\n    fix: {fix}" if fix else text)


class Unsupported(PtxError):
    """An instruction that is PTX, but not modelled."""


class LaunchError(TilesimError, ValueError):
    """A launch description is malformed or contradicts the kernel; the message says where."""
