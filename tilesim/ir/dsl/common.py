"""What all instruction namespaces share: the recorder and operand conversions."""

from __future__ import annotations

from typing import Protocol

from tilesim.errors import reject
from tilesim.ir.expr import Expr, Operand, as_expr
from tilesim.ir.loc import caller
from tilesim.ir.memory import GlobalTensor, Mbar, Mbarriers, SharedTensor, View
from tilesim.ir.op import Op

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
        case Mbarriers(count=1):
            return target[0]
        case Mbarriers():
            raise reject(f"{target.name} has {target.count} mbarriers: index one", caller())
        case _:
            raise reject(f"{target!r} is not an mbarrier", caller(),
                         fix="declare it with k.mbarriers(...)")  # fmt: skip


def as_view(target: ViewLike) -> View:
    """``target`` as a view; a tensor stands for all of it."""
    match target:
        case View():
            return target
        case GlobalTensor() | SharedTensor():
            return target.view()
        case _:
            raise reject(f"{target!r} is not a tensor or a slice of one", caller())


def optional(value: Operand | None) -> Expr | None:
    """``value`` as an expression, or None."""
    return None if value is None else as_expr(value)


class Namespace:
    """A group of instructions, reached as an attribute of the builder."""

    def __init__(self, builder: Recorder) -> None:
        self._k = builder
