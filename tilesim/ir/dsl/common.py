"""What all instruction namespaces share: the recorder, documentation, operand conversions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tilesim.errors import reject
from tilesim.ir.expr import Expr, Operand, as_expr, named
from tilesim.ir.loc import caller
from tilesim.ir.memory import GlobalTensor, Mbar, Mbarriers, SharedTensor, View
from tilesim.ir.op import Op
from tilesim.words import did_you_mean

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
