"""Steps that check their addresses: what decides must not change with where memory lies (J5)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.ir.mir import Control
from tilesim.ir.op import Op
from tilesim.sim.expression import Evaluate, plain
from tilesim.sim.machine.errors import UnassignedVariable
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.unknown import Unknown


def checked(step: Step, stays: Evaluate, guard: Evaluate | None, what: Op | Control) -> Step:
    """``step``, behind a check of what has to hold in the lanes that execute it.

    An address that is not known, or not set, decides nothing: that would end the run."""

    def check(w: Warp) -> bool | None:
        try:
            holds = plain(stays(w))
        except UnassignedVariable:
            holds = 1
        if type(holds) is not Unknown and not np.all(holds) and _fails(w, holds, guard):
            why = f"an address at {what.loc} is none in what it counts from, or has wrapped"
            w.machine.outcome.decided_by_bases[f"{why}: every launch may have another one"] = None
            w.machine.outcome.explorable = False
        return step(w)

    return check


def _fails(w: Warp, holds: Any, guard: Evaluate | None) -> bool:
    """Whether it does not hold in a lane that executes the instruction."""
    lanes = mask_array(w.mask)
    if guard is not None:
        executes = plain(guard(w))
        if type(executes) is not Unknown:
            lanes = lanes & np.not_equal(executes, 0)
    return bool(np.any(lanes & np.equal(holds, 0)))
