"""Integer and predicate expressions, and what tensors are indexed with.

An expression has one value per lane; it is uniform when it does not depend on a lane. Expressions
are pure trees; reading memory is an instruction (`Load`) that writes a `Var`. ``<`` and the
arithmetic operators build expressions; ``==`` compares two trees, at run time ``x.eq(y)`` does.

Tensors are indexed with elements, slices, and slices that start at a run-time element.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, reduce
from math import gcd, isfinite
from types import EllipsisType
from typing import Any, ClassVar, Literal, NoReturn, Protocol, SupportsIndex, get_args
from weakref import WeakSet

from tilesim.arith.operators import COMPARE, FOLDED, UNARY, Scalar, integer
from tilesim.arith.types import DType, s32
from tilesim.errors import reject
from tilesim.ir.frozen import Keeper, cached
from tilesim.ir.loc import caller
from tilesim.records import dataclass

UnaryOp = Literal["-", "~", "not"]
BinaryOp = Literal[
    "+", "-", "*", "//", "%", "&", "|", "^", "<<", ">>", "min", "max",
    "==", "!=", "<", "<=", ">", ">=", "and", "or",
]  # fmt: skip
SpecialName = Literal[
    "warp_id", "lane_id", "thread_id",
    "cta_x", "cta_y", "cta_z", "grid_x", "grid_y", "grid_z",
    "cluster_rank", "cluster_size", "cluster_id",
]  # fmt: skip
SPECIALS: tuple[SpecialName, ...] = get_args(SpecialName)

#: magnitude of an integer
_LARGEST = (1 << 64) - 1
#: operators, operands and parentheses of an expression as text
_PIECES = 5_000


class Owner(Protocol):
    """What registers are declared in: the builder."""

    def owns(self, var: Var) -> bool:
        """Whether ``var`` is a register that it has declared and that the user may set."""
        ...

    def assign(self, var: Var, value: Operand) -> None:
        """Records that ``var`` is set."""
        ...


#: the builders there are
owners: WeakSet[Owner] = WeakSet()
#: functions of kernels that are being run
_building: list[str] = []
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_GALLERY = os.path.join(_PACKAGE, "kernels") + os.sep


@contextmanager
def building(name: str) -> Iterator[None]:
    """While the function of a kernel runs: there, ``==`` of two expressions is a mistake."""
    _building.append(name)
    try:
        yield
    finally:
        _building.pop()


def _asked_by_a_kernel() -> bool:
    """Whether it is not tilesim (or a dataclass of it) that calls what calls this."""
    path = sys._getframe(2).f_code.co_filename
    return path.startswith(_GALLERY) or not path.startswith((_PACKAGE, "<string>"))


_Method = Callable[["Expr", "Operand"], "Expr"]


def _operator(op: BinaryOp) -> tuple[_Method, _Method]:
    """The methods for ``x op other`` and for ``other op x``."""

    def method(self: Expr, other: Operand) -> Expr:
        return binary(op, self, other)

    def reflected(self: Expr, other: Operand) -> Expr:
        return binary(op, other, self)

    return method, reflected


class Expr(Keeper):
    """Base of all expressions; defines the operators."""

    #: the names of its fields
    __match_args__: ClassVar[tuple[str, ...]]

    __add__, __radd__ = _operator("+")
    __sub__, __rsub__ = _operator("-")
    __mul__, __rmul__ = _operator("*")
    __floordiv__, __rfloordiv__ = _operator("//")
    __mod__, __rmod__ = _operator("%")
    __and__, __rand__ = _operator("&")
    __or__, __ror__ = _operator("|")
    __xor__, __rxor__ = _operator("^")
    __lshift__, __rlshift__ = _operator("<<")
    __rshift__, __rrshift__ = _operator(">>")

    def __neg__(self) -> Expr:
        return unary("-", self)

    def __invert__(self) -> Expr:
        return unary("~", self)

    def __lt__(self, other: Operand) -> Expr:
        return binary("<", self, other)

    def __le__(self, other: Operand) -> Expr:
        return binary("<=", self, other)

    def __gt__(self, other: Operand) -> Expr:
        return binary(">", self, other)

    def __ge__(self, other: Operand) -> Expr:
        return binary(">=", self, other)

    def eq(self, other: Operand) -> Expr:
        """``self == other`` as an expression (``==`` itself compares trees)."""
        return binary("==", self, other)

    def ne(self, other: Operand) -> Expr:
        """``self != other`` as an expression."""
        return binary("!=", self, other)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (int, float)):
            raise TypeError(
                f"`{self} == {other}` compares trees, not run-time values; use x.eq({other}) or "
                f"x.ne({other})"
            )
        if not isinstance(other, Expr):
            return NotImplemented
        if _building and _asked_by_a_kernel():
            raise TypeError(
                f"`{self} == {other}` compares trees, not run-time values; use x.eq(y) or x.ne(y)"
            )
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def _key(self) -> tuple[object, ...]:
        own = self.__dict__
        return tuple([own[name] for name in self.__match_args__])

    def __truediv__(self, other: object) -> NoReturn:
        raise TypeError(f"`{self} / {other}`: integers are divided with //")

    def __rtruediv__(self, other: object) -> NoReturn:
        raise TypeError(f"`{other} / {self}`: integers are divided with //")

    def __pow__(self, other: object) -> NoReturn:
        raise TypeError(f"`{self} ** {other}`: multiply with *, or shift with <<")

    __rpow__ = __pow__

    def __abs__(self) -> NoReturn:
        raise TypeError(f"`abs({self})`: use ts.maximum(x, -x)")

    def __iter__(self) -> NoReturn:
        raise TypeError(f"`{self}` is one value: use `with k.loop({self}) as i:` to count to it")

    def __bool__(self) -> bool:
        raise TypeError(
            f"the value of `{self}` is only known when the kernel runs; "
            "use k.if_(...), select(...), all_of(...) or any_of(...) instead of Python's if/and/or"
        )

    def __index__(self) -> int:
        raise TypeError(
            f"the value of `{self}` is only known when the kernel runs: not a Python integer; "
            "use `with k.loop(...) as i:` instead of range(...), and select(...) instead of a list"
        )


Operand = Expr | int | float | bool


@dataclass(frozen=True, eq=False)
class Const(Expr):
    """A literal. Its copy is itself: its value may be a parameter that is not known."""

    value: Scalar

    def __deepcopy__(self, memo: object) -> Const:
        return self

    def __str__(self) -> str:
        return str(int(self.value)) if isinstance(self.value, bool) else repr(self.value)


@dataclass(frozen=True, eq=False)
class Var(Expr):
    """A mutable per-lane register, or the induction variable of a loop."""

    name: str
    dtype: DType = s32

    def _key(self) -> tuple[object, ...]:
        return self.name, self.dtype

    def __str__(self) -> str:
        return f"%{self.name}"

    # in place: the register is set, where the kernel is being built that has it

    def __iadd__(self, other: Operand) -> Any:
        return _in_place("+", self, other)

    def __isub__(self, other: Operand) -> Any:
        return _in_place("-", self, other)

    def __imul__(self, other: Operand) -> Any:
        return _in_place("*", self, other)

    def __ifloordiv__(self, other: Operand) -> Any:
        return _in_place("//", self, other)

    def __imod__(self, other: Operand) -> Any:
        return _in_place("%", self, other)

    def __iand__(self, other: Operand) -> Any:
        return _in_place("&", self, other)

    def __ior__(self, other: Operand) -> Any:
        return _in_place("|", self, other)

    def __ixor__(self, other: Operand) -> Any:
        return _in_place("^", self, other)

    def __ilshift__(self, other: Operand) -> Any:
        return _in_place("<<", self, other)

    def __irshift__(self, other: Operand) -> Any:
        return _in_place(">>", self, other)


@dataclass(frozen=True, eq=False)
class ScalarParam(Expr):
    """A kernel parameter passed by value; ``value`` is what simulation and checks use.

    Its copy is itself, as that of a literal.
    """

    name: str
    value: int
    dtype: DType = s32

    def __deepcopy__(self, memo: object) -> ScalarParam:
        return self

    def __str__(self) -> str:
        return f"${self.name}"


@dataclass(frozen=True, eq=False)
class Special(Expr):
    """A special register: ``warp_id`` (in the CTA), ``lane_id``, ``cta_x``, ``cluster_rank``..."""

    name: SpecialName

    def __str__(self) -> str:
        return self.name


#: the state spaces that declarations lie in
DeclaredSpace = Literal["shared", "global"]


@dataclass(frozen=True, eq=False)
class Base(Expr):
    """The address at which the declaration ``name`` begins, in bytes (PTX: its name in ``mov``).

    In shared memory it is that of the executing CTA, a u32 that carries the CTA's cluster rank in
    bits 24 and up; in global memory (tensors, tensor maps) a u64.
    """

    name: str
    space: DeclaredSpace

    def __str__(self) -> str:
        return f"address({self.name})"


@dataclass(frozen=True, eq=False)
class Unary(Expr):
    """``op operand``."""

    op: UnaryOp
    operand: Expr

    def __str__(self) -> str:
        return _spelled(self)


@dataclass(frozen=True, eq=False)
class Binary(Expr):
    """``lhs op rhs``; ``//`` and ``%`` round towards minus infinity as in Python."""

    op: BinaryOp
    lhs: Expr
    rhs: Expr

    def __str__(self) -> str:
        return _spelled(self)


