"""Printing of programs, statements, expressions and operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING
from types import NoneType
from typing import Any, Final

from tilesim.arith.types import DTYPES, DType
from tilesim.errors import InvalidProgram, reject
from tilesim.ir.addressed import AddressedMbarriers, AddressedTensor
from tilesim.ir.declarations import (
    Fragment,
    GlobalTensor,
    Mbar,
    Mbarriers,
    SharedTensor,
    TensorMap,
    View,
)
from tilesim.ir.expr import Base, Binary, Const, Expr, ScalarParam, Select, Special, Unary, Var
from tilesim.ir.loc import UNKNOWN, Loc
from tilesim.ir.mir import Control
from tilesim.ir.op import Op
from tilesim.ir.program import Break, For, If, Program, Role, Stmt, While
from tilesim.ir.target import TARGETS, Target
from tilesim.ir.text.forms import (
    ADDRESS,
    ATOM,
    BITWISE,
    CALLS,
    COMPARISON,
    DECLARATIONS,
    INLINE,
    MAX_DEPTH,
    MAX_INT,
    MAX_REGIONS,
    MAX_WARPS,
    PRECEDENCE,
    PREFIX,
    VERSIONS,
    Choice,
    Either,
    Fixed,
    Form,
    Inline,
    Leaf,
    Many,
    Operand,
    declaration_operands,
    describe,
    has_loc,
    launch_operands,
    name,
    operands,
    quote,
    spell,
)

#: what has an address in each state space
_BASES: Final[dict[str, tuple[type, ...]]] = {
    "shared": (SharedTensor, Mbarriers), "global": (GlobalTensor, TensorMap),
}  # fmt: skip


class Values:
    """Writes operands of one program, and checks that what they name is declared there.

    ``labels``: also what only readers need.
    """

    labels = True

    def __init__(self, program: Program) -> None:
        self._declared: dict[str, Any] = {}
        for field in dict.fromkeys(d.field for d in DECLARATIONS.values()):
            for item in getattr(program, field):
                if item.name in self._declared:
                    raise reject(f"the name {item.name!r} is declared twice", program.loc,
                                 rule="name")  # fmt: skip
                self._declared[item.name] = item

    def write(self, form: Form, value: Any, what: str, loc: Loc) -> str:
        """``value`` as the text of ``form``; ``what`` names the field in errors."""
        match form:
            case Leaf(type=leaf) if _fits(form, value):
                return _WRITERS[leaf](self, value, loc)
            case Choice() if _fits(form, value):
                return spell(value)
            case Many(element=element) if _fits(form, value):
                return f"{{{', '.join(self.write(element, v, what, loc) for v in value)}}}"
            case Fixed(elements=elements) if _fits(form, value):
                pairs = zip(elements, value, strict=True)
                return f"{{{', '.join(self.write(e, v, what, loc) for e, v in pairs)}}}"
            case Inline(type=cls) if _fits(form, value):
                return f"{INLINE[cls]}({self.arguments(value, operands(cls), loc)})"
            case Either(members=members):
                fitting = [m for m in members if _fits(m, value)]
                exact = [m for m in fitting if m == Leaf(type(value))]
                if fitting:
                    return self.write((exact or fitting)[0], value, what, loc)
            case _:
                pass
        raise reject(f"operand {what} is {value!r}, expected {describe(form)}", loc)

    def arguments(
        self, item: object, rest: tuple[Operand, ...], loc: Loc, *, keywords: bool = False
    ) -> str:
        """The operands of ``item``: required ones by position, others by name if not default.

        An optional first operand is written by position too: ``wgmma.wait_group 1``.
        """
        parts = []
        for index, operand in enumerate(rest):
            value = getattr(item, operand.name)
            unsaid = operand.default is not MISSING and _same(value, operand.default)
            if unsaid or (operand.label and not self.labels):
                keywords = True
                continue
            first = index == 0 and operand.form != Leaf(bool)
            keywords = keywords or not (operand.required or first)
            text = self.write(operand.form, value, operand.name, loc)
            parts.append(f"{operand.name}={text}" if keywords else text)
        return ", ".join(parts)

    def called(self, declared: str) -> str:
        """How what is declared by this name is written."""
        return name(declared)

    def declared(self, item: Any, loc: Loc) -> str:
        """The name of something that the program must declare."""
        called: str = item.name
        known = self._declared.get(called)
        if known is item or (type(known) is type(item) and known == item):
            return self.called(called)
        raise reject(f"{called} is used here, but the program does not declare it", loc,
                     rule="name")  # fmt: skip

    def expression(self, expr: Expr, loc: Loc) -> str:
        """An expression with the parentheses it needs, and some that help the reader."""
        return self._expr(expr, loc, 1)[0]

    def _expr(self, expr: Expr, loc: Loc, depth: int) -> tuple[str, int]:
        """The text and how tightly its outermost operator binds."""
        if depth > MAX_DEPTH:
            raise reject(f"the text form has at most {MAX_DEPTH} levels in an expression", loc)
        match expr:
            case Const(value):
                return self.scalar(value, loc), ATOM
            case Var() | ScalarParam():
                return self.declared(expr, loc), ATOM
            case Special(special):
                return f"%{special}", ATOM
            case Base():
                return self._base(expr, loc), ATOM
            case Select(cond, then, other):
                return self._call("select", (cond, then, other), loc, depth), ATOM
            case Binary(op, lhs, rhs) if op in CALLS:
                return self._call(op, (lhs, rhs), loc, depth), ATOM
            case Unary(op, operand):
                inner, precedence = self._expr(operand, loc, depth + 1)
                if precedence < ATOM or isinstance(operand, Const):
                    inner = f"({inner})"
                return f"{op} {inner}" if op.isalpha() else f"{op}{inner}", PREFIX[op]
            case Binary(op, lhs, rhs):
                return self._binary(op, lhs, rhs, loc, depth), PRECEDENCE[op]
            case _:
                raise TypeError(f"the text form does not know the expression {type(expr).__name__}")

    def _base(self, base: Base, loc: Loc) -> str:
        item = self._declared.get(base.name)
        if not isinstance(item, _BASES[base.space]):
            raise reject(f"the address of {base.name} is used here, but the program declares no "
                         f"such thing in {base.space} memory", loc, rule="name")  # fmt: skip
        return f"{ADDRESS}({self.called(base.name)})"

    def _call(self, function: str, arguments: tuple[Expr, ...], loc: Loc, depth: int) -> str:
        texts = (self._expr(a, loc, depth + 1)[0] for a in arguments)
        return f"{function}({', '.join(texts)})"

    def _binary(self, op: str, lhs: Expr, rhs: Expr, loc: Loc, depth: int) -> str:
        left, tight = self._expr(lhs, loc, depth + 1)
        if tight < ATOM and not _bare(op, lhs, tight, left=True):
            left = f"({left})"
        right, tight = self._expr(rhs, loc, depth + 1)
        if tight < ATOM and not _bare(op, rhs, tight, left=False):
            right = f"({right})"
        return f"{left} {op} {right}"

    def scalar(self, value: object, loc: Loc) -> str:
        """A literal: integers, ``true`` and floating-point numbers are told apart."""
        match value:
            case bool():
                return "true" if value else "false"
            case int():
                return self.integer(value, loc)
            case float():
                return float.__repr__(value)
            case _:
                raise reject(f"the literal {value!r} is not a Python number", loc)

    def integer(self, value: int, loc: Loc) -> str:
        """An integer, also from a bool or a subclass."""
        if abs(value) > MAX_INT:
            raise reject("the text form has integers below 2^64 only", loc)
        return str(int(value))

    def mbar(self, mbar: Mbar, loc: Loc) -> str:
        """``full[i % 4]``, or ``mbar_at(p)``."""
        if isinstance(mbar.array, AddressedMbarriers):
            return self.write(Inline(AddressedMbarriers), mbar.array, "mbar", loc)
        array = self.declared(mbar.array, loc)
        return f"{array}[{self._index(mbar, loc)}]{self._peer(mbar.cta, loc)}"

    def _index(self, mbar: Mbar, loc: Loc) -> str:
        """What says which one of its array an mbarrier is."""
        return self.expression(mbar.index, loc)

    def view(self, view: View, loc: Loc) -> str:
        """``A[i * 64:+64, :]``."""
        rank = len(view.tensor.shape)
        kept = set(view.dims)
        plain = (
            len(view.offsets) == len(view.extents) == rank
            and view.dims == tuple(sorted(kept & set(range(rank))))
            and all(n == 1 or d in kept for d, n in enumerate(view.extents))
            and all(isinstance(n, int) and 0 <= n <= MAX_INT for n in view.extents)
        )
        if not plain:
            raise reject(f"the text form cannot write this view of {view.tensor.name}: an indexed "
                         "dimension has one element, the others keep their order", loc)  # fmt: skip
        if isinstance(view.tensor, AddressedTensor):
            at = self.write(Inline(AddressedTensor), view.tensor, "view", loc)
            return f"{at}[{self._subscript(view, loc)}]" if rank else at
        tensor = self.declared(view.tensor, loc)
        return f"{tensor}[{self._subscript(view, loc)}]{self._peer(view.cta, loc)}"

    def _subscript(self, view: View, loc: Loc) -> str:
        """What says which box of its tensor a view is."""
        kept = set(view.dims)
        dims = range(len(view.tensor.shape))
        return ", ".join(self._dimension(view, d, d in kept, loc) for d in dims)

    def _dimension(self, view: View, dim: int, keep: bool, loc: Loc) -> str:
        offset, extent = view.offsets[dim], view.extents[dim]
        text = self.expression(offset, loc)
        if not keep:
            return text
        return ":" if text == "0" and extent == view.tensor.shape[dim] else f"{text}:+{extent}"

    def _peer(self, cta: Expr | None, loc: Loc) -> str:
        return "" if cta is None else f".at({self.expression(cta, loc)})"

    def known(self, item: DType | Target, loc: Loc) -> str:
        """The name of an element type or a target, which must be one of tilesim's."""
        if DTYPES.get(item.name) != item and TARGETS.get(item.name) != item:
            raise reject(f"{item.name} is no {type(item).__name__} of tilesim", loc)
        return item.name


