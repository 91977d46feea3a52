"""One mbarrier object: its state (SEMANTICS A.3) and what its phases publish.

The determinacy conditions that are checked here in passing (DETERMINACY section 2) are A (no
early credit), C1 (no early pass), C2 (no late miss), B (no early completion), I and T; what fails
is recorded as a `Doubt`, and the certificate decides what it means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from tilesim.ir.ops.mbarrier import MAX_COUNT
from tilesim.sim.findings import Rule
from tilesim.sim.machine.clock import Clock, join
from tilesim.sim.machine.warp import Fault

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.access import Access
    from tilesim.sim.machine.cta import Cta
    from tilesim.sim.machine.machine import Machine
    from tilesim.sim.machine.warp import Warp

Condition = Literal["A", "B", "C1", "C2", "N", "I", "T"]


@dataclass(slots=True)
class Credit:
    """A change of a barrier in one phase: arrivals, bytes, who made it.

    ``tick`` orders the credits of a warp; an ``asynchronous`` credit is only known through the
    phase it completes. ``clock`` is kept where the exact condition B needs it.
    """

    warp: Warp
    op: Op
    arrivals: int
    tx: int
    tick: int
    asynchronous: bool = False
    clock: Clock | None = None


@dataclass(frozen=True, slots=True)
class Doubt:
    """A determinacy condition that failed: where, between whom, in which phase.

    ``cut`` is the clock of what must have happened before ``op``: the divergent schedule of
    DETERMINACY theorem 2 runs just that, then ``op``.
    """

    condition: Condition
    barrier: str
    phase: int
    op: Op
    warp: Warp
    other: Op | None = None
    other_warp: Warp | None = None
    cut: Clock | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """Doubts with the same key are the same defect in another iteration."""
        return (self.condition, self.barrier, self.op.loc, self.other and self.other.loc)


@dataclass(slots=True)
class PhaseRecord:
    """Who contributed to one phase and, once it has completed, who waited for it."""

    credits: list[Credit] = field(default_factory=list)
    waits: list[tuple[Warp, int, Op]] = field(default_factory=list)


class Side(NamedTuple):
    """The other operation of a misuse."""

    warp: Warp
    op: Op


class BarrierError(Fault):
    """Undefined behaviour of a barrier operation: the run stops with this finding."""

    def __init__(
        self,
        rule: Rule,
        message: str,
        fix: str,
        other: Side | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.rule: Rule = rule
        self.message = message
        self.fix = fix
        self.other = other
        self.notes = notes


class Mbarrier:
    """The barrier object at one address of one CTA.

    ``phase`` counts completed phases since init; ``base`` is added so that the clock component
    never repeats a value over re-initialisations. ``engine`` is the component of the remote stores
    (st.async) it tracks, which belong to the generic proxy (D13). ``remote`` is, in the strict
    reading of scopes (U4), what only a wait of cluster scope acquires.
    """

    def __init__(
        self, machine: Machine, cta: Cta, address: int, component: int, engine: int | None
    ) -> None:
        self.machine = machine
        self.cta = cta
        self.address = address
        self.component = component
        self.engine = engine
        #: what the program calls it here, and called it when it was initialised (arrays may alias)
        self.label = f"mbarrier@{address}"
        self.name = ""
        self.first_label = self.label
        self.visible_to: set[int] = set()
        self.init_fenced = False
        self.live = False
        self.ever_live = False
        self.base = 0
        self.phase = 0
        self.expected = 0
        self.pending = 0
        self.tx = 0
        self.uses_tx = False
        self._sizes: set[int] = set()
        self._dropped = False
        self.init: Credit | None = None
        self.current = PhaseRecord()
        self.previous = PhaseRecord()
        self.older = PhaseRecord()
        self.joined: Clock = machine.components.clock()
        self.arrived: Clock = self.joined
        self.completed: Clock = self.joined
        self.keeps_clocks = False
        self.joined_remote: Clock | None = None
        self.remote: Clock | None = None
        self.landed: list[Access] = []
        self.last_load: tuple[Op, Warp, Access] | None = None
        self.waiters: list[Warp] = []
        #: polls whose answer a later wait of the warp makes irrelevant, with the clock they had
        self.peeks: dict[Warp, tuple[Clock, Op]] = {}
        self.last_waited = -2

    # ------------------------------------------------------------------ lifetime

    def start(self, count: int, credit: Credit) -> None:
        """mbarrier.init (A5): phase 0, ``count`` pending and expected arrivals."""
        if self.live:
            assert self.init is not None
            raise BarrierError(
                "barrier-lifetime",
                f"mbarrier.init at shared address {self.address}, where {self.first_label} is "
                "already a live mbarrier (A6)",
                "call mbarrier.inval and synchronise before the bytes are initialised again",
                Side(self.init.warp, self.init.op),
            )
        if not 1 <= count <= MAX_COUNT:
            raise BarrierError(
                "over-arrival",
                f"mbarrier.init of {self.label} with count {count}, outside 1..{MAX_COUNT} (A5)",
                "initialise with the number of arrivals of one phase",
            )
        self.live = self.ever_live = True
        self.base += self.phase
        if self.machine.trace is not None:
            text = f"initialises {self.label} with {count}"
            phase = self.base
            self.machine.trace.note("life", self.component, phase, credit.warp, credit.op, text)
        self.phase = 0
        self.expected = self.pending = count
        self.tx = 0
        self.init = credit
        self.first_label = self.label
        self.init_fenced = False
        self.visible_to = {credit.warp.index}
        self.current, self.previous, self.older = PhaseRecord(), PhaseRecord(), PhaseRecord()
        self.joined = self.machine.components.clock()
        self.arrived = self.machine.components.clock()
        self.last_waited = -2

    def check_visible(self, warp: Warp, op: Op) -> None:
        """Raises unless the initialisation happens before ``op`` of ``warp`` (A7, D6)."""
        assert self.init is not None
        size = self.machine.components.size
        component, tick = self.init.warp.component, self.init.tick
        row = 0 if self.init_fenced else size
        if warp.clock[row + component] < tick:
            raise BarrierError(
                "init-visibility",
                f"{op.mnemonic} on {self.label} by {warp}, for which the mbarrier.init at "
                f"{self.init.op.loc} is not ordered before it (A7)",
                "put a __syncthreads (or, for other CTAs, fence.mbarrier_init and a cluster "
                "barrier) between the initialisation and the first use",
                Side(self.init.warp, self.init.op),
            )
        self.visible_to.add(warp.index)

    def stop(self, warp: Warp, op: Op) -> None:
        """mbarrier.inval by ``warp`` (A6): condition I, everything on the barrier is before it."""
        clock = warp.clock
        for record in (self.current, self.previous):
            for credit in record.credits:
                late = credit.asynchronous and clock[self.component] < self.base + self.phase
                if late or clock[credit.warp.component] < credit.tick:
                    self._doubt("I", op, warp, credit, clock)
            for waiter, tick, wait in record.waits:
                if clock[waiter.component] < tick:
                    self._doubt("I", op, warp, Credit(waiter, wait, 0, 0, tick), clock)
        self.live = False
        self.base += 1
        if self.machine.trace is not None:
            text = f"invalidates {self.label}"
            self.machine.trace.note("life", self.component, self.base, warp, op, text)

    # ------------------------------------------------------------------ transitions

    def credit(self, credit: Credit, clock: Clock, *, visible: bool, drop: int = 0) -> None:
        """Applies arrivals and bytes atomically (A.3) and completes the phase if it is due.

        ``clock`` is the one of the credit (of its issue if asynchronous). It always extends
        synchronisation causality; memory becomes visible through it only for a release.
        """
        self._check_early(credit, clock)
        if credit.arrivals > self.pending:
            raise self._over_arrival(credit)
        if self.keeps_clocks:
            credit.clock = clock.copy()
        self.uses_tx |= credit.tx != 0
        self.expected -= drop
        self._dropped |= drop != 0
        if credit.arrivals:
            self._sizes.add(credit.arrivals)
        self.pending -= credit.arrivals
        self.tx += credit.tx
        if not -MAX_COUNT <= self.tx <= MAX_COUNT:
            self._doubt("T", credit.op, credit.warp, None, clock)
        self.current.credits.append(credit)
        machine = self.machine
        if machine.trace is not None:
            self._note(credit)
        size = machine.components.size
        if visible and machine.options.ptx and credit.warp.cta is not self.cta:
            if self.joined_remote is None:
                self.joined_remote = machine.components.clock()
            join(self.joined_remote, clock)
            visible = False
        if visible:
            join(self.joined, clock)
        else:
            join(self.joined[:size], clock[:size])
        if credit.arrivals > 0 and self.keeps_clocks:
            join(self.arrived, clock)
        if self.pending == 0 and self.tx == 0:
            self._complete(credit)

    def _over_arrival(self, credit: Credit) -> BarrierError:
        """More arrivals than the phase has pending (A13); the other side is its last arrival."""
        arrived = [c for c in self.current.credits if c.arrivals > 0]
        bytes_ = f" and still waits for {self.tx} bytes" if self.tx else ""
        return BarrierError(
            "over-arrival",
            f"{credit.arrivals} arrival(s) on {self.label} in phase {self.phase}, which has "
            f"{self.pending} of {self.expected} pending{bytes_} (A13)",
            "make the init count the number of arrivals of one phase, and wait for a phase "
            "before arriving on the next one",
            Side(arrived[-1].warp, arrived[-1].op) if arrived else None,
            tuple(self.contributions()),
        )

    def contributions(self) -> Iterator[str]:
        """Who has contributed to the open phase, one line each; repetitions are counted."""
        lines = Counter(_contribution(credit) for credit in self.current.credits)
        for count, (line, times) in enumerate(lines.items()):
            if count == _SHOWN:
                yield f"... and {len(lines) - _SHOWN} more"
                return
            yield line if times == 1 else f"{times} x {line}"

    def _note(self, credit: Credit) -> None:
        trace = self.machine.trace
        assert trace is not None
        parts = []
        if credit.arrivals:
            parts.append(f"arrives on {self.label} ({self.pending} left)")
        if credit.tx:
            verb = "expects" if credit.tx > 0 else "completes"
            parts.append(f"{verb} {abs(credit.tx)} bytes on {self.label}")
        what = ", ".join(parts) or f"touches {self.label}"
        text = f"{what}, phase {self.phase}"
        phase = self.base + self.phase
        trace.note(
            "credit", self.component, phase, credit.warp, credit.op, text, loose=self.keeps_clocks
        )

    def publish(self, clock: Clock) -> None:
        """Makes ``clock`` visible through the current phase (a fence before a relaxed arrive)."""
        size = self.machine.components.size
        join(self.joined[size:], clock[size:])

    def publish_completion(self, component: int, count: int, *, remote: bool) -> None:
        """The current phase lets its waiters know that ``count`` operations are complete.

        ``remote``: the operations were issued in another CTA (for the strict reading of U4).
        """
        clock = self.machine.components.clock()
        size = self.machine.components.size
        clock[component::size] = count
        if remote and self.machine.options.ptx:
            if self.joined_remote is None:
                self.joined_remote = self.machine.components.clock()
            join(self.joined_remote, clock)
            join(self.joined[:size], clock[:size])
        else:
            join(self.joined, clock)

    def _check_early(self, credit: Credit, clock: Clock) -> None:
        """Condition A: every credit of the phase before is ordered before this one."""
        if self.phase == 0 or clock[self.component] >= self.base + self.phase:
            return
        for before in self.previous.credits:
            if before.asynchronous or clock[before.warp.component] < before.tick:
                self._doubt("A", credit.op, credit.warp, before, clock)
                return

    def _complete(self, last: Credit) -> None:
        size = self.machine.components.size
        done = self.base + self.phase + 1
        clock = self.joined
        clock[self.component :: size] = done
        if self.engine is not None:
            clock[self.engine] = clock[size + self.engine] = done
        for record in self.landed:
            record.tick = done
        self.landed.clear()
        for warp, tick, op in self.previous.waits:
            if clock[warp.component] < tick:
                self._doubt("C2", op, warp, last, None)
        self._check_expects()
        self.completed = clock
        self.remote, self.joined_remote = self.joined_remote, None
        self.older, self.previous, self.current = self.previous, self.current, PhaseRecord()
        self.joined = self.machine.components.clock()
        self.arrived = self.machine.components.clock()
        self.phase += 1
        self.pending = self.expected
        if self.expected < 0:
            raise BarrierError(
                "over-arrival",
                f"more participants have dropped from {self.label} than it had (A16)",
                "arrive_drop once per participant",
            )
        waiters, self.waiters = self.waiters, []
        for warp in waiters:
            self.machine.wake(warp)

    def _check_expects(self, *, last_phase: bool = False) -> None:
        """Condition B: no proper part of the phase's credits looks complete."""
        if not self.keeps_clocks:
            return
        early = early_completion(self.current.credits, self.arrived, last_phase=last_phase)
        if early is not None:
            self._doubt("B", early.op, early.warp, None, early.clock)

    def check_last_phase(self) -> None:
        """Condition B for the phase that never completed, at the end of the run."""
        if self.live and self.pending == 0:
            self._check_expects(last_phase=True)

    def never_overflows(self) -> bool:
        """True if no order of the arrivals seen so far brings more than a phase has pending.

        After a drop a phase expects less, so it matters which phase the drop counts for.
        """
        if len(self._sizes) > 1 or self._dropped:
            return False
        return all(size > 0 and self.expected % size == 0 for size in self._sizes)

    # ------------------------------------------------------------------ waits

    def observed_by(self, warp: Warp) -> bool:
        """True if a wait on the preceding phase is ordered before what ``warp`` does next."""
        return self.phase == 0 or any(
            warp.clock[waiter.component] >= tick for waiter, tick, _ in self.previous.waits
        )

    def has_completed(self, parity: int) -> bool:
        """test_wait.parity: True if the phase of this parity is the preceding one (A21)."""
        return (self.phase & 1) != parity

    def passed(self, warp: Warp, op: Op) -> None:
        """Records that a wait passed, and checks C1 on the clock before it joins."""
        phase = self.phase - 1
        self._check_pass(warp, op, phase, warp.clock)
        if self.peeks:
            peek = self.peeks.pop(warp, None)
            if peek is not None:
                self._check_pass(warp, peek[1], phase, peek[0])
        self.last_waited = phase
        if self.machine.trace is not None:
            text = f"passes {self.label} phase {phase}"
            self.machine.trace.note("pass", self.component, self.base + phase, warp, op, text)
        self.previous.waits.append((warp, warp.tick, op))

    def _check_pass(self, warp: Warp, op: Op, phase: int, clock: Clock) -> None:
        """Condition C1 for a look at the barrier with ``clock``: not two phases too early."""
        if phase < 1 or clock[self.component] >= self.base + phase:
            return
        for before in self.older.credits:
            if before.asynchronous or clock[before.warp.component] < before.tick:
                self._doubt("C1", op, warp, before, clock)
                return

    def _doubt(
        self, condition: Condition, op: Op, warp: Warp, other: Credit | None, cut: Clock | None
    ) -> None:
        self.machine.doubt(
            Doubt(
                condition, self.label, self.phase, op, warp,
                other.op if other else None, other.warp if other else None,
                None if cut is None else cut[: self.machine.components.size].copy(),
            ),
            self,
        )  # fmt: skip

    def __str__(self) -> str:
        text = (
            f"{self.label} phase {self.phase}: {self.pending} of {self.expected} arrivals pending"
        )
        if self.tx > 0:
            text += f", {self.tx} bytes outstanding"
        elif self.tx < 0:
            text += f", {-self.tx} bytes more completed than expected"
        return text


