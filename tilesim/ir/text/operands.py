"""Parsing of operands: one reader per type, chosen by the form of the field."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import NoneType
from typing import Any, Final

from tilesim.arith.types import DTYPES, DType
from tilesim.errors import InvalidProgram
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.expr import Const, Expr, ScalarParam, Var
from tilesim.ir.memory import (
    Fragment,
    GlobalTensor,
    Mbar,
    Mbarriers,
    SharedTensor,
    Tensor,
    TensorMap,
    View,
)
from tilesim.ir.target import TARGETS, Target
from tilesim.ir.text.expressions import ExpressionParser
from tilesim.ir.text.forms import (
    Choice,
    Either,
    Fixed,
    Form,
    Inline,
    Leaf,
    Many,
    Operand,
    describe,
    heads,
    operands,
)
from tilesim.ir.text.grammar import ADDRESS, CALLS, DECLARATIONS, INLINE
from tilesim.ir.text.lexer import Cursor, Token
from tilesim.ir.text.scope import Scope, suggest

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
