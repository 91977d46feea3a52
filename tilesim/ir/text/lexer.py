"""Tokens of a ``.tile`` text, made one at a time as the parser asks for them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tilesim.errors import ParseError
from tilesim.ir.text.forms import ESCAPES, MAX_CHARS, MAX_DIGITS, MAX_INT

Kind = Literal["word", "name", "string", "int", "float", "symbol", "newline", "end"]


class Token(NamedTuple):
    """A token: ``text`` is a word, name or string without its quotes, ``start`` its offset."""

    kind: Kind
    text: str
    line: int
    column: int
    start: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "newline":
                return "the end of the line"
            case "end":
                return "the end of the text"
            case "string":
                return f'"{_cut(self.text)}"'
            case _:
                return f"'{_cut(self.text)}'"


def _cut(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}..."


_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\#[^\n]*)
      | (?P<newline>\n)
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*(?:(?:\.|::)[A-Za-z0-9_]+)*)
      | (?P<number>0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<quoted>["`])
      | (?P<symbol>\.at\b|\.\.|:\+|//|<<|>>|[=!<>]=|[-+*%&|^~<>=,:@(){}\[\]])""",
    re.VERBOSE | re.ASCII,
)
_WORD_CHARS = re.compile(r"[A-Za-z0-9_.]*", re.ASCII)
_BODY = {mark: re.compile(rf"[^{mark}\\\n]+") for mark in '"`'}
_ESCAPE = re.compile(r"""\\(?:([ntr"`\\])|u\{([0-9a-fA-F]{1,6})\})""")


