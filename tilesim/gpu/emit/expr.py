"""Expressions and elements in C: types, rounding of ``//`` and ``%``, conversions.

Integer and predicate expressions in C: types, rounding of ``//`` and ``%``, known facts.

Elements of tensors and fragments in C: storage type, the type math runs in, conversions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd

from tilesim.arith.operators import COMPARE
from tilesim.arith.types import DType, bf16, e4m3, e5m2, f16, f64, pred, tf32
from tilesim.ir.arithmetic import INT_MAX, INT_MIN, LIMITS, CType, Typing, join_types, literal_type
from tilesim.ir.expr import Base, Binary, Const, Expr, ScalarParam, Select, Special, Unary, Var

_SAME: dict[str, str] = {"and": "&&", "or": "||"}


_UNSIGNED: dict[CType, CType] = {"s32": "u32", "s64": "u64"}
#: operations that a signed type may leave, and floats round (the compiler joins no two of these)
_ROUNDED = {"+": "add", "-": "sub", "*": "mul"}
#: conversions that give the nearest bound where the integer type has no such number, as cvt.rzi
_TRUNCATED: dict[CType, str] = {"s32": "int", "u32": "uint", "s64": "ll", "u64": "ull"}


class Expressions:
    """Renders expressions; ``names`` gives the C identifier of variables, parameters, specials.

    ``typing`` has the types and ranges of registers. What may leave a signed type is computed in
    the unsigned one, where C wraps as PTX does; signed overflow would be undefined.
    """

    def __init__(self, names: dict[str, str], typing: Typing) -> None:
        self.names = names
        self._typing = typing
        self.helpers: set[str] = set()
        self.specials: set[str] = set()
        #: by declaration: where it lies
        self.addresses: dict[str, str] = {}

    # ------------------------------------------------------------------ facts

    def type_of(self, expr: Expr) -> CType:
        """The C type of the rendered expression."""
        return self._typing.type_of(expr)

    def is_nonnegative(self, expr: Expr) -> bool:
        """True if the value is known not to be negative, so that C's ``/`` and ``%`` agree."""
        known = self._typing.interval(expr)
        return known is not None and known[0] >= 0

    # ------------------------------------------------------------------ text

    def text(self, expr: Expr) -> str:
        """``expr`` in C, without outer parentheses."""
        rendered = self.operand(expr)
        if isinstance(expr, Binary) and rendered.startswith("(") and rendered.endswith(")"):
            return rendered[1:-1] if _outer(rendered) else rendered
        return rendered

    def cast(self, expr: Expr, to: CType) -> str:
        """``expr`` converted to a C type."""
        if isinstance(expr, Const) and isinstance(expr.value, int) and to in ("f32", "f64"):
            return _literal(float(expr.value), to)
        kind = self.type_of(expr)
        if kind == to and not _is_truth(expr):
            return self.operand(expr)
        if isinstance(expr, Const) and expr.value >= 0 and to == "u32" and expr.value <= INT_MAX:
            return self.operand(expr)
        if kind in ("f32", "f64") and to in LIMITS:
            source = "float" if kind == "f32" else "double"
            return f"__{source}2{_TRUNCATED[to]}_rz({self.text(expr)})"
        if to == _UNSIGNED.get(kind) and self._leaves(expr):
            return self._modular(expr, to)
        return f"({to}){self.operand(expr)}"

    def scaled(self, expr: Expr, factor: int) -> str:
        """``expr * factor``, for an address: what lies beyond 32 bits lies in no memory."""
        return self.operand(expr) if factor == 1 else f"({self.operand(expr)} * {factor})"

    def operand(self, expr: Expr) -> str:
        """``expr`` in C, in parentheses where it is not a single token or call."""
        match expr:
            case Const(value):
                return _literal(value, literal_type(value))
            case Var(name) | ScalarParam(name):
                return self.names[name]
            case Special(name):
                self.specials.add(name)
                return self.names[name]
            case Base(name):
                return self.addresses[name]
            case Unary("not", operand):
                return f"(!{self.operand(operand)})"
            case Unary(op, operand):
                kind = self.type_of(expr)
                if self._leaves(expr):
                    return f"({kind}){self._modular(expr, _UNSIGNED[kind])}"
                return f"({op}{self.cast(operand, kind)})"
            case Binary():
                return self._binary(expr)
            case Select(cond, then, other):
                kind = self.type_of(expr)
                arms = self._where(cond, True, then, kind), self._where(cond, False, other, kind)
                return f"({self.operand(cond)} ? {arms[0]} : {arms[1]})"
            case _:
                raise TypeError(f"not an expression: {expr!r}")

    def _where(self, cond: Expr, holds: bool, arm: Expr, kind: CType) -> str:
        """An arm of a conditional, which C evaluates only if the condition is as it has to be."""
        everywhere = self._typing
        self._typing = everywhere.assuming(cond, holds)
        text = self.cast(arm, kind)
        self._typing = everywhere
        return text

    def _binary(self, expr: Binary) -> str:
        op, lhs, rhs = expr.op, expr.lhs, expr.rhs
        if op in ("and", "or"):
            return f"({self.operand(lhs)} {_SAME[op]} {self.operand(rhs)})"
        if op in ("<<", ">>"):
            return self._shift(expr)
        kind = self.type_of(expr) if op in _ROUNDED else join_types(*map(self.type_of, (lhs, rhs)))
        if self._leaves(expr):
            return f"({kind}){self._modular(expr, _UNSIGNED[kind])}"
        a, b = self.cast(lhs, kind), self.cast(rhs, kind)
        if op in ("min", "max"):
            self.helpers.add(f"{op}imum")
            return f"{op}imum<{kind}>({a}, {b})"
        if op in ("//", "%"):
            return self._divide(expr, a, b, kind)
        if op in _ROUNDED and kind in ("f32", "f64"):
            return f"__{'f' if kind == 'f32' else 'd'}{_ROUNDED[op]}_rn({a}, {b})"
        return f"({a} {op} {b})"

    def _leaves(self, expr: Expr) -> bool:
        """Whether an operation may leave its signed type."""
        if self.type_of(expr) not in _UNSIGNED:
            return False
        match expr:
            case Binary("<<", lhs) if not self.is_nonnegative(lhs):
                return True
            case Binary("+" | "-" | "*" | "<<") | Unary("-"):
                return self._typing.wraps(expr)
            case _:
                return False

    def _modular(self, expr: Expr, kind: CType) -> str:
        """An operation that may leave its signed type, computed in the unsigned one."""
        match expr:
            case Unary(_, operand):
                return f"({_literal(0, kind)} - {self.cast(operand, kind)})"
            case Binary("<<", Const(value), rhs):
                return self._shifted("<<", f"({kind}){_literal(value, kind)}", rhs, kind)
            case Binary("<<", lhs, rhs):
                return self._shifted("<<", self.cast(lhs, kind), rhs, kind)
            case Binary(op, lhs, rhs):
                return f"({self.cast(lhs, kind)} {op} {self.cast(rhs, kind)})"
            case _:
                raise TypeError(f"cannot wrap: {expr!r}")

    def _shift(self, expr: Binary) -> str:
        kind = self.type_of(expr)
        if self._leaves(expr):
            return f"({kind}){self._modular(expr, _UNSIGNED[kind])}"
        return self._shifted(expr.op, self.cast(expr.lhs, kind), expr.rhs, kind)

    def _shifted(self, op: str, value: str, count: Expr, kind: CType) -> str:
        """A shift: C has none by more than the width, PTX shifts everything out."""
        known, bits = self._typing.interval(count), LIMITS[kind][1].bit_length() + (kind[0] == "s")
        if known is not None and known[0] >= 0 and known[1] < bits:
            return f"({value} {op} {self.operand(count)})"
        name = "shift_left" if op == "<<" else "shift_right"
        self.helpers.add(name)
        return f"{name}<{kind}>({value}, {self.cast(count, 's64')})"

    def _divide(self, expr: Binary, a: str, b: str, kind: CType) -> str:
        op, lhs, rhs = expr.op, expr.lhs, expr.rhs
        if kind in ("f32", "f64"):
            name = "floor_div_float" if op == "//" else "floor_mod_float"
            self.helpers.add(name)
            return f"{name}<{kind}>({a}, {b})"
        power = rhs.value if isinstance(rhs, Const) else 0
        if isinstance(power, int) and power > 1 and power & (power - 1) == 0:
            shift = power.bit_length() - 1
            return f"({a} >> {shift})" if op == "//" else f"({a} & {power - 1})"
        if self.is_nonnegative(lhs) and self.is_nonnegative(rhs):
            return f"({a} {'/' if op == '//' else '%'} {b})"
        name = "floor_div" if op == "//" else "floor_mod"
        self.helpers.add(name)
        return f"{name}<{kind}>({a}, {b})"


