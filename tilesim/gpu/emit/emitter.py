"""The context in which an instruction's rule writes its C++: operands, helpers, lines; what the
emitter knows about a program's variables before it writes a line; and what `emit` returns: the CUDA
text, how to launch it, and which line came from where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from tilesim.analysis.divergence import divergent_variables
from tilesim.arith.intervals import Interval
from tilesim.arith.operators import COMPARE
from tilesim.gpu.emit.expr import Expressions
from tilesim.gpu.emit.prelude import HELPERS
from tilesim.gpu.errors import EmitError
from tilesim.ir import effects as fx
from tilesim.ir.arithmetic import INT_MAX, INT_MIN, CType, Typing, integer_limits
from tilesim.ir.declarations import Fragment
from tilesim.ir.expr import Binary, Const, Expr, Var
from tilesim.ir.expr import walk as walk_expr
from tilesim.ir.fragments import Layout, layouts
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op, OpTable
from tilesim.ir.program import Dim3, For, Program, Role, walk
from tilesim.ir.registers import assigned, operands, typing_of
from tilesim.records import dataclass, field, replace

ParamKind = Literal["tensor", "scalar", "map", "mailbox", "budget", "seed", "trace"]


@dataclass(frozen=True)
class Param:
    """One kernel parameter: what it is and the name of the tensor, scalar or map."""

    kind: ParamKind
    name: str


@dataclass(frozen=True)
class Site:
    """A place where a warp can block: the watchdog's records name it by its index."""

    what: str
    mnemonic: str
    role: str
    loc: Loc


@dataclass(frozen=True)
class Source:
    """CUDA C++ of one program.

    ``params`` in the order of the kernel's parameters; ``grid`` counts CTAs (the cluster shape is
    compiled in); ``lines`` gives, per line of ``text``, the kernel's line it came from;
    ``traced`` are the instructions that records of a trace name by index; of those in ``apart``
    every group of lanes leaves a record that happens to execute them together.
    """

    program: Program = field(repr=False)
    text: str = field(repr=False)
    entry: str
    arch: str
    params: tuple[Param, ...]
    grid: Dim3
    block: int
    smem_bytes: int
    sites: tuple[Site, ...] = field(repr=False, default=())
    lines: tuple[Loc | None, ...] = field(repr=False, default=())
    traced: tuple[Op, ...] = field(repr=False, default=())
    apart: frozenset[int] = field(repr=False, default=frozenset())

    def loc(self, line: int) -> Loc | None:
        """The kernel's line behind line ``line`` (from 1) of the text, or the nearest before."""
        for index in range(min(line, len(self.lines)) - 1, -1, -1):
            found = self.lines[index]
            if found is not None:
                return found
        return None


Rule: TypeAlias = Callable[["Emitter", Any], None]
#: how each instruction is written; filled by the modules of ``gpu.emit``
EMIT: OpTable[Rule] = OpTable("the CUDA emitter")

#: (constraint, C expression) of an operand of inline PTX
AsmOperand = tuple[str, str]


class Operands:
    """The operands of a statement of inline PTX without results, numbered as they are added."""

    def __init__(self) -> None:
        self.inputs: list[AsmOperand] = []

    def add(self, constraint: str, text: str) -> str:
        """Adds one and returns its number, as ``%n``."""
        self.inputs.append((constraint, text))
        return f"%{len(self.inputs) - 1}"


@dataclass(frozen=True)
class Options:
    """``watchdog``: waits are bounded and report; ``perturb``: random delays before them;
    ``trace``: warps record when they execute what others can see."""

    watchdog: bool = False
    perturb: bool = False
    trace: bool = False


