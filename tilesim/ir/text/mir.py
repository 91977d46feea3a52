"""The text form of MIR: ``parse(to_text(mir)) == mir`` (docs/mir.md).

Launch and declarations are written as in a ``.tile`` text; a line of the code is

    12: if (not %flag) mbarrier.wait full[0x8000 + 0x8 * (slot)], phase

with the instruction's number, a guard where it has one, and its operands, those in memory by their
byte addresses. ``in role "consumer" warps 0..3`` is said once before the instructions that it holds
for, ``counter`` marks registers that only their loop uses.

The declarations are the symbol table of byte addresses.
``A[0x400 + 0x2000 * (i % 4) + 0x80 * (0:+64) + 0x2 * (0:+64)]`` is a box of tensor A, before its
swizzle: where A lies in shared memory, then per dimension the distance of neighbours in bytes times
the index, or the first element and how many. A tensor in global memory begins wherever the launch
has put it, what is ``at(...)`` an address begins there; only the distances are written for both. An
mbarrier is ``full[0x10008]``, or ``full[0x10000 + 0x8 * (i % 4)]``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tilesim.analysis.executing_warps import executing
from tilesim.arith.intervals import Interval
from tilesim.errors import ParseError
from tilesim.ir.arithmetic import LIMITS
from tilesim.ir.declarations import Mbar, Mbarriers, SharedTensor, Tensor, View
from tilesim.ir.expr import Const, Expr, Var
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Branch, Control, Instruction, Join, Mir, Switch, Trap
from tilesim.ir.op import OPS, Op
from tilesim.ir.program import Program
from tilesim.ir.registers import machine_typing
from tilesim.ir.text.forms import launch_operands, operands, quote
from tilesim.ir.text.lexer import Cursor, Token
from tilesim.ir.text.parser import OperandParser, Parser, Scope, suggest
from tilesim.ir.text.printer import INDENT, Printer, Values, ranges

_MBARRIER = 8


class AddressValues(Values):
    """Writes operands with their byte addresses."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._placement = program.placement

    def _index(self, mbar: Mbar, loc: Loc) -> str:
        base = self._placement[mbar.array.name]
        match mbar.index:
            case Const(int(known)) if not isinstance(known, bool) and known >= 0:
                return hex(base + _MBARRIER * known)
            case index:
                return f"{base:#x} + {_MBARRIER:#x} * ({self.expression(index, loc)})"

    def _subscript(self, view: View, loc: Loc) -> str:
        terms = []
        if isinstance(view.tensor, SharedTensor):
            terms.append(hex(self._placement[view.tensor.name]))
        kept = set(view.dims)
        for dim, stride in enumerate(view.tensor.byte_strides):
            start = self.expression(view.offsets[dim], loc)
            size = f":+{view.extents[dim]}" if dim in kept else ""
            terms.append(f"{stride:#x} * ({start}{size})")
        return " + ".join(terms)


class Anonymous(AddressValues):
    """Writes operands without a name: what is declared goes by its number, what only findings
    call something is left out."""

    labels = False

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._numbers = {called: f"%{n}" for n, called in enumerate(self._declared)}

    def called(self, declared: str) -> str:
        """The number of a declaration."""
        return self._numbers[declared]


class AddressParser(OperandParser):
    """Reads what `AddressValues` writes; addresses have to be those of what they are in."""

    def __init__(self, cursor: Cursor, scope: Scope) -> None:
        super().__init__(cursor, scope)
        self.placement: Mapping[str, int] = {}

    def _element(self, array: Mbarriers) -> Mbar:
        cursor, token = self._cursor, self._cursor.peek()
        base, address = self.placement[array.name], cursor.integer("the address of an mbarrier")
        number, rest = divmod(address - base, _MBARRIER)
        if cursor.at("+"):
            start, _, keep = self._term(_MBARRIER, array.name)
            inside = address == base and not keep
        else:
            start, inside = Const(number), not rest and 0 <= number < array.count
        if not inside:
            raise cursor.error(
                token, f"expected an address in {array.name}, {array.nbytes} bytes from {base:#x}, "
                f"found {token}",
            )  # fmt: skip
        return self._at(array, start, token)

    def _box(self, tensor: Tensor) -> Iterator[tuple[Expr, int, bool]]:
        first = True
        if isinstance(tensor, SharedTensor):
            token, base = self._cursor.peek(), self.placement[tensor.name]
            if self._cursor.integer(f"the address of {tensor.name}") != base:
                raise self._cursor.error(token, f"expected {base:#x}, where {tensor.name} is, "
                                         f"found {token}")  # fmt: skip
            first = False
        for stride in tensor.byte_strides:
            yield self._term(stride, tensor.name, first=first)
            first = False

    def _term(self, stride: int, where: str, *, first: bool = False) -> tuple[Expr, int, bool]:
        """``+ stride * (start)`` or ``+ stride * (start:+size)``."""
        cursor = self._cursor
        if not first:
            cursor.expect("+", f" before the next dimension of {where}")
        token = cursor.peek()
        if cursor.integer("a distance in bytes") != stride:
            raise cursor.error(
                token, f"expected {stride:#x}, by which neighbours in {where} differ, found {token}"
            )
        cursor.expect("*", " after the distance")
        cursor.expect("(", " before the index")
        found = self._dimension()
        cursor.expect(")", " after the index")
        return found


# ------------------------------------------------------------------ programs


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
    return MirPrinter(mir, locations).text()


