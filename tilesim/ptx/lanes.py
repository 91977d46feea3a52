"""Values of a warp: one number for all lanes, an array of 32, or unknown; operations on them.

Numbers are unsigned, as wide as their register (at most 64 bits in an array). An operation with
something unknown gives something unknown, unless the known part decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.ptx.arithmetic import Operation

Array: TypeAlias = NDArray[np.uint64]
#: a number of all lanes, one per lane, or None: unknown
Value: TypeAlias = "int | Array | None"

LANES = 32
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


def apply(operation: Operation, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """The results of an operation for operands of any width, of which it reads the low bits."""
    if any(value is None for value in values):
        return _partly_known(operation, values)
    if all(type(value) is int for value in values):
        pairs = zip(values, operation.sources, strict=True)
        return _tuple(operation.function(*(v & (1 << w) - 1 for v, w in pairs if type(v) is int)))
    arrays = tuple(
        cut(v, w) for v, w in zip(values, operation.sources, strict=True) if v is not None
    )
    fast = FAST.get(operation.name)
    if fast is not None:
        with np.errstate(all="ignore"):
            found = fast(operation, *arrays)
        if found is not None:
            return found if isinstance(found, tuple) else (found,)
    return _lane_by_lane(operation, arrays)


def _tuple(result: int | tuple[int, ...]) -> tuple[int, ...]:
    return result if isinstance(result, tuple) else (result,)


def cut(value: int | Array, width: int) -> int | Array:
    """The low ``width`` bits."""
    if isinstance(value, int):
        return value & (1 << width) - 1
    return value if width >= 64 else value & np.uint64((1 << width) - 1)


def spread(value: int | Array) -> Array:
    """One number per lane."""
    return np.full(LANES, value, dtype=np.uint64) if isinstance(value, int) else value


def gathered(value: int | Array) -> int | Array:
    """One number if all lanes have the same."""
    if isinstance(value, int):
        return value
    first = value[0]
    return int(first) if bool((value == first).all()) else value


def _lane_by_lane(operation: Operation, values: tuple[int | Array, ...]) -> tuple[Array, ...]:
    columns = [[v] * LANES if isinstance(v, int) else v.tolist() for v in values]
    rows = [_tuple(operation.function(*row)) for row in zip(*columns, strict=True)]
    return tuple(np.array(column, dtype=np.uint64) for column in zip(*rows, strict=True))


def _partly_known(operation: Operation, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """What is certain although operands are unknown: products with 0, conjunctions with 0, and
    choices by a known predicate."""
    unknown: tuple[Value, ...] = (None,) * len(operation.results)
    match operation.name, values:
        case "and" | "mul" | "mul24", (0, _) | (_, 0):
            return (0,)
        case "or", (int() as a, None) | (None, int() as a) if a == (1 << operation.sources[0]) - 1:
            return (a,)
        case "selp", (a, b, int() as c):
            chosen = a if c & 1 else b
            return (None if chosen is None else cut(chosen, operation.sources[0]),)
        case "setp", (_, _, int() as c) if operation.detail[1] == "and" and not c & 1:
            return (0, 0)
        case "setp", (_, _, int() as c) if operation.detail[1] == "or" and c & 1:
            return (1, 1)
        case _:
            return unknown


# ---------------------------------------------------------------------- all lanes at once


def _signed(value: Any, width: int) -> NDArray[np.int64]:
    array = np.asarray(value, dtype=np.uint64)
    if width == 64:
        return array.view(np.int64)
    top = np.uint64(1 << (width - 1))
    return (array ^ top).view(np.int64) - np.int64(1 << (width - 1))


def _bits(value: NDArray[Any], width: int) -> Array:
    array = value.view(np.uint64) if value.dtype == np.int64 else value.astype(np.uint64)
    return array if width >= 64 else array & np.uint64((1 << width) - 1)


def _word(value: int | Array) -> Any:
    return np.uint64(value) if isinstance(value, int) else value


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[..., Array]:
    def evaluate(operation: Operation, a: int | Array, b: int | Array) -> Array:
        return _bits(function(_word(a), _word(b)), operation.results[0])

    return evaluate


def _product(operation: Operation, a: int | Array, b: int | Array) -> Array | None:
    part, sign = operation.detail
    width, result = operation.sources[0], operation.results[0]
    if part == "hi":
        if width > 32:
            return None
        x, y = (_signed(a, width), _signed(b, width)) if sign == "s" else (_word(a), _word(b))
        product = x * y
        return _bits(product >> product.dtype.type(width), result)
    if part == "wide" and sign == "s":
        return _bits(_signed(a, width) * _signed(b, width), result)
    return _bits(_word(a) * _word(b), result)


def _multiply_add(
    operation: Operation, a: int | Array, b: int | Array, c: int | Array
) -> Array | None:
    product = _product(operation, a, b)
    return None if product is None else _bits(product + _word(c), operation.results[0])


def _product_24(operation: Operation, a: int | Array, b: int | Array) -> Array:
    part, sign = operation.detail
    x, y = cut(a, 24), cut(b, 24)
    product = _signed(x, 24) * _signed(y, 24) if sign == "s" else np.asarray(_word(x) * _word(y))
    return _bits(product >> product.dtype.type(16 if part == "hi" else 0), 32)


def _multiply_add_24(operation: Operation, a: int | Array, b: int | Array, c: int | Array) -> Array:
    return _bits(_product_24(operation, a, b) + _word(c), 32)


def _shift_left(operation: Operation, a: int | Array, n: int | Array) -> Array:
    width = operation.results[0]
    count = np.asarray(_word(n))
    moved = _word(a) << np.minimum(count, np.uint64(63))
    return _bits(np.where(count >= np.uint64(width), _ZERO, moved), width)


def _shift_right(operation: Operation, a: int | Array, n: int | Array) -> Array:
    width = operation.results[0]
    count = np.asarray(_word(n))
    if operation.detail == ("s",):
        most = np.minimum(count, np.uint64(63)).astype(np.int64)
        return _bits(np.asarray(_signed(a, width) >> most), width)
    moved = _word(a) >> np.minimum(count, np.uint64(63))
    return _bits(np.where(count >= np.uint64(width), _ZERO, moved), width)


_RELATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip
_BOOLEANS: dict[str, Callable[[Any, Any], Any]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _compare(operation: Operation, *values: int | Array) -> tuple[Array, ...] | None:
    name, _, kind = operation.detail[0].partition(".")
    if kind == "float":
        return None
    a, b = values[:2]
    if kind == "s":
        width = operation.sources[0]
        holds = _RELATIONS[name](_signed(a, width), _signed(b, width))
    else:
        holds = _RELATIONS[name](_word(a), _word(b))
    true = holds.astype(np.uint64)
    results = (true, true ^ _ONE)
    if len(values) == 2:
        return results
    combine = _BOOLEANS[operation.detail[1]]
    return tuple(combine(r, _word(values[2])) for r in results)


def _choose(operation: Operation, a: int | Array, b: int | Array, c: int | Array) -> Array:
    return np.asarray(np.where(np.asarray(_word(c)) != 0, _word(a), _word(b)), dtype=np.uint64)


def _extreme(operation: Operation, a: int | Array, b: int | Array) -> Array:
    function = np.minimum if operation.name == "min" else np.maximum
    width = operation.results[0]
    if operation.detail == ("s",):
        return _bits(function(_signed(a, width), _signed(b, width)), width)
    return _bits(function(_word(a), _word(b)), width)


def _convert(operation: Operation, a: int | Array) -> Array | None:
    sign, saturate = operation.detail
    if saturate:
        return None
    value = _signed(a, operation.sources[0]) if sign == "s" else np.asarray(_word(a))
    return _bits(value, operation.results[0])


#: by the name of an operation: it on arrays, and numbers that hold for all; None: not this one
FAST: dict[str, Callable[..., Array | tuple[Array, ...] | None]] = {
    "add": _arithmetic(lambda a, b: a + b), "sub": _arithmetic(lambda a, b: a - b),
    "and": _arithmetic(np.bitwise_and), "or": _arithmetic(np.bitwise_or),
    "xor": _arithmetic(np.bitwise_xor), "mul": _product, "mad": _multiply_add,
    "mul24": _product_24, "mad24": _multiply_add_24,
    "shl": _shift_left, "shr": _shift_right, "setp": _compare, "selp": _choose,
    "min": _extreme, "max": _extreme, "cvt": _convert,
    "mov": lambda operation, a: a, "not": lambda operation, a: _bits(~a, operation.results[0]),
}  # fmt: skip
