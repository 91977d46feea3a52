"""Integer and predicate expressions in C: types, rounding of ``//`` and ``%``, known facts."""

from __future__ import annotations

from math import gcd

from tilesim.ir.arithmetic import (
    COMPARE,
    INT_MAX,
    INT_MIN,
    CType,
    Typing,
    join_types,
    literal_type,
)
from tilesim.ir.expr import Binary, Const, Expr, ScalarParam, Select, Special, Unary, Var

_SAME: dict[str, str] = {"and": "&&", "or": "||"}


class Expressions:
    """Renders expressions; ``names`` gives the C identifier of variables, parameters, specials.

    ``typing`` has the types and ranges of registers; ``nonnegative`` are variables that never hold
    a negative number (loop counters that start at 0).
    """

    def __init__(self, names: dict[str, str], typing: Typing) -> None:
        self.names = names
        self._typing = typing
        self.nonnegative: set[str] = set()
        self.helpers: set[str] = set()
        self.specials: set[str] = set()

    # ------------------------------------------------------------------ facts

    def type_of(self, expr: Expr) -> CType:
        """The C type of the rendered expression."""
        return self._typing.type_of(expr)

    def is_nonnegative(self, expr: Expr) -> bool:
        """True if the value is known not to be negative, so that C's ``/`` and ``%`` agree."""
        match expr:
            case Const(value) | ScalarParam(_, value):
                return isinstance(expr, Const) and value >= 0
            case Special():
                return True
            case Var(name):
                return name in self.nonnegative or self.type_of(expr) in ("u32", "u64")
            case Binary(op, lhs, rhs):
                if op in COMPARE:
                    return True
                if op == "&":
                    return self.is_nonnegative(lhs) or self.is_nonnegative(rhs)
                if op == "%":
                    return self.is_nonnegative(rhs)
                if op in ("*", "<<") and self._typing.wraps(expr):
                    return False
                keeps = op in ("+", "*", "//", "|", "^", "<<", ">>", "min", "max")
                return keeps and self.is_nonnegative(lhs) and self.is_nonnegative(rhs)
            case Select(_, then, other):
                return self.is_nonnegative(then) and self.is_nonnegative(other)
            case _:
                return False

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
        if self.type_of(expr) == to and not _is_truth(expr):
            return self.operand(expr)
        if isinstance(expr, Const) and expr.value >= 0 and to == "u32" and expr.value <= INT_MAX:
            return self.operand(expr)
        return f"({to}){self.operand(expr)}"

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
            case Unary(op, operand):
                sign = "!" if op == "not" else op
                return (
                    f"({sign}{self.cast(operand, self.type_of(expr))})"
                    if sign != "!"
                    else (f"(!{self.operand(operand)})")
                )
            case Binary():
                return self._binary(expr)
            case Select(cond, then, other):
                kind = self.type_of(expr)
                arms = f"{self.cast(then, kind)} : {self.cast(other, kind)}"
                return f"({self.operand(cond)} ? {arms})"
            case _:
                raise TypeError(f"not an expression: {expr!r}")

    def _binary(self, expr: Binary) -> str:
        op, lhs, rhs = expr.op, expr.lhs, expr.rhs
        if op in ("and", "or"):
            return f"({self.operand(lhs)} {_SAME[op]} {self.operand(rhs)})"
        if op in ("<<", ">>"):
            return f"({self.operand(lhs)} {op} {self.operand(rhs)})"
        kind = join_types(self.type_of(lhs), self.type_of(rhs))
        if op == "-" and kind == "u32":
            kind = "s64"
        a, b = self.cast(lhs, kind), self.cast(rhs, kind)
        if op in ("min", "max"):
            self.helpers.add(f"{op}imum")
            return f"{op}imum<{kind}>({a}, {b})"
        if op in ("//", "%"):
            return self._divide(op, lhs, rhs, a, b, kind)
        return f"({a} {op} {b})"

    def _divide(self, op: str, lhs: Expr, rhs: Expr, a: str, b: str, kind: CType) -> str:
        if kind in ("f32", "f64"):
            name = "floor_div_float" if op == "//" else "floor_mod_float"
            self.helpers.add(name)
            return f"{name}<{kind}>({a}, {b})"
        if self.is_nonnegative(lhs) and self.is_nonnegative(rhs):
            return f"({a} {'/' if op == '//' else '%'} {b})"
        power = rhs.value if isinstance(rhs, Const) else 0
        if isinstance(power, int) and power > 0 and power & (power - 1) == 0:
            shift = power.bit_length() - 1
            return f"({a} >> {shift})" if op == "//" else f"({a} & {power - 1})"
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
