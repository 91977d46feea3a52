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
    from tilesim.sim.machine.mbarrier import Mbarrier


def change_places(before: PhaseRecord, credit: Credit, clock: Clock) -> bool:
    """True if an arrival, made with ``clock``, covers each one of the phase ``before`` that it does
    not come after: they may count for each other's phase."""
    if not credit.releases:
        return False
    return all(_covers(clock, c) for c in before.credits if clock[c.component] < c.tick)


def _covers(clock: Clock, credit: Credit) -> bool:
    """True if ``clock`` knows everything that an arrival publishes, save the arrival itself."""
    if credit.asynchronous or not credit.releases:
        return False
    assert credit.clock is not None
    published = credit.clock.copy()
    component, size = credit.component, credit.warp.machine.components.size
    for entry in (component, GENERIC * size + component):
        published[entry] = min(published[entry], credit.position)
    return bool((published <= clock).all())


def may_change_places(barrier: Mbarrier) -> bool:
    """True if nobody can tell which of its arrivals have counted for a phase, once they are enough.

    They then are all alike, each of them releases, and their number alone decides: no bytes, no
    drops, no .noComplete, no tokens, one life. Every wait acquires, and knows of the phase before
    by having waited for it (``Mbarrier.by_count``). And the CTA outlives the arrivals of others.
    """
    return barrier.counts_only and barrier.by_count and barrier.base == 0 and _outlives(barrier)


def _outlives(barrier: Mbarrier) -> bool:
    """True if no arrival of another CTA can come after the end of the barrier's (D9)."""
    warps = barrier.cta.warps
    if not barrier.current.credits and any(
        w.clock[barrier.component] >= barrier.phase for w in warps
    ):
        return True
    return all(
        any(w.clock[sender] > tick for w in warps) for sender, tick in barrier.senders.items()
    )
