"""Who has observed which write of a word: one step of it comes before base causality (H5).

A strong read observes the write it reads from, if the two are morally strong, and through a chain
of RMWs, each so with the next, those before. They come before all that comes after the read; what
was before them does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tilesim.sim.machine.clock import GENERIC
from tilesim.sim.machine.release import mutual

if TYPE_CHECKING:
    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.agent import Agent
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.footprint import Footprint


class _Look(NamedTuple):
    """A read by one lane: it observed the writes of these numbers."""

    component: int
    tick: int
    seen: range


class _Word:
    """The strong writes to one footprint, numbered as they come, and the reads of single lanes.

    Who reads it now observes those from ``since`` on, or is taken to observe none if it is
    ``torn``: a strong write that goes on from none before it leaves others unobserved, for which
    records of later ones stand in.
    """

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, int], int] = {}
        self.count = self.since = 0
        self.last: Access | None = None
        self.looks: dict[tuple[Agent, int], list[_Look]] = {}
        self.torn = False


class Observations:
    """The words of one machine that are written strongly."""

    def __init__(self) -> None:
        self._words: dict[Footprint, _Word] = {}

    def wrote(self, footprint: Footprint, access: Access) -> None:
        """A write of any kind; an RMW of the same word goes on from the one before.

        A weak one needs no more than that nobody observes through it: what conflicts with it is
        ordered with it, and so what was observed before it comes before all that follow it.
        """
        if access.scope is None:
            for other in footprint.overlaps if self._words else ():
                word = self._words.get(other)
                if word is not None:
                    word.since = word.count
            return
        for other in footprint.overlaps:
            if other is not footprint and other in self._words:
                self._words[other].torn = True
        word = self._words.setdefault(footprint, _Word())
        goes_on = access.op.mnemonic == "atom" and (word.last is None or _strong(access, word.last))
        word.torn |= access.asynchronous or bool(word.count and not goes_on)
        word.numbers[access.component, access.tick] = word.count
        word.count, word.last = word.count + 1, access

    def saw(self, read: Access, footprint: Footprint) -> None:
        """A lane has used what its strong read found, or what its own RMW did, just now."""
        word = self._words.get(footprint)
        if word is None or word.torn or word.last is None:
            return
        own = word.last is read
        if not own and not _strong(read, word.last):
            return
        seen = range(word.since, word.count - own)
        looks = word.looks.setdefault((read.warp, read.lanes), [])
        if seen and not (looks and looks[-1].seen == seen):
            looks.append(_Look(read.component, read.tick, seen))

    def before(self, access: Access, record: Access, footprint: Footprint, clock: Clock) -> bool:
        """Whether ``access`` comes after a read that observed ``record``, in every schedule."""
        word = self._words.get(footprint)
        if word is None or clock[record.component] < record.tick:
            return False
        number = word.numbers.get((record.component, record.tick))
        if number is None:
            return False
        own = word.looks.get((access.warp, access.warp.mask), ())
        if any(number in look.seen for look in own):
            return True
        known = clock[GENERIC * access.warp.machine.components.size :]
        return any(
            number in look.seen and known[look.component] >= look.tick
            for (warp, _), looks in word.looks.items()
            if warp is not access.warp and warp.parts is None
            for look in looks
        )


def _strong(one: Access, other: Access) -> bool:
    """Whether each of two strong accesses has the other's thread in its scope (H2)."""
    assert one.scope is not None
    assert other.scope is not None
    return mutual(one.scope, one.warp.cta, other.scope, other.warp.cta)
