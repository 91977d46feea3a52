"""Vector clocks: one flat integer array with three rows over the same components.

Row S is synchronisation causality (DETERMINACY section 5: which events are ordered in every
schedule), row G what is visible to the generic proxy, row A what is visible to the async proxy
(SEMANTICS H.5). A component is a program position of a warp, a count of completed phases of a
barrier, or a count of completed groups of a warp. Components are never reused.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Clock: TypeAlias = NDArray[np.int64]


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
        return np.zeros(3 * self.size, dtype=np.int64)


def join(clock: Clock, other: Clock) -> None:
    """``clock`` learns everything ``other`` knows."""
    np.maximum(clock, other, out=clock)
