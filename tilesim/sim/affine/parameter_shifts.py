"""Follows what moves with a parameter through instructions and expressions.

A run for a parameter that is k steps larger has more repetitions of each period: ``often`` times k.
A value v with `Ray` (a, b) is v + k a + j b there, in the j-th of these repetitions. Where an
operation keeps that form its result has one; a comparison bounds k by where it comes out otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import gcd
from typing import Any

from tilesim.ir import effects as fx
from tilesim.ir.arithmetic import Typing
from tilesim.ir.declarations import TensorMap, View
from tilesim.ir.expr import Base, Binary, Expr, Special, walk
from tilesim.ir.mir import condition
from tilesim.ir.op import Op
from tilesim.records import dataclass
from tilesim.sim.affine.cluster_classes import Follower
from tilesim.sim.affine.cluster_plan import ALIGNED
from tilesim.sim.affine.evaluator import Moving, ShiftEvaluator, Uses
from tilesim.sim.affine.free_parameter import Forms, is_free, slope_of, value_of
from tilesim.sim.affine.loop_places import Free, free_operands, window
from tilesim.sim.affine.shifts import Look, NoShift, Shifts, in_lane
from tilesim.sim.machine.expression import plain
from tilesim.sim.machine.machine import Machine, Warp


@dataclass(frozen=True, slots=True)
class Ray:
    """By how much a value is larger: ``a`` for each step of the parameter, ``b`` for each
    repetition. It counts with integers as a shift does."""

    a: int
    b: int = 0

    def __bool__(self) -> bool:
        return bool(self.a or self.b)

    def __add__(self, other: Ray | int) -> Ray:
        more = as_ray(other)
        return Ray(self.a + more.a, self.b + more.b)

    __radd__ = __add__

    def __neg__(self) -> Ray:
        return Ray(-self.a, -self.b)

    def __sub__(self, other: Ray | int) -> Ray:
        return self + -as_ray(other)

    def __rsub__(self, other: Ray | int) -> Ray:
        return -self + other

    def __mul__(self, by: int) -> Ray:
        return Ray(self.a * by, self.b * by)

    __rmul__ = __mul__

    def __floordiv__(self, by: int) -> Ray:
        return Ray(self.a // by, self.b // by)

    def __mod__(self, by: int) -> Ray:
        return Ray(self.a % by, self.b % by)

    def __lshift__(self, by: int) -> Ray:
        return Ray(self.a << by, self.b << by)

    def __abs__(self) -> int:
        return gcd(self.a, self.b)


def as_ray(shift: Any) -> Ray:
    """A shift as a ray: an integer is none of a repetition."""
    return shift if isinstance(shift, Ray) else Ray(int(shift))


@dataclass(frozen=True)
class Demand:
    """A value has to stay in a range, ``low`` to ``high``; ``fits``: that of a type."""

    value: int
    ray: Ray
    low: int | None
    high: int | None
    fits: bool

    def lasts(self, often: int, skipped: int = 0) -> int | None:
        """For how many steps of the parameter; None: for any number.

        ``skipped`` repetitions were left out after this one.
        """
        found: int | None = None
        for value in {self.value, self.value + skipped * self.ray.b}:
            for by in (self.ray.a, self.ray.a + often * self.ray.b):
                room = self._room(value, by)
                if room is not None:
                    found = room if found is None else min(found, room)
        return found

    def _room(self, value: int, by: int) -> int | None:
        low, high = self.low, self.high
        if (low is not None and value < low) or (high is not None and value > high):
            return 0
        if by > 0 and high is not None:
            return (high - value) // by
        return (value - low) // -by if by < 0 and low is not None else None


class Rays(Shifts):
    """The rays of expressions; ``demands`` is what they ask for, at the instruction ``at``."""

    def __init__(self, slots: Mapping[str, int], typing: Typing, forms: Forms, step: int) -> None:
        super().__init__(slots, typing)
        #: each with the number of the instruction that asks for it first
        self.demands: dict[Demand, int] = {}
        self.at = 0
        self.look = _Look
        self.wide = False
        self._forms = forms
        self._step = step

    def literal(self, expr: Expr) -> Ray | int:
        """The ray of a literal."""
        number = self._forms.literals.get(id(expr))
        return 0 if number is None else Ray(self.integer(slope_of(number), expr))

    def integer(self, slope: Fraction, what: object) -> int:
        """By how much something grows with each step of the parameter."""
        by = slope * self._step
        if by.denominator != 1:
            raise NoShift(what, by.denominator)
        return by.numerator

    def depends(self, expr: Expr) -> bool:
        """Whether there are literals in it that depend on the parameter."""
        return id(expr) in self._forms.literals

    def bound_range(self, value: Any, shift: Any, low: int, high: int) -> None:
        if not shift:
            return
        if type(value) is not int or not low <= value <= high:
            raise NoShift(f"{value} outside of {low}..{high}")
        self._demand(value, shift, low, high, fits=True)

    def bound_negative(self, value: int, shift: Any) -> None:
        if shift:
            low, high = (None, -1) if value < 0 else (0, None)
            self._demand(value, shift, low, high)

    def bound_zero(self, value: int, shift: Any) -> None:
        if shift and value:
            low, high = (None, -1) if value < 0 else (1, None)
            self._demand(value, shift, low, high)
        elif shift:
            self._demand(value, shift, 0, 0)

    def _demand(
        self, value: int, shift: Any, low: int | None, high: int | None, *, fits: bool = False
    ) -> None:
        self.demands.setdefault(Demand(value, as_ray(shift), low, high, fits), self.at)

    def mark(self) -> int:
        return len(self.demands)

    def return_to(self, limits: int) -> None:
        while len(self.demands) > limits:
            self.demands.popitem()

    def require_inside(self, expr: Expr, w: Warp, mask: int, shift: Any, free: Free) -> None:
        """The end of a tensor may move as well."""
        if not free.is_inside:
            super().require_inside(expr, w, mask, shift, free)
            return
        high, grows = free.high, Ray(0)
        if is_free(high):
            high, grows = value_of(high), Ray(self.integer(slope_of(high), expr))
        value = plain(self.evaluate(expr)(w))
        for lane in (n for n in range(32) if mask >> n & 1):
            at, by = in_lane(value, lane), as_ray(in_lane(shift, lane))
            if type(at) is not int:
                raise NoShift(expr)
            if free.memory is not None and (by or grows) and not 0 <= at <= high:
                raise NoShift(expr)
            self.bound_negative(at, by)
            self.bound_negative(high - at, grows - by)


class _Look(Look):
    """One look at an expression, lane by lane."""

    def _extreme(self, expr: Binary, lane: int, a: Any, b: Any) -> Any:
        if not self._value(expr.lhs, lane) - self._value(expr.rhs, lane):
            if a != b:
                raise NoShift(expr)
            return a
        return super()._extreme(expr, lane, a, b)


# ------------------------------------------------------------------ instructions


class Follow(ShiftEvaluator):
    """Follows a machine for larger values of a parameter: see `Evaluator`.

    What is asked of them is in ``values.demands``.
    """

    values: Rays

    def __init__(
        self, machine: Machine, forms: Forms, step: int, moving: dict[int, Moving]
    ) -> None:
        plan = machine.plan
        super().__init__(machine, Rays(plan.slots, plan.mir.typing, forms, step), moving)
        self._forms = forms
        observer = getattr(machine.races.observer, "follower", machine.races.observer)
        #: by number, the registers in what may differ between clusters there
        self._between: Mapping[int, frozenset[int]] = {}
        if isinstance(observer, Follower):
            self._between = observer.reads

    def look(self, pc: int, w: Warp) -> None:
        self.values.at = pc
        super().look(pc, w)

    def _spins(self, w: Warp, head: int) -> bool:
        return super()._spins(w, head) and any(self.moving.values())

    def _depends(self, expr: Expr) -> bool:
        return any(map(self.values.depends, walk(expr)))

    def _names_sizes(self, what: object) -> bool:
        return bool(self._sized(what))

    def _sized(self, what: object) -> list[View | TensorMap]:
        """What an instruction names of global tensors of which the size depends on the parameter;
        copies of what is never written may stick out."""
        if not isinstance(what, Op):
            return []
        effects = what.effects()
        named: list[Any] = [getattr(effect, "view", None) for effect in effects]
        named += [e.map for e in effects if isinstance(e, fx.WritesMap | fx.ReadsMap)]
        found = [n for n in named if isinstance(n, View | TensorMap)]
        return [n for n in found if self._matters(n)]

    def _matters(self, named: View | TensorMap) -> bool:
        name = named.tensor.name
        sized = name in self._forms.tensors
        return sized and (isinstance(named, View) or self.machine.globals.memories[name].tracked)

    def _not_covered(self, pc: int, moving: Moving, uses: Uses) -> str:
        """Whether something depends both on the cluster and on what moves."""
        slots = self._between.get(pc)
        if slots is None:
            return ""
        differs = not slots.isdisjoint(moving)
        instruction = self.machine.plan.mir.code[pc]
        cond = condition(instruction)
        for expr in (*(e for e, _, _ in uses.operands), *([] if cond is None else [cond])):
            parts = list(walk(expr))
            varies = any(isinstance(p, Special | Base) for p in parts)
            varies |= not slots.isdisjoint(self.slots_in(expr))
            differs |= varies and any(self.values.depends(p) for p in parts)
        for named in self._sized(instruction.what):
            differs |= any(map(is_free, self._forms.tensors[named.tensor.name].shape))
        return "what differs between clusters and with the parameter" if differs else ""

    def _movable(self, op: Op, w: Warp, mask: int) -> list[tuple[Expr, Free]]:
        sized = self._forms.tensors
        found = free_operands(
            self.machine, op, lambda expr: window(self.values, expr, w, mask), sized
        )
        found = [(expr, free) for expr, free in found if self._is_followed(free)]
        for named in self._sized(op):
            name, tensor = named.tensor.name, sized[named.tensor.name]
            bounded = {free.dim for _, free in found if free.tensor == name and free.grows}
            if bounded != {dim for dim, size in enumerate(tensor.shape) if is_free(size)}:
                raise NoShift(f"the size of {name}")
            strides: tuple[Any, ...] = tensor.byte_strides if isinstance(named, View) else ()
            for stride in strides:
                if is_free(stride) and self.values.integer(slope_of(stride), name) % ALIGNED:
                    raise NoShift(f"the row of {name}, in bytes", ALIGNED)
        return found

    def _is_followed(self, free: Free) -> bool:
        """Whether what an operand decides is not looked at, for any value: a place by element, or
        an address where nothing is written."""
        memories = self.machine.globals.memories
        if free.data:
            return False
        if not free.tensor:
            return free.memory is None and not any(m.dependent for m in memories.values())
        memory = memories[free.tensor]
        return not memory.dependent and (not memory.tracked or memory.table.by_element)
