"""What a warp would do next, found on a copy of it that evaluates operands and sets registers."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from tilesim.analysis.uses_defs import sets_only
from tilesim.ir.effects import Defines
from tilesim.ir.expr import Expr
from tilesim.ir.op import Op
from tilesim.sim.machine.errors import FAULTS
from tilesim.sim.machine.expression import evaluator, plain
from tilesim.sim.machine.lanes import condition_lanes, mask_array
from tilesim.sim.machine.unknown import Open, Unknown, UnknownSteers

#: what cannot be told of an operand: it holds something that is not known, or makes no sense
_LOST = (*FAULTS, UnknownSteers, TypeError, ValueError, ArithmeticError)


def shadow(warp: Any) -> Any:
    """A copy that nothing else sees."""
    other = copy(warp)
    other.registers = list(warp.registers)
    other.frames, other.parts, other.spread, other.part = [], None, None, None
    return other


def value_of(expr: Expr, w: Any) -> Any:
    """An operand's value, one number if all active lanes have the same; None if it is not known."""
    try:
        found = evaluator(w.machine.loaded, expr)(w)
    except _LOST:
        return None
    value = plain(found)
    if type(found) is Open or type(value) is Unknown:
        return None
    if isinstance(value, np.ndarray):
        chosen = np.unique(np.broadcast_to(value, 32)[mask_array(w.mask)])
        return int(chosen[0]) if chosen.size == 1 and chosen.dtype.kind in "iub" else value
    return value


def lanes_where(expr: Expr, w: Any) -> int | None:
    """The lanes in which a condition holds; None if that is not known."""
    value = value_of(expr, w)
    if value is None:
        return None
    try:
        return condition_lanes(value)
    except _LOST:
        return None


def computes(op: Op, number: int, w: Any) -> bool:
    """Whether all that an instruction does is known and sets registers, which a copy then has."""
    if not sets_only(op) or any(isinstance(e, Defines) and e.oracle for e in op.effects()):
        return False
    w.pc = number + 1
    try:
        w.machine.loaded.alone[number][0](w)
    except _LOST:
        return False
    return True
