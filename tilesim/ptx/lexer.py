"""Tokens of PTX, and errors with positions."""

from __future__ import annotations

import re
from bisect import bisect_right
from itertools import accumulate, count
from operator import add
from typing import NoReturn

from tilesim.ptx.syntax import Place, PtxError

_COMMENT = re.compile(r'"[^"\n]*+"|//[^\n]*+|/\*.*?\*/|/\*', re.DOTALL)
#: LLVM counts the lines of inline assembly on from that of the source, which is no line of it
_ASSEMBLY = re.compile(r"// begin inline asm\n.*?// end inline asm", re.DOTALL)
_LOC = re.compile(r"^\s*+\.loc\s[^\n]*+", re.MULTILINE)
#: text of an intermediate language (PTX 9.4, 11.5.6), which is anything
_INTERMEDIATE = re.compile(
    r"(?<=\.source_begin)\b.*?(?=^\s*\.source_end\b)|(?<=\.source:)\s*<<<.*?>>>",
    re.DOTALL | re.MULTILINE,
)
_INSIDE = re.compile(r"[^\n]")
#: the text of a token is in the group of its kind
_TOKEN = re.compile(
    r"""\s*+(?:
      (?P<float>0[fF][0-9a-fA-F]{8}(?!\w)|0[dD][0-9a-fA-F]{16}(?!\w)
        |[0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]++)?|[0-9]++[eE][+-]?[0-9]++)
    | (?P<int>(?:0[xX][0-9a-fA-F]++|0[bB][01]++|[0-9]++)U?(?!\w))
    | (?P<name>%?[A-Za-z_$][\w$]*+)
    | (?P<dot>\.[A-Za-z_]\w*+(?:::\w++)*+)
    | (?P<string>"[^"\n]*+")
    | (?P<symbol><<|>>|[<>=!]=|&&|\|\||[-+*/%&|^~!?:<>=@,;(){}\[\]])
    )""",
    re.VERBOSE | re.ASCII,
)
#: longest piece of text that an error shows
_SHOWN = 40


def cut(text: str) -> str:
    """``text`` on one line, shortened for a message."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}..."


class Text:
    """A PTX text without its comments, which leave blanks, so that positions stay; nor has it
    positions in the source from within inline assembly: it lies where that begins.

    Raises:
        PtxError: a comment does not end.
    """

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        ends = accumulate(map(len, text.split("\n")))
        #: where lines begin: behind those before, each with its end
        self._starts = [0, *map(add, ends, count(1))]
        if ".nv_intermediate_source_section" in text:
            text = _INTERMEDIATE.sub(lambda found: _blanks(found[0]), text)
        self.text = _COMMENT.sub(self._blank, _ASSEMBLY.sub(_without_locs, text))

    def _blank(self, found: re.Match[str]) -> str:
        comment = found[0]
        if comment[0] == '"':
            return comment
        if comment == "/*":
            self.fail(found.start(), "the comment that starts here has no end", "add */")
        return _blanks(comment)

    def place(self, offset: int) -> Place:
        """Line and column of an offset."""
        line = bisect_right(self._starts, offset)
        return Place(line, offset - self._starts[line - 1] + 1)

    def skip(self, offset: int) -> int:
        """The offset of the next character that is no blank."""
        found = _BLANK.match(self.text, offset)
        return found.end() if found else offset

    def fail(self, offset: int, what: str, fix: str = "") -> NoReturn:
        """Raises a `PtxError` for this place."""
        at = self.place(offset)
        raise PtxError(self.file, at.line, at.column, what, fix)


_BLANK = re.compile(r"\s*+")


def _without_locs(assembly: re.Match[str]) -> str:
    source = assembly[0]
    return _LOC.sub(lambda found: _blanks(found[0]), source) if ".loc" in source else source


def _blanks(source: str) -> str:
    """As many lines and characters without anything in them."""
    return _INSIDE.sub(" ", source) if "\n" in source else " " * len(source)


class Cursor:
    """The tokens of ``text`` between two offsets, one at a time; ``kind`` is empty at the end."""

    __slots__ = ("_next", "kind", "limit", "start", "text", "token")

    def __init__(self, text: Text, start: int, end: int | None = None) -> None:
        self.text = text
        self._next = start
        self.limit = len(text.text) if end is None else end
        self.advance()

    def advance(self) -> None:
        """Goes to the next token."""
        found = _TOKEN.match(self.text.text, self._next, self.limit)
        if found is None:
            self.start = min(self.text.skip(self._next), self.limit)
            self.kind = self.token = ""
            if self.start < self.limit:
                shown = cut(self.text.text[self.start : min(self.limit, self.start + 80)])
                self.fail(f"this is not PTX: {shown}")
            return
        self.kind = str(found.lastgroup)
        self.token = found[self.kind]
        self.start = found.start(self.kind)
        self._next = found.end()

    @property
    def end(self) -> int:
        """The offset after the current token."""
        return self.start + len(self.token)

    def take(self) -> str:
        """The current token; goes to the next one."""
        token = self.token
        self.advance()
        return token

    def accept(self, token: str) -> bool:
        """Whether the current token is this one, which is then passed."""
        if self.token != token or self.kind == "string":
            return False
        self.advance()
        return True

    def expect(self, token: str, what: str) -> None:
        """Passes this token.

        Raises:
            PtxError: another one is there; ``what`` says where it is missing.
        """
        if not self.accept(token):
            self.fail(f"expected {token!r} {what}, found {self.found}")

    def word(self, what: str) -> str:
        """A name, which is passed.

        Raises:
            PtxError: something else is there.
        """
        if self.kind != "name":
            self.fail(f"expected {what}, found {self.found}")
        return self.take()

    @property
    def found(self) -> str:
        """The current token for a message."""
        return f"'{cut(self.token)}'" if self.kind else "the end"

    def fail(self, what: str, fix: str = "") -> NoReturn:
        """Raises a `PtxError` for the current token."""
        self.text.fail(self.start, what, fix)
