"""What arithmetic on registers gives: types of expressions, and values that wrap and round.

The emitted C++ computes with these types, and the machine computes what the emitted code computes,
bit for bit. Narrow integers are held sign- or zero-extended in 32 bits and wrap when a register
of that type is written; expressions widen so that both operands keep their value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from tilesim.arith.intervals import BOUNDS, INTERVALS, Interval
from tilesim.arith.operators import COMPARE, NEGATED, Scalar, integer
from tilesim.arith.types import DType
from tilesim.ir.expr import Base, Binary, Const, Expr, ScalarParam, Select, Special, Unary, Var
from tilesim.ir.frozen import Keeper
from tilesim.records import dataclass, field, replace

CType = Literal["s32", "u32", "s64", "u64", "f32", "f64"]

INT_MIN, INT_MAX, UINT_MAX = -(1 << 31), (1 << 31) - 1, (1 << 32) - 1
#: least and greatest value of the integer types
LIMITS: Mapping[CType, tuple[int, int]] = {
    "s32": (INT_MIN, INT_MAX), "u32": (0, (1 << 32) - 1),
    "s64": (-(1 << 63), (1 << 63) - 1), "u64": (0, (1 << 64) - 1),
}  # fmt: skip

#: the greatest address in a state space: 16 ranks of 16 MiB, and 48 bits
MAX_ADDRESS: Mapping[str, int] = {"shared": (1 << 28) - 1, "global": (1 << 62) - 1}

#: the type of an expression, and bounds of its value before that wraps, if any are known
Facts: TypeAlias = tuple[CType, Interval | None]


def variable_type(dtype: DType) -> CType:
    """The C type that holds a scalar of ``dtype``: narrow integers and predicates are s32."""
    if dtype.kind == "float":
        return "f64" if dtype.bits == 64 else "f32"
    unsigned = dtype.kind == "uint"
    if dtype.bits == 64:
        return "u64" if unsigned else "s64"
    return "u32" if unsigned and dtype.bits == 32 else "s32"


def join_types(a: CType, b: CType) -> CType:
    """The type in which both operands keep their mathematical value (as far as C can)."""
    if a == b:
        return a
    if "f64" in (a, b):
        return "f64"
    if "f32" in (a, b):
        return "f32"
    return "u64" if "u64" in (a, b) else "s64"


def literal_type(value: Scalar) -> CType:
    """The type of a literal."""
    if isinstance(value, float):
        return "f32"
    if INT_MIN <= value <= INT_MAX:
        return "s32"
    if 0 <= value < 1 << 32:
        return "u32"
    return "s64" if value < 1 << 63 else "u64"


def binary_type(op: str, lhs: CType, rhs: CType) -> CType:
    """The type of ``lhs op rhs``; a difference of unsigned numbers may be negative."""
    if op in COMPARE:
        return "s32"
    if op in ("<<", ">>"):
        return lhs
    result = join_types(lhs, rhs)
    return "s64" if op == "-" and result == "u32" else result


def unary_type(op: str, operand: CType) -> CType:
    """The type of ``op operand``."""
    if op == "not":
        return "s32"
    return "s64" if operand == "u32" else operand


def wrap(value: int, kind: CType) -> int:
    """``value`` modulo 2^width in an integer type."""
    low, high = LIMITS[kind]
    return value if low <= value <= high else (value - low) % (high - low + 1) + low


def round_f32(value: float) -> float:
    """``value`` rounded to single precision; beyond its range it is infinite."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def integer_limits(dtype: DType) -> Interval:
    """Least and greatest value of a register of an integer type; a predicate is 0 or 1."""
    if dtype.kind == "pred":
        return 0, 1
    if dtype.kind == "uint":
        return 0, (1 << dtype.bits) - 1
    return -(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1


def is_float(expr: Expr) -> bool:
    """Whether an expression is a floating-point number."""
    return Typing().type_of(expr) in ("f32", "f64")


#: under which `Typing` keeps what it says of operations
_FACTS = ".facts"


@dataclass(frozen=True)
class Typing(Keeper):
    """Types and ranges of expressions, which are kept for those that are made of others.

    ``tokens`` are variables that hold mbarrier state tokens (u64 whatever they are declared as);
    ``ranges`` what is known of the values of others, and ``specials`` of special registers, which
    saves wrapping where nothing can wrap. ``any_scalar``: a launch may give a by-value parameter
    another value than the program's.
    """

    tokens: frozenset[str] = frozenset()
    ranges: Mapping[str, Interval] = field(default_factory=dict)
    specials: Mapping[str, Interval] = field(default_factory=dict)
    any_scalar: bool = False

    def type_of(self, expr: Expr) -> CType:
        """The type of an expression."""
        return self.facts(expr)[0]

    def interval(self, expr: Expr) -> Interval | None:
        """Bounds of an integer expression's value; None if it is no integer."""
        return bounds(*self.facts(expr))

    def wraps(self, expr: Expr) -> bool:
        """Whether the mathematical value of an operation may lie outside of its integer type."""
        kind, found = self.facts(expr)
        return kind in LIMITS and (found is None or bounds(kind, found) is not found)

    def facts(self, expr: Expr) -> Facts:
        """The type of an expression, and bounds before the result is wrapped; None if nothing is
        known."""
        leaf = type(expr)
        if leaf in _OF_LEAVES:
            return _OF_LEAVES[leaf](self, expr)
        own, place = self.__dict__, id(expr)
        if _FACTS not in own:
            own[_FACTS] = {}
        known: dict[int, tuple[Expr, Facts]] = own[_FACTS]
        if place not in known:
            known[place] = expr, self._of_operation(expr)
        return known[place][1]

    def _of_variable(self, var: Var) -> Facts:
        if var.name in self.tokens:
            return "u64", LIMITS["u64"]
        found = self.ranges.get(var.name)
        return variable_type(var.dtype), found or integer_limits(var.dtype)

    def _of_literal(self, literal: Const) -> Facts:
        value = literal.value
        if type(value) is int and INT_MIN <= value <= INT_MAX:
            return "s32", (value, value)
        if isinstance(value, float):
            return "f32", None
        return literal_type(value), (integer(value), integer(value))

    def _of_special(self, special: Special) -> Facts:
        return "s32", self.specials.get(special.name, (0, INT_MAX))

    def _of_base(self, base: Base) -> Facts:
        return "u32" if base.space == "shared" else "u64", (0, MAX_ADDRESS[base.space])

    def _of_scalar(self, scalar: ScalarParam) -> Facts:
        value, dtype = scalar.value, scalar.dtype
        limits = integer_limits(dtype) if self.any_scalar else (value, value)
        return variable_type(dtype), limits

    def _of_operation(self, expr: Expr) -> Facts:
        match expr:
            case Binary(op, lhs, rhs):
                if op in COMPARE:
                    return "s32", (0, 1)
                (one, first), (other, second) = self.facts(lhs), self.facts(rhs)
                a, b = bounds(one, first), bounds(other, second)
                if a is None or b is None or op not in INTERVALS:
                    return binary_type(op, one, other), None
                return binary_type(op, one, other), INTERVALS[op](a, b)
            case Unary(op, operand):
                own, known = self.facts(operand)
                inner = bounds(own, known)
                if op == "not":
                    return "s32", (0, 1)
                if inner is None:
                    return unary_type(op, own), None
                low, high = inner
                return unary_type(op, own), (-high, -low) if op == "-" else (~high, ~low)
            case Select(cond, then, other):
                kind = join_types(self.type_of(then), self.type_of(other))
                a = self.assuming(cond, True).interval(then)
                b = self.assuming(cond, False).interval(other)
                known = None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
                return kind, known
            case _:
                raise TypeError(f"not an expression: {expr!r}")

    def assuming(self, cond: Expr, holds: bool) -> Typing:
        """What is known where a comparison of a register with a literal holds, or does not."""
        match cond:
            case Binary(op, Var(name) as var, Const(int(value))) if op in BOUNDS:
                known = self.interval(var)
                if known is None:
                    return self
                low, high = BOUNDS[op if holds else NEGATED[op]](*known, value)
                if low > high:
                    return self
                return replace(self, ranges={**self.ranges, name: (low, high)})
            case _:
                return self


#: what `Typing` says of expressions that are made of no others, by their class
_OF_LEAVES: Mapping[type[Expr], Callable[[Typing, Any], Facts]] = {
    Var: Typing._of_variable,
    Const: Typing._of_literal,
    Special: Typing._of_special,
    Base: Typing._of_base,
    ScalarParam: Typing._of_scalar,
}


def bounds(kind: CType, found: Interval | None) -> Interval | None:
    """Bounds of a value in a type, where it lies within ``found`` before it wraps; None if the type
    is none of integers."""
    if kind not in LIMITS:
        return None
    limits = LIMITS[kind]
    if found is None:
        return limits
    return found if limits[0] <= found[0] and found[1] <= limits[1] else limits
