"""Registers that an instruction sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.uses_defs import operand_expressions, registers_set
from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Var, walk
from tilesim.ir.memory import View
from tilesim.ir.op import Op
from tilesim.sim.execute.compose import Act, Operands, Take, executor
from tilesim.sim.expression import evaluator, fit_value, merged, plain
from tilesim.sim.machine.errors import UnassignedVariable
from tilesim.sim.machine.lanes import FULL, mask_array
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.unknown import Unknown


def assign(w: Warp, slot: int, value: Any) -> None:
    """``register = value`` in the active lanes; the others keep theirs."""
    if w.mask == FULL or w.registers[slot] is None:
        w.registers[slot] = value
        return
    w.registers[slot] = merged(mask_array(w.mask), value, w.registers[slot])


def spread(w: Warp, values: NDArray[Any]) -> Any:
    """One value per active lane as a register value: a scalar if all lanes hold the same."""
    kind: Any = np.float64 if values.dtype.kind in "Vf" else np.int64
    if values.dtype == np.uint64 and (values > np.iinfo(np.int64).max).any():
        kind = object  # Python's integers
    values = values.astype(kind)
    if (values == values[0]).all():
        return values[0] if kind is object else values[0].item()
    result = np.zeros(32, dtype=kind)
    result[mask_array(w.mask)] = values
    return result


def idle(c: Operands, op: Op) -> Step:
    """The step of an instruction of which nobody needs what it computes: its registers are set.

    It needs operands all the same, which it would find not to be set.
    """
    read = {v.name: c.slot(v) for e in operand_expressions(op) for v in walk(e)
            if isinstance(v, Var)}  # fmt: skip
    slots = [c.slot(var) for var in registers_set(op)]
    sources = [*read.items()]

    def step(w: Warp) -> None:
        registers = w.registers
        for name, slot in sources:
            if registers[slot] is None:
                raise UnassignedVariable(name)
        for slot in slots:
            registers[slot] = 0

    return step


def exchanged(c: Operands, op: Op, general: Step) -> Step:
    """The step of an instruction by which lanes exchange what nobody needs: they meet.

    ``general``: what it does where not all lanes take part, some of which may read from others.
    """
    rest = idle(c, op)

    def step(w: Warp) -> bool | None:
        if w.mask != FULL or w.spread is not None:
            return general(w)
        w.gather()
        return rest(w)

    return step


def idle_row(c: Operands, ops: Sequence[Op], alone: Sequence[tuple[Step, int]]) -> Step:
    """Instructions in a row that are `idle`, as one step; ``alone`` are their steps and cycles."""
    slots: dict[int, None] = {}
    before: dict[int, None] = {}
    for op in ops:
        read = (v for e in operand_expressions(op) for v in walk(e) if isinstance(v, Var))
        before |= dict.fromkeys(slot for v in read if (slot := c.slot(v)) not in slots)
        slots |= dict.fromkeys(c.slot(var) for var in registers_set(op))
    sources, results, others = [*before], [*slots], len(ops) - 1
    # one that takes no cycles does not count as executed
    counted = max(0, sum(cycles > 0 for _, cycles in alone) - 1)

    def step(w: Warp) -> None:
        registers = w.registers
        for slot in sources:
            if registers[slot] is None:
                _one_by_one(w, alone)
                return
        for slot in results:
            registers[slot] = 0
        w.pc += others
        w.executed += counted

    return step


def _one_by_one(w: Warp, steps: Sequence[tuple[Step, int]]) -> None:
    """A row of instructions of which one reads a register that nothing was assigned to: that is
    where it ends."""
    for number, (step, cycles) in enumerate(steps):
        if number:
            w.pc += 1
            w.executed += cycles > 0
        step(w)


def per_lane(w: Warp, value: Any) -> NDArray[Any]:
    """A register value as one element per active lane."""
    lanes: NDArray[Any] = np.broadcast_to(plain(value), 32)[mask_array(w.mask)]
    return lanes


@executor(fx.Defines)
def _defines(c: Operands, op: Op, effect: fx.Defines) -> Act | Take:
    slot, chance, elsewhere = c.slot(effect.var), effect.chance, effect.elsewhere
    if effect.unknown:
        nobody = Unknown(effect.unknown, loc=op.loc)
        return Act(lambda w: assign(w, slot, nobody))
    if isinstance(effect.value, Expr):
        write = _setter(c, effect.var, effect.value)
        if effect.var.name in c.quotients.registers:
            evaluate = evaluator(c.code, effect.value)
            return Take(*c.quotients.kept(effect.var, effect.value, evaluate, write))
        return Take(write, c.expr(effect.value))
    fit = fit_value(effect.var.dtype, None)

    def store(w: Warp, lanes: NDArray[Any]) -> None:
        value = spread(w, lanes)
        assign(w, slot, value if fit is None else fit(value))

    def compute(w: Warp, value: Any) -> None:
        if type(value) is Unknown or type(value) is int:
            assign(w, slot, value if fit is None or type(value) is not int else fit(value))
            return
        store(w, np.broadcast_to(value, 32)[mask_array(w.mask)])

    def guess(w: Warp, value: Any) -> None:
        w.machine.nondeterministic(chance, op, explorable=False)
        if elsewhere:
            w.machine.outcome.elsewhere.setdefault(chance, op.loc)
        compute(w, value)

    if chance and effect.var.name in c.flow.deciding:
        return Take(guess)
    if effect.value is None:
        return Take(compute)

    def first(w: Warp, rows: Any) -> None:
        if type(rows) is Unknown:
            assign(w, slot, rows)
        else:
            store(w, rows[mask_array(w.mask), 0])

    if isinstance(effect.value, View):
        return Take(first, effect.value)
    return Take(_keeper(c, effect.var), effect.value)


def _keeper(c: Operands, var: Var) -> Callable[[Warp, Any], None]:
    """How the answer of an effect, which fits, gets into its register."""
    slot = c.slot(var)
    if not c.private(var):
        return lambda w, value: assign(w, slot, value)

    def keep(w: Warp, value: Any) -> None:
        if w.machine.forks:  # other lanes may be in another turn of the loop
            assign(w, slot, value)
        else:
            w.registers[slot] = value

    return keep


def _setter(c: Operands, var: Var, value: Expr) -> Callable[[Warp, Any], None]:
    """How the value of an expression gets into its register, with as little as that needs."""
    slot, fit = c.slot(var), c.fit(var, value)
    if c.private(var):

        def keep(w: Warp, value: Any) -> None:
            value = value if fit is None else fit(value)
            if w.machine.forks:  # other lanes may be in another turn of the loop
                assign(w, slot, value)
            else:
                w.registers[slot] = value

        return keep

    def write(w: Warp, value: Any) -> None:
        if fit is not None:
            value = fit(value)
        # `assign`, without a call of it
        if w.mask == FULL or w.registers[slot] is None:
            w.registers[slot] = value
        else:
            assign(w, slot, value)

    return write
