"""Addresses that some lanes hold for all, as a matrix descriptor for each stage of a pipeline.

    mine = select(lane < stages, first + lane * size, 0)
    shfl.sync descriptor, mine, idx, stage

A lane without a stage holds a number of no account. Whether such a lane is asked, the run sees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from tilesim.analysis.thread_values import Threads
from tilesim.ir.base_forms import KNOWN, Forms
from tilesim.ir.expr import Expr, Select, Var


class Holders(NamedTuple):
    """What the lanes of a mask hold, in every warp: addresses of these forms."""

    lanes: int
    forms: Forms


def holders(
    value: Expr, values: Mapping[str, Expr], threads: Threads, forms: Callable[[Expr], Forms]
) -> Holders | None:
    """The lanes that hold an address while the others hold a number; None if that is not so.

    ``values``: by register that one instruction sets, what it is set to.
    """
    chosen = values.get(value.name) if isinstance(value, Var) else value
    if not isinstance(chosen, Select):
        return None
    holds = threads.value(chosen.cond)
    if not isinstance(holds, np.ndarray):
        return None
    for arm, lanes in ((chosen.then, holds != 0), (chosen.other, holds == 0)):
        found = forms(arm)
        if found and KNOWN not in found:
            return Holders(sum(1 << int(n) for n in np.flatnonzero(lanes.all(axis=0))), found)
    return None
