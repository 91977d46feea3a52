"""Polls that only spare a wait, and these waits (`tilesim.ir.waits`, DETERMINACY section 6).

The timed run leaves such a poll out, so that the wait stands for both; what the poll could have
seen is checked when the wait has passed. It does poll where the answer must be yes. Under a chosen
schedule it always does: a try_wait that gives up is a test_wait made at another time.
"""

from __future__ import annotations

import numpy as np

from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr, Var
from tilesim.ir.op import Op
from tilesim.sim.execute.compose import Operands
from tilesim.sim.execute.credits import require_live
from tilesim.sim.execute.registers import assign
from tilesim.sim.execute.waits import parity_of, poll_result, surely, wait_step
from tilesim.sim.machine.lanes import condition_lanes
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier


def peeked(op: Op) -> tuple[fx.Waits, Var] | None:
    """What an instruction polls, and the register that gets the answer; None if it does not."""
    for effect in op.effects():
        match effect:
            case fx.Defines(var=var, value=fx.Waits() as looks):
                return looks, var
            case _:
                pass
    return None


class Look:
    """A peek of the timed run by ``w``: what it asked, with which clock, the flag it left
    unanswered, and the ``lanes`` that made it and have not waited since."""

    __slots__ = ("asked", "clock", "common", "flag", "lanes", "op", "used")

    def __init__(self, asked: tuple[object, ...], w: Warp, op: Op, flag: object) -> None:
        self.asked = asked
        self.clock = w.clock.copy()
        self.common = w.common
        self.op = op
        self.flag = flag
        self.lanes = w.mask
        self.used = False


class _Unanswered(int):
    """The flag of a peek that was not made: a zero like no other."""


def peek(c: Operands, op: Op, effect: fx.Waits, flag: Var) -> Step:
    """A poll that only decides whether a later wait is made."""
    mbar, parity_at, result = c.mbar(effect.mbar), parity_of(c, op, effect), c.slot(flag)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        require_live(barrier, w, op)
        parity = parity_at(w, barrier)
        sure = not effect.suspends and surely(w, barrier, parity)
        if sure or not w.machine.timed:
            assign(w, result, poll_result(w, barrier, parity, op, effect, peeks=True))
            return
        barrier.looked(w, op)
        before = _standing(w, result)
        assign(w, result, _Unanswered())
        for look in w.looks.get(result, ()):
            if look not in before and not look.used and look.lanes & ~w.mask:
                _doubtful(w, look, barrier)
        for look in before:  # their lanes keep their answer beside the new one
            look.lanes, look.flag = look.lanes & ~w.mask, w.registers[result]
        question = (barrier, parity, effect.sem, effect.scope)
        new = Look(question, w, op, w.registers[result])
        w.looks[result] = (*(look for look in before if look.lanes), new)
        w.advance()

    return step


def _standing(w: Warp, slot: int) -> list[Look]:
    """The looks whose flags are as they left them."""
    return [look for look in w.looks.get(slot, ()) if w.registers[slot] is look.flag]


def _doubtful(w: Warp, look: Look, barrier: Mbarrier) -> None:
    """Notes that nobody checks which of the waits after it a peek lets out."""
    name, alone = look.op.mnemonic, look.lanes & (look.lanes - 1) == 0
    what = f"whether {name} lets the wait on {barrier.name} out"
    w.machine.nondeterministic(what, look.op, explorable=alone)


def wait_unless(c: Operands, cond: Expr, flag: Var, op: Op, effect: fx.Waits) -> Step:
    """``if not flag: wait`` after a peek."""
    wait, holds, slot = wait_step(c, op, effect), c.expr(cond), c.slot(flag)
    mbar, parity_at = c.mbar(effect.mbar), parity_of(c, op, effect)

    def step(w: Warp) -> bool | None:
        if not condition_lanes(holds(w)) & w.mask:
            return None
        barrier = mbar(w)
        stopped = wait(w)
        looks = w.looks.get(slot, ())
        if stopped or not looks:
            return stopped
        standing = [look for look in _standing(w, slot) if look.lanes & w.mask]
        if not standing and w.registers[slot] is not looks[-1].flag:
            # some lanes may still hold an answer, unless all have got another value
            if not looks[-1].used and isinstance(w.registers[slot], np.ndarray):
                _doubtful(w, looks[-1], barrier)
            return None
        question = (barrier, parity_at(w, barrier), effect.sem, effect.scope)
        without = w.mask & ~sum(look.lanes for look in standing)
        for look in standing or looks:
            if look.used or look.asked != question or without:
                _doubtful(w, look, barrier)
            else:
                barrier.peeked(w, look.op, look.clock, look.common)
            look.used = True
        return None

    return step
