"""Who has observed which write of a word: one step of it comes before base causality (H5).

A strong read observes the write it reads from, if the two are morally strong, and through a chain
of RMWs, each so with the next, those before. They come before all that comes after the read; what
was before them does not, an earlier store by the same thread to the same word among it: unless what
the read acquires says so.

A wait stands for one in every schedule (`tilesim.sim.machine.counter`). In another one it may find
another store, with which the word begins anew, and observe nothing of what it has in this run: who
relies on that makes the schedules differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tilesim.ir.kept import kept
from tilesim.ir.op import Op
from tilesim.ir.scalars import word_access
from tilesim.sim.machine.clock import GENERIC
from tilesim.sim.machine.release import mutual
from tilesim.sim.machine.strength import hides

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.agent import Agent
    from tilesim.sim.machine.clock import Clock
    from tilesim.sim.machine.footprint import Footprint


@dataclass(frozen=True, slots=True)
class Look:
    """A read: of the writes below ``end`` that are recorded it observed, or its lanes came after,
    those from ``since`` on only, if that is not None. ``waits``: it ended a wait, and, if that is
    ``open``, may find another store in another schedule."""

    component: int
    tick: int
    since: int | None
    end: int
    waits: bool = False
    open: bool = False

    def saw(self, number: int) -> bool:
        """Whether what comes after it comes after the write of this number."""
        return (self.since is None or self.since <= number) and number < self.end


@dataclass(eq=False, slots=True)
class Word:
    """What is known of the strong writes to one footprint, and the reads of it: by whom, and by
    which lanes, each of which has made them.

    Who reads it now observes those numbered from ``since`` on, all of them if that is None; the
    store with which they begin is at ``begin``, component and tick, if it comes after another
    strong write. Or he is taken to observe none if the word is ``torn``: written asynchronously, or
    not as the word that it is.
    """

    since: int | None = None
    begin: tuple[int, int] | None = None
    last: Access | None = None
    looks: dict[tuple[Agent, int], list[Look]] = field(default_factory=dict)
    torn: bool = False

    def goes_on(self, access: Access) -> bool:
        """Whether who observes a strong write observes the one before it."""
        return _is_rmw(access.op) and (self.last is None or _strong(access, self.last))

    def look(self, look: Look, read: Access, recorded: list[Access]) -> None:
        """Lanes have observed; of their looks those are kept that were the first to observe some
        write which is still ``recorded``, or the first that are not open."""
        key = read.warp, read.lanes
        before = self.looks.get(key, ())
        since = self._since(read, before, recorded)
        numbers = {record.number for record in recorded if record.number is not None}
        left = {False: set(numbers), True: numbers}
        kept = []
        for one in (*before, replace(look, since=since)):
            found = {number for number in left[one.open] if one.saw(number)}
            if found:
                kept.append(one)
                left[one.open] -= found
        self.looks[key] = kept

    def _since(self, read: Access, before: Sequence[Look], recorded: list[Access]) -> int | None:
        """From which of the ``recorded`` writes on lanes come after all of them once they have
        read: because they, too, are observed, have been, or are in their past anyway."""
        since = self.since
        if since is None:
            return None
        older = {r.number: r for r in recorded if r.number is not None and r.number < since}
        for number in sorted(older, reverse=True):
            seen = any(look.saw(number) for look in before if not look.open)
            if not (seen or _knows(read, older[number])):
                break
            since = number
        return since

    def surely_found(self, warp: Agent, end: int, recorded: list[Access]) -> int | None:
        """Up to which of the ``recorded`` writes below ``end`` a wait of ``warp`` finds in every
        schedule; None if it may end with what was before the store with which they begin."""
        if self.begin is not None and not _in_time(warp, *self.begin):
            return None
        return min(
            (
                record.number
                for record in recorded
                if record.number is not None
                and (self.since or 0) <= record.number < end
                and not _in_time(warp, record.component, record.tick)
            ),
            default=end,
        )

    def reopen(self, store: Access) -> None:
        """In another schedule the waits that it need not come after find this store."""
        for key, looks in self.looks.items():
            self.looks[key] = [
                replace(
                    look,
                    open=look.open
                    or (look.waits and not _in_time(store.warp, look.component, look.tick)),
                )
                for look in looks
            ]

    def stands_in(self, later: Access, record: Access) -> bool:
        """Whether all that comes after ``later``, in whichever way, comes after an earlier write by
        the same thread: nobody has observed it without that one."""
        number, after = record.number, later.number
        if number is None or after is None or after <= number or not hides(later, record):
            return False
        if (later.component, later.lanes) != (record.component, record.lanes):
            return False
        return all(
            look.saw(number) for looks in self.looks.values() for look in looks if look.saw(after)
        )


class Observations:
    """The words of one machine that are written strongly; the writes are numbered as they come."""

    def __init__(self) -> None:
        self._words: dict[Footprint, Word] = {}
        self.count = 0

    def of(self, footprint: Footprint) -> Word | None:
        """What is known of a word; None if it has not been written strongly."""
        return self._words.get(footprint)

    def outlast(self, footprint: Footprint, access: Access) -> list[Access]:
        """The records that have to stay though a strong write which conflicts with all that they do
        comes after them: whoever observes it has not observed those.

        Of one thread that is the last one, and each before it that somebody has not observed who
        has observed the next.
        """
        word = self._words.get(footprint)
        if access.scope is None or word is None or word.torn or word.goes_on(access):
            return []
        writes = [record for record in footprint.writes if record.number is not None]
        return [r for r in writes if not any(word.stands_in(later, r) for later in writes)]

    def wrote(self, footprint: Footprint, access: Access) -> None:
        """A write of any kind; an RMW of the same word goes on from the one before.

        A weak one needs no more than that nobody observes through it: what conflicts with it is
        ordered with it, and so what was observed before it comes before all that follow it.
        """
        if access.scope is None:
            for other in footprint.overlaps if self._words else ():
                word = self._words.get(other)
                if word is not None:
                    word.since, word.begin = self.count, None
            return
        for other in footprint.overlaps:
            if other is not footprint and other in self._words:
                self._words[other].torn = True
        word = self._words.setdefault(footprint, Word())
        if word.last is not None and not word.goes_on(access):
            word.since, word.begin = self.count, (access.component, access.tick)
            word.reopen(access)
        word.torn |= access.asynchronous
        access.number, word.last = self.count, access
        self.count += 1

    def saw(self, read: Access, footprint: Footprint, *, waits: bool = False) -> None:
        """Lanes have used what their strong read of one word found, or one what its own RMW did,
        just now. ``waits``: it has ended a wait, and they know what they do in every schedule."""
        place = footprint if footprint in self._words else self._same_word(footprint)
        word = None if place is None else self._words[place]
        if place is None or word is None or word.torn or word.last is None:
            return
        own, number = word.last is read, word.last.number
        if number is None or not (own or _strong(read, word.last)):
            return
        end = number + (not own)
        sure = word.surely_found(read.warp, end, place.writes) if waits else end
        if sure is not None:
            look = Look(read.component, read.tick, word.since, sure, waits)
            word.look(look, read, place.writes)
        if sure != end:
            look = Look(read.component, read.tick, word.since, end, waits, open=True)
            word.look(look, read, place.writes)

    def _same_word(self, footprint: Footprint) -> Footprint | None:
        """The bytes of a word that is written by one lane, and read by several at once."""
        return next(
            (
                other
                for other in footprint.overlaps
                if other in self._words
                and other.bytes.nbytes == footprint.bytes.nbytes == footprint.itemsize
                and other.same_elements(footprint)
            ),
            None,
        )

    def before(self, access: Access, record: Access, footprint: Footprint, clock: Clock) -> bool:
        """Whether ``access`` comes after a read that observed ``record``. Where it may be that it
        observes something else in another schedule, schedules differ."""
        word, number = self._words.get(footprint), record.number
        if word is None or number is None or clock[record.component] < record.tick:
            return False
        found = [
            look
            for (warp, lanes), looks in word.looks.items()
            for look in looks
            if look.saw(number) and _follows(access, clock, look, warp, lanes)
        ]
        if found and all(look.open for look in found):
            access.warp.machine.nondeterministic("the store that a wait finds", access.op)
        return bool(found)


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


def _in_time(warp: Agent, component: int, tick: int) -> bool:
    """Whether each lane of ``warp`` that acts comes after this position, in every schedule."""
    own = component == warp.component
    return bool(warp.clock[component] >= tick) and (not own or warp.common >= tick)


def _knows(read: Access, record: Access) -> bool:
    """Whether each lane that has read comes after a write in base causality."""
    warp = read.warp
    if record.warp is warp:
        return record.lanes == read.lanes
    return bool(
        warp.clock[GENERIC * warp.machine.components.size + record.component] >= record.tick
    )


@kept
def _is_rmw(op: Op) -> bool:
    """Whether what an instruction leaves in a word goes on from what it finds there."""
    access = word_access(op.effects())
    return access is not None and access.combine is not None


def _strong(one: Access, other: Access) -> bool:
    """Whether each of two strong accesses has the other's thread in its scope (H2)."""
    assert one.scope is not None
    assert other.scope is not None
    return mutual(one.scope, one.warp.cta, other.scope, other.warp.cta)
