"""Reads a PTX text into a `tilesim.ptx.syntax.Module`, in time linear in its length."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tilesim.heap import patient
from tilesim.ptx.body import Bodies, Sources
from tilesim.ptx.declarations import LINKAGE, SPACES, Declarations
from tilesim.ptx.operands import Operands, constant
from tilesim.ptx.scanner import Cursor, Text
from tilesim.ptx.syntax import Function, Module, Variable

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
        self._bodies = Bodies(text, self._operands, self._declarations, self._sources)
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
                cursor.fail("the text does not begin with .version", "is this a PTX file?")
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
                    cursor.fail("only programs with 64-bit addresses are understood")
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
                "outside of functions there are .version, .target, .file, variables and functions",
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
            body, after = self._bodies.read(cursor.start)
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
                cursor.fail(f"{cursor.token} is no directive of a function that is known")
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
