"""Reads a PTX text into a `tilesim.ptx.syntax.Module`, in time linear in its length."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple, NoReturn

from tilesim.arith.types import WIDTH
from tilesim.limits import patient
from tilesim.ptx.lexer import Cursor, Text, cut
from tilesim.ptx.syntax import (
    Address,
    Body,
    Float,
    Function,
    Generic,
    Group,
    Guard,
    Initial,
    Instruction,
    Integer,
    Located,
    Module,
    Name,
    Negated,
    Operand,
    Pair,
    Pointer,
    Scope,
    Sink,
    Sum,
    Variable,
    Vector,
)

#: brackets in brackets; deeper ones are an error, not a crash
_DEEPEST_OPERAND = 40
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
        if depth > _DEEPEST_OPERAND:
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
        if depth > _DEEPEST_OPERAND:
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
    if depth > _DEEPEST_OPERAND:
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
    if depth > _DEEPEST_OPERAND:
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
        cursor.fail(f"{cursor.found} is not a constant of 64 bits")
    unsigned = cursor.token.endswith("U") or value >> 63 == 1
    cursor.advance()
    return _Number(value, unsigned)


SPACES = frozenset({".const", ".global", ".local", ".param", ".shared", ".tex"})
LINKAGE = frozenset({".extern", ".visible", ".weak", ".common", ".hidden"})
_VECTORS = {".v2": 2, ".v4": 4, ".v8": 8}
#: registers that one declaration may make
_MOST_REGISTERS = 1 << 20
#: types that only parameters and variables of older programs have
_OPAQUE = {".texref": "b64", ".samplerref": "b64", ".surfref": "b64"}


class Declarations:
    """Reads declarations of one text."""

    def __init__(self, text: Text, operands: Operands) -> None:
        self._text = text
        self._operands = operands

    def registers(self, cursor: Cursor, scope: Scope) -> None:
        """``.reg .type names``; ``name<n>`` declares n of them."""
        vector, kind = self._type(cursor, "after .reg")
        while True:
            name = cursor.word("the name of a register")
            names = [name]
            if cursor.accept("<"):
                count = constant(cursor, tightness=8)
                if not 0 <= count <= _MOST_REGISTERS:
                    cursor.fail(f"{count} registers cannot be declared")
                cursor.expect(">", "after the number of registers")
                names = [f"{name}{i}" for i in range(count)]
            elif name in scope.registers:
                cursor.fail(f"{name} is declared twice in this scope")
            if vector > 1:
                names = [f"{name}{part}" for name in names for part in _components(vector)]
            scope.registers.update(dict.fromkeys(names, kind))
            if not cursor.accept(","):
                return

    def variables(self, cursor: Cursor, linkage: str = "") -> list[Variable]:
        """``.space [.align n] .type names`` with optional shapes and initial values."""
        space = cursor.take()[1:]
        if cursor.token == "[" and space == "const":  # an old bank number
            while not cursor.accept("]"):
                cursor.advance()
        first = self.variable(cursor, space, linkage)
        found = [first]
        while cursor.accept(","):
            place = self._text.place(cursor.start)
            name = cursor.word("the name of a variable")
            shape = self._shape(cursor)
            initial = self._initial(cursor)
            found.append(
                Variable(name, space, first.type, shape, first.vector, first.align, place,
                         linkage, None, initial)
            )  # fmt: skip
        return found

    def variable(self, cursor: Cursor, space: str, linkage: str = "") -> Variable:
        """What follows the state space: alignment, attributes, type, name, shape, value."""
        place = self._text.place(cursor.start)
        align = self._qualifiers(cursor)
        vector, kind = self._type(cursor, f"of the .{space} variable")
        pointer = self._pointer(cursor) if cursor.accept(".ptr") else None
        align = max(align, self._qualifiers(cursor))
        name = cursor.word("the name of a variable")
        while name == "_" and cursor.kind == "name":
            name = cursor.take()
        count = 0
        if cursor.accept("<"):
            count = constant(cursor, tightness=8)
            cursor.expect(">", "after the number of variables")
        shape = self._shape(cursor)
        initial = self._initial(cursor)
        if count:
            shape = (count, *shape)
        return Variable(name, space, kind, shape, vector, align, place, linkage, pointer, initial)

    def _qualifiers(self, cursor: Cursor) -> int:
        """``.align n`` and ``.attribute(...)``; the alignment, or 0."""
        align = 0
        while True:
            if cursor.accept(".align"):
                align = constant(cursor)
                if align <= 0 or align & (align - 1) or align > 1 << 20:
                    cursor.fail(f"{align} is not a valid alignment", "use a power of two")
            elif cursor.accept(".attribute"):
                cursor.expect("(", "after .attribute")
                while cursor.kind and not cursor.accept(")"):
                    if cursor.accept("("):
                        while cursor.kind and not cursor.accept(")"):
                            cursor.advance()
                    else:
                        cursor.advance()
            else:
                return align

    def _pointer(self, cursor: Cursor) -> Pointer:
        space, align = "generic", 4
        if cursor.token in SPACES:
            space = cursor.take()[1:]
        found = self._qualifiers(cursor)
        return Pointer(space, found or align)

    def _type(self, cursor: Cursor, where: str) -> tuple[int, str]:
        vector = 1
        if cursor.token in _VECTORS:
            vector = _VECTORS[cursor.take()]
        if cursor.token in _OPAQUE:
            return vector, _OPAQUE[cursor.take()]
        kind = cursor.token[1:]
        if cursor.kind != "dot" or kind not in WIDTH:
            cursor.fail(f"expected a type {where}, found {cursor.found}")
        cursor.advance()
        return vector, kind

    def _shape(self, cursor: Cursor) -> tuple[int | None, ...]:
        shape: list[int | None] = []
        while cursor.accept("["):
            if cursor.accept("]"):
                shape.append(None)
                continue
            size = constant(cursor)
            if not 0 <= size < 1 << 48:
                cursor.fail(f"{size} is not a valid size of an array")
            cursor.expect("]", "after the size of the array")
            shape.append(size)
        return tuple(shape)

    def _initial(self, cursor: Cursor) -> Initial:
        return self._operands.initial(cursor) if cursor.accept("=") else ()

    def list(self, cursor: Cursor) -> tuple[Variable, ...]:
        """``(.param ..., .reg ...)``: parameters or results of a function. A ``.hidden`` one is a
        parameter that the driver does not list."""
        cursor.expect("(", "before the parameters")
        found: list[Variable] = []
        while not cursor.accept(")"):
            linkage = "hidden" if cursor.accept(".hidden") else ""
            if cursor.token not in (".param", ".reg"):
                cursor.fail(f"expected .param or .reg, found {cursor.found}")
            found.append(self.variable(cursor, cursor.take()[1:], linkage))
            if cursor.token != ")":
                cursor.expect(",", "between parameters")
        return tuple(found)


def _components(vector: int) -> tuple[str, ...]:
    """The names of the components of a vector register, as they are written after it."""
    return tuple(f".{c}" for c in ("x", "y", "z", "w")[:vector])


#: one statement; an opcode may be followed by its operands without a blank
_STATEMENT = re.compile(
    r"""\s*+(?:
      (?P<brace>[{}])
    | (?P<directive>\.\w++)
    | (?P<label>[A-Za-z_$%][\w$]*+)\s*+:(?!:)
    | (?:@\s*+(?P<negated>!?)\s*+(?P<guard>[%A-Za-z_$][\w$]*+)\s++)?+
      (?P<opcode>[a-z]\w*+(?:\ *+(?:\.|::)\w++)*+)(?P<operands>[^;"]*+);
    | (?P<empty>;)
    )""",
    re.VERBOSE | re.ASCII,
)
_LOC = re.compile(
    r"""\.loc\s++(\d{1,9})\s++(\d{1,9})(?:\s++(\d{1,9}))?\s*+
        (?:,\s*+function_name\s++([\w$]++)\s*+(?:\+\s*+(\d{1,9}))?\s*+)?
        (?:,\s*+inlined_at\s++(\d{1,9})\s++(\d{1,9})\s++(\d{1,9})\s*+)?$""",
    re.VERBOSE | re.ASCII,
)
#: scopes in scopes
_DEEPEST = 1000


class Sources:
    """The positions that ``.loc`` gives; ``strings`` are names of functions by their labels."""

    def __init__(self, strings: dict[str, str]) -> None:
        self._strings = strings
        self._known: dict[str, Located] = {}
        self._at: dict[tuple[int, int, int], Located] = {}
        #: the position of the instructions that follow
        self.current: Located | None = None

    def reset(self) -> None:
        """A function begins."""
        self.current = None
        self._known.clear()
        self._at.clear()

    def loc(self, text: Text, cursor: Cursor) -> int:
        """Reads a ``.loc`` directive, which ends with its line; returns the offset of the end."""
        end = text.text.find("\n", cursor.start)
        return self.line(text, cursor.start, len(text.text) if end < 0 else end)

    def line(self, text: Text, start: int, end: int) -> int:
        """Reads the ``.loc`` directive between two offsets; returns the second one."""
        source = text.text[start:end].rstrip().rstrip(";").rstrip()
        located = self._known.get(source)
        if located is None or not self._is_called_from_there(located):
            located = self._known[source] = self._read(text, start, source)
        key = located.file, located.line, located.column
        if located.caller is None and self.current is not None and not self.current.line:
            # behind line 0 nvcc gives the place of code that it has moved without its calls
            located = self._at.get(key, located)
        self._at[key] = self.current = located
        return end

    def _is_called_from_there(self, located: Located) -> bool:
        """Whether its caller's position is still the last one at that line and column: a function
        that is inlined twice has the same directives inside, each below others."""
        caller = located.caller
        if caller is None:
            return True
        return self._at.get((caller.file, caller.line, caller.column), caller) is caller

    def _read(self, text: Text, start: int, source: str) -> Located:
        found = _LOC.fullmatch(source)
        if not found:
            text.fail(start, f"expected .loc FILE LINE COLUMN, found {cut(source)}")
        file, line, column = int(found[1]), int(found[2]), int(found[3] or 0)
        if not found[6]:
            return Located(file, line, column)
        key = int(found[6]), int(found[7]), int(found[8])
        caller = self._at.get(key, Located(*key))
        return Located(file, line, column, self._strings.get(found[4] or "", ""), caller)


class _Body:
    """The body of a function: collects instructions and scopes."""

    def __init__(
        self, text: Text, operands: Operands, declarations: Declarations, sources: Sources
    ) -> None:
        self._text = text
        self._operands = operands
        self._declarations = declarations
        self._sources = sources
        self._code: list[Instruction] = []
        self._scopes: list[Scope] = []
        self._open: list[int] = []
        self._label = ""

    def read(self, start: int) -> tuple[Body, int]:
        """The body whose opening brace is at ``start``, and the offset after its closing one.

        Raises:
            PtxError: with the place of what is not understood.
        """
        self._sources.reset()
        source, match = self._text.text, _STATEMENT.match
        position = start
        while True:
            found = match(source, position)
            if found is None:
                self._no_statement(position, start)
            position = found.end()
            match found.lastgroup:
                case "operands":
                    self._instruction(found)
                case "directive":
                    position = self._directive(found)
                case "label":
                    self._place(found)
                case "brace":
                    if self._brace(found):
                        return Body(tuple(self._code), tuple(self._scopes)), position
                case _:
                    pass

    def _no_statement(self, position: int, start: int) -> NoReturn:
        position = self._text.skip(position)
        source = self._text.text
        if position >= len(source):
            self._text.fail(start, "the body that starts here has no end", "add }")
        shown = cut(source[position : position + 80])
        ends = source.find(";", position) >= 0
        self._text.fail(
            position, f"this is not a statement of PTX: {shown}", "" if ends else "end it with ;"
        )

    def _brace(self, found: re.Match[str]) -> bool:
        """Opens or closes a scope; whether it was the body's."""
        if found["brace"] == "{":
            if len(self._open) >= _DEEPEST:
                self._text.fail(found.start("brace"), "scopes are nested too deeply here")
            self._scopes.append(Scope(self._open[-1] if self._open else None))
            self._open.append(len(self._scopes) - 1)
            return False
        self._open.pop()
        return not self._open

    def _place(self, found: re.Match[str]) -> None:
        name = found["label"]
        scope = self._scopes[self._open[-1]]
        if name in scope.labels:
            self._text.fail(found.start("label"), f"label {name} is defined twice in this scope")
        scope.labels[name] = len(self._code)
        self._label = name

    def _instruction(self, found: re.Match[str]) -> None:
        place = self._text.place(found.start("opcode"))
        guard, opcode = found["guard"], found["opcode"]
        if " " in opcode:  # as in inline assembly that tilelang writes
            opcode = opcode.replace(" ", "")
        self._code.append(
            Instruction(
                opcode,
                self._operands.read(*found.span("operands")),
                None if guard is None else Guard(guard, found["negated"] == "!"),
                self._open[-1],
                place,
                self._sources.current,
            )
        )

    # ------------------------------------------------------------------ directives

    def _directive(self, found: re.Match[str]) -> int:
        """Reads a directive; returns the offset after it."""
        name, start = found["directive"], found.start("directive")
        if name in (".loc", ".loc_intermediate"):
            end = self._text.text.find("\n", start)
            end = len(self._text.text) if end < 0 else end
            return self._sources.line(self._text, start, end) if name == ".loc" else end
        cursor = Cursor(self._text, start)
        scope = self._scopes[self._open[-1]]
        if name == ".reg":
            cursor.advance()
            self._declarations.registers(cursor, scope)
        elif name in SPACES:
            for variable in self._declarations.variables(cursor):
                if variable.name in scope.variables:
                    self._text.fail(start, f"{variable.name} is declared twice in this scope")
                scope.variables[variable.name] = variable
        elif name in (".branchtargets", ".calltargets"):
            cursor.advance()
            scope.targets[self._listed(scope, start)] = self._names(cursor)
        elif name == ".callprototype":
            scope.prototypes.add(self._listed(scope, start))
            _skip(cursor)
        elif name == ".pragma":
            _skip(cursor)
        elif name in (".maxnreg", ".file"):
            cursor.fail(f"{name} does not stand in a body")
        else:
            cursor.fail(f"{name} is not a known directive of a function body")
        if cursor.token != ";":
            cursor.fail(f"expected ';' after {name}, found {cursor.found}")
        return cursor.end

    def _listed(self, scope: Scope, start: int) -> str:
        """The label before a list of labels, which is no place in the code."""
        if scope.labels.pop(self._label, None) is None:
            self._text.fail(start, "a list of labels or a prototype has no label before it")
        return self._label

    def _names(self, cursor: Cursor) -> tuple[str, ...]:
        names: list[str] = []
        while True:
            name = cursor.word("a label")
            if cursor.accept("<"):
                count = constant(cursor, tightness=8)
                if not 0 <= count <= 1 << 16:
                    cursor.fail(f"{count} labels cannot be listed")
                cursor.expect(">", "after the number of labels")
                names += [f"{name}{i}" for i in range(count)]
            else:
                names.append(name)
            if not cursor.accept(","):
                return tuple(names)


def _skip(cursor: Cursor) -> None:
    """Goes to the end of a directive without looking at it."""
    while cursor.kind and cursor.token != ";":
        cursor.advance()


#: the first version of PTX with instructions of Hopper, and the last one that was tried
_OLDEST = (7, 8)
#: performance directives of functions, with as many numbers as there are
_DIRECTIVES = frozenset({
    ".maxnreg", ".maxntid", ".reqntid", ".minnctapersm", ".maxnctapersm", ".explicitcluster",
    ".reqnctapercluster", ".maxclusterrank", ".noreturn", ".blocksareclusters", ".abi_preserve",
    ".abi_preserve_control", ".language", ".minperctamemory",
})  # fmt: skip
_LABEL = re.compile(r"\s*+([\w$]+)\s*+:")
_BRACE = re.compile(r"[{}]")
_BYTES = re.compile(r"\s*+\.b8\s++([0-9,\s]*+)")


@patient()
def read(text: str, file: str = "kernel.ptx") -> Module:
    """The module that ``text`` is; ``file`` is its name in messages.

    Raises:
        PtxError: it is no PTX, or none that is understood.
    """
    return _Reader(Text(text, file)).module()


class _Reader:
    """Reads the statements outside of functions."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._operands = Operands(text)
        self._declarations = Declarations(text, self._operands)
        self._sources = Sources(_strings(text.text))
        self._body = partial(_Body, text, self._operands, self._declarations, self._sources)
        self._version: tuple[int, int] | None = None
        self._target = ""
        self._options: tuple[str, ...] = ()
        self._files: dict[int, str] = {}
        self._variables: list[Variable] = []
        self._functions: list[Function] = []

    def module(self) -> Module:
        """The whole text."""
        cursor = Cursor(self._text, 0)
        while cursor.kind:
            cursor = self._statement(cursor)
            if self._version is None:
                cursor.fail(
                    "the text does not begin with .version",
                    "check a PTX file, which begins with .version",
                )
        if self._version is None:
            cursor.fail("the text is empty")
        if not self._target:
            cursor.fail("the module has no .target")
        return Module(
            self._text.file, self._version, self._target, self._options, self._files,
            tuple(self._variables), tuple(self._functions),
        )  # fmt: skip

    def _statement(self, cursor: Cursor) -> Cursor:
        """Reads one statement; returns a cursor after it."""
        if cursor.accept(";"):
            return cursor
        match cursor.token:
            case ".version":
                self._read_version(cursor)
            case ".target":
                self._read_target(cursor)
            case ".address_size":
                cursor.advance()
                if constant(cursor) != 64:
                    cursor.fail("only .address_size 64 is supported")
            case ".file":
                self._read_file(cursor)
            case ".section":
                return self._skip_section(cursor)
            case ".nv_intermediate_source_section":
                return self._skip_block(cursor)
            case ".loc_intermediate":
                end = self._text.text.find("\n", cursor.start)
                return Cursor(self._text, len(self._text.text) if end < 0 else end)
            case ".loc":
                return Cursor(self._text, self._sources.loc(self._text, cursor))
            case ".pragma" | ".alias":
                while not cursor.accept(";"):
                    if not cursor.kind:
                        cursor.fail("the directive has no end", "add ;")
                    cursor.advance()
            case _:
                return self._linked(cursor)
        return cursor

    def _linked(self, cursor: Cursor) -> Cursor:
        """A variable or function with its linkage."""
        linkage = ""
        while cursor.token in LINKAGE:
            linkage = cursor.take()[1:]
        if cursor.token in SPACES:
            self._variables += self._declarations.variables(cursor, linkage)
            cursor.expect(";", "after the declaration")
            return cursor
        if cursor.token not in (".entry", ".func"):
            cursor.fail(
                f"expected a directive, found {cursor.found}",
                "at module level only .version, .target, .address_size, .file, variables and "
                "functions are allowed",
            )
        return self._function(cursor, linkage)

    # ------------------------------------------------------------------ directives

    def _read_version(self, cursor: Cursor) -> None:
        cursor.advance()
        found = re.fullmatch(r"(\d{1,3})\.(\d{1,3})", cursor.token)
        if not found:
            cursor.fail(f"expected a version such as 8.8, found {cursor.found}")
        self._version = int(found[1]), int(found[2])
        if self._version < _OLDEST:
            cursor.fail(
                f"PTX {cursor.token} is too old", "compile for sm_90a with a current compiler"
            )
        cursor.advance()

    def _read_target(self, cursor: Cursor) -> None:
        cursor.advance()
        self._target = cursor.word("a target such as sm_90a")
        options = []
        while cursor.accept(","):
            options.append(cursor.word("an option of the target"))
        self._options = tuple(options)

    def _read_file(self, cursor: Cursor) -> None:
        cursor.advance()
        number = constant(cursor)
        if cursor.kind != "string":
            cursor.fail(f"expected the name of the file in quotes, found {cursor.found}")
        self._files[number] = cursor.take()[1:-1]
        while cursor.accept(","):  # its time and size
            constant(cursor)

    def _skip_section(self, cursor: Cursor) -> Cursor:
        """Debugging information, of which only strings are of use."""
        end = self._text.text.find("}", cursor.start)
        if end < 0:
            cursor.fail("the section has no end", "add }")
        return Cursor(self._text, end + 1)

    def _skip_block(self, cursor: Cursor) -> Cursor:
        """The text of an intermediate language, of which `Text` has left the braces around it."""
        deep, end = 0, 0
        for found in _BRACE.finditer(self._text.text, cursor.start):
            deep += 1 if found[0] == "{" else -1
            if deep <= 0:
                end = found.end()
                break
        if not end:
            cursor.fail("the section has no end", "add }")
        return Cursor(self._text, end)

    # ------------------------------------------------------------------ functions

    def _function(self, cursor: Cursor, linkage: str) -> Cursor:
        place = self._text.place(cursor.start)
        entry = cursor.take() == ".entry"
        while cursor.accept(".attribute"):
            while cursor.kind and not cursor.accept(")"):
                cursor.advance()
        results = self._declarations.list(cursor) if cursor.token == "(" else ()
        name = cursor.word("the name of the function")
        params = self._declarations.list(cursor) if cursor.token == "(" else ()
        directives = dict(self._directives(cursor))
        body = None
        if cursor.token == "{":
            body, after = self._body().read(cursor.start)
            cursor = Cursor(self._text, after)
        else:
            cursor.expect(";", "or '{' after the head of the function")
        self._functions.append(
            Function(name, entry, results, params, directives, body, place, linkage)
        )
        return cursor

    def _directives(self, cursor: Cursor) -> Iterator[tuple[str, tuple[int, ...]]]:
        while cursor.kind == "dot":
            if cursor.token == ".pragma":
                while cursor.kind and not cursor.accept(";"):
                    cursor.advance()
                continue
            if cursor.token not in _DIRECTIVES:
                cursor.fail(f"{cursor.token} is not a known directive of a function")
            name = cursor.take()[1:]
            numbers = []
            while cursor.kind in ("int", "string") or cursor.token == "(":
                if cursor.kind == "string":  # the name of a language
                    cursor.advance()
                else:
                    numbers.append(constant(cursor))
                if not cursor.accept(","):
                    break
            yield name, tuple(numbers)


def _strings(text: str) -> dict[str, str]:
    """The strings of the debugging information by their labels (names of inlined functions)."""
    found: dict[str, str] = {}
    start = text.find(".section")
    while start >= 0:
        end = text.find("}", start)
        if end < 0:
            return found
        if ".debug_str" in text[start : start + 40]:
            found.update(_labelled(text[start:end]))
        start = text.find(".section", end)
    return found


def _labelled(section: str) -> Iterator[tuple[str, str]]:
    position = section.find("{") + 1
    label, data = "", bytearray()
    while True:
        named, more = _LABEL.match(section, position), _BYTES.match(section, position)
        if named:
            yield label, data.partition(b"\0")[0].decode(errors="replace")
            label, data = named[1], bytearray()
            position = named.end()
        elif more:
            data += bytes(int(n) & 255 for n in more[1].split(",") if n.strip().isdigit())
            position = more.end()
        else:
            yield label, data.partition(b"\0")[0].decode(errors="replace")
            return
