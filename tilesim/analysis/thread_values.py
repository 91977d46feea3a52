"""What registers hold in each thread of a CTA, as far as its number decides that."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.cfg import LANES, FlowGraph, is_truth
from tilesim.analysis.ssa import reaching
from tilesim.analysis.uses_defs import operand_expressions, registers_set
from tilesim.arith.array_operators import ARRAY_BINARY, ARRAY_UNARY
from tilesim.arith.types import DType
from tilesim.ir.arithmetic import LIMITS, integer_limits
from tilesim.ir.effects import Defines, Shuffles
from tilesim.ir.expr import Binary, Const, Expr, ScalarParam, Select, Special, Unary, Var, constant
from tilesim.ir.op import Computation

#: one number for all threads of a CTA, or an array of (warps, lanes); None: not known
Value: TypeAlias = "int | NDArray[np.int64] | None"

#: numbers beyond this are left alone: sums of two that are not have 64 bits
_MOST = 1 << 61
#: of what is within it products have that, and what is shifted by less than 32
_SMALL = 1 << 30
_MOST_BITS = 32
#: operators of which one operand may decide the result
_ABSORBING = ("and", "or", "&", "|")


class Threads:
    """What registers hold in each thread of a CTA, as far as its number decides that.

    ``launch``: and what is the same in all CTAs of a launch: its scalars, the size of its grid.
    """

    def __init__(self, graph: FlowGraph, *, launch: bool = False) -> None:
        mir = graph.mir
        self._mir, self._typing, self._launch = mir, mir.typing, launch
        self._setters = reaching(graph).setters
        threads = np.arange(mir.kernel.warps * LANES, dtype=np.int64).reshape(-1, LANES)
        self._special: dict[str, Value] = {
            "warp_id": threads // LANES, "lane_id": threads % LANES, "thread_id": threads,
        }  # fmt: skip
        if launch:
            sizes = (*mir.kernel.grid, mir.kernel.cluster_size)
            names = ("grid_x", "grid_y", "grid_z", "cluster_size")
            self._special |= {name: _plain_number(n) for name, n in zip(names, sizes, strict=True)}
        #: by register and the instruction that sets it
        self._registers: dict[tuple[str, int], Value] = {}

    def value(self, expr: Expr, number: int) -> Value:
        """An expression of integers of which no part wraps, as an instruction finds it."""
        match expr:
            case Const(int(value)):
                return _plain_number(value)
            case ScalarParam(_, int(value)) if self._launch:
                return _plain_number(value)
            case Special(name):
                return self._special.get(name)
            case Var(name):
                values = [self._in_register(expr, setter) for setter in self._setters(number, name)]
                return (
                    values[0]
                    if values and all(_same(values[0], other) for other in values)
                    else None
                )
            case Unary(op, operand):
                a = self.value(operand, number)
                return None if a is None else self._within(expr, ARRAY_UNARY[op](np.asarray(a)))
            case Binary(op, lhs, rhs):
                a = self.value(lhs, number)
                b = None if a is None and op not in _ABSORBING else self.value(rhs, number)
                if a is not None and b is not None:
                    return self._binary(expr, a, b)
                return self._absorbed(expr, a if b is None else b)
            case Select(cond, then, other):
                chosen, a, b = (self.value(part, number) for part in (cond, then, other))
                if isinstance(chosen, int):
                    a = b = a if chosen else b
                if chosen is None or a is None or b is None:
                    return None
                return self._within(expr, np.where(np.asarray(chosen) != 0, a, b))
            case _:
                return None

    def _in_register(self, var: Var, number: int) -> Value:
        """What a register holds that an instruction has set, always to the same."""
        if self._mir.code[number].guard is not None or var.name in self._typing.tokens:
            return None
        if (var.name, number) not in self._registers:
            self._registers[var.name, number] = None  # what is made of itself is not known
            found = None if var.dtype.kind == "float" else self._set_to(number, var)
            self._registers[var.name, number] = None if found is None else _fitted(found, var.dtype)
        return self._registers[var.name, number]

    def _set_to(self, number: int, var: Var) -> Value:
        """What an instruction sets a register to."""
        match self._mir.code[number].what, self._mir.effects[number]:
            case Computation() as op, _:
                return self._computed(op, var, number)
            case _, (Defines(value=Expr() as value, oracle="", unknown=""),):
                return self.value(value, number)
            case _, (*_, Shuffles(value=value, lane=lane, mode="idx"), Defines()):
                return _shuffled(self.value(value, number), constant(lane))
            case _:
                return None

    def _computed(self, op: Computation, var: Var, number: int) -> Value:
        operands = {id(e): self.value(e, number) for e in operand_expressions(op)}
        if any(value is None for value in operands.values()):
            return None
        results = op.compute_many(lambda operand: operands[id(operand)])
        place = [result.name for result in registers_set(op)].index(var.name)
        return None if results is None else _number(np.asarray(results[place]))

    def _binary(
        self, expr: Binary, a: int | NDArray[np.int64], b: int | NDArray[np.int64]
    ) -> Value:
        op, left, right = expr.op, np.asarray(a), np.asarray(b)
        unsigned = "u64" in (self._typing.type_of(expr.lhs), self._typing.type_of(expr.rhs))
        if unsigned and not (_lies(a, 0, _MOST) and _lies(b, 0, _MOST)):
            return None
        if op in ("//", "%") and not right.all():
            return None
        if op in ("<<", ">>") and not _lies(b, 0, _MOST_BITS - 1):
            return None
        if op in ("*", "<<") and not (_lies(a, -_SMALL, _SMALL) and _lies(b, -_SMALL, _SMALL)):
            return None
        return self._within(expr, ARRAY_BINARY[op](left, right))

    def _absorbed(self, expr: Binary, known: Value) -> Value:
        """What an operator gives if one operand decides that in all threads."""
        if known is None:
            return None
        holds = np.asarray(known) != 0
        if expr.op in ("and", "&") and not holds.any():
            return 0
        decides = expr.op == "or" or (expr.op == "|" and is_truth(expr))
        return 1 if decides and holds.all() else None

    def _within(self, expr: Expr, result: NDArray[Any]) -> Value:
        """A result that its type can hold."""
        kind, found = self._typing.type_of(expr), _number(result)
        if kind not in LIMITS or found is None:
            return None
        return found if _lies(found, *LIMITS[kind]) else None


def _plain_number(value: int) -> int | None:
    """A number that a program says, unless it is too large or stands for other values as well: what
    may be any value of a parameter has the look of an integer, but another type."""
    return value if issubclass(type(value), int) and _lies(value, -_MOST, _MOST) else None


def _shuffled(value: Value, lane: int | None) -> Value:
    if value is None or lane is None or not 0 <= lane < LANES:
        return None
    return value if isinstance(value, int) else np.broadcast_to(value[:, [lane]], value.shape)


def _same(one: Value, other: Value) -> bool:
    return one is other or (isinstance(one, int) and isinstance(other, int) and one == other)


def _fitted(value: int | NDArray[np.int64], dtype: DType) -> Value:
    """What a register of a type holds that is set to a value."""
    low, high = integer_limits(dtype)
    if _lies(value, low, high):
        return value
    wraps = dtype.kind != "pred" and dtype.bits <= _MOST_BITS
    return (value - low) % (high - low + 1) + low if wraps else None


def _number(result: NDArray[Any]) -> Value:
    """A result, unless it is too large to go on with."""
    if not -_MOST <= result.min() <= result.max() <= _MOST:
        return None
    return result.astype(np.int64) if result.ndim else int(result)


def _lies(value: int | NDArray[np.int64], low: int, high: int) -> bool:
    if isinstance(value, int):
        return low <= value <= high
    return bool(low <= value.min() and value.max() <= high)
