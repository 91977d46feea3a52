"""Vector clocks: one flat integer array with `ROWS` rows over the same components.

Row S is synchronisation causality (DETERMINACY section 5: which events are ordered in every
schedule), row G what is visible to the generic proxy (SEMANTICS H.5). Two rows say what is visible
to the async proxy, of shared and of global memory (a fence may name one of them, H9); the last one
what a ``fence.proxy.async::generic.release`` has begun to hand over, for an acquire to end (H10). A
component is a program position of a warp, a count of completed phases of a barrier, or a count of
completed groups of a warp. Components are never reused.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Clock: TypeAlias = NDArray[np.int64]

ROWS = 5
#: row G, the async proxy in shared and in global memory, halves of fences
GENERIC, SHARED, GLOBAL, HALF = 1, 2, 3, 4


class Components:
    """Hands out component numbers; `size` is fixed once the machine is built."""

    def __init__(self) -> None:
        self.size = 0

    def new(self) -> int:
        """A new component."""
        self.size += 1
        return self.size - 1

    def clock(self) -> Clock:
        """A clock that knows nothing."""
        return np.zeros(ROWS * self.size, dtype=np.int64)


def join(clock: Clock, other: Clock) -> None:
    """``clock`` learns everything ``other`` knows."""
    np.maximum(clock, other, out=clock)
