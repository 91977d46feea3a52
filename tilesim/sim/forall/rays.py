"""Follows what moves with a parameter through expressions.

A run for a parameter that is k steps larger has more repetitions of each period: ``often`` times k.
A value v with `Ray` (a, b) is v + k a + j b there, in the j-th of these repetitions. Where an
operation keeps that form its result has one; a comparison bounds k by where it comes out otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Any

import numpy as np

from tilesim.ir.arithmetic import Typing
from tilesim.ir.expr import Binary, Const, Expr, ScalarParam
from tilesim.sim.forall.forms import Forms
from tilesim.sim.forall.free import slope_of
from tilesim.sim.steady.bounds import NoShift
from tilesim.sim.steady.shifts import Look, Lost, Shifts


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

    what: str
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
    """The rays of expressions; ``demands`` is what they ask for, of the instruction at hand."""

    def __init__(self, slots: Mapping[str, int], typing: Typing, forms: Forms, step: int) -> None:
        super().__init__(slots, typing)
        self.demands: list[Demand] = []
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
        self.demands.append(Demand("", value, as_ray(shift), low, high, fits))


class _Look(Look):
    """One look at an expression, lane by lane."""

    def at(self, expr: Expr, lane: int) -> Any:
        if isinstance(expr, Const | ScalarParam):
            rays = self._shifts
            assert isinstance(rays, Rays)
            return rays.literal(expr)
        return super().at(expr, lane)

    def _variable(self, expr: Expr, name: str, lane: int) -> Any:
        ray = self._moving.get(self._shifts.slot(name), 0)
        if type(ray) is Lost:
            raise ray.why
        if isinstance(ray, np.ndarray):
            self.varies = True
            ray = ray[lane]
        return ray

    def _extreme(self, expr: Binary, lane: int, a: Any, b: Any) -> Any:
        if not self._value(expr.lhs, lane) - self._value(expr.rhs, lane):
            if a != b:
                raise NoShift(expr)
            return a
        return super()._extreme(expr, lane, a, b)
