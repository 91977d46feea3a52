"""Operations on bit vectors: of one lane, of the 32 lanes of a warp, and of many warps at once.

A value is a number of all lanes, an array of numbers, or None: unknown. Numbers are unsigned and as
wide as their register; in an array they have at most 64 bits. An operation with something unknown
gives something unknown, unless the known part decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.array_operators import ARRAY_BINARY
from tilesim.arith.sums import Sums, combined
from tilesim.records import dataclass

Array: TypeAlias = NDArray[np.uint64]
#: a number of all lanes, one per lane, or None: unknown
Value: TypeAlias = "int | Array | None"

LANES = 32
_SYMBOLS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


@dataclass(frozen=True)
class Operation:
    """What an opcode computes: the widths of its sources and results in bits, and the function.

    ``function`` takes one unsigned number per source and gives one, or as many as there are
    results; ``array`` is the same of arrays of ``uint64``, if there is such a form. Of what both
    give, an operation takes the low bits. ``name`` and ``detail`` say which one it is.
    """

    name: str
    sources: tuple[int, ...]
    results: tuple[int, ...]
    function: Callable[..., Any]
    detail: tuple[str, ...] = ()
    array: Callable[..., Any] | None = None

    def __call__(self, *numbers: int) -> tuple[int, ...]:
        """The results for one number per source, of which it reads the low bits."""
        pairs = zip(numbers, self.sources, strict=True)
        found = self.function(*[number & (1 << width) - 1 for number, width in pairs])
        if type(found) is not tuple:
            return (int(found) & (1 << self.results[0]) - 1,)
        return tuple(
            int(result) & (1 << width) - 1
            for result, width in zip(found, self.results, strict=True)
        )

    def of_arrays(self, values: tuple[int | Array, ...]) -> tuple[Array, ...] | None:
        """The results for numbers and arrays that broadcast; None if there is no such form."""
        if self.array is None:
            return None
        pairs = zip(values, self.sources, strict=True)
        with np.errstate(all="ignore"):
            found = self.array(*[_low_bits(np.asarray(unsigned(v)), w) for v, w in pairs])
        results = found if type(found) is tuple else (found,)
        return tuple(
            _low_bits(unsigned(np.asarray(result)), width)
            for result, width in zip(results, self.results, strict=True)
        )


def unsigned(value: Any) -> Any:
    """A number, or an array of numbers, as 64 bits without a sign."""
    if isinstance(value, int):
        return np.uint64(value & (1 << 64) - 1)
    return value.view(np.uint64) if value.dtype == np.int64 else value.astype(np.uint64, copy=False)


def _low_bits(value: Array, width: int) -> Array:
    return value if width >= 64 else value & np.uint64((1 << width) - 1)


def apply(operation: Operation, values: tuple[Value, ...]) -> tuple[Value, ...]:
    """The results of an operation for operands of any width, of which it reads the low bits."""
    if any(value is None for value in values):
        return _partly_known(operation, values)
    if all(type(value) is int for value in values):
        return operation(*[value for value in values if type(value) is int])
    known = tuple(value for value in values if value is not None)
    found = operation.of_arrays(known)
    if found is not None:
        return found
    columns = [[v] * LANES if isinstance(v, int) else v.tolist() for v in known]
    rows = [operation(*row) for row in zip(*columns, strict=True)]
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
            chosen, width = a if c & 1 else b, operation.sources[0]
            if isinstance(chosen, int):
                return (chosen & (1 << width) - 1,)
            return (None if chosen is None else _low_bits(chosen, width),)
        case "setp", (_, _, int() as c) if operation.detail[1] == "and" and not c & 1:
            return (0, 0)
        case "setp", (_, _, int() as c) if operation.detail[1] == "or" and c & 1:
            return (1, 1)
        case _:
            return unknown


# ---------------------------------------------------------------------- many warps


def apply_many(operation: Operation, values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The results, numbers if all operands are, else arrays of the shape to which operands
    broadcast; None if they have to be computed one by one. For operands see
    `tilesim.ir.op.Computation.compute_many`."""
    if all(type(value) is int for value in values):
        return operation(*values)
    if operation.name == "setp" and len(values) == 2:
        decided = _compared(operation, values[0], values[1])
        if decided is not None:
            return decided
    operands = [_of_many(value) for value in values]
    if any(operand is None for operand in operands):
        return None
    return operation.of_arrays(tuple(operands))


def _of_many(value: Any) -> Any:
    """An operand as unsigned numbers; None if it is none of 64 bits."""
    if type(value) is Sums:
        value = value.dense
    if type(value) is int:
        return value & (1 << 64) - 1
    if isinstance(value, np.ndarray) and value.dtype == np.int64:
        return np.ascontiguousarray(value).view(np.uint64)
    return None


def _compared(operation: Operation, a: Any, b: Any) -> tuple[Any, ...] | None:
    """A comparison of numbers that are not negative, without a number for each lane."""
    name, _, kind = operation.detail[0].partition(".")
    width = operation.sources[0]
    most = 1 << (width - 1 if kind == "s" else width)
    if kind == "float" or not all(_within(v, most) for v in (a, b)):
        return None
    symbol = _SYMBOLS[name]
    found = combined(symbol, ARRAY_BINARY[symbol], a, b) if Sums in (type(a), type(b)) else None
    if found is None:
        return None
    if type(found) is int:
        return found, 1 - found
    true = found.dense.view(np.uint64)
    return true, true ^ np.uint64(1)


def _within(value: Any, most: int) -> bool:
    if type(value) is Sums:
        low, high = value.limits
        return low >= 0 and high < most
    return type(value) is int and 0 <= value < most
