"""Sets of bytes that instructions touch, interned per memory so that overlap is computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.machine.access import Access

#: per dimension [low, high) of a box of one tensor
Box = tuple[tuple[int, int], ...]


@dataclass(eq=False, slots=True)
class Footprint:
    """A set of bytes of one memory, with the accesses that are still relevant to it.

    ``addresses`` are element byte addresses; a ``box`` of ``tensor`` gives exact overlap without
    looking at bytes. ``overlaps`` are all footprints sharing a byte (itself included); ``covers``
    those of them that lie inside this one. ``start`` is the address of the first element before
    swizzling, which is what alignment rules are about.
    """

    name: str
    tensor: str
    box: Box | None
    addresses: NDArray[np.int64]
    itemsize: int
    low: int
    high: int
    start: int = 0
    overlaps: list[Footprint] = field(default_factory=list)
    covers: list[Footprint] = field(default_factory=list)
    writes: list[Access] = field(default_factory=list)
    reads: dict[Hashable, Access] = field(default_factory=dict)
    barriers: tuple[int, ...] = ()
    initialised: bool = False
    _mask: int | None = None

    @property
    def mask(self) -> int:
        """The bytes as bits, bit 0 being byte ``low``."""
        if self._mask is None:
            self._mask = byte_mask(self.addresses, self.itemsize, self.low, self.high)
        return self._mask

    @property
    def absolute_mask(self) -> int:
        """The bytes as bits, bit 0 being byte 0 of the memory."""
        return self.mask << self.low

    def meets(self, other: Footprint) -> bool:
        """True if the two share a byte."""
        if self.high <= other.low or other.high <= self.low:
            return False
        if self.box is not None and other.box is not None and self.tensor == other.tensor:
            return all(
                a < d and c < b for (a, b), (c, d) in zip(self.box, other.box, strict=True)
            )
        start = max(self.low, other.low)
        return bool(self.mask >> (start - self.low) & other.mask >> (start - other.low))

    def contains(self, other: Footprint) -> bool:
        """True if every byte of ``other`` is in this footprint."""
        if other.low < self.low or self.high < other.high:
            return False
        if self.box is not None and other.box is not None and self.tensor == other.tensor:
            return all(
                a <= c and d <= b for (a, b), (c, d) in zip(self.box, other.box, strict=True)
            )
        return not other.mask & ~(self.mask >> (other.low - self.low))


def byte_mask(addresses: NDArray[np.int64], itemsize: int, low: int, high: int) -> int:
    """Bits ``address - low + 0..itemsize-1`` of every address."""
    touched = np.zeros(high - low, dtype=np.uint8)
    offsets = addresses.ravel() - low
    for byte in range(itemsize):
        touched[offsets + byte] = 1
    return int.from_bytes(np.packbits(touched, bitorder="little").tobytes(), "little")


class FootprintTable:
    """The footprints of one memory (a CTA's shared memory, or global memory of one tensor)."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.barrier_addresses: set[int] = set()
        self.initialised_bytes = 0
        self._known: dict[Hashable, Footprint] = {}
        self._all: list[Footprint] = []

    def get(self, key: Hashable, make: Callable[[], Footprint]) -> Footprint:
        """The footprint for ``key``, made and related to all others on first use."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = make()
            self._relate(known)
        return known

    def _relate(self, new: Footprint) -> None:
        new.overlaps.append(new)
        new.covers.append(new)
        for other in self._all:
            if new.meets(other):
                new.overlaps.append(other)
                other.overlaps.append(new)
                if new.contains(other):
                    new.covers.append(other)
                if other.contains(new):
                    other.covers.append(new)
        self._all.append(new)
        if self.barrier_addresses:
            bits = new.absolute_mask
            new.barriers = tuple(a for a in sorted(self.barrier_addresses) if bits >> a & 0xFF)

    def note_write(self, footprint: Footprint) -> None:
        """Records that the bytes now hold something."""
        if not footprint.initialised:
            footprint.initialised = True
            self.initialised_bytes |= footprint.absolute_mask

    def is_initialised(self, footprint: Footprint) -> bool:
        """True if every byte has been written."""
        if not footprint.initialised:
            missing = footprint.absolute_mask & ~self.initialised_bytes
            footprint.initialised = not missing
        return footprint.initialised
