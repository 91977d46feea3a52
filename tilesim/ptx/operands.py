"""Operands, constant expressions and initialisers."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Literal, NamedTuple

from tilesim.ptx.scanner import Cursor, Text
from tilesim.ptx.syntax import (
    Address,
    Float,
    Generic,
    Group,
    Initial,
    Integer,
    Name,
    Negated,
    Operand,
    Pair,
    Sink,
    Sum,
    Vector,
)

#: brackets in brackets; deeper ones are an error, not a crash
_DEEPEST = 40
_MASK = (1 << 64) - 1
#: digits of the longest constant, in binary
_DIGITS = 66
_DOTTED = frozenset({".x", ".y", ".z", ".w", ".r", ".g", ".b", ".a"})

#: operands as nearly all are, for speed: what does not match is read token by token
_PIECE = re.compile(
    r"\s*+(\{[^{}\[\]()]*+\}|\[[^\[\]{}(),]*+\]|[^\s,{}\[\]()][^,{}\[\]()]*+)\s*+(?:,|\Z)"
)
_NAME = re.compile(r"%?[A-Za-z_$][\w$]*+", re.ASCII)
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_ADDRESS = re.compile(
    r"\[\s*+(%?[A-Za-z_$][\w$]*+)\s*+(?:\+\s*+(-?(?:0|[1-9][0-9]{0,17})))?\s*+\]", re.ASCII
)
_RESERVED = frozenset({"_", "WARP_SZ"})

#: binary operators by how tightly they bind
_PRECEDENCE = {
    "||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
    "<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}  # fmt: skip


class _Number(NamedTuple):
    """A constant of type .s64, or .u64 if ``unsigned``; ``value`` fits that type."""

    value: int
    unsigned: bool = False


def _typed(value: int, *, unsigned: bool) -> _Number:
    """The low 64 bits of a value as a constant of one of the two types."""
    bits = value & _MASK
    return _Number(bits if unsigned or not bits >> 63 else bits - (1 << 64), unsigned)


#: of operands of one type, to which the other one is converted
_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
    "/": lambda a, b: abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1),
    "|": lambda a, b: a | b, "^": lambda a, b: a ^ b, "&": lambda a, b: a & b,
}  # fmt: skip
_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}  # fmt: skip


class _Known(dict[str, Operand]):
    """Operands by their texts, blanks around them among these, as far as they need no cursor."""

    def __missing__(self, text: str) -> Operand:
        plain = text.strip()
        operand = self.get(plain) or _quickly(plain or "?")
        if operand is None:
            raise _NotPlainError
        self[text] = self[plain] = operand
        return operand


class _NotPlainError(Exception):
    """An operand is to be read token by token."""


class Operands:
    """Reads operands; equal texts give one object."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._known = _Known()

    def read(self, start: int, end: int) -> tuple[Operand, ...]:
        """The operands between two offsets, separated by commas."""
        source, known = self._text.text[start:end], self._known
        if "{" not in source:
            try:
                return tuple([known[text] for text in source.split(",")])
            except _NotPlainError:
                pass
        if not source or source.isspace():
            return ()
        found: list[Operand] = []
        position, size, match = 0, len(source), _PIECE.match
        while position < size:
            piece = match(source, position)
            if piece is None:
                return self._all(Cursor(self._text, start, end))
            text = piece[1]
            try:
                operand = known[text]
            except _NotPlainError:
                first = start + piece.start(1)
                operand = known[text] = self._alone(first, first + len(text))
            found.append(operand)
            position = piece.end()
        if source.endswith(","):
            self._text.fail(end, "an operand is missing after the comma")
        return tuple(found)

    def _alone(self, start: int, end: int) -> Operand:
        cursor = Cursor(self._text, start, end)
        operand = self.operand(cursor)
        if cursor.kind:
            cursor.fail(f"expected ',' or ';' after the operand, found {cursor.found}")
        return operand

    def _all(self, cursor: Cursor) -> tuple[Operand, ...]:
        result = [self.operand(cursor)]
        while cursor.accept(","):
            result.append(self.operand(cursor))
        if cursor.kind:
            cursor.fail(f"expected ',' or ';' after the operand, found {cursor.found}")
        return tuple(result)

    # ------------------------------------------------------------------ one operand

    def operand(self, cursor: Cursor, depth: int = 0) -> Operand:
        """The operand at the cursor."""
        if depth > _DEEPEST:
            cursor.fail("brackets are nested too deeply here")
        match cursor.token:
            case "[":
                return self._address(cursor, depth)
            case "{":
                return Vector(self._listed(cursor, "}", depth))
            case "(" if cursor.kind == "symbol":
                return self._group_or_constant(cursor, depth)
            case "!":
                after = Cursor(self._text, cursor.end, cursor.limit)
                if after.kind == "name" and after.token != "WARP_SZ":
                    cursor.advance()
                    return Negated(Name(self.name(cursor)))
            case _:
                pass
        first = self._plain(cursor, depth)
        if cursor.accept("|"):
            return Pair(first, self._plain(cursor, depth))
        return first

    def _group_or_constant(self, cursor: Cursor, depth: int) -> Operand:
        """``(a, b)`` of a call, or a constant expression that begins with a bracket."""
        start = cursor.start
        probe = Cursor(self._text, start + 1, cursor.limit)
        if probe.kind in ("int", "dot") or probe.token in ("-", "+", "~", "!", "("):
            return Integer(constant(cursor, depth + 1))
        return Group(self._listed(cursor, ")", depth))

    def _listed(
        self, cursor: Cursor, closing: Literal["}", ")"], depth: int
    ) -> tuple[Operand, ...]:
        cursor.advance()
        if cursor.accept(closing):
            return ()
        items = [self.operand(cursor, depth + 1)]
        while cursor.accept(","):
            items.append(self.operand(cursor, depth + 1))
        cursor.expect(closing, "at the end of the list")
        return tuple(items)

    def _plain(self, cursor: Cursor, depth: int) -> Operand:
        """A name, ``name + constant`` or a constant."""
        if cursor.kind == "float":
            return _float(cursor, negative=False)
        if cursor.kind == "name" and cursor.token != "WARP_SZ":
            name = self.name(cursor)
            if name == "_":
                return Sink()
            offset = self._offset(cursor, depth)
            return Name(name) if offset is None else Sum(Name(name), offset)
        if cursor.token == "-":
            after = Cursor(self._text, cursor.end, cursor.limit)
            if after.kind == "float":
                cursor.advance()
                return _float(cursor, negative=True)
        return Integer(constant(cursor, depth + 1))

    def name(self, cursor: Cursor) -> str:
        """A name, with the component of a vector register or of a special register."""
        name = cursor.word("an operand")
        if cursor.kind == "dot" and cursor.token in _DOTTED:
            name += cursor.take()
        return name

    def _offset(self, cursor: Cursor, depth: int) -> int | None:
        if cursor.token not in ("+", "-") or cursor.kind != "symbol":
            return None
        sign = 1 if cursor.take() == "+" else -1
        return sign * constant(cursor, depth + 1, tightness=_PRECEDENCE["+"] + 1)

    def _address(self, cursor: Cursor, depth: int) -> Address:
        cursor.advance()
        base: Name | Integer
        offset = 0
        if cursor.kind == "name":
            base = Name(self.name(cursor))
            while (more := self._offset(cursor, depth)) is not None:
                offset += more
        else:
            base = Integer(constant(cursor, depth + 1))
        rest = []
        while cursor.accept(","):
            rest.append(self.operand(cursor, depth + 1))
        cursor.expect("]", "at the end of the address")
        return Address(base, _typed(offset, unsigned=False).value, tuple(rest))

    def initial(self, cursor: Cursor, depth: int = 0) -> Initial:
        """The value of an initialiser: nested lists of constants and addresses."""
        if depth > _DEEPEST:
            cursor.fail("brackets are nested too deeply here")
        if cursor.accept("{"):
            items: list[Initial] = []
            while not cursor.accept("}"):
                items.append(self.initial(cursor, depth + 1))
                if not cursor.accept(","):
                    cursor.expect("}", "at the end of the list of values")
                    break
            return tuple(items)
        if cursor.token == "generic":
            cursor.advance()
            cursor.expect("(", "after generic")
            inner = self._plain(cursor, depth)
            cursor.expect(")", "after the variable")
            if not isinstance(inner, Name | Sum):
                cursor.fail("generic() takes the name of a variable")
            return Generic(inner)
        return self._plain(cursor, depth)


