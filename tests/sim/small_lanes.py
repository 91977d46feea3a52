"""Instructions that gather lanes, in tilesim's IR."""

from __future__ import annotations

from tests.sim.steps_lanes import Gather
from tilesim import Builder
from tilesim.ir.declarations import View
from tilesim.ir.expr import Var

#: what no result is
_NEVER = 1000


def gather(k: Builder, step: Gather, active: frozenset[int], result: Var, place: View) -> None:
    """The ``active`` lanes execute it; where the ``result`` is used, it decides about a store to
    ``place``, which is never made."""
    mask, lane = sum(1 << lane for lane in active), k.lane_id
    if step.kind == "elect":
        with k.elected(sync=False):
            pass
        return
    match step.kind:
        case "any":
            k.warp.vote(result, lane > 3, "any", mask=mask)
        case "ballot":
            k.warp.ballot(result, lane > 3, mask=mask)
        case "match":
            k.warp.match_any(result, lane, mask=mask)
        case "redux":
            k.warp.redux(result, "add", lane, mask=mask)
        case "shfl":
            k.mem.shuffle(result, lane, min(active, default=0))
    if step.used:
        with k.if_(result.eq(_NEVER), sync=False):
            k.mem.store(place, 1)
