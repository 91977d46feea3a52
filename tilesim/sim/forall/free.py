"""A parameter that may have any value, for building and compiling a kernel with it.

A `Free` number is ``value + slope * u`` for a step ``u`` that is not known, 0 in the program at
hand. What is computed from it is again such a number, or it is refused. What is asked of it is
answered as for the program at hand, and `Scope` notes up to which step the answer is the same. So
what the kernel's function and the compiler make of it is what they would make of each of these
values.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from fractions import Fraction
from math import floor, lcm
from numbers import Integral
from numbers import Number as AnyNumber
from typing import Any, NoReturn

from tilesim.ir.loc import UNKNOWN, Loc, shortened

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
_KERNELS = os.path.join(_PACKAGE, "kernels") + os.sep
#: more steps than any parameter can make
UNBOUNDED = 1 << 62
#: what answers may depend on modulo; for a larger modulus they hold up to the next multiple only
LONGEST = 256


@dataclass(frozen=True)
class Obstacle:
    """What stands in the way of saying something about more values, and where."""

    what: str
    loc: Loc

    def __str__(self) -> str:
        return self.what if self.loc is UNKNOWN else f"{self.what} ({self.loc})"


class Refused(Exception):
    """Nothing can be said about other values: ``obstacle`` is why."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(str(obstacle))
        self.obstacle = obstacle


@dataclass
class Scope:
    """What has been asked of a parameter: the answers are the same for the steps from 0 to ``last``
    that are multiples of ``modulus``.

    ``bound`` is what is asked first that is answered otherwise beyond that; ``refusal`` what was
    refused, also if somebody has caught that.
    """

    name: str
    last: int = UNBOUNDED
    modulus: int = 1
    bound: Obstacle | None = None
    refusal: Obstacle | None = None
    #: whether the kernel's function asks, and not the compiler
    building: bool = True

    def refuse(self, what: str) -> NoReturn:
        """Raises `Refused`."""
        if self.refusal is None:
            self.refusal = Obstacle(what, self._where())
        raise Refused(self.refusal)

    def keep(self, last: int, what: str) -> None:
        """An answer is the same up to a step only."""
        if last < self.last:
            self.last, self.bound = last, Obstacle(what, self._where())

    def _where(self) -> Loc:
        return where() if self.building else UNKNOWN

    def divide(self, modulus: int) -> None:
        """An answer is the same for multiples of ``modulus`` only."""
        self.modulus = lcm(self.modulus, modulus)

    def within(self, value: int, slope: Fraction, by: int, what: str) -> bool:
        """Whether ``value + slope * u`` is taken to stay between the same multiples of ``by``, as
        too many of its remainders would have to be told apart."""
        if by < 0 or lcm(self.modulus, (slope / by).denominator) <= LONGEST:
            return False
        room = by - 1 - value % by if slope > 0 else value % by
        self.keep(floor(room / abs(slope)), what)
        return True

    def sign(self, value: int, slope: Fraction, what: str) -> int:
        """The sign of ``value + slope * u``, which is kept."""
        if value == 0:
            if slope:
                self.keep(0, what)
            return 0
        if slope and (slope > 0) is not (value > 0):
            crossing = Fraction(-value) / slope
            self.keep(floor(crossing) - (crossing.denominator == 1), what)
        return 1 if value > 0 else -1


def where() -> Loc:
    """The innermost line of what is no part of tilesim, but for its kernels."""
    frame = sys._getframe(1)
    innermost = frame
    while frame is not None:
        file = frame.f_code.co_filename
        inside = file.startswith(_PACKAGE) and not file.startswith(_KERNELS)
        known = "__tilesim_helper__" in frame.f_globals or not os.path.isabs(file)
        if not inside and not known and "contextlib" not in file:
            innermost = frame
            break
        if frame.f_back is None:
            break
        frame = frame.f_back
    code = innermost.f_code
    return Loc(shortened(code.co_filename), innermost.f_lineno, code.co_name)


def _asked_by_tilesim() -> bool:
    """Whether tilesim itself asks for a hash, and no dictionary or cache of the kernel's."""
    name = str(sys._getframe(2).f_globals.get("__name__", ""))
    return name.startswith(("tilesim.ir.", "tilesim.sim."))


