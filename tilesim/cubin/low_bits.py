"""Terms of a value of which only the low bits are known: ``x - (x + 3 & ~3)`` depends on two."""

from __future__ import annotations

from collections.abc import Mapping

from tilesim.cubin.arithmetic import Term, constant, number
from tilesim.cubin.operands import WORD

#: ``times * h + number`` where h is not known, but a multiple of a power of 2; in so many low bits
Linear = tuple[int, int, int]


def linear(term: Term, known: Mapping[str, Linear], low: int) -> Linear | None:
    """A term, when h is a multiple of 2^low; None if it has no such form."""
    if term.op == "constant":
        return 0, term.number, 32
    if term.op == "read":
        return known[term.name]
    of: list[Linear] = []
    for part in term.of:
        one = linear(part, known, low)
        if one is None:
            return None
        of.append(one)
    if all(not times and width == 32 for times, _, width in of):
        parts = tuple(constant(value) for _, value, _ in of)
        result = number(Term(term.op, parts, term.number, term.name), {})
        return None if result is None else (0, result, 32)
    width = min(width for _, _, width in of)
    (times, value, _), *rest = of
    if term.op == "add":
        return sum(t for t, _, _ in of) & WORD, sum(v for _, v, _ in of) & WORD, width
    if term.op == "not":
        return -times & WORD, ~value & WORD, width
    if term.op == "shl" and not rest[0][0] and rest[0][2] == 32 and rest[0][1] < 32:
        by = rest[0][1]
        return times << by & WORD, value << by & WORD, min(32, width + by)
    if term.op == "mul":
        factor, other = of if not times and of[0][2] == 32 else of[::-1]
        if factor[0] or factor[2] < 32:
            return None
        return other[0] * factor[1] & WORD, other[1] * factor[1] & WORD, other[2]
    if term.op == "lut" and term.number == 0xC0 and of[2] == (0, 0, 32):  # a and b
        numbers = [one for one in of[:2] if not one[0] and one[2] == 32]
        others = [one for one in of[:2] if one[0] or one[2] < 32]
        if len(numbers) != 1 or len(others) != 1:
            return None
        mask, (times, value, width) = numbers[0][1], others[0]
        # the bits of times * h that are 0 for certain
        zero = ((times & -times) * (1 << low) - 1 if times else WORD) & ((1 << width) - 1)
        if not mask & ~zero:
            return 0, value & mask, 32
        width = min(width, mask.bit_length())
        if not ~mask & (1 << width) - 1 & ~zero:
            return times, value & mask, width
    return None
