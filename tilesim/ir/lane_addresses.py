"""Addresses that some lanes hold for all, as a matrix descriptor for each stage of a pipeline.

    mine = select(lane < stages, first + lane * size, 0)
    shfl.sync descriptor, mine, idx, stage

A lane without a stage holds a number of no account. Whether such a lane is asked, the run sees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tilesim.analysis.ssa import given, once
from tilesim.analysis.thread_values import Threads
from tilesim.ir.base_forms import KNOWN, Forms
from tilesim.ir.expr import Expr, Select, Var
from tilesim.ir.mir import Mir


class Holders(NamedTuple):
    """What the lanes of a mask hold, in every warp: addresses of these forms."""

    lanes: int
    forms: Forms


def holders(
    value: Expr, number: int, mir: Mir, threads: Threads, forms: Callable[[Expr], Forms]
) -> Holders | None:
    """The lanes that hold an address, as an instruction finds it, while the others hold a number;
    None if that is not so."""
    chosen: Expr | None = value
    if isinstance(value, Var):
        chosen, number = given(mir).get(value.name), once(mir).get(value.name, number)
    if not isinstance(chosen, Select):
        return None
    holds = threads.value(chosen.cond, number)
    if not isinstance(holds, np.ndarray):
        return None
    for arm, lanes in ((chosen.then, holds != 0), (chosen.other, holds == 0)):
        found = forms(arm)
        if found and KNOWN not in found:
            return Holders(sum(1 << int(n) for n in np.flatnonzero(lanes.all(axis=0))), found)
    return None
