"""Parsing of a ``.tile`` text into a `Program`.

Expressions are parsed by operator precedence with explicit stacks, without folding; operands by one
reader per type, chosen by the form of the field. The grammar, in EBNF:

    text        = "tile" "1" NL { source NL } kernel NL { declaration NL } "body" block ;
    source      = "source" INT STRING [ STRING ] ;
    kernel      = "kernel" name ":" arguments [ at ] ;
    declaration = keyword name [ ":" arguments ] [ at ] ;
    keyword     = "global" | "scalar" | "map" | "shared" | "mbarriers" | "fragment" | "var" ;
    block       = "{" [ at ] NL { statement NL } "}" ;
    statement   = MNEMONIC arguments [ at ] | "break" [ at ]
                | "for" name "in" "range" "(" expr [ "," expr [ "," expr ] ] ")" [ "nosync" ] block
                | "while" expr [ "nosync" ] block
                | "if" expr [ "nosync" ] block [ "else" block ]
                | "role" STRING "warps" ( "none" | warps { "," warps } ) block ;
    warps       = integer [ ".." integer ] ;
    at          = "@" INT ":" INT ;

    arguments   = [ argument { "," argument } ] ;
    argument    = [ WORD "=" ] operand ;
    operand     = expr | mbar | view | name | tuple | inline | integer | real | STRING | WORD
                | "true" | "false" | "none" ;
    mbar        = name "[" expr "]" [ peer ] ;
    view        = name "[" [ index { "," index } ] "]" [ peer ] ;
    index       = ":" | expr [ ":+" INT ] ;
    peer        = ".at" "(" expr ")" ;
    tuple       = "{" [ operand { "," operand } ] "}" ;
    inline      = "tmem" "(" arguments ")" ;

    expr        = unary { binary unary } ;
    binary      = "or" | "and" | "==" | "!=" | "<" | "<=" | ">" | ">="
                | "|" | "^" | "&" | "<<" | ">>" | "+" | "-" | "*" | "//" | "%" ;
    unary       = { "not" | "-" | "~" } primary ;
    primary     = integer | real | "true" | "false" | name | "%" WORD | "(" expr ")"
                | ( "min" | "max" ) "(" expr "," expr ")"
                | "select" "(" expr "," expr "," expr ")" ;
    integer     = [ "-" ] INT ;
    real        = [ "-" ] ( FLOAT | "inf" | "nan" ) ;

    name        = WORD | "`" characters "`" ;
    WORD        = letter { letter | digit } { ( "." | "::" ) letter_or_digit { letter_or_digit } } ;
    INT         = digit { digit } | "0x" hexdigit { hexdigit } ;
    FLOAT       = digits [ "." digits ] [ "e" [ "+" | "-" ] digits ] ;
    STRING      = '"' characters '"' ;
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from types import NoneType
from typing import Any, Final, NamedTuple, TypeVar, cast

from tilesim.arith.types import DTYPES, DType
from tilesim.errors import InvalidProgram, ParseError
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.declarations import (
    Fragment,
    GlobalTensor,
    Mbar,
    Mbarriers,
    SharedTensor,
    Tensor,
    TensorMap,
    View,
)
from tilesim.ir.expr import (
    SPECIALS,
    Base,
    Binary,
    BinaryOp,
    Const,
    Expr,
    ScalarParam,
    Select,
    Special,
    SpecialName,
    Unary,
    UnaryOp,
    Var,
)
from tilesim.ir.loc import Loc
from tilesim.ir.op import OPS, Op
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While
from tilesim.ir.target import TARGETS, Target
from tilesim.ir.text.forms import (
    ADDRESS,
    CALLS,
    COMPARISON,
    DECLARATIONS,
    INLINE,
    MAX_DEPTH,
    MAX_REGIONS,
    MAX_WARPS,
    PRECEDENCE,
    PREFIX,
    RESERVED,
    VERSIONS,
    Choice,
    Declared,
    Either,
    Fixed,
    Form,
    Inline,
    Leaf,
    Many,
    Operand,
    declaration_operands,
    describe,
    has_loc,
    heads,
    launch_operands,
    name,
    operands,
)
from tilesim.ir.text.lexer import Cursor, Token


def suggest(word: str, known: list[str]) -> str:
    """`` (did you mean ...?)`` with the names closest to ``word``, or nothing."""
    close = get_close_matches(word[:100], known, n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(close)}?)" if close else ""


class Scope:
    """Declared objects by name; every name is declared once."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor = cursor
        self._objects: dict[str, object] = {}
        self._lines: dict[str, int] = {}

    def claim(self) -> Token:
        """Takes the name of a new declaration."""
        token = self.cursor.peek()
        if token.kind not in ("word", "name"):
            raise self.cursor.wrong("a name")
        if token.kind == "word" and name(token.text) != token.text:
            raise self.cursor.wrong(
                "a plain name (in backquotes if it is a reserved word or has dots)"
            )
        if token.text in self._lines:
            raise self.cursor.error(
                token,
                f"expected a new name, found {token}, declared in line {self._lines[token.text]}",
            )
        self._lines[token.text] = token.line
        return self.cursor.next()

    def declare(self, token: Token, item: object) -> None:
        """From here on the claimed name means ``item``."""
        self._objects[token.text] = item

    def get(self, token: Token) -> object | None:
        """What a token names; None if it is no declared name."""
        if token.kind != "name" and (token.kind != "word" or token.text in RESERVED):
            return None
        return self._objects.get(token.text)

    def head(self, token: Token) -> str | None:
        """Which kind of operand the token starts if it is a declared name."""
        item = self.get(token)
        return None if item is None else DECLARATIONS[type(item)].head

    def take(self, types: tuple[type, ...], what: str) -> object:
        """Takes a name that must mean one of ``types``; ``what`` describes it."""
        token = self.cursor.peek()
        item = self.get(token)
        if not isinstance(item, types):
            raise self.unknown(types, what)
        self.cursor.next()
        return item

    def unknown(self, types: tuple[type, ...], what: str) -> ParseError:
        """The error that the next token names nothing of ``types``; ``what`` was expected."""
        token = self.cursor.peek()
        item = self.get(token)
        if item is not None:
            keyword = DECLARATIONS[type(item)].keyword
            return self.cursor.error(
                token, f"expected {what}, found {token}, declared as {keyword}"
            )
        if token.kind not in ("word", "name"):
            return self.cursor.wrong(what)
        known = [word for word, item in self._objects.items() if isinstance(item, types)]
        return self.cursor.error(
            token,
            f"expected {what}, found {token}, which is not declared{suggest(token.text, known)}",
        )


