"""One mbarrier object: its state (SEMANTICS A.3), what its phases publish, its misuse.

The determinacy conditions that are checked here in passing (DETERMINACY section 2) are A (no
early credit), C1 (no early pass), C2 (no late miss), B (no early completion), P (a .noComplete
arrival is not the last), I and T; what fails is recorded as a `Violation`, and the certificate
decides what it means. An operation that has no meaning in the state it finds is a finding.

A token is what an arrive returns and a wait takes back (SEMANTICS A.4, A19, A20). It is opaque. It
names one phase of one barrier, the object at an address of a CTA between an mbarrier.init and its
mbarrier.inval. It is passed on as a number, through registers and memory; a number that no arrive
has returned is no token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tilesim.findings.finding import Named, Stated, together
from tilesim.ir.ops.mbarrier import MAX_COUNT
from tilesim.records import dataclass
from tilesim.sim.machine.clock import GENERIC, NEVER, SHARED, Clock, join
from tilesim.sim.machine.errors import BarrierError, Side
from tilesim.sim.machine.events import Event
from tilesim.sim.machine.result import Condition, Violation
from tilesim.sim.machine.warp import Barrier
from tilesim.sim.observers.phase_conditions import (
    Credit,
    PhaseRecord,
    Tail,
    Wait,
    change_places,
    early_completion,
    last_partial,
    most_pending,
)
from tilesim.wording import count

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.events import Kind, Trace
    from tilesim.sim.machine.footprint import Access
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.labels import Place
    from tilesim.sim.machine.warp import Agent


@dataclass(slots=True, eq=False)
class Published:
    """What a phase publishes: what threads of the barrier's CTA have released and what has
    completed (``own``), and what other CTAs have released (``away``), one of which is ``by``.

    The order of all that is in ``own``, row S. In the strict reading of scopes (U4) a wait acquires
    ``away`` at cluster scope only, and what has completed of other CTAs is there, too.
    """

    own: Clock
    away: Clock | None = None
    by: Place | None = None

    def of_others(self) -> Clock:
        """``away``, to which something is added."""
        if self.away is None:
            self.away = np.zeros_like(self.own)
        return self.away

    def up_to(self, entry: int, *, away: bool) -> int:
        """An entry of what a wait acquires, with or without what is ``away``."""
        own = self.own.item(entry)
        return own if self.away is None or not away else max(own, self.away.item(entry))


class Mbarrier(Barrier):
    """The barrier object at one address of one CTA: its counts, what its phases publish, and what
    arrivals, bytes and waits do to it.

    ``phase`` counts completed phases since init; ``base`` is added so that the clock component
    never repeats a value over re-initialisations. ``engine`` is the component of the remote stores
    (st.async) it tracks, which belong to the generic proxy (D13); ``peers``, in the strict reading
    of scopes (U4), that of the copies that other CTAs have issued.
    """

    def __init__(
        self,
        machine: Core,
        cta: Place,
        warps: Sequence[Agent],
        address: int,
        component: int,
        engine: int | None,
        peers: int | None,
    ) -> None:
        label = f"mbarrier@{address}"
        super().__init__(machine, Named(label, label, None, cta.number), component)
        self.cta = cta
        self.warps = warps
        self.address = address
        self.engine = engine
        self.peers = peers
        #: what the program calls it here (arrays may alias)
        self.name = ""
        #: the variable that it lies in, and its place there if that is an array of barriers
        self.variable = "mbarrier"
        self.slot: int | None = None
        #: where PTX says it was initialised, from the kernel's line inwards; its bytes without the
        #: name that it has from there
        self.made_at: tuple[tuple[str, int], ...] = ()
        self.bytes_label = ""
        self.is_named_by_source = False
        #: as it was named when it was initialised
        self.first_named = self.named
        #: warps that are known to come after the initialisation
        self.visible_to: set[int] = set()
        #: the component and the value in a clock that say so
        self._initialised = (0, 0)
        self.live = False
        #: what has invalidated it
        self.ended: Side | None = None
        self.base = 0
        self.phase = 0
        #: phases that the run has left out, because they are like others (`tilesim.sim.affine`)
        self.skipped = 0
        self.expected = 0
        self.pending = 0
        self.tx = 0
        self.uses_tx = False
        self._sizes: set[int] = set()
        self._irregular = False
        #: several lanes have made one credit; some condition does not hold
        self._crowded = self._doubtful = False
        self.init: Credit | None = None
        self.current = PhaseRecord()
        self.previous = PhaseRecord()
        self.older = PhaseRecord()
        #: what the open phase publishes, and what the last one has
        self.open = Published(machine.components.clock())
        self.completed = self.open
        self.arrived: Clock = self.open.own
        #: up to where the warps that made the last phase's credits had acquired this barrier's
        #: phases: those of its CTA, and all
        self.handed_on = (0, 0)
        #: the component after the last phase, and after the one before it (perhaps of another life)
        self.done = self.done_before = 0
        self.keeps_clocks = False
        #: other CTAs store to where it tracks that, in the strict reading of scopes
        self.stored_by_peers = False
        #: by component, the last phase whose landings only waits of cluster scope acquire
        self.away: dict[int, int] = {}
        #: of those that the last phase has published: the phase before, and up to where the warps
        #: that made its credits had acquired them
        self.away_before: dict[int, tuple[int, int]] = {}
        self.landed: list[Access] = []
        self.last_load: tuple[Op, Agent, Access] | None = None
        #: what has made the last asynchronous arrival of this CTA; the component behind its phase
        self.last_arrival: Side | None = None
        self.last_arrival_over = 0
        #: by component the latest look that was no wait: the barrier must outlive that as well
        self.looks: dict[int, Wait] = {}
        #: a wait on it has passed
        self.waited = False
        #: all that is known of its phases is how many arrivals were made
        self.by_count = True
        #: warps of other CTAs that have arrived, and the position that they published
        self.senders: dict[int, int] = {}
        #: the phases from the first doubtful one on, which no agent may be able to observe
        self.tail: Tail | None = None

    def call(self, name: str, label: str, variable: str, slot: int | None) -> None:
        """The program calls it so, where it is named now."""
        self.name, self.variable, self.slot = name, variable, slot
        prefix = "" if self.machine.program.ctas == 1 else f"CTA {self.cta.number} "
        whole = f"{prefix}{label}"
        self.named = Named(whole, name or whole, slot, self.cta.number)

    def call_as_written(
        self, made_at: tuple[tuple[str, int], ...], name: str, *, by_source: bool
    ) -> None:
        """From its initialisation on it is called so; no name: as its bytes are called."""
        self.made_at, self.is_named_by_source = made_at, by_source
        if name:
            self.bytes_label = self.name
            self.call(name, name, self.variable, self.slot)

    def tracks(self, cta: Place) -> int:
        """The component that says which copies issued in a CTA are complete."""
        return self.component if self.peers is None or cta is self.cta else self.peers

    @property
    def facts(self) -> Stated:
        """What its state and the contributions to its open phase state."""
        bytes_ = (abs(self.tx),) if self.tx else ()
        state = Stated((self.named,), (), (self.pending, self.expected), bytes_)
        return together((state, self.current.facts))

    def contributions(self, cta: int | None = None) -> Iterator[str]:
        """The contributions to the open phase, one line each; repetitions are counted. ``cta``:
        the one that the text speaks of."""
        return self.current.contributions(cta)

    def skip(self, phases: int) -> None:
        """So many phases more have been completed, an even number, as those before were. Clocks
        stay as they are."""
        self.phase += phases
        self.base -= phases
        self.skipped += phases

    def note(self, kind: Kind, warp: Agent, op: Op, text: str, later: int = 0) -> None:
        """Notes an event in the open phase, or so much ``later``; ``text`` has braces for it."""
        if self.machine.trace is not None:
            phase = self.base + self.phase + later
            self.machine.note(kind, self.component, warp, op, text, phase=phase, named=self.named)

    def note_credit(self, trace: Trace, credit: Credit) -> None:
        """Notes a change of the counts, with what it leaves."""
        parts, label = [], self.named.seen_from(credit.warp.cta.number)
        if credit.arrivals:
            parts.append(f"arrives on {label} ({self.pending} left)")
        if credit.tx:
            verb = "expects" if credit.tx > 0 else "completes"
            parts.append(f"{verb} {abs(credit.tx)} bytes on {label}")
        what = ", ".join(parts) or f"touches {label}"
        # more bytes than expected so far: the order may decide which phase gets the rest
        loose = self.keeps_clocks or self.tx < 0
        trace.note(
            Event(
                "credit", self.component, self.base + self.phase, loose, credit.warp, credit.op,
                f"{what}, phase {self.phase}", (bool(credit.arrivals), credit.tx),
            )
        )  # fmt: skip

    def state(self, cta: int | None = None) -> str:
        """Its phase and its counts, in a text that speaks of one ``cta``, or of none."""
        label = self.named.seen_from(cta)
        text = f"{label} phase {self.phase}: {self.pending} of {self.expected} arrivals pending"
        if self.tx > 0:
            text += f", {self.tx} bytes outstanding"
        elif self.tx < 0:
            text += f", {-self.tx} bytes more completed than expected"
        return text

    # ------------------------------------------------------------------ lifetime

    def start(self, count: int, credit: Credit) -> None:
        """mbarrier.init (A5): phase 0, ``count`` pending and expected arrivals."""
        if self.live:
            assert self.init is not None
            raise BarrierError(
                "barrier-lifetime",
                f"mbarrier.init at shared address {self.address}, where "
                f"{self.first_named.label} is already a live mbarrier (A6)",
                "call mbarrier.inval and synchronise before the bytes are initialised again",
                Side(self.init.warp, self.init.op),
                facts=Stated((self.first_named,)),
            )
        if not 1 <= count <= MAX_COUNT:
            raise self.misuse(
                "over-arrival",
                f"mbarrier.init of {self.label} with count {count}, outside 1..{MAX_COUNT} (A5)",
                "initialise with the number of arrivals of one phase",
            )
        self.live = True
        self.base += self.phase
        self.phase = 0
        self.note("life", credit.warp, credit.op, f"initialises {{}} with {count}")
        self.expected = self.pending = count
        self.tx = 0
        self.init = credit
        self.first_named = self.named
        self._initialised = self._note_init(credit.warp, credit.tick)
        whole = not (credit.warp.is_divided or credit.warp.apart)
        self.visible_to = {credit.warp.index} if whole else set()
        self.current, self.previous, self.older = PhaseRecord(), PhaseRecord(), PhaseRecord()
        self.looks.clear()
        self.open = Published(self.machine.components.clock())
        self.arrived = self.machine.components.clock()

    def _note_init(self, warp: Agent, tick: int) -> tuple[int, int]:
        """What a clock holds of an init that ``warp`` makes now: what acquires that comes after.

        Either the warp's position, or what fence.mbarrier_init can hand over apart from it (D6).
        """
        if warp.inits is None:
            return warp.component, tick
        component, number = warp.inits.component, warp.inits.add(warp.mask)
        warp.rows(component)[:SHARED] = number
        return component, number

    def check_visible(self, warp: Agent, op: Op) -> None:
        """Raises unless the initialisation happens before ``op`` of ``warp`` (A7, D6)."""
        init = self.init
        assert init is not None
        component, value = self._initialised
        if warp.index == init.warp.index and not warp.mask & ~init.mask:
            # its own lanes made it, whatever they have been parts of since
            return
        known = warp.rows(component)[GENERIC] >= value
        if known and warp.index == init.warp.index and component in warp.part.settled:
            # what lanes of one part did, others of it come after only where they have met
            known = warp.part.settled[component] >= value
        if not known:
            raise not_visible(self, warp, op)
        if not (warp.is_divided or warp.apart):
            self.visible_to.add(warp.index)

    def stop(self, warp: Agent, op: Op) -> None:
        """mbarrier.inval by ``warp`` (A6): condition I, everything on the barrier is before it."""
        if self.waiters:
            waiter = self.waiters[0]
            wait = waiter.blocked.op if waiter.blocked is not None else None
            raise self.misuse(
                "barrier-lifetime",
                f"mbarrier.inval of {self.label} while {waiter} waits on it (A6)",
                "synchronise every user of the barrier with the warp that invalidates it",
                None if wait is None else Side(waiter, wait),
            )
        self.check_last_phase()
        self._check_over(warp, op, warp.clock)
        self.live = False
        self.last_arrival = None
        self.ended = Side(warp, op)
        self.base += 1
        self.note("life", warp, op, "invalidates {}", -self.phase)

    def _check_over(self, warp: Agent, op: Op, clock: Clock) -> None:
        """Condition I: what was done with the object happens before its mbarrier.inval."""
        for use, in_time in late_uses(self, warp, clock):
            if not in_time:
                self._violation("I", op, warp, Credit(use.warp, use.op, 0, 0, use.tick), clock)
                continue
            gathered = use.warp.gathered.get(use.component, -1) >= use.tick
            if not (gathered and self.machine.accepts("A6", op, use.op)):
                unordered_end(self, warp, op, use)

    # ------------------------------------------------------------------ transitions

    def credit(self, credit: Credit, clock: Clock, *, visible: bool, drop: int = 0) -> None:
        """Applies arrivals and bytes (A.3) and completes the phase if it is due.

        The lanes of a credit are one event on an H200, several by the text: the phase must not end
        between them (A32). ``clock`` is the one of the credit (of its issue if asynchronous).
        It always extends synchronisation causality; memory becomes visible through it only for a
        release. ``drop``: so many participants leave the barrier.
        """
        if credit.lanes > 1:
            self._crowded = True
            inside = credit.lanes_inside(self.pending, self.tx)
            if inside < credit.lanes:
                raise ends_between_lanes(self, credit, inside)
        if credit.asynchronous:
            self._check_lifetime(credit, clock)
        if self.phase and clock.item(self.component) < self.base + self.phase:
            self._check_early(credit, clock)
        # nothing is pending and nothing was contributed: all threads have dropped (U6)
        if credit.arrivals > self.pending or not (self.pending or self.current.credits):
            raise over_arrival(self, credit)
        # that of an asynchronous operation's issue belongs to no agent any more
        credit.clock = clock if credit.asynchronous else clock.copy()
        if self.tail is not None:
            self.tail.add(credit, clock)
            if self.tail.lags:
                self.machine.outcome.explorable = False
        if drop:
            self._drop(drop)
        if credit.partial:
            self._irregular = True
        arrivals = credit.arrivals
        if arrivals:
            self._sizes.add(arrivals // credit.lanes)
            self.pending -= arrivals
        if credit.tx:
            self.uses_tx = True
            self._count_bytes(credit, clock)
        self.current.credits.append(credit)
        if arrivals < 0:
            self._check_lent(credit)
        away = credit.warp.cta is not self.cta
        if away:
            self.senders[credit.component] = clock.item(credit.component)
        elif credit.asynchronous and arrivals > 0:
            self.last_arrival = Side(credit.warp, credit.op)
            self.last_arrival_over = self.base + self.phase + 1
        if not credit.releases:
            self.by_count = False
        machine = self.machine
        if machine.trace is not None:
            self.note_credit(machine.trace, credit)
        if machine.views is not None:
            machine.views.counts(credit.warp, self.component, clock)
        if visible and not away:
            join(self.open.own, clock)
        else:
            size = machine.components.size
            join(self.open.own[:size], clock[:size])
            if visible:
                self._release(clock[size:], size, credit.warp.cta)
        if arrivals > 0 and self.keeps_clocks and not credit.lent:
            join(self.arrived, clock)
        if self.pending == 0 and self.tx == 0:
            self._complete(credit)

    def _drop(self, participants: int) -> None:
        """So many arrivals fewer are expected from the next phase on (A16)."""
        self._irregular = True
        self.expected -= participants
        if self.expected < 0:
            raise self.misuse(
                "over-arrival",
                f"more participants have dropped from {self.label} than it had (A16)",
                "arrive_drop once per participant",
            )

    def _check_lifetime(self, credit: Credit, clock: Clock) -> None:
        """An operation lands on the object it was issued for, not on a later one (A6)."""
        init = self.init
        assert init is not None
        if self.ended is None:
            return
        if clock[init.component] < init.tick and not init.known_by_parts(clock):
            raise landed_late(self, credit)

    def _count_bytes(self, credit: Credit, clock: Clock) -> None:
        """Adds bytes; condition T: no order of the phase's credits leaves the range (A3)."""
        self.tx += credit.tx
        most = self.current.add_bytes(credit.tx)
        if not -MAX_COUNT <= self.tx <= MAX_COUNT:
            raise self.misuse(
                "tx-mismatch",
                f"the tx-count of {self.label} becomes {self.tx} in phase {self.phase}, outside "
                f"-{MAX_COUNT}..{MAX_COUNT} (A3)",
                "keep the bytes of one phase below 2^20",
            )
        if most > MAX_COUNT:
            self._violation("T", credit.op, credit.warp, None, clock)
            # within a phase credits commute but for this, and exploration relies on that
            self.machine.outcome.explorable = False

    def _check_lent(self, credit: Credit) -> None:
        """The pending count stays in its range (A3), and in every order (condition R)."""
        if self.pending > MAX_COUNT:
            raise overfull(self, credit)
        lent = self.expected - sum(c.arrivals for c in self.current.credits if c.arrivals < 0)
        if lent > MAX_COUNT and most_pending(self.expected, self.current.credits) > MAX_COUNT:
            self._violation("R", credit.op, credit.warp, None, credit.clock)
            self.machine.outcome.explorable = False

    def publish(self, clock: Clock, cta: Place) -> None:
        """Makes ``clock`` of a thread of ``cta`` visible through the current phase (a fence before
        a relaxed arrive)."""
        size = self.machine.components.size
        self._release(clock[size:], size, cta)

    def _release(self, known: Clock, start: int, cta: Place) -> None:
        """The current phase publishes the rows of a clock that ``start`` there, of a thread of
        ``cta``."""
        if cta is self.cta:
            join(self.open.own[start:], known)
        else:
            self.open.by = cta
            join(self.open.of_others()[start:], known)

    def publish_completion(self, component: int, count: int, *, remote: bool) -> None:
        """The current phase lets its waiters know that ``count`` operations are complete.

        ``remote``: the operations were issued in another CTA (for the strict reading of U4).
        """
        components = self.machine.components
        clock = components.clock()
        components.rows(clock, component)[:] = count
        if remote and self.machine.options.ptx:
            join(self.open.of_others(), clock)
            join(components.in_time(self.open.own), components.in_time(clock))
        else:
            join(self.open.own, clock)

    def _publish_landed(self, done: int) -> None:
        """The phase lets its waiters know what has landed, those of cluster scope what other CTAs
        have issued (U4)."""
        size, published = self.machine.components.size, self.open
        others = [r for r in self.landed if r.warp.cta is not self.cta]
        away = {r.component for r in others}
        self.away_before = {}
        if others:
            published.by = others[0].warp.cta
        if self.peers in away and self.peers is not None:
            published.own[self.peers] = done
            self._land_away(self.peers, done)
            published.of_others()[self.peers :: size] = done
        if self.engine is not None:
            self.stored_by_peers |= self.peers is not None and self.engine in away
            published.own[self.engine] = done
            if self.engine in away and self.stored_by_peers:
                self._land_away(self.engine, done)
            known = published.of_others() if self.stored_by_peers else published.own
            known[size + self.engine] = done
        for record in self.landed:
            record.tick = done
        self.landed.clear()

    def _land_away(self, component: int, done: int) -> None:
        """What has landed in this phase takes a wait of cluster scope, and so did what landed
        before: what has not acquired that does not so now (U7)."""
        handed = self.open.up_to(self.machine.components.size + component, away=True)
        self.away_before[component] = self.away.get(component, 0), handed
        self.away[component] = done

    def _check_early(self, credit: Credit, clock: Clock) -> None:
        """Condition A: every credit of the phase before is ordered before this one, whose clock
        does not have that phase."""
        now = NEVER if credit.asynchronous else credit.tick
        before = self.previous.unknown_to(clock, credit.component, credit.common, now)
        if before is not None:
            harmless = change_places(self.previous, credit, clock)
            self._violation("A", credit.op, credit.warp, before, clock, harmless=harmless)
            self._begin_tail()

    def _begin_tail(self) -> None:
        """From the phase before the current one on, arrivals may count for another phase."""
        if self.tail is None:
            done = self.base + self.phase - 1
            self.tail = Tail(self.component, done, self.older, self.expected)
            self.tail.extend((*self.previous.credits, *self.current.credits))
            self.tail.hidden = self.tail.hidden and not self.previous.waits

    def _complete(self, last: Credit) -> None:
        size = self.machine.components.size
        done = self.base + self.phase + 1
        self.done_before, self.done = self.done, done
        published, entry = self.open, size + self.component
        self.handed_on = published.up_to(entry, away=False), published.up_to(entry, away=True)
        published.own[self.component :: size] = done
        self._publish_landed(done)
        self._check_missed(last, published.own)
        self._check_whole()
        self.completed = published
        if self.machine.views is not None:
            clock, away = published.own, None if self.machine.options.ptx else published.away
            clock = clock if away is None else np.maximum(clock, away)
            self.machine.views.ends(self.component, done, last, clock)
        self.older, self.previous, self.current = self.previous, self.current, PhaseRecord()
        self.open = Published(self.machine.components.clock())
        if self.keeps_clocks:
            self.arrived = self.machine.components.clock()
        self.phase += 1
        self.pending = self.expected
        self.wake_waiters()

    def _check_missed(self, last: Credit, clock: Clock) -> None:
        """Condition C2: every wait for the phase before is ordered before this phase's end."""
        known = clock.item
        for wait in self.previous.waits:
            if known(wait.component) < wait.tick and not wait.known_by_parts(clock):
                self._violation("C2", wait.op, wait.warp, last, None)

    def _check_whole(self, *, last_phase: bool = False) -> None:
        """Conditions B, no proper part of the phase's credits looks complete, and P."""
        if not self.keeps_clocks:
            return
        credits = self.current.credits
        early = early_completion(credits, self.arrived, last_phase=last_phase)
        if early is not None:
            # no move of the machine shows what is between the lanes
            self.machine.outcome.explorable &= all(credit.lanes == 1 for credit in credits)
            self._violation("B", early.op, early.warp, None, early.clock)
        partial = last_partial(credits)
        if partial is not None:
            self._violation("P", partial.op, partial.warp, None, None)

    def check_last_phase(self) -> None:
        """Conditions B and P for the phase that never completed, at the end of the object's life.

        Without bare expectations, missing bytes keep it from completing in every order; bytes too
        many do not.
        """
        if not self.live or self.pending or not self.current.credits:
            return
        self._check_whole(last_phase=True)
        if not self.keeps_clocks and self.tx < 0:
            last = self.current.credits[-1]
            self._violation("B", last.op, last.warp, None, None)

    @property
    def hides_order(self) -> bool:
        """True if it cannot be observed which phase an arrival in doubt has counted for.

        Its state then depends on how many arrivals were made, and on nothing else: they all have
        one size and carry no bytes; none is a drop, after which a phase expects less, or
        .noComplete, which sees whether it is the last. It has one life, and no warp waits for it,
        or not any more.
        """
        unwatched = not self.waited or (self.tail is not None and self.tail.hidden)
        return self.counts_only and unwatched and self.base + self.skipped == 0

    @property
    def counts_only(self) -> bool:
        """True if its state depends on nothing but the number of arrivals."""
        return len(self._sizes) == 1 and not self._irregular and not self.uses_tx

    def check_crowd(self) -> None:
        """At the end of a run: no move of the machine is one of several lanes of one credit.

        That cannot matter where all credits belong to their phase in every schedule, nor for equal
        arrivals, of which only the number counts.
        """
        if self._crowded and self._doubtful and not self.counts_only:
            self.machine.outcome.explorable = False

    # ------------------------------------------------------------------ waits

    def observed_at(self, clock: Clock) -> bool:
        """True if some thread's wait on the preceding phase comes before what has this clock."""
        if self.phase == 0:
            return True
        known = clock.item
        for wait in self.previous.waits:
            component, tick = wait.component, wait.tick
            if known(component) >= tick or wait.warp.parts.released(clock, component, tick)[1]:
                return True
        return False

    def knows_completion(self, warp: Agent) -> bool:
        """True if the preceding phase is over for each lane of ``warp`` (or this is the first)."""
        if self.phase == 0 or warp.clock[self.component] >= self.base + self.phase:
            return True
        self.by_count = False
        return self.previous.unknown_to(warp.clock, warp.component, warp.common) is None

    def has_completed(self, parity: int) -> bool:
        """test_wait.parity: True if the phase of this parity is the preceding one (A21)."""
        return (self.phase & 1) != parity

    def looked(self, warp: Agent, op: Op) -> None:
        """Records a look at the barrier that is no wait: it must outlive that (condition I)."""
        self.looks[warp.component] = Wait(warp, warp.component, warp.tick, op, warp.mask)

    def passed(self, warp: Agent, op: Op) -> None:
        """Records that a wait passed, and checks C1 before its warp learns anything."""
        phase = self.phase - 1
        if warp.clock.item(self.component) < self.base + phase:
            self.check_pass(warp, op, warp.clock, warp.common)
        self.waited = True
        if self.machine.views is not None:
            self.machine.views.looks(warp, self.component, passes=True, answers=False)
        if self.tail is not None:
            self.tail.hidden = False
        if self.machine.trace is not None:
            self.note("pass", warp, op, f"passes {{}} phase {phase}", -1)
        self.previous.waits.append(Wait(warp, warp.component, warp.moment, op, warp.mask))

    def check_pass(self, warp: Agent, op: Op, clock: Clock, common: int) -> None:
        """Condition C1 for a wait that has passed, which looked at the barrier by ``op`` with
        ``clock``: not two phases too early."""
        phase = self.phase - 1
        if phase < 1 or clock.item(self.component) >= self.base + phase:
            return
        self.by_count = False
        before = self.older.unknown_to(clock, warp.component, common)
        if before is not None:
            self._violation("C1", op, warp, before, clock)

    def _violation(
        self, condition: Condition, op: Op, warp: Agent, other: Credit | None, past: Clock | None,
        *, harmless: bool = False,
    ) -> None:  # fmt: skip
        self._doubtful = True
        lags = other is not None and other.warp is warp and other.lanes > 1
        if warp.may_divide or lags or (other is not None and other.warp.may_divide):
            # no move of the machine shows a lane that lags behind the others
            self.machine.outcome.explorable = False
        self.machine.violation(
            Violation(
                condition, self.named, self.phase, op, warp,
                other.op if other else None, other.warp if other else None,
                None if past is None else self.machine.components.in_time(past).copy(), harmless,
            ),
            self,
        )  # fmt: skip