def _is_truth(expr: Expr) -> bool:
    """True if C gives the value the type bool, which inline PTX does not take."""
    match expr:
        case Binary(op):
            return op in COMPARE
        case Unary(op):
            return op == "not"
        case _:
            return False


def multiple_of(expr: Expr) -> int:
    """A number that is known to divide the value (0: the value is zero)."""
    match expr:
        case Const(value):
            return abs(int(value)) if float(value).is_integer() else 1
        case Binary("*", lhs, rhs):
            return multiple_of(lhs) * multiple_of(rhs)
        case Binary("+" | "-", lhs, rhs):
            return gcd(multiple_of(lhs), multiple_of(rhs))
        case Binary("<<", lhs, Const(value)):
            return multiple_of(lhs) << int(value)
        case Select(_, then, other):
            return gcd(multiple_of(then), multiple_of(other))
        case _:
            return 1


def _literal(value: int | float | bool, kind: CType) -> str:
    if isinstance(value, float):
        return _float_literal(value, kind)
    suffix = {"u32": "u", "s64": "ll", "u64": "ull"}.get(kind, "")
    text = "(-2147483647 - 1)" if value == INT_MIN else f"{int(value)}{suffix}"
    return f"({text})" if value < 0 and not text.startswith("(") else text


def _float_literal(value: float, kind: CType) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        bits = 0x7FC00000 if value != value else (0x7F800000 if value > 0 else 0xFF800000)
        return f"__uint_as_float({bits:#010x}u)"
    text = repr(value) + ("f" if kind == "f32" else "")
    return f"({text})" if value < 0 or text.startswith("-") else text


