"""One warp of one CTA as a Promela process: what is known about it, and its operands.

The code is specialised to the warp: what is known when the model is written (roles, lanes,
parameters) is decided there; run-time loops and the variables that change in them remain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tilesim.analysis.cfg import LANES
from tilesim.arith.intervals import Interval
from tilesim.export.errors import NotExportable
from tilesim.export.model import Model
from tilesim.export.nodes import Action, Node, lines, useful
from tilesim.export.values import (
    INT,
    Evaluator,
    Known,
    Runtime,
    Unknown,
    Value,
    as_runtime,
    merge,
    restrict,
)
from tilesim.ir.expr import Expr, Var
from tilesim.ir.loc import Loc
from tilesim.ir.op import Op
from tilesim.records import dataclass, field, replace
from tilesim.sim.machine.cta import coordinates

FULL = (1 << LANES) - 1
_VARIABLE = re.compile(r"\bv_\w+")


@dataclass
class State:
    """What is known on a path: variables, lanes, registers held; ``dead``: the path has ended."""

    variables: dict[str, Value] = field(default_factory=dict)
    mask: int = FULL
    live: int = FULL
    held: int = 0
    dead: bool = False

    def copy(self) -> State:
        """An independent copy."""
        return replace(self, variables=dict(self.variables))


class Process:
    """The state of one warp while its code is written; rules of instructions use it.

    ``addressed``: addresses of mbarriers are known numbers.
    """

    addressed = False

    def __init__(self, model: Model, rank: int, warp: int, held: int) -> None:
        self.model = model
        self.rank = rank
        self.warp = warp
        self.state = State(held=held)
        #: whether a ``goto done`` was written
        self.exits = False
        #: run-time loops and branches around the current point
        self.depth = 0
        #: variables that count a loop around the current point
        self.counters: set[str] = set()
        self._evaluate = Evaluator(warp, _specials(model, rank, warp), self._read)
        self._ranges: dict[str, Interval] = {}
        self._needed: set[str] = set()

    @property
    def me(self) -> str:
        """The warp's bit in masks of its CTA."""
        return str(1 << self.warp) if self.warp < LANES - 1 else f"(1 << {self.warp})"

    def text(self, nodes: tuple[Node, ...]) -> Iterator[str]:
        """The process with this code."""
        role = self.model.program.role_of(self.warp)
        named = "" if role == f"warp {self.warp}" else f", {role}"
        yield f"/* CTA {self.model.ctas[self.rank]}, warp {self.warp}{named} */"
        yield f"active proctype cta{self.rank}_warp{self.warp}() {{"
        body = list(lines(useful(nodes, self._needed), 1))
        used = set(_VARIABLE.findall("\n".join(body)))
        yield from (f"  {_type(span)} {n};" for n, span in self._ranges.items() if n in used)
        yield from body
        if self.exits:
            yield "done: skip;"
        yield f"  d_step {{ leave({self.rank}, {self.me}) }}"
        yield "}"

    # ------------------------------------------------------------------ operands

    @property
    def lanes(self) -> int:
        """How many lanes are active."""
        return self.state.mask.bit_count()

    def value(self, expr: Expr) -> Value:
        """``expr`` in the active lanes."""
        return restrict(self._evaluate(expr, self.state.mask), self.state.mask, str(expr))

    def uniform(self, expr: Expr, mnemonic: str, loc: Loc, what: str) -> Runtime:
        """An operand that is the same for all lanes.

        Raises:
            NotExportable: it differs between lanes, or depends on something not in the model.
        """
        value = self.value(expr)
        found = as_runtime(value)
        if found is not None:
            return found
        raise NotExportable(mnemonic, loc, f"its {what} {expr} depends on {reason(value)}")

    def total(self, expr: Expr, op: Op, what: str) -> Runtime:
        """The sum of an operand over the active lanes: each lane executes the instruction."""
        value = self.value(expr)
        if isinstance(value, Known):
            number = sum(v for v in value.lanes if v is not None)
            return Runtime(str(number), (number, number))
        one = self.uniform(expr, op.mnemonic, op.loc, what)
        if self.lanes == 1:
            return one
        span = (one.range[0] * self.lanes, one.range[1] * self.lanes)
        return Runtime(f"({one.text} * {self.lanes})", span)

    def _read(self, var: Var, mask: int) -> Value:
        value = self.state.variables.get(var.name, Unknown(f"{var}, which is not set"))
        if isinstance(value, Runtime):
            self._needed.add(value.text)
        return restrict(value, mask, str(var))

    # ------------------------------------------------------------------ variables

    def define(self, var: Var, value: Value) -> tuple[Node, ...]:
        """``var = value`` in the active lanes, and the assignment that keeps the model's copy."""
        name, variables = variable(var), self.state.variables
        match value:
            case Known(lanes):
                old = variables.get(var.name)
                before = old.lanes if isinstance(old, Known) else (None,) * LANES
                taken = (self.state.mask >> i & 1 for i in range(LANES))
                both = zip(taken, lanes, before, strict=True)
                variables[var.name] = Known(tuple(x if mine else y for mine, x, y in both))
            case Runtime(range=span):
                variables[var.name] = Runtime(name, span, self.state.mask)
            case _:
                variables[var.name] = value
        seen = as_runtime(value)
        if seen is None:
            return ()
        self.declare(name, seen.range)
        return (Action(f"{name} = {seen.text}", sets=name),)

    def result(self, var: Var, span: Interval) -> str:
        """The Promela variable of a result that an instruction writes in the active lanes."""
        name = variable(var)
        self.declare(name, span)
        self.state.variables[var.name] = Runtime(name, span, self.state.mask)
        return name

    def forget(self, var: Var, why: str) -> None:
        """``var`` gets a value that the model does not have."""
        self.state.variables[var.name] = Unknown(why)

    def declare(self, name: str, span: Interval) -> None:
        """A local variable of the process takes values in this range."""
        low, high = self._ranges.get(name, span)
        self._ranges[name] = (min(low, span[0]), max(high, span[1]))

    def meet(self, states: Sequence[State], loc: Loc, *, widen: bool = False) -> State:
        """What is known after several paths; ``widen`` gives up ranges that have grown."""
        alive = [s for s in states if not s.dead]
        if not alive:
            return replace(states[0], dead=True)
        first = alive[0].copy()
        for other in alive[1:]:
            if (first.held, first.live) != (other.held, other.live):
                raise NotExportable(
                    "setmaxnreg", loc, "how many registers the warp holds depends on the path"
                )
            names = first.variables.keys() | other.variables.keys()
            first.variables = {name: self._met(name, first, other, widen) for name in sorted(names)}
        return first

    @staticmethod
    def _met(name: str, a: State, b: State, widen: bool) -> Value:
        unset = Unknown(f"%{name}, which is not set on every path")
        old = a.variables.get(name, unset)
        new = merge(old, b.variables.get(name, unset), f"v_{name}", f"%{name}")
        if widen and isinstance(new, Runtime) and new != old:
            return replace(new, range=INT)
        return new


def variable(var: Var) -> str:
    """The name of a variable in the model."""
    return f"v_{var.name}"


def reason(value: Value) -> str:
    """What a value that the model cannot express depends on."""
    return value.why if isinstance(value, Unknown) else "the lane"


def _specials(model: Model, rank: int, warp: int) -> dict[str, int]:
    """The special registers that are the same for all lanes."""
    gx, gy, gz = model.program.grid
    x, y, z = coordinates(model.program, model.ctas[rank])
    return {
        "warp_id": warp,
        "cta_x": x, "cta_y": y, "cta_z": z,
        "grid_x": gx, "grid_y": gy, "grid_z": gz,
        "cluster_rank": rank, "cluster_size": model.program.cluster_size,
        "cluster_id": model.cluster,
    }  # fmt: skip


def _type(span: Interval) -> str:
    """The smallest Promela type that holds a range."""
    low, high = span
    for name, least, most in (("bit", 0, 1), ("byte", 0, 255), ("short", -32768, 32767)):
        if least <= low and high <= most:
            return name
    return "int"
