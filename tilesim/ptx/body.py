"""The statements between the braces of a function."""

from __future__ import annotations

import re
from typing import NoReturn

from tilesim.ptx.declarations import SPACES, Declarations
from tilesim.ptx.operands import Operands, constant
from tilesim.ptx.scanner import Cursor, Text, cut
from tilesim.ptx.syntax import Body, Guard, Instruction, Located, Scope

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


class Bodies:
    """Reads the bodies of functions."""

    def __init__(
        self, text: Text, operands: Operands, declarations: Declarations, sources: Sources
    ) -> None:
        self._text = text
        self._operands = operands
        self._declarations = declarations
        self._sources = sources

    def read(self, start: int) -> tuple[Body, int]:
        """The body whose opening brace is at ``start``, and the offset after its closing one.

        Raises:
            PtxError: with the place of what is not understood.
        """
        return _Body(self._text, self._operands, self._declarations, self._sources).read(start)


class _Body:
    """One body: collects instructions and scopes."""

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
            position, f"this is no statement of PTX: {shown}", "" if ends else "end it with ;"
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
            self._text.fail(found.start("label"), f"label {name} is there twice in this scope")
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
            cursor.fail(f"{name} is no directive in a body that is known")
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
