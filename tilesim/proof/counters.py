"""Words of memory that are waited for: what a wait tells, the same in every schedule.

A word is changed by strong stores of known numbers, and additions of known amounts. Let a store be
the addition of what it makes larger or smaller: it comes after all changes before it, and before
all behind it. Then the word holds what the changes that are made add up to, in whatever order.

A wait *needs* the first changes that let it pass, beside those that it comes after. It passes when
these are made, and not before, if no part of them lets it pass, and each other change comes after
them, or after the wait. It stays so, if what other changes that need not come after the wait add
lets it pass as well (docs/soundness/counters.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilesim.proof.order import Knowledge, Positions
from tilesim.proof.rules import NotCovered, rule
from tilesim.records import dataclass, replace

#: sums of which it is asked whether a wait passes with them
MOST_SUMS = 4096


@dataclass(frozen=True, eq=False)
class Increment:
    """What a lane did at its position, after what it ``seen``s of memory: it added an amount, or
    None, if that is not known; ``stores``: it stored, which ``hides`` what was released before if
    it was no exchange. ``past``, ``released``: what came before it
    in time, and what it hands over."""

    lane: int
    position: int
    seen: Positions
    past: Positions
    released: Knowledge | None
    amount: int | None
    stores: bool
    hides: bool


class Wait:
    """A wait of a lane at its position, the changes that it needs, what it has learned, and what
    the word may hold when it passes."""

    def __init__(self, passes: Callable[[int], bool], lane: int) -> None:
        self.passes, self.lane, self.position = passes, lane, 0
        self.needs: Sequence[Increment] = ()
        self.learned: Knowledge | None = None
        self.sums: set[int] = set()


class Word:
    """A word of so many ``bits`` that held a number, or None, before its first strong access."""

    def __init__(self, name: str, start: int | None, bits: int) -> None:
        self.name, self.start, self.bits = name, start, bits
        self.changes: list[Increment] = []
        self.waits: list[Wait] = []

    def holds(self, changes: Sequence[Increment] | None = None) -> int:
        """What it holds when some changes are made, or all so far.

        Raises: NotCovered: that is not known."""
        if not self.is_known:
            raise NotCovered(f"{self.name} is waited for, and what it holds is not known")
        amounts = (c.amount or 0 for c in (self.changes if changes is None else changes))
        return ((self.start or 0) + sum(amounts)) % (1 << self.bits)

    @property
    def is_known(self) -> bool:
        """Whether it is known what it holds."""
        return self.start is not None and all(c.amount is not None for c in self.changes)

    @rule(
        "counter-order",
        "a store to a word comes after its changes before it, and before later ones",
    )
    def change(self, c: Increment, stored: int | None) -> None:
        """One more change; ``stored``: the number, of a store."""
        before = self.changes if c.stores else [x for x in self.changes if x.stores][-1:]
        if c.stores and stored is not None and self.is_known:
            c = replace(c, amount=stored - self.holds())
        if not _after(c.seen, before):
            c = replace(c, amount=None)
        own = [x.released for x in self.changes if x.lane == c.lane and x.released is not None]
        for released in own[-1:]:  # with a release there, a later strong write is a pattern (H3)
            both = released.copy()
            both.join(c.released or released)
            c = replace(c, released=both)
        self.changes.append(c)
        for w in self.waits:
            if c.seen[w.lane] < w.position:
                self._beside(w, c)

    @rule("counter-A", "a change of a word comes after all that a wait needs, or after the wait")
    def _beside(self, w: Wait, c: Increment) -> None:
        """A change that need not come after a wait. By a store that it finds, the wait learns what
        that has released only."""
        if not _after(c.seen, w.needs):
            raise NotCovered(f"{self.name}: a change that may come before those that a wait needs")
        if c.hides and _hides(c, w):
            raise NotCovered(f"{self.name}: a store that hands over less than a wait has learned")
        self._still_passes(w, c)

    @rule("counter-C", "with what else may be added to a word before a wait for it, that passes")
    def _still_passes(self, w: Wait, c: Increment) -> None:
        if c.amount is None:
            raise NotCovered(f"{self.name}: a change by a number that is not known")
        if c.stores:
            w.sums.add(self.holds(self.changes[: self.changes.index(c) + 1]))
        else:
            w.sums |= {(n + c.amount) % (1 << self.bits) for n in w.sums}
        if len(w.sums) > MOST_SUMS or not all(map(w.passes, w.sums)):
            raise NotCovered(f"{self.name}: a wait that others may keep from passing")

    def wait(self, w: Wait, seen: Positions, learned: Knowledge) -> list[Increment]:
        """A wait passes, of a lane that has ``seen`` so much of memory. Returns the changes that
        are made by then in each schedule; what those have handed over is ``learned``."""
        known = [c for c in self.changes if seen[c.lane] >= c.position]
        others = [c for c in self.changes if seen[c.lane] < c.position]
        needs: list[Increment] = []
        while not w.passes(self.holds([*known, *needs])):
            needs.append(others.pop(0))
        self._just(w, known, needs)
        made = [c for c in self.changes if c not in set(others)]
        stores = [n for n, c in enumerate(made, 1) if c.stores]
        last = max((n for n, c in enumerate(made) if c.hides), default=0)
        if stores and made[: stores[-1]] != self.changes[: stores[-1]]:
            raise NotCovered(f"{self.name}: a store that is known without what comes before it")
        for c in made[last:]:
            if c.released is not None:
                learned.join(c.released)
        w.needs, w.learned, w.sums = needs, learned, {self.holds(made)}
        for c in others:
            self._beside(w, c)
        self.waits.append(w)
        return made

    @rule("counter-just", "a wait for a word does not pass before all that it needs is made")
    def _just(self, w: Wait, known: Sequence[Increment], needs: Sequence[Increment]) -> None:
        """No sum of some of the changes only lets it pass."""
        every = self.holds(known)
        parts: set[int] = set()
        for c in needs:
            amount = c.amount or 0
            parts |= {every} if c.stores else {every, *(n + amount for n in parts)}
            every += amount
            if len(parts) > MOST_SUMS:
                raise NotCovered(f"{self.name}: too many sums")
        if any(w.passes(n % (1 << self.bits)) for n in parts):
            raise NotCovered(f"{self.name}: a wait that may pass before all that it has found")


def _after(seen: Positions, changes: Sequence[Increment]) -> bool:
    return all(seen[c.lane] >= c.position for c in changes)


def _hides(c: Increment, w: Wait) -> bool:
    """Whether a store hands over less than a wait has learned that may find it."""
    assert w.learned is not None
    return c.released is None or not c.released.covers(w.learned)
