"""In how many repetitions what is compared comes out the same, and nothing wraps."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

#: an integer, or integers of all clusters, or by cluster and lane
Number: TypeAlias = Any
#: more repetitions than any run has
UNBOUNDED = 1 << 62
#: beyond this, integers of 64 bits are not counted with
_FAR = 1 << 61


class NoShift(Exception):
    """A value does not differ by the same amount from repetition to repetition.

    ``period``: it does if so many times as many turns are one repetition.
    """

    def __init__(self, expr: object, period: int = 1) -> None:
        super().__init__(str(expr))
        self.expr = expr
        self.period = period


class Bounds:
    """``limit``: in so many repetitions all that was bounded stays as it is.

    A number that differs between clusters is an array over these, or by cluster and lane.
    """

    def __init__(self) -> None:
        #: the same in each of the clusters, where these differ
        self.limits: Number = UNBOUNDED
        self._most = UNBOUNDED

    @property
    def limit(self) -> int:
        """In so many repetitions that holds in all clusters."""
        return self.limits if type(self.limits) is int else int(np.min(self.limits))

    def bound_range(self, value: Number, shift: int, low: int, high: int) -> None:
        """Only so many repetitions as a value stays in a range."""
        if not shift:
            return
        if type(value) is int:
            least = most = value
        elif isinstance(value, np.ndarray):
            least, most = int(value.min()), int(value.max())
        else:
            raise NoShift(f"{value} outside of {low}..{high}")
        if not (low <= least and most <= high):
            told = " to ".join(map(str, dict.fromkeys((least, most))))
            raise NoShift(f"{told} outside of {low}..{high}")
        if least == most:
            value = least
        elif value.ndim == 2:
            value = value.max(1, keepdims=True) if shift > 0 else value.min(1, keepdims=True)
        if type(value) is not int:
            value = value.astype(object)
        self._bound((high - value) // shift if shift > 0 else (value - low) // -shift)

    def bound_negative(self, value: Number, shift: int) -> None:
        """Only so many as a value stays negative, or does not become so."""
        if type(value) is int:
            if value < 0 < shift:
                self._bound((-value - 1) // shift)
            elif value >= 0 > shift:
                self._bound(value // -shift)
        elif shift:
            value = exact(value, shift)
            room = (-value - 1) // shift if shift > 0 else value // -shift
            self._bound(np.where((value < 0) == (shift > 0), room, UNBOUNDED))

    def bound_zero(self, value: Number, shift: int) -> None:
        """Only so many as a value stays zero, or does not become so."""
        if not shift:
            return
        if type(value) is int:
            if not value:
                self._bound(0)
            elif -value % shift == 0 and -value // shift > 0:
                self._bound(-value // shift - 1)
            return
        value = exact(value, shift)
        often = -value // shift
        crosses = (-value % shift == 0) & (often > 0)
        self._bound(np.where(value == 0, 0, np.where(crosses, often - 1, UNBOUNDED)))

    def _bound(self, room: Number) -> None:
        """Only so many, in each cluster."""
        if type(room) is int and room >= self._most:
            return
        if type(room) is int and type(self.limits) is int:
            self.limits = self._most = min(self.limits, room)
            return
        room = np.asarray(np.minimum(room, UNBOUNDED), dtype=np.int64)
        if room.ndim == 2:
            room = room.min(axis=1)
            if (room == room[0]).all():
                self._bound(int(room[0]))
                return
        self.limits = np.minimum(self.limits, room)
        self._most = int(self.limits.max())

    def return_to(self, limits: Number) -> None:
        """To the limits of before."""
        self.limits = limits
        self._most = limits if type(limits) is int else int(limits.max())


def exact(value: Number, other: Number = 0) -> Number:
    """Numbers that can be added to others, or divided by them, without coming to the end of 64
    bits."""
    if type(value) is int or value.dtype == object:
        return value
    return value if _is_near(value) and _is_near(other) else value.astype(object)


def difference(a: Number, b: Number) -> Number:
    """``a - b``."""
    return exact(a, b) - exact(b, a)


def _is_near(value: Number) -> bool:
    if type(value) is int:
        return -_FAR < value < _FAR
    return int(value.min()) > -_FAR and int(value.max()) < _FAR
