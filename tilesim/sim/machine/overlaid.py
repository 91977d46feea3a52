"""Who wrote bytes last that several shared allocations have in common."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilesim.sim.machine.footprint import Footprint


class Overlaid:
    """The last writer of every byte of a shared memory, among some allocations that overlap.

    A write counts from its issue on: who reads before it has landed races with it.
    """

    def __init__(self, names: Iterable[str], nbytes: int) -> None:
        self._names = sorted(names)
        self._numbers = {name: i for i, name in enumerate(self._names, 1)}
        self._writers = np.zeros(nbytes, dtype=np.int32)

    def wrote(self, footprint: Footprint) -> None:
        """Notes a write under the name of the footprint's tensor."""
        number = self._numbers.get(footprint.tensor)
        if number is not None:
            for low, high in footprint.bytes.pairs:
                self._writers[low:high] = number

    def others(self, footprint: Footprint) -> list[str]:
        """The allocations, other than the one it belongs to, under whose names its bytes were
        written last."""
        own = self._numbers.get(footprint.tensor)
        if own is None:
            return []
        found: set[int] = set()
        for low, high in footprint.bytes.pairs:
            found.update(np.unique(self._writers[low:high]).tolist())
        return [self._names[number - 1] for number in sorted(found - {0, own})]
