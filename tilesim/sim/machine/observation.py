"""Who has observed which write of a word: one step of it comes before base causality (H5).

A strong read observes the write it reads from, if the two are morally strong, and through a chain
of RMWs, each so with the next, those before. They come before all that comes after the read; what
was before them does not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilesim.sim.machine.clock import GENERIC
from tilesim.sim.machine.release import mutual

if TYPE_CHECKING:
    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.agent import Agent
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.footprint import Footprint


@dataclass(frozen=True, slots=True)
class Look:
    """A read: it observed the writes below ``end``, those from ``since`` on only if that is not
    None."""

    component: int
    tick: int
    since: int | None
    end: int

    def saw(self, number: int) -> bool:
        """Whether it observed the write of this number."""
        return (self.since is None or self.since <= number) and number < self.end


@dataclass(eq=False, slots=True)
class Word:
    """What is known of the strong writes to one footprint, and the reads of it: by whom, and by
    which lanes, each of which has made them.

    Who reads it now observes those numbered from ``since`` on, all of them if that is None, or is
    taken to observe none if the word is ``torn``: a strong write that goes on from none before it
    leaves others unobserved, for which records of later ones stand in.
    """

    since: int | None = None
    last: Access | None = None
    looks: dict[tuple[Agent, int], list[Look]] = field(default_factory=dict)
    torn: bool = False

    def look(self, read: Access, end: int, recorded: list[Access]) -> None:
        """Lanes have observed the writes below ``end``; of their looks those are kept that were
        the first to observe some write which is still ``recorded``."""
        key = read.warp, read.lanes
        looks = [*self.looks.get(key, ()), Look(read.component, read.tick, self.since, end)]
        numbers = {record.number for record in recorded if record.number is not None}
        kept = []
        for look in looks:
            found = {number for number in numbers if look.saw(number)}
            if found:
                kept.append(look)
                numbers -= found
        self.looks[key] = kept


class Observations:
    """The words of one machine that are written strongly; the writes are numbered as they come."""

    def __init__(self) -> None:
        self._words: dict[Footprint, Word] = {}
        self.count = 0

    def of(self, footprint: Footprint) -> Word | None:
        """What is known of a word; None if it has not been written strongly."""
        return self._words.get(footprint)

    def wrote(self, footprint: Footprint, access: Access) -> None:
        """A write of any kind; an RMW of the same word goes on from the one before.

        A weak one needs no more than that nobody observes through it: what conflicts with it is
        ordered with it, and so what was observed before it comes before all that follow it.
        """
        if access.scope is None:
            for other in footprint.overlaps if self._words else ():
                word = self._words.get(other)
                if word is not None:
                    word.since = self.count
            return
        for other in footprint.overlaps:
            if other is not footprint and other in self._words:
                self._words[other].torn = True
        word = self._words.setdefault(footprint, Word())
        goes_on = access.op.mnemonic == "atom" and (word.last is None or _strong(access, word.last))
        word.torn |= access.asynchronous or not (word.last is None or goes_on)
        access.number, word.last = self.count, access
        self.count += 1

    def saw(self, read: Access, footprint: Footprint) -> None:
        """Lanes have used what their strong read of one word found, or one what its own RMW did,
        just now."""
        place = footprint if footprint in self._words else self._same_word(footprint)
        word = None if place is None else self._words[place]
        if place is None or word is None or word.torn or word.last is None:
            return
        own, number = word.last is read, word.last.number
        if number is not None and (own or _strong(read, word.last)):
            word.look(read, number + (not own), place.writes)

    def _same_word(self, footprint: Footprint) -> Footprint | None:
        """The bytes of a word that is written by one lane, and read by several at once."""
        return next(
            (
                other
                for other in footprint.overlaps
                if other in self._words
                and other.nbytes == footprint.nbytes == footprint.itemsize
                and other.same_elements(footprint)
            ),
            None,
        )

    def before(self, access: Access, record: Access, footprint: Footprint, clock: Clock) -> bool:
        """Whether ``access`` comes after a read that observed ``record``, in every schedule."""
        word, number = self._words.get(footprint), record.number
        if word is None or number is None or clock[record.component] < record.tick:
            return False
        return any(
            look.saw(number) and _follows(access, clock, look, warp, lanes)
            for (warp, lanes), looks in word.looks.items()
            for look in looks
        )


def _follows(access: Access, clock: Clock, look: Look, warp: Agent, lanes: int) -> bool:
    """Whether ``access`` comes after a look by ``lanes`` of ``warp``, which comes before all that
    one of them does next."""
    if warp is access.warp:
        if not access.lanes & ~lanes:
            return True
        clock = warp.shared_by_lanes(clock)
    row = GENERIC * warp.machine.components.size
    if warp.parts is not None:
        return warp.parts.lanes_known(clock, row, look.component, look.tick, lanes)
    return bool(clock[row + look.component] >= look.tick)


def _strong(one: Access, other: Access) -> bool:
    """Whether each of two strong accesses has the other's thread in its scope (H2)."""
    assert one.scope is not None
    assert other.scope is not None
    return mutual(one.scope, one.warp.cta, other.scope, other.warp.cta)
