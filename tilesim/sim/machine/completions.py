"""What asynchronous accesses that are complete tell of those that they came after (A28)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilesim.arith.byte_set import ByteSet

if TYPE_CHECKING:
    from tilesim.sim.machine.access import Access, Touched
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.footprint import Footprint
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.memory import Memory

#: remembered answers about bytes that completed accesses vouch for
_VOUCHED = 4096


class Completions:
    """An asynchronous access publishes itself alone when it completes, not what its issuer knew.

    Yet what it came after on its own bytes is over by then: what comes after an asynchronous write
    sees nothing older there, and a stage that TMA has filled and an mma has read may be filled
    again after tcgen05.commit. Bytes that were not touched are not handed back.
    """

    def __init__(self, machine: Core) -> None:
        self._machine = machine
        #: by the bytes of an access, those of an earlier one, and those touched in between
        self._vouched: dict[tuple[Footprint, Footprint, tuple[Touched, ...]], bool] = {}

    @staticmethod
    def note_write(footprint: Footprint, write: Access, unordered: list[Footprint]) -> None:
        """An asynchronous write comes after the records there are; it does not replace all."""
        if write.scope is None and len(footprint.covers) == len(footprint.overlaps):
            return
        for other in footprint.overlaps:
            if other not in unordered:
                for record in (*other.writes, *other.reads.values()):
                    record.precedes(write, footprint)

    @staticmethod
    def note_part(footprint: Footprint, write: Access, unordered: list[Footprint]) -> None:
        """A write of a thread comes after asynchronous accesses to more than it writes: on its own
        bytes, what comes after it sees nothing of them."""
        for other in footprint.overlaps:
            if other not in unordered and other not in footprint.covers:
                for record in (*other.writes, *other.reads.values()):
                    if record.asynchronous:
                        record.precedes(write, footprint)

    def over(
        self, memory: Memory, footprint: Footprint, other: Footprint, record: Access,
        rows: dict[tuple[bool, bool], int], clock: Clock, *, writes: bool,
    ) -> bool:  # fmt: skip
        """Whether ``record`` is known through accesses that came after it to all bytes that it
        shares with an access to ``footprint``, which ``writes``: only then reads count as well.

        ``rows`` are those of the accessor's clock by kind of access; fences for this ``memory``
        alone have one of their own.
        """
        also = self._machine.components.also

        def knows(at: int, access: Access) -> bool:
            row = rows[access.asynchronous, access.write]
            own = also(row, memory.own_row)
            known = clock[row + at] >= access.tick
            return bool(known or (own and clock[own + at] >= access.tick))

        later = (record.later or {}).items()
        known = tuple(
            part for (at, part), access in later if (writes or access.write) and knows(at, access)
        )
        if not known:
            return False
        key = (footprint, other, known)
        answer = self._vouched.get(key)
        if answer is None:
            if len(self._vouched) >= _VOUCHED:
                self._vouched.clear()
            vouched = ByteSet.union(part.bytes for part in known)
            answer = self._vouched[key] = vouched.contains(footprint.bytes & other.bytes)
        if answer:
            self._note_bridged(record, rows, clock)
        return answer

    def _note_bridged(
        self, record: Access, rows: dict[tuple[bool, bool], int], clock: Clock
    ) -> None:
        """What would not be known if cp.async were not taken to write through both proxies."""
        unfenced = rows[False, True]
        for (at, _), access in (record.later or {}).items():
            if (record.bridged and not access.asynchronous) or (
                access.bridged and clock[unfenced + at] < access.tick
            ):
                self._machine.lean("U14", record.op, access.op)
