"""What a register or an operand is in a warp and in all its shadows at once: one array for them.

It is what `Operands.value` says of each of them, or there is none: arrays hold integers of 64 bits
only, which count from nothing or from one tensor, and what could leave these is not computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import and_, or_
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.array_operators import ARRAY_BINARY, ARRAY_UNARY
from tilesim.arith.types import DType
from tilesim.ir.arithmetic import LIMITS, CType, integer_limits
from tilesim.ir.expr import Binary, Expr, Select, Unary

Numbers: TypeAlias = NDArray[np.int64]
#: lanes of a warp, and all of them as bits
WIDTH = 32
ALL_LANES = (1 << WIDTH) - 1


class Many(NamedTuple):
    """By cluster and lane, of which each is one for all where it makes no difference; None: known
    in none of them. ``base``: the tensor whose address they count from; "": they are numbers.
    ``lanes``: in which it is known, as bits; in others the numbers are 0."""

    numbers: Numbers | None
    base: str = ""
    lanes: int = ALL_LANES

    @property
    def ends(self) -> tuple[int, int]:
        """The least and the greatest of its numbers."""
        assert self.numbers is not None
        return int(self.numbers.min()), int(self.numbers.max())

    def reduced(self) -> Many:
        """The same, with one number where all lanes have it, or all clusters."""
        found = self.numbers
        if found is None:
            return self
        for axis in (1, 0):
            first = found.take([0], axis)
            found = first if (found == first).all() else found
        return self._replace(numbers=found)

    def of(self, lanes: int) -> Many:
        """What of it is known in these lanes."""
        if self.numbers is None or not (known := self.lanes & lanes):
            return UNKNOWN
        if known == self.lanes:
            return self
        numbers = np.where(_in(known), self.numbers, 0)
        return self._replace(numbers=numbers, lanes=known)


#: it depends on data in all of them
UNKNOWN = Many(None, lanes=0)


def _in(lanes: int) -> NDArray[np.bool_]:
    """By lane, whether it is one of these."""
    return (lanes >> np.arange(WIDTH)) & 1 > 0


def applied(e: Expr, xs: Sequence[Many], kind: CType) -> Many | None:
    """What an operator makes of operands, in the type of the expression; None: each is to be
    computed for itself."""
    strict = isinstance(e, Unary | Binary) and e.op not in ("and", "or")
    lanes, some = reduce(and_, (x.lanes for x in xs)), reduce(or_, (x.lanes for x in xs))
    if not some or (strict and not lanes):
        return UNKNOWN
    if lanes != some and not strict:
        return None
    known = [x.numbers for x in xs if x.numbers is not None]
    base = _base(e, [x.base for x in xs], wide=kind in ("s64", "u64"))
    found = None if base is None else _computed(e, known)
    found = None if found is None else _wrapped(found.astype(np.int64), *LIMITS[kind])
    return None if found is None or base is None else Many(found, base).of(lanes)


def _base(e: Expr, bases: list[str], *, wide: bool) -> str | None:
    """Which tensor's address results count from: in 64 bits, of such as numbers move."""
    if not any(bases):
        return ""
    match e, bases:
        case (Binary("+"), [base, ""] | ["", base]) | (Binary("-"), [base, ""]) if wide:
            return base
        case Select(), ["", base, other] if wide and base == other:
            return base
    return None


def _computed(e: Any, xs: Sequence[Numbers]) -> Any:
    """What an operator makes of arrays, modulo 2^64; None: it is not defined for some."""
    a, b = xs[0], xs[-1]
    match e:
        case Select():
            return np.where(a != 0, xs[1], b)
        case Unary(op):
            return ARRAY_UNARY[op](a)
        case Binary("<<" | ">>") if b.min() < 0 or b.max() > 63:
            return None
        case Binary("//" | "%") if b.min() <= 0:
            return None
    return ARRAY_BINARY[e.op](a, b)


def _wrapped(x: Numbers, low: int, high: int) -> Numbers | None:
    """Numbers modulo 2^width in an integer type; None: some are beyond those of an array."""
    if low <= int(x.min()) and int(x.max()) <= high:
        return x
    size = high - low + 1
    return (x - low) % size + low if size < 1 << 63 else None


def fitted(x: Many, dtype: DType) -> Many | None:
    """What a register of a type takes of it."""
    if dtype.kind == "float" or x.numbers is None:
        return UNKNOWN
    if x.base and dtype.bits < 64:
        return None
    if dtype.kind == "pred":
        return x._replace(numbers=(x.numbers != 0).astype(np.int64))
    found = _wrapped(x.numbers, *integer_limits(dtype))
    return None if found is None else x._replace(numbers=found)


def in_some(new: Many, old: Many, lanes: Sequence[int]) -> Many | None:
    """A register that takes what is new in some lanes."""
    here = sum(1 << i for i in lanes)
    p, q = new.of(here), old.of(ALL_LANES & ~here)
    if p.numbers is None or q.numbers is None:
        return q if p.numbers is None else p
    if p.base != q.base:
        return None
    return Many(np.where(_in(here), p.numbers, q.numbers), p.base, p.lanes | q.lanes)
