"""Lanes of a warp that acts as one: only a meeting orders what different ones do (E11)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.race_text import describe, side_of
from tilesim.sim.machine.strength import morally_strong

if TYPE_CHECKING:
    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.footprint import Footprint
    from tilesim.sim.machine.machine import Machine
    from tilesim.sim.machine.memory import Memory


class LaneExchange:
    """Checks accesses of lanes against what other lanes of their warp did since they last met.

    ``raced`` are footprints in races, which it extends.
    """

    def __init__(self, machine: Machine, raced: set[Footprint]) -> None:
        self._machine = machine
        self._raced = raced
        #: by both footprints and their lanes: two lanes that share a byte
        self._known: dict[tuple[Footprint, Footprint, int, int], tuple[int, int] | None] = {}

    def check(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """Reports the earlier accesses that other lanes made and no meeting orders.

        The earlier ones are of the warp as one; what parts of it did has clocks of its own.
        """
        warp = access.warp
        if not access.each:
            return
        for other in footprint.overlaps:
            for record in (*other.writes, *other.reads.values()):
                recent = record.warp is warp and record.component == warp.base
                if not recent or record.tick <= warp.synced or not record.each:
                    continue
                if not (access.write or record.write):
                    continue
                if morally_strong(access, record) and footprint.same_elements(other):
                    continue
                self._exchange(memory, footprint, access, other, record)

    def _exchange(
        self, memory: Memory, footprint: Footprint, access: Access, other: Footprint, record: Access
    ) -> None:
        key = (footprint, other, access.lanes, record.lanes)
        if key not in self._known:
            strict = self._machine.options.ptx
            self._known[key] = exchanged(access, footprint, record, other, strict=strict)
        lanes = self._known[key]
        if lanes is None:
            return
        self._raced.update((footprint, other))
        self._machine.report(
            "race",
            f"{describe(access)} {footprint.name} and nothing orders it after "
            f"{describe(record, noun=True)} {other.name}",
            (side_of(access, footprint), side_of(record, other)),
            (
                f"memory: {memory.label}",
                f"lane {lanes[1]} touches what lane {lanes[0]} touched before: a bar.warp.sync is "
                "missing between (E11)",
            ),
            fix="let the lanes meet (bar.warp.sync) between the two",
        )


def exchanged(
    access: Access, footprint: Footprint, record: Access, other: Footprint, *, strict: bool
) -> tuple[int, int] | None:
    """A lane of a record and another lane of a later access of the same warp that share a byte.

    Not ``strict``: a lane that touched the byte in the record as well relies on its own order.
    None also where it is not known which lane touches what.
    """
    earlier, later = _by_lane(record, other), _by_lane(access, footprint)
    if earlier is None or later is None:
        return None
    (before, low, high), (after, first, last) = earlier, later
    shared = (low[:, None] < last) & (first < high[:, None])
    own = before[:, None] == after
    if not strict:
        shared &= ~(shared & own).any(axis=0)
    found = np.argwhere(shared & ~own)
    return None if not len(found) else (int(before[found[0, 0]]), int(after[found[0, 1]]))


_Extents = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def _by_lane(access: Access, where: Footprint) -> _Extents | None:
    """The lanes of an access, and of each the first byte and the one after the last."""
    lanes = np.flatnonzero(mask_array(access.lanes))
    addresses = where.addresses.ravel()
    if addresses.size % lanes.size:
        return None
    rows = addresses.reshape(lanes.size, -1)
    return lanes, rows.min(axis=1), rows.max(axis=1) + where.itemsize
