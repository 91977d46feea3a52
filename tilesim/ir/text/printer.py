"""Printing of a `Program` as ``.tile`` text."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilesim.errors import reject
from tilesim.ir.expr import Const
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While
from tilesim.ir.text.forms import (
    declaration_operands,
    has_loc,
    launch_operands,
    operands,
)
from tilesim.ir.text.grammar import DECLARATIONS, MAX_REGIONS, MAX_WARPS, VERSIONS, name, quote
from tilesim.ir.text.values import Values

INDENT = "    "


def to_text(program: Program, *, locations: bool = False) -> str:
    """``program`` as text that `parse` turns into an equal program.

    ``locations`` adds where each statement was written, so that findings on the parsed program
    name those lines and not the text's.

    Raises:
        InvalidProgram: an operand is not of its field's type, is not declared by this program, or
            lies beyond a limit of the format.
        TypeError: an instruction has a field of a type that the format does not know.
    """
    return Printer(program, locations).text()


class Printer:
    """Makes the lines of one program."""

    def __init__(
        self, program: Program, locations: bool, values: Callable[[Program], Values] = Values
    ) -> None:
        self._program = program
        self._locations = locations
        self._sources: dict[tuple[str, str], int] = {}
        self._values = values(program)

    def text(self) -> str:
        """The whole text."""
        return self._whole("tile", list(self._block("body", self._program.body, None, 0)))

    def head(self, stmt: Stmt) -> str:
        """The first line of one statement."""
        return next(self._statement(stmt, 0))

    def written(self, stmt: Stmt) -> Iterator[str]:
        """All lines of one statement."""
        return self._statement(stmt, 0)

    def _whole(self, kind: str, body: list[str]) -> str:
        """A text of this kind: launch, declarations, ``body``, with the sources that they name."""
        program = self._program
        launch = self._values.arguments(program, launch_operands(), program.loc, keywords=True)
        kernel = f"kernel {name(program.name)}: {launch}{self._at(program.loc)}"
        declarations = list(self._declarations())
        sources = [
            f"source {number} {quote(file)}" + (f" {quote(function)}" if function else "")
            for (file, function), number in self._sources.items()
        ]
        head = [f"{kind} {VERSIONS[kind]}", *sources, "", kernel, *declarations, ""]
        return "\n".join([*head, *body, ""])

    def _declarations(self) -> Iterator[str]:
        for field in dict.fromkeys(d.field for d in DECLARATIONS.values()):
            for item in getattr(self._program, field):
                declared = DECLARATIONS[type(item)]
                rest = declaration_operands(type(item))
                loc: Loc | None = item.loc if has_loc(type(item)) else None
                arguments = self._values.arguments(item, rest, loc or self._program.loc)
                head = f"{declared.keyword} {self._values.called(item.name)}"
                line = f"{head}: {arguments}" if arguments else head
                yield line + self._at(loc) + self._where(item)

    def _where(self, item: object) -> str:
        """A comment behind a declaration: where it lies."""
        return ""

    def _at(self, loc: Loc | None) -> str:
        """The annotation of a line."""
        if loc is None or not self._locations:
            return ""
        number = self._sources.setdefault((loc.file, loc.function), len(self._sources) + 1)
        return f"  @{number}:{loc.line}"

    def _block(
        self, head: str, body: tuple[Stmt, ...], loc: Loc | None, depth: int
    ) -> Iterator[str]:
        """The lines of ``head { body }``."""
        if depth >= MAX_REGIONS:
            raise reject(
                f"the text form has at most {MAX_REGIONS} nested regions", loc or self._program.loc
            )
        yield f"{INDENT * depth}{head} {{{self._at(loc)}"
        for stmt in body:
            yield from self._statement(stmt, depth + 1)
        yield f"{INDENT * depth}}}"

    def _statement(self, stmt: Stmt, depth: int) -> Iterator[str]:
        match stmt:
            case Op():
                arguments = self._values.arguments(stmt, operands(type(stmt)), stmt.loc)
                line = f"{stmt.mnemonic} {arguments}".rstrip()
                yield f"{INDENT * depth}{line}{self._at(stmt.loc)}"
            case For():
                yield from self._block(self._for(stmt), stmt.body, stmt.loc, depth)
            case While():
                head = f"while {self._values.expression(stmt.cond, stmt.loc)}{_sync(stmt)}"
                yield from self._block(head, stmt.body, stmt.loc, depth)
            case If():
                yield from self._if(stmt, depth)
            case Role():
                head = f"role {quote(stmt.name)} warps {ranges(stmt.warps, stmt.loc)}"
                yield from self._block(head, stmt.body, stmt.loc, depth)
            case Break():
                yield f"{INDENT * depth}break{self._at(stmt.loc)}"

    def _if(self, stmt: If, depth: int) -> Iterator[str]:
        head = f"if {self._values.expression(stmt.cond, stmt.loc)}{_sync(stmt)}"
        then = self._block(head, stmt.then, stmt.loc, depth)
        if not stmt.orelse:
            yield from then
            return
        *lines, _ = then
        yield from lines
        yield from self._block("} else", stmt.orelse, None, depth)

    def _for(self, stmt: For) -> str:
        start, stop, step = (
            self._values.expression(e, stmt.loc) for e in (stmt.start, stmt.stop, stmt.step)
        )
        bounds = f"{start}, {stop}, {step}"
        if _is(stmt.step, 1):
            bounds = stop if _is(stmt.start, 0) else f"{start}, {stop}"
        return f"for {self._values.declared(stmt.var, stmt.loc)} in range({bounds}){_sync(stmt)}"


def _sync(stmt: If | For | While) -> str:
    return "" if stmt.sync else " nosync"


def _is(expr: object, value: int) -> bool:
    return isinstance(expr, Const) and type(expr.value) is int and expr.value == value


def ranges(warps: tuple[int, ...], loc: Loc) -> str:
    """``0..3, 6``: warps in their order, rising runs of three and more as ranges."""
    if len(warps) > MAX_WARPS or any(not isinstance(w, int) for w in warps):
        raise reject("a role has warps the text form cannot write", loc)
    runs: list[list[int]] = []
    for warp in map(int, warps):
        if runs and warp == runs[-1][-1] + 1:
            runs[-1].append(warp)
        else:
            runs.append([warp])
    parts = [[f"{run[0]}..{run[-1]}"] if len(run) > 2 else [str(w) for w in run] for run in runs]
    return ", ".join(p for part in parts for p in part) or "none"
