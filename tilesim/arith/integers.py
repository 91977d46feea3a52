"""What PTX's arithmetic on integers and bits computes of unsigned numbers.

`Operation` takes the low bits of results. What is of arrays as well computes each of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilesim.arith.bit_vectors import unsigned

Scalar = Callable[..., int]
#: of numbers, and of arrays of uint64
Function = Callable[..., Any]

#: comparisons by name; those of unsigned numbers have names of their own
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def signed(value: Any, width: int) -> Any:
    """The number in two's complement that ``width`` bits stand for; of arrays as well."""
    if isinstance(value, int):
        return value - (1 << width) if value >> (width - 1) & 1 else value
    if width == 64:
        return value.view(np.int64)
    top = 1 << (width - 1)
    return (value ^ np.uint64(top)).view(np.int64) - top


def saturated(value: int) -> int:
    """A number as the nearest one of 32 bits with a sign, in two's complement."""
    return min(max(value, -(1 << 31)), (1 << 31) - 1) & 0xFFFFFFFF


def multiply(a: Any, b: Any, *, width: int, is_signed: bool, shift: int) -> Any:
    """``mul``, ``mul24``: from bit ``shift`` on, a product of the low ``width`` bits of each; of
    arrays as well, if it has at most 64 bits."""
    if width == 24:
        a, b = a & 0xFFFFFF, b & 0xFFFFFF
    if is_signed:
        a, b = signed(a, width), signed(b, width)
    return a * b >> shift


def multiply_add(a: Any, b: Any, c: Any, *, multiply: Function) -> Any:
    """``mad``, ``mad24``: a product, and c; of arrays as well."""
    product = multiply(a, b)
    return product + c if isinstance(product, int) else unsigned(product) + c


def divide(a: int, b: int, *, width: int, is_signed: bool, remainder: bool) -> int:
    """``div`` and ``rem``: rounding towards zero; by zero both are what the machine code of
    ``ptxas`` gives, all bits: PTX does not say it."""
    if b == 0:
        return -1
    x, y = (signed(a, width), signed(b, width)) if is_signed else (a, b)
    quotient = abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)
    return int(x - quotient * y if remainder else quotient)


def shift_right(width: int, *, is_signed: bool) -> tuple[Scalar, Function]:
    """``shr`` of numbers, and of arrays: counts beyond the width shift everything out (or leave the
    sign)."""

    def evaluate(a: int, n: int) -> int:
        return int((signed(a, width) if is_signed else a) >> min(n, width))

    def array(a: Any, n: Any) -> Any:
        most = np.minimum(n, np.uint64(63))
        if is_signed:
            return signed(a, width) >> most.astype(np.int64)
        return np.where(n >= width, np.uint64(0), a >> most)

    return evaluate, array


def shift_left(width: int) -> tuple[Scalar, Function]:
    """``shl`` of numbers, and of arrays: counts beyond the width shift everything out."""

    def array(a: Any, n: Any) -> Any:
        return np.where(n >= width, np.uint64(0), a << np.minimum(n, np.uint64(63)))

    return lambda a, n: a << n if n < width else 0, array


def funnel(a: int, b: int, c: int, *, left: bool, clamp: bool) -> int:
    """``shf``: 32 of the 64 bits ``b:a``, shifted by c, which is clamped to 32 or wraps."""
    n = min(c, 32) if clamp else c & 31
    both = b << 32 | a
    return (both << n >> 32 if left else both >> n) & 0xFFFFFFFF


def extract(a: int, b: int, c: int, *, width: int, is_signed: bool) -> int:
    """``bfe``: a field of ``c`` bits from bit ``b`` on; above it, the sign or zeros."""
    position, length = b & 0xFF, c & 0xFF
    if length == 0:
        return 0
    field = a >> position & (1 << length) - 1
    if is_signed and a >> min(position + length - 1, width - 1) & 1:
        field |= -1 << max(0, min(length, width - position))
    return field & (1 << width) - 1


