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
from traceback import walk_tb
from types import FrameType
from typing import Any, NoReturn

from tilesim.ir.loc import UNKNOWN, Loc, shortened

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
#: where Python's own modules are
LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
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


def is_kernels_own(file: str) -> bool:
    """Whether a file of code is no part of tilesim, but for its kernels."""
    return not file.startswith(_PACKAGE) or file.startswith(_KERNELS)


def _is_users(frame: FrameType) -> bool:
    """Whether a frame is of no part of tilesim, but for its kernels, nor of Python's library."""
    file = frame.f_code.co_filename
    helper = "__tilesim_helper__" in frame.f_globals or not os.path.isabs(file)
    return is_kernels_own(file) and not helper and not file.startswith(LIBRARY)


def raised_at(error: Exception) -> Loc:
    """The innermost line of the kernel's own code from which an error came."""
    found = UNKNOWN
    for frame, line in walk_tb(error.__traceback__):
        if _is_users(frame):
            found = Loc(shortened(frame.f_code.co_filename), line, frame.f_code.co_name)
    return found


def where() -> Loc:
    """The innermost line of what is no part of tilesim, but for its kernels."""
    frame = sys._getframe(1)
    innermost = frame
    while frame is not None:
        if _is_users(frame):
            innermost = frame
            break
        if frame.f_back is None:
            break
        frame = frame.f_back
    code = innermost.f_code
    return Loc(shortened(code.co_filename), innermost.f_lineno, code.co_name)


def _asked_by_tilesim() -> bool:
    """Whether tilesim itself asks for a hash or a text, and no dictionary, cache or text of the
    kernel's: neither its code nor an expression that it wants to know the hash or the text of."""
    frame = sys._getframe(2)
    name = "__hash__"
    while (module := str(frame.f_globals.get("__name__", ""))) == "dataclasses" or (
        module.startswith("tilesim.") and not module.startswith("tilesim.kernels.")
    ):
        # the text of a dataclass goes through a function of `dataclasses`
        name = "__repr__" if module == "dataclasses" else frame.f_code.co_name
        if frame.f_back is None:
            break
        frame = frame.f_back
    return name not in _ASKING


#: by what a kernel asks an expression for its hash or its text
_ASKING = frozenset({"__hash__", "__str__", "__repr__", "__format__"})
#: what integers have that is the same for every number, or the number itself
_ALWAYS: dict[str, Any] = {"denominator": 1, "imag": 0, "__doc__": int.__doc__}
_ITSELF = frozenset({"real", "numerator"})


