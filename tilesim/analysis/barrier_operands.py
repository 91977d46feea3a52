"""Which mbarriers an operand can name, from what its instructions make its address of.

An address into shared memory is that of a declared variable plus a number. The variable is followed
through all instructions that set a register, the number as bounds and a stride. An address stays
inside the variable that it is made of. What is unknown may be anything: the answer "it cannot name
this barrier" is certain within that rule, "it can" is not. For reports; verdicts do not use it.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import NamedTuple, TypeAlias

from tilesim.analysis.cfg import graph_of
from tilesim.analysis.number_sets import Numbers
from tilesim.analysis.ssa import Values
from tilesim.arith.operators import RELATIONS
from tilesim.ir.addressed import AddressedMbarriers
from tilesim.ir.addresses import RANK_SHIFT, WINDOW
from tilesim.ir.declarations import Mbar
from tilesim.ir.effects import Defines
from tilesim.ir.expr import Base, Binary, Const, Expr, Select, Var, walk
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Mir
from tilesim.records import replace

#: alternatives, at most; and of a register that is set anew from itself
_MANY, _FEW = 32, 8
#: the distance between the addresses of two CTAs of a cluster
_RANK = 1 << RANK_SHIFT
_NBYTES = 8


class _Spot(NamedTuple):
    """``base`` (empty: none) plus one of these numbers; ``far``: in the shared memory of a CTA that
    may be another."""

    base: str
    numbers: Numbers
    far: bool = False


#: what an expression may be; None: anything
_Spots: TypeAlias = frozenset[_Spot] | None
#: no instruction has come to it yet
_NOTHING: frozenset[_Spot] = frozenset()
_ANY = _Spot("", Numbers(1, 0))


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
        return not spots or any(s.base or index in s.numbers for s in spots)
    sizes = {s.name: s.nbytes for s in mir.kernel.shared}
    if far and not mbar.remote:
        return False
    spots = known.of(array.address)
    return not spots or any(
        not s.base or s.base not in placement
        or (0 <= address - placement[s.base] < sizes[s.base]
            and address - placement[s.base] in s.numbers and (s.far or not far))
        for s in spots
    )  # fmt: skip


def may_name(mir: Mir, mbar: Mbar, address: int, *, far: bool = False) -> bool:
    """Whether an operand can name that mbarrier, or another one of the array that it names."""
    array = mbar.array
    if isinstance(array, AddressedMbarriers):
        return can_name(mir, mbar, address, far=far)
    first = mir.kernel.placement[array.name]
    return first <= address < first + array.nbytes and (mbar.remote or not far)


@cached
def _operands(mir: Mir) -> _Operands:
    """What is known of the registers of a program."""
    return _Operands(mir)


class _Operands:
    """The values of registers, followed through all instructions that set them."""

    def __init__(self, mir: Mir) -> None:
        self._mir = mir
        setters = sorted({n for numbers in mir.setters.values() for n in numbers})
        self._values: Values[_Spots] = Values(graph_of(mir), setters, _grown, _NOTHING)
        for number in self._values.work:
            for effect in mir.effects[number]:
                if isinstance(effect, Defines):
                    found = self.of(effect.value) if isinstance(effect.value, Expr) else None
                    self._values.grow(effect.var.name, number, found)

    def of(self, expr: Expr) -> _Spots:
        """What an expression may be, wherever it is."""
        match expr:
            case Const(int() as value):
                value -= 1 << 32 if 1 << 31 <= value < 1 << 32 else 0
                return frozenset((_Spot("", Numbers.single(value)),))
            case Base(name, "shared"):
                name = "" if name == WINDOW else name
                return frozenset((_Spot(name, Numbers.single(0)),))
            case Base():
                return None
            case Var(name) if name in self._mir.setters:
                found = _union(self._values.of(name, n) for n in self._mir.setters[name])
                return self._within(name, found)
            case Var():
                return None
            case Select(_, then, other):
                return _union((self.of(then), self.of(other)))
            case Binary(op, lhs, rhs):
                return self._operation(expr, op, self.of(lhs), self.of(rhs))
            case _:
                return self._number(expr)

    def _within(self, name: str, spots: _Spots) -> _Spots:
        """A number that is a counter, within its bounds."""
        bounds = self._mir.typing.ranges.get(name)
        if spots is None or bounds is None or any(s.base for s in spots):
            return spots
        return frozenset(s._replace(numbers=s.numbers.within(*bounds)) for s in spots)

    def _number(self, expr: Expr) -> _Spots:
        """A number of which only bounds are known; anything if an address is part of it."""
        if any(isinstance(part, Base) and part.name != WINDOW for part in walk(expr)):
            return None
        found = self._mir.typing.interval(expr)
        return None if found is None else frozenset((_Spot("", Numbers(1, 0, *found)),))

    def _operation(self, expr: Binary, op: str, a: _Spots, b: _Spots) -> _Spots:
        if _NOTHING in (a, b):
            return _NOTHING
        if op in ("+", "-"):
            return _sums(a, b, op == "-")
        factor = _exact(b)
        if factor is not None and op in ("*", "<<") and 0 <= factor < 64:
            return _times(a, factor if op == "*" else 1 << factor)
        if factor is not None and op == "&":
            return _masked(a, factor)
        if op in RELATIONS:
            return frozenset((_Spot("", Numbers(1, 0, 0, 1)),))
        if a is None or b is None or any(s.base for s in (*a, *b)):
            return None
        return self._number(expr)


def _exact(spots: _Spots) -> int | None:
    """The one number that it is."""
    if spots is None or len(spots) != 1:
        return None
    (spot,) = spots
    return None if spot.base or spot.numbers.step else spot.numbers.at


def _union(many: Iterable[_Spots]) -> _Spots:
    found: set[_Spot] = set()
    for one in many:
        if one is None:
            return None
        found |= one
    return frozenset(found) if len(found) <= _MANY else _together(found)


def _grown(before: _Spots, more: _Spots) -> _Spots:
    """What an instruction may set a register to that it has set to something before."""
    found = _union((before, more))
    if not before or not found or found == before:
        return found
    endless = any(inf in (-s.numbers.low, s.numbers.high) for s in before)
    return _together(found) if endless or len(found) > _FEW else found


def _together(found: Iterable[_Spot]) -> frozenset[_Spot]:
    """The alternatives of one base as one, without bounds."""
    whole: dict[tuple[str, bool], Numbers] = {}
    for base, numbers, far in found:
        before = whole.get((base, far), numbers)
        whole[base, far] = replace(before | numbers, low=-inf, high=inf)
    return frozenset(_Spot(base, numbers, far) for (base, far), numbers in whole.items())


def _sums(a: _Spots, b: _Spots, minus: bool) -> _Spots:
    """What is the sum of two; with an address, what is unknown is a number."""
    bases = [spots is not None and any(s.base for s in spots) for spots in (a, b)]
    if (a is None and b is None) or (bases[1] and (minus or bases[0])):
        return None
    left = frozenset((_ANY,)) if a is None and bases[1] else a
    right = frozenset((_ANY,)) if b is None and bases[0] else b
    if left is None or right is None:
        return None
    sign = -1 if minus else 1
    return _union((frozenset(_sum(one, other, sign) for one in left for other in right),))


def _sum(a: _Spot, b: _Spot, sign: int) -> _Spot:
    for one, other in ((a, b), (b, a)):
        if (
            one.base
            and not other.base
            and not other.numbers.at % _RANK | other.numbers.step % _RANK
        ):
            return one._replace(far=True)
    return _Spot(a.base or b.base, a.numbers + b.numbers * sign, a.far or b.far)


def _times(spots: _Spots, factor: int) -> _Spots:
    if spots is None:
        spots = frozenset((_ANY,))
    if any(s.base for s in spots):
        return None
    return frozenset(s._replace(numbers=s.numbers * factor) for s in spots)


def _masked(spots: _Spots, mask: int) -> _Spots:
    """Some bits of a value: the whole offset in shared memory keeps the variable."""
    if spots is not None and any(s.base for s in spots):
        whole = mask & (_RANK - 1) == _RANK - 1
        return spots if whole and all(s.base for s in spots) else None
    return frozenset(s._replace(numbers=s.numbers & mask) for s in spots or (_ANY,))
