"""Lanes of one warp that nothing orders are agents of their own: what one order of them shows.

The machine takes the lanes of a warp in the order of the text, and those of one instruction in one
move. Between two lanes of a warp no more order exists than between two warps: `in_order` is the one
question for that in time, `Part.settled` (`tilesim.sim.observers.lane_races`) the same in memory.
The timed run asks it in each condition, and what fails it is a reason. An exploration, whose moves
have one order of the lanes, exhausts nothing where that order is none and anything depends on an
order (docs/soundness.md, "Lanes").
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.result import Outcome
    from tilesim.sim.machine.warp import Agent


def in_order(warp: Agent, component: int, tick: int, lanes: int) -> bool:
    """Whether each lane of ``warp`` that acts comes, in time, after what all ``lanes`` of this warp
    did at a position: by program order, or by what orders lanes (E11, E19, E20; A27)."""
    if warp.spread is None:
        return comes_after(warp, warp.component, warp.clock, component, tick, lanes)
    return all(
        comes_after(warp, part.component, part.clock, component, tick, lanes)
        for part in warp.spread
    )


def comes_after(
    warp: Agent, own: int, clock: Clock, component: int, tick: int, lanes: int
) -> bool:  # fmt: skip
    """The same for the part at component ``own`` that has this clock."""
    if component == own:
        alone = warp.mask & (warp.mask - 1) == 0 and lanes == warp.mask
        return alone or warp.common >= tick
    return warp.is_known(clock, 0, component, tick, lanes)


class LaneOrder:
    """Whether the moves of one explored schedule show all orders of what happens in it.

    They do not if events of different lanes of a warp are in no order, as the moves have them in
    one (they are *loose*), and anything depends on an order (it is *contended*). Where all lanes of
    a warp act as one, or some between two meetings of all, its events are in order.
    """

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._loose = self._contended = False
        #: by warp: events that some lanes of it do not yet come after, by component and lanes the
        #: position of the last one (what comes after that comes after the earlier ones)
        self._open: dict[int, dict[tuple[int, int], int]] = {}

    def acts(self, warp: Agent) -> None:
        """The active lanes of ``warp`` do what others can see."""
        if warp.parts is None or self._loose:
            return
        known = self._open.setdefault(warp.index, {})
        unknown = {
            (component, lanes): tick
            for (component, lanes), tick in known.items()
            if not in_order(warp, component, tick, lanes)
        }
        if warp.spread is not None or any(lanes != warp.mask for _, lanes in unknown):
            self._loose = True
            self._judge()
        left = unknown if warp.mask == warp.live_mask else known
        left[warp.component, warp.mask] = warp.clock.item(warp.component)
        self._open[warp.index] = left

    def contend(self) -> None:
        """Something depends on an order that nothing makes."""
        self._contended = True
        self._judge()

    def _judge(self) -> None:
        if self._loose and self._contended:
            self._outcome.explorable = False
