"""Parsing of expressions: operator precedence with explicit stacks, no folding."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

from tilesim.errors import ParseError
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
from tilesim.ir.memory import GlobalTensor, Mbarriers, SharedTensor, TensorMap
from tilesim.ir.text.grammar import ADDRESS, CALLS, COMPARISON, MAX_DEPTH, PRECEDENCE, PREFIX
from tilesim.ir.text.lexer import Cursor, Token
from tilesim.ir.text.scope import Scope, suggest

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
