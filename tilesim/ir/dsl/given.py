"""What users give to declarations, as the program has it: types of elements, shapes, counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Protocol, SupportsIndex

from tilesim.arith.operators import integer
from tilesim.arith.types import DTYPES, DType
from tilesim.errors import InvalidProgram, reject
from tilesim.ir.expr import Expr, Operand, as_expr, named
from tilesim.ir.large import too_large
from tilesim.ir.loc import Loc
from tilesim.ir.program import Dim3
from tilesim.ir.target import TARGETS, Target
from tilesim.words import did_you_mean


class _Named(Protocol):
    """A type of elements of another library, such as `numpy.dtype`."""

    @property
    def name(self) -> str: ...


class _Sized(Protocol):
    """One that has only a size besides what it prints as, such as `torch.dtype`."""

    @property
    def itemsize(self) -> int: ...


#: a type of elements, by name or as another library has it
DTypeLike = DType | str | type[Any] | _Named | _Sized
#: extents; one of a single dimension may stand alone
Shape = int | Sequence[int]

#: what others call the types; ``float`` and ``int`` have no size that all agree on
_ALIASES = {
    "float16": "f16", "half": "f16", "fp16": "f16",
    "bfloat16": "bf16",
    "float32": "f32", "fp32": "f32", "single": "f32",
    "float64": "f64", "fp64": "f64", "double": "f64",
    "tfloat32": "tf32",
    "float8_e4m3fn": "e4m3", "fp8e4nv": "e4m3", "float8e4nv": "e4m3", "float8_e4m3": "e4m3",
    "float8_e5m2": "e5m2", "fp8e5": "e5m2", "float8e5": "e5m2",
    "int8": "s8", "int16": "s16", "int32": "s32", "int64": "s64", "i8": "s8", "i16": "s16",
    "i32": "s32", "i64": "s64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
    "bool": "pred", "bool_": "pred",
}  # fmt: skip
_UNSIZED = {"float": "f32 or f64", "int": "s32 or s64"}


def as_dtype(given: object, what: str, loc: Loc) -> DType:
    """``given`` as a type of elements: one of tilesim's, the name of one (also as NumPy, PyTorch
    and Triton call it), or a type of those libraries.

    Raises:
        InvalidProgram: it is none; ``what`` and ``loc`` are what has it, and the user's line.
    """
    if isinstance(given, DType):
        return given
    of_ours = type(given).__module__.startswith("tilesim")
    name = "" if of_ours or isinstance(given, bool | int | float | None) else _name(given)
    found = DTYPES.get(_ALIASES.get(name, name))
    if found is not None:
        return found
    close = did_you_mean(name, [*DTYPES, *_ALIASES]) if isinstance(given, str) else ""
    fix = f"use one of {', '.join(DTYPES)}"
    if name in _UNSIZED:
        fix = f"say the size: {_UNSIZED[name]}"
    raise reject(f"dtype of {what} is {named(given)}, not a type of elements{close}", loc, fix=fix)


def _name(given: Any) -> str:
    """``float16`` for "float16", "torch.float16", numpy.float16, numpy.dtype and torch.float16."""
    if isinstance(given, type):
        return given.__name__
    if not isinstance(given, str):
        given = getattr(given, "name", None) or str(given)
    return str(given).rpartition(".")[2].lower()


def as_count(given: object, what: str, loc: Loc) -> int:
    """``given`` as an integer that is known when the kernel is built; True and False are none.

    Raises:
        InvalidProgram: it is none.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        return integer(given)
    if isinstance(given, SupportsIndex) and not isinstance(given, bool | Expr):
        return int(given.__index__())
    known = "is known only when the kernel runs, it is" if isinstance(given, Expr) else "is"
    raise reject(f"{what} {known} {named(given)}, not an integer", loc)


def as_counts(given: object, what: str, loc: Loc) -> tuple[int, ...]:
    """``given`` as integers, in order; a single one may stand alone. Raises like `as_count`."""
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Expr | Mapping | Set):
        return tuple(as_count(item, f"a number in {what}", loc) for item in given)
    return (as_count(given, what, loc),)


def as_shape(given: object, what: str, loc: Loc) -> tuple[int, ...]:
    """As `as_counts`; of one dimension or more."""
    if not (shape := as_counts(given, what, loc)):
        raise reject(f"{what} is {named(given)}, without a dimension", loc,
                     fix="one element has the shape (1,)")  # fmt: skip
    return shape


def optional_count(given: object, what: str, loc: Loc) -> int | None:
    """As `as_count`; None stays."""
    return None if given is None else as_count(given, what, loc)


def as_target(name: object, loc: Loc) -> Target:
    """The target of this name."""
    if not isinstance(name, str) or name not in TARGETS:
        close = did_you_mean(name, TARGETS) if isinstance(name, str) else ""
        raise reject(f"there is no target {named(name)}{close}", loc, rule="target",
                     fix=f"use one of {', '.join(TARGETS)}")  # fmt: skip
    return TARGETS[name]


def as_dim3(value: int | Sequence[int], loc: Loc) -> Dim3:
    """A number of CTAs, in up to three dimensions."""
    try:
        dims = as_counts(value, "", loc)
    except InvalidProgram:
        dims = ()
    if not 1 <= len(dims) <= 3 or any(d < 1 for d in dims):
        raise reject(f"{named(value)} is not one to three positive integers", loc, rule="launch")
    x, y, z = (*dims, 1, 1)[:3]
    return (x, y, z)


def as_condition(cond: object, loc: Loc) -> Expr:
    """What a branch or a loop asks."""
    if not isinstance(cond, Expr):
        raise reject(
            f"the condition is the Python value {cond!r}, no expression",
            loc,
            fix="compare with x.eq(y) or x < y, combine with all_of/any_of",
        )
    check_size(cond, "the condition", loc)
    return cond


def as_bound(bound: Operand, loc: Loc) -> Expr:
    """Where a loop begins or ends, or its step."""
    expr = as_expr(bound)
    check_size(expr, "a bound of the loop", loc)
    return expr


def check_size(expr: Expr, what: str, loc: Loc) -> None:
    """Refuses an expression that nobody could go through.

    Raises:
        InvalidProgram: it is ``what``, at ``loc``.
    """
    if much := too_large(expr):
        raise reject(f"{what} is an expression with {much}", loc,
                     fix="keep a part of it in a register: x = k.var(\"x\", ...)")  # fmt: skip
