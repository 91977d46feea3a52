"""Stores of data that nobody knows, told apart by what it is made of (SEMANTICS H23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilesim.ir.effects import Gathers
from tilesim.ir.op import Rearranges
from tilesim.sim.machine.access import ONE_OF_SEVERAL
from tilesim.sim.machine.lanes import FULL, Lanes, mask_array
from tilesim.sim.machine.races import RaceDetector
from tilesim.sim.machine.unknown import Unknown

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.agent import Agent
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.core import Core
    from tilesim.sim.machine.facts import MadeOf
    from tilesim.sim.machine.footprint import Footprint
    from tilesim.sim.machine.storage import GlobalMemory, Memory
    from tilesim.sim.machine.tickets import Tickets


class NamingDetector(RaceDetector):
    """Knows besides what the stores in `Facts.named` leave, where a whole warp executes them, or
    lanes that store one vector of constants.

    Two warps leave the same if they store to the same addresses, lane by lane, what they have
    loaded from the same addresses in the same way, and nothing was written there in between.
    """

    def __init__(
        self,
        machine: Core,
        warps: Sequence[Agent],
        shared: Sequence[Memory],
        global_: GlobalMemory,
        tickets: Tickets,
    ) -> None:
        super().__init__(machine, warps, shared, global_, tickets)
        named = machine.plan.named
        self._loads = frozenset(n for made in named.values() for n in made.loads)
        #: by bytes: how often some of them have been written
        self._versions: dict[Footprint, int] = {}
        #: by warp and instruction: what it has loaded the last time
        self._loaded: dict[tuple[Agent, int], Hashable] = {}

    def read(
        self, memory: Memory, footprint: Footprint, access: Access, clock: Clock,
        *, again: bool = False,
    ) -> None:  # fmt: skip
        """See `RaceDetector.read`."""
        number = access.op.number
        if number in self._loads:
            whole = access.warp.mask == FULL
            known = whole and (memory.mbarriers is not None or not memory.tracked)
            what = (footprint, self._versions.get(footprint, 0)) if known else None
            self._loaded[access.warp, number] = what
        super().read(memory, footprint, access, clock, again=again)

    def write(self, memory: Memory, footprint: Footprint, access: Access, clock: Clock) -> None:
        """See `RaceDetector.write`."""
        made = self.machine.plan.named.get(access.op.number)
        if made is not None and access.stored is None:
            access.stored = self._name(made, footprint, access)
        for other in footprint.overlaps:
            self._versions[other] = self._versions.get(other, 0) + 1
        super().write(memory, footprint, access, clock)

    def _name(self, made: MadeOf, footprint: Footprint, access: Access) -> Hashable:
        """What a store leaves: equal names, equal data; None if that is not known."""
        if made.constants == footprint.nbytes:
            return footprint.low, footprint.high  # of any lanes: all of them store to one place
        warp, collective = access.warp, any(isinstance(e, Gathers) for e in access.op.effects())
        if warp.mask != FULL and not collective:
            return None
        loaded = [self._loaded.get((warp, number)) for number in made.loads]
        slots = self.machine.plan.slots
        values = [_lanes(warp.registers[slots[name]]) for name in made.registers]
        if None in loaded or None in values:
            return None
        if footprint.common and not (made.by_lane and _agree(footprint, access, loaded, values)):
            return ONE_OF_SEVERAL
        return footprint, *loaded, *values


def _agree(
    footprint: Footprint, access: Access, loaded: Sequence[Any], values: Sequence[bytes | None]
) -> bool:
    """Whether lanes that store to one place store the same there: what is made of the same.

    The lanes of ``stmatrix`` store rows of what all lanes have; here that is numbers which tell by
    their halves what they are made of, and in which matrix.
    """
    columns = [of.addresses.reshape(32, -1)[:, 0] for of, _ in loaded]
    columns += [np.frombuffer(value, dtype=np.int64) for value in values if value is not None]
    if not columns:
        return False
    _, alike = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    rows = alike.reshape(32, 1)
    if isinstance(access.op, Rearranges):
        halves = [2 * (alike.reshape(32) + 32 * i) for i in range(access.op.count)]
        rows = access.op.rows([low | (low + 1) << 16 for low in halves])
    elif any(isinstance(e, Gathers) for e in access.op.effects()):
        return False
    rows = rows[mask_array(access.lanes)]
    first: dict[int, bytes] = {}
    starts = footprint.addresses.reshape(len(rows), -1)[:, 0]
    return all(
        first.setdefault(start, row.tobytes()) == row.tobytes()
        for start, row in zip(starts.tolist(), rows, strict=True)
    )


def _lanes(value: Any) -> bytes | None:
    """What a register holds in each lane; None if that is not known."""
    if value is None or type(value) is Unknown:
        return None
    held = mask_array(value.bits) if type(value) is Lanes else value
    return np.broadcast_to(held, 32).astype(np.int64).tobytes()
