"""The last phases of a barrier, which nobody waits for: which arrival ends which is immaterial."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilesim.sim.machine.conditions import PhaseRecord

if TYPE_CHECKING:
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.conditions import Credit


class Tail:
    """The phases from the one before the first in doubt (condition A) to the end of the run.

    An arrival of the tail may count for any phase of it, and nobody can tell, as long as

    * no wait passes on one of these phases,
    * every arrival comes after all credits of the phase before the tail (``last``), so that none
      counts for an earlier phase,
    * no wait for ``last`` can miss it: the arrivals that need not come after that wait are too few
      to end a phase. Waits for earlier phases are before a credit of ``last`` (condition C2).

    ``count`` arrivals end a phase; ``done`` is the barrier's component once ``last`` is over.
    """

    def __init__(self, component: int, done: int, last: PhaseRecord, count: int) -> None:
        self.hidden = True
        #: lanes arrive while others of them may still wait: no move of the machine shows it
        self.lags = False
        self._component = component
        self._done = done
        self._last = last
        self._count = count
        self._early = [0] * len(last.waits)

    def extend(self, credits: Iterable[Credit]) -> None:
        """Adds the credits of a phase, with the clocks they were made with."""
        for credit in credits:
            assert credit.clock is not None
            self.add(credit, credit.clock)

    def add(self, credit: Credit, clock: Clock) -> None:
        """Adds arrivals that come after what ``clock`` knows."""
        arrivals, component, common = credit.arrivals, credit.component, credit.common
        if (
            clock[self._component] < self._done
            and self._last.unknown_to(clock, component, common) is not None
        ):
            self.hidden = False
        for number, wait in enumerate(self._last.waits):
            free = 0
            if clock[wait.component] < wait.tick:
                free = arrivals
            elif wait.component == component and common < wait.tick:
                # each lane comes after its own look, not after those of the others
                free = arrivals - arrivals // credit.lanes
                self.lags = True
            if free:
                self._early[number] += free
                self.hidden = self.hidden and self._early[number] < self._count
