"""What tensors are indexed with: elements, slices, slices that start at a run-time element."""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType

from tilesim.errors import reject
from tilesim.ir.expr import Const, Expr, Operand, as_expr, constant
from tilesim.ir.fractional import fraction
from tilesim.ir.loc import caller

Index = Operand | slice


@dataclass(frozen=True, slots=True)
class Dyn:
    """A slice of static ``size`` that starts at a run-time element: ``A[ds(i * 64, 64)]``."""

    start: Operand
    size: int


#: what a tensor can be indexed with
Subscript = Index | Dyn | EllipsisType | tuple[Index | Dyn | EllipsisType, ...]


def expand(items: tuple[Index | Dyn | EllipsisType, ...], rank: int) -> list[Index | Dyn]:
    """``items`` with an ellipsis replaced by the full slices it stands for."""
    result: list[Index | Dyn] = []
    for item in items:
        if isinstance(item, EllipsisType):
            result += [slice(None)] * (rank - len(items) + 1)
        else:
            result.append(item)
    return result


def element(item: Operand, name: str) -> Expr:
    """``item`` as an expression; no fraction."""
    expr = as_expr(item)
    if fraction(expr) is not None or (isinstance(expr, Const) and isinstance(expr.value, float)):
        raise reject(f"index {expr} of {name} is no integer", caller())
    return expr


def resolve(item: Index | Dyn, extent: int, name: str) -> tuple[Expr, int, bool]:
    """(start, size, keep the dimension) of one index."""
    match item:
        case Dyn(start, size):
            return as_expr(start), size, True
        case slice(start=start, stop=stop, step=None):
            first = 0 if start is None else start
            last = extent if stop is None else stop
            if isinstance(first, Expr) or isinstance(last, Expr):
                raise reject(f"slice bounds of {name} must be integers", caller(),
                             fix="use ds(start, size) for a run-time start")  # fmt: skip
            if not 0 <= first < last <= extent:
                raise reject(f"slice {first}:{last} of {name} is outside 0:{extent}", caller(),
                             rule="out-of-bounds")  # fmt: skip
            return as_expr(first), last - first, True
        case slice():
            raise reject(f"a slice of {name} cannot have a step", caller())
        case _:
            start = element(item, name)
            known = constant(start)
            if known is not None and not 0 <= known < extent:
                raise reject(f"index {known} of {name} is outside 0:{extent}", caller(),
                             rule="out-of-bounds")  # fmt: skip
            return start, 1, False