def _bare(op: str, child: Expr, tight: int, *, left: bool) -> bool:
    """Whether an operand with an operator needs no parentheses in ``op``.

    Next to bit operations they are written for the reader's sake.
    """
    own = PRECEDENCE[op]
    if not isinstance(child, Binary):
        return tight > own
    if tight == own:
        return left and tight != COMPARISON and (op not in BITWISE or op == child.op)
    return tight > own and op not in BITWISE and child.op not in BITWISE


def _same(value: object, default: object) -> bool:
    """Whether the default stands for ``value`` exactly, the types of literals included."""
    return value is default or (
        type(value) is type(default) and value == default and repr(value) == repr(default)
    )


def _fits(form: Form, value: object) -> bool:
    """Whether ``value`` has the form's type (for tuples: is a tuple, of the right length)."""
    match form:
        case Leaf(type=leaf) if leaf is bool:
            return isinstance(value, int) and value in (0, 1)
        case Leaf(type=leaf) if leaf is float:
            return isinstance(value, (int, float))
        case Leaf(type=leaf) | Inline(type=leaf):
            return isinstance(value, leaf)
        case Choice(values=values):
            return any(type(v) is type(value) and v == value for v in values)
        case Many():
            return isinstance(value, tuple)
        case Fixed(elements=elements):
            return isinstance(value, tuple) and len(value) == len(elements)
        case Either(members=members):
            return any(_fits(m, value) for m in members)


