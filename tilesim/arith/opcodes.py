"""PTX's opcodes that compute registers, with their qualifiers, as operations on bit vectors."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from operator import add as plus
from operator import and_, invert, neg, or_, pos, sub, xor
from typing import Any

import numpy as np

from tilesim.arith import floats, integers
from tilesim.arith.bit_vectors import Operation
from tilesim.arith.integers import COMPARE, UNSIGNED_NAMES, signed
from tilesim.arith.types import WIDTH

_SIGNED = ("s16", "s32", "s64")
_UNSIGNED = ("u16", "u32", "u64")
_INTEGER = frozenset({*_SIGNED, *_UNSIGNED, "b16", "b32", "b64"})
_BOOLEAN: dict[str, Callable[[Any, Any], Any]] = {"and": and_, "or": or_, "xor": xor}


class _Unknown(Exception):
    """The opcode has qualifiers that are not known."""


class _Qualifiers:
    """The qualifiers of an opcode, taken one by one."""

    def __init__(self, qualifiers: tuple[str, ...]) -> None:
        self._left = list(qualifiers)

    def has(self, name: str) -> bool:
        """Takes a qualifier, if it is there."""
        if name not in self._left:
            return False
        self._left.remove(name)
        return True

    def take_one_of(self, names: tuple[str, ...], default: str | None = None) -> str:
        """Takes the one of these qualifiers that is there."""
        for name in names:
            if self.has(name):
                return name
        if default is None:
            raise _Unknown
        return default

    def type(self, allowed: frozenset[str] | tuple[str, ...]) -> str:
        """Takes the last qualifier, which is a type."""
        if not self._left or self._left[-1] not in allowed:
            raise _Unknown
        return self._left.pop()

    def end(self) -> None:
        """Nothing may be left."""
        if self._left:
            raise _Unknown


@cache
def operation(opcode: str) -> Operation | None:
    """The operation of an opcode with its qualifiers; None if it is not computed."""
    base, *qualifiers = opcode.split(".")
    build = _BUILD.get(base)
    if build is None:
        return None
    left = _Qualifiers(tuple(qualifiers))
    try:
        result = build(left, base)
        left.end()
    except _Unknown:
        return None
    return result


# ---------------------------------------------------------------------- builders


def _same(
    name: str, width: int, count: int, function: Callable[..., Any], *detail: str,
    array: Callable[..., Any] | None = None, **options: object,
) -> Operation:  # fmt: skip
    """All operands have one width; ``options`` are given to the function."""
    function = partial(function, **options) if options else function
    return Operation(name, (width,) * count, (width,), function, detail, array)


def _alike(
    name: str, width: int, count: int, function: Callable[..., Any], *detail: str
) -> Operation:
    """The same, with one function for numbers and for arrays."""
    return _same(name, width, count, function, *detail, array=function)


def _saturated(name: str, count: int, function: Callable[..., int]) -> Operation:
    """``.sat`` of 32 bits with a sign."""
    return _same(name, 32, count, lambda *numbers: integers.saturated(function(*numbers)))


def _sum(q: _Qualifiers, base: str) -> Operation:
    kind = q.type(frozenset({*_SIGNED, *_UNSIGNED, *floats.FLOATS}))
    width = WIDTH[kind]
    if kind in floats.FLOATS:
        ftz = kind == "f32" and q.has("ftz")
        q.take_one_of(("rn",), "rn")
        return _same(f"{base}.float", width, 2, floats.arithmetic, op=base, kind=kind, ftz=ftz)
    if kind == "s32" and q.has("sat"):
        sign = 1 if base == "add" else -1
        return _saturated(f"{base}.sat", 2, lambda a, b: signed(a, 32) + sign * signed(b, 32))
    return _alike(base, width, 2, plus if base == "add" else sub)


def _product(q: _Qualifiers, base: str) -> Operation:
    kind = q.type(frozenset({*_SIGNED, *_UNSIGNED, *floats.FLOATS}))
    width, is_signed = WIDTH[kind], kind[0] == "s"
    if kind in floats.FLOATS:
        if base != "mul":
            raise _Unknown
        ftz = kind == "f32" and q.has("ftz")
        q.take_one_of(("rn",), "rn")
        return _same("mul.float", width, 2, floats.arithmetic, op="mul", kind=kind, ftz=ftz)
    part = q.take_one_of(("lo", "hi", "wide"))
    if part == "wide" and width == 64:
        raise _Unknown
    result = 2 * width if part == "wide" else width
    multiply = partial(
        integers.multiply, width=width, is_signed=is_signed, shift=width if part == "hi" else 0
    )
    if kind == "s32" and part == "hi" and base == "mad" and q.has("sat"):
        return _saturated("mad.sat", 3, lambda a, b, c: multiply(a, b) + signed(c, 32))
    detail = (part, "s" if is_signed else "u")
    function = multiply if base == "mul" else partial(integers.multiply_add, multiply=multiply)
    sources = (width, width) if base == "mul" else (width, width, result)
    # a product of two numbers of 64 bits has 128
    array = None if part == "hi" and width > 32 else function
    return Operation(base, sources, (result,), function, detail, array)


def _product_24(q: _Qualifiers, base: str) -> Operation:
    """Of numbers of 24 bits: those of 32 are given, of which the highest 8 are ignored (CUDA's
    ``__mul24``; PTX says no more than that there are 24). The product has 48."""
    is_signed = q.type(("u32", "s32")) == "s32"
    part = q.take_one_of(("lo", "hi"))
    multiply = partial(
        integers.multiply, width=24, is_signed=is_signed, shift=16 if part == "hi" else 0
    )
    if base == "mad24" and is_signed and part == "hi" and q.has("sat"):
        return _saturated("mad24.sat", 3, lambda a, b, c: multiply(a, b) + signed(c, 32))
    function = multiply if base == "mul24" else partial(integers.multiply_add, multiply=multiply)
    return _alike(base, 32, 2 if base == "mul24" else 3, function, part, "s" if is_signed else "u")


def _quotient(q: _Qualifiers, base: str) -> Operation:
    kind = q.type(frozenset({*_SIGNED, *_UNSIGNED, "f32", "f64"}))
    width = WIDTH[kind]
    if kind in floats.FLOATS:
        if base != "div":
            raise _Unknown
        q.take_one_of(("rn",))
        ftz = kind == "f32" and q.has("ftz")
        return _same("div.float", width, 2, floats.arithmetic, op="div", kind=kind, ftz=ftz)
    function = partial(integers.divide, width=width, remainder=base == "rem")
    return _same(base, width, 2, function, kind[0], is_signed=kind[0] == "s")


def _extreme(q: _Qualifiers, base: str) -> Operation:
    relu = q.has("relu")  # nvcc writes it behind the type
    kind = q.type(("s32",) if relu else frozenset({*_SIGNED, *_UNSIGNED, *floats.FLOATS}))
    width, largest = WIDTH[kind], base == "max"
    if kind in floats.FLOATS:
        nan, ftz = q.has("NaN"), kind == "f32" and q.has("ftz")
        return _same(
            f"{base}.float", width, 2, floats.extreme, kind=kind, largest=largest, nan=nan, ftz=ftz
        )
    choose, chosen = (max, np.maximum) if largest else (min, np.minimum)
    if relu:
        return _same(
            f"{base}.relu", 32, 2, lambda a, b: max(0, choose(signed(a, 32), signed(b, 32)))
        )
    if kind[0] == "u":
        return _same(base, width, 2, choose, "u", array=chosen)
    return _same(
        base, width, 2, lambda a, b: choose(signed(a, width), signed(b, width)), "s",
        array=lambda a, b: chosen(signed(a, width), signed(b, width)),
    )  # fmt: skip


def _absolute(q: _Qualifiers, base: str) -> Operation:
    kind = q.type(frozenset({*_SIGNED, *floats.FLOATS}))
    width = WIDTH[kind]
    top = 1 << (width - 1)
    if kind in floats.FLOATS:
        if base == "neg":
            return _same("neg.float", width, 1, lambda a: a ^ top)
        return _same("abs.float", width, 1, lambda a: a & ~top)
    if base == "neg":
        return _alike("neg", width, 1, neg)
    return _alike("abs", width, 1, lambda a: abs(signed(a, width)))


def _logic(q: _Qualifiers, base: str) -> Operation:
    kind = q.type(("b16", "b32", "b64") if base == "cnot" else ("pred", "b16", "b32", "b64"))
    width = WIDTH[kind]
    if base == "not":
        return _alike("not", width, 1, invert)
    if base == "cnot":
        return _alike("cnot", width, 1, lambda a: a == 0)
    return _alike(base, width, 2, _BOOLEAN[base])


def _shift(q: _Qualifiers, base: str) -> Operation:
    kind = q.type(("b16", "b32", "b64") if base == "shl" else _INTEGER)
    width, is_signed = WIDTH[kind], kind[0] == "s"
    function, array = (
        integers.shift_left(width)
        if base == "shl"
        else integers.shift_right(width, is_signed=is_signed)
    )
    detail = ("s" if is_signed else "u",)
    return Operation(base, (width, 32), (width,), function, detail, array)


def _funnel(q: _Qualifiers, base: str) -> Operation:
    q.type(("b32",))
    mode = q.take_one_of(("clamp", "wrap"))
    left = q.take_one_of(("l", "r")) == "l"
    return _same("shf", 32, 3, integers.funnel, left=left, clamp=mode == "clamp")


def _field(q: _Qualifiers, base: str) -> Operation:
    if base == "bfi":
        width = WIDTH[q.type(("b32", "b64"))]
        function = partial(integers.insert, width=width)
        return Operation("bfi", (width, width, 32, 32), (width,), function)
    kind = q.type(("u32", "u64", "s32", "s64"))
    width = WIDTH[kind]
    function = partial(integers.extract, width=width, is_signed=kind[0] == "s")
    return Operation("bfe", (width, 32, 32), (width,), function, (kind[0],))


def _mask(q: _Qualifiers, base: str) -> Operation:
    kind = q.type(("b32",) if base == "bmsk" else ("u32", "s32"))
    clamp = q.take_one_of(("clamp", "wrap")) == "clamp"
    if base == "bmsk":
        return _same("bmsk", 32, 2, integers.bit_mask, clamp=clamp)
    return _same("szext", 32, 2, integers.extend, is_signed=kind == "s32", clamp=clamp)


def _count(q: _Qualifiers, base: str) -> Operation:
    kind = q.type(("u32", "u64", "s32", "s64") if base == "bfind" else ("b32", "b64"))
    width = WIDTH[kind]
    if base == "brev":
        return _same("brev", width, 1, lambda a: int(f"{a:0{width}b}"[::-1], 2))
    if base == "popc":
        return Operation("popc", (width,), (32,), lambda a: a.bit_count(), (), np.bitwise_count)
    if base == "clz":
        return Operation("clz", (width,), (32,), lambda a: width - a.bit_length())
    function = partial(
        integers.find_leading, width=width, is_signed=kind[0] == "s", shift=q.has("shiftamt")
    )
    return Operation("bfind", (width,), (32,), function)


def _permute(q: _Qualifiers, base: str) -> Operation:
    mode = q.take_one_of((*integers.PERMUTED,), "")
    q.type(("b32",))
    return _same("prmt", 32, 3, integers.permute, mode=mode)


def _lop3(q: _Qualifiers, base: str) -> Operation:
    q.type(("b32",))
    combined = q.take_one_of(("and", "or"), "")

    def with_predicate(a: int, b: int, c: int, table: int, other: int) -> tuple[int, int]:
        result = integers.logic(a, b, c, table)
        return result, _BOOLEAN[combined](result != 0, other)

    if combined:
        return Operation("lop3.predicate", (32, 32, 32, 8, 1), (32, 1), with_predicate, (combined,))
    return Operation("lop3", (32, 32, 32, 8), (32,), integers.logic)


def _nth_set(q: _Qualifiers, base: str) -> Operation:
    q.type(("b32",))
    return _same("fns", 32, 3, integers.nth_set)


def _difference(q: _Qualifiers, base: str) -> Operation:
    kind = q.type((*_SIGNED, *_UNSIGNED))
    width, is_signed = WIDTH[kind], kind[0] == "s"

    def evaluate(a: int, b: int, c: int) -> int:
        x, y = (signed(a, width), signed(b, width)) if is_signed else (a, b)
        return c + int(abs(x - y))

    return _same("sad", width, 3, evaluate)


def _dot(q: _Qualifiers, base: str) -> Operation:
    second, high = q.type(("u32", "s32")), False
    first = q.type(("u32", "s32"))
    if base == "dp2a":
        high = q.take_one_of(("lo", "hi")) == "hi"
    return _same(
        base, 32, 3, integers.dot, parts=2 if base == "dp2a" else 4, a_signed=first == "s32",
        b_signed=second == "s32", high=high,
    )  # fmt: skip


# ---------------------------------------------------------------------- predicates


def _comparison(q: _Qualifiers, kind: str) -> tuple[Callable[[Any, Any], Any], str]:
    """The relation of a ``setp`` or ``set``, and its name."""
    if kind in floats.FLOATS:
        name = q.take_one_of(tuple(floats.COMPARISONS))
        ftz = kind == "f32" and q.has("ftz")
        return partial(floats.compare, name=name, kind=kind, ftz=ftz), f"{name}.float"
    names = {"b": ("eq", "ne"), "s": (*COMPARE,), "u": (*COMPARE, *UNSIGNED_NAMES)}
    name = q.take_one_of(names[kind[0]])
    relation = COMPARE[UNSIGNED_NAMES.get(name, name)]
    width = WIDTH[kind]
    plain = UNSIGNED_NAMES.get(name, name)
    if kind[0] != "s" or name in ("eq", "ne"):
        return relation, f"{plain}.u"
    return (lambda a, b: relation(signed(a, width), signed(b, width))), f"{plain}.s"


def _set_predicate(q: _Qualifiers, base: str) -> Operation:
    kind = q.type(frozenset({*_INTEGER, *floats.FLOATS}))
    combine = q.take_one_of(("and", "or", "xor"), "")
    relation, name = _comparison(q, kind)
    sources: tuple[int, ...] = (WIDTH[kind],) * 2
    detail: tuple[str, ...] = (name,)

    def compare(a: Any, b: Any) -> tuple[Any, Any]:
        holds = relation(a, b)
        return holds, holds ^ True

    def both(a: Any, b: Any, c: Any) -> tuple[Any, Any]:
        holds = relation(a, b)
        return _BOOLEAN[combine](holds, c), _BOOLEAN[combine](holds ^ True, c)

    function = both if combine else compare
    if combine:
        sources, detail = (*sources, 1), (name, combine)
    array = None if kind in floats.FLOATS else function
    return Operation("setp", sources, (1, 1), function, detail, array)


def _set(q: _Qualifiers, base: str) -> Operation:
    kind = q.type(frozenset({*_INTEGER, *floats.FLOATS}))
    target = q.type(("u32", "s32", "f32"))
    combine = q.take_one_of(("and", "or", "xor"), "")
    relation, _ = _comparison(q, kind)
    true, width = 0x3F800000 if target == "f32" else 0xFFFFFFFF, WIDTH[kind]
    boolean = _BOOLEAN[combine or "and"]

    def evaluate(a: int, b: int, c: int = 1) -> int:
        return true if boolean(relation(a, b), c) else 0

    return Operation("set", (width, width, *([1] if combine else [])), (32,), evaluate)


def _select(q: _Qualifiers, base: str) -> Operation:
    if base == "slct":
        chooser = q.type(("s32", "f32"))
        width = WIDTH[q.type(frozenset({*_INTEGER, "f32", "f64"}))]
        if chooser == "f32":
            raise _Unknown
        return Operation("slct", (width, width, 32), (width,), lambda a, b, c: b if c >> 31 else a)
    width = WIDTH[q.type(frozenset({*_INTEGER, *floats.FLOATS, "f16x2", "bf16x2"}))]
    return Operation(
        "selp", (width, width, 1), (width,), lambda a, b, c: a if c else b, (),
        lambda a, b, c: np.where(c != 0, a, b),
    )  # fmt: skip


def _move(q: _Qualifiers, base: str) -> Operation:
    kinds = {*_INTEGER, *floats.FLOATS, "pred", "b128", "f16x2", "bf16x2"}
    width = WIDTH[q.type(frozenset(kinds))]
    return _alike("mov", width, 1, pos)


# ---------------------------------------------------------------------- conversions


def _convert(q: _Qualifiers, base: str) -> Operation:
    small = {"u8", "s8"}
    known = frozenset({*_SIGNED, *_UNSIGNED, *floats.FLOATS, *small})
    source, target = q.type(known), q.type(known)
    wide, narrow = WIDTH[source], WIDTH[target]
    saturate, ftz = q.has("sat"), q.has("ftz")
    if source in floats.FLOATS and target in floats.FLOATS:
        if ftz and "f32" not in (source, target):
            raise _Unknown
        if narrow < wide:
            q.take_one_of(("rn",))
        elif source == target:
            q.take_one_of(("rn",), "rn")
        function = partial(floats.between, source=source, target=target, ftz=ftz, saturate=saturate)
    elif source in floats.FLOATS:
        rounding = q.take_one_of(("rzi", "rni", "rmi", "rpi"))
        function = partial(
            floats.to_integer, source=source, width=narrow, is_signed=target[0] == "s",
            rounding=rounding, ftz=ftz and source == "f32",
        )  # fmt: skip
    elif target in floats.FLOATS:
        q.take_one_of(("rn",))
        function = partial(
            floats.from_integer, target=target, width=wide, is_signed=source[0] == "s",
            saturate=saturate,
        )  # fmt: skip
    else:
        return _resize(source, target, saturate)
    return Operation("cvt.float", (wide,), (narrow,), function)


def _resize(source: str, target: str, saturate: bool) -> Operation:
    """``cvt`` between integers: extends as the source's type says, cuts or saturates."""
    wide, narrow = WIDTH[source], WIDTH[target]
    from_signed, to_signed = source[0] == "s", target[0] == "s"
    low, high = (-(1 << narrow - 1), (1 << narrow - 1) - 1) if to_signed else (0, (1 << narrow) - 1)

    def extended(a: Any) -> Any:
        return signed(a, wide) if from_signed else a

    if saturate:
        return Operation(
            "cvt", (wide,), (narrow,), lambda a: min(max(extended(a), low), high),
            ("s" if from_signed else "u", "sat"),
        )  # fmt: skip
    return Operation(
        "cvt", (wide,), (narrow,), extended, ("s" if from_signed else "u", ""), extended
    )


_BUILD: dict[str, Callable[[_Qualifiers, str], Operation]] = {
    "add": _sum, "sub": _sum, "mul": _product, "mad": _product, "mul24": _product_24,
    "mad24": _product_24, "div": _quotient,
    "rem": _quotient, "min": _extreme, "max": _extreme, "abs": _absolute, "neg": _absolute,
    "and": _logic, "or": _logic, "xor": _logic, "not": _logic, "cnot": _logic,
    "shl": _shift, "shr": _shift, "shf": _funnel, "bfe": _field, "bfi": _field,
    "bmsk": _mask, "szext": _mask, "popc": _count, "clz": _count, "brev": _count,
    "bfind": _count, "prmt": _permute, "lop3": _lop3, "fns": _nth_set,
    "sad": _difference, "dp4a": _dot,
    "dp2a": _dot, "setp": _set_predicate, "set": _set, "selp": _select, "slct": _select,
    "mov": _move, "cvt": _convert,
}  # fmt: skip