class Emitter:
    """Collects the lines of one kernel.

    ``lanes`` says which lanes execute the current region: ``all`` of the warp, ``one`` (elected),
    or ``some``. ``divergent`` are the variables that may differ between the lanes. Rules call `asm`
    or `line`; the first line they write gets the source comment.
    """

    def __init__(self, program: Program, options: Options, names: Expressions) -> None:
        self.program = program
        self.options = options
        self.names = names
        self.lanes = "all"
        self.divergent = divergent_variables(program)
        self.role = ""
        self.lines: list[str] = []
        self.locs: list[Loc | None] = []
        self.used: dict[str, None] = {}
        self.generated: dict[str, str] = {}
        self.sites: list[Site] = []
        self.traced: list[Op] = []
        #: those of them that lanes record which happen to execute them together
        self.apart: list[int] = []
        self._layouts = layouts(program.fragments, program.ops)
        self._depth = 1
        self._op: Op | None = None
        self._comment = ""

    # ------------------------------------------------------------------ operands

    def expr(self, expr: Expr) -> str:
        """``expr`` in C, without outer parentheses."""
        return self.names.text(expr)

    def cast(self, expr: Expr, to: CType) -> str:
        """``expr`` in C, converted to a type."""
        return self.names.cast(expr, to)

    def var(self, var: Var) -> str:
        """The C identifier of a variable."""
        return self.names.names[var.name]

    def assign(self, var: Var, value: str) -> None:
        """``var = value``; narrow integers are held in 32 bits and wrap when they are written."""
        dtype = var.dtype
        if dtype.kind == "pred":
            value = f"({value}) != 0"
        elif dtype.kind in ("int", "uint") and dtype.bits < 32:
            value = f"({dtype})({value})"
        self.line(f"{self.var(var)} = {value};")

    def layout(self, fragment: Fragment) -> Layout:
        """Which thread holds which element of a fragment."""
        return self._layouts[fragment.name]

    def use(self, name: str) -> None:
        """Adds a helper function (and what it needs) to the kernel's prelude."""
        for needed in HELPERS[name].needs:
            self.use(needed)
        self.used.setdefault(name)

    def define(self, name: str, text: str) -> str:
        """Adds a helper function whose text depends on the instruction."""
        self.generated.setdefault(name, text.strip("\n"))
        return name

    def fail(self, message: str) -> EmitError:
        """The error to raise for an instruction that has no encoding."""
        assert self._op is not None
        return EmitError(f"{self._op.mnemonic}: {message}", self._op.loc)

    def whole_warp(self) -> None:
        """Raises where one elected lane executes the current region: the whole warp has to.

        Under a condition that may differ between the lanes they may all execute it all the same;
        whether they do is what checking the program tells.
        """
        if self.lanes == "one":
            raise self.fail("the whole warp must execute it, here only some lanes do")

    def site(self, what: str) -> int:
        """Registers the current instruction as a place where a warp can block."""
        assert self._op is not None
        self.sites.append(Site(what, self._op.mnemonic, self.role, self._op.loc))
        return len(self.sites) - 1

    # ------------------------------------------------------------------ lines

    def line(self, text: str, loc: Loc | None = None) -> None:
        """Appends a line; the first one of an instruction gets its comment."""
        comment, self._comment = self._comment, ""
        pad = "  " * self._depth
        for part in text.split("\n"):
            self.lines.append(f"{pad}{part}{comment}".rstrip())
            self.locs.append(loc or (self._op.loc if self._op else None))
            comment = ""

    def asm(
        self,
        text: str,
        inputs: Sequence[AsmOperand] = (),
        outputs: Sequence[AsmOperand] = (),
    ) -> None:
        """Appends one statement of inline PTX, ordered with all memory accesses around it."""
        self.line(asm(text, inputs, outputs))

    @contextmanager
    def block(self, head: str, loc: Loc | None = None) -> Iterator[None]:
        """A region in braces; ``head`` includes the opening one."""
        self.open(head, loc)
        yield
        self.close("}", loc)

    def open(self, head: str, loc: Loc | None = None) -> None:
        """Starts a region; `close` ends it."""
        self.line(head, loc)
        self._depth += 1

    def close(self, tail: str, loc: Loc | None = None) -> None:
        """Ends a region; ``tail`` may open the next one (``} else {``) if `open` does not."""
        self._depth -= 1
        self.line(tail, loc)

    def indent(self) -> None:
        """The region that a `close` with an opening brace has started."""
        self._depth += 1

    def loop_site(self, loc: Loc) -> int:
        """Registers a loop that polls as a place where a warp can spin for ever."""
        self.sites.append(Site("a polling loop", "while", self.role, loc))
        return len(self.sites) - 1

    @contextmanager
    def instruction(self, op: Op) -> Iterator[None]:
        """The lines written inside come from ``op``."""
        outer = self._op
        self._op = op
        self._comment = f"  // {op.loc} {op.mnemonic}"
        if op.sync and self.options.perturb:
            self.use("perturb")
            self.line("perturb(perturb_seed, perturb_warp, perturb_calls);")
        yield
        self._op, self._comment = outer, ""

    @contextmanager
    def executed_by(self, lanes: str) -> Iterator[None]:
        """A region that only these lanes execute."""
        outer = self.lanes
        self.lanes = lanes
        yield
        self.lanes = outer


