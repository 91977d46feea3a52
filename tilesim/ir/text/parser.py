"""Parsing of a whole ``.tile`` text into a `Program`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from tilesim.errors import ParseError
from tilesim.ir.expr import Const, Expr, Var
from tilesim.ir.loc import Loc
from tilesim.ir.op import OPS, Op
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While
from tilesim.ir.text.forms import declaration_operands, has_loc, launch_operands, operands
from tilesim.ir.text.grammar import DECLARATIONS, MAX_REGIONS, MAX_WARPS, VERSIONS, Declared
from tilesim.ir.text.lexer import Cursor, Token
from tilesim.ir.text.operands import OperandParser
from tilesim.ir.text.scope import Scope, suggest

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
