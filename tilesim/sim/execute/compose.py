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
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import ViewAccess


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
    """An effect that gives data: what was read through the view ``source`` (32 rows, of use in
    active lanes), or what the effect ``source`` answers. One that ``blocks`` comes first, and gives
    None where the warp has to wait."""

    source: object
    read: Callable[[Warp], Any]
    blocks: bool = False


@dataclass(frozen=True)
class Take:
    """An effect that takes a register value: of an expression, as another effect has given, or
    (None) the next one that the instruction computes, one or a row per lane."""

    write: Callable[[Warp, Any], None]
    value: Evaluate | View | Effect | None = None


Part: TypeAlias = Act | Give | Take
Effects: TypeAlias = tuple[Effect, ...]
Executor: TypeAlias = Callable[[Operands, Op, Any], Part]
#: how each kind of effect is carried out; filled by the modules of this package
EXECUTORS: dict[type[Effect], Executor] = {}


#: how effects are carried out that are one operation of the instruction, and which those are
OPERATIONS: list[tuple[Callable[[Effects], bool], Callable[[Operands, Op, Effects], Step]]] = []


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

    __slots__ = ("_evaluate", "_given", "_op", "_values", "active", "warp")

    def __init__(self, warp: Warp, op: Op, evaluate: dict[int, Evaluate]) -> None:
        self.warp = warp
        self.active: NDArray[np.bool_] = mask_array(warp.mask)
        self._op = op
        self._evaluate = evaluate
        self._given: dict[int, Any] = {}
        self._values: Iterator[Any] | None = None

    def lanes(self, operand: Expr) -> NDArray[Any]:
        """An operand's value in each lane."""
        return np.broadcast_to(plain(self._evaluate[id(operand)](self.warp)), 32)

    def memory(self, view: View) -> NDArray[Any]:
        """What each lane read through a view."""
        rows: NDArray[Any] = self.given(view)
        return rows

    def given(self, source: object) -> Any:
        """What an effect has given."""
        return self._given[id(source)]

    def gives(self, source: object, value: Any) -> None:
        """What was read through a view, or what an effect answers."""
        self._given[id(source)] = value

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
    for applies, whole in OPERATIONS:
        if applies(effects):
            return whole(c, op, effects)
    strange = [type(e).__name__ for e in effects if type(e) not in EXECUTORS]
    if strange:
        raise TypeError(f"{op.mnemonic}: no executor for the effect {strange[0]}")
    parts = _paired([EXECUTORS[type(e)](c, op, e) for e in effects])
    if any(part.blocks for part in parts[1:] if not isinstance(part, Take)):
        raise TypeError(f"{op.mnemonic}: an effect that blocks comes after another one")
    steps = [part.step for part in parts if isinstance(part, Act)]
    if len(steps) < len(parts):
        return _with_values(c, op, parts)
    match steps:
        case []:
            return _nothing
        case [step]:
            return step
        case _:
            return _sequence(steps)


def _nothing(w: Warp) -> None:
    """An instruction without effects."""


def _paired(parts: list[Part]) -> list[Part]:
    """``parts``, where one that takes what the one before it gives, or what an expression says, is
    one step; not if the instruction computes values, perhaps of what is given."""
    if any(isinstance(part, Take) and part.value is None for part in parts):
        return parts
    result: list[Part] = []
    for part in parts:
        before = result[-1] if result else None
        match part:
            case Take(write, value) if callable(value):
                result.append(Act(_set(write, value)))
            case Take(write, value) if isinstance(before, Give) and before.source is value:
                result[-1] = Act(_handed(before, write), before.blocks)
            case _:
                result.append(part)
    return result


def _set(write: Callable[[Warp, Any], None], value: Evaluate) -> Step:
    return lambda w: write(w, value(w))


def _handed(give: Give, write: Callable[[Warp, Any], None]) -> Step:
    read = give.read
    if not give.blocks:
        return lambda w: write(w, read(w))

    def step(w: Warp) -> bool | None:
        found = read(w)
        if found is None:
            return True
        write(w, found)
        return None

    return step


def _sequence(steps: list[Step]) -> Step:
    """Steps of which the first may block, and then is the one that is executed again."""
    first, rest = steps[0], steps[1:]

    def run(w: Warp) -> bool | None:
        if first(w):
            return True
        for step in rest:
            step(w)
        return None

    return run


def _with_values(c: Operands, op: Op, parts: list[Part]) -> Step:
    """Parts that hand values on, with those that the instruction computes."""
    evaluate = {id(expr): c.expr(expr) for expr in _expressions(op)}
    first, runs = parts[0], [_run(part) for part in parts]
    if not isinstance(first, Take) and first.blocks:
        enter = _entry(first)
        rest = runs[1:]

        def waiting(w: Warp) -> bool | None:
            execution = Execution(w, op, evaluate)
            if enter(execution):
                return True
            for run in rest:
                run(execution)
            return None

        return waiting

    def step(w: Warp) -> None:
        execution = Execution(w, op, evaluate)
        for run in runs:
            run(execution)

    return step


def _entry(part: Act | Give) -> Callable[[Execution], bool | None]:
    """A part that may block, and tells."""
    if isinstance(part, Act):
        step = part.step
        return lambda x: step(x.warp)
    source, read = part.source, part.read

    def enter(x: Execution) -> bool | None:
        found = read(x.warp)
        if found is None:
            return True
        x.gives(source, found)
        return None

    return enter


def _run(part: Part) -> Callable[[Execution], object]:
    match part:
        case Act(step):
            return lambda x: step(x.warp)
        case Give(source, read):
            return lambda x: x.gives(source, read(x.warp))
        case Take(write, None):
            return lambda x: write(x.warp, x.computed())
        case Take(write, value) if callable(value):
            return lambda x: write(x.warp, value(x.warp))
        case Take(write, source):
            return lambda x: write(x.warp, x.given(source))


def _expressions(op: Op) -> Iterator[Expr]:
    """The operands that are expressions; registers that are only set are among them."""
    for field in fields(op):
        value = getattr(op, field.name)
        items = value if isinstance(value, tuple) else (value,)
        yield from (item for item in items if isinstance(item, Expr))
