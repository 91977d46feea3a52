"""Which warps take a branch, where its condition depends on nothing but their numbers."""

from __future__ import annotations

from tilesim.analysis.cfg import LANES, known
from tilesim.ir.expr import Expr


def lanes_taking(cond: Expr, warp: int) -> tuple[bool, bool] | None:
    """Whether some lanes of ``warp`` take the branch, and whether all do; None if not known."""
    values = [known(cond, warp, lane=lane) for lane in range(LANES)]
    if any(value is None for value in values):
        return None
    return any(values), all(values)
