"""The memory of a program: what it has allocated, and of which bytes it is known what they are.

A kernel may write to whatever it can reach, and is not run: what it may have written is not known
until the program writes it again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable

from tilesim.records import dataclass, field

#: contents of larger buffers are data; they are not written down
LARGEST_KNOWN = 16 << 10
#: larger buffers are not searched for pointers
_LARGEST_SEARCHED = 1 << 20
DEVICE, MANAGED, HOST = range(3)


@dataclass
class Allocation:
    """Memory that a kernel may use. ``known``: ranges of offsets that only the host has written
    since the last kernel that could reach it."""

    base: int
    size: int
    kind: int
    known: list[tuple[int, int]] = field(default_factory=list)

    def write(self, start: int, stop: int) -> None:
        """Known from here on."""
        self._set(start, stop, known=True)

    def forget(self, start: int = 0, stop: int | None = None) -> None:
        """Not known any more."""
        self._set(start, self.size if stop is None else stop, known=False)

    def _set(self, start: int, stop: int, *, known: bool) -> None:
        kept = []
        for low, high in self.known:
            if known and low <= stop and start <= high:
                start, stop = min(low, start), max(high, stop)
            elif high <= start or stop <= low or known:
                kept.append((low, high))
            else:
                kept += ((a, b) for a, b in ((low, start), (stop, high)) if a < b)
        self.known = [*kept, (start, stop)] if known else kept

    def knows(self, start: int, stop: int) -> bool:
        """Whether all of a range is known."""
        return any(low <= start and stop <= high for low, high in self.known)


class Memory:
    """All allocations; addresses are those of the program."""

    def __init__(self) -> None:
        self._all: dict[int, Allocation] = {}
        self._bases: list[int] = []

    def allocate(self, base: int, size: int, kind: int) -> None:
        """Memory that nothing is known of."""
        self._all[base] = Allocation(base, size, kind)
        self._bases = sorted(self._all)

    def free(self, base: int) -> Allocation | None:
        """What was there; None: nothing."""
        found = self._all.pop(base, None)
        self._bases = sorted(self._all)
        return found

    def at(self, address: int) -> Allocation | None:
        """The allocation that an address points into, or to the end of."""
        place = bisect_right(self._bases, address) - 1
        if place < 0:
            return None
        found = self._all[self._bases[place]]
        return found if address <= found.base + found.size else None

    def copied(self, to: int, source: int, size: int) -> None:
        """The host has written ``size`` bytes, from the memory at ``source`` (0: of its own)."""
        target = self.at(to)
        if target is None or target.kind != DEVICE:
            return
        start, origin = to - target.base, self.at(source) if source else None
        known = origin is None or origin.kind != DEVICE
        if origin is not None and not known:
            known = origin.knows(source - origin.base, source - origin.base + size)
        (target.write if known else target.forget)(start, start + size)

    def addresses_in(self, data: bytes) -> dict[int, tuple[Allocation, int]]:
        """By number of an aligned word of these bytes that is an address: what it points into, and
        the byte there."""
        words = array("Q", data[: len(data) // 8 * 8])
        if not self._bases:
            return {}
        first, last = self._bases[0], self._bases[-1] + self._all[self._bases[-1]].size
        inside = ((k, word) for k, word in enumerate(words) if first <= word <= last)
        found = ((k, word, self.at(word)) for k, word in inside)
        return {k: (one, word - one.base) for k, word, one in found if one is not None}

    def reachable(
        self, start: Iterable[Allocation], read: Callable[[int, int], bytes]
    ) -> list[Allocation]:
        """These allocations and those that pointers in them lead to."""
        found: dict[int, Allocation] = {}
        waiting = list(start)
        while waiting:
            one = waiting.pop()
            if one.base in found:
                continue
            found[one.base] = one
            if one.known and one.size <= _LARGEST_SEARCHED:
                named = self.addresses_in(read(one.base, one.size))
                waiting += (other for other, _ in named.values())
        return list(found.values())

    def contents(self, one: Allocation, read: Callable[[int, int], bytes]) -> bytes | None:
        """What an allocation holds, if it is known and not large."""
        known = one.size <= LARGEST_KNOWN and one.knows(0, one.size)
        return read(one.base, one.size) if known else None