@dataclass(frozen=True, eq=False)
class Select(Expr):
    """``then if cond else other``; all three are evaluated."""

    cond: Expr
    then: Expr
    other: Expr

    def __str__(self) -> str:
        return _spelled(self)


def _spelled(expr: Expr) -> str:
    """An expression as text, as far as it is worth reading: forty times ``x = x + x`` has no
    end."""
    pieces: list[str] = []
    left: list[Expr | str] = [expr]
    while left and len(pieces) < _PIECES:
        match left.pop():
            case Binary(op, lhs, rhs):
                left += ")", rhs, f" {op} ", lhs, "("
            case Unary(op, operand):
                left += ")", operand, f"({op} "
            case Select(cond, then, other):
                left += ")", other, ", ", then, ", ", cond, "select("
            case part:
                pieces.append(str(part))
    return "".join(pieces) + ("..." if left else "")


def _is_some(value: Scalar) -> bool:
    """Whether a number is neither infinite nor none; integers are not looked at."""
    return not isinstance(value, float) or isfinite(value)


def as_expr(value: Operand) -> Expr:
    """``value`` as an expression; Python numbers become `Const`.

    Raises:
        TypeError: ``value`` is neither a number nor an expression.
    """
    if isinstance(value, Expr):
        return value
    if isinstance(value, (bool, int, float)):
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise TypeError(f"expected an integer below 2^64, got {value:#x}")
        return Const(value)
    if isinstance(value, SupportsIndex) and not getattr(value, "ndim", 0):  # of NumPy
        return as_expr(value.__index__())
    raise TypeError(f"expected an integer or an expression, got {named(value)}")