# ------------------------------------------------------------------ misuse


def _init_of(barrier: Mbarrier) -> Side | None:
    """The initialisation of a barrier's present life."""
    return None if barrier.init is None else Side(barrier.init.warp, barrier.init.op)


def not_visible(barrier: Mbarrier, warp: Agent, op: Op) -> BarrierError:
    """An operation by a warp that need not know of the initialisation (A7)."""
    init = _init_of(barrier)
    where = "" if init is None else f" at {init.op.loc}"
    return barrier.misuse(
        "init-visibility",
        f"{op.mnemonic} on {barrier.label} by {warp}, for which the mbarrier.init{where} is not "
        "ordered before it (A7)",
        "put a __syncthreads (or, for other CTAs, fence.mbarrier_init and a cluster barrier) "
        "between the initialisation and the first use",
        init,
    )


def landed_late(barrier: Mbarrier, credit: Credit) -> BarrierError:
    """An asynchronous operation completes on an object that is not the one it was issued for."""
    return barrier.misuse(
        "barrier-lifetime",
        f"{credit.op.mnemonic} of {credit.warp} completes on {barrier.label} after that was "
        "invalidated and initialised again (A6)",
        "wait for the operation before the barrier is invalidated",
        _init_of(barrier),
    )


def over_arrival(barrier: Mbarrier, credit: Credit) -> BarrierError:
    """More arrivals than the phase has pending (A13); the other side is its last arrival."""
    arrived = [c for c in barrier.current.credits if c.arrivals > 0]
    bytes_ = f" and still waits for {barrier.tx} bytes" if barrier.tx else ""
    return barrier.misuse(
        "over-arrival",
        f"{count(credit.arrivals, 'arrival')} on {barrier.label} in phase {barrier.phase}, which "
        f"has {barrier.pending} of {barrier.expected} pending{bytes_} (A13)",
        "make the init count the number of arrivals of one phase, and wait for a phase "
        "before arriving on the next one",
        Side(arrived[-1].warp, arrived[-1].op) if arrived else None,
        tuple(barrier.contributions()),
        arrivals=(credit.arrivals,),
        bytes_=(abs(barrier.tx),) if barrier.tx else (),
        noted=barrier.current.facts,
    )


