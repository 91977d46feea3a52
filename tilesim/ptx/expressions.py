"""Arithmetic that MIR has expressions for: analyses see through them, and they are fast.

Registers hold unsigned numbers; a register's type wraps what an expression gives. `expression` is
None where MIR's operators are not exactly PTX's: those instructions are `tilesim.ir.ops.compute`'s.
"""

from __future__ import annotations

from collections.abc import Callable

from tilesim.arith.bit_vectors import Operation
from tilesim.ir.expr import BinaryOp, Const, Expr, binary, constant, select, unary

_PLAIN: dict[str, BinaryOp] = {
    "add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
_RELATIONS: dict[str, BinaryOp] = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
_BOOLEAN: dict[str, Callable[[Expr, Expr], Expr]] = {
    "and": lambda a, b: binary("and", a, b), "or": lambda a, b: binary("or", a, b),
}  # fmt: skip


def signed(value: Expr, width: int) -> Expr:
    """The number in two's complement that a register of ``width`` bits stands for."""
    known = constant(value)
    top = 1 << (width - 1)
    if known is not None:
        bits = known & (1 << width) - 1
        return Const(bits - 2 * top if bits >= top else bits)
    return (value ^ top) - top


def expressions(operation: Operation, values: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """The results of an operation for operands that fit their widths; None: there are none."""
    width = operation.sources[0]
    for value in values:
        if isinstance(value, Const) and (constant(value) or 0) >> 63:
            return _with_all_bits(operation, values)
    match operation.name, values:
        case ("mov", (a,)):
            return (a,)
        case ("add" | "sub" | "and" | "or" | "xor" as name, (a, b)):
            return (binary(_PLAIN[name], a, b),)
        case ("not", (a,)):
            return (unary("not", a) if width == 1 else unary("~", a),)
        case ("selp", (a, b, c)):
            return (select(c, a, b),)
        case ("setp", _):
            return _comparison(operation, values)
        case ("shl", (a, n)) if width < 64 or constant(n) is not None:
            return (a << n,)
        case ("shr", (a, n)) if width < 64:
            return (signed(a, width) >> n if operation.detail == ("s",) else a >> n,)
        case ("shr", (a, n)) if operation.detail != ("s",) and 0 < (constant(n) or 0) < 64:
            return (a >> n & (1 << 64 - (constant(n) or 0)) - 1,)
        case ("cvt", (a,)) if operation.detail[1] == "":
            return (_converted(operation, a),)
        case ("min" | "max" as name, (a, b)) if width < 64:
            if operation.detail == ("s",):
                a, b = signed(a, width), signed(b, width)
            return (binary("min" if name == "min" else "max", a, b),)
        case ("bfe", (a, b, c)) if operation.detail == ("u",) and width < 64:
            start, length = constant(b), constant(c)
            if start is None or length is None or start >= width or length >= width:
                return None
            return (a >> start & (1 << length) - 1,)
        case ("mul" | "mad", _):
            return _product(operation, values)
        case ("mul24" | "mad24", (a, b, *more)) if operation.detail[0] == "lo":
            product = _low(a, operation.detail[1]) * _low(b, operation.detail[1])
            return (product + more[0] if more else product,)
        case ("div" | "rem" as name, (a, b)) if constant(b) and operation.detail == ("u",):
            return (binary("//" if name == "div" else "%", a, b),)
        case _:
            return None


def _with_all_bits(operation: Operation, values: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    """The same with a constant of 64 bits whose highest one is set: a negative number, a mask."""
    match operation.name, values:
        case ("mov", (a,)):
            return (a,)
        case ("add", (a, b)) if constant(a) is None:
            return (a - ((1 << 64) - (constant(b) or 0)),)
        case ("and", (a, b)) if constant(a) is None:
            cleared = ((1 << 64) - 1) ^ (constant(b) or 0)
            return (a - (a & cleared),)
        case ("or", (a, b)) if constant(a) is None:
            kept = ((1 << 64) - 1) ^ (constant(b) or 0)
            return ((a & kept) - ((1 << 64) - (constant(b) or 0)),)
        case _:
            return None


def _converted(operation: Operation, value: Expr) -> Expr:
    wide, narrow = operation.sources[0], operation.results[0]
    if operation.detail[0] == "s":
        return signed(value, wide)
    return value if narrow >= wide else value & (1 << narrow) - 1


def _comparison(operation: Operation, values: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    name, _, kind = operation.detail[0].partition(".")
    width = operation.sources[0]
    if kind == "float" or (width == 64 and name not in ("eq", "ne")):
        return None
    a, b = values[:2]
    if kind == "s":
        a, b = signed(a, width), signed(b, width)
    holds = binary(_RELATIONS[name], a, b)
    results = (holds, unary("not", holds))
    if len(operation.detail) == 1:
        return results
    combine = _BOOLEAN.get(operation.detail[1])
    if combine is None:
        return None
    return tuple(combine(r, values[2]) for r in results)


def _product(operation: Operation, values: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
    part, sign = operation.detail
    width = operation.sources[0]
    a, b = values[:2]
    if part == "hi":
        return _upper(operation, a, b)
    if part == "wide" and width > 32:
        return None
    if part == "wide" and sign == "s":
        a, b = signed(a, width), signed(b, width)
    elif part == "wide" and width == 32:
        a, b = _wide(a), _wide(b)
    product = a * b
    return (product + values[2] if operation.name == "mad" else product,)


def _low(value: Expr, sign: str) -> Expr:
    """The lowest 24 bits, as a number with a sign or without."""
    low = value & (1 << 24) - 1
    return signed(low, 24) if sign == "s" else low


def _upper(operation: Operation, a: Expr, b: Expr) -> tuple[Expr, ...] | None:
    """The upper half of a product with a constant, which a compiler divides by."""
    if operation.name != "mul" or operation.detail != ("hi", "u") or operation.sources[0] != 32:
        return None
    return None if constant(b) is None else (binary("&", _wide(a) * b, (1 << 64) - 1) >> 32,)


def _wide(value: Expr) -> Expr:
    """A 32-bit number in 64 bits, so that a product does not wrap."""
    return value if constant(value) is not None else binary("-", value, 0)
