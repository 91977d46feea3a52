"""Stores of data that nobody knows, told apart by what it is made of (SEMANTICS H23)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.effects import Gathers
from tilesim.ir.op import Rearranges
from tilesim.sim.machine.access import EVERY, ONE_OF_SEVERAL, Left
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
    """Knows besides what the stores in `Facts.named` leave.

    Two stores leave the same where lanes store to one address what they have loaded from the same
    addresses in the same way, and nothing was written there in between. What is made of what other
    lanes have is told of whole warps only.
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
        every = [m for made in named.values() for m in (made, made.behind) if m is not None]
        self._loads = frozenset(n for made in every for n in made.loads)
        #: by bytes: how often some of them have been written
        self._versions: dict[Footprint, int] = {}
        self._written: set[Memory] = set()
        #: by warp and instruction: what its lanes have loaded the last time
        self._loaded: dict[tuple[Agent, int], _Loaded] = {}
        #: what can be told apart, as numbers from 1 on
        self._numbers: dict[Hashable, int] = {}

    def read(
        self, memory: Memory, footprint: Footprint, access: Access, clock: Clock,
        *, again: bool = False,
    ) -> None:  # fmt: skip
        """See `RaceDetector.read`."""
        number = access.op.number
        if number in self._loads:
            loaded = self._loaded.setdefault((access.warp, number), _Loaded())
            lanes = mask_array(access.lanes)
            loaded.contents[lanes] = 0
            # once addresses stand for any in a tensor, one does not tell what is read there
            placed = not self.machine.outcome.in_bounds and access.among != EVERY
            if placed and (memory.mbarriers is not None or not memory.tracked):
                self._note(loaded, lanes, memory, footprint, access)
        super().read(memory, footprint, access, clock, again=again)

    def _note(
        self, loaded: _Loaded, lanes: NDArray[np.bool_], memory: Memory, footprint: Footprint,
        access: Access,
    ) -> None:  # fmt: skip
        """What each lane loads; of instructions in which lanes load for each other only what all
        of them load."""
        starts = _starts(footprint, access)
        of: Hashable = memory
        if starts is None or memory in self._written:
            of = footprint, self._versions.get(footprint, 0)
        loaded.addresses[lanes] = 0 if starts is None else starts
        loaded.contents[lanes] = self._numbers.setdefault(of, len(self._numbers) + 1)

    def write(self, memory: Memory, footprint: Footprint, access: Access, clock: Clock) -> None:
        """See `RaceDetector.write`."""
        made = self.machine.plan.named.get(access.op.number)
        if made is not None and access.stored is None:
            access.stored = self._name(made, footprint, access)
        self._written.add(memory)
        for other in footprint.overlaps:
            self._versions[other] = self._versions.get(other, 0) + 1
        super().write(memory, footprint, access, clock)

    def _name(self, made: MadeOf, footprint: Footprint, access: Access) -> Hashable:
        """What a store leaves; None if that is not known."""
        gathers = _gathers(access)
        lanes = mask_array(FULL if gathers else access.lanes)
        of = self._columns(made, access, lanes)
        if of is None and made.behind is not None:
            made = made.behind
            of = self._columns(made, access, lanes)
        if of is None or (access.warp.mask != FULL and not gathers and not made.by_lane):
            return None
        starts = _starts(footprint, access)
        if made.by_lane and starts is not None:
            return _by_place(footprint, starts, of)
        if footprint.common and not (made.by_lane and _agree(footprint, access, of)):
            return ONE_OF_SEVERAL
        return footprint, of.shape, of.tobytes()

    def _columns(
        self, made: MadeOf, access: Access, lanes: NDArray[np.bool_]
    ) -> NDArray[np.int64] | None:
        """A row for each of these lanes: equal rows, equal data; None if that is not known."""
        columns: list[NDArray[np.int64]] = [np.full(32, made.behind is None)]
        for number in made.loads:
            loaded = self._loaded.get((access.warp, number))
            if loaded is None or not loaded.contents[lanes].all():
                return None
            columns += [loaded.addresses, loaded.contents]
        for name in made.registers:
            value = _lanes(access.warp.registers[self.machine.plan.slots[name]])
            if value is None:
                return None
            columns.append(value)
        if len(columns) == 1 and not made.by_lane:
            return None
        return np.stack(columns, axis=1).astype(np.int64)[lanes]


class _Loaded:
    """What the lanes of a warp have loaded by an instruction: from which address, and a number for
    what memory held then; 0 if that is not known."""

    __slots__ = ("addresses", "contents")

    def __init__(self) -> None:
        self.addresses = np.zeros(32, dtype=np.int64)
        self.contents = np.zeros(32, dtype=np.int64)


def _gathers(access: Access) -> bool:
    return any(isinstance(effect, Gathers) for effect in access.op.effects())


def _starts(footprint: Footprint, access: Access) -> NDArray[np.int64] | None:
    """Where what each lane accesses begins; None if lanes do not access each its own."""
    count = access.lanes.bit_count()
    if _gathers(access) or footprint.addresses.size % count:
        return None
    return footprint.addresses.reshape(count, -1)[:, 0]


def _by_place(footprint: Footprint, starts: NDArray[np.int64], of: NDArray[np.int64]) -> Hashable:
    """What lanes leave, each at its place, if those at one place leave the same; None if pieces
    may overlap in part."""
    if (starts % (footprint.itemsize * (footprint.addresses.size // len(starts)))).any():
        return None
    left: dict[int, bytes] = {}
    for start, row in zip(starts.tolist(), of, strict=True):
        if left.setdefault(start, row.tobytes()) != row.tobytes():
            return ONE_OF_SEVERAL
    return Left(left)


def _agree(footprint: Footprint, access: Access, of: NDArray[np.int64]) -> bool:
    """Whether lanes of ``stmatrix`` that store rows to one place store the same there.

    The rows are of what all lanes have; here that is numbers which tell by their halves what they
    are made of, and in which matrix.
    """
    if not isinstance(access.op, Rearranges):
        return False
    _, alike = np.unique(of, axis=0, return_inverse=True)
    halves = [2 * (alike.reshape(32) + 32 * i) for i in range(access.op.count)]
    rows = access.op.rows([low | (low + 1) << 16 for low in halves])[mask_array(access.lanes)]
    first: dict[int, bytes] = {}
    starts = footprint.addresses.reshape(len(rows), -1)[:, 0]
    return all(
        first.setdefault(start, row.tobytes()) == row.tobytes()
        for start, row in zip(starts.tolist(), rows, strict=True)
    )


def _lanes(value: Any) -> NDArray[np.int64] | None:
    """What a register holds in each lane; None if that is not known."""
    if value is None or type(value) is Unknown:
        return None
    held = mask_array(value.bits) if type(value) is Lanes else value
    return np.broadcast_to(held, 32).astype(np.int64)
