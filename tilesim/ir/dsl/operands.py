"""What kinds of operands instructions and declarations take, from the types of their fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    SupportsIndex,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from tilesim.analysis.uses_defs import expressions_in
from tilesim.arith.types import DType
from tilesim.errors import reject
from tilesim.ir.dsl.given import check_size
from tilesim.ir.expr import Const, Expr, ScalarParam, Var, constant, named
from tilesim.ir.fractional import fraction
from tilesim.ir.loc import Loc
from tilesim.ir.memory import Fragment, GlobalTensor, Mbar, TensorMap, View
from tilesim.ir.op import ANNOTATIONS, Op
from tilesim.ir.tmem import TmemView

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
    for name, hint in _fields(type(thing)):
        value = getattr(thing, name)
        for expr in expressions_in(value):
            check_size(expr, f"{name} of {what}", loc)
        if not _fits(value, hint):
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
    given = ((name, getattr(op, name)) for name, hint in _fields(type(op)) if hint in _WHOLE)
    other = {n: v.__index__() for n, v in given if v is not None and not isinstance(v, int)}
    return replace(op, **other) if other else op


def _check_integers(op: Op) -> None:
    """Refuses 1.5 where integers are: in counts and sizes, in what an integer is set to; and what
    does not fit into it."""
    operands = {name: getattr(op, name) for name, _ in _fields(type(op))}
    if any(isinstance(operand, Fragment) for operand in operands.values()):
        return  # what is computed with the elements of tiles are numbers
    held = _held(op)
    for name, value in operands.items():
        if name in op.data and held is None:
            continue
        if name in op.data and held is not None and isinstance(value, Expr):
            _check_width(op, name, value, held)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Expr) and fraction(part) is not None:
                wider = ", or declare what holds it with a type such as f32"
                raise reject(
                    f"{op.mnemonic}: {name} {part} is a floating-point number, no integer",
                    op.loc,
                    fix="divide integers with //" + (wider if name in op.data else ""),
                )


def _held(op: Op) -> DType | None:
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

#: resolving the names in annotations is slow
_KNOWN: dict[type, Fields] = {}


def _fields(cls: type) -> Fields:
    """Names of the fields of a class and their types."""
    if cls not in _KNOWN:
        hints = get_type_hints(cls).items()
        _KNOWN[cls] = tuple(
            (n, h) for n, h in hints if n not in ANNOTATIONS and get_origin(h) != ClassVar
        )
    return _KNOWN[cls]


def _alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _fits(value: object, hint: Any) -> bool:
    if hint is bool:
        return isinstance(value, int) and value in (0, 1)
    if hint is int:
        return isinstance(value, SupportsIndex) and not isinstance(value, bool | Expr)
    if isinstance(hint, type) and not get_args(hint):
        return isinstance(value, hint)
    match get_origin(hint):
        case origin if origin is Literal:
            return isinstance(value, str | int) and value in get_args(hint)
        case origin if origin is tuple:
            element = get_args(hint)[0]
            return isinstance(value, tuple) and all(_fits(item, element) for item in value)
        case _:
            return any(_fits(value, other) for other in _alternatives(hint))


def _words(hint: Any) -> Iterator[str]:
    for kind in _alternatives(hint):
        match get_origin(kind):
            case origin if origin is Literal:
                yield from (repr(value) for value in get_args(kind))
            case origin if origin is tuple:
                yield "a tuple of integers" if get_args(kind)[0] is int else "a tuple of numbers"
            case _:
                yield _KINDS[kind][0]