class Cursor:
    """The tokens of a text, with lookahead; every error names file, line and column."""

    def __init__(self, text: str, filename: str) -> None:
        self.text = text
        self.filename = filename
        if len(text) > MAX_CHARS:
            first = Token("end", "", 1, 1)
            raise self.error(first, f"expected at most {MAX_CHARS} characters, found {len(text)}")
        self._tokens = self._scan()
        self._ahead: deque[Token] = deque()

    def peek(self, distance: int = 0) -> Token:
        """The token ``distance`` tokens ahead."""
        while len(self._ahead) <= distance:
            self._ahead.append(next(self._tokens))
        return self._ahead[distance]

    def next(self) -> Token:
        """Takes the next token."""
        token = self.peek()
        if token.kind != "end":
            self._ahead.popleft()
        return token

    def at(self, symbol: str, distance: int = 0) -> bool:
        """Whether this symbol comes next."""
        token = self.peek(distance)
        return token.kind == "symbol" and token.text == symbol

    def at_word(self, word: str) -> bool:
        """Whether this word comes next."""
        token = self.peek()
        return token.kind == "word" and token.text == word

    def accept(self, symbol: str) -> bool:
        """Takes the symbol if it comes next."""
        found = self.at(symbol)
        if found:
            self.next()
        return found

    def expect(self, symbol: str, purpose: str = "") -> Token:
        """Takes the symbol, which must come next; ``purpose`` completes the message."""
        if not self.at(symbol):
            raise self.wrong(f"'{symbol}'{purpose}")
        return self.next()

    def expect_word(self, word: str, purpose: str = "") -> Token:
        """Takes the word, which must come next."""
        if not self.at_word(word):
            raise self.wrong(f"'{word}'{purpose}")
        return self.next()

    def skip_newlines(self) -> None:
        """Goes to the next token that is no line end."""
        while self.peek().kind == "newline":
            self.next()

    def integer(self, what: str = "an integer", *, negative: bool = True) -> int:
        """Takes an integer, with a minus sign if ``negative``."""
        sign = -1 if negative and self.at("-") and self.peek(1).kind == "int" else 1
        if sign < 0:
            self.next()
        if self.peek().kind != "int":
            raise self.wrong(what)
        return sign * self.value(self.next())

    def value(self, token: Token) -> int:
        """The value of an ``int`` token."""
        value = int(token.text, 0 if token.text[:2] in ("0x", "0X") else 10)
        if value > MAX_INT:
            raise self.error(token, f"expected an integer below 2^64, found {token}")
        return value

    def string(self, what: str = "a string") -> str:
        """Takes a string."""
        if self.peek().kind != "string":
            raise self.wrong(what)
        return self.next().text

    def wrong(self, expected: str) -> ParseError:
        """The error that the next token is not what it should be."""
        token = self.peek()
        return self.error(token, f"expected {expected}, found {token}")

    def error(self, token: Token, message: str) -> ParseError:
        """The error at ``token``."""
        return ParseError(f"{self.filename}:{token.line}:{token.column}: {message}")

    def _scan(self) -> Iterator[Token]:
        text, position, line, start, depth = self.text, 0, 1, 0, 0
        while position < len(text):
            here = Token("symbol", text[position], line, position - start + 1, position)
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.error(here, f"expected a token, found {text[position]!r}")
            position = match.end()
            match match.lastgroup:
                case "newline":
                    if depth <= 0:
                        yield here._replace(kind="newline", text="")
                    line, start = line + 1, position
                case "word":
                    yield Token("word", match.group(), here.line, here.column, here.start)
                case "number":
                    yield self._number(here, match.group(), position)
                case "quoted":
                    content, position = self._quoted(here, position)
                    yield here._replace(kind="string" if here.text == '"' else "name", text=content)
                case "symbol":
                    symbol = match.group()
                    depth = max(0, depth + (symbol in ("(", "[")) - (symbol in (")", "]")))
                    yield Token("symbol", symbol, here.line, here.column, here.start)
                case _:
                    pass
        end = Token("end", "", line, position - start + 1, position)
        while True:
            yield end

    def _number(self, here: Token, digits: str, position: int) -> Token:
        if len(digits) > MAX_DIGITS:
            raise self.error(here, f"expected a number, found one of {len(digits)} digits")
        if not self.text.startswith("..", position):
            rest = _WORD_CHARS.match(self.text, position)
            if rest is not None and rest.group():
                raise self.error(here, f"expected a number, found '{_cut(digits + rest.group())}'")
        hexadecimal = digits[:2] in ("0x", "0X")
        if hexadecimal or digits.isdigit():
            return here._replace(kind="int", text=digits)
        if float(digits) == float("inf"):
            raise self.error(
                here, f"expected a floating-point number, found '{_cut(digits)}' beyond f64"
            )
        return here._replace(kind="float", text=digits)

    def _quoted(self, here: Token, position: int) -> tuple[str, int]:
        """The content of a string or backquoted name, and where it ends."""
        mark, parts = here.text, list[str]()
        while position < len(self.text) and self.text[position] != "\n":
            if self.text[position] == mark:
                return "".join(parts), position + 1
            match = _BODY[mark].match(self.text, position)
            if match is not None:
                parts.append(match.group())
                position = match.end()
            else:
                char, position = self._escape(here, position)
                parts.append(char)
        what = "string" if mark == '"' else "name"
        raise self.error(here, f"expected a closing {mark} on the line of the {what}, found none")

    def _escape(self, here: Token, position: int) -> tuple[str, int]:
        there = here._replace(column=here.column + position - here.start)
        match = _ESCAPE.match(self.text, position)
        if match is None or (match[2] and not _is_character(int(match[2], 16))):
            found = self.text[position : position + 2]
            raise self.error(
                there, f"expected an escape (\\\\, \\n, \\u{{e9}}...), found {found!r}"
            )
        short, code = match.groups()
        return ESCAPES.get(short, short) if short else chr(int(code, 16)), match.end()


def _is_character(code: int) -> bool:
    """Whether a text may have it: of surrogates those that stand for bytes in names of files."""
    return code <= 0x10FFFF and (not 0xD800 <= code < 0xE000 or 0xDC80 <= code < 0xDD00)