# ------------------------------------------------------------------ expressions


_LITERALS: dict[str, bool | float] = {
    "true": True, "false": False, "inf": math.inf, "nan": math.nan,
}  # fmt: skip


#: what declares something that has an address
_ADDRESSED = (GlobalTensor, SharedTensor, Mbarriers, TensorMap)


class _Tree(NamedTuple):
    """An expression and how many levels it has."""

    expr: Expr
    height: int


class _Pending(NamedTuple):
    """An operator whose right operand is not complete yet."""

    token: Token
    precedence: int
    prefix: bool


class ExpressionParser:
    """Parses expressions over the names of ``scope``."""

    def __init__(self, cursor: Cursor, scope: Scope) -> None:
        self._cursor = cursor
        self._scope = scope
        self._depth = 0

    def expression(self) -> Expr:
        """Takes an expression."""
        return self._tree().expr

    def number(self) -> float | None:
        """Takes a floating-point literal if one comes next."""
        sign = -1.0 if self._cursor.at("-") else 1.0
        token = self._cursor.peek(1 if sign < 0 else 0)
        if token.kind != "float" and not (token.kind == "word" and token.text in ("inf", "nan")):
            return None
        if sign < 0:
            self._cursor.next()
        self._cursor.next()
        return math.nan if token.text == "nan" else sign * float(token.text)

    def _tree(self) -> _Tree:
        cursor = self._cursor
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._too_deep(cursor.peek())
        done: list[_Tree] = []
        pending: list[_Pending] = []
        while True:
            self._prefixes(pending)
            done.append(self._operand())
            token = cursor.peek()
            precedence = PRECEDENCE.get(token.text) if token.kind in ("symbol", "word") else None
            self._reduce(done, pending, precedence or 0)
            if precedence is None:
                break
            if precedence == COMPARISON and pending and pending[-1].precedence == COMPARISON:
                raise cursor.error(
                    token, f"expected '(' around a comparison to compare, found {token}"
                )
            pending.append(_Pending(cursor.next(), precedence, False))
        self._depth -= 1
        return done[0]

    def _prefixes(self, pending: list[_Pending]) -> None:
        """Takes prefix operators; a minus sign before a number belongs to the number."""
        cursor = self._cursor
        while True:
            token = cursor.peek()
            known = token.kind in ("symbol", "word") and token.text in PREFIX
            if not known or (token.text == "-" and self._is_number(cursor.peek(1))):
                return
            if len(pending) > 2 * MAX_DEPTH:
                raise self._too_deep(token)
            pending.append(_Pending(cursor.next(), PREFIX[token.text], True))

    def _reduce(self, done: list[_Tree], pending: list[_Pending], precedence: int) -> None:
        """Applies the operators that bind tighter than the next; comparisons do not chain."""
        while pending and pending[-1].precedence >= precedence:
            if pending[-1].precedence == precedence == COMPARISON:
                return
            token, _, prefix = pending.pop()
            right = done.pop()
            if prefix:
                tree = _Tree(Unary(cast(UnaryOp, token.text), right.expr), right.height + 1)
            else:
                left = done.pop()
                node = Binary(cast(BinaryOp, token.text), left.expr, right.expr)
                tree = _Tree(node, max(left.height, right.height) + 1)
            done.append(self._checked(tree, token))

    def _checked(self, tree: _Tree, token: Token) -> _Tree:
        if tree.height > MAX_DEPTH:
            raise self._too_deep(token)
        return tree

    def _too_deep(self, token: Token) -> ParseError:
        return self._cursor.error(
            token, f"expected an expression of at most {MAX_DEPTH} levels, found a deeper one"
        )

    @staticmethod
    def _is_number(token: Token) -> bool:
        return token.kind in ("int", "float") or (
            token.kind == "word" and token.text in ("inf", "nan")
        )

    def _operand(self) -> _Tree:
        cursor, token = self._cursor, self._cursor.peek()
        if cursor.at("-") or self._is_number(token):
            number = self.number()
            return _Tree(Const(cursor.integer() if number is None else number), 1)
        if cursor.at("%"):
            return _Tree(self._special(), 1)
        if cursor.accept("("):
            inner = self._tree()
            cursor.expect(")", f" to close the '(' of line {token.line}")
            return inner
        if token.kind == "word" and token.text in ("true", "false"):
            return _Tree(Const(_LITERALS[cursor.next().text]), 1)
        if token.kind == "word" and (token.text in CALLS or token.text == "select"):
            return self._call(cursor.next())
        if token.kind == "word" and token.text == ADDRESS and cursor.at("(", 1):
            return _Tree(self._base(cursor.next()), 1)
        if token.kind not in ("word", "name"):
            raise cursor.wrong("an expression")
        item = self._scope.take((Var, ScalarParam), "a variable or scalar parameter")
        return _Tree(cast(Expr, item), 1)

    def _special(self) -> Special:
        percent = self._cursor.next()
        token = self._cursor.peek()
        if token.kind != "word" or token.start != percent.start + 1:
            raise self._cursor.wrong("the name of a special register after '%'")
        if token.text not in SPECIALS:
            raise self._cursor.error(
                percent,
                f"expected a special register, found '%{token.text}'"
                f"{suggest(token.text, list(SPECIALS))}",
            )
        return Special(cast(SpecialName, self._cursor.next().text))

    def _base(self, function: Token) -> Base:
        self._cursor.expect("(", f" after '{function.text}'")
        item = self._scope.take(_ADDRESSED, "what has an address")
        self._cursor.expect(")", f" to close the '(' of line {function.line}")
        assert isinstance(item, _ADDRESSED)
        near = isinstance(item, SharedTensor | Mbarriers)
        return Base(item.name, "shared" if near else "global")

    def _call(self, function: Token) -> _Tree:
        count = 3 if function.text == "select" else 2
        self._cursor.expect("(", f" after '{function.text}'")
        trees = [self._tree()]
        while len(trees) < count:
            self._cursor.expect(",", f" ({function.text} takes {count} arguments)")
            trees.append(self._tree())
        self._cursor.expect(")", f" ({function.text} takes {count} arguments)")
        parts = [t.expr for t in trees]
        node: Expr = (
            Select(parts[0], parts[1], parts[2])
            if count == 3
            else Binary(cast(BinaryOp, function.text), parts[0], parts[1])
        )
        return self._checked(_Tree(node, max(t.height for t in trees) + 1), function)


