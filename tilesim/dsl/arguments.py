"""Arguments of declarations and instructions: which kinds they take, and what users give.

What users give to declarations is checked and returned as the program has it: types of elements,
shapes, counts. Which kinds of operands a declaration or an instruction takes follows from the types
of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    SupportsIndex,
    Union,
    get_args,
    get_origin,
)

from tilesim.analysis.uses_defs import expressions_in
from tilesim.arith.operators import integer
from tilesim.arith.types import DTYPES, DType
from tilesim.errors import InvalidProgram, reject
from tilesim.ir.declarations import Fragment, GlobalTensor, Mbar, TensorMap, View
from tilesim.ir.expr import (
    Const,
    Expr,
    Operand,
    ScalarParam,
    Var,
    as_expr,
    constant,
    fraction,
    named,
)
from tilesim.ir.large import too_large
from tilesim.ir.loc import Loc
from tilesim.ir.op import ANNOTATIONS, Op
from tilesim.ir.program import Dim3
from tilesim.ir.target import TARGETS, Target
from tilesim.ir.tensor_memory import TmemView
from tilesim.records import hints, replace
from tilesim.wording import did_you_mean


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
    known = "is known only when the kernel runs: it is" if isinstance(given, Expr) else "is"
    raise reject(f"{what} {known} {named(given)}, not an integer", loc)


def as_counts(given: object, what: str, loc: Loc) -> tuple[int, ...]:
    """``given`` as integers, in order; a single one may stand alone. Raises like `as_count`."""
    if isinstance(given, Iterable) and not isinstance(given, str | bytes | Expr | Mapping | Set):
        return tuple(as_count(item, f"a number in {what}", loc) for item in given)
    return (as_count(given, what, loc),)


def as_shape(given: object, what: str, loc: Loc) -> tuple[int, ...]:
    """As `as_counts`; of one dimension or more."""
    if not (shape := as_counts(given, what, loc)):
        raise reject(f"{what} is {named(given)}, which has no dimension", loc,
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
            f"the condition is the Python value {cond!r}, not an expression",
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
    """Refuses an expression that is too large to go through.

    Raises:
        InvalidProgram: it is ``what``, at ``loc``.
    """
    if much := too_large(expr):
        raise reject(f"{what} is an expression with {much}", loc,
                     fix="keep a part of it in a register: x = k.var(\"x\", ...)")  # fmt: skip


# ------------------------------------------------------------------ kinds of operands


#: what a field of this type takes, and what gives one
_KINDS: dict[type, tuple[str, str]] = {
    View: ("a tensor or a slice of one", "declare it with k.tensor(...) or k.shared(...)"),
    Mbar: ("an mbarrier", "declare it with k.mbarriers(...)"),
    TensorMap: ("a tensor map", "declare it with k.tensor_map(...)"),
    GlobalTensor: ("a tensor in global memory", "declare it with k.tensor(...)"),
    Fragment: ("a fragment", "declare it with k.fragment(...)"),
    TmemView: ("tensor memory", "name what lies there with k.tcgen05.tensor(...)"),
    Var: ("a variable", "declare it with k.var(...)"),
    Expr: ("a number or an expression", ""),
    DType: ("a type of elements", "use one of tilesim's, such as bf16"),
    str: ("a text", ""),
    int: ("an integer that is known when the kernel is built", ""),
    bool: ("True or False", ""),
    type(None): ("None", ""),
}
#: types of fields that are integers
_WHOLE = (int, int | None)


def check_kinds(thing: Op | Fragment | ScalarParam | Var | TensorMap, what: str, loc: Loc) -> None:
    """Refuses an operand of another kind than its field, such as a tensor where a map is meant.

    ``what`` and ``loc``: what the error calls ``thing``, and the user's line.

    Raises:
        InvalidProgram: it names the operand, what it is and what it should be.
    """
    for name, hint in fields_of(type(thing)):
        value = getattr(thing, name)
        for expr in expressions_in(value):
            check_size(expr, f"{name} of {what}", loc)
        if not _takes(hint)(value):
            fixes = [_KINDS[kind][1] for kind in _alternatives(hint) if kind in _KINDS]
            raise reject(
                f"{name} of {what} is {named(value)}, not {' or '.join(_words(hint))}",
                loc,
                fix=next((fix for fix in fixes if fix), ""),
            )
    if isinstance(thing, Op):
        _check_integers(thing)


def plain(op: Op) -> Op:
    """``op`` with Python's integers in place of those of NumPy and the like."""
    given = ((name, getattr(op, name)) for name, hint in fields_of(type(op)) if hint in _WHOLE)
    other = {n: v.__index__() for n, v in given if v is not None and not isinstance(v, int)}
    return replace(op, **other) if other else op


