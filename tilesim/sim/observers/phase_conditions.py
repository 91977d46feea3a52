"""The credits of one phase: do they end it in one way only, whatever their order?

Waits need a number of arrivals, whichever they are. Where condition A fails, an arrival may count
for the phase before its own, and another one for its own instead. That is immaterial if every wait
learns the same: all that the one publishes is in what the other one comes after.
docs/soundness/arrivals.md has the argument.

In the last phases of a barrier, for which no warp waits, it is immaterial which arrival ends which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from tilesim.findings.finding import Stated
from tilesim.records import dataclass, field
from tilesim.sim.machine.clock import GENERIC, NEVER, Clock
from tilesim.sim.machine.warp import made_by
from tilesim.wording import count

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.warp import Agent


#: contributions to a phase that a report lists
_SHOWN = 12


@dataclass(slots=True)
class Credit:
    """A change of a barrier in one phase: arrivals, bytes, what made it.

    ``tick`` orders the credits of a warp; an ``asynchronous`` credit is only known through the
    phase it completes, and ``lent`` if its instruction made the phase expect it (C6). A ``partial``
    one must not end the phase (.noComplete). ``clock`` is what the credit comes after. It is that
    of so many ``lanes``, equal ones in an unspecified order: ``arrivals`` and ``tx`` are their sum.
    If it ``releases``, its waiters acquire the clock, in which nothing of its warp's own is later
    than ``position``, but for what leaves nothing in memory, up to ``moment``. What makes it acts
    at clock component ``component``, where each of the lanes comes after what the others did up to
    ``common``: as they are when the credit is made or issued, by the lanes of ``mask``.
    """

    warp: Agent
    op: Op
    arrivals: int
    tx: int
    tick: int
    asynchronous: bool = False
    lent: bool = False
    partial: bool = False
    clock: Clock | None = None
    lanes: int = 1
    releases: bool = False
    position: int = NEVER
    moment: int = NEVER
    component: int = -1
    common: int = NEVER
    mask: int = 0

    def __post_init__(self) -> None:
        if self.component < 0:
            self.component, self.common = self.warp.component, self.warp.common
            self.mask = self.warp.mask

    def known_by_parts(self, clock: Clock, row: int = 0) -> bool:
        """Whether a clock, from ``row`` on, has what each of these lanes did afterwards, in the
        parts that they have belonged to since."""
        known = self.warp.is_known(clock, row, self.component, self.tick, self.mask)
        return known and self.mask != 0

    def lanes_inside(self, pending: int, tx: int) -> int:
        """How many lanes belong to a phase with ``pending`` arrivals and a balance of ``tx``: all,
        or those that end it."""
        lanes = self.lanes
        if lanes == 1 or (self.arrivals > 0 and self.arrivals <= pending):
            return lanes
        if self.arrivals > 0:
            inside, rest = divmod(pending, self.arrivals // lanes)
        elif self.tx and not pending:
            inside, rest = divmod(-tx, self.tx // lanes)
        else:
            return lanes
        ends = not rest and 0 < inside < lanes and tx + inside * self.tx // lanes == 0
        return inside if ends else lanes


class Wait(NamedTuple):
    """A wait for a phase that has passed: which lanes of a warp made it, and when."""

    warp: Agent
    component: int
    tick: int
    op: Op
    mask: int

    def known_by_parts(self, clock: Clock, row: int = 0) -> bool:
        """Whether a clock, from ``row`` on, has what each of these lanes did afterwards, in the
        parts that they have belonged to since."""
        return self.warp.is_known(clock, row, self.component, self.tick, self.mask)


@dataclass(slots=True)
class PhaseRecord:
    """What contributed to one phase and, once it has completed, which warps waited for it.

    ``promised`` and ``delivered`` are the bytes expected and completed in all.
    """

    credits: list[Credit] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    promised: int = 0
    delivered: int = 0

    def add_bytes(self, tx: int) -> int:
        """Counts bytes; returns how far from zero some order of the credits takes the tx-count."""
        self.promised += max(tx, 0)
        self.delivered -= min(tx, 0)
        return max(self.promised, self.delivered)

    def unknown_to(
        self, clock: Clock, component: int, common: int, now: int = NEVER
    ) -> Credit | None:
        """A credit that lanes with this clock do not know to have been made; None if they know all.

        What these lanes did themselves, at ``component``, each knows of all others up to
        ``common``. Of lanes that arrive ``now`` it is immaterial which ones end a phase.
        """
        known = clock.item
        for credit in self.credits:
            tick = credit.tick
            if credit.asynchronous:
                return credit
            if known(credit.component) < tick and not credit.known_by_parts(clock):
                return credit
            if credit.component == component and common < tick < now:
                return credit
        return None

    def contributions(self, cta: int | None = None) -> Iterator[str]:
        """The credits, one line each; repetitions are counted. ``cta``: the one that the text
        speaks of."""
        shares = self._shares()
        for credit, times, warps in shares[:_SHOWN]:
            line = made_by(_amount(credit), warps, credit.op, cta)
            yield line if times == 1 else f"{times} x {line}"
        if len(shares) > _SHOWN:
            yield f"... and {len(shares) - _SHOWN} more"

    def _shares(self) -> list[tuple[Credit, int, list[Agent]]]:
        """What several warps of a CTA have each contributed by one instruction: one of their
        credits, how often each has made it, and they."""
        each = Counter((c.warp, c.arrivals, c.tx, c.op.number) for c in self.credits)
        like = {(c.arrivals, c.tx, c.op.number): c for c in self.credits}
        together: dict[tuple[int, int, int, int, int], list[Agent]] = {}
        for (warp, arrivals, tx, number), times in each.items():
            key = (warp.cta.number, arrivals, tx, number, times)
            together.setdefault(key, []).append(warp)
        return [
            (like[arrivals, tx, number], times, warps)
            for (_, arrivals, tx, number, times), warps in together.items()
        ]

    @property
    def facts(self) -> Stated:
        """What the contributions state."""
        shown = self._shares()[:_SHOWN]
        return Stated(
            lines=tuple(c.op.loc for c, _, _ in shown),
            arrivals=tuple(abs(c.arrivals) for c, _, _ in shown if c.arrivals),
            bytes=tuple(abs(c.tx) * (1 if c.arrivals else times) for c, times, _ in shown if c.tx),
        )


#: beyond this many parts of the credits outside the arrivals the exact form of B is not tried
_EXACT_LIMIT = 1 << 14


def most_pending(expected: int, credits: list[Credit]) -> int:
    """How many arrivals are pending at most, in whatever order the credits come.

    Only instructions that make the phase expect one more (cp.async.mbarrier.arrive, C6) raise the
    count. Arrivals that all of them come after are taken off first.
    """
    lenders = [c for c in credits if c.arrivals < 0]
    made = (c for c in credits if c.arrivals > 0 and all(_above(by, c) for by in lenders))
    return expected - sum(c.arrivals for c in lenders) - sum(c.arrivals for c in made)


def early_completion(credits: list[Credit], arrived: Clock, *, last_phase: bool) -> Credit | None:
    """A credit without which the phase could complete early, or None (condition B).

    The phase completes when all arrivals are in and the bytes are in balance, so the following must
    be below some arrival (``arrived``) that no instruction lent to the phase: what lends it an
    arrival; and, or else the parts of the phase are looked at one by one, every bare expect_tx, and
    every complete_tx of no bytes: the bytes are in balance without it. No part that is closed
    downwards and contains all arrivals may have its bytes in balance, save the whole, and for the
    ``last_phase`` not even that. A bare expect_tx must not be what ends the phase (U3). The lanes
    of one credit count one by one.
    """
    borrowed = _borrowed(credits, arrived)
    if borrowed is not None:
        return borrowed
    total = sum(c.tx for c in credits)
    if last_phase and total <= 0 and credits:
        return credits[-1]
    loose = [
        c for c in credits
        if c.arrivals <= 0 and (c.asynchronous or arrived[c.component] < c.tick)
    ]  # fmt: skip
    needed = [c for c in loose if c.tx > 0 or c.tx == c.arrivals == 0]
    if not needed:
        return None
    if prod(c.lanes + 1 for c in loose) > _EXACT_LIMIT:
        return needed[0]
    ending = None if last_phase else _ending_expect(loose)
    return _balanced_part(loose, total) if ending is None else ending


def _borrowed(credits: list[Credit], arrived: Clock) -> Credit | None:
    """What makes the phase expect an arrival that could come after the phase's end, or None."""
    for credit in credits:
        if credit.arrivals < 0 and arrived[credit.component] < credit.tick:
            return credit
    return None