def _outer(text: str) -> bool:
    """True if the first parenthesis closes at the very end."""
    depth = 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return position == len(text) - 1
    return False


_RAW = {bf16: "u16", f16: "u16", e4m3: "u8", e5m2: "u8", tf32: "f32", pred: "u8"}


def storage_type(dtype: DType) -> str:
    """The C type an element is stored as; raw bits for the floats C++ does not have."""
    return _RAW.get(dtype, dtype.name)


def math_type(dtype: DType) -> str:
    """The C type elementwise math on ``dtype`` runs in: f32 for narrow floats and bytes."""
    if dtype is f64:
        return "f64"
    return "f32" if dtype.kind == "float" or dtype.bits == 8 else dtype.name


def widen(dtype: DType, value: str, use: Callable[[str], None]) -> str:
    """``value`` (as stored) in the type math runs in; ``use`` is told the helpers it needs."""
    if dtype in (bf16, f16, e4m3, e5m2):
        use(f"{dtype}_to_f32")
        return f"{dtype}_to_f32({value})"
    return value if storage_type(dtype) == math_type(dtype) else f"({math_type(dtype)}){value}"


def narrow(dtype: DType, value: str, kind: str, use: Callable[[str], None]) -> str:
    """``value`` of C type ``kind`` rounded to ``dtype`` and in its storage type."""
    if dtype in (bf16, f16, e4m3, e5m2):
        use(f"f32_to_{dtype}")
        return f"f32_to_{dtype}({value})"
    stored = storage_type(dtype)
    return value if stored == kind else f"({stored})({value})"
