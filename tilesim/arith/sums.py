"""Values in all clusters and lanes that are a number of the cluster and one of the lane, summed.

Most addresses are: what a CTA begins at, and where in that a thread does. Kept apart they take 32
times less than one number for each lane of each cluster, and so does what is computed of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.operators import RELATIONS

Integers: TypeAlias = NDArray[np.int64]
#: an operator on two arrays
Operator: TypeAlias = Callable[[Any, Any], Any]
#: numbers beyond this are left to code that computes lane by lane
_MOST = 1 << 62
_EITHER_WAY = frozenset({"+", "*", "&", "|", "^"})
#: what leaves every number as it is
_NOTHING = {"+": 0, "-": 0, "|": 0, "^": 0, "<<": 0, ">>": 0, "*": 1, "//": 1}
_BITS: dict[str, Operator] = {"&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}


class Column:
    """A number per cluster; what is computed of it with a number is computed once."""

    def __init__(self, values: Integers) -> None:
        self.values = values
        self._known: dict[tuple[str, int], Column] = {}
        #: by the identity of the other one, which stays what it is
        self._joined: dict[tuple[str, int], tuple[Column, Column]] = {}

    @cached_property
    def low(self) -> int:
        """The least number."""
        return int(np.minimum.reduce(self.values))

    @cached_property
    def high(self) -> int:
        """The greatest number."""
        return int(np.maximum.reduce(self.values))

    @cached_property
    def bits(self) -> int:
        """The bits that some number has, in two's complement."""
        return int(np.bitwise_or.reduce(self.values))

    @cached_property
    def shift(self) -> Integers:
        """By how much each is more than the first: (clusters, 1)."""
        moved: Integers = self.values - self.values[0]
        return moved[:, None]

    def computed(self, op: str, apply: Operator, number: int) -> Column:
        """``apply`` on each number and ``number``."""
        if _NOTHING.get(op) == number:
            return self
        found = self._known.get((op, number))
        if found is None:
            result = np.asarray(apply(self.values, number)).astype(np.int64)
            found = self._known[op, number] = Column(result)
        return found

    def joined(self, op: str, apply: Operator, other: Column) -> Column:
        """``apply`` on each number and that of another column, or its only one."""
        if len(other.values) == 1:
            return self.computed(op, apply, other.low)
        found = self._joined.get((op, id(other)))
        if found is None:
            result = np.asarray(apply(self.values, other.values)).astype(np.int64)
            found = self._joined[op, id(other)] = other, Column(result)
        return found[1]


