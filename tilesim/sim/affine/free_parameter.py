"""A parameter that may have any value: in Python, in a program, in the machine.

A `Free` number is ``value + slope * u`` for a step ``u`` that is not known, 0 in the program at
hand. What is computed from it is again such a number, or it is refused. What is asked of it is
answered as for the program at hand, and `Scope` notes up to which step the answer is the same. So
what the kernel's function and the compiler make of it is what they would make of each of these
values.

A kernel is compiled twice, with a number and with a `Free` one. Both programs have to be the same
but for literals, and for the sizes of tensors in global memory: that says where the values of a
free parameter are in the machine's program.

``type(n) is int`` asks the object, not the number: while a kernel is built with a number that is
not known, ``type`` says of it what it says of every integer. What the object is (``n is m``), and
what C makes of it, can be asked all the same. So what a kernel makes of such a number is compared
with what it makes of the numbers themselves, where it is most likely that it differs: beside those
that the kernel's code names.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from math import floor, lcm
from numbers import Integral
from numbers import Number as AnyNumber
from traceback import walk_tb
from types import CodeType, FrameType, FunctionType, MethodType
from typing import Any, NoReturn

from tilesim.arith.operators import BINARY
from tilesim.ir.declarations import GlobalTensor
from tilesim.ir.expr import Const, Expr, ScalarParam
from tilesim.ir.loc import UNKNOWN, Loc, shortened
from tilesim.ir.mir import Mir
from tilesim.records import dataclass, field, fields

_PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep
#: where Python's own modules are
LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_KERNELS = os.path.join(_PACKAGE, "kernels") + os.sep
#: more repetitions than any run has, and more steps than any parameter can make
UNBOUNDED = 1 << 62
#: what answers may depend on modulo; for a larger modulus they hold up to the next multiple only
LONGEST = 256


@dataclass(frozen=True)
class Obstacle:
    """What stands in the way of saying something about more values, or more repetitions, and where;
    ``period``: nothing may do if so many iterations are one repetition."""

    what: str
    loc: Loc = UNKNOWN
    period: int = 1

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
    refused, also if the kernel has caught that.
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
        too many of its remainders would have to be distinguished."""
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

    From outside it has what an ``int`` has, and nothing else: no attribute gives the value at hand.
    What follows it asks `value_of`, `slope_of`.
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
        return _compared(self, "<", other)

    def __le__(self, other: object) -> Any:
        return _compared(self, "<=", other)

    def __gt__(self, other: object) -> Any:
        return _compared(self, ">", other)

    def __ge__(self, other: object) -> Any:
        return _compared(self, ">=", other)

    def __eq__(self, other: object) -> Any:
        if is_free(other) and scope_of(other) is not scope_of(self):
            return False  # of another program, in a table that outlives it
        return _compared(self, "==", other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return bool(_compared(self, "!=", 0))

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
        bits, size = value_of(self).bit_length(), abs(self)
        if size >= 1 << bits or size < 1 << bits >> 1:
            raise AssertionError("a number has so many bits")
        return bits

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


def _compared(number: Any, op: str, other: Any) -> Any:
    """Whether a comparison holds, as it does by the sign of the difference, which is kept."""
    parts = _parts(other)
    if parts is None:
        return _refuse_with(number, op, other)
    scope = scope_of(number)
    if scope.building:
        what = f"`{_text(number)} {op} {_text(other)}`"
    else:
        limit = "another one" if is_free(other) else f"{other:,}"
        what = f"a number made of {scope.name} passes {limit}"
    sign = scope.sign(value_of(number) - parts[0], slope_of(number) - parts[1], what)
    return bool(BINARY[op](sign, 0))


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


# ---------------------------------------------------- where its values are in the machine's program


#: fields that follow from others, or only say what findings call something
_DERIVED = frozenset({"typing", "loc", "roles", "local"})


@dataclass
class Forms:
    """``literals`` that depend on the parameter, by identity, of the program that is run;
    ``tensors`` of which the size does."""

    literals: dict[int, Number] = field(default_factory=dict)
    tensors: dict[str, GlobalTensor] = field(default_factory=dict)


def forms(free: Mir, plain: Mir, name: str, further: int = 0) -> Forms:
    """What of ``plain`` depends on the parameter ``name``, which ``free`` is built with, and which
    is ``further`` steps larger in ``plain``.

    Raises:
        Refused: something else than literals and sizes of global tensors does.
    """
    walk = _Walk(name, further)
    walk.same(free.kernel, plain.kernel)
    if len(free.code) != len(plain.code):
        walk.differs("how many instructions there are")
    for number, (a, b) in enumerate(zip(free.code, plain.code, strict=True)):
        walk.loc, walk.what = b.loc, b.what
        walk.same(a, b)
        walk.same(free.effects[number], plain.effects[number])
    return walk.forms


class _Walk:
    """Compares two programs from their roots on."""

    def __init__(self, name: str, further: int) -> None:
        self.forms = Forms()
        self._further = further
        self.loc: Loc = UNKNOWN
        self.what: object = "the launch"
        self._name = name
        self._seen: set[tuple[int, int]] = set()
        self._plain: set[int] = set()
        #: what is compared stays alive, so that no identity is used twice
        self._kept: list[object] = []

    def differs(self, what: str) -> None:
        """Raises `Refused`."""
        raise Refused(Obstacle(f"{what} depends on {self._name}", self.loc))

    def same(self, free: Any, plain: Any, what: str = "") -> None:
        """Compares two values."""
        key = id(free), id(plain)
        if key in self._seen:
            return
        self._kept += free, plain
        self._seen.add(key)
        if isinstance(plain, Const | ScalarParam):
            self._literal(free, plain)
        elif isinstance(plain, GlobalTensor):
            self._tensor(free, plain)
        elif is_free(free):
            self.differs(what or str(self.what))
        elif type(free) is not type(plain):
            self.differs(f"{what or 'an operand'} of {self.what}")
        elif isinstance(plain, tuple | list):
            if len(free) != len(plain):
                self.differs(f"{what or 'an operand'} of {self.what}")
            for a, b in zip(free, plain, strict=True):
                self.same(a, b, what)
        elif isinstance(plain, dict):
            self.same(list(free.items()), list(plain.items()), what)
        elif is_dataclass(plain) and not isinstance(plain, type):
            self._fields(free, plain)
        elif isinstance(plain, Expr):
            raise TypeError(type(plain))
        elif free != plain:
            self.differs(f"{what or 'an operand'} of {self.what}")

    def _fields(self, free: Any, plain: Any) -> None:
        if not isinstance(plain, Expr) and isinstance(getattr(plain, "loc", None), Loc):
            before, self.loc = self.loc, plain.loc
        else:
            before = self.loc
        for f in fields(plain):
            if f.name not in _DERIVED:
                self.same(getattr(free, f.name), getattr(plain, f.name), f"`{f.name}`")
        self.loc = before

    def _literal(self, free: Any, plain: Const | ScalarParam) -> None:
        if type(free) is not type(plain) or is_free(plain.value):
            self.differs(f"an expression of {self.what}")
        if is_free(free.value):
            number: Number = free.value
            known = self.forms.literals.setdefault(id(plain), number)
            one = self._is(number, plain.value) and slope_of(known) == slope_of(number)
            if not one or id(plain) in self._plain:
                self.differs(f"an expression of {self.what}")
        elif free.value != plain.value or id(plain) in self.forms.literals:
            self.differs(f"an expression of {self.what}")
        else:
            self._plain.add(id(plain))

    def _is(self, free: Any, plain: Any) -> bool:
        """Whether a number is what a free one is in the program of ``plain``."""
        if is_free(plain):
            return False  # the kernel has kept it from another call
        if not is_free(free):
            return bool(free == plain)
        return bool(value_of(free) + slope_of(free) * self._further == plain)

    def _tensor(self, free: Any, plain: GlobalTensor) -> None:
        for f in fields(plain):
            a, b = getattr(free, f.name), getattr(plain, f.name)
            if f.name in ("shape", "strides"):
                if (a is None) is not (b is None) or len(a or ()) != len(b or ()):
                    self.differs(f"the shape of {plain.name}")
                if not all(map(self._is, a or (), b or ())):
                    self.differs(f"the shape of {plain.name}")
                if any(map(is_free, a or ())):
                    self.forms.tensors[plain.name] = free
            elif f.name not in _DERIVED:
                self.same(a, b, f"`{f.name}`")


# -------------------------------------------- what Python may make of it without asking it anything


_DIGITS = re.compile(r"\d{1,18}")
#: functions and classes whose code is looked at, and members of a collection
_MOST, _MEMBERS = 256, 256


class _AnyType(type):
    """The class of `_Type`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if cls is _Type and len(args) == 1 and not kwargs:
            return int if is_free(args[0]) else type(args[0])
        return type(*args, **kwargs) if cls is _Type else super().__call__(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, type) if cls is _Type else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, type) if cls is _Type else super().__subclasscheck__(subclass)

    def __eq__(cls, other: object) -> bool:
        return other is cls or (cls is _Type and other is type)

    def __hash__(cls) -> int:
        return hash(type) if cls is _Type else super().__hash__()


class _Type(type, metaclass=_AnyType):
    """``type``, of which an open parameter is an ``int``."""


@contextmanager
def types_of_integers(build: Callable[..., Any]) -> Iterator[None]:
    """While a kernel is built: in its modules, and in the user's others, ``type`` takes an open
    parameter for an integer."""
    names = [vars(module) for module in list(sys.modules.values()) if _is_users_module(module)]
    function = _function(build)
    if function is not None and function.__globals__ not in names:
        names.append(function.__globals__)
    changed = [space for space in names if "type" not in space]
    for space in changed:
        space["type"] = _Type
    try:
        yield
    finally:
        for space in changed:
            if space.get("type") is _Type:
                del space["type"]


def numbers_in(build: Callable[..., Any], given: Mapping[str, Any]) -> tuple[int, ...]:
    """The integers that the code of a kernel names, in order: constants, global ones, those in what
    it refers to, and in the functions and classes of the user's that it calls; then those it is
    ``given``."""
    found: dict[int, None] = {}
    left: list[object] = [getattr(build, "function", build), dict(given)]
    seen: set[int] = set()
    while left and len(seen) < _MOST:
        one = left.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        match one:
            case bool():
                pass
            case int():
                found[one] = None
            case str():
                found |= dict.fromkeys(map(int, _DIGITS.findall(one)))
            case Enum():
                left.append(one.value)
            case tuple() | list() | set() | frozenset() if len(one) <= _MEMBERS:
                seen.discard(id(one))
                found |= dict.fromkeys(n for n in one if type(n) is int)
                left += [n for n in one if type(n) is not int]
            case dict() if len(one) <= _MEMBERS:
                left += [list(one), list(one.values())]
            case FunctionType() if _is_users_file(one.__code__.co_filename):
                left += [one.__code__, one.__defaults__, one.__kwdefaults__]
                left += (cell.cell_contents for cell in one.__closure__ or () if _is_set(cell))
                left += _referred(one.__code__, one.__globals__)
            case CodeType():
                left += one.co_consts
            case type() if _is_users_module(sys.modules.get(one.__module__)):
                left += vars(one).values()
            case partial():
                left += [one.func, one.args, one.keywords]
            case MethodType():
                left += [one.__func__, getattr(one.__self__, "__dict__", None)]
            case _ if callable(one):
                if isinstance(wrapped := _function(one), FunctionType):
                    left.append(wrapped)
                elif _is_users_module(sys.modules.get(type(one).__module__)):
                    left += [type(one).__call__, getattr(one, "__dict__", None)]
    return tuple(found)


def _referred(code: CodeType, names: dict[str, Any]) -> Iterator[object]:
    """The global things that code, or code in it, names."""
    yield from (names[name] for name in code.co_names if name in names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _referred(const, names)


def _is_set(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _function(build: Callable[..., Any]) -> FunctionType | None:
    """The function that makes programs."""
    found: Any = getattr(build, "function", build)
    while isinstance(found, partial):
        found = found.func
    found = inspect.unwrap(found)
    return found if isinstance(found, FunctionType) else getattr(found, "__func__", None)


def _is_users_module(module: object) -> bool:
    """Whether a module is neither tilesim's, but for its kernels, nor of a library."""
    file = getattr(module, "__dict__", {}).get("__file__")
    return isinstance(file, str) and _is_users_file(file)


@cache
def _is_users_file(file: str) -> bool:
    library = os.path.abspath(file).startswith(LIBRARY) or "-packages" + os.sep in file
    return is_kernels_own(file) and not library
