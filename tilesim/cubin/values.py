"""Sets of 32-bit values: all of them while they are few, else the bits that are known of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product

from tilesim.cubin.arithmetic import Bits, Term, bits, joined, number
from tilesim.cubin.operands import WORD

#: values of a set at most
MOST_VALUES = 64
#: combinations of values for which a term is computed
MOST_COMBINATIONS = 512

Values = frozenset[int] | Bits


def bits_of(values: Collection[int]) -> Bits:
    """What is known of each of some values, of which there is one."""
    ones = zeros = WORD
    for value in values:
        ones &= value
        zeros &= ~value
    return Bits(zeros, ones)


def as_set(known: Bits) -> Values:
    """All values with these bits, if they are few."""
    free = ~(known.zeros | known.ones) & WORD
    if 1 << free.bit_count() > MOST_VALUES:
        return known
    found = [known.ones]
    for place in range(32):
        if free >> place & 1:
            found += [value | 1 << place for value in found]
    return frozenset(found)


def join(one: Values, other: Values) -> Values:
    """What either can be."""
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        both = one | other
        return both if len(both) <= MOST_VALUES else bits_of(both)
    if not one and isinstance(one, frozenset):
        return other
    if not other and isinstance(other, frozenset):
        return one
    return joined(
        one if isinstance(one, Bits) else bits_of(one),
        other if isinstance(other, Bits) else bits_of(other),
    )


def below_unknown(known: Bits) -> Bits:
    """The bits below the first that is not known: what is left of a counter in the end."""
    free = ~(known.zeros | known.ones) & WORD
    low = (free & -free) - 1 if free else WORD
    return Bits(known.zeros & low, known.ones & low)


def values_of(term: Term, known: Mapping[str, Values]) -> Values:
    """The values of a term, when what it reads has these, in any combination."""
    few = {name: sorted(one) for name, one in known.items() if isinstance(one, frozenset)}
    combinations = 1
    for each in few.values():
        combinations *= len(each)
    if len(few) < len(known) or combinations > MOST_COMBINATIONS:
        of = {n: one if isinstance(one, Bits) else bits_of(one) for n, one in known.items()}
        return frozenset() if combinations == 0 else as_set(bits(term, of))
    found = {number(term, dict(zip(few, one, strict=True))) for one in product(*few.values())}
    values = frozenset(one for one in found if one is not None)
    return values if len(values) <= MOST_VALUES else bits_of(values)