def fingerprint(mir: Mir) -> str:
    """16 hexadecimal digits that tell apart what is executed.

    Names (of the kernel, of what it declares, of roles) and source locations do not count.
    """
    text = "\n".join(_Executed(mir).lines())
    import hashlib  # loads OpenSSL

    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parse(text: str, filename: str = "<text>") -> Mir:
    """The machine program that ``text`` describes.

    Raises:
        ParseError: the text is malformed; the message starts with ``file:line:column``.
    """
    try:
        return _MirParser(text, filename).mir()
    except RecursionError:
        raise ParseError(f"{filename}:1:1: expressions are nested too deeply") from None


class MirPrinter(Printer):
    """Makes the lines of one machine program."""

    def __init__(
        self, mir: Mir, locations: bool, values: Callable[[Program], Values] = AddressValues
    ) -> None:
        super().__init__(mir.kernel, locations, values)
        self._mir = mir

    def text(self) -> str:
        """The whole text."""
        roles = ", ".join(quote(role) for role in self._mir.roles)
        inside = (f"{INDENT}{line}" for line in (f"roles {roles}", *self._lines()))
        return self._whole("mir", ["code {", *inside, "}"])

    def _where(self, item: object) -> str:
        if not isinstance(item, SharedTensor | Mbarriers):
            return ""
        start = self._mir.kernel.placement[item.name]
        return f"  # {start:#x}..{start + item.nbytes:#x}"

    def _lines(self) -> Iterator[str]:
        """Counters and code."""
        warps = executing(self._mir)
        for var in self._mir.kernel.variables:
            if var.name in self._mir.local:
                known = self._mir.typing.ranges.get(var.name)
                head = f"counter {self._values.called(var.name)}"
                yield head + ("" if known is None else _range(known))
        region = None
        for number, instruction in enumerate(self._mir.code):
            here = self._region(instruction, ranges(warps[number], instruction.loc))
            if here != region:
                region = here
                yield region
            yield f"{number}: {self._instruction(instruction)}{self._at(instruction.loc)}"

    def _region(self, instruction: Instruction, warps: str) -> str:
        """Where an instruction is, and which warps may execute it."""
        return f"in role {quote(instruction.role)} warps {warps}"

    def _instruction(self, instruction: Instruction) -> str:
        what = instruction.what
        word = what.mnemonic if isinstance(what, Op) else _WORD[type(what)]
        head = "counts " if instruction.counts else ""
        if instruction.guard is not None:
            guard = self._values.expression(instruction.guard, instruction.loc)
            head += f"if ({guard}) "
        arguments = self._values.arguments(what, operands(type(what)), instruction.loc)
        return f"{head}{word} {arguments}".rstrip()


class _Executed(MirPrinter):
    """Says of a machine program what is executed."""

    def __init__(self, mir: Mir) -> None:
        super().__init__(mir, False, Anonymous)

    def lines(self) -> Iterator[str]:
        """Launch, declarations, code."""
        kernel = self._mir.kernel
        yield self._values.arguments(kernel, launch_operands(), kernel.loc, keywords=True)
        yield from self._declarations()
        yield from self._lines()

    def _region(self, instruction: Instruction, warps: str) -> str:
        return f"warps {warps}"


def _range(known: Interval) -> str:
    return f" in {known[0]}, {known[1]}"


class _MirParser(Parser):
    """Reads what `MirPrinter` writes."""

    def __init__(self, text: str, filename: str) -> None:
        super().__init__(text, filename)
        self._operands = self._addresses = AddressParser(self._cursor, self._scope)
        #: by number of an instruction, the line that says which warps come to it, and what it says
        self._said: dict[int, tuple[Token, frozenset[int]]] = {}

    def mir(self) -> Mir:
        """Takes the whole text."""
        cursor = self._cursor
        make = self._launch("mir", "code")
        self._addresses.placement = make(()).placement
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
        mir = Mir(kernel, code, roles, machine_typing(kernel, ops, known), local)
        self._check_warps(mir)
        return mir

    def _check_warps(self, mir: Mir) -> None:
        """Which warps come to an instruction follows from the branches: a text that names one that
        there is not, or leaves one out, does not say what is executed."""
        coming = executing(mir)
        for number, (token, said) in self._said.items():
            missing, more = {*coming[number]} - said, said - {*range(mir.kernel.warps)}
            if missing or more:
                what = f"not {min(missing)}" if missing else str(min(more))
                raise self._cursor.error(
                    token, f"expected warps {ranges(coming[number], mir.kernel.loc)}, which reach "
                    f"instruction {number}, found {what}",
                )  # fmt: skip

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
        role = ""
        here: tuple[Token, frozenset[int]] | None = None
        number = 0
        targets: list[tuple[Token, int]] = []
        while not cursor.accept("}"):
            if cursor.at_word("in"):
                cursor.next()
                cursor.expect_word("role", " and its name")
                role = cursor.string("the role's name as a string")
                token = cursor.expect_word("warps", " after the role's name")
                here = token, frozenset(self._warps())
                self._end_line("the role")
                continue
            token = cursor.peek()
            if cursor.integer("the number of the next instruction") != number:
                raise cursor.error(token, f"expected instruction {number}, found {token}")
            if number >= MAX_CODE:
                raise cursor.error(token, f"expected at most {MAX_CODE} instructions, found more")
            cursor.expect(":", " after the instruction's number")
            if here is not None:
                self._said[number] = here
            instruction = self._numbered(number, role)
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

    def _numbered(self, number: int, role: str) -> Instruction:
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
        return Instruction(what, guard, role, counts)

    def _guard(self) -> Expr | None:
        cursor = self._cursor
        if not cursor.at_word("if"):
            return None
        cursor.next()
        cursor.expect("(", " of the guard")
        guard = self._operands.expression()
        cursor.expect(")", " after the guard")
        return guard