#: contributions to a phase that a report lists
_SHOWN = 12


def _contribution(credit: Credit) -> str:
    parts = []
    if credit.arrivals:
        parts.append(f"{credit.arrivals} arrival(s)")
    if credit.tx:
        parts.append(f"{abs(credit.tx)} bytes {'expected' if credit.tx > 0 else 'completed'}")
    return f"{' and '.join(parts)} by {credit.op.mnemonic} of {credit.warp} at {credit.op.loc}"


#: beyond this many credits outside the arrivals the exact form of B is not tried
_EXACT_LIMIT = 14


def early_completion(credits: list[Credit], arrived: Clock, *, last_phase: bool) -> Credit | None:
    """A pure expect_tx without which the phase could complete early, or None (condition B).

    Exact: looks for a down-closed proper part of the phase's credits that contains all arrivals
    and whose bytes sum to zero; ``last_phase`` also forbids the whole.
    """
    loose = [
        c for c in credits
        if c.arrivals <= 0 and (c.asynchronous or arrived[c.warp.component] < c.tick)
    ]  # fmt: skip
    expects = [c for c in loose if c.tx > 0]
    total = sum(c.tx for c in credits)
    if last_phase and total == 0 and credits:
        return credits[-1]
    if not expects:
        return None
    if len(loose) > _EXACT_LIMIT:
        return expects[0]
    base = total - sum(c.tx for c in loose)
    below = [_below(loose, i) for i in range(len(loose))]
    for part in range((1 << len(loose)) - 1):
        chosen = [i for i in range(len(loose)) if part >> i & 1]
        closed = all(below[i] & ~part == 0 for i in chosen)
        if closed and base + sum(loose[i].tx for i in chosen) == 0:
            return next(c for i, c in enumerate(loose) if not part >> i & 1)
    return None


def _below(loose: list[Credit], index: int) -> int:
    """Bits of the credits that are ordered before ``loose[index]``."""
    clock = loose[index].clock
    assert clock is not None
    bits = 0
    for i, other in enumerate(loose):
        if i != index and not other.asynchronous and clock[other.warp.component] >= other.tick:
            bits |= 1 << i
    return bits
