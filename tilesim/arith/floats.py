"""The floating-point operations that are computed: those that tests of known numbers need.

Each is rounded once, to nearest, as IEEE 754 says; other roundings and functions are data.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from tilesim.arith.integers import signed

#: the NumPy type of the bits, and of the number
_TYPES: dict[str, tuple[type, type]] = {
    "f16": (np.uint16, np.float16), "bf16": (np.uint16, ml_dtypes.bfloat16),
    "f32": (np.uint32, np.float32), "f64": (np.uint64, np.float64),
}  # fmt: skip
FLOATS = frozenset(_TYPES)
_LEAST = {"f32": 2.0**-126}


def number(bits: int, kind: str) -> float:
    """The number that bits of a type stand for."""
    word, form = _TYPES[kind]
    return float(np.array([bits], dtype=word).view(form)[0])


def encode(value: float, kind: str) -> int:
    """The bits of a number, rounded to nearest even; a NaN is PTX's canonical one."""
    if math.isnan(value):
        return {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FF8 << 48}[kind]
    word, form = _TYPES[kind]
    with np.errstate(all="ignore"):
        return int(np.array([value], dtype=np.float64).astype(form).view(word)[0])


def _flushed(value: float, kind: str, ftz: bool) -> float:
    return math.copysign(0.0, value) if ftz and abs(value) < _LEAST[kind] else value


def arithmetic(name: str, kind: str, *, ftz: bool) -> Callable[[int, int], int]:
    """``add``, ``sub``, ``mul``, ``div.rn``: one rounding.

    Numbers of f16, bf16 and f32 are combined in double precision: a sum, product or quotient of two
    is rounded twice to the same result as once (53 >= 2 * 24 + 2).
    """
    operation: dict[str, Callable[[float, float], float]] = {
        "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
        "div": _quotient,
    }  # fmt: skip
    combine = operation[name]

    def evaluate(a: int, b: int) -> int:
        x, y = _flushed(number(a, kind), kind, ftz), _flushed(number(b, kind), kind, ftz)
        with np.errstate(all="ignore"):
            exact = float(combine(x, y))
        bits = encode(exact, kind)
        return encode(_flushed(number(bits, kind), kind, ftz), kind) if ftz else bits

    return evaluate


def _quotient(a: float, b: float) -> float:
    return float(np.divide(np.float64(a), np.float64(b)))


def extreme(kind: str, *, largest: bool, nan: bool, ftz: bool) -> Callable[[int, int], int]:
    """``min`` and ``max``: of a NaN and a number the number, or the NaN if ``nan``; -0 < +0."""

    def evaluate(a: int, b: int) -> int:
        x, y = (_flushed(number(v, kind), kind, ftz) for v in (a, b))
        if math.isnan(x) or math.isnan(y):
            if nan or (math.isnan(x) and math.isnan(y)):
                return encode(math.nan, kind)
            return encode(y if math.isnan(x) else x, kind)
        order = (x, math.copysign(1, x)) < (y, math.copysign(1, y))
        return encode(y if order is largest else x, kind)

    return evaluate


def compare(name: str, kind: str, *, ftz: bool) -> Callable[[int, int], bool]:
    """Comparisons of numbers: with a NaN they are false, those with a ``u`` at the end true."""
    relations: dict[str, Callable[[float, float], bool]] = {
        "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
        "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    }  # fmt: skip
    if name in ("num", "nan"):
        wanted = name == "nan"
        return lambda a, b: (math.isnan(number(a, kind)) or math.isnan(number(b, kind))) is wanted
    unordered = len(name) == 3
    relation = relations[name[:2]]

    def evaluate(a: int, b: int) -> bool:
        x, y = (_flushed(number(v, kind), kind, ftz) for v in (a, b))
        if math.isnan(x) or math.isnan(y):
            return unordered
        return relation(x, y)

    return evaluate


COMPARISONS = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
})  # fmt: skip


def to_integer(
    source: str, width: int, *, is_signed: bool, rounding: str, ftz: bool
) -> Callable[[int], int]:
    """``cvt`` of a number to an integer: NaN is 0, what does not fit the nearest bound."""
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    rounded: dict[str, Callable[[float], int]] = {
        "rzi": math.trunc, "rni": round, "rmi": math.floor, "rpi": math.ceil,
    }  # fmt: skip

    def evaluate(a: int) -> int:
        value = _flushed(number(a, source), source, ftz)
        if math.isnan(value):
            return 0
        if math.isinf(value):
            return (low if value < 0 else high) & (1 << width) - 1
        return min(max(rounded[rounding](value), low), high) & (1 << width) - 1

    return evaluate


def from_integer(
    target: str, width: int, *, is_signed: bool, saturate: bool
) -> Callable[[int], int]:
    """``cvt.rn`` of an integer to a number, rounded once; ``saturate`` to 0..1."""

    kept = {"f64": 64, "f32": 53}.get(target, 24)

    def evaluate(a: int) -> int:
        value = signed(a, width) if is_signed else a
        if saturate:
            value = min(max(value, 0), 1)
        return encode(_to_odd(value, kept), target)

    return evaluate


def _to_odd(value: int, kept: int) -> float:
    """An integer of which ``kept`` bits are left, the last one set if the others were not 0.

    With two bits more than the format has, rounding it to that format is rounding the integer.
    """
    dropped = abs(value).bit_length() - kept
    if dropped <= 0:
        return float(value)
    high = abs(value) >> dropped
    if high << dropped != abs(value):
        high |= 1
    return math.copysign(math.ldexp(high, dropped), value)


def between(source: str, target: str, *, ftz: bool, saturate: bool) -> Callable[[int], int]:
    """``cvt`` of a number to another format, to nearest; ``saturate`` to 0..1."""

    def evaluate(a: int) -> int:
        value = number(a, source)
        if source == "f32":
            value = _flushed(value, source, ftz)
        if saturate:
            value = min(value, 1.0) if value > 0 else 0.0  # also of a NaN, and of -0
        bits = encode(value, target)
        return (
            encode(_flushed(number(bits, target), target, ftz), target)
            if (ftz and target == "f32")
            else bits
        )

    return evaluate
