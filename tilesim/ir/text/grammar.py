"""What printer and parser share: limits, operators, reserved words, declaration keywords."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.expr import ScalarParam, Var
from tilesim.ir.large import MAX_LEVELS
from tilesim.ir.memory import Fragment, GlobalTensor, Mbarriers, Pointed, SharedTensor, TensorMap
from tilesim.ir.tmem import TmemView

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