def _check_integers(op: Op) -> None:
    """Refuses 1.5 where integers are: in counts and sizes, in what an integer is set to; and what
    does not fit into it."""
    operands = {name: getattr(op, name) for name, _ in fields_of(type(op))}
    if any(isinstance(operand, Fragment) for operand in operands.values()):
        return  # what is computed with the elements of tiles are numbers
    held = _result_type(op)
    for name, value in operands.items():
        if name in op.data and held is None:
            continue
        if name in op.data and held is not None and isinstance(value, Expr):
            _check_width(op, name, value, held)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Expr) and fraction(part) is not None:
                wider = ", or declare what holds it with a type such as f32"
                raise reject(
                    f"{op.mnemonic}: {name} {part} is a floating-point number, not an integer",
                    op.loc,
                    fix="divide integers with //" + (wider if name in op.data else ""),
                )


def _result_type(op: Op) -> DType | None:
    """The type of what the instruction sets, if that is one of integers."""
    held = (getattr(op, name, None) for name in ("var", "result", "dst"))
    thing = next((one for one in held if one is not None), None)
    if not isinstance(thing, Var | View) or thing.dtype.kind not in ("int", "uint"):
        return None
    return thing.dtype


def _check_width(op: Op, name: str, value: Expr, held: DType) -> None:
    """Refuses a literal of more bits than what takes it has, signed or not."""
    known = constant(value) if isinstance(value, Const) else None
    if known is not None and not -(1 << held.bits - 1) <= known < 1 << held.bits:
        raise reject(f"{op.mnemonic}: {name} {value} does not fit into {held}", op.loc,
                     fix="declare what holds it with a wider type, such as s64")  # fmt: skip


Fields = tuple[tuple[str, Any], ...]

_KNOWN: dict[type, Fields] = {}


def fields_of(cls: type) -> Fields:
    """Names of the fields of a class and their types."""
    if cls not in _KNOWN:
        _KNOWN[cls] = tuple(
            (n, h)
            for n, h in hints(cls).items()
            if n not in ANNOTATIONS and get_origin(h) != ClassVar
        )
    return _KNOWN[cls]


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


@cache
def _takes(hint: Any) -> Callable[[object], bool]:
    """Whether a field of a type takes a value."""
    if hint is bool:
        return lambda value: isinstance(value, int) and value in (0, 1)
    if hint is int:
        return lambda value: (
            type(value) is int
            or (isinstance(value, SupportsIndex) and not isinstance(value, bool | Expr))
        )
    if isinstance(hint, type) and not get_args(hint):
        return lambda value: isinstance(value, hint)
    match get_origin(hint):
        case origin if origin is Literal:
            words = get_args(hint)
            return lambda value: isinstance(value, str | int) and value in words
        case origin if origin is tuple:
            element = _takes(get_args(hint)[0])
            return lambda value: isinstance(value, tuple) and all(map(element, value))
        case _:
            some = [_takes(other) for other in _alternatives(hint)]
            return lambda value: any(takes(value) for takes in some)


def _words(hint: Any) -> Iterator[str]:
    for kind in _alternatives(hint):
        match get_origin(kind):
            case origin if origin is Literal:
                yield from (repr(value) for value in get_args(kind))
            case origin if origin is tuple:
                yield "a tuple of integers" if get_args(kind)[0] is int else "a tuple of numbers"
            case _:
                yield _KINDS[kind][0]