def named(value: object) -> str:
    """``value`` in an error message: what kind it is and its name, plain values as written."""
    plain = value is None or isinstance(value, bool | int | float | str | bytes | tuple | list)
    return repr(value) if plain else f"{type(value).__name__} {value}"


def _in_place(op: BinaryOp, var: Var, other: Operand) -> Expr:
    """``var op= other``: the register is set; of one that only a loop sets, the expression."""
    for owner in owners:
        if owner.owns(var):
            owner.assign(var, binary(op, var, other))
            return var
    return binary(op, var, other)


def unary(op: UnaryOp, operand: Operand) -> Expr:
    """``op operand``, folded when the operand is a literal."""
    x = as_expr(operand)
    return Const(UNARY[op](x.value)) if isinstance(x, Const) else Unary(op, x)


def binary(op: BinaryOp, lhs: Operand, rhs: Operand) -> Expr:
    """``lhs op rhs``, folded when both are literals and it has a value (a division by zero, or a
    shift of infinity, has none, and is kept)."""
    a, b = as_expr(lhs), as_expr(rhs)
    if isinstance(a, Const) and isinstance(b, Const):
        try:
            return Const(FOLDED[op](a.value, b.value))
        except (ValueError, ArithmeticError):
            return Binary(op, a, b)
    if op == "+" and isinstance(b, Const) and b.value == 0:
        return a
    if op == "+" and isinstance(a, Const) and a.value == 0:
        return b
    if op == "*" and isinstance(b, Const) and b.value == 1:
        return a
    return Binary(op, a, b)


def select(cond: Operand, then: Operand, other: Operand) -> Expr:
    """``then if cond else other`` per lane."""
    c = as_expr(cond)
    if isinstance(c, Const):
        return as_expr(then if c.value else other)
    return Select(c, as_expr(then), as_expr(other))


def all_of(*conditions: Operand) -> Expr:
    """Conjunction; true when empty."""
    return reduce(partial(binary, "and"), conditions, as_expr(True))


def any_of(*conditions: Operand) -> Expr:
    """Disjunction; false when empty."""
    return reduce(partial(binary, "or"), conditions, as_expr(False))


