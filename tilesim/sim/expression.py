"""Compiles expressions to functions of a warp: one value, or an array with one value per lane."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from tilesim.ir.expr import (
    BINARY,
    UNARY,
    Binary,
    Const,
    Expr,
    ScalarParam,
    Select,
    Special,
    Unary,
    Var,
)
from tilesim.sim.machine.warp import Fault, Lanes, Warp, mask_array

Evaluate: TypeAlias = Callable[[Warp], Any]

_LANE_IDS = np.arange(32, dtype=np.int64)

_SPECIAL: dict[str, Evaluate] = {
    "warp_id": lambda w: w.number,
    "lane_id": lambda w: _LANE_IDS,
    "thread_id": lambda w: w.number * 32 + _LANE_IDS,
    "cta_x": lambda w: w.cta.coords[0],
    "cta_y": lambda w: w.cta.coords[1],
    "cta_z": lambda w: w.cta.coords[2],
    "grid_x": lambda w: w.machine.program.grid[0],
    "grid_y": lambda w: w.machine.program.grid[1],
    "grid_z": lambda w: w.machine.program.grid[2],
    "cluster_rank": lambda w: w.cta.rank,
    "cluster_size": lambda w: w.machine.program.cluster_size,
    "cluster_id": lambda w: w.cta.cluster.number,
}

_ARRAY_UNARY: dict[str, Callable[[Any], Any]] = {
    "-": np.negative,
    "~": np.invert,
    "not": lambda a: (a == 0).astype(np.int64),
}
_ARRAY_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod,
    "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor,
    "<<": np.left_shift, ">>": np.right_shift, "min": np.minimum, "max": np.maximum,
    "==": np.equal, "!=": np.not_equal, "<": np.less, "<=": np.less_equal,
    ">": np.greater, ">=": np.greater_equal, "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip


#: C implementations of the operators that give a plain int for ints
_FAST: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv,
    "%": operator.mod, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip


class UnassignedVariable(Fault):
    """A register is read before anything was assigned to it."""


def plain(value: Any) -> Any:
    """A value as a number or array (a lane mask becomes an array of 0 and 1)."""
    return mask_array(value.bits).astype(np.int64) if type(value) is Lanes else value


def compile_expr(expr: Expr, slots: Mapping[str, int]) -> Evaluate:
    """A function that evaluates ``expr`` for a warp; ``slots`` maps variable names to registers."""
    match expr:
        case Const(value):
            number = int(value) if isinstance(value, bool) else value
            return lambda w: number
        case ScalarParam(_, value):
            return lambda w: value
        case Special(name):
            return _SPECIAL[name]
        case Var(name):
            return _variable(name, slots[name])
        case Unary(op, operand):
            return _unary(op, compile_expr(operand, slots))
        case Binary(op, lhs, Const(value)) if not isinstance(value, float):
            return _binary_const(op, compile_expr(lhs, slots), int(value))
        case Binary(op, lhs, rhs):
            return _binary(op, compile_expr(lhs, slots), compile_expr(rhs, slots))
        case Select(cond, then, other):
            return _select(*(compile_expr(e, slots) for e in (cond, then, other)))
        case _:
            raise TypeError(f"not an expression: {expr!r}")


def _variable(name: str, slot: int) -> Evaluate:
    def read(w: Warp) -> Any:
        value = w.registers[slot]
        if value is None:
            raise UnassignedVariable(name)
        return value

    return read


def _unary(op: str, operand: Evaluate) -> Evaluate:
    scalar, array = UNARY[op], _ARRAY_UNARY[op]

    def evaluate(w: Warp) -> Any:
        a = plain(operand(w))
        return array(a) if isinstance(a, np.ndarray) else scalar(a)

    return evaluate


def _apply(op: str, a: Any, b: Any) -> Any:
    """``a op b`` where at least one is an array; comparisons give 0 and 1."""
    result = _ARRAY_BINARY[op](plain(a), plain(b))
    return result.astype(np.int64) if result.dtype == bool else result


def _binary(op: str, lhs: Evaluate, rhs: Evaluate) -> Evaluate:
    scalar = BINARY[op]

    def evaluate(w: Warp) -> Any:
        a, b = lhs(w), rhs(w)
        if isinstance(a, (int, float)) and isinstance(b, (int, float)):
            return scalar(a, b)
        return _apply(op, a, b)

    return evaluate


def _binary_const(op: str, lhs: Evaluate, constant: int) -> Evaluate:
    scalar = _FAST.get(op) or BINARY[op]

    def evaluate(w: Warp) -> Any:
        a = lhs(w)
        return scalar(a, constant) if type(a) is int else _apply(op, a, constant)

    return evaluate


def _select(cond: Evaluate, then: Evaluate, other: Evaluate) -> Evaluate:
    def evaluate(w: Warp) -> Any:
        c, a, b = plain(cond(w)), then(w), other(w)
        if isinstance(c, np.ndarray):
            return np.where(c != 0, plain(a), plain(b))
        return a if c else b

    return evaluate