def _ending_expect(loose: list[Credit]) -> Credit | None:
    """A bare expect_tx that could be the last credit of its phase, or None."""
    for expect in loose:
        if expect.tx > 0 and not any(c.tx < 0 and _above(c, expect) for c in loose):
            return expect
    return None


def _balanced_part(loose: list[Credit], total: int) -> Credit | None:
    """What is missing in a proper part of the phase that looks complete, None if none does.

    Lanes that act as one each come after what they did themselves, whatever the others of them did.
    """
    base = total - sum(c.tx for c in loose)
    shares = [c.tx // c.lanes for c in loose]
    below = [
        [i for i, c in enumerate(loose) if c is not credit and _above(credit, c)]
        for credit in loose
    ]
    for part in product(*(range(c.lanes + 1) for c in loose)):
        if base + sum(map(mul, part, shares)) != 0:
            continue
        missing = [c for c, lanes in zip(loose, part, strict=True) if lanes < c.lanes]
        closed = all(
            part[i] >= (lanes if _alongside(credit, loose[i]) else loose[i].lanes)
            for credit, lanes, lower in zip(loose, part, below, strict=True) if lanes
            for i in lower
        )  # fmt: skip
        if missing and closed:
            return missing[0]
    return None


def _alongside(credit: Credit, other: Credit) -> bool:
    """Whether the same lanes made both, and have not met since ``other``."""
    same = other.component == credit.component and other.lanes == credit.lanes
    return same and credit.common < other.tick


def last_partial(credits: list[Credit]) -> Credit | None:
    """An arrival that must not end the phase but could come last, or None (condition P)."""
    for credit in credits:
        if credit.partial and not any(
            c.arrivals > 0 and c is not credit and _above(c, credit) for c in credits
        ):
            return credit
    return None


def _above(credit: Credit, other: Credit) -> bool:
    """True if ``other`` is ordered before ``credit``; lanes of one instruction are not."""
    assert credit.clock is not None
    if other.component == credit.component and other.tick == credit.tick:
        return False
    return not other.asynchronous and bool(credit.clock[other.component] >= other.tick)


def _amount(credit: Credit) -> str:
    """What a credit adds to its phase."""
    parts = []
    if credit.arrivals > 0:
        parts.append(count(credit.arrivals, "arrival"))
    elif credit.arrivals:
        parts.append(f"{count(-credit.arrivals, 'arrival')} more expected")
    if credit.tx:
        parts.append(f"{abs(credit.tx)} bytes {'expected' if credit.tx > 0 else 'completed'}")
    return " and ".join(parts)


# ------------------------------------------------------------------ arrivals that change places


def change_places(before: PhaseRecord, credit: Credit, clock: Clock) -> bool:
    """True if an arrival, made with ``clock``, covers each one of the phase ``before`` that it does
    not come after: they may count for each other's phase."""
    if not credit.releases:
        return False
    own, common = credit.component, credit.common
    if any(c.component == own and common < c.tick < credit.tick for c in before.credits):
        return False
    return all(_covers(clock, c) for c in before.credits if clock[c.component] < c.tick)


def _covers(clock: Clock, credit: Credit) -> bool:
    """True if ``clock`` knows everything that an arrival publishes, save the arrival itself."""
    if credit.asynchronous or not credit.releases:
        return False
    assert credit.clock is not None
    published = credit.clock.copy()
    component, size = credit.component, credit.warp.machine.components.size
    done = max(credit.position, credit.moment)
    for entry, last in (component, done), (GENERIC * size + component, credit.position):
        published[entry] = min(published[entry], last)
    return bool((published <= clock).all())


# ------------------------------------------------------------------ the last phases of a barrier


class Tail:
    """The phases from the one before the first in doubt (condition A) to the end of the run.

    An arrival of the tail may count for any phase of it, and that cannot be observed, as long as

    * no wait passes on one of these phases,
    * every arrival comes after all credits of the phase before the tail (``last``), so that none
      counts for an earlier phase,
    * no wait for ``last`` can miss it: the arrivals that need not come after that wait are too few
      to end a phase. Waits for earlier phases are before a credit of ``last`` (condition C2).

    ``count`` arrivals end a phase; ``done`` is the barrier's component once ``last`` is over.
    """

    def __init__(self, component: int, done: int, last: PhaseRecord, count: int) -> None:
        self.hidden = True
        #: lanes arrive while others of them may still wait: no move of the machine shows it
        self.lags = False
        self._component = component
        self._done = done
        self._last = last
        self._count = count
        self._early = [0] * len(last.waits)

    def extend(self, credits: Iterable[Credit]) -> None:
        """Adds the credits of a phase, with the clocks they were made with."""
        for credit in credits:
            assert credit.clock is not None
            self.add(credit, credit.clock)

    def add(self, credit: Credit, clock: Clock) -> None:
        """Adds arrivals that come after what ``clock`` knows."""
        arrivals, component, common = credit.arrivals, credit.component, credit.common
        if (
            clock[self._component] < self._done
            and self._last.unknown_to(clock, component, common) is not None
        ):
            self.hidden = False
        for number, wait in enumerate(self._last.waits):
            free = 0
            if clock[wait.component] < wait.tick:
                free = arrivals
            elif wait.component == component and common < wait.tick:
                # each lane comes after its own look, not after those of the others
                free = arrivals - arrivals // credit.lanes
                self.lags = True
            if free:
                self._early[number] += free
                self.hidden = self.hidden and self._early[number] < self._count
