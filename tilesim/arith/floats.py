"""The floating-point operations that are computed: those that tests of known numbers need.

Each is rounded once, to nearest, as IEEE 754 says; other roundings and functions are data.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilesim.arith.integers import COMPARE, signed
from tilesim.arith.types import bf16, f16, f32, f64, numpy_dtype

_TYPES = {"f16": f16, "bf16": bf16, "f32": f32, "f64": f64}
FLOATS = frozenset(_TYPES)
_LEAST = {"f32": 2.0**-126}


def _arrays(kind: str) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The NumPy types of the bits, and of the number."""
    form = numpy_dtype(_TYPES[kind])
    return np.dtype(f"u{form.itemsize}"), form


def number(bits: int, kind: str) -> float:
    """The number that bits of a type stand for."""
    word, form = _arrays(kind)
    return float(np.array([bits], dtype=word).view(form)[0])


def encode(value: float, kind: str) -> int:
    """The bits of a number, rounded to nearest even; a NaN is PTX's canonical one."""
    if math.isnan(value):
        return {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FF8 << 48}[kind]
    word, form = _arrays(kind)
    with np.errstate(all="ignore"):
        return int(np.array([value], dtype=np.float64).astype(form).view(word)[0])


def _flushed(value: float, kind: str, ftz: bool) -> float:
    return math.copysign(0.0, value) if ftz and abs(value) < _LEAST[kind] else value


def _read(bits: int, kind: str, ftz: bool) -> float:
    return _flushed(number(bits, kind), kind, ftz)


def _rounded(value: float, kind: str, ftz: bool) -> int:
    bits = encode(value, kind)
    return encode(_read(bits, kind, ftz), kind) if ftz else bits


_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: float(np.divide(np.float64(a), np.float64(b))),
}  # fmt: skip


def arithmetic(a: int, b: int, *, op: str, kind: str, ftz: bool) -> int:
    """``add``, ``sub``, ``mul``, ``div.rn``: one rounding.

    Numbers of f16, bf16 and f32 are combined in double precision: a sum, product or quotient of two
    is rounded twice to the same result as once (53 >= 2 * 24 + 2).
    """
    with np.errstate(all="ignore"):
        exact = float(_ARITHMETIC[op](_read(a, kind, ftz), _read(b, kind, ftz)))
    return _rounded(exact, kind, ftz)


def extreme(a: int, b: int, *, kind: str, largest: bool, nan: bool, ftz: bool) -> int:
    """``min`` and ``max``: of a NaN and a number the number, or the NaN if ``nan``; -0 < +0."""
    x, y = _read(a, kind, ftz), _read(b, kind, ftz)
    if math.isnan(x) or math.isnan(y):
        if nan or (math.isnan(x) and math.isnan(y)):
            return encode(math.nan, kind)
        return encode(y if math.isnan(x) else x, kind)
    order = (x, math.copysign(1, x)) < (y, math.copysign(1, y))
    return encode(y if order is largest else x, kind)


COMPARISONS = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
})  # fmt: skip


def compare(a: int, b: int, *, name: str, kind: str, ftz: bool) -> bool:
    """Comparisons of numbers: with a NaN they are false, those with a ``u`` at the end true."""
    x, y = _read(a, kind, ftz), _read(b, kind, ftz)
    unordered = math.isnan(x) or math.isnan(y)
    if name in ("num", "nan"):
        return unordered is (name == "nan")
    return len(name) == 3 if unordered else COMPARE[name[:2]](x, y)


_TO_INTEGER: dict[str, Callable[[float], int]] = {
    "rzi": math.trunc, "rni": round, "rmi": math.floor, "rpi": math.ceil,
}  # fmt: skip


def to_integer(
    a: int, *, source: str, width: int, is_signed: bool, rounding: str, ftz: bool
) -> int:
    """``cvt`` of a number to an integer: NaN is 0, what does not fit the nearest bound."""
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if is_signed else (0, (1 << width) - 1)
    value = _read(a, source, ftz)
    if math.isnan(value):
        return 0
    if math.isinf(value):
        return (low if value < 0 else high) & (1 << width) - 1
    return min(max(_TO_INTEGER[rounding](value), low), high) & (1 << width) - 1


def from_integer(a: int, *, target: str, width: int, is_signed: bool, saturate: bool) -> int:
    """``cvt.rn`` of an integer to a number, rounded once; ``saturate`` to 0..1."""
    value = signed(a, width) if is_signed else a
    if saturate:
        value = min(max(value, 0), 1)
    return encode(_to_odd(value, {"f64": 64, "f32": 53}.get(target, 24)), target)


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


def between(a: int, *, source: str, target: str, ftz: bool, saturate: bool) -> int:
    """``cvt`` of a number to another format, to nearest; ``saturate`` to 0..1."""
    value = _read(a, source, ftz and source == "f32")
    if saturate:
        value = min(value, 1.0) if value > 0 else 0.0  # also of a NaN, and of -0
    return _rounded(value, target, ftz and target == "f32")
