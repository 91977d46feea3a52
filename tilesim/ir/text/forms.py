"""The form of every operand, and the words of the grammar.

Printer and parser share limits, operators, reserved words and declaration keywords.

The form of an operand is derived from the type hints of a dataclass. Neither printer nor parser
knows an instruction: both follow the `Operand` list of its class. A new instruction needs nothing
here unless it has a field of a type that no other has.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from functools import cache
from typing import Any, Final, Literal, Union

from tilesim.arith.types import DType
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.declarations import (
    Fragment,
    GlobalTensor,
    Mbar,
    Mbarriers,
    Pointed,
    SharedTensor,
    TensorMap,
    View,
)
from tilesim.ir.expr import Expr, ScalarParam, Var
from tilesim.ir.large import MAX_LEVELS
from tilesim.ir.op import ANNOTATIONS
from tilesim.ir.program import Program
from tilesim.ir.target import Target
from tilesim.ir.tensor_memory import TmemView
from tilesim.records import dataclass, hints

#: kinds of text, as the first word says; the number after it is the version of the format
VERSIONS: Final = {"tile": 1, "mir": 2}

#: characters of a text
MAX_CHARS: Final = 16 << 20
#: levels of an expression tree, and of parentheses in an expression
MAX_DEPTH: Final = MAX_LEVELS
#: regions inside one another
MAX_REGIONS: Final = 64
#: magnitude of an integer
MAX_INT: Final = (1 << 64) - 1
#: characters of a number
MAX_DIGITS: Final = 400
#: warps that one role can list
MAX_WARPS: Final = 4096

#: words that are never names, unless in backquotes
RESERVED: Final = frozenset(
    {"true", "false", "none", "inf", "nan", "min", "max", "select", "and", "or", "not"}
)
#: binary operators by how tightly they bind, as in Python
PRECEDENCE: Final[dict[str, int]] = {
    "or": 1, "and": 2,
    "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4,
    "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "//": 10, "%": 10,
}  # fmt: skip
COMPARISON: Final = PRECEDENCE["=="]
#: operators whose precedence readers do not know by heart
BITWISE: Final = frozenset({"|", "^", "&", "<<", ">>"})
#: where a declaration lies is written as a call of this, with its name
ADDRESS: Final = "address"
#: binary operators written as calls
CALLS: Final = frozenset({"min", "max"})
PREFIX: Final[dict[str, int]] = {"not": 3, "-": 11, "~": 11}
#: how tightly names, literals, calls and parentheses bind
ATOM: Final = 12

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:(?:\.|::)[A-Za-z0-9_]+)*", re.ASCII)
ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r"}
_SHORT = {value: f"\\{key}" for key, value in ESCAPES.items()}


@dataclass(frozen=True)
class Declared:
    """A declaration: its ``keyword``, the field of `Program` that holds it, and its ``head``:
    what kind of operand a name declared by it starts."""

    keyword: str
    field: str
    head: str


DECLARATIONS: Final[dict[type, Declared]] = {
    GlobalTensor: Declared("global", "params", "tensor"),
    ScalarParam: Declared("scalar", "params", "scalar"),
    TensorMap: Declared("map", "maps", "map"),
    SharedTensor: Declared("shared", "shared", "tensor"),
    Mbarriers: Declared("mbarriers", "shared", "mbarriers"),
    Fragment: Declared("fragment", "fragments", "fragment"),
    Var: Declared("var", "variables", "var"),
}


#: dataclasses written where they are used, as ``keyword(operands)``
INLINE: Final[dict[type, str]] = {
    TmemView: "tmem", AddressedTensor: "at", AddressedMbarriers: "mbar_at", Pointed: "pointed",
}  # fmt: skip


def quote(text: str, mark: str = '"') -> str:
    """``text`` between two ``mark``, with escapes for what cannot stand there."""
    return f"{mark}{''.join(_escaped(c, mark) for c in text)}{mark}"


def _escaped(char: str, mark: str) -> str:
    if char in (mark, "\\"):
        return f"\\{char}"
    if char in _SHORT:
        return _SHORT[char]
    return char if char.isprintable() else f"\\u{{{ord(char):x}}}"


def is_word(text: str) -> bool:
    """Whether ``text`` can stand bare where a word is expected."""
    return _WORD.fullmatch(text) is not None and text not in RESERVED


def name(text: str) -> str:
    """A declared name: as it is, or in backquotes if it is no identifier or reserved."""
    if _PLAIN.fullmatch(text) and text not in RESERVED:
        return text
    return quote(text, "`")


# ------------------------------------------------------------------ forms of operands


#: for each leaf type, the kinds of token ("heads") that its text can start with
HEADS: Final[dict[type, frozenset[str]]] = {
    types.NoneType: frozenset({"none"}),
    bool: frozenset({"bool"}),
    int: frozenset({"int"}),
    float: frozenset({"float"}),
    str: frozenset({"string"}),
    DType: frozenset({"dtype"}),
    Target: frozenset({"target"}),
    Expr: frozenset({"bool", "int", "float", "operator", "var", "scalar"}),
    Var: frozenset({"var"}),
    ScalarParam: frozenset({"scalar"}),
    View: frozenset({"tensor", "at("}),
    GlobalTensor: frozenset({"tensor"}),
    SharedTensor: frozenset({"tensor"}),
    Mbar: frozenset({"mbarriers", "mbar_at("}),
    Mbarriers: frozenset({"mbarriers"}),
    TensorMap: frozenset({"map"}),
    Fragment: frozenset({"fragment"}),
}
#: heads that a bare word can have, which therefore exclude each other in a union
_WORDS = frozenset({"word", "dtype", "target"})
_NAMES = frozenset({"var", "scalar", "tensor", "mbarriers", "map", "fragment"})


@dataclass(frozen=True)
class Leaf:
    """A value of one type of `HEADS`."""

    type: type


@dataclass(frozen=True)
class Choice:
    """One of a ``Literal``'s values."""

    values: tuple[object, ...]


