"""Methods of the DSL: what namespaces share, and methods made from definitions (`Op.call`).

All namespaces share the recorder, documentation and conversions of operands. The parameters of a
method are the fields of the instruction: an expression takes a number, a view a tensor, an mbarrier
an array of one. `tilesim.dsl.stub` writes what that gives for type checkers.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

from tilesim.dsl.arguments import fields_of
from tilesim.errors import reject
from tilesim.ir.declarations import Fragment, GlobalTensor, Mbar, Mbarriers, SharedTensor, View
from tilesim.ir.expr import Const, Expr, Operand, as_expr, named
from tilesim.ir.loc import caller
from tilesim.ir.op import OPS, Op
from tilesim.wording import did_you_mean

Tensor = GlobalTensor | SharedTensor
MbarLike = Mbar | Mbarriers
ViewLike = View | GlobalTensor | SharedTensor


class Recorder(Protocol):
    """What takes the instructions: the builder."""

    def emit(self, op: Op) -> None:
        """Appends an instruction to the open region."""
        ...


def as_mbar(target: MbarLike) -> Mbar:
    """``target`` as one mbarrier: an element, or an array of one."""
    match target:
        case Mbar():
            return target
        case Mbarriers():
            return target.only()
        case _:
            raise reject(f"{named(target)} is not an mbarrier", caller(),
                         fix="declare it with k.mbarriers(...)")  # fmt: skip


def as_view(target: ViewLike) -> View:
    """``target`` as a view; a tensor stands for all of it."""
    match target:
        case View():
            return target
        case GlobalTensor() | SharedTensor():
            return target.view()
        case _:
            raise reject(f"{named(target)} is not a tensor or a slice of one", caller())


def optional(value: Operand | None) -> Expr | None:
    """``value`` as an expression, or None."""
    return None if value is None else as_expr(value)


Method = TypeVar("Method", bound=Callable[..., Any])

#: the instructions that a method records, by the undecorated method; filled by `records`
_RECORDED: dict[Callable[..., Any], tuple[type[Op], ...]] = {}


def records(*ops: type[Op]) -> Callable[[Method], Method]:
    """Decorator: the method records these instructions and has their documentation.

    The text of the first one is the docstring of a method that has none; one that ends with "see"
    and the instruction's name is continued with the instruction's details.
    """

    def register(method: Method) -> Method:
        _RECORDED[inspect.unwrap(method)] = ops
        if method.__doc__ is None:
            method.__doc__ = inspect.getdoc(ops[0])
        for op in ops:
            method.__doc__ = with_details(inspect.getdoc(method) or "", op)
        return method

    return register


def recorded(method: Callable[..., Any]) -> tuple[type[Op], ...]:
    """The instructions that a method of the builder or of a namespace records."""
    return _RECORDED.get(inspect.unwrap(method), ())


def with_details(text: str, cls: type) -> str:
    """``text`` with the reference "see `cls`" replaced by all but the first paragraph of its
    docstring; as it is without one."""
    reference = f"; see `{cls.__name__}`"
    if reference not in text:
        return text
    details = (inspect.getdoc(cls) or "").partition("\n\n")[2]
    return f"{text.replace(reference, '')}\n\n{details}"


class Namespace:
    """A group of instructions, reached as an attribute of the builder."""

    def __init__(self, builder: Recorder) -> None:
        self._k = builder

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> Any:
            raise self._lacks(attribute, dir(type(self)))

    def _lacks(self, attribute: str, has: Iterable[str]) -> AttributeError:
        """The error that there is no such instruction, with those of similar names."""
        builder = vars(self).get("_k")
        mine = (name for name, value in vars(builder).items() if value is self) if builder else ()
        known = [name for name in has if not name.startswith("_")]
        return AttributeError(
            f"k.{next(iter(mine), type(self).__name__)} has no instruction {attribute!r}"
            f"{did_you_mean(attribute, known)}; it has {', '.join(known)}"
        )


# ------------------------------------------------------------------ methods made from definitions


_CALL = re.compile(r"(?:(\w+)\.)?(\w+)(?:\((.*)\))?\Z")


@dataclasses.dataclass(frozen=True)
class Call:
    """A method of the DSL: its namespace ("" for the builder), name, and the instruction."""

    namespace: str
    name: str
    op: type[Op]
    parameters: tuple[inspect.Parameter, ...]

    @property
    def signature(self) -> inspect.Signature:
        """What it takes, ``self`` included; annotations are those of the fields."""
        first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return inspect.Signature([first, *self.parameters], return_annotation=None)


def call_of(cls: type) -> Call | None:
    """The method that records this instruction; None if it is written by hand.

    Raises:
        TypeError: `Op.call` is not ``namespace.method(parameters)`` of the instruction's fields.
    """
    return _call_of(cls)


@cache
def _call_of(cls: Any) -> Call | None:
    if not cls.call:
        return None
    parsed = _CALL.match(cls.call)
    hints = dict(fields_of(cls))
    common = {f.name for f in dataclasses.fields(Op)}
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init and f.name not in common}
    if parsed is None:
        raise TypeError(f"{cls.mnemonic}: {cls.call!r} is not namespace.method(parameters)")
    namespace, name, order = parsed.groups()
    kind: Any = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = []
    for part in _order(fields, order):
        if part == "*":
            kind = inspect.Parameter.KEYWORD_ONLY
        elif part not in fields:
            raise TypeError(f"{cls.mnemonic} has no operand {part}, which {cls.call!r} names")
        else:
            default = _default(fields[part])
            parameters.append(
                inspect.Parameter(part, kind, default=default, annotation=hints[part])
            )
    return Call(namespace or "", name, cls, tuple(parameters))


def _order(fields: dict[str, dataclasses.Field[Any]], order: str | None) -> list[str]:
    """The names of the parameters in order, with ``*`` where keywords begin."""
    if order is not None:
        return [part.strip() for part in order.split(",") if part.strip()]
    needed = [n for n, f in fields.items() if _default(f) is inspect.Parameter.empty]
    rest = [n for n in fields if n not in needed]
    return [*needed, "*", *rest]


def _default(field: dataclasses.Field[Any]) -> Any:
    """What the user may leave out; literals as numbers."""
    if field.default is dataclasses.MISSING:
        return inspect.Parameter.empty
    return field.default.value if isinstance(field.default, Const) else field.default


def calls(namespace: str) -> Iterator[Call]:
    """The methods of a namespace, in the order in which the instructions are defined."""
    found = (call_of(cls) for cls in OPS.values() if _path(cls)[0] == namespace)
    return (call for call in found if call is not None)


def _path(cls: type[Op]) -> tuple[str | None, str]:
    """The namespace and the name of the method that records an instruction; None without one."""
    space, _, name = cls.call.partition("(")[0].rpartition(".")
    return (space if name else None), name


def namespaces() -> tuple[str, ...]:
    """The namespaces with generated methods, in the order of their first instruction."""
    return tuple(dict.fromkeys(space for space, _ in map(_path, OPS.values()) if space))


def method(call: Call) -> Callable[..., None]:
    """The function that records an instruction; ``self`` is a namespace or the builder."""
    known: dict[str, Any] = {"_op": call.op, "_caller": caller}
    heads, operands, star = ["self"], [], False
    for p in call.parameters:
        if p.kind is inspect.Parameter.KEYWORD_ONLY and not star:
            heads.append("*")
            star = True
        known[f"_to_{p.name}"] = _converter(p.annotation)
        known[f"_else_{p.name}"] = p.default
        default = "" if p.default is inspect.Parameter.empty else f"=_else_{p.name}"
        heads.append(p.name + default)
        operands.append(f"{p.name}=_to_{p.name}({p.name}), ")
    recorder = "self._k" if call.namespace else "self"
    source = (
        f"def {call.name}({', '.join(heads)}):\n"
        f"    {recorder}.emit(_op({''.join(operands)}loc=_caller()))\n"
    )
    exec(compile(source, __file__, "exec"), known)
    record: Callable[..., None] = known[call.name]
    record.__qualname__ = f"{call.namespace}.{call.name}".lstrip(".")
    record.__doc__ = inspect.getdoc(call.op)
    record.__annotations__ = {p.name: p.annotation for p in call.parameters}
    # what inspect.signature shows of a function
    vars(record)["__signature__"] = call.signature
    return records(call.op)(record)


#: what is meant as a place in memory where an expression would do, too
_PLACES = (View, GlobalTensor, SharedTensor)


def _converter(hint: Any) -> Callable[[Any], Any]:
    """What makes an operand of a field out of what the user gives; `check_kinds` looks at it."""
    if get_origin(hint) is tuple:
        element = _converter(get_args(hint)[0])
        return lambda value: tuple(element(item) for item in value)
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kept = tuple(kind for kind in (types.NoneType, Fragment) if kind in members)
    made = [convert for kind, convert in _MADE.items() if kind in members]
    convert = made[0] if len(made) == 1 else _place_or_number if made else _same
    return (lambda value: value if isinstance(value, kept) else convert(value)) if kept else convert


_MADE: dict[Any, Callable[[Any], Any]] = {View: as_view, Mbar: as_mbar, Expr: as_expr}


def _place_or_number(value: Any) -> View | Expr:
    return as_view(value) if isinstance(value, _PLACES) else as_expr(value)


def _same(value: Any) -> Any:
    return value


def methods(namespace: str) -> dict[str, Callable[..., None]]:
    """The methods of a namespace by name, in the order in which the instructions are defined."""
    names = [name for space, name in map(_path, OPS.values()) if space == namespace]
    return {name: _made(namespace, name) for name in names}


def _made(namespace: str, name: str) -> Any:
    """A method of a namespace, made when it is first asked for; None if there is none."""
    owner = base(namespace)
    if name not in vars(owner):
        for cls in OPS.values():
            if _path(cls) == (namespace, name) and (call := call_of(cls)) is not None:
                setattr(owner, name, method(call))
    return vars(owner).get(name)


class Defined(Namespace):
    """A namespace with methods made from definitions, when one of them is first asked for."""

    name = ""

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> Callable[..., None]:
            if attribute.startswith("_") or _made(self.name, attribute) is None:
                own = [name for name, value in vars(type(self)).items() if callable(value)]
                raise self._lacks(attribute, dict.fromkeys((*methods(self.name), *own)))
            return getattr(self, attribute)


class Methods:
    """What the builder has by definitions: namespaces, and methods of its own."""

    if not TYPE_CHECKING:

        def __getattr__(self, attribute: str) -> Any:
            if (own := _made("", attribute)) is not None:
                return MethodType(own, self)
            if attribute not in namespaces():
                known = {*dir(type(self)), *vars(self), *namespaces(), *methods("")}
                public = sorted(name for name in known if not name.startswith("_"))
                raise AttributeError(
                    f"{type(self).__name__} has no {attribute!r}{did_you_mean(attribute, public)}"
                )
            namespace = vars(self)[attribute] = base(attribute)(self)
            return namespace


@cache
def base(namespace: str) -> type[Defined]:
    """The class with the generated methods of a namespace."""
    return type(f"{namespace.title().replace('_', '')}Methods", (Defined,), {"name": namespace})
