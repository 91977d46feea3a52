"""Which mbarriers an operand can name, from what its instructions make its address of.

An address into shared memory is that of a declared variable plus a number. The variable is followed
through all instructions that set a register, the number as bounds and a stride. An address stays
inside the variable that it is made of. What is unknown may be anything: the answer "it cannot name
this barrier" is certain within that rule, "it can" is not. For reports; verdicts do not use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd
from typing import NamedTuple, TypeAlias

from tilesim.arith.operators import RELATIONS
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.addresses import RANK_SHIFT, WINDOW
from tilesim.ir.declarations import Mbar
from tilesim.ir.effects import Defines
from tilesim.ir.expr import Base, Binary, Const, Expr, Select, Var, walk
from tilesim.ir.frozen import kept
from tilesim.ir.mir import Mir

#: alternatives that are told apart, at most
_MANY = 32
#: the distance between the addresses of two CTAs of a cluster
_RANK = 1 << RANK_SHIFT
_NBYTES = 8
#: parts of expressions that are looked at for one program, at most
_MOST = 200_000


class _Spot(NamedTuple):
    """``base`` (empty: a number) plus numbers that are ``at`` modulo ``step`` (0: that one),
    between bounds; None: unbounded. ``far``: in the shared memory of a CTA that may be another."""

    base: str
    step: int
    at: int
    low: int | None
    high: int | None
    far: bool = False

    def has(self, number: int) -> bool:
        """Whether ``number`` is one that is added to the base."""
        off = number - self.at
        return (
            (off % self.step == 0 if self.step else off == 0)
            and (self.low is None or number >= self.low)
            and (self.high is None or number <= self.high)
        )


#: what an expression may be; None: anything
_Spots: TypeAlias = frozenset[_Spot] | None
_NUMBER = _Spot("", 1, 0, None, None)


def can_name(mir: Mir, mbar: Mbar, address: int, *, far: bool = False) -> bool:
    """Whether an operand can name the mbarrier at an address in shared memory; ``far``: in that of
    another CTA than the one that executes it."""
    array, placement = mbar.array, mir.kernel.placement
    known = _operands(mir)
    if not isinstance(array, AddressedMbarriers):
        first = placement[array.name]
        index, off = (address - first) // _NBYTES, (address - first) % _NBYTES
        if off or not 0 <= index < array.count or (far and not mbar.remote):
            return False
        spots = known.of(mbar.index)
        return spots is None or any(s.base or s.has(index) for s in spots)
    sizes = {s.name: s.nbytes for s in mir.kernel.shared}
    if far and not mbar.remote:
        return False
    spots = known.of(array.address)
    return spots is None or any(
        not s.base or s.base not in placement
        or (0 <= address - placement[s.base] < sizes[s.base]
            and s.has(address - placement[s.base]) and (s.far or not far))
        for s in spots
    )  # fmt: skip


def may_name(mir: Mir, mbar: Mbar, address: int, *, far: bool = False) -> bool:
    """Whether an operand can name that mbarrier, or another one of the array that it names."""
    array = mbar.array
    if isinstance(array, AddressedMbarriers):
        return can_name(mir, mbar, address, far=far)
    first = mir.kernel.placement[array.name]
    return first <= address < first + array.nbytes and (mbar.remote or not far)


@kept
def _operands(mir: Mir) -> _Operands:
    """What is known of the registers of a program."""
    return _Operands(mir)


class _Operands:
    """The values of registers, followed through all instructions that set them."""

    def __init__(self, mir: Mir) -> None:
        self._mir = mir
        self._known: dict[str, _Spots] = {}
        self._open: set[str] = set()
        self._returned: set[str] = set()
        self._left = _MOST

    def of(self, expr: Expr) -> _Spots:
        """What an expression may be."""
        self._left -= 1
        if self._left < 0:
            return None
        match expr:
            case Const(int() as value):
                value -= 1 << 32 if 1 << 31 <= value < 1 << 32 else 0
                return frozenset((_Spot("", 0, value, value, value),))
            case Base(name, "shared"):
                name = "" if name == WINDOW else name
                return frozenset((_Spot(name, 0, 0, 0, 0),))
            case Base():
                return None
            case Var(name):
                return self._variable(name)
            case Select(_, then, other):
                return _union((self.of(then), self.of(other)))
            case Binary(op, lhs, rhs):
                return self._operation(expr, op, self.of(lhs), self.of(rhs))
            case _:
                return self._number(expr)

    def _variable(self, name: str) -> _Spots:
        if name in self._known:
            return self._known[name]
        if name in self._open:
            self._returned.add(name)
            return frozenset()  # a turn of a loop makes it of itself: of the same variable
        self._open.add(name)
        found = self._set_to(name)
        self._open.discard(name)
        if name in self._returned and found is not None:
            # whatever a turn adds, and then what the instructions make of that
            self._returned.discard(name)
            self._known[name] = (
                frozenset(s._replace(step=1, at=0, low=None, high=None) for s in found) or None
            )
            self._open.add(name)
            found = self._set_to(name)
            self._open.discard(name)
            del self._known[name]
        found = self._within(name, found) or None
        if not self._open & self._returned:
            self._known[name] = found
        return found

    def _set_to(self, name: str) -> _Spots:
        """What the instructions that set a register make of it."""
        effects = (e for n in self._mir.setters.get(name, ()) for e in self._mir.effects[n])
        return _union(
            self.of(e.value) if isinstance(e.value, Expr) else None
            for e in effects if isinstance(e, Defines) and e.var.name == name
        )  # fmt: skip

    def _within(self, name: str, spots: _Spots) -> _Spots:
        """A number that is a counter, within its bounds."""
        bounds = self._mir.typing.ranges.get(name)
        if spots is None or bounds is None or any(s.base for s in spots):
            return spots
        low, high = bounds
        return frozenset(
            s._replace(low=low if s.low is None else max(s.low, low),
                       high=high if s.high is None else min(s.high, high))
            for s in spots
        )  # fmt: skip

    def _number(self, expr: Expr) -> _Spots:
        """A number of which only bounds are known; anything if an address is part of it."""
        if any(isinstance(part, Base) and part.name != WINDOW for part in walk(expr)):
            return None
        found = self._mir.typing.interval(expr)
        return None if found is None else frozenset((_Spot("", 1, 0, *found),))

    def _operation(self, expr: Binary, op: str, a: _Spots, b: _Spots) -> _Spots:
        if op in ("+", "-"):
            return _sums(a, b, op == "-")
        factor = _exact(b)
        if factor is not None and op in ("*", "<<") and 0 <= factor < 64:
            return _times(a, factor if op == "*" else 1 << factor)
        if factor is not None and op == "&":
            return _masked(a, factor)
        if op in RELATIONS:
            return frozenset((_Spot("", 1, 0, 0, 1),))
        if a is None or b is None or any(s.base for s in (*a, *b)):
            return None
        return self._number(expr)


def _exact(spots: _Spots) -> int | None:
    """The one number that it is."""
    if spots is None or len(spots) != 1:
        return None
    (spot,) = spots
    return None if spot.base or spot.step else spot.at


def _union(many: Iterable[_Spots]) -> _Spots:
    found: set[_Spot] = set()
    for one in many:
        if one is None:
            return None
        found |= one
    return _limited(found)


def _limited(found: set[_Spot]) -> frozenset[_Spot]:
    """The alternatives; of too many those of one base together, without bounds."""
    if len(found) <= _MANY:
        return frozenset(found)
    together: dict[str, _Spot] = {}
    for spot in found:
        first = together.setdefault(spot.base, spot._replace(low=None, high=None))
        step = gcd(first.step, spot.step, first.at - spot.at)
        together[spot.base] = first._replace(step=step)
    return frozenset(together.values())


def _sums(a: _Spots, b: _Spots, minus: bool) -> _Spots:
    """What is the sum of two; with an address, what is unknown is a number."""
    bases = [spots is not None and any(s.base for s in spots) for spots in (a, b)]
    if (a is None and b is None) or (bases[1] and (minus or bases[0])):
        return None
    left = frozenset((_NUMBER,)) if a is None and bases[1] else a
    right = frozenset((_NUMBER,)) if b is None and bases[0] else b
    if left is None or right is None:
        return None
    found: set[_Spot] = set()
    for one in left:
        for other in _negative(right) if minus else right:
            found.add(_sum(one, other))
    return _limited(found)


def _negative(spots: frozenset[_Spot]) -> frozenset[_Spot]:
    return frozenset(
        _Spot(s.base, s.step, -s.at, None if s.high is None else -s.high,
              None if s.low is None else -s.low)
        for s in spots
    )  # fmt: skip


def _sum(a: _Spot, b: _Spot) -> _Spot:
    for one, other in ((a, b), (b, a)):
        if one.base and not other.base and not other.at % _RANK and not other.step % _RANK:
            return one._replace(far=True)
    low = None if a.low is None or b.low is None else a.low + b.low
    high = None if a.high is None or b.high is None else a.high + b.high
    far = a.far or b.far
    return _Spot(a.base or b.base, gcd(a.step, b.step), a.at + b.at, low, high, far)


def _times(spots: _Spots, factor: int) -> _Spots:
    if spots is None:
        spots = frozenset((_NUMBER,))
    if any(s.base for s in spots):
        return None
    return frozenset(
        _Spot("", s.step * factor, s.at * factor, None if s.low is None else s.low * factor,
              None if s.high is None else s.high * factor)
        for s in spots
    )  # fmt: skip


def _masked(spots: _Spots, mask: int) -> _Spots:
    """Some bits of a value: the whole offset in shared memory keeps the variable."""
    if spots is not None and any(s.base for s in spots):
        whole = mask & (_RANK - 1) == _RANK - 1
        return spots if whole and all(s.base for s in spots) else None
    if mask < 0:
        return spots
    one = _exact(spots)
    if one is not None:
        return frozenset((_Spot("", 0, one & mask, one & mask, one & mask),))
    return frozenset((_Spot("", mask & -mask, 0, 0, mask),))
