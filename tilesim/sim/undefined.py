"""Quotients of a division by zero, numbers that PTX leaves open.

A register may hold one in some lanes as long as nothing depends on it: ``select`` throws away what
it does not choose, a branch leaves lanes out. In which lanes registers do is kept beside them
(`Agent.undefined`); whoever uses an expression that may be such a number looks there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, TypeAlias, cast

from tilesim.analysis.solver import closure
from tilesim.analysis.uses_defs import expressions_in, mentioned, operand_expressions
from tilesim.ir.effects import Defines
from tilesim.ir.expr import Binary, Expr, Select, Unary, Var, walk
from tilesim.ir.mir import Mir, condition
from tilesim.ir.op import Op
from tilesim.sim.expression import Evaluate, compile_expr, may_divide_by_zero
from tilesim.sim.machine.errors import Fault
from tilesim.sim.machine.lanes import condition_lanes
from tilesim.sim.machine.machine import Code, Step, Warp

LanesOf: TypeAlias = Callable[[Warp], int]


class UsesUndefined(Fault):
    """An active lane uses the quotient of a division by zero."""

    def __init__(self, lanes: int) -> None:
        lane = (lanes & -lanes).bit_length() - 1
        super().__init__(
            f"lane {lane} uses the quotient or remainder of a division by zero, which is any number"
        )


class Quotients:
    """Where a program may divide by zero, and what becomes of the result.

    Of a divisor that is data nobody looks at, nothing is said: ``deciding`` are the registers that
    are computed anyhow, all of them if it is None.
    """

    def __init__(self, mir: Mir, code: Code, deciding: frozenset[str] | None) -> None:
        self._mir, self._slots = mir, code.slots
        self._deciding = deciding
        #: registers that may hold such a number in some lane
        self.registers: frozenset[str] = frozenset()
        self._any = any(map(self._divides, _parts(mir)))
        if self._any:
            divided = [v.name for v, value in self._values if self.doubts(value)]
            self.registers = frozenset(closure(divided, self._made_of))

    def doubts(self, expr: Expr) -> bool:
        """Whether an expression may be such a number."""
        return self._any and any(
            self._divides(part) or (isinstance(part, Var) and part.name in self.registers)
            for part in walk(expr)
        )

    @cached_property
    def needed(self) -> frozenset[str]:
        """Registers that have to be computed for it."""
        if not self._any:
            return frozenset()
        found = self.registers.union(
            *(mentioned(part) & self._computed for part in _parts(self._mir) if self.doubts(part))
        )
        held = self._computed | self.registers
        sources: dict[str, frozenset[str]] = {}
        for var, value in self._values:
            sources[var.name] = sources.get(var.name, frozenset()) | mentioned(value) & held
        return frozenset(closure(found, lambda name: sources.get(name, ())))

    def used(self, expr: Expr, evaluate: Evaluate) -> Evaluate:
        """``evaluate`` for those to whom the number matters in all active lanes."""
        lanes_of = self.lanes(expr)

        def use(w: Warp) -> Any:
            if not w.undefined:
                try:
                    return evaluate(w)
                except ZeroDivisionError:
                    pass
            settled = cast(Warp, _Settled(w))
            lanes = lanes_of(settled) & w.mask
            if lanes:
                raise UsesUndefined(lanes)
            return evaluate(settled)

        return use

    def kept(
        self, var: Var, value: Expr, evaluate: Evaluate, write: Callable[[Warp, Any], None]
    ) -> tuple[Callable[[Warp, Any], None], Evaluate]:
        """How a register takes a value that may be such a number: ``write`` and ``evaluate``, with
        the lanes in which it is."""
        lanes_of, slot = self.lanes(value), self._slots[var.name]

        def found(w: Warp) -> tuple[int, Any]:
            if not w.undefined:
                try:
                    return 0, evaluate(w)
                except ZeroDivisionError:
                    pass
            settled = cast(Warp, _Settled(w))
            return lanes_of(settled), evaluate(settled)

        def keep(w: Warp, value: tuple[int, Any]) -> None:
            _note(w, slot, value[0])
            write(w, value[1])

        return keep, found

    def around(self, op: Op, step: Step) -> Step:
        """``step``, with a look at the data it takes, which it may not compute; registers hold
        what it has read or been answered behind it."""
        taken = (e for name in op.data for e in expressions_in(getattr(op, name)))
        sets = [e for e in op.effects() if isinstance(e, Defines)]
        kept = any(isinstance(e.value, Expr) for e in sets)
        uses = [self._use(e) for e in taken if not kept and self.doubts(e)]
        slots = [self._slots[e.var.name] for e in sets if e.var.name in self.registers]
        if kept or not (uses or slots):
            return step

        def run(w: Warp) -> bool | None:
            for use in uses:
                use(w)
            if step(w):
                return True
            for slot in slots:
                _note(w, slot, 0)
            return None

        return run

    def _use(self, expr: Expr) -> Evaluate:
        return self.used(expr, compile_expr(expr, self._slots, self._mir.typing))

    def lanes(self, expr: Expr) -> LanesOf:
        """In which lanes an expression is such a number."""
        match expr:
            case Var(name) if name in self.registers:
                slot = self._slots[name]
                return lambda w: w.undefined.get(slot, 0)
            case Unary(_, operand):
                return self.lanes(operand)
            case Binary("and" | "or" as op, lhs, rhs):
                first, second, holds = self.lanes(lhs), self.lanes(rhs), self._holding(lhs)
                decided = 0 if op == "and" else -1
                return lambda w: first(w) | second(w) & (holds(w) ^ decided)
            case Binary(_, lhs, rhs):
                parts = [self.lanes(lhs), self.lanes(rhs)]
                if self._divides(expr) and mentioned(rhs) <= self._computed | _other(rhs):
                    parts.append(self._holding(rhs.eq(0)))
                return _either(parts)
            case Select(cond, then, other):
                first, second, third = map(self.lanes, (cond, then, other))
                holds = self._holding(cond)
                return lambda w: first(w) | second(w) & holds(w) | third(w) & ~holds(w)
            case _:
                return _none

    def _holding(self, cond: Expr) -> LanesOf:
        evaluate = compile_expr(cond, self._slots, self._mir.typing)
        return lambda w: condition_lanes(evaluate(w))

    def _divides(self, part: Expr) -> bool:
        return may_divide_by_zero(part, self._mir.typing)

    @cached_property
    def _values(self) -> list[tuple[Var, Expr]]:
        """The values that registers take of expressions."""
        found = (effect for _, effect in self._mir.all_of(Defines))
        return [(e.var, e.value) for e in found if isinstance(e.value, Expr)]

    @cached_property
    def _computed(self) -> frozenset[str]:
        """Registers that hold what the program computes, and not what stands for data."""
        names, deciding = frozenset(self._mir.setters), self._deciding
        if deciding is None:
            return names
        found = [effect for _, effect in self._mir.all_of(Defines)]
        data = {e.var.name for e in found if not isinstance(e.value, Expr)} - deciding
        held = closure(data, lambda name: self._made_of(name) - deciding)
        return names - held

    def _made_of(self, name: str) -> frozenset[str]:
        """The registers that expressions which mention this one set."""
        return self._makes.get(name, frozenset())

    @cached_property
    def _makes(self) -> dict[str, frozenset[str]]:
        found: dict[str, set[str]] = {}
        for var, value in self._values:
            for name in mentioned(value):
                found.setdefault(name, set()).add(var.name)
        return {name: frozenset(names) for name, names in found.items()}


class _Settled:
    """A warp as expressions see it of which no lane is active: they have a value in any case."""

    mask = 0

    def __init__(self, warp: Warp) -> None:
        self.machine, self.number, self.cta = warp.machine, warp.number, warp.cta
        self.registers, self.undefined = warp.registers, warp.undefined


def _note(w: Warp, slot: int, lanes: int) -> None:
    """In which of the active lanes a register holds such a number from now on."""
    found = w.undefined.pop(slot, 0) & ~w.mask | lanes & w.mask
    if found:
        w.undefined[slot] = found


def _parts(mir: Mir) -> Iterator[Expr]:
    """All expressions of a program, and what they consist of."""
    for instruction in mir.code:
        cond, what = condition(instruction), instruction.what
        if cond is not None:
            yield from walk(cond)
        if isinstance(what, Op):
            for expr in operand_expressions(what):
                yield from walk(expr)


def _other(expr: Expr) -> frozenset[str]:
    """What is mentioned and no register."""
    return frozenset(name for name in mentioned(expr) if name[0] in "%&")


def _either(parts: list[LanesOf]) -> LanesOf:
    parts = [part for part in parts if part is not _none]
    match parts:
        case []:
            return _none
        case [one]:
            return one
        case _:

            def lanes_of(w: Warp) -> int:
                found = 0
                for part in parts:
                    found |= part(w)
                return found

            return lanes_of


def _none(w: Warp) -> int:
    return 0
