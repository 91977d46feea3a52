"""Values as sums of unknown bases: what is left of these when an address is computed with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from tilesim.ir.addresses import WINDOW
from tilesim.ir.arithmetic import Typing
from tilesim.ir.expr import Base, Binary, Const, Expr, Var


class Unknown(NamedTuple):
    """A base: a number of which only the bits from ``low`` up to ``high`` may be set."""

    name: str
    low: int
    high: int

    @property
    def is_declared(self) -> bool:
        """Whether it is where a global tensor or a tensor map begins."""
        return self.high == _POINTER and self != GENERIC


#: the bits of a pointer
_POINTER = 64
#: how often each base is in a value; without those that are not
Form: TypeAlias = frozenset[tuple[Unknown, Fraction]]
#: what a value may be; None: anything, with some base
Forms: TypeAlias = "frozenset[Form] | None"

KNOWN: Form = frozenset()
NONE: Forms = frozenset((KNOWN,))
NOTHING: Forms = frozenset()
#: shared memory begins at a multiple of 1 KiB, and ends below 256 KiB: descriptors hold 18 bits
SHARED = Unknown("shared memory", 10, 18)
GENERIC = Unknown("the shared window", 32, _POINTER)
_ONE = Fraction(1)
#: an address of shared memory in its own space, and as one of any
_SHARED_ADDRESS: Form = frozenset(((SHARED, _ONE),))
SHARED_IN_GENERIC: Form = frozenset(((SHARED, _ONE), (GENERIC, _ONE)))
#: forms of a value, at most
_MANY = 8
#: operations in one another that are followed to find the bits of a number
_DEEP = 4


def base_of(base: Base) -> Unknown:
    """The unknown number that the address of a declaration is."""
    if base.name == WINDOW:
        return GENERIC
    return SHARED if base.space == "shared" else Unknown(base.name, 4, _POINTER)


@lru_cache(maxsize=1024)
def forms_of(unknown: Unknown) -> frozenset[Form]:
    """What is that number."""
    return frozenset((frozenset(((unknown, _ONE),)),))


def fits(form: Form, space: str) -> bool:
    """Whether a value is an address into what is declared in a state space."""
    if space.startswith("shared"):
        return form == _SHARED_ADDRESS
    if form == SHARED_IN_GENERIC:
        return space == "generic"
    return len(form) == 1 and all(u.is_declared and n == 1 for u, n in form)


def named(forms: Forms, space: str) -> Forms:
    """What an address may be, without the number that some lanes have in place of one (a null
    pointer): in global memory nothing lies there, which a run says that uses it."""
    if space.startswith("shared") or forms is None or is_known(forms):
        return forms
    return forms - {KNOWN}


def owners_of(forms: Forms, space: str) -> tuple[str, ...]:
    """The global tensors that an address may be one of; none if that is not known."""
    forms = named(forms, space)
    if space.startswith("shared") or not forms or not all(fits(form, "global") for form in forms):
        return ()
    return tuple(sorted({u.name for form in forms for u, _ in form}))


def is_known(forms: Forms) -> bool:
    """Whether no base is left in any of them."""
    return forms is NONE or (forms is not None and forms <= {KNOWN})


def limited(forms: frozenset[Form]) -> Forms:
    """The forms, if they are few enough."""
    return forms if len(forms) <= _MANY else None


def union(a: Forms, b: Forms) -> Forms:
    """What is one or the other."""
    return None if a is None or b is None else limited(a | b)


def each(forms: Forms, change: Callable[[Form], Form | None]) -> Forms:
    """The forms, each changed; None if one of them can be anything then."""
    if forms is None:
        return None
    changed = [change(form) for form in forms]
    return None if None in changed else frozenset(form for form in changed if form is not None)


def total(a: Form, b: Form) -> Form:
    """The sum of two values."""
    found = dict(a)
    for unknown, times in b:
        found[unknown] = found.get(unknown, 0) + times
    return frozenset((u, n) for u, n in found.items() if n)


def scaled(form: Form, factor: int | Fraction) -> Form:
    """A multiple of a value."""
    return frozenset((u, n * factor) for u, n in form if factor)


def power_of_two(number: Fraction) -> int | None:
    """Which power of two it is, if it is one."""
    up, down = number.numerator, number.denominator
    if up <= 0 or up & (up - 1) or down & (down - 1):
        return None
    return up.bit_length() - down.bit_length()


def _span(unknown: Unknown, times: Fraction) -> tuple[int, int] | None:
    """The bits that a multiple of a base may set, if it is a power of two times the base."""
    places = power_of_two(times)
    return None if places is None else (unknown.low + places, unknown.high + places)


def lowest(forms: Forms) -> int:
    """Bits of a value that lie below all that a base may set."""
    spans = [_span(unknown, abs(times)) for form in forms or () for unknown, times in form]
    return min((0 if span is None else span[0] for span in spans), default=_POINTER)


def shifted(form: Form, count: int) -> Form | None:
    """What is left of the bases in an address that is shifted to the right."""
    kept = []
    for unknown, times in form:
        span = _span(unknown, times)
        if span is None or span[0] < count < span[1]:
            return None
        if count <= span[0]:
            kept.append((unknown, times / (1 << count)))
    return frozenset(kept)


def masked(form: Form, mask: int) -> Form | None:
    """What is left of the bases in an address of which some bits are taken."""
    kept = []
    for unknown, times in form:
        span = _span(unknown, times)
        if span is None:
            return None
        own = (1 << span[1]) - (1 << span[0])
        if mask & own == own:
            kept.append((unknown, times))
        elif mask & own:
            return None
    return frozenset(kept)


def cut(form: Form, bits: int) -> Form | None:
    """What is left of a value in so many bits: of a pointer its low ones are a base of their own,
    which is no place."""
    kept = []
    for unknown, times in form:
        if abs(times) * (1 << unknown.high) <= 1 << bits:
            kept.append((unknown, times))
        elif times == 1 and unknown.low < bits:
            kept.append((Unknown(f"{bits} bits of {unknown.name}", unknown.low, bits), times))
        elif (abs(times) * (1 << unknown.low)) % (1 << bits):
            return None
    return frozenset(kept)


def within_bits(forms: Forms, bits: int) -> Forms:
    """What is left of a value in a register: a part of an address can be anything."""
    return each(forms, lambda form: form if all(u.high <= bits for u, _ in form) else None)


def misses(form: Form, number: int) -> bool:
    """Whether no bit of ``number`` is one that a base may have set."""
    spans = [_span(unknown, times) for unknown, times in form]
    return all(span is not None and not (number >> span[0]) << span[0] & (1 << span[1]) - 1
               for span in spans)  # fmt: skip


def may_set(expr: Expr, typing: Typing, values: Mapping[str, Expr], deep: int = _DEEP) -> int:
    """The bits that a number without bases may have set; negative: all from some bit up.

    ``values``: by register that one instruction sets, what it is set to.
    """
    inner = values.get(expr.name, expr) if isinstance(expr, Var) else expr
    bounds = typing.interval(inner)
    if bounds is None or bounds[0] < 0:
        return -1
    if bounds[0] == bounds[1]:
        return bounds[0]
    below = (1 << bounds[1].bit_length()) - 1
    if not deep:
        return below
    match inner:
        case Binary("<<", lhs, Const(int(count))) if count >= 0:
            return below & may_set(lhs, typing, values, deep - 1) << count
        case Binary("&" | "|" | "^" | "+" | "-" as op, lhs, rhs):
            one, other = (may_set(part, typing, values, deep - 1) for part in (lhs, rhs))
            either = one | other
            carried = -(either & -either)
            return below & (one & other if op == "&" else either if op in "|^" else carried)
        case _:
            return below
