"""Sets of integers that something computed may be: a residue class between bounds."""

from __future__ import annotations

from math import gcd, inf

from tilesim.records import dataclass


@dataclass(frozen=True, slots=True)
class Numbers:
    """``at`` plus any multiple of ``step`` (0: that one), from ``low`` to ``high``.

    Operations give a set with all results of theirs; there a number has as many bits as it needs.
    """

    step: int
    at: int
    low: float = -inf
    high: float = inf

    def __post_init__(self) -> None:
        if self.step:
            object.__setattr__(self, "at", self.at % self.step)

    @staticmethod
    def single(number: int) -> Numbers:
        """A number alone."""
        return Numbers(0, number, number, number)

    def __contains__(self, number: int) -> bool:
        off = number - self.at
        inside = off % self.step == 0 if self.step else off == 0
        return inside and self.low <= number <= self.high

    def __or__(self, other: Numbers) -> Numbers:
        step = gcd(self.step, other.step, self.at - other.at)
        return Numbers(step, self.at, min(self.low, other.low), max(self.high, other.high))

    def __add__(self, other: Numbers) -> Numbers:
        step = gcd(self.step, other.step)
        return Numbers(step, self.at + other.at, self.low + other.low, self.high + other.high)

    def __mul__(self, factor: int) -> Numbers:
        if not factor:
            return Numbers.single(0)
        low, high = sorted((self.low * factor, self.high * factor))
        return Numbers(self.step * abs(factor), self.at * factor, low, high)

    def __and__(self, mask: int) -> Numbers:
        if not self.step or not mask:
            return Numbers.single(self.at & mask)
        if mask > 0:
            return Numbers(mask & -mask, 0, 0, mask)
        return Numbers(mask & -mask, 0, self.low + mask + 1, self.high)

    def within(self, low: float, high: float) -> Numbers:
        """Those from ``low`` to ``high``."""
        return Numbers(self.step, self.at, max(self.low, low), min(self.high, high))
