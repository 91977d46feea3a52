"""Which addresses a load may find in a tensor that begins with some (SEMANTICS J5).

A load of a word finds what lies at one multiple of its size. Where its address is a sum of the
tensor's and of multiples, only every so many bytes are such places: of an array of structs the
addresses in one field.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import gcd
from typing import NamedTuple

from tilesim.ir.arithmetic import LIMITS, Typing
from tilesim.ir.base_forms import NONE, NOTHING, Forms, base_of, union
from tilesim.ir.expr import Base, Binary, Const, Expr, Select, Var
from tilesim.ir.memory import GlobalTensor

_NBYTES, _BITS = 8, 64
_DEEPEST = 64
#: offsets are less than this, or they are taken modulo a power of two
_FAR = 1 << 62


class _Places(NamedTuple):
    """Numbers ``at`` plus any multiple of ``step`` (0: that one), from ``low`` to ``high``."""

    step: int
    at: int
    low: int
    high: int

    @property
    def is_far(self) -> bool:
        """Whether some may be so large that they are taken modulo a power of two."""
        return max(abs(self.low), abs(self.high)) >= _FAR


class Told:
    """The addresses that tensors begin with; ``given``: what registers are set to, always."""

    def __init__(self, typing: Typing, given: Mapping[str, Expr]) -> None:
        self._typing = typing
        self._given = given

    def anywhere(self, tensor: GlobalTensor) -> Forms:
        """What the words of a tensor are in the beginning."""
        return self._union(tensor, range(0, _bytes_told(tensor), _NBYTES))

    def at(self, tensor: GlobalTensor, address: Expr, start: int, size: int) -> Forms:
        """What is loaded ``start`` bytes behind an address in a tensor, as ``size`` bytes."""
        found = self._places(address, 0)
        step = found.step & -found.step if found.is_far else found.step
        first, end = found.at + start, _bytes_told(tensor)
        places = range(first, first + 1) if not step else range(first % step, end, step)
        low, high = (0, end) if found.is_far else (found.low + start, found.high + start)
        low, high = max(low, 0), min(high, end - 1)
        words = [place for place in places if low <= place <= high and place % size == 0]
        if size == _NBYTES:
            return self._union(tensor, words)
        halves = any(
            one.at < p + size and p < one.at + _NBYTES for one in tensor.pointers for p in words
        )
        return None if halves else NONE

    def _union(self, tensor: GlobalTensor, words: range | list[int]) -> Forms:
        found, pointers = NOTHING, {one.at: one.to for one in tensor.pointers}
        for place in words:
            to = pointers.get(place)
            one = (
                NONE
                if to is None
                else frozenset((frozenset(((base_of(Base(to, "global")), Fraction(1)),)),))
            )
            found = union(found, one)
        return found

    def _places(self, expr: Expr, depth: int) -> _Places:
        match expr:
            case Base():
                return _Places(0, 0, 0, 0)
            case Const(int() as value):
                return _Places(0, value, value, value)
            case Var(name, dtype) if self._holds(name, dtype.bits) and depth < _DEEPEST:
                return self._places(self._given[name], depth + 1)
            case Select(_, then, other) if depth < _DEEPEST:
                return _either(self._places(then, depth + 1), self._places(other, depth + 1))
            case Binary() if not self._is_narrow(expr) and depth < _DEEPEST:
                return self._sum(expr, depth + 1)
            case _:
                return self._any(expr)

    def _holds(self, name: str, bits: int) -> bool:
        """Whether a register holds all of what it is set to."""
        return bits == _BITS and name in self._given

    def _sum(self, expr: Binary, depth: int) -> _Places:
        match expr.op, expr.rhs:
            case (("+" | "-"), _):
                a, b = self._places(expr.lhs, depth), self._places(expr.rhs, depth)
                b = b if expr.op == "+" else _times(b, -1)
                return _Places(gcd(a.step, b.step), a.at + b.at, a.low + b.low, a.high + b.high)
            case "*", Const(int() as factor):
                return _times(self._places(expr.lhs, depth), factor)
            case "<<", Const(int() as count):
                return _times(self._places(expr.lhs, depth), 1 << count)
            case "&", Const(int() as mask) if mask > 0:
                return _Places(mask & -mask, 0, 0, mask)
            case _:
                return self._any(expr)

    def _is_narrow(self, expr: Binary) -> bool:
        """Whether an operation may lose bits of an offset."""
        low, high = LIMITS.get(self._typing.type_of(expr), (0, 0))
        return high - low < _FAR and self._typing.wraps(expr)

    def _any(self, expr: Expr) -> _Places:
        bounds = self._typing.interval(expr)
        return _Places(1, 0, *((-_FAR, _FAR) if bounds is None else bounds))


def _times(places: _Places, factor: int) -> _Places:
    low, high = sorted((places.low * factor, places.high * factor))
    return _Places(places.step * abs(factor), places.at * factor, low, high)


def _either(a: _Places, b: _Places) -> _Places:
    step = gcd(a.step, b.step, a.at - b.at)
    return _Places(step, a.at, min(a.low, b.low), max(a.high, b.high))


def _bytes_told(tensor: GlobalTensor) -> int:
    return len(tensor.contents or "") // 2
