"""Arrivals that may change places: waits need a number of them, whichever they are.

Where condition A fails, an arrival may count for the phase before its own, and another one for its
own instead. That is immaterial if whoever waits learns the same: all that the one publishes is in
what the other one comes after. docs/soundness.md (Arrivals that change places) has the argument.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesim.sim.machine.clock import GENERIC, Clock

if TYPE_CHECKING:
    from tilesim.sim.machine.conditions import Credit, PhaseRecord


def change_places(before: PhaseRecord, credit: Credit, clock: Clock) -> bool:
    """True if an arrival, made with ``clock``, covers each one of the phase ``before`` that it does
    not come after: they may count for each other's phase."""
    if not credit.releases:
        return False
    own, common = credit.component, credit.common
    if any(c.component == own and common < c.tick < credit.tick for c in before.credits):
        return False
    return all(_covers(clock, c) for c in before.credits if clock[c.component] < c.tick)


def _covers(clock: Clock, credit: Credit) -> bool:
    """True if ``clock`` knows everything that an arrival publishes, save the arrival itself."""
    if credit.asynchronous or not credit.releases:
        return False
    assert credit.clock is not None
    published = credit.clock.copy()
    component, size = credit.component, credit.warp.machine.components.size
    done = max(credit.position, credit.moment)
    for entry, last in (component, done), (GENERIC * size + component, credit.position):
        published[entry] = min(published[entry], last)
    return bool((published <= clock).all())
