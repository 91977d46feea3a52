"""The context in which an instruction's rule writes its C++: operands, helpers, lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilesim.gpu.emit.expr import Expressions
from tilesim.gpu.emit.prelude import HELPERS
from tilesim.gpu.emit.source import Site
from tilesim.gpu.errors import EmitError
from tilesim.ir.arithmetic import CType
from tilesim.ir.distribution import Layout, layouts
from tilesim.ir.expr import Expr, Var
from tilesim.ir.lanes import divergent_variables
from tilesim.ir.loc import Loc
from tilesim.ir.memory import Fragment
from tilesim.ir.op import Op, OpTable
from tilesim.ir.program import Program

Rule: TypeAlias = Callable[["Emitter", Any], None]
#: how each instruction is written; filled by the modules of ``gpu.emit``
EMIT: OpTable[Rule] = OpTable("the CUDA emitter")

#: (constraint, C expression) of an operand of inline PTX
AsmOperand = tuple[str, str]


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