def _quickly(text: str) -> Operand | None:
    """An operand as most are: a name, a number, an address, a vector of names; else None."""
    if text[0] == "{":
        items = [_quickly(item.strip() or "?") for item in text[1:-1].split(",")]
        known = tuple(item for item in items if isinstance(item, Name | Integer))
        return Vector(known) if len(known) == len(items) else None
    if _NAME.fullmatch(text):
        return None if text in _RESERVED else Name(text)
    if _INTEGER.fullmatch(text):
        return Integer(int(text))
    address = _ADDRESS.fullmatch(text)
    if address and address[1] not in _RESERVED:
        return Address(Name(address[1]), int(address[2] or 0))
    return None


def _float(cursor: Cursor, *, negative: bool) -> Float:
    token = cursor.take()
    if token[:2] in ("0f", "0F"):
        bits, width = int(token[2:], 16), 32
    elif token[:2] in ("0d", "0D"):
        bits, width = int(token[2:], 16), 64
    else:
        width = 64
        bits = int.from_bytes(struct.pack("<d", float(token)), "little")
    return Float(bits ^ (1 << width - 1) if negative else bits, width)


# ---------------------------------------------------------------------- constant expressions


def constant(cursor: Cursor, depth: int = 0, *, tightness: int = 1) -> int:
    """A constant expression; operators that bind less than ``tightness`` end it.

    Raises:
        PtxError: it is none, or divides by zero.
    """
    return _expression(cursor, depth, tightness).value