@dataclass(frozen=True)
class Many:
    """``tuple[X, ...]``."""

    element: Form


@dataclass(frozen=True)
class Fixed:
    """``tuple[X, Y]``."""

    elements: tuple[Form, ...]


@dataclass(frozen=True)
class Inline:
    """A dataclass of `INLINE`, written with its operands in parentheses."""

    type: type


@dataclass(frozen=True)
class Either:
    """A union; the heads of its members are disjoint."""

    members: tuple[Form, ...]


Form = Leaf | Choice | Many | Fixed | Inline | Either


@dataclass(frozen=True)
class Operand:
    """A field of a dataclass: ``default`` is `dataclasses.MISSING` if it must be given; a
    ``label`` is what findings call something, nothing else depends on it."""

    name: str
    form: Form
    default: Any
    label: bool = False

    @property
    def required(self) -> bool:
        """Whether it has no default."""
        return self.default is dataclasses.MISSING


def operands(cls: type, skip: frozenset[str] = frozenset()) -> tuple[Operand, ...]:
    """The operands of a dataclass in order, but for ``skip``; ``loc`` is none.

    Raises:
        TypeError: the text form does not know the type of a field.
    """
    return _operands(cls, skip)


@cache
def _operands(cls: type, skip: frozenset[str]) -> tuple[Operand, ...]:
    types = hints(cls)
    return tuple(
        Operand(
            f.name,
            form_of(types[f.name], f"{cls.__name__}.{f.name}"),
            _default(f),
            f.metadata.get("label", False),
        )
        for f in dataclasses.fields(cls)
        if f.init and f.name not in ANNOTATIONS and f.name not in skip
    )


def launch_operands() -> tuple[Operand, ...]:
    """The operands of the ``kernel`` line: the fields of `Program` that are no declarations."""
    return operands(
        Program, frozenset({"name", "body", "set_at", *(d.field for d in DECLARATIONS.values())})
    )


def declaration_operands(cls: type) -> tuple[Operand, ...]:
    """The operands of a declaration after its name."""
    return operands(cls, frozenset({"name"}))


