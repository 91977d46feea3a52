"""What a program declares in shared memory, by address."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property

from tilesim.arith.byte_set import ByteSet
from tilesim.ir.memory import Mbarriers
from tilesim.ir.program import Program


@dataclass(frozen=True)
class Allocations:
    """What a program declares in shared memory, by byte: (first, one past the last, name)."""

    spans: tuple[tuple[int, int, str], ...] = ()
    barriers: frozenset[str] = frozenset()

    @staticmethod
    def of(program: Program) -> Allocations:
        """Those of a program, in order."""
        spans = [(program.placement[s.name], s.nbytes, s.name) for s in program.shared]
        return Allocations(
            tuple(sorted((low, low + nbytes, name) for low, nbytes, name in spans)),
            frozenset(s.name for s in program.shared if isinstance(s, Mbarriers)),
        )

    @cached_property
    def bytes(self) -> ByteSet:
        """All that are declared."""
        return ByteSet.union(ByteSet.interval(low, high) for low, high, _ in self.spans)

    def at(self, address: int) -> tuple[int, str] | None:
        """Where the allocation begins that holds a byte, and its name: the smallest one, if several
        do."""
        number = bisect_right(self.spans, (address + 1,))
        holding = [s for s in self.spans[:number] if address < s[1]]
        best = min(holding, key=lambda s: s[1] - s[0], default=None)
        return None if best is None else (best[0], best[2])

    def name(self, address: int) -> str:
        """What findings call a byte: ``buffer+64``."""
        found = self.at(address)
        if found is None:
            return f"byte {address}"
        start, name = found
        slot = self.slot(address)
        return f"{name}+{address - start}" if slot is None else f"{name}[{slot}]"

    def slot(self, address: int) -> int | None:
        """The place in its array of a barrier that is declared; None if it is none."""
        start, name = self.at(address) or (0, "")
        is_one = name in self.barriers and not (address - start) % 8
        return (address - start) // 8 if is_one else None

    def nearest(self, address: int) -> str:
        """The allocation that is next to a byte outside of all, and where it is."""
        low, high, name = min(
            self.spans, key=lambda s: s[0] - address if address < s[0] else address - s[1] + 1
        )
        return f"{name} is at {low:#x}..{high - 1:#x}"