class Sums:
    """``column`` has a number per cluster, ``row`` one per lane, or a single zero if lanes do not
    differ."""

    __slots__ = ("__dict__", "column", "row")

    #: for code that looks at results of NumPy
    dtype = np.dtype(np.int64)
    ndim = 2

    def __init__(self, column: Column, row: Integers) -> None:
        if len(row) == 1 and row[0]:
            column, row = column.computed("+", np.add, int(row[0])), _NO_LANES
        self.column = column
        self.row = row

    @classmethod
    def of(cls, numbers: Integers) -> Sums:
        """What does not differ between lanes."""
        return cls(Column(numbers), _NO_LANES)

    def __len__(self) -> int:
        return len(self.column.values)

    def __getitem__(self, which: Any) -> Any:
        """The numbers of one cluster, or these sums for some of the clusters."""
        if isinstance(which, int):
            return self.column.values[which] + self.row
        return Sums(Column(self.column.values[which]), self.row)

    @cached_property
    def dense(self) -> Integers:
        """One number per cluster and lane: (clusters, 32), or (clusters, 1)."""
        return self.column.values[:, None] + self.row

    @cached_property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest number."""
        return self.column.low + int(self.row.min()), self.column.high + int(self.row.max())

    @property
    def is_uniform(self) -> bool:
        """Whether all clusters have the same."""
        return self.column.low == self.column.high

    def of_lane(self, lane: int) -> Integers:
        """A number per cluster."""
        numbers: Integers = self.column.values + self.row[lane if len(self.row) > 1 else 0]
        return numbers

    def multiples_of(self, divisor: int) -> bool:
        """Whether all numbers surely are multiples of a power of two."""
        return not (self.column.bits | int(np.bitwise_or.reduce(self.row))) % divisor

    def within(self, mask: int) -> bool:
        """Whether a mask, of 64 bits or more as well, surely keeps every bit of all numbers."""
        least, most = self.limits
        below = (1 << most.bit_length()) - 1
        return least >= 0 and mask & below == below

    def wrapped(self, low: int, high: int) -> Sums | None:
        """The same numbers in a type; None if that takes another multiple from each."""
        least, most = self.limits
        size = high - low + 1
        turns = (least - low) // size
        if (most - low) // size != turns:
            return None
        return self if not turns else self._moved(-turns * size)

    def _moved(self, by: int) -> Sums | None:
        if abs(by) >= _MOST:
            return None
        return Sums(self.column.computed("+", np.add, by), self.row)


_NO_LANES: Integers = np.zeros(1, dtype=np.int64)


def combined(op: str, apply: Operator, a: Any, b: Any) -> Any:
    """``a op b``, where one of them is `Sums`: a number, `Sums`, or None if it is neither.

    ``apply`` is the operator on arrays.
    """
    if type(a) is not Sums and op in _EITHER_WAY:
        a, b = b, a
    if type(a) is Sums and type(b) is int and op == "&" and a.within(b):
        return a
    if type(a) is Sums and type(b) is int and abs(b) < _MOST:
        return _with_number(op, apply, a, b)
    one, other = _summands(a), _summands(b)
    if one is None or other is None:
        return None
    decided = _compared(op, one.limits, other.limits) if op in RELATIONS else None
    if decided is not None:
        return decided
    if len(one.row) == len(other.row) == 1:
        fits = op not in ("+", "-", "*", "<<") or _small(op, one, other)
        return Sums(one.column.joined(op, apply, other.column), _NO_LANES) if fits else None
    if op in ("+", "-"):
        if not _small(op, one, other):
            return None
    elif op not in _BITS or not _misses(one.column.bits | other.column.bits, one.row | other.row):
        return None
    return Sums(one.column.joined(op, apply, other.column), apply(one.row, other.row))


def _summands(value: Any) -> Sums | None:
    """A value as a sum: of one cluster, if it is none of many."""
    if type(value) is Sums:
        return value
    if type(value) is int and abs(value) < _MOST:
        return Sums.of(np.array([value], dtype=np.int64))
    if isinstance(value, np.ndarray) and value.shape == (32,) and value.dtype == np.int64:
        return Sums(Column(np.zeros(1, dtype=np.int64)), value)
    return None


def _with_number(op: str, apply: Operator, one: Sums, number: int) -> int | Sums | None:
    """Sums and one number."""
    column, row, small = one.column, one.row, _small(op, one, number)
    if op in RELATIONS:
        decided = _compared(op, one.limits, (number, number))
        if decided is not None:
            return decided
    if len(row) == 1:
        fits = op not in ("+", "-", "*", "<<") or small
        return Sums(column.computed(op, apply, number), row) if fits else None
    if op in ("+", "-"):
        return Sums(column.computed(op, apply, number), row) if small else None
    if number < 0:
        return None
    if op in ("*", "<<"):
        return Sums(column.computed(op, apply, number), apply(row, number)) if small else None
    if op in _BITS and _misses(column.bits, row):
        below = _mask(row)
        upper, lower = (number, number) if op == "&" else (number & ~below, number & below)
        return Sums(column.computed(op, apply, upper), apply(row, lower))
    divisor = 1 << number if op == ">>" and number < 62 else number
    if op in (">>", "//", "%") and divisor and not column.computed("%", np.mod, divisor).bits:
        return Sums(column.computed(op, apply, number), apply(row, number))
    return None


def _small(op: str, one: Sums, other: Sums | int) -> bool:
    """Whether no result is beyond what an array holds."""
    a = max(map(abs, one.limits))
    b = abs(other) if isinstance(other, int) else max(map(abs, other.limits))
    if op == "<<":
        return b < 62 and a << b < _MOST
    return (a * b if op == "*" else a + b) < _MOST


def _compared(op: str, one: tuple[int, int], other: tuple[int, int]) -> int | None:
    """0 or 1, if that is so for all numbers between these limits."""
    (a, b), (c, d) = one, other
    equal, apart = a == b == c == d, b < c or a > d
    holds: dict[str, tuple[bool, bool]] = {
        "==": (equal, apart), "!=": (apart, equal), "<": (b < c, a >= d), ">": (a > d, b <= c),
        "<=": (b <= c, a > d), ">=": (a >= d, b < c),
    }  # fmt: skip
    yes, no = holds[op]
    return 1 if yes else 0 if no else None


def _mask(row: Integers) -> int:
    """Low bits in which all of a row is."""
    return (1 << int(np.bitwise_or.reduce(row)).bit_length()) - 1


def _misses(bits: int, row: Integers) -> bool:
    """Whether a row is in low bits of which a column has none."""
    return int(row.min()) >= 0 and not bits & _mask(row)