def has_loc(cls: type) -> bool:
    """Whether instances of the dataclass carry a source location."""
    return any(f.name == "loc" for f in dataclasses.fields(cls))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def form_of(hint: Any, where: str) -> Form:
    """The form of a type hint; ``where`` is the field, for the message.

    Raises:
        TypeError: the text form does not know the type, or cannot tell a union's members apart.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is None or (isinstance(hint, type) and hint in HEADS):
        return Leaf(types.NoneType if hint is None else hint)
    if isinstance(hint, type) and hint in INLINE:
        return Inline(hint)
    if origin is Literal and all(isinstance(v, (str, int)) for v in arguments):
        return Choice(arguments)
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return Many(form_of(arguments[0], where))
    if origin is tuple:
        return Fixed(tuple(form_of(a, where) for a in arguments))
    if origin is Union or origin is types.UnionType:
        return _either([form_of(a, where) for a in arguments], where)
    raise TypeError(
        f"{where}: the text form does not know the type {hint}; "
        "add it to INLINE in tilesim.ir.text.forms if it is a dataclass, else to HEADS in "
        "tilesim.ir.text.forms with a reader and a writer"
    )


def _either(members: list[Form], where: str) -> Form:
    if Leaf(Expr) in members:
        members = [m for m in members if m not in (Leaf(Var), Leaf(ScalarParam))]
    taken: frozenset[str] = frozenset()
    for member in members:
        own = heads(member)
        clash = _clash(own, taken)
        if clash:
            raise TypeError(
                f"{where}: the text form cannot tell the members of the union apart: "
                f"{' and '.join(sorted(clash))} can look the same"
            )
        taken |= own
    return Either(tuple(members)) if len(members) > 1 else members[0]


def _clash(own: frozenset[str], taken: frozenset[str]) -> frozenset[str]:
    """Heads that are the same, or words beside names: a name can be spelled like any word."""
    either = (own | taken) & (_WORDS | _NAMES)
    if (own & _WORDS and taken & (_WORDS | _NAMES)) or (own & _NAMES and taken & _WORDS):
        return either
    return own & taken


def heads(form: Form) -> frozenset[str]:
    """The kinds of token a text of this form can start with."""
    match form:
        case Leaf(type=leaf):
            return HEADS[leaf]
        case Choice(values=values):
            return frozenset(_choice_head(v) for v in values)
        case Many() | Fixed():
            return frozenset({"brace"})
        case Inline(type=cls):
            return frozenset({f"{INLINE[cls]}("})
        case Either(members=members):
            return frozenset().union(*(heads(m) for m in members))


def _choice_head(value: object) -> str:
    if isinstance(value, str):
        return "word" if is_word(value) else "string"
    return "bool" if isinstance(value, bool) else "int"


def describe(form: Form) -> str:
    """What the form expects, for an error message."""
    match form:
        case Leaf(type=leaf):
            return _DESCRIPTIONS[leaf]
        case Choice(values=values):
            return " or ".join(spell(v) for v in values)
        case Many(element=element):
            return f"'{{' of a list ({describe(element)}, ...)"
        case Fixed(elements=elements):
            return f"'{{' of a list of {len(elements)}"
        case Inline(type=cls):
            return f"{INLINE[cls]}({', '.join(o.name for o in operands(cls))})"
        case Either(members=members):
            return " or ".join(describe(m) for m in members)


def spell(value: object) -> str:
    """A ``Literal``'s value as text."""
    if isinstance(value, str):
        return value if is_word(value) else quote(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


_DESCRIPTIONS: Final[dict[type, str]] = {
    types.NoneType: "none",
    bool: "true or false",
    int: "an integer",
    float: "a floating-point number",
    str: "a string",
    DType: "an element type",
    Target: "a target",
    Expr: "an expression",
    Var: "a variable",
    ScalarParam: "a scalar parameter",
    View: "a tensor view",
    GlobalTensor: "a global tensor",
    SharedTensor: "a shared tensor",
    Mbar: "an mbarrier",
    Mbarriers: "an mbarrier array",
    TensorMap: "a tensor map",
    Fragment: "a fragment",
}