def insert(a: int, b: int, c: int, d: int, *, width: int) -> int:
    """``bfi``: ``b`` with ``d`` bits of ``a`` at bit ``c``."""
    position, length = c & 0xFF, d & 0xFF
    field = ((1 << length) - 1) << position & (1 << width) - 1
    return b & ~field | a << position & field


def bit_mask(a: int, b: int, *, clamp: bool) -> int:
    """``bmsk``: ``b`` ones from bit ``a`` on."""
    first, count = (min(a, 32), min(b, 32)) if clamp else (a & 31, b & 31)
    return ((1 << count) - 1) << first & 0xFFFFFFFF


def extend(a: int, b: int, *, is_signed: bool, clamp: bool) -> int:
    """``szext``: ``b`` low bits of ``a``, with their sign or zeros above."""
    n = min(b, 32) if clamp else b & 31
    field = a & (1 << n) - 1
    if is_signed and n and field >> (n - 1):
        field |= -1 << n
    return field & 0xFFFFFFFF


def nth_set(mask: int, base: int, offset: int) -> int:
    """``fns``: the place of the set bit that is so many from ``base`` on: 1 is the first one
    upwards, -1 downwards, 0 that at ``base`` itself. All bits where there is none."""
    count, places = signed(offset, 32), range(0)
    if 0 <= base < 32:
        places = range(base, 32) if count > 0 else range(base, -1 if count else base - 1, -1)
    found = [place for place in places if mask >> place & 1]
    number = max(abs(count), 1) - 1
    return found[number] if number < len(found) else 0xFFFFFFFF


#: by mode of ``prmt``, the bytes that the lowest two bits of ``c`` choose
PERMUTED: dict[str, Callable[[int], tuple[int, ...]]] = {
    "f4e": lambda n: (n, n + 1, n + 2, n + 3),
    "b4e": lambda n: (n, n + 7 & 7, n + 6 & 7, n + 5 & 7),
    "rc8": lambda n: (n, n, n, n),
    "ecl": lambda n: tuple(max(i, n) for i in range(4)),
    "ecr": lambda n: tuple(min(i, n) for i in range(4)),
    "rc16": lambda n: (2 * (n & 1), 2 * (n & 1) + 1) * 2,
}


def permute(a: int, b: int, c: int, *, mode: str) -> int:
    """``prmt``: bytes of ``b:a`` chosen by nibbles of ``c``, or by a mode."""
    both, result = b << 32 | a, 0
    chosen = PERMUTED[mode](c & 3) if mode else tuple(c >> 4 * i & 15 for i in range(4))
    for i, n in enumerate(chosen):
        byte = both >> 8 * (n & 7) & 0xFF
        if n & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * i
    return result


def logic(a: int, b: int, c: int, table: int) -> int:
    """``lop3``: bit i of the table is the result for the bits (a, b, c) of i."""
    result = 0
    for i in range(8):
        if table >> i & 1:
            result |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return result & 0xFFFFFFFF


def find_leading(a: int, *, width: int, is_signed: bool, shift: bool) -> int:
    """``bfind``: the highest bit that is not the sign, or how far to shift it to the top."""
    value = a ^ (1 << width) - 1 if is_signed and a >> (width - 1) else a
    if not value:
        return 0xFFFFFFFF
    bit = value.bit_length() - 1
    return width - 1 - bit if shift else bit


def dot(
    a: int, b: int, c: int, *, parts: int, a_signed: bool, b_signed: bool, high: bool = False
) -> int:
    """``dp4a`` (4 bytes times 4 bytes) and ``dp2a`` (2 words times 2 bytes), added to ``c``."""
    width, total = 32 // parts, c
    for i in range(parts):
        x = a >> width * i & (1 << width) - 1
        y = b >> 8 * (i + (2 if high else 0)) & 0xFF
        total += (signed(x, width) if a_signed else x) * (signed(y, 8) if b_signed else y)
    return total & 0xFFFFFFFF
