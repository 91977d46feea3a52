"""What kinds of operands instructions and declarations take, from the types of their fields."""

from __future__ import annotations

from collections.abc import Iterator
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

from tilesim.errors import reject
from tilesim.ir.expr import Expr, ScalarParam, Var, named
from tilesim.ir.fractional import fraction
from tilesim.ir.loc import Loc
from tilesim.ir.memory import Fragment, GlobalTensor, Mbar, TensorMap, View
from tilesim.ir.op import ANNOTATIONS, Op
from tilesim.ir.tmem import TmemView
from tilesim.ir.types import DType

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


def check_kinds(thing: Op | Fragment | ScalarParam | Var | TensorMap, what: str, loc: Loc) -> None:
    """Refuses an operand of another kind than its field, such as a tensor where a map is meant.

    ``what`` and ``loc``: what the error calls ``thing``, and the user's line.

    Raises:
        InvalidProgram: it names the operand, what it is and what it should be.
    """
    for name, hint in _fields(type(thing)):
        value = getattr(thing, name)
        if not _fits(value, hint):
            fixes = [_KINDS[kind][1] for kind in _alternatives(hint) if kind in _KINDS]
            raise reject(
                f"{name} of {what} is {named(value)}, not {' or '.join(_words(hint))}",
                loc,
                fix=next((fix for fix in fixes if fix), ""),
            )
    if isinstance(thing, Op):
        _check_integers(thing)


def _check_integers(op: Op) -> None:
    """Refuses 1.5 where integers are: in counts and sizes, in what an integer is set to."""
    operands = {name: getattr(op, name) for name, _ in _fields(type(op))}
    if any(isinstance(operand, Fragment) for operand in operands.values()):
        return  # what is computed with the elements of tiles are numbers
    for name, value in operands.items():
        if name in op.data and not _holds_integers(op):
            continue
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Expr) and fraction(part) is not None:
                held = ", or declare what holds it with a type such as f32"
                raise reject(
                    f"{op.mnemonic}: {name} {part} is a floating-point number, no integer",
                    op.loc,
                    fix="divide integers with //" + (held if name in op.data else ""),
                )


def _holds_integers(op: Op) -> bool:
    """Whether what the instruction sets has the type of an integer."""
    held = (getattr(op, name, None) for name in ("var", "result", "dst"))
    thing = next((one for one in held if one is not None), None)
    return isinstance(thing, Var | View) and thing.dtype.kind in ("int", "uint")


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
    if hint in (int, bool):
        return isinstance(value, SupportsIndex) and not isinstance(value, Expr)
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