class Number:
    """``value + slope * u``; see `Free`.

    From outside it has what an ``int`` has, and nothing else: no attribute tells the value at hand.
    Those who follow it ask `value_of`, `slope_of`.
    """

    __slots__ = ("scope", "slope", "value")

    def __init__(self, value: int, slope: Fraction, scope: Scope) -> None:
        _VALUE.__set__(self, value)
        _SLOPE.__set__(self, slope)
        _SCOPE.__set__(self, scope)

    # ------------------------------------------------------------------ arithmetic

    def __add__(self, other: object) -> Any:
        parts = _parts(other)
        if parts is None:
            return _refuse_with(self, "+", other)
        return _made(self, value_of(self) + parts[0], slope_of(self) + parts[1])

    __radd__ = __add__

    def __sub__(self, other: object) -> Any:
        parts = _parts(other)
        if parts is None:
            return _refuse_with(self, "-", other)
        return _made(self, value_of(self) - parts[0], slope_of(self) - parts[1])

    def __rsub__(self, other: object) -> Any:
        return -self + other

    def __neg__(self) -> Any:
        return _made(self, -value_of(self), -slope_of(self))

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __invert__(self) -> Any:
        return -self - 1

    def __mul__(self, other: object) -> Any:
        parts = _parts(other)
        if parts is None or parts[1]:
            return _refuse_with(self, "*", other)
        return _made(self, value_of(self) * parts[0], slope_of(self) * parts[0])

    __rmul__ = __mul__

    def __floordiv__(self, other: object) -> Any:
        by = _plain(other)
        if not by:
            return _refuse_with(self, "//", other)
        value, slope = value_of(self), slope_of(self)
        if scope_of(self).within(value, slope, by, f"`{_text(self)} // {by}`"):
            return value // by
        return _made(self, value // by, slope / by)

    def __mod__(self, other: object) -> Any:
        by = _plain(other)
        if not by:
            return _refuse_with(self, "%", other)
        value, slope, scope = value_of(self), slope_of(self), scope_of(self)
        if scope.within(value, slope, by, f"`{_text(self)} % {by}`"):
            return _made(self, value % by, slope)
        scope.divide((slope / by).denominator)
        return value % by

    def __divmod__(self, other: object) -> Any:
        return self // other, self % other

    def __lshift__(self, other: object) -> Any:
        return self * _power(other) if _power(other) else _refuse_with(self, "<<", other)

    def __rshift__(self, other: object) -> Any:
        return self // _power(other) if _power(other) else _refuse_with(self, ">>", other)

    def __and__(self, other: object) -> Any:
        mask = _plain(other)
        if mask is not None and mask >= 0 and not mask & (mask + 1):
            return self % (mask + 1)
        if mask is not None and not -mask & (-mask - 1):  # the upper bits of a negative number
            return self // -mask * -mask
        low = mask & -mask if mask else 0
        if mask is not None and _is_power(mask + low) and 0 <= self < mask + low:
            return self // low * low
        return _refuse_with(self, "&", other)

    __rand__ = __and__

    # ------------------------------------------------------------------ questions

    def __lt__(self, other: object) -> Any:
        sign = _compared(self, "<", other)
        return _refuse_with(self, "<", other) if sign is None else sign < 0

    def __le__(self, other: object) -> Any:
        sign = _compared(self, "<=", other)
        return _refuse_with(self, "<=", other) if sign is None else sign <= 0

    def __gt__(self, other: object) -> Any:
        sign = _compared(self, ">", other)
        return _refuse_with(self, ">", other) if sign is None else sign > 0

    def __ge__(self, other: object) -> Any:
        sign = _compared(self, ">=", other)
        return _refuse_with(self, ">=", other) if sign is None else sign >= 0

    def __eq__(self, other: object) -> Any:
        if is_free(other) and scope_of(other) is not scope_of(self):
            return False  # of another program, in a table that somebody keeps
        sign = _compared(self, "==", other)
        return _refuse_with(self, "==", other) if sign is None else sign == 0

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return _compared(self, "!=", 0) != 0

    def __hash__(self) -> int:
        if not _asked_by_tilesim():
            scope_of(self).refuse(f"{_name(self)} is looked up in a table")
        return hash((value_of(self), slope_of(self)))

    def __format__(self, spec: str) -> str:
        if not _asked_by_tilesim():
            scope_of(self).refuse(f"{_name(self)} is written out")
        return format(value_of(self), spec)

    def __str__(self) -> str:
        if not _asked_by_tilesim():
            scope_of(self).refuse(f"{_name(self)} is written out")
        return str(value_of(self))

    def __repr__(self) -> str:
        if not _asked_by_tilesim():
            scope_of(self).refuse(f"{_name(self)} is written out")
        return f"<{_name(self)}: {value_of(self)} + {slope_of(self)} u>"

    def bit_length(self) -> int:
        """As of an integer."""
        bits = value_of(self).bit_length()
        if self > (1 << bits) - 1 or self < 1 - (1 << bits):
            raise AssertionError("a number has so many bits")
        return bits

    def conjugate(self) -> Any:
        """As of an integer."""
        return self

    # ------------------------------------------------------------------ refused

    def _refused(self, *_: object) -> Any:
        return scope_of(self).refuse(f"{_name(self)} is needed as a number")

    __index__ = __int__ = __float__ = __complex__ = __trunc__ = __round__ = __floor__ = _refused
    __ceil__ = __reduce_ex__ = __reduce__ = __sizeof__ = __pow__ = __rpow__ = _refused
    __truediv__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rdivmod__ = _refused
    __rlshift__ = __rrshift__ = __or__ = __ror__ = __xor__ = __rxor__ = _refused
    del _refused

    def __dir__(self) -> list[str]:
        return dir(0)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(0, name, value)  # as refused as for any integer

    def __delattr__(self, name: str) -> None:
        delattr(0, name)

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return int
        if not hasattr(0, name):
            raise AttributeError(f"'int' object has no attribute {name!r}")
        if name in _ALWAYS or name in _ITSELF:
            return _ALWAYS.get(name, self)
        own = Number.__dict__.get(name)
        if own is None:
            scope_of(self).refuse(f"{_name(self)} is needed as a number (`.{name}`)")
        return own.__get__(self)


# what a number is made of has no name in its class: no attribute of it leads there
_VALUE, _SLOPE, _SCOPE = (Number.__dict__[name] for name in ("value", "slope", "scope"))
for _attribute in ("value", "slope", "scope", "__slots__"):
    delattr(Number, _attribute)

#: a `Number` that `isinstance` takes for an integer, so that kernels and the compiler do
Free: Any = type("int", (Number,), {"__slots__": (), "__module__": "builtins"})


def value_of(number: Any) -> int:
    """What a free number is in the program at hand."""
    value: int = _VALUE.__get__(number)
    return value


def slope_of(number: Any) -> Fraction:
    """By how much a free number grows with each step."""
    slope: Fraction = _SLOPE.__get__(number)
    return slope


def scope_of(number: Any) -> Scope:
    """What has been asked of the parameter that a free number is made of."""
    scope: Scope = _SCOPE.__get__(number)
    return scope


def _made(number: Any, value: int, slope: Fraction) -> Any:
    """A number that is computed from another one."""
    if not slope:
        return value
    scope = scope_of(number)
    scope.divide(slope.denominator)
    return Free(value, slope, scope)


def _name(number: Any) -> str:
    return scope_of(number).name


def _compared(number: Any, op: str, other: Any) -> int | None:
    """The sign of the difference, which is kept; None: it cannot be compared with that."""
    parts = _parts(other)
    if parts is None:
        return None
    scope = scope_of(number)
    if scope.building:
        what = f"`{_text(number)} {op} {_text(other)}`"
    else:
        limit = "another one" if is_free(other) else f"{other:,}"
        what = f"a number made of {scope.name} passes {limit}"
    return scope.sign(value_of(number) - parts[0], slope_of(number) - parts[1], what)


def _refuse_with(number: Any, op: str, other: object) -> Any:
    if not isinstance(other, AnyNumber):
        return NotImplemented  # an expression of the kernel, say
    return scope_of(number).refuse(f"{_name(number)} is used in `{op} {_text(other)}`")


def is_free(value: object) -> bool:
    """Whether a value is a `Free` number."""
    return type(value) is Free


def _parts(value: Any) -> tuple[int, Fraction] | None:
    if is_free(value):
        return value_of(value), slope_of(value)
    return (int(value), Fraction(0)) if isinstance(value, Integral) else None


def _plain(value: Any) -> int | None:
    return int(value) if not is_free(value) and isinstance(value, Integral) else None


def _power(count: object) -> int:
    by = _plain(count)
    return 1 << by if by is not None and 0 <= by < 64 else 0


def _is_power(number: int) -> bool:
    return number > 0 and not number & (number - 1)


def _text(value: Any) -> str:
    return f"{_name(value)}, here {value_of(value)}" if is_free(value) else repr(value)