def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller of the two, per lane."""
    return binary("min", a, b)


def maximum(a: Operand, b: Operand) -> Expr:
    """The larger of the two, per lane."""
    return binary("max", a, b)


#: expressions that are made of no others
_LEAVES = frozenset({Var, Const, Special, Base, ScalarParam})


def walk(expr: Expr) -> Iterator[Expr]:
    """``expr`` and everything below it, each before its operands."""
    return iter((expr,) if type(expr) in _LEAVES else (expr, *_below(expr)))


@cached
def _below(expr: Expr) -> tuple[Expr, ...]:
    found, left = [], _operands(expr)
    while left:
        part = left.pop()
        found.append(part)
        if type(part) not in _LEAVES:
            left += _operands(part)
    return tuple(found)


def _operands(expr: Expr) -> list[Expr]:
    """What an expression is made of, the last one first."""
    if isinstance(expr, Binary):
        return [expr.rhs, expr.lhs]
    if isinstance(expr, Unary):
        return [expr.operand]
    return [expr.other, expr.then, expr.cond] if isinstance(expr, Select) else []


def constant(expr: Expr) -> int | None:
    """The integer value of a literal (or of a by-value parameter), None for anything else."""
    match expr:
        case Const(value) | ScalarParam(_, value) if _is_some(value):
            return integer(value)
        case _:
            return None


def divisor(expr: Expr, modulus: int = 0) -> int:
    """A number that divides every value of an integer expression (1 if nothing is known).

    Where a value wraps only the powers of two in it do. ``modulus``: of literals, only what they
    have in common with it counts; a literal that moves with a parameter is asked for no more.
    """
    match expr:
        case Const(value) | ScalarParam(_, value) if _is_some(value):
            return gcd(integer(value) % modulus, modulus) if modulus else abs(integer(value))
        case Binary("*", lhs, rhs):
            return divisor(lhs, modulus) * divisor(rhs, modulus)
        case Binary("+" | "-", lhs, rhs):
            return gcd(divisor(lhs, modulus), divisor(rhs, modulus))
        case _:
            return 1


# ------------------------------------------------------------- numbers with digits behind the point


def fraction(expr: Expr) -> Const | None:
    """A number with digits behind the point in an expression whose other values are integers."""
    found: list[Const] = []
    todo, seen = [expr], {id(expr)}
    while todo:
        one = todo.pop()
        if isinstance(one, Const):
            found += [one] if isinstance(one.value, float) and one.value % 1 else []
        elif isinstance(one, Var | ScalarParam) and one.dtype.kind == "float":
            return None
        elif not (isinstance(one, Binary) and one.op in COMPARE):
            parts = [part for part in vars(one).values() if isinstance(part, Expr)]
            todo += [part for part in parts if id(part) not in seen]
            seen.update(map(id, parts))  # one that is shared is not of a reasonable size yet
    return found[0] if found else None


# ------------------------------------------------------------------ what tensors are indexed with


Index = Operand | slice


@dataclass(frozen=True, slots=True)
class Dyn:
    """A slice of static ``size`` that starts at a run-time element: ``A[ds(i * 64, 64)]``."""

    start: Operand
    size: int


#: what a tensor can be indexed with
Subscript = Index | Dyn | EllipsisType | tuple[Index | Dyn | EllipsisType, ...]


def expand(items: tuple[Index | Dyn | EllipsisType, ...], rank: int) -> list[Index | Dyn]:
    """``items`` with an ellipsis replaced by the full slices it stands for."""
    result: list[Index | Dyn] = []
    for item in items:
        if isinstance(item, EllipsisType):
            result += [slice(None)] * (rank - len(items) + 1)
        else:
            result.append(item)
    return result


def element(item: Operand, name: str) -> Expr:
    """``item`` as an expression; no fraction."""
    expr = as_expr(item)
    if fraction(expr) is not None or (isinstance(expr, Const) and isinstance(expr.value, float)):
        raise reject(f"index {expr} of {name} is not an integer", caller())
    return expr


def resolve(item: Index | Dyn, extent: int, name: str) -> tuple[Expr, int, bool]:
    """(start, size, keep the dimension) of one index."""
    match item:
        case Dyn(start, size):
            return as_expr(start), size, True
        case slice(start=start, stop=stop, step=None):
            first = 0 if start is None else start
            last = extent if stop is None else stop
            if isinstance(first, Expr) or isinstance(last, Expr):
                raise reject(f"slice bounds of {name} must be integers", caller(),
                             fix="use ds(start, size) for a run-time start")  # fmt: skip
            if not 0 <= first < last <= extent:
                raise reject(f"slice {first}:{last} of {name} is outside 0:{extent}", caller(),
                             rule="out-of-bounds")  # fmt: skip
            return as_expr(first), last - first, True
        case slice():
            raise reject(f"a slice of {name} cannot have a step", caller())
        case _:
            start = element(item, name)
            known = constant(start)
            if known is not None and not 0 <= known < extent:
                raise reject(f"index {known} of {name} is outside 0:{extent}", caller(),
                             rule="out-of-bounds")  # fmt: skip
            return start, 1, False