def asm(text: str, inputs: Sequence[AsmOperand] = (), outputs: Sequence[AsmOperand] = ()) -> str:
    """An ``asm volatile`` statement with a memory clobber."""
    left = ", ".join(f'"{c}"({x})' for c, x in outputs)
    right = ", ".join(f'"{c}"({x})' for c, x in inputs)
    quoted = text.replace("\n", "\\n")
    body = f" : {left} : {right} : " if left else (f" :: {right} : " if right else " ::: ")
    return f'asm volatile("{quoted}"{body}"memory");'


#: after so many rounds a bound that still moves is taken to have none
_ROUNDS = 3


def emitted_typing(program: Program) -> Typing:
    """Types of registers, and what values those of integer types can have in any launch.

    The ranges hold every value that is ever written to a register: they are widened until no
    instruction leaves them.
    """
    ranges: dict[str, Interval] = {}
    steps = sorted(set(_literals(program)))
    typing = replace(typing_of(program), ranges=ranges, any_scalar=True)
    free = assigned(program)
    stable, rounds = False, 0
    while not stable:
        stable, rounds = True, rounds + 1
        for var, written in _definitions(program, typing, free):
            old = ranges.get(var.name)
            new = _joined(old, written, integer_limits(var.dtype))
            if old is not None and rounds > _ROUNDS:
                new = _widened(old, new, [*integer_limits(var.dtype), *steps])
            if new != old:
                ranges[var.name], stable = new, False
    return typing


def _definitions(
    program: Program, typing: Typing, free: frozenset[str]
) -> Iterator[tuple[Var, Interval]]:
    """What is written to registers of integer types, given what they hold so far."""
    for stmt in walk(program.body):
        if isinstance(stmt, For):
            counter = None if stmt.var.name in free else counted(stmt, typing)
            yield stmt.var, counter or integer_limits(stmt.var.dtype)
        elif isinstance(stmt, Op):
            for effect in stmt.effects():
                match effect:
                    case fx.Defines(var=var, value=value):
                        if var.dtype.kind != "float" and var.name not in typing.tokens:
                            known = typing.interval(value) if isinstance(value, Expr) else None
                            yield var, known or integer_limits(var.dtype)
                    case _:
                        pass


def _joined(old: Interval | None, new: Interval, limits: Interval) -> Interval:
    """Both ranges; the limits of the type where a value does not fit it."""
    if new[0] < limits[0] or new[1] > limits[1]:
        return limits
    return new if old is None else (min(old[0], new[0]), max(old[1], new[1]))


def _widened(old: Interval, new: Interval, steps: list[int]) -> Interval:
    """A bound that keeps moving goes to the next step: one of the type's, or of a comparison's."""
    low = max(s for s in steps if s <= new[0]) if new[0] < old[0] else new[0]
    high = min(s for s in steps if s >= new[1]) if new[1] > old[1] else new[1]
    return low, high


def _literals(program: Program) -> Iterator[int]:
    """The numbers that registers are compared with, where counting up or down may end."""
    for stmt in walk(program.body):
        for operand in operands(stmt):
            for part in walk_expr(operand):
                if isinstance(part, Binary) and part.op in COMPARE and isinstance(part.rhs, Const):
                    yield int(part.rhs.value)


def counted(loop: For, typing: Typing) -> Interval | None:
    """What a counter that only its loop sets can be, its value after the last turn included.

    None: it may leave its type.
    """
    start, stop, step = (typing.interval(e) for e in (loop.start, loop.stop, loop.step))
    if start is None or stop is None or step is None or step[0] <= 0 <= step[1]:
        return None
    if step[0] > 0:
        low, high = start[0], max(start[1], stop[1] - 1 + step[1])
    else:
        low, high = min(start[0], stop[0] + 1 + step[0]), start[1]
    return (low, high) if low >= INT_MIN and high <= INT_MAX else None


def role_name(outer: str, role: Role) -> str:
    """What reports call the warps inside ``role``: the outermost name that is not ``warp n``."""
    return outer or ("" if role.name.startswith("warp ") else role.name)
