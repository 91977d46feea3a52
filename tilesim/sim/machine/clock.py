"""Vector clocks: one flat integer array with `ROWS` rows over the same components.

Row S is synchronisation causality (DETERMINACY section 5: which events are ordered in every
schedule), row G what is visible to the generic proxy (SEMANTICS H.5). Two rows say what is visible
to the async proxy, of shared and of global memory (a fence may name one of them, H9); the last one
what a ``fence.proxy.async::generic.release`` has begun to hand over, for an acquire to end (H10).
Where CTAs access each other's shared memory and some fences are only for that of the CTA which
executes them, there are two more rows per cluster rank, of the memory of that CTA alone (H9). Where
fences are only for shared memory, there is a row of what the generic proxy sees there beyond row G
(H18). Where relaxed operations and a tcgen05.fence may bring what counts for tensor memory, there
is a row of that (G22). Where all that is done is of the generic proxy, there are rows S and G only.
A component is a program position of a warp, a count of completed phases of a barrier, or a count of
completed groups of a warp. Components are never reused.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Clock: TypeAlias = NDArray[np.int64]

#: a tick no clock reaches: that of an operation which has not completed
NEVER = 1 << 62

ROWS = 5
#: components that are looked at one by one
_FEW = 4
#: row G, the async proxy in shared and in global memory, halves of fences
GENERIC, SHARED, GLOBAL, HALF = 1, 2, 3, 4


class Components:
    """Hands out component numbers; `size` is fixed once the machine is built.

    ``own``: of so many CTAs of a cluster the shared memories have rows of their own.
    ``in_shared``: the generic proxy has rows for shared memory. ``generic``: there are no rows but
    S and G. ``tensor``: tensor memory has a row.
    """

    def __init__(
        self, own: int = 0, *, in_shared: bool = False, tensor: bool = False, generic: bool = False
    ) -> None:
        assert not generic or not (own or in_shared or tensor)
        self.generic = generic
        self.size = 0
        self.own = own
        self.in_shared = in_shared
        self.tensor = tensor

    def new(self) -> int:
        """A new component."""
        self.size += 1
        return self.size - 1

    def clock(self) -> Clock:
        """A clock that knows nothing."""
        rows = SHARED if self.generic else self.tensor_row + self.tensor
        return np.zeros(rows * self.size, dtype=np.int64)

    def rows(self, clock: Clock, component: int) -> Clock:
        """What a clock says of a component, row by row: a view of it."""
        return clock[component :: self.size]

    def in_time(self, clock: Clock) -> Clock:
        """Row S of a clock: a view of it."""
        return clock[: self.size]

    def own_row(self, rank: int) -> int:
        """The row of what is visible to the async proxy in the shared memory of this CTA."""
        return ROWS + rank

    @property
    def in_shared_row(self) -> int:
        """The row of what the generic proxy sees in shared memory alone."""
        return ROWS + 2 * self.own

    @property
    def of_owners_row(self) -> int:
        """The same, and of accesses to shared memory by threads of the CTA that has it."""
        return self.in_shared_row + 1

    @property
    def tensor_row(self) -> int:
        """The row of what counts for tensor memory beyond row G."""
        return ROWS + 2 * (self.own + self.in_shared)

    def also(self, row: int, own_row: int, *, of_owner: bool) -> int:
        """Where the row begins about fences for one memory alone (H9), which is ``own_row``, or for
        shared memory (H18), in which what is not known in the one that begins at ``row`` may be
        known; 0 if there is none. ``of_owner``: of an access by a thread of the CTA whose memory it
        is."""
        if self.in_shared and row == self.size:
            return (self.of_owners_row if of_owner else self.in_shared_row) * self.size
        return own_row * self.size if row == SHARED * self.size else 0

    def of_shared(self, clock: Clock) -> Clock:
        """What a clock knows of accesses to shared memory, and of the order of events."""
        known, size = clock.copy(), self.size
        rows = known.reshape(-1, size)
        join(rows[self.in_shared_row], rows[GENERIC])
        join(rows[self.of_owners_row], rows[self.in_shared_row])
        rows[GENERIC] = rows[GLOBAL] = rows[self.tensor_row :] = 0
        return known

    def own_half(self, rank: int) -> int:
        """The row of what a one-way release has begun to hand over there."""
        return ROWS + self.own + rank

    @property
    def begun(self) -> list[tuple[int, int]]:
        """Rows of what a second fence brings, each with that of what a first one began with."""
        if self.generic:
            return []
        own = [(self.own_row(rank), self.own_half(rank)) for rank in range(self.own)]
        in_shared = [self.in_shared_row, self.of_owners_row] if self.in_shared else []
        return [(SHARED, HALF), *own, *((row, GENERIC) for row in in_shared)]


def join(clock: Clock, other: Clock) -> None:
    """``clock`` learns everything ``other`` knows."""
    np.maximum(clock, other, out=clock)


def joined(known: Clock | None, clock: Clock) -> Clock:
    """``known``, which learns what ``clock`` knows, or a copy of that."""
    if known is None:
        return clock.copy()
    join(known, clock)
    return known


def limited(clock: Clock, settled: dict[int, int], size: int) -> Clock:
    """``clock`` with at most the ``settled`` number of every component that is listed there;
    ``size`` is that of its rows."""
    known = clock.copy()
    if len(settled) < _FEW:
        for component, tick in settled.items():
            own = known[component::size]
            np.minimum(own, tick, out=own)
        return known
    rows, components = known.reshape(-1, size), [*settled]
    rows[:, components] = np.minimum(rows[:, components], [*settled.values()])
    return known