def _expression(cursor: Cursor, depth: int, tightness: int = 1) -> _Number:
    if depth > _DEEPEST:
        cursor.fail("the expression is nested too deeply here")
    number = _operand(cursor, depth)
    while cursor.kind == "symbol" and _PRECEDENCE.get(cursor.token, 0) >= tightness:
        operator = cursor.take()
        right = _expression(cursor, depth + 1, _PRECEDENCE[operator] + 1)
        number = _apply(cursor, operator, number, right)
    if tightness == 1 and cursor.accept("?"):
        then = _expression(cursor, depth + 1)
        cursor.expect(":", "between the values of '?'")
        other = _expression(cursor, depth + 1)
        number = then if number.value else other
    return number


def _apply(cursor: Cursor, operator: str, a: _Number, b: _Number) -> _Number:
    """A binary operator: as ``ptxas`` has it, a remainder and what one operand without a sign goes
    into have none, and relations are of .s64 (PTX 4.5.6)."""
    if operator in ("/", "%") and not b.value:
        cursor.fail("the constant expression divides by zero")
    if operator in ("&&", "||"):
        both = (bool(a.value), bool(b.value))
        return _Number(int(all(both) if operator == "&&" else any(both)))
    if operator in ("<<", ">>"):
        if not 0 <= b.value < 64:
            cursor.fail(f"the constant expression shifts by {b.value}, not by 0 to 63")
        shifted = a.value << b.value if operator == "<<" else a.value >> b.value
        return _typed(shifted, unsigned=a.unsigned)
    if operator == "%":
        return _typed((a.value & _MASK) % (b.value & _MASK), unsigned=True)
    unsigned = a.unsigned or b.unsigned
    x, y = (_typed(number.value, unsigned=unsigned).value for number in (a, b))
    if operator in _RELATIONS:
        return _Number(int(_RELATIONS[operator](x, y)))
    return _typed(_ARITHMETIC[operator](x, y), unsigned=unsigned)


def _operand(cursor: Cursor, depth: int) -> _Number:
    if depth > _DEEPEST:
        cursor.fail("the expression is nested too deeply here")
    if cursor.kind == "int":
        return _integer(cursor)
    if cursor.kind == "name" and cursor.token == "WARP_SZ":
        cursor.advance()
        return _Number(32)
    match cursor.token:
        case "-":
            cursor.advance()
            number = _operand(cursor, depth + 1)
            return _typed(-number.value, unsigned=number.unsigned)
        case "+":
            cursor.advance()
            return _operand(cursor, depth + 1)
        case "~":
            cursor.advance()
            return _typed(~_operand(cursor, depth + 1).value, unsigned=True)
        case "!":
            cursor.advance()
            return _Number(int(not _operand(cursor, depth + 1).value))
        case "(" if cursor.kind == "symbol":
            return _bracketed(cursor, depth)
        case _:
            pass
    if not cursor.kind:
        cursor.fail("an operand is missing here")
    return cursor.fail(f"expected an operand, found {cursor.found}")


def _bracketed(cursor: Cursor, depth: int) -> _Number:
    cursor.advance()
    if cursor.kind != "dot":
        number = _expression(cursor, depth + 1)
        cursor.expect(")", "at the end of the expression")
        return number
    if cursor.token not in (".s64", ".u64"):
        cursor.fail(f"constants are cast to .s64 or .u64, not {cursor.token}")
    unsigned = cursor.take() == ".u64"
    cursor.expect(")", "after the type")
    return _typed(_operand(cursor, depth + 1).value, unsigned=unsigned)


def _integer(cursor: Cursor) -> _Number:
    token = cursor.token.rstrip("U")
    octal = token.startswith("0") and token.isdigit() and len(token) > 1
    value = None
    if len(token) <= _DIGITS and not (octal and set(token) & {"8", "9"}):
        value = int(token, 8) if octal else int(token, 0)
    if value is None or value > _MASK:
        cursor.fail(f"{cursor.found} is no constant of 64 bits")
    unsigned = cursor.token.endswith("U") or value >> 63 == 1
    cursor.advance()
    return _Number(value, unsigned)
