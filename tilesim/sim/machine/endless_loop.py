"""Loops that compute for ever, as ``while (i < n) i = (i + 1) % 8;`` does for an n of 10.

Between two scheduling points of a warp nothing else moves. If its state is again what it was, and
it has left nothing in memory meanwhile, it will be so again and again, unless others change what
the loop reads. How long a loop is does not matter: of a state that comes back every p instructions
one look in a thousand sees it after p looks at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.effects import Defines
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.unknown import Open
from tilesim.sim.machine.warp import Agent, Blocked

if TYPE_CHECKING:
    from tilesim.ir.loc import Loc

#: looks without a scheduling point before states are compared: most loops are over by then
PATIENCE = 16
#: what such a warp does, for reports
COMES_BACK = "computes the same again and again"


def compared(warp: Agent, looks: int, before: object, version: int) -> object:
    """Blocks a warp, at its ``looks``-th look in a row, that would go on like this for ever: its
    state is the one ``before``. What to compare with at the next look. ``version`` counts all
    changes."""
    if warp.havoc_region is not None:
        return None
    state = version, _state(warp)
    where = _way_back(warp) if state == before else None
    if where is not None:
        warp.blocked = Blocked(None, COMES_BACK, None, where, True)
    return before if looks & (looks - 1) else state


def _state(warp: Agent) -> tuple[object, ...]:
    """All that decides what a warp does next, but for what is in memory."""
    frames = tuple((f.meet, f.mask, tuple(f.pending)) for f in warp.frames)
    private, active = warp.machine.plan.private, mask_array(warp.mask)
    registers = tuple(
        _content(value, active if slot in private else None)
        for slot, value in enumerate(warp.registers)
    )
    return warp.pc, warp.mask, frames, warp.effects, registers


def _content(value: Any, lanes: NDArray[np.bool_] | None) -> object:
    """A register's value in a form that compares by content, where there are ``lanes`` in these:
    what others have there is set before it is used. What is not known equals only itself."""
    if isinstance(value, np.ndarray):
        held = value if lanes is None or value.shape != lanes.shape else value[lanes]
        return value.dtype.str, held.tobytes()
    if isinstance(value, Open):
        return value.lanes, value.values.tobytes()
    return (
        value if value is None or isinstance(value, bool | int | float | np.generic) else id(value)
    )


def _way_back(warp: Agent) -> Loc | None:
    """Where the innermost loop around a warp goes back; None if no loop is, or if one looks at the
    time, which goes on."""
    graph = warp.machine.plan.graph
    block = graph.block_of[warp.pc]
    around = [loop for loop in graph.loops if block in loop.blocks]
    inside = {n for loop in around for b in loop.blocks for n in graph.blocks[b]}
    if any(isinstance(e, Defines) and e.oracle for n in inside for e in graph.mir.effects[n]):
        return None
    inner = min(around, key=lambda loop: len(loop.blocks), default=None)
    return None if inner is None else graph.mir.code[graph.blocks[inner.tail][-1]].what.loc
