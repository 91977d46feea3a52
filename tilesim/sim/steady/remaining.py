"""How often a loop still turns: an estimate, on which nothing but the time it takes depends.

What leads out of a loop is mostly a branch whose condition is one of registers that grow by the
same from turn to turn. So the condition is evaluated with these moved on, further and further,
until it says that the loop ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Var, walk
from tilesim.ir.mir import Branch
from tilesim.ir.op import Op
from tilesim.sim.expression import Evaluate, evaluator, plain
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Code, Warp
from tilesim.sim.steady.later import Then

#: what registers of a warp hold, by slot
Registers: TypeAlias = "list[Any]"
#: by how much registers grow in a repetition, by slot
Moves: TypeAlias = "dict[int, Any]"
#: a loop that goes on so often does not end
_MANY = 1 << 40


@dataclass(frozen=True)
class _Exit:
    """A branch that leads out of a loop if ``condition`` is ``sense``.

    ``predicates`` are computed before it, by the number of a register. ``reads``: the registers
    that are needed for all that.
    """

    condition: Evaluate
    sense: bool
    predicates: tuple[tuple[int, Evaluate], ...]
    reads: frozenset[int]


class Remaining:
    """Estimates for the loops of a program; ``heads``: by number of a branch that goes back, where
    to."""

    def __init__(self, plan: Code, heads: dict[int, int]) -> None:
        self._plan = plan
        self._heads = heads
        self._exits: dict[int, tuple[_Exit, ...]] = {}

    def repetitions(self, w: Warp, back: int, before: Registers) -> int | None:
        """How often what has happened since the registers of a warp held ``before`` happens again
        until a loop ends that goes back at ``back``, or one around it; None if nobody knows."""
        by = {
            slot: _difference(now, then)
            for slot, (then, now) in enumerate(zip(before, w.registers, strict=True))
            if then is not now
        }
        moving = {slot: d for slot, d in by.items() if d is not None and np.any(d)}
        found = []
        for other, head in self._heads.items():
            if head <= self._heads[back] and back <= other:
                ways = (self._until(e, w, moving) for e in self._of(other, head))
                found += [often for often in ways if often is not None]
        return min(found, default=None)

    def _until(self, way_out: _Exit, w: Warp, moving: Moves) -> int | None:
        """After how many repetitions that way is taken; None if it is not."""
        fixed = way_out.reads.isdisjoint(moving)
        if fixed or any(w.registers[slot] is None for slot in way_out.reads):
            return None
        most = 1
        while not _ends(way_out, w, moving, most):
            most *= 2
            if most > _MANY:
                return None
        least = most // 2
        while most - least > 1:
            middle = (least + most) // 2
            if _ends(way_out, w, moving, middle):
                most = middle
            else:
                least = middle
        return least

    # ------------------------------------------------------------------ ways out of a loop

    def _of(self, back: int, head: int) -> tuple[_Exit, ...]:
        known = self._exits.get(back)
        if known is None:
            known = self._exits[back] = tuple(self._found(back, head))
        return known

    def _found(self, back: int, head: int) -> list[_Exit]:
        code, found = self._plan.mir.code, []
        for number in range(head, back + 1):
            match code[number].what:
                case Branch(cond=Expr() as cond, target=target, sense=sense):
                    if number == back or not head <= target <= back:
                        found.append(self._exit(cond, sense != (number == back), head, back))
                case _:
                    pass
        return found

    def _exit(self, cond: Expr, sense: bool, head: int, back: int) -> _Exit:
        needed, predicates = _names(cond), []
        for number in range(back, head - 1, -1):
            for var, value in self._set(number):
                if var.name in needed and var.dtype.kind == "pred":
                    needed |= _names(value)
                    predicates.append((self._plan.slots[var.name], self._compiled(value)))
        reads = frozenset(self._plan.slots[name] for name in needed)
        return _Exit(self._compiled(cond), sense, tuple(reversed(predicates)), reads)

    def _set(self, number: int) -> list[tuple[Var, Expr]]:
        what = self._plan.mir.code[number].what
        effects = what.effects() if isinstance(what, Op) else ()
        return [
            (e.var, e.value)
            for e in effects
            if isinstance(e, fx.Defines) and isinstance(e.value, Expr)
        ]

    def _compiled(self, expr: Expr) -> Evaluate:
        return evaluator(self._plan, expr)


def _names(expr: Expr) -> set[str]:
    return {part.name for part in walk(expr) if isinstance(part, Var)}


def _difference(now: Any, before: Any) -> Any:
    """By how much an integer register has grown, in all lanes; None if it is none."""
    now, before = plain(now), plain(before)
    if type(now) is int and type(before) is int:
        return now - before
    if not isinstance(now, np.ndarray) or not isinstance(before, np.ndarray):
        return None
    if now.dtype.kind not in "iu" or now.shape != before.shape:
        return None
    return now.astype(np.int64) - before.astype(np.int64)


def _ends(way_out: _Exit, w: Warp, moving: Moves, often: int) -> bool:
    """Whether a loop ends there after so many repetitions."""
    registers = list(w.registers)
    for slot, by in moving.items():
        registers[slot] = plain(registers[slot]) + often * by
    then = cast(Warp, Then(w, w.cta, registers))
    try:
        for slot, evaluate in way_out.predicates:
            registers[slot] = evaluate(then)
        holds = plain(way_out.condition(then))
    except ArithmeticError:
        return False
    if not isinstance(holds, bool | int | np.bool_ | np.ndarray):
        return False
    turning = np.broadcast_to(holds, 32)[mask_array(w.mask)]  # others have left, or never came
    return bool(turning.any()) is way_out.sense