def _named(values: Values, item: Any, loc: Loc) -> str:
    return values.declared(item, loc)


_WRITERS: Final[dict[type, Callable[[Values, Any, Loc], str]]] = {
    NoneType: lambda values, value, loc: "none",
    bool: lambda values, value, loc: "true" if value else "false",
    int: Values.integer,
    float: lambda values, value, loc: float.__repr__(float(value)),
    str: lambda values, value, loc: quote(value),
    DType: Values.known,
    Target: Values.known,
    Expr: Values.expression,
    View: Values.view,
    Mbar: Values.mbar,
    Var: _named,
    ScalarParam: _named,
    GlobalTensor: _named,
    SharedTensor: _named,
    Mbarriers: _named,
    TensorMap: _named,
    Fragment: _named,
}


# ------------------------------------------------------------------ programs


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


# ------------------------------------------------------------------ one statement by itself


def statement_text(program: Program, stmt: Stmt | Control) -> str:
    """The first line of a statement, as `tilesim.ir.text` writes it in ``program``."""
    if isinstance(stmt, Control):
        return type(stmt).__name__.lower()
    try:
        return Printer(program, locations=False).head(stmt)
    except (InvalidProgram, TypeError):
        return stmt.mnemonic if isinstance(stmt, Op) else type(stmt).__name__.lower()


def statement_lines(program: Program, stmt: Stmt | Control) -> tuple[str, ...]:
    """All lines of a statement of ``program``: see `statement_text`."""
    if isinstance(stmt, Control):
        return (statement_text(program, stmt),)
    try:
        return tuple(Printer(program, locations=False).written(stmt))
    except (InvalidProgram, TypeError):
        return (statement_text(program, stmt),)


def value_text(program: Program, value: object) -> str:
    """An operand: an expression or an mbarrier as the text form has it, others as Python does."""
    values = Values(program)
    try:
        match value:
            case Expr():
                return values.expression(value, UNKNOWN)
            case Mbar(array=Mbarriers(name=name), index=index, cta=cta):
                at = "" if cta is None else f".at({values.expression(cta, UNKNOWN)})"
                return f"{name}[{values.expression(index, UNKNOWN)}]{at}"
            case _:
                return str(value)
    except (InvalidProgram, TypeError):
        return str(value)
