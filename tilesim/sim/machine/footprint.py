"""Sets of bytes that instructions touch, interned per memory so that overlap is computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.machine.access import Access

#: per dimension [low, high) of a box of one tensor
Box = tuple[tuple[int, int], ...]


class Footprint:
    """A set of bytes of one memory, with the accesses that are still relevant to it.

    ``addresses`` are element byte addresses, given or computed on first use; a ``box`` of
    ``tensor`` gives exact overlap without looking at them. ``low`` and ``high`` bound the bytes
    (not tightly under a swizzle). ``start`` is the address of the first element before swizzling,
    which is what alignment rules are about. ``overlaps`` are all footprints sharing a byte
    (itself included); ``covers`` those of them that lie inside this one.
    """

    __slots__ = (
        "_addresses", "_mask", "barriers", "box", "covers", "high", "initialised", "itemsize",
        "low", "name", "overlaps", "reads", "start", "tensor", "writes",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        tensor: str,
        box: Box | None,
        addresses: NDArray[np.int64] | Callable[[], NDArray[np.int64]],
        itemsize: int,
        low: int,
        high: int,
        start: int = 0,
    ) -> None:
        self.name = name
        self.tensor = tensor
        self.box = box
        self._addresses = addresses
        self.itemsize = itemsize
        self.low = low
        self.high = high
        self.start = start
        self.overlaps: list[Footprint] = []
        self.covers: list[Footprint] = []
        self.writes: list[Access] = []
        self.reads: dict[Hashable, Access] = {}
        self.barriers: tuple[int, ...] = ()
        self.initialised = False
        self._mask: int | None = None

    @property
    def addresses(self) -> NDArray[np.int64]:
        """Byte address of every element, in the shape of the box."""
        if not isinstance(self._addresses, np.ndarray):
            self._addresses = self._addresses()
        return self._addresses

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
            return all(a < d and c < b for (a, b), (c, d) in zip(self.box, other.box, strict=True))
        start = max(self.low, other.low)
        return bool(self.mask >> (start - self.low) & other.mask >> (start - other.low))

    def contains(self, other: Footprint) -> bool:
        """True if every byte of ``other`` is in this footprint."""
        if self.box is not None and other.box is not None and self.tensor == other.tensor:
            return all(
                a <= c and d <= b for (a, b), (c, d) in zip(self.box, other.box, strict=True)
            )
        shift = other.low - self.low
        mine = self.mask >> shift if shift >= 0 else self.mask << -shift
        return not other.mask & ~mine


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
        self._initialised = 0
        self._written: list[Footprint] = []
        #: shortcut from (view, run-time offset) to footprint, for views with one moving offset
        self.by_view: dict[tuple[int, int], Footprint] = {}
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
        near = [a for a in self.barrier_addresses if a < new.high and new.low < a + 8]
        if near:
            bits = new.absolute_mask
            new.barriers = tuple(a for a in sorted(near) if bits >> a & 0xFF)

    def note_write(self, footprint: Footprint) -> None:
        """Records that the bytes now hold something."""
        if not footprint.initialised:
            footprint.initialised = True
            self._written.append(footprint)

    def is_initialised(self, footprint: Footprint) -> bool:
        """True if every byte has been written."""
        if any(o.initialised and footprint in o.covers for o in footprint.overlaps):
            footprint.initialised = True
        elif self._written:
            bits = 0
            for written in self._written:
                bits |= written.absolute_mask
            self._initialised |= bits
            self._written.clear()
        if not footprint.initialised:
            footprint.initialised = not footprint.absolute_mask & ~self._initialised
        return footprint.initialised