def ends_between_lanes(barrier: Mbarrier, credit: Credit, inside: int) -> BarrierError:
    """Some lanes of one instruction end the phase, by the text; hardware adds up what all do (A32).

    Then there are more arrivals than are pending, or bytes whose balance passes zero.
    """
    if credit.arrivals > 0:
        return barrier.misuse(
            "over-arrival",
            f"{credit.lanes} lanes make {credit.arrivals} arrivals on {barrier.label} by one "
            f"instruction, in phase {barrier.phase}, which has {barrier.pending} of "
            f"{barrier.expected} pending: by the text it ends after {inside} lanes, an H200 adds "
            "up all of them and stops (A32)",
            "make the init count the number of arrivals of one phase, or let fewer lanes arrive",
            None,
            tuple(barrier.contributions()),
            arrivals=(credit.arrivals,),
            noted=barrier.current.facts,
        )
    moved = abs(credit.tx)
    return barrier.misuse(
        "tx-mismatch",
        f"{credit.op.mnemonic} by {credit.lanes} lanes counts {moved} bytes on {barrier.label}, "
        f"whose balance is {barrier.tx}: by the text phase {barrier.phase} ends after {inside} "
        "lanes, an H200 adds up all of them and leaves it open (A32)",
        "let the lanes of one instruction together count no more than the phase still expects",
        bytes_=(moved,),
    )


