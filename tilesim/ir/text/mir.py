"""The text form of MIR: ``parse(to_text(mir)) == mir`` (docs/mir.md).

Launch and declarations are written as in a ``.tile`` text; a line of the code is

    12: if (not %flag) mbarrier.wait full[slot], phase

with the instruction's number, a guard where it has one, and its operands. ``in role "consumer"
warps 0..3`` is said once before the instructions that it holds for, ``counter`` marks registers
that only their loop uses.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from tilesim.errors import ParseError
from tilesim.ir.arithmetic import LIMITS, Interval
from tilesim.ir.expr import Expr, Var
from tilesim.ir.mir import Branch, Control, Instruction, Join, Mir, Switch, Trap
from tilesim.ir.op import OPS, Op
from tilesim.ir.registers import machine_typing
from tilesim.ir.text.forms import operands
from tilesim.ir.text.grammar import name, quote
from tilesim.ir.text.lexer import Token
from tilesim.ir.text.parser import Parser
from tilesim.ir.text.printer import Printer, ranges
from tilesim.ir.text.scope import suggest

#: control flow by the word it is written with
CONTROL: Final[dict[str, type[Control]]] = {
    "join": Join, "branch": Branch, "switch": Switch, "trap": Trap,
}  # fmt: skip
_WORD: Final = {cls: word for word, cls in CONTROL.items()}
#: instructions of one program
MAX_CODE: Final = 1 << 20


def to_text(mir: Mir, *, locations: bool = False) -> str:
    """``mir`` as text; ``locations`` adds where each instruction was written.

    Raises:
        InvalidProgram: an operand cannot be written (see `tilesim.ir.text.to_text`).
    """
    return _MirPrinter(mir, locations).text()


def fingerprint(mir: Mir) -> str:
    """16 hexadecimal digits that tell programs apart; source locations do not count."""
    return hashlib.sha256(to_text(mir).encode()).hexdigest()[:16]


def parse(text: str, filename: str = "<text>") -> Mir:
    """The machine program that ``text`` describes.

    Raises:
        ParseError: the text is malformed; the message starts with ``file:line:column``.
    """
    try:
        return _MirParser(text, filename).mir()
    except RecursionError:
        raise ParseError(f"{filename}:1:1: expressions are nested too deeply") from None


class _MirPrinter(Printer):
    """Makes the lines of one machine program."""

    def __init__(self, mir: Mir, locations: bool) -> None:
        super().__init__(mir.kernel, locations)
        self._mir = mir

    def text(self) -> str:
        """The whole text."""
        return self._whole("mir", ["code {", *self._lines(), "}"])

    def _lines(self) -> Iterator[str]:
        roles = ", ".join(quote(role) for role in self._mir.roles)
        yield f"    roles {roles}"
        for var in self._mir.kernel.variables:
            if var.name in self._mir.local:
                known = self._mir.typing.ranges.get(var.name)
                yield f"    counter {name(var.name)}" + ("" if known is None else _range(known))
        region = None
        for number, instruction in enumerate(self._mir.code):
            if (instruction.role, instruction.warps) != region:
                region = instruction.role, instruction.warps
                where = ranges(instruction.warps, instruction.loc)
                yield f"    in role {quote(instruction.role)} warps {where}"
            yield f"    {number}: {self._instruction(instruction)}{self._at(instruction.loc)}"

    def _instruction(self, instruction: Instruction) -> str:
        what = instruction.what
        word = what.mnemonic if isinstance(what, Op) else _WORD[type(what)]
        head = "counts " if instruction.counts else ""
        if instruction.guard is not None:
            guard = self._values.expression(instruction.guard, instruction.loc)
            head += f"if ({guard}) "
        arguments = self._values.arguments(what, operands(type(what)), instruction.loc)
        return f"{head}{word} {arguments}".rstrip()


def _range(known: Interval) -> str:
    return f" in {known[0]}, {known[1]}"


class _MirParser(Parser):
    """Reads what `_MirPrinter` writes."""

    def mir(self) -> Mir:
        """Takes the whole text."""
        cursor = self._cursor
        make = self._launch("mir", "code")
        cursor.next()
        cursor.expect("{", " of the code")
        self._end_line("the line after '{'")
        roles = self._roles()
        known: dict[str, Interval] = {}
        local = frozenset(self._counters(known))
        code = tuple(self._code())
        self._finish("the code")
        ops = (i.what for i in code if isinstance(i.what, Op))
        kernel = make(())
        if len(roles) != kernel.warps:
            token = cursor.peek()
            raise cursor.error(token, f"{len(roles)} roles for {kernel.warps} warps")
        return Mir(kernel, code, roles, machine_typing(kernel, ops, known), local)

    def _roles(self) -> tuple[str, ...]:
        cursor = self._cursor
        cursor.expect_word("roles", " of the warps")
        roles = [cursor.string("the role of a warp as a string")]
        while cursor.accept(","):
            roles.append(cursor.string("the role of a warp as a string"))
        self._end_line("the roles")
        return tuple(roles)

    def _counters(self, known: dict[str, Interval]) -> Iterator[str]:
        cursor = self._cursor
        low, high = LIMITS["s32"]
        while cursor.at_word("counter"):
            cursor.next()
            var: Var = self._operands.named(Var, "a counter")
            if cursor.at_word("in"):
                token = cursor.next()
                first = cursor.integer("the least value of the counter")
                cursor.expect(",", " before the greatest value")
                last = cursor.integer("the greatest value of the counter")
                if not low <= first <= last <= high:
                    raise cursor.error(token, f"expected a range of s32, found {first}, {last}")
                known[var.name] = first, last
            self._end_line("the counter")
            yield var.name

    def _code(self) -> Iterator[Instruction]:
        cursor = self._cursor
        role, warps = "", tuple[int, ...]()
        number = 0
        targets: list[tuple[Token, int]] = []
        while not cursor.accept("}"):
            if cursor.at_word("in"):
                cursor.next()
                cursor.expect_word("role", " and its name")
                role = cursor.string("the role's name as a string")
                cursor.expect_word("warps", " after the role's name")
                warps = self._warps()
                self._end_line("the role")
                continue
            token = cursor.peek()
            if cursor.integer("the number of the next instruction") != number:
                raise cursor.error(token, f"expected instruction {number}, found {token}")
            if number >= MAX_CODE:
                raise cursor.error(token, f"expected at most {MAX_CODE} instructions, found more")
            cursor.expect(":", " after the instruction's number")
            instruction = self._numbered(number, role, warps)
            match instruction.what:
                case Branch(target=target):
                    targets.append((token, target))
                case Switch(targets=table):
                    targets += ((token, target) for target in table)
                case _:
                    pass
            yield instruction
            number += 1
        for token, target in targets:
            if not 0 <= target <= number:
                raise cursor.error(token, f"expected a jump to 0..{number}, found one to {target}")

    def _numbered(self, number: int, role: str, warps: tuple[int, ...]) -> Instruction:
        cursor = self._cursor
        counts = cursor.at_word("counts")
        if counts:
            cursor.next()
        guard = self._guard()
        token = cursor.peek()
        cls: type[Any] | None = CONTROL.get(token.text) or OPS.get(token.text)
        if token.kind != "word" or cls is None:
            hint = suggest(token.text, [*OPS, *CONTROL])
            raise cursor.error(token, f"expected an instruction, found {token}{hint}")
        cursor.next()
        values = self._operands.arguments(token, operands(cls))
        loc = self._loc(token, f"'{token.text}'")
        if issubclass(cls, Op):
            values["number"] = number
        what = self._make(token, lambda: cls(**values, loc=loc))
        return Instruction(what, guard, role, warps, counts)

    def _guard(self) -> Expr | None:
        cursor = self._cursor
        if not cursor.at_word("if"):
            return None
        cursor.next()
        cursor.expect("(", " of the guard")
        guard = self._operands.expression()
        cursor.expect(")", " after the guard")
        return guard