class Number:
    """``value + slope * u``; see `Free`."""

    __slots__ = ("scope", "slope", "value")

    def __init__(self, value: int, slope: Fraction, scope: Scope) -> None:
        self.value = value
        self.slope = slope
        self.scope = scope

    def _made(self, value: int, slope: Fraction) -> Any:
        if not slope:
            return value
        self.scope.divide(slope.denominator)
        return Free(value, slope, self.scope)

    def _name(self) -> str:
        return self.scope.name

    # ------------------------------------------------------------------ arithmetic

    def __add__(self, other: object) -> Any:
        parts = _parts(other)
        if parts is None:
            return self._refuse_with("+", other)
        return self._made(self.value + parts[0], self.slope + parts[1])

    __radd__ = __add__

    def __sub__(self, other: object) -> Any:
        parts = _parts(other)
        if parts is None:
            return self._refuse_with("-", other)
        return self._made(self.value - parts[0], self.slope - parts[1])

    def __rsub__(self, other: object) -> Any:
        return -self + other

    def __neg__(self) -> Any:
        return self._made(-self.value, -self.slope)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __mul__(self, other: object) -> Any:
        parts = _parts(other)
        if parts is None or parts[1]:
            return self._refuse_with("*", other)
        return self._made(self.value * parts[0], self.slope * parts[0])

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> Any:
        by = _plain(other)
        if not by:
            return self._refuse_with("//", other)
        if self.scope.within(self.value, self.slope, by, f"`{_text(self)} // {by}`"):
            return self.value // by
        return self._made(self.value // by, self.slope / by)

    def __mod__(self, other: object) -> Any:
        by = _plain(other)
        if not by:
            return self._refuse_with("%", other)
        if self.scope.within(self.value, self.slope, by, f"`{_text(self)} % {by}`"):
            return self._made(self.value % by, self.slope)
        self.scope.divide((self.slope / by).denominator)
        return self.value % by

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __lshift__(self, other: object) -> Any:
        return self * _power(other) if _power(other) else self._refuse_with("<<", other)

    def __rshift__(self, other: object) -> Any:
        return self // _power(other) if _power(other) else self._refuse_with(">>", other)

    def __and__(self, other: object) -> Any:
        mask = _plain(other)
        if mask is not None and mask >= 0 and not mask & (mask + 1):
            return self % (mask + 1)
        if mask is not None and mask < 0 and not -mask & (-mask - 1):
            return self // -mask * -mask
        low = mask & -mask if mask else 0
        if mask is not None and _is_power(mask + low) and 0 <= self < mask + low:
            return self // low * low
        return self._refuse_with("&", other)

    __rand__ = __and__

    # ------------------------------------------------------------------ questions

    def _compared(self, op: str, other: object) -> int | None:
        parts = _parts(other)
        if parts is None:
            return None
        if self.scope.building:
            what = f"`{_text(self)} {op} {_text(other)}`"
        else:
            limit = f"{other:,}" if not isinstance(other, Number) else "another one"
            what = f"a number made of {self._name()} passes {limit}"
        return self.scope.sign(self.value - parts[0], self.slope - parts[1], what)

    def __lt__(self, other: object) -> Any:
        sign = self._compared("<", other)
        return self._refuse_with("<", other) if sign is None else sign < 0

    def __le__(self, other: object) -> Any:
        sign = self._compared("<=", other)
        return self._refuse_with("<=", other) if sign is None else sign <= 0

    def __gt__(self, other: object) -> Any:
        sign = self._compared(">", other)
        return self._refuse_with(">", other) if sign is None else sign > 0

    def __ge__(self, other: object) -> Any:
        sign = self._compared(">=", other)
        return self._refuse_with(">=", other) if sign is None else sign >= 0

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Number) and other.scope is not self.scope:
            return False  # of another program, in a table that somebody keeps
        sign = self._compared("==", other)
        return self._refuse_with("==", other) if sign is None else sign == 0

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self._compared("!=", 0) != 0

    def __hash__(self) -> int:
        if not _asked_by_tilesim():
            self.scope.refuse(f"{self._name()} is looked up in a table")
        return hash((self.value, self.slope))

    def __format__(self, spec: str) -> str:
        if not _asked_by_tilesim():
            self.scope.refuse(f"{self._name()} is written out")
        return format(self.value, spec)

    def __str__(self) -> str:
        if not _asked_by_tilesim():
            self.scope.refuse(f"{self._name()} is written out")
        return str(self.value)

    def bit_length(self) -> int:
        """As of an integer."""
        bits = self.value.bit_length()
        if self > (1 << bits) - 1 or self < 1 - (1 << bits):
            raise AssertionError("a number has so many bits")
        return bits

    # ------------------------------------------------------------------ refused

    def _refuse_with(self, op: str, other: object) -> Any:
        if not isinstance(other, AnyNumber):
            return NotImplemented  # an expression of the kernel, say
        return self.scope.refuse(f"{self._name()} is used in `{op} {_text(other)}`")

    def _refused(self, *_: object) -> Any:
        return self.scope.refuse(f"{self._name()} is needed as a number")

    __index__ = __int__ = __float__ = __complex__ = __trunc__ = __round__ = __floor__ = _refused
    __ceil__ = __reduce_ex__ = __pow__ = __rpow__ = _refused
    __truediv__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rdivmod__ = _refused
    __rlshift__ = __rrshift__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _refused

    def __getattr__(self, name: str) -> Any:
        if hasattr(int, name):
            self.scope.refuse(f"{self._name()} is needed as a number (`.{name}`)")
        raise AttributeError(name)

    def __repr__(self) -> str:
        if not _asked_by_tilesim():
            self.scope.refuse(f"{self._name()} is written out")
        return f"<{self._name()}: {self.value} + {self.slope} u>"


#: a `Number` that `isinstance` takes for an integer, so that kernels and the compiler do
Free: Any = type("Free", (Number,), {"__slots__": (), "__class__": property(lambda _: int)})


def is_free(value: object) -> bool:
    """Whether a value is a `Free` number."""
    return type(value) is Free


def _parts(value: Any) -> tuple[int, Fraction] | None:
    if type(value) is Free:
        return value.value, value.slope
    return (int(value), Fraction(0)) if isinstance(value, Integral) else None


def _plain(value: Any) -> int | None:
    return int(value) if type(value) is not Free and isinstance(value, Integral) else None


def _power(count: object) -> int:
    by = _plain(count)
    return 1 << by if by is not None and 0 <= by < 64 else 0


def _is_power(number: int) -> bool:
    return number > 0 and not number & (number - 1)


def _text(value: Any) -> str:
    return f"{value.scope.name}, here {value.value}" if type(value) is Free else repr(value)