def overfull(barrier: Mbarrier, credit: Credit) -> BarrierError:
    """An instruction adds an arrival to a phase that expects as many as can be counted (A3)."""
    return barrier.misuse(
        "over-arrival",
        f"{credit.op.mnemonic} makes {barrier.label} expect {barrier.pending} arrivals in phase "
        f"{barrier.phase}, more than {MAX_COUNT} (A3, C6)",
        "use .noinc and count these arrivals in mbarrier.init",
        _init_of(barrier),
        arrivals=(barrier.pending,),
    )


def late_uses(barrier: Mbarrier, warp: Agent, clock: Clock) -> Iterator[tuple[Credit | Wait, bool]]:
    """What was done with a barrier and does not happen before a mbarrier.inval with ``clock``, and
    whether it at least comes before it in time.

    mbarrier.inval is an ordinary write (A6). What its warp has waited for on this barrier comes
    before it anyhow.
    """
    row = GENERIC * barrier.machine.components.size
    known = clock[row:]
    uses: list[Credit | Wait] = [*barrier.looks.values()]
    for record, phase in ((barrier.current, barrier.phase + 1), (barrier.previous, barrier.phase)):
        uses += record.waits
        own = any(w.warp is warp and known[w.component] >= w.tick for w in record.waits)
        if not own and known[barrier.component] < barrier.base + phase:
            uses += record.credits
    for use in uses:
        late = clock[use.component] < use.tick and not use.known_by_parts(clock)
        if getattr(use, "asynchronous", False) or late:
            yield use, False
        elif known[use.component] < use.tick and not use.known_by_parts(clock, row):
            yield use, True