# ------------------------------------------------------------------ operands


_TENSORS = (GlobalTensor, SharedTensor)
#: which declarations an operand of a type may start with
_NAMED: Final[dict[type, tuple[type, ...]]] = {
    Expr: (Var, ScalarParam),
    View: _TENSORS,
    Mbar: (Mbarriers,),
    **{t: (t,) for t in DECLARATIONS},
}


class OperandParser:
    """Parses operand lists and single operands of any `Form`."""

    def __init__(self, cursor: Cursor, scope: Scope) -> None:
        self._cursor = cursor
        self._scope = scope
        self._expressions = ExpressionParser(cursor, scope)

    def expression(self) -> Expr:
        """Takes an expression."""
        return self._expressions.expression()

    def arguments(self, what: Token, fields: tuple[Operand, ...]) -> dict[str, Any]:
        """Takes ``a, b, name=c`` up to the end of the line; ``what`` is what they belong to."""
        values: dict[str, Any] = {}
        by_name = {o.name: o for o in fields}
        keywords = False
        while not self._at_end() or values:
            keyword = self._cursor.peek().kind == "word" and self._cursor.at("=", 1)
            keywords = keywords or keyword
            if keyword:
                operand = self._keyword(what, by_name, values)
            elif keywords:
                raise self._cursor.wrong("name=value after the first name=value")
            else:
                operand = self._positional(what, fields, len(values))
            values[operand.name] = self.read(operand.form)
            if not self._cursor.accept(","):
                break
            self._cursor.skip_newlines()
        missing = [o.name for o in fields if o.required and o.name not in values]
        if missing:
            raise self._cursor.wrong(f"operand {missing[0]} of {_usage(what, fields)}")
        return values

    def _at_end(self) -> bool:
        token = self._cursor.peek()
        return token.kind in ("newline", "end") or (
            token.kind == "symbol" and token.text in ("@", "}", ")")
        )

    def _keyword(self, what: Token, by_name: dict[str, Operand], values: dict[str, Any]) -> Operand:
        token = self._cursor.peek()
        if token.text not in by_name:
            raise self._cursor.error(
                token,
                f"expected an operand of {_usage(what, tuple(by_name.values()))}, found "
                f"{token}{suggest(token.text, list(by_name))}",
            )
        if token.text in values:
            raise self._cursor.error(token, f"expected every operand once, found {token} again")
        self._cursor.next()
        self._cursor.next()
        return by_name[token.text]

    def _positional(self, what: Token, fields: tuple[Operand, ...], index: int) -> Operand:
        if index >= len(fields):
            raise self._cursor.wrong(f"at most {len(fields)} operands of {_usage(what, fields)}")
        return fields[index]

    def read(self, form: Form) -> Any:
        """Takes a value of this form."""
        match form:
            case Leaf(type=leaf):
                return _READERS[leaf](self)
            case Choice():
                return self._choice(form)
            case Many(element=element):
                return self._list(element)
            case Fixed(elements=elements):
                return self._record(elements)
            case Inline(type=cls):
                return self._inline(cls)
            case Either():
                return self.read(self._member(form))

    def _member(self, form: Either) -> Form:
        """The member of the union that the next token starts."""
        for head in self._heads():
            for member in form.members:
                if head in heads(member):
                    return member
        named = tuple(
            t for m in form.members if isinstance(m, Leaf) for t in _NAMED.get(m.type, ())
        )
        raise self._scope.unknown(named, describe(form))

    def _heads(self) -> tuple[str, ...]:
        """The heads that the next token may be, the likeliest first."""
        cursor, token = self._cursor, self._cursor.peek()
        declared = self._scope.head(token)
        match token.kind:
            case "int" | "float" | "string":
                return (token.kind,)
            case "symbol" if token.text == "{":
                return ("brace",)
            case "symbol" if token.text == "-":
                ahead = cursor.peek(1)
                number = "float" if ahead.text in ("inf", "nan") else ahead.kind
                return (number, "operator") if number in ("int", "float") else ("operator",)
            case "symbol" if token.text in ("(", "%", "~"):
                return ("operator",)
            case "name":
                return (declared,) if declared else ()
            case "word" if cursor.at("(", 1) and token.text == ADDRESS:
                return ("operator",)
            case "word" if cursor.at("(", 1) and token.text in INLINE.values():
                return (f"{token.text}(",)
            case "word":
                return (*_WORD_HEADS.get(token.text, ()), *([declared] if declared else ()),
                        "dtype", "target", "word")  # fmt: skip
            case _:
                return ()

    def _choice(self, form: Choice) -> object:
        token = self._cursor.peek()
        negative = token.text == "-" and self._cursor.peek(1).kind == "int"
        for value in form.values:
            if isinstance(value, str):
                same = token.kind in ("word", "string") and token.text == value
            elif isinstance(value, bool):
                same = token.kind == "word" and token.text == str(value).lower()
            else:
                number = self._cursor.peek(1) if negative else token
                same = number.kind == "int" and value == self._cursor.value(number) * (
                    -1 if negative else 1
                )
            if same:
                self._cursor.next()
                if negative:
                    self._cursor.next()
                return value
        known = [v for v in form.values if isinstance(v, str)]
        hint = suggest(token.text, known) if token.kind == "word" else ""
        raise self._cursor.error(token, f"expected {describe(form)}, found {token}{hint}")

    def _inline(self, cls: type) -> Any:
        keyword = self._cursor.expect_word(INLINE[cls])
        self._cursor.expect("(", f" after '{INLINE[cls]}'")
        values = self.arguments(keyword, operands(cls))
        self._cursor.expect(")", f" to close the '(' of line {keyword.line}")
        try:
            return cls(**values)
        except (TypeError, ValueError) as error:
            message = f"expected a valid {keyword.text}, found: {error}"
            raise self._cursor.error(keyword, message) from None

    def _list(self, element: Form) -> tuple[Any, ...]:
        opening = self._cursor.expect("{", " of a list")
        items: list[Any] = []
        self._cursor.skip_newlines()
        while not self._cursor.at("}"):
            items.append(self.read(element))
            self._cursor.skip_newlines()
            if not self._cursor.accept(","):
                break
            self._cursor.skip_newlines()
        self._cursor.expect("}", f" to close the list of line {opening.line}")
        return tuple(items)

    def _record(self, elements: tuple[Form, ...]) -> tuple[Any, ...]:
        count = f" (the list has {len(elements)} elements)"
        self._cursor.expect("{", " of a list")
        items: list[Any] = []
        for index, element in enumerate(elements):
            if index:
                self._cursor.expect(",", count)
            self._cursor.skip_newlines()
            items.append(self.read(element))
            self._cursor.skip_newlines()
        self._cursor.expect("}", count)
        return tuple(items)

    def _word(self, what: str, table: dict[str, Any]) -> Any:
        token = self._cursor.peek()
        if token.kind != "word" or token.text not in table:
            known = f"{what} ({', '.join(table)})" if len(table) < 10 else what
            hint = suggest(token.text, list(table)) if token.kind == "word" else ""
            raise self._cursor.error(token, f"expected {known}, found {token}{hint}")
        self._cursor.next()
        return table[token.text]

    def _float(self) -> float:
        value = self._expressions.number()
        if value is None:
            raise self._cursor.wrong("a floating-point number")
        return value

    def named(self, type_: type, what: str) -> Any:
        """Takes the name of something declared as ``type_``."""
        return self._scope.take((type_,), what)

    def mbar(self) -> Mbar:
        """Takes an mbarrier."""
        if self._cursor.at_word(INLINE[AddressedMbarriers]) and self._cursor.at("(", 1):
            return Mbar(self._inline(AddressedMbarriers), Const(0))
        array = self.named(Mbarriers, "an mbarrier")
        self._cursor.expect("[", f" after the mbarrier array {array.name}")
        mbar = self._element(array)
        self._cursor.expect("]")
        return mbar if not self._cursor.accept(".at") else mbar.at(self._peer())

    def _element(self, array: Mbarriers) -> Mbar:
        """Takes what says which mbarrier of an array it is."""
        token = self._cursor.peek()
        return self._at(array, self.expression(), token)

    def _at(self, array: Mbarriers, index: Expr, token: Token) -> Mbar:
        try:
            return array[index]
        except InvalidProgram:
            raise self._cursor.error(
                token, f"expected an index below {array.count} of {array.name}, found {index}"
            ) from None

    def _peer(self) -> Expr:
        self._cursor.expect("(", " after '.at'")
        cta = self.expression()
        self._cursor.expect(")")
        return cta

    def view(self) -> View:
        """Takes a view of a tensor."""
        tensor = self._tensor()
        if not tensor.shape and isinstance(tensor, AddressedTensor):
            return View(tensor, (), (), ())
        self._cursor.expect("[", f" after the tensor {tensor.name}")
        box = list(self._box(tensor))
        self._cursor.expect("]", _rank(tensor))
        offsets, extents = tuple(start for start, _, _ in box), tuple(size for _, size, _ in box)
        dims = tuple(dim for dim, (_, _, keep) in enumerate(box) if keep)
        named = not isinstance(tensor, AddressedTensor)
        cta = self._peer() if named and self._cursor.accept(".at") else None
        return View(tensor, offsets, extents, dims, cta)

    def _box(self, tensor: Tensor) -> Iterator[tuple[Expr, int, bool]]:
        """Takes per dimension of a tensor: start, size, whether the dimension remains."""
        for dim, extent in enumerate(tensor.shape):
            if dim:
                self._cursor.expect(",", _rank(tensor))
            yield (Const(0), extent, True) if self._cursor.accept(":") else self._dimension()

    def _tensor(self) -> Tensor:
        if self._cursor.at_word(INLINE[AddressedTensor]) and self._cursor.at("(", 1):
            found = self._inline(AddressedTensor)
            assert isinstance(found, AddressedTensor)
            return found
        declared = self._scope.take(_TENSORS, "a tensor view")
        assert isinstance(declared, _TENSORS)
        return declared

    def _dimension(self) -> tuple[Expr, int, bool]:
        """``start:+size`` or an index: (start, size, whether the dimension remains)."""
        start = self.expression()
        if not self._cursor.accept(":+"):
            return start, 1, False
        return start, self._cursor.integer("a number of elements", negative=False), True

    def word(self, word: str) -> None:
        """Takes this word."""
        self._cursor.expect_word(word)

    def integer(self) -> int:
        """Takes an integer."""
        return self._cursor.integer()

    def string(self) -> str:
        """Takes a string."""
        return self._cursor.string()

    def boolean(self) -> bool:
        """Takes ``true`` or ``false``."""
        return bool(self._word("a flag", {"true": True, "false": False}))

    def dtype(self) -> DType:
        """Takes the name of an element type."""
        result = self._word("an element type", DTYPES)
        assert isinstance(result, DType)
        return result

    def target(self) -> Target:
        """Takes the name of a target."""
        result = self._word("a target", TARGETS)
        assert isinstance(result, Target)
        return result


