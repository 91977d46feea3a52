"""Strong accesses to one location in no order: no race, but the order decides (H2, H6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tilesim.sim.machine.reduction import alike, exact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tilesim.ir.op import Op
    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.core import Core
    from tilesim.sim.machine.counter import Counter
    from tilesim.sim.machine.footprint import Footprint
    from tilesim.sim.machine.storage import Memory

#: what a verdict says of them, between warps and between lanes of one
UNORDERED = "unordered strong accesses to one location"
UNORDERED_LANES = "unordered strong accesses of lanes of one warp to one location"


class WordOrder:
    """Notes where the order of strong accesses may decide what is found in memory.

    It does not where they commute; and of words that count, the conditions on counters say whether
    it does (`tilesim.sim.machine.counter`), in the timed run. Which words of shared memory count is
    known when a wait for one is met: what is said of those without a wait is put off.
    """

    def __init__(self, machine: Core) -> None:
        self._machine = machine
        #: tensors with a word that several lanes of a strong access took turns at
        self.crowded: set[str] = set()
        #: by memory and address: what there is to say if the word does not count
        self._put_off: dict[tuple[int, int], tuple[str, Op, bool]] = {}

    def immaterial(self, footprint: Footprint, access: Access, record: Access) -> bool:
        """Whether the order of two strong accesses to one location decides nothing by itself:
        reductions of one kind commute, but for the rounding of sums that steer nothing; and of two
        that may not be made, it is unknown what they leave, or find, in either order."""
        if access.perhaps is not None and record.perhaps is not None:
            return True
        plan, tensor = self._machine.plan, footprint.tensor
        if self._machine.timed and tensor in plan.counters:
            return True
        if not alike(access.op, record.op):
            return False
        if tensor in plan.flow.steering:
            return exact(access.op)
        self._machine.outcome.rounds |= not exact(access.op)
        return True

    def note(
        self, memory: Memory, footprint: Footprint, access: Access, other: Footprint, record: Access
    ) -> None:
        """Two strong accesses, ``record`` the earlier one, are in no order in memory."""
        if self.immaterial(footprint, access, record):
            return
        machine, counting = self._machine, self._machine.plan.counting
        lanes = record.warp.machine is machine and record.warp.origin is access.warp.origin
        # exploration branches on the order of scalar accesses only, and not of lanes
        explorable = not lanes and (
            alike(access.op, record.op) or not (access.asynchronous or record.asynchronous)
        )
        explorable = explorable and self.crowded.isdisjoint((footprint.tensor, other.tensor))
        what = UNORDERED_LANES if lanes else UNORDERED
        if machine.timed and access.op.number in counting and record.op.number in counting:
            for address in np.intersect1d(footprint.addresses, other.addresses).tolist():
                self._put_off.setdefault((id(memory), address), (what, access.op, explorable))
            return
        machine.nondeterministic(what, access.op, explorable=explorable)

    def settle(self, counters: Mapping[tuple[int, int], Counter]) -> None:
        """At the end of a run: says what was put off, of words for which there was no wait."""
        for key, (what, op, explorable) in self._put_off.items():
            counter = counters.get(key)
            if counter is None or counter.open:
                self._machine.nondeterministic(what, op, explorable=explorable)
