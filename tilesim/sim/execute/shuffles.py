"""Values of other lanes (PTX 9.7.9.6)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.execute.compose import Give, Operands, executor
from tilesim.sim.expression import plain
from tilesim.sim.machine.lanes import FULL, mask_array, shuffled_from
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.unknown import Unknown


def _require_sources(w: Warp, op: Op, where: NDArray[np.int64]) -> None:
    """A lane gets a value of a lane that executes the shuffle, too (PTX 9.7.9.6)."""
    active = mask_array(w.mask)
    wrong = np.flatnonzero(active & ~active[where])
    if not len(wrong):
        return
    reader = int(wrong[0])
    other = int(where[reader])
    gone = "has exited" if w.exited_lanes >> other & 1 else "does not execute it"
    raise BarrierError(
        "participation",
        f"{op.mnemonic} by {w}: lane {reader} reads the value of lane {other}, which {gone}",
        "execute it with the whole warp, or read from lanes that execute it",
    )


def _note_asked(w: Warp, op: Op, where: NDArray[np.int64]) -> None:
    """Where a lane is asked for an address that holds none."""
    holding = mask_array(w.machine.plan.lanes_asked[op.number])
    others = where[mask_array(w.mask) & ~holding[where]]
    if len(others):
        given = f"lane {others[0]} has no address to give, as others have: what {op.mnemonic} at"
        why = f"{given} {op.loc} gives of it is not known to be one in every launch"
        w.machine.outcome.decided_by_bases[why] = None
        w.machine.outcome.explorable = False


@executor(fx.Shuffles)
def _shuffles(c: Operands, op: Op, effect: fx.Shuffles) -> Give:
    value, lane = c.expr(effect.value), c.expr(effect.lane)
    results = (e.var for e in op.effects() if isinstance(e, fx.Defines) and e.value == effect)
    fits = [c.fit(result, effect.value) for result in results]
    fit = fits[0] if fits else None

    def read(w: Warp) -> Any:
        if w.mask == FULL:
            w.gather()
        given, of = plain(value(w)), plain(lane(w))
        asked = op.number in w.machine.plan.lanes_asked
        if type(given) is Unknown and w.mask == FULL and not asked:
            return given  # whichever lane is asked
        where = shuffled_from(effect.mode, of)
        if w.mask != FULL:
            _require_sources(w, op, where)
        if asked:
            _note_asked(w, op, where)
        if isinstance(given, np.ndarray):
            # one number for all lanes stays one
            alike = effect.mode == "idx" and type(of) is int
            given = given[where[:1]].tolist()[0] if alike else given[where]
        elif type(given) is Unknown:
            return given
        return given if fit is None else fit(given)

    return Give(effect, read)