def _rank(tensor: Tensor) -> str:
    return f" ({tensor.name} has {len(tensor.shape)} dimensions)"


def _usage(what: Token, fields: tuple[Operand, ...]) -> str:
    """``mbarrier.init (mbar, count)``."""
    names = ", ".join(o.name if o.required else f"[{o.name}]" for o in fields)
    return f"{what.text} ({names})"


_WORD_HEADS: Final[dict[str, tuple[str, ...]]] = {
    "true": ("bool",), "false": ("bool",), "none": ("none",), "inf": ("float",),
    "nan": ("float",), "not": ("operator",), "select": ("operator",),
    **dict.fromkeys(CALLS, ("operator",)),
}  # fmt: skip

_READERS: Final[dict[type, Callable[[OperandParser], Any]]] = {
    NoneType: lambda p: p.word("none"),
    bool: OperandParser.boolean,
    int: OperandParser.integer,
    float: OperandParser._float,
    str: OperandParser.string,
    DType: OperandParser.dtype,
    Target: OperandParser.target,
    Expr: OperandParser.expression,
    View: OperandParser.view,
    Mbar: OperandParser.mbar,
    Var: lambda p: p.named(Var, "a variable"),
    ScalarParam: lambda p: p.named(ScalarParam, "a scalar parameter"),
    GlobalTensor: lambda p: p.named(GlobalTensor, "a global tensor"),
    SharedTensor: lambda p: p.named(SharedTensor, "a shared tensor"),
    Mbarriers: lambda p: p.named(Mbarriers, "an mbarrier array"),
    TensorMap: lambda p: p.named(TensorMap, "a tensor map"),
    Fragment: lambda p: p.named(Fragment, "a fragment"),
}