def unordered_end(barrier: Mbarrier, warp: Agent, op: Op, use: Credit | Wait) -> None:
    """mbarrier.inval is a write, and nothing makes ``use`` happen before it but time (A6)."""
    machine = warp.machine
    machine.report(
        "barrier-lifetime",
        f"{warp} invalidates {barrier.label}, and nothing orders that after {use.op.mnemonic} of "
        f"{use.warp}, although it comes later (A6)",
        ((warp, f"executes {op.mnemonic}", op), (use.warp, f"executes {use.op.mnemonic}", use.op)),
        fix="order each use before mbarrier.inval: release after the last use, acquire before "
        "mbarrier.inval",
        facts=Stated((barrier.named,)),
    )


# ------------------------------------------------------------------ tokens (A19, A20)


class Token(NamedTuple):
    """What the arrive ``by`` returned: the phase (over all lives of ``barrier``) and how many
    arrivals were pending, which only a .noComplete form tells (``counted``)."""

    barrier: Mbarrier
    phase: int
    pending: int
    counted: bool
    by: Side


#: the numbers of consecutive tokens are far apart, so that arithmetic on one does not give another
_SPREAD = 0x9E3779B97F4A7C15
_BITS = (1 << 63) - 1


def token_number(count: int) -> int:
    """What stands in a 64-bit register for the token that is issued after so many others."""
    return (count + 1) * _SPREAD & _BITS
