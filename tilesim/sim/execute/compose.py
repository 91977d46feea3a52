"""How the effects of an instruction become one function when the program is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.dataflow import Dataflow
from tilesim.ir.effects import Effect
from tilesim.ir.expr import Expr, Var
from tilesim.ir.memory import GlobalTensor, Mbar, SharedTensor, View
from tilesim.ir.op import Op
from tilesim.sim.expression import Evaluate, Fit, plain
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import ViewAccess
from tilesim.sim.machine.warp import Step, Warp, mask_array


class Operands(Protocol):
    """Resolves operands of the program that is loaded."""

    @property
    def flow(self) -> Dataflow:
        """Which data steers the program."""
        ...

    def expr(self, expr: Expr) -> Evaluate:
        """``expr`` as a function of a warp."""
        ...

    def slot(self, var: Var) -> int:
        """The register index of a variable."""
        ...

    def fit(self, var: Var, value: Expr) -> Fit | None:
        """What brings ``value`` into the type of a register."""
        ...

    def private(self, var: Var) -> bool:
        """Whether lanes that do not set a register when others do never use it."""
        ...

    def view(self, view: View, *, split: bool = False) -> ViewAccess:
        """``view`` as a resolver of memory and footprint."""
        ...

    def mbar(self, mbar: Mbar) -> Callable[[Warp], Mbarrier]:
        """``mbar`` as a function of a warp."""
        ...

    def real(self, tensor: GlobalTensor | SharedTensor) -> bool:
        """Whether the tensor's bytes are computed."""
        ...


@dataclass(frozen=True)
class Act:
    """An effect that neither gives nor takes data; one that ``blocks`` comes first."""

    step: Step
    blocks: bool = False


@dataclass(frozen=True)
class Give:
    """An effect that gives what was read through ``view``: 32 rows, of use in active lanes."""

    view: View
    read: Callable[[Warp], NDArray[Any]]


@dataclass(frozen=True)
class Take:
    """An effect that takes a register value: of an expression, as read through a view, or (None)
    the next one that the instruction computes, one or a row per lane."""

    write: Callable[[Warp, Any], None]
    value: Evaluate | View | None = None


Part: TypeAlias = Act | Give | Take
Executor: TypeAlias = Callable[[Operands, Op, Any], Part]
#: how each kind of effect is carried out; filled by the modules of this package
EXECUTORS: dict[type[Effect], Executor] = {}


def executor(kind: type[Any]) -> Callable[[Executor], Executor]:
    """Decorator: the function is the executor of this kind of effect."""

    def register(function: Executor) -> Executor:
        if kind in EXECUTORS:
            raise TypeError(f"two executors for {kind.__name__}")
        EXECUTORS[kind] = function
        return function

    return register


class Execution:
    """One execution of an instruction: its `Inputs`, and what it computes of them."""

    __slots__ = ("_evaluate", "_op", "_read", "_values", "active", "warp")

    def __init__(self, warp: Warp, op: Op, evaluate: dict[int, Evaluate]) -> None:
        self.warp = warp
        self.active: NDArray[np.bool_] = mask_array(warp.mask)
        self._op = op
        self._evaluate = evaluate
        self._read: dict[int, NDArray[Any]] = {}
        self._values: Iterator[Any] | None = None

    def lanes(self, operand: Expr) -> NDArray[Any]:
        """An operand's value in each lane."""
        return np.broadcast_to(plain(self._evaluate[id(operand)](self.warp)), 32)

    def memory(self, view: View) -> NDArray[Any]:
        """What each lane read through a view."""
        return self._read[id(view)]

    def gives(self, view: View, rows: NDArray[Any]) -> None:
        """What was read."""
        self._read[id(view)] = rows

    @property
    def time(self) -> int:
        """Cycles since the launch, as the latency model has them; never twice the same."""
        return int(self.warp.machine.env.now) + self.warp.executed

    def computed(self) -> Any:
        """The next value that the instruction computes, one per lane."""
        if self._values is None:
            self._values = iter(self._op.evaluate(self))
        return next(self._values)


def execute(c: Operands, op: Op) -> Step:
    """The step of an instruction, from its effects.

    Raises:
        TypeError: an effect has no executor, or one that blocks comes after another.
    """
    effects = op.effects()
    strange = [type(e).__name__ for e in effects if type(e) not in EXECUTORS]
    if strange:
        raise TypeError(f"{op.mnemonic}: no executor for the effect {strange[0]}")
    parts = [EXECUTORS[type(e)](c, op, e) for e in effects]
    match parts:
        case []:
            return _nothing
        case [Act(step)]:
            return step
        case [Take(write, value)] if callable(value):
            return _set(write, value)
        case [Give(view, read), Take(write, View() as source)] if source is view:
            return lambda w: write(w, read(w))
        case _:
            return _composed(c, op, parts)


def _nothing(w: Warp) -> None:
    """An instruction without effects."""


def _set(write: Callable[[Warp, Any], None], value: Evaluate) -> Step:
    return lambda w: write(w, value(w))


def _composed(c: Operands, op: Op, parts: list[Part]) -> Step:
    if any(isinstance(part, Act) and part.blocks for part in parts[1:]):
        raise TypeError(f"{op.mnemonic}: an effect that blocks comes after another one")
    evaluate = {id(expr): c.expr(expr) for expr in _expressions(op)}
    runs = [_run(part) for part in parts]
    first = parts[0]
    if isinstance(first, Act) and first.blocks:
        enter, rest = first.step, runs[1:]

        def waiting(w: Warp) -> bool | None:
            if enter(w):
                return True
            execution = Execution(w, op, evaluate)
            for run in rest:
                run(execution)
            return None

        return waiting

    def step(w: Warp) -> None:
        execution = Execution(w, op, evaluate)
        for run in runs:
            run(execution)

    return step


def _run(part: Part) -> Callable[[Execution], object]:
    match part:
        case Act(step):
            return lambda x: step(x.warp)
        case Give(view, read):
            return lambda x: x.gives(view, read(x.warp))
        case Take(write, None):
            return lambda x: write(x.warp, x.computed())
        case Take(write, View() as source):
            return lambda x: write(x.warp, x.memory(source))
        case Take(write, value):
            assert callable(value)
            return lambda x: write(x.warp, value(x.warp))


def _expressions(op: Op) -> Iterator[Expr]:
    """The operands that are expressions; registers that are only set are among them."""
    for field in fields(op):
        value = getattr(op, field.name)
        items = value if isinstance(value, tuple) else (value,)
        yield from (item for item in items if isinstance(item, Expr))