# ------------------------------------------------------------------ programs


T = TypeVar("T")
_KEYWORDS: Final[dict[str, tuple[type, Declared]]] = {
    d.keyword: (cls, d) for cls, d in DECLARATIONS.items()
}


def parse(text: str, filename: str = "<text>") -> Program:
    """The program that ``text`` describes; ``filename`` is what errors and locations name.

    A statement without a location annotation is at its line of ``filename``.

    Raises:
        ParseError: the text is malformed; the message starts with ``file:line:column``.
    """
    try:
        return Parser(text, filename).program()
    except RecursionError:
        raise ParseError(
            f"{filename}:1:1: expected a text that fits Python's stack, found it nearly full; "
            "parse from a shallower call"
        ) from None


class Parser:
    """Recursive descent over regions and statements."""

    def __init__(self, text: str, filename: str) -> None:
        self._cursor = Cursor(text, filename)
        self._scope = Scope(self._cursor)
        self._operands = OperandParser(self._cursor, self._scope)
        self._sources: dict[int, tuple[str, str]] = {}
        self._regions = 0
        self._declared: dict[str, list[Any]] = {d.field: [] for d in DECLARATIONS.values()}

    def program(self) -> Program:
        """Takes the whole text."""
        make = self._launch("tile", "body")
        body, _ = self._block(self._cursor.next())
        self._finish("the body")
        return make(body)

    def _launch(self, kind: str, end: str) -> Callable[[tuple[Stmt, ...]], Program]:
        """Takes everything before the word ``end``; what makes the program of a body from it."""
        self._header(kind)
        token, name, values, loc = self._kernel()
        while not self._cursor.at_word(end):
            self._declaration(end)
            self._cursor.skip_newlines()
        values |= {field: tuple(items) for field, items in self._declared.items()}
        return lambda body: self._make(
            token, lambda: Program(name=name, **values, body=body, loc=loc)
        )

    def _finish(self, what: str) -> None:
        """The text ends here."""
        self._cursor.skip_newlines()
        if self._cursor.peek().kind != "end":
            raise self._cursor.wrong(f"the end of the text after {what}")

    def _header(self, kind: str) -> None:
        cursor = self._cursor
        cursor.skip_newlines()
        cursor.expect_word(kind, " and the version in the first line")
        version = cursor.peek()
        if cursor.integer("the version of the format") != VERSIONS[kind]:
            raise cursor.error(
                version, f"expected version {VERSIONS[kind]} of the format, found {version}"
            )
        self._end_line("the version")
        while cursor.at_word("source"):
            cursor.next()
            token = cursor.peek()
            number = cursor.integer("the number of a source", negative=False)
            if number in self._sources:
                raise cursor.error(token, f"expected a new source number, found {number} again")
            file = cursor.string("the source's file as a string")
            function = cursor.string() if cursor.peek().kind == "string" else ""
            self._sources[number] = (file, function)
            self._end_line("the source")

    def _kernel(self) -> tuple[Token, str, dict[str, Any], Loc]:
        cursor = self._cursor
        start = cursor.expect_word("kernel", " and the launch")
        token = cursor.peek()
        if token.kind not in ("word", "name"):
            raise cursor.wrong("the kernel's name")
        cursor.next()
        cursor.expect(":", " after the kernel's name")
        values = self._operands.arguments(start, launch_operands())
        return start, token.text, values, self._loc(start, "the kernel")

    def _declaration(self, end: str) -> None:
        cursor, token = self._cursor, self._cursor.peek()
        if token.kind != "word" or token.text not in _KEYWORDS:
            known = [*_KEYWORDS, end]
            hint = suggest(token.text, known) if token.kind == "word" else ""
            raise cursor.error(
                token, f"expected {', '.join(_KEYWORDS)} or {end}, found {token}{hint}"
            )
        cls, declared = _KEYWORDS[cursor.next().text]
        name = self._scope.claim()
        rest = declaration_operands(cls)
        values: dict[str, Any] = {}
        if any(o.required for o in rest):
            cursor.expect(":", " after the name")
            values = self._operands.arguments(token, rest)
        elif cursor.accept(":"):
            values = self._operands.arguments(token, rest)
        loc = self._loc(token, "the declaration")
        if has_loc(cls):
            values["loc"] = loc
        item = self._make(token, lambda: cls(name=name.text, **values))
        self._declared[declared.field].append(item)
        self._scope.declare(name, item)

    def _end_line(self, what: str) -> None:
        """The line ends here; goes to the next one that is not empty."""
        cursor = self._cursor
        if cursor.peek().kind not in ("newline", "end") and not cursor.at("}"):
            raise cursor.wrong(f"the end of {what}")
        cursor.skip_newlines()

    def _annotation(self, token: Token) -> Loc:
        """Takes ``@source:line`` if it comes next; else the place of ``token``."""
        cursor = self._cursor
        if not cursor.accept("@"):
            return Loc(cursor.filename, token.line)
        number = cursor.peek()
        source = cursor.integer("the number of a source", negative=False)
        if source not in self._sources:
            raise cursor.error(
                number, f"expected the number of a source, found {source}, not declared"
            )
        cursor.expect(":", " between source and line")
        line = cursor.integer("a line number", negative=False)
        file, function = self._sources[source]
        return Loc(file, line, function)

    def _loc(self, token: Token, what: str) -> Loc:
        """Takes the rest of a line."""
        loc = self._annotation(token)
        self._end_line(what)
        return loc

    def _block(self, owner: Token) -> tuple[tuple[Stmt, ...], Loc]:
        """Takes ``{ statements }``; ``owner`` is the statement it belongs to, whose location may
        follow the opening brace."""
        cursor = self._cursor
        opening = cursor.expect("{", f" of the '{owner.text}' of line {owner.line}")
        self._regions += 1
        if self._regions > MAX_REGIONS:
            raise cursor.error(
                opening, f"expected at most {MAX_REGIONS} nested regions, found more"
            )
        loc = self._annotation(owner)
        self._end_line("the line after '{'")
        body: list[Stmt] = []
        while not cursor.at("}"):
            if cursor.peek().kind == "end":
                raise cursor.wrong(f"'}}' to close the '{owner.text}' of line {owner.line}")
            body.append(self._statement())
        cursor.next()
        self._regions -= 1
        return tuple(body), loc

    def _statement(self) -> Stmt:
        cursor, token = self._cursor, self._cursor.peek()
        if token.kind != "word":
            raise cursor.wrong("a statement or '}'")
        cursor.next()
        control = _CONTROL.get(token.text)
        stmt = control(self, token) if control else self._instruction(token)
        if control:
            self._end_line(f"the '{token.text}'")
        return stmt

    def _instruction(self, token: Token) -> Op:
        cls = OPS.get(token.text)
        if cls is None:
            raise self._cursor.error(
                token,
                f"expected an instruction, found {token}{suggest(token.text, [*OPS, *_CONTROL])}",
            )
        values = self._operands.arguments(token, operands(cls))
        loc = self._loc(token, f"'{token.text}'")
        return self._make(token, lambda: cls(**values, loc=loc))

    def _for(self, token: Token) -> Stmt:
        cursor = self._cursor
        var: Var = self._operands.named(Var, "the loop's variable")
        cursor.expect_word("in", " after the loop's variable")
        cursor.expect_word("range", " after 'in'")
        cursor.expect("(", " after 'range'")
        bounds: list[Expr] = [self._operands.expression()]
        while len(bounds) < 3 and cursor.accept(","):
            bounds.append(self._operands.expression())
        cursor.expect(")", " (range takes at most start, stop, step)")
        start = bounds[0] if len(bounds) > 1 else Const(0)
        stop = bounds[1] if len(bounds) > 1 else bounds[0]
        step = bounds[2] if len(bounds) > 2 else Const(1)
        sync = self._sync()
        body, loc = self._block(token)
        return For(var=var, start=start, stop=stop, step=step, body=body, sync=sync, loc=loc)

    def _while(self, token: Token) -> Stmt:
        cond, sync = self._operands.expression(), self._sync()
        body, loc = self._block(token)
        return While(cond=cond, body=body, sync=sync, loc=loc)

    def _sync(self) -> bool:
        """Whether lanes meet behind the region: takes ``nosync`` if they do not."""
        if not self._cursor.at_word("nosync"):
            return True
        self._cursor.next()
        return False

    def _if(self, token: Token) -> Stmt:
        cond, sync = self._operands.expression(), self._sync()
        then, loc = self._block(token)
        orelse: tuple[Stmt, ...] = ()
        if self._cursor.at_word("else"):
            orelse, _ = self._block(self._cursor.next())
        return If(cond=cond, then=then, orelse=orelse, sync=sync, loc=loc)

    def _role(self, token: Token) -> Stmt:
        name = self._cursor.string("the role's name as a string")
        self._cursor.expect_word("warps", " after the role's name")
        warps = self._warps()
        body, loc = self._block(token)
        return Role(name=name, warps=warps, body=body, loc=loc)

    def _warps(self) -> tuple[int, ...]:
        """Takes ``none`` or ``0..3, 6``."""
        cursor = self._cursor
        if cursor.at_word("none"):
            cursor.next()
            return ()
        warps: list[int] = []
        while True:
            token = cursor.peek()
            first = cursor.integer("a warp number")
            last = cursor.integer("the last warp") if cursor.accept("..") else first
            if last < first:
                raise cursor.error(
                    token, f"expected a rising range of warps, found {first}..{last}"
                )
            if last - first >= MAX_WARPS or len(warps) >= MAX_WARPS:
                raise cursor.error(token, f"expected at most {MAX_WARPS} warps, found more")
            warps.extend(range(first, last + 1))
            if not cursor.accept(","):
                return tuple(warps)

    def _break(self, token: Token) -> Stmt:
        return Break(loc=self._annotation(token))

    def _else(self, token: Token) -> Stmt:
        raise self._cursor.error(
            token, "expected a statement, found an 'else' on no line of an if's '}'"
        )

    def _make(self, token: Token, construct: Callable[[], T]) -> T:
        """What ``construct`` makes; what a constructor rejects is an error at ``token``."""
        try:
            return construct()
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            raise self._cursor.error(
                token, f"expected a valid {token.text}, found: {error}"
            ) from None


_CONTROL: Final[dict[str, Callable[[Parser, Token], Stmt]]] = {
    "for": Parser._for,
    "while": Parser._while,
    "if": Parser._if,
    "else": Parser._else,
    "role": Parser._role,
    "break": Parser._break,
}
