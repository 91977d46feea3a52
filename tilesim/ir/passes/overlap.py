"""Whether two operands may name the same memory, as far as the program's text tells."""

from __future__ import annotations

from tilesim.arith.operators import integer
from tilesim.ir.expr import Binary, Const, Expr
from tilesim.ir.memory import SharedTensor, View
from tilesim.ir.program import Program
from tilesim.ir.tmem import TmemView

#: distance of two lanes in an address of tensor memory
LANE = 0x10000


def _split(expr: Expr) -> tuple[Expr | None, int]:
    """(variable part, constant part) of a sum."""
    match expr:
        case Const(value):
            return None, integer(value)
        case Binary("+", lhs, Const(value)):
            base, offset = _split(lhs)
            return base, offset + integer(value)
        case _:
            return expr, 0


def _apart(a: Expr, size_a: int, b: Expr, size_b: int) -> bool:
    (base_a, first_a), (base_b, first_b) = _split(a), _split(b)
    if base_a != base_b:
        return False
    return first_a + size_a <= first_b or first_b + size_b <= first_a


def _terms(expr: Expr) -> tuple[list[Expr], int]:
    """The terms of a sum that are not constant, and the sum of those that are."""
    match expr:
        case Const(value):
            return [], integer(value)
        case Binary("+", lhs, rhs):
            (left, first), (right, second) = _terms(lhs), _terms(rhs)
            return left + right, first + second
        case _:
            return [expr], 0


def _only_lanes(term: Expr) -> bool:
    """Whether a term of a tensor memory address changes the lane and not the column."""
    match term:
        case Binary("*", _, Const(value)):
            return integer(value) % LANE == 0
        case _:
            return False


def tmem_overlap(a: TmemView, b: TmemView) -> bool:
    """False only if the columns or the lanes are certainly different."""
    (terms_a, at_a), (terms_b, at_b) = _terms(a.address), _terms(b.address)
    lanes_a, lanes_b = (list(filter(_only_lanes, terms)) for terms in (terms_a, terms_b))
    if [t for t in terms_a if t not in lanes_a] != [t for t in terms_b if t not in lanes_b]:
        return True
    lane_a, column_a = divmod(at_a, LANE)
    lane_b, column_b = divmod(at_b, LANE)
    if column_a + a.columns <= column_b or column_b + b.columns <= column_a:
        return False
    return lanes_a != lanes_b or (lane_a < lane_b + b.shape[0] and lane_b < lane_a + a.shape[0])


def view_overlap(program: Program, a: View, b: View) -> bool:
    """False only if the two views certainly share no byte."""
    if a.space != b.space:
        return False
    if a.tensor.name != b.tensor.name:
        return a.space == "shared" and _storage_overlap(program, a, b)
    boxes = zip(a.offsets, a.extents, b.offsets, b.extents, strict=True)
    return not any(_apart(x, n, y, m) for x, n, y, m in boxes)


def _storage_overlap(program: Program, a: View, b: View) -> bool:
    assert isinstance(a.tensor, SharedTensor)
    assert isinstance(b.tensor, SharedTensor)
    first, second = program.placement[a.tensor.name], program.placement[b.tensor.name]
    return first < second + b.tensor.nbytes and second < first + a.tensor.nbytes
