"""Pieces of memory that lanes access, one after the other, wherever the first one is.

Warps and CTAs that execute an instruction access the same pattern at places of their own: which
bytes that are, and whether some of them meet, is worked out once.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.machine.region import Runs, bits_of, merged

#: patterns that are remembered
_REMEMBERED = 4096


class Pattern:
    """Pieces of ``width`` bytes that begin at ``starts``, counted from where the first one does.

    ``low`` and ``high`` enclose them; ``common``: two of them share a byte; ``runs`` and ``bits``
    (that of the byte at ``low`` first) are the bytes. ``name`` is that of the starts.
    """

    def __init__(self, name: bytes, width: int) -> None:
        self.name = name
        self.width = width
        starts = np.frombuffer(name, dtype=np.int64)
        ordered = np.sort(starts)
        self.low, last = int(ordered[0]), int(ordered[-1])
        self.high = last + width
        self.common = bool((ordered[1:] - ordered[:-1] < width).any())
        self._divisor = int(np.gcd.reduce(starts))
        lows, highs = self.runs = merged(ordered, ordered + width)
        self.nbytes = int((highs - lows).sum())

    @cached_property
    def bits(self) -> int:
        """The bytes as a number (`tilesim.sim.machine.region.bits_of`)."""
        return bits_of(self.runs, self.low)

    def starts_from(self, start: int) -> NDArray[np.int64]:
        """Where the pieces begin, if the first one begins at ``start``."""
        return np.frombuffer(self.name, dtype=np.int64) + start

    def runs_from(self, start: int) -> Runs:
        """The bytes, where the first piece begins at ``start``."""
        lows, highs = self.runs
        return lows + start, highs + start

    def aligned(self, start: int, multiple: int) -> bool:
        """Whether all pieces begin at multiples of a number, if the first one is there."""
        return not gcd(start, self._divisor) % multiple

    def fits(self, low: int, nbytes: int) -> bool:
        """Whether its pieces are of so many bytes, and at multiples of that, if the first byte of
        all is at ``low``."""
        return self.width == nbytes and self.aligned(low - self.low, nbytes)


_known = lru_cache(maxsize=_REMEMBERED)(Pattern)


def pattern_of(first: NDArray[np.int64], width: int) -> tuple[int, Pattern]:
    """Where the first of the pieces that begin at ``first`` is, and how all lie from there."""
    start = int(first[0])
    return start, _known((first - start).tobytes(), width)
