"""What is known of a value while a warp's code is written out, and expressions over such values.

The code of one warp of one CTA is specialised: its numbers, lanes and parameters are known, and
only loop counters and the variables that loops change are left to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilesim.analysis.cfg import LANES
from tilesim.arith.intervals import INTERVALS, Interval
from tilesim.arith.operators import BINARY, COMPARE, UNARY, Scalar
from tilesim.ir.expr import Binary, Const, Expr, ScalarParam, Select, Special, Unary, Var
from tilesim.records import dataclass

#: the range of a Promela ``int``
INT = (-(1 << 31), (1 << 31) - 1)


@dataclass(frozen=True)
class Known:
    """One integer per lane; None in the lanes where the value is not defined."""

    lanes: tuple[int | None, ...]


@dataclass(frozen=True)
class Runtime:
    """A Promela expression, the same for all lanes of the mask ``lanes``, with its range."""

    text: str
    range: Interval = INT
    lanes: int = (1 << LANES) - 1


@dataclass(frozen=True)
class Unknown:
    """A value the model does not have; ``why`` completes "it depends on ..."."""

    why: str


Value = Known | Runtime | Unknown


def everywhere(value: int) -> Known:
    """The same integer in all lanes."""
    return Known((value,) * LANES)


def active(mask: int) -> list[int]:
    """The lanes of a mask, in order."""
    return [lane for lane in range(LANES) if mask >> lane & 1]


def restrict(value: Value, mask: int, name: str) -> Value:
    """``value`` as the lanes of ``mask`` see it; Unknown if some of them do not have it."""
    match value:
        case Known(lanes):
            chosen = tuple(lanes[i] if mask >> i & 1 else None for i in range(LANES))
            if any(chosen[lane] is None for lane in active(mask)):
                return Unknown(f"{name}, which not every lane has set")
            return Known(chosen)
        case Runtime(lanes=lanes) if mask & ~lanes:
            return Unknown(f"{name}, which differs between lanes and over time")
        case _:
            return value


def uniform(value: Value) -> int | None:
    """The integer that all lanes have which have one; None if they differ or it is not known."""
    if not isinstance(value, Known):
        return None
    found = {v for v in value.lanes if v is not None}
    return found.pop() if len(found) == 1 else None


def as_runtime(value: Value) -> Runtime | None:
    """A uniform value as a Promela expression; None for anything else."""
    if isinstance(value, Runtime):
        return value
    number = uniform(value)
    if number is None:
        return None
    return Runtime(str(number) if number >= 0 else f"({number})", (number, number), _lanes(value))


def merge(a: Value, b: Value, variable: str, name: str) -> Value:
    """The value after two paths meet; it is in the Promela variable if both are uniform."""
    if a == b:
        return a
    left, right = as_runtime(a), as_runtime(b)
    if left is None or right is None:
        return next((v for v in (a, b) if isinstance(v, Unknown)), Unknown(f"{name}, per lane"))
    low = min(left.range[0], right.range[0])
    high = max(left.range[1], right.range[1])
    return Runtime(variable, (low, high), _lanes(a) & _lanes(b))


def _lanes(value: Value) -> int:
    match value:
        case Known(lanes):
            return sum(1 << i for i, v in enumerate(lanes) if v is not None)
        case Runtime(lanes=mask):
            return mask
        case _:
            return 0


# ------------------------------------------------------------------ expressions


class Evaluator:
    """Evaluates expressions for the active lanes of one warp.

    ``specials`` are the special registers that are the same for all lanes, ``read`` gives the value
    of a variable for the lanes of a mask.
    """

    def __init__(
        self, warp: int, specials: Mapping[str, int], read: Callable[[Var, int], Value]
    ) -> None:
        self._specials = dict(specials)
        self._warp = warp
        self._read = read

    def __call__(self, expr: Expr, mask: int) -> Value:
        """The value of ``expr`` in the lanes of ``mask``."""
        match expr:
            case Const(value) | ScalarParam(_, value):
                return _literal(value)
            case Special(name):
                return self._special(name, mask)
            case Var():
                return self._read(expr, mask)
            case Unary(op, operand):
                return _unary(op, self(operand, mask))
            case Binary(op, lhs, rhs):
                return _binary(op, self(lhs, mask), self(rhs, mask))
            case Select(cond, then, other):
                return _select(self(cond, mask), self(then, mask), self(other, mask))
            case _:
                return Unknown(f"{expr}")

    def _special(self, name: str, mask: int) -> Value:
        lanes = range(LANES)
        match name:
            case "lane_id":
                return restrict(Known(tuple(lanes)), mask, name)
            case "thread_id":
                first = self._warp * LANES
                return restrict(Known(tuple(first + i for i in lanes)), mask, name)
            case _:
                return restrict(everywhere(self._specials[name]), mask, name)


def _literal(value: Scalar) -> Value:
    if isinstance(value, float):
        return Unknown(f"the floating-point number {value}")
    return everywhere(int(value))


def _unary(op: str, operand: Value) -> Value:
    match operand:
        case Known(lanes):
            return Known(tuple(None if v is None else int(UNARY[op](v)) for v in lanes))
        case Runtime(text, (low, high), mask):
            match op:
                case "-":
                    return _bounded(f"(-{text})", (-high, -low), operand, mask)
                case "~":
                    return Runtime(f"(~{text})", (~high, ~low), mask)
                case _:
                    return Runtime(f"(!{text})", (0, 1), mask)
        case _:
            return operand


def _binary(op: str, a: Value, b: Value) -> Value:
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return a if isinstance(a, Unknown) else b
    if isinstance(a, Known) and isinstance(b, Known):
        pairs = zip(a.lanes, b.lanes, strict=True)
        if op in ("//", "%") and any(v == 0 for v in b.lanes):
            return Unknown("a division by zero")
        return Known(
            tuple(None if x is None or y is None else int(BINARY[op](x, y)) for x, y in pairs)
        )
    left, right = as_runtime(a), as_runtime(b)
    if left is None or right is None:
        return Unknown("both the lane and a loop counter")
    return _runtime(op, left, right)


_SYMBOL = {"and": "&&", "or": "||"}


def _runtime(op: str, a: Runtime, b: Runtime) -> Value:
    mask = a.lanes & b.lanes
    if op in COMPARE:
        return Runtime(f"({a.text} {_SYMBOL.get(op, op)} {b.text})", (0, 1), mask)
    if op in ("//", "%"):
        return _divide(op, a, b, mask)
    if op in ("<<", ">>") and not 0 <= b.range[0] <= b.range[1] < LANES:
        return Unknown("a shift whose distance is not known to be in 0..31")
    text = f"({a.text} {op} {b.text})"
    if op in ("min", "max"):
        sign = "<" if op == "min" else ">"
        text = f"({a.text} {sign} {b.text} -> {a.text} : {b.text})"
    return _bounded(text, INTERVALS[op](a.range, b.range) or INT, a, mask, b)


def _bounded(text: str, span: Interval, a: Runtime, mask: int, b: Runtime | None = None) -> Value:
    """A result in its range; what leaves 32 bits is not known, unless nothing was known before."""
    if INT[0] <= span[0] and span[1] <= INT[1]:
        return Runtime(text, span, mask)
    if a.range == INT or (b is not None and b.range == INT):
        return Runtime(text, INT, mask)
    return Unknown(f"{text}, which may exceed 32 bits")


def _divide(op: str, a: Runtime, b: Runtime, mask: int) -> Value:
    """Rounds towards minus infinity, where Promela rounds towards zero."""
    low, high = b.range
    if low != high or low <= 0:
        return Unknown("a division by something that is not a positive constant")
    n = low
    if op == "%":
        text = f"({a.text} % {n})" if a.range[0] >= 0 else f"((({a.text} % {n}) + {n}) % {n})"
        return Runtime(text, (0, n - 1), mask)
    text = f"({a.text} / {n})"
    if a.range[0] < 0:
        text = f"({a.text} >= 0 -> {a.text} / {n} : -(({n - 1} - {a.text}) / {n}))"
    return Runtime(text, (a.range[0] // n, a.range[1] // n), mask)


def _select(cond: Value, then: Value, other: Value) -> Value:
    if isinstance(cond, Unknown):
        return cond
    if isinstance(cond, Known):
        chosen = {bool(v) for v in cond.lanes if v is not None}
        if len(chosen) == 1:
            return then if chosen.pop() else other
        if isinstance(then, Known) and isinstance(other, Known):
            triples = zip(cond.lanes, then.lanes, other.lanes, strict=True)
            return Known(tuple(None if c is None else x if c else y for c, x, y in triples))
        return Unknown("both the lane and a loop counter")
    if isinstance(then, Unknown) or isinstance(other, Unknown):
        return then if isinstance(then, Unknown) else other
    left, right = as_runtime(then), as_runtime(other)
    if left is None or right is None:
        return Unknown("both the lane and a loop counter")
    low, high = min(left.range[0], right.range[0]), max(left.range[1], right.range[1])
    mask = cond.lanes & left.lanes & right.lanes
    return Runtime(f"({cond.text} -> {left.text} : {right.text})", (low, high), mask)
