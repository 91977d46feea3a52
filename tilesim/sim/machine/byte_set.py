"""A set of bytes of one memory, as elements of a tensor."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.machine.pattern import Pattern
from tilesim.sim.machine.region import (
    Runs,
    Spans,
    bits_of,
    meet,
    runs_meet,
    runs_of,
    runs_within,
    within,
)

#: sets that lie within so many bytes are compared as numbers, bit by bit
_SMALL = 1 << 16


class ByteSet:
    """The bytes that an instruction touches; ``name`` is for reports.

    ``addresses`` are element byte addresses, given or computed on first use. ``spans`` are the
    element indices per dimension if the set is a box of ``tensor`` and the elements of that share
    no bytes: two such boxes are compared without looking at bytes. ``runs`` are the bytes, exactly.
    ``low`` and ``high``, given as ``bounds``, enclose them (not tightly under a swizzle).
    ``pattern``: what they are wherever ``low`` is, if that is known.
    """

    __slots__ = (
        "_addresses", "_bits", "_cells", "_nbytes", "_runner", "_runs", "high", "itemsize", "low",
        "name", "pattern", "spans", "tensor",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        tensor: str,
        addresses: NDArray[np.int64] | Callable[[], NDArray[np.int64]],
        itemsize: int,
        bounds: tuple[int, int],
        spans: Spans | None,
        runner: Callable[[], Runs] | None,
        pattern: Pattern | None = None,
    ) -> None:
        self.name = name
        self.tensor = tensor
        self._addresses = addresses
        self.itemsize = itemsize
        self.low, self.high = bounds
        self.spans = spans
        self._runner = runner
        self.pattern = pattern
        self._runs: Runs | None = None
        self._nbytes: int | None = None if pattern is None else pattern.nbytes
        self._bits: int | None = None
        self._cells: tuple[int, NDArray[np.int64]] | None = None

    @property
    def addresses(self) -> NDArray[np.int64]:
        """Byte address of every element, in the shape of the box."""
        if not isinstance(self._addresses, np.ndarray):
            self._addresses = self._addresses()
        return self._addresses

    def cells(self, size: int) -> NDArray[np.int64]:
        """The addresses, counted in elements of ``size`` bytes."""
        if self._cells is None or self._cells[0] != size:
            self._cells = size, self.addresses // size
        return self._cells[1]

    @property
    def runs(self) -> Runs:
        """The bytes, as intervals."""
        if self._runs is None:
            runner = self._runner
            self._runs = runs_of(self.addresses, self.itemsize) if runner is None else runner()
        return self._runs

    @property
    def nbytes(self) -> int:
        """How many bytes they are."""
        if self._nbytes is None:
            lows, highs = self.runs
            self._nbytes = int((highs - lows).sum())
        return self._nbytes

    @property
    def bits(self) -> int:
        """The bytes as a number, that at ``low`` first; for sets that are `_SMALL`."""
        if self._bits is None:
            known = self.pattern
            self._bits = bits_of(self.runs, self.low) if known is None else known.bits
        return self._bits

    def meets(self, other: ByteSet) -> bool:
        """True if the two share a byte."""
        if self.high <= other.low or other.high <= self.low:
            return False
        if self.spans is not None and other.spans is not None and self.tensor == other.tensor:
            return meet(self.spans, other.spans)
        if self.high - self.low > _SMALL or other.high - other.low > _SMALL:
            return runs_meet(self.runs, other.runs)
        return _shared(self, other) != 0

    def contains(self, other: ByteSet) -> bool:
        """True if every byte of ``other`` is in this set."""
        if self.spans is not None and other.spans is not None and self.tensor == other.tensor:
            return within(other.spans, self.spans)
        if self.high - self.low > _SMALL or other.high - other.low > _SMALL:
            return runs_within(other.runs, self.runs)
        if other.low < self.low:
            return _shared(self, other) << self.low - other.low == other.bits
        return _shared(self, other) == other.bits


def _shared(one: ByteSet, other: ByteSet) -> int:
    """The bytes that are in both sets as a number, from the one on at which both have begun."""
    apart = other.low - one.low
    if apart >= 0:
        return one.bits >> apart & other.bits
    return one.bits & other.bits >> -apart
