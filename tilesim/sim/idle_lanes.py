"""Lanes that come to where a branch meets without having done anything on the way.

    if (threadIdx.x == 0) { produce } else if (threadIdx.x == 32) { consume }

Both ways synchronise, so lanes that the branch splits are agents of their own. But those of warp 0
that are not the first only compute registers up to the end. They go ahead, and the others stay what
they are. What they decide on their way is executed after that as always; here it is only looked at.
"""

from __future__ import annotations

from copy import copy

from tilesim.analysis.uses_defs import sets_only
from tilesim.ir.effects import Defines
from tilesim.ir.mir import Branch, Join
from tilesim.ir.op import Op
from tilesim.sim.expression import evaluator
from tilesim.sim.machine.errors import FAULTS
from tilesim.sim.machine.lanes import condition_lanes
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.unknown import Unknown, UnknownSteers

#: instructions that are looked at
_FAR = 64
#: what cannot be told: an operand holds something that nobody knows, or makes no sense
_LOST = (*FAULTS, UnknownSteers, TypeError, ValueError, ArithmeticError)


def do_nothing(w: Warp, lanes: int, pc: int, meet: int) -> bool:
    """Whether ``lanes`` of a warp only compute registers from ``pc`` to ``meet``, as one."""
    ahead = copy(w)
    ahead.registers, ahead.mask = list(w.registers), lanes
    ahead.frames, ahead.parts, ahead.spread = [], None, None
    for _ in range(_FAR):
        if pc == meet:
            return True
        try:
            after = _next(ahead, pc)
        except _LOST:
            return False
        if after is None:
            return False
        pc = after
    return False


def _next(w: Warp, number: int) -> int | None:
    """Executes an instruction on a copy of a warp: where all of its lanes go on; None if they part,
    do something, or nobody knows."""
    plan = w.machine.plan
    match plan.mir.code[number].what:
        case Branch(target=target, cond=cond, sense=sense):
            value = True if cond is None else evaluator(plan, cond)(w)
            if type(value) is Unknown:
                return None
            lanes = condition_lanes(value) & w.mask
            if lanes not in (0, w.mask):
                return None
            return target if cond is None or bool(lanes) is sense else number + 1
        case Join(syncs=False):
            return number + 1
        case Op() as op if sets_only(op):
            if any(isinstance(e, Defines) and e.chance for e in plan.mir.effects[number]):
                return None
            alone = plan.fused[number][0][0] if number in plan.fused else plan.steps[number][0]
            w.pc = number + 1
            alone(w)
            return number + 1
        case _:
            return None
