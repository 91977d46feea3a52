"""The names a text has declared so far."""

from __future__ import annotations

from difflib import get_close_matches

from tilesim.errors import ParseError
from tilesim.ir.text.grammar import DECLARATIONS, RESERVED, name
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
