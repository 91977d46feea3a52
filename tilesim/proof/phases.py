"""Barriers: their state, and the conditions of docs/soundness.md where operations happen.

A *credit* is what changes an mbarrier's counts. Its *past* is a vector (`tilesim.proof.order`): up
to which position each lane must have come, and, in the column of a barrier's life, how many of its
phases must be over. The canonical schedule lets asynchronous operations happen when they are
issued; the conditions say that every other schedule gives each operation the same phase.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilesim.proof.order import Knowledge, Lanes, Positions, merged
from tilesim.proof.rules import NotCovered, Refuted, rule
from tilesim.proof.state import State
from tilesim.records import dataclass

#: the largest pending count and tx-count (A3)
MOST = (1 << 20) - 1
#: threads of a warp
_WARP = 32


@dataclass(frozen=True)
class Credit:
    """One change of the counts: so many arrivals, bytes expected and completed, and arrivals
    ``lent`` by which the pending count is raised until an asynchronous arrival takes them back
    (-1 for that arrival). ``partial``: it must not end the phase.

    ``at``: the lane and its position; None: it happens later than its instruction. ``past``: what
    must come before it. ``own``: an asynchronous arrival in the CTA that has issued it, which at
    `practice` need not be over when that ends (A8)."""

    at: tuple[int, int] | None
    past: Positions
    arrive: int = 0
    expect: int = 0
    complete: int = 0
    lent: int = 0
    own: bool = False
    partial: bool = False


@dataclass(frozen=True)
class PhaseOver:
    """What a wait for a phase learns: the past of all its credits, and what they have released, to
    waits of the narrowest scope first (U4)."""

    past: Positions
    knowledge: tuple[Knowledge, ...]

    def state(self, s: State) -> None:
        """Tells it."""
        s.vectors(self.past)
        for one in self.knowledge:
            one.state(s)


@dataclass(frozen=True)
class Token:
    """The phase of an mbarrier's life that an arrival answers (A20)."""

    life: Mbarrier
    phase: int


@dataclass(frozen=True, eq=False)
class Look:
    """A poll of an mbarrier by a lane, of which schedules decide what it answers: what it asks
    (phase or token, whether that is a parity, sem, scope), and the past that it had."""

    lane: int
    life: Mbarrier
    asks: tuple[object, ...]
    past: Positions

    def state(self, s: State) -> None:
        """Tells all of it."""
        s.same(self.lane, self.life.column, self.asks)
        s.vectors(self.past)


@rule("A3", "an operation counts from 0 to 2^20 - 1 arrivals and bytes")
def in_a_count(credit: Credit) -> None:
    """Raises: Refuted: one of the numbers is outside."""
    for number in (credit.arrive, credit.expect, credit.complete):
        if not 0 <= number <= MOST:
            raise Refuted("A3", f"an operation that counts {number}")


@rule("A11", "an arrival counts at least one")
def arrives_at_all(count: int) -> None:
    """Raises: Refuted: it does not."""
    if count < 1:
        raise Refuted("A11", f"an arrival that counts {count}")


class Mbarrier:
    """One life of an mbarrier, from `mbarrier.init` on. ``ptx``: at that level."""

    def __init__(
        self, name: str, column: int, count: int, init: tuple[int, int], knowledge: Knowledge, *,
        ptx: bool,
    ) -> None:  # fmt: skip
        self.name, self.column, self.init, self.ptx = name, column, init, ptx
        self.expected = self.pending = count
        self.tx = self.phase = 0
        # of the open phase: bytes expected and completed; arrivals, with all that are lent to it
        self._bytes, self._arrivals = (0, 0), count
        #: what a wait for the last phase learns
        self.over: PhaseOver | None = None
        #: by credits of the open phase: for waits of scope .cta, and of wider ones if these differ
        self.released = tuple(Knowledge.like(knowledge.rows) for _ in range(1 + ptx))
        self.operations: dict[int, int] = {}  # by lane, position of its last operation
        #: by lane, position and phase of its last asynchronous one
        self.issued: dict[int, tuple[int, int]] = {}
        #: waits for the last phase that acquire
        self.acquired: list[tuple[int, int]] = []
        #: the phase of the last asynchronous credit, and of the last that is ``own``
        self.last_asynchronous = [-1, -1]
        self.dead = False
        self._credits: list[Credit] = []
        self._before: list[list[Credit]] = [[], []]  # credits of the last phase, and of that before
        self._waits: dict[int, list[tuple[int, int]]] = {}

    def state(self, s: State) -> None:
        """Tells all of it; a phase is told as the number of phases that are over behind it. The
        first two differ from others by the credits before them."""
        s.now[self.column] = self.phase
        s.same(self.name, self.column, self.phase & 1, self.expected, self.pending, self.tx,
               self._bytes, self._arrivals, self.dead)  # fmt: skip
        s.points((self.init, *((self.column, n + 1) for n in self.last_asynchronous)))
        s.points(sorted(self.operations.items()))
        s.points((lane, position) for lane, (position, _) in sorted(self.issued.items()))
        s.points((self.column, phase + 1) for _, (_, phase) in sorted(self.issued.items()))
        s.points(self.acquired)
        for knowledge in self.released:
            knowledge.state(s)
        if self.over is not None:
            self.over.state(s)
        s.same([self.phase - n for n in sorted(self._waits)])
        for n in sorted(self._waits):
            s.points(self._waits[n])
        for credits in (self._credits, *self._before):
            for c in credits:
                s.same(c.arrive, c.expect, c.complete, c.lent, c.own, c.partial)
                s.points(() if c.at is None else (c.at,))
                s.vectors(c.past)
            s.same(len(credits))

    # ------------------------------------------------------------------ credits

    def credit(self, lane: int, position: int, credit: Credit, *, drop: bool = False) -> None:
        """Counts; the phase may end."""
        in_a_count(credit)
        self.no_early_credit(credit)
        self.not_unobserved(credit)
        self.not_abandoned()
        if drop:
            self.expected -= credit.arrive
            if self.expected < 0:
                raise NotCovered("an mbarrier from which more drop than it has")
        self._credits.append(credit)
        if credit.at is None:
            self.last_asynchronous[credit.own] = self.phase
            self.issued[lane] = position, self.phase
        else:
            self.operations[lane] = position
        self.pending += max(credit.lent, 0) - credit.arrive
        self.tx += credit.expect - credit.complete
        self._bytes = self._bytes[0] + credit.expect, self._bytes[1] + credit.complete
        self._arrivals += max(credit.lent, 0)
        self.not_too_many()
        self.bytes_in_range()
        self.arrivals_in_range()
        if self.pending == 0 and self.tx == 0 and (credit.arrive or credit.complete):
            self._end_phase()

    @rule("A", "all credits of phase k - 1 are in the past of every credit of phase k")
    def no_early_credit(self, credit: Credit) -> None:
        """Raises: Refuted: the credit could count for an earlier phase."""
        if not self._must_be_over(credit.past, self.phase - 1, self._before[0]):
            raise Refuted("A", f"{self.name}: a credit of phase {self.phase} need not come after "
                               f"phase {self.phase - 1}")  # fmt: skip

    def _must_be_over(self, past: Positions, phase: int, credits: Sequence[Credit]) -> bool:
        """Whether all credits of a phase, which are given, are in a past."""
        if phase < 0 or (self.column < len(past) and past[self.column] > phase):
            return True
        return bool(credits) and all(
            credit.at is not None and past[credit.at[0]] >= credit.at[1] for credit in credits
        )

    @rule("U1", "by the text, a wait has seen phase k - 1 complete before an arrival of phase k")
    def not_unobserved(self, credit: Credit) -> None:
        """Raises: Refuted: at the level ptx, none need have."""
        seen = any(credit.past[i] >= n for i, n in self._waits.get(self.phase - 1, ()))
        if self.ptx and self.phase and credit.arrive and not seen:
            raise Refuted("U1", f"{self.name}: an arrival before a wait for phase {self.phase - 1}")

    @rule("A13", "a phase never has more arrivals than it expects")
    def not_too_many(self) -> None:
        """Raises: Refuted: it has."""
        if self.pending < 0:
            raise Refuted("A13", f"{self.name}: {-self.pending} arrivals too many in phase "
                                 f"{self.phase}")  # fmt: skip

    @rule(
        "B", "a phase cannot end before its last credit: each one that neither arrives nor lowers "
        "the tx-count comes before an arrival"
    )  # fmt: skip
    def no_early_end(self) -> None:
        """Condition B in its simple form, of the open phase. A credit that does neither is a bare
        expect_tx, the raise of the pending count by cp.async.mbarrier.arrive, or a complete_tx of
        no bytes.

        Raises: Refuted: no arrival need come after some such credit."""
        arrivals = [c for c in self._credits if c.arrive]
        for c in self._credits:
            if c.arrive or c.complete:
                continue
            later = [a for a in arrivals if not (c.lent and a.lent)]
            if c.at is None or not any(a.past[c.at[0]] >= c.at[1] for a in later):
                what = "an expect_tx" if c.expect else "a credit of no bytes"
                raise Refuted("B", f"{self.name}: phase {self.phase} may end before {what}")

    @rule("P", "an arrival that must not end its phase comes before another arrival of it")
    def no_partial_end(self) -> None:
        """Raises: Refuted: a .noComplete arrival could be the last one."""
        for c in self._credits if any(c.partial for c in self._credits) else ():
            later = [a for a in self._credits if a.arrive and not a.lent and a is not c]
            if c.partial and c.at and not any(a.past[c.at[0]] >= c.at[1] for a in later):
                raise Refuted("P", f"{self.name}: .noComplete may be last in phase {self.phase}")

    @rule("U6", "nothing counts on an mbarrier from which all have dropped")
    def not_abandoned(self) -> None:
        """Raises: Refuted: something does, in the phase that begins with no arrival expected."""
        if not self.pending and not self._credits:
            raise Refuted("U6", f"{self.name}: phase {self.phase} expects no arrival")

    @rule("T", "the bytes expected in a phase, and those completed, each fit into a tx-count")
    def bytes_in_range(self) -> None:
        """Raises: Refuted: some order of the credits leaves the range (A3)."""
        if max(self._bytes) > MOST:
            raise Refuted("T", f"{self.name}: {max(self._bytes)} bytes in phase {self.phase}")

    @rule(
        "R", "with all that is lent to it, a phase expects no more arrivals than fit into a count"
    )
    def arrivals_in_range(self) -> None:
        """Raises: Refuted: some order of the credits leaves the range (A3)."""
        if self._arrivals > MOST:
            raise Refuted("R", f"{self.name}: {self._arrivals} arrivals in phase {self.phase}")

    @rule("C2", "a wait for phase k comes before some credit of phase k + 1")
    def no_late_miss(self, past: Positions) -> None:
        """Raises: Refuted: a wait for the phase before could look when the open one is over."""
        for lane, position in self._waits.get(self.phase - 1, ()):
            if past[lane] < position:
                raise Refuted("C2", f"{self.name}: a wait for phase {self.phase - 1} may miss it")

    def _end_phase(self) -> None:
        self.no_early_end()
        self.no_partial_end()
        past = merged([c.past for c in self._credits])
        self.no_late_miss(past)
        if self.column >= len(past):
            past = np.pad(past, (0, self.column + 1 - len(past)))
        past[self.column] = self.phase + 1
        self.over = PhaseOver(past, self.released)
        self._waits.pop(self.phase - 1, None)
        self.released = tuple(Knowledge.like(knowledge.rows) for knowledge in self.released)
        self._before = [self._credits, self._before[0]]
        self._credits, self.acquired = [], []
        self.phase += 1
        self.pending = self._arrivals = self.expected
        self._bytes = 0, 0

    @rule("B-last", "the phase that a life leaves open ends in no other order either")
    def last_phase(self) -> None:
        """Raises: Refuted: in some order the open phase would end, or copies are under way."""
        if any(c.at is None and not c.own for c in self._credits):
            raise Refuted("B-last", f"{self.name}: asynchronous credits in a phase that stays open")
        if self._credits and self.pending == 0:
            self.no_early_end()
            self.no_partial_end()
            if self.tx <= 0:
                raise Refuted("B-last", f"{self.name}: the open phase may have ended")

    # ------------------------------------------------------------------ waits

    @rule("A20", "a wait by token names the last phase or the open one of the same life")
    def passes(self, phase: int | Token, parity: bool) -> bool:
        """Whether a wait for a phase passes now.

        Raises: Refuted: its token is of another life, or of an earlier phase."""
        if isinstance(phase, Token):
            if parity or phase.life is not self:
                raise Refuted("A20", f"{self.name}: a token of another barrier or life")
            if self.phase > phase.phase + 1:
                raise Refuted("A20", f"{self.name}: a token of a phase before the last one")
            return self.phase > phase.phase
        if not parity:
            raise Refuted("A20", f"{self.name}: no token")
        return (self.phase & 1) != phase

    @rule("C1", "all credits of phase k - 1 are in the past of a wait for phase k")
    def no_early_pass(self, past: Positions) -> None:
        """For a wait that passes now.

        Raises: Refuted: it could pass on the phase before the last two."""
        k = self.phase - 1
        if not self._must_be_over(past, k - 1, self._before[1]):
            raise Refuted("C1", f"{self.name}: a wait for phase {k} may pass on phase {k - 2}")

    def must_be_over(self, past: Positions) -> bool:
        """Whether all credits of the last phase are in a past, so that a look finds it over."""
        return self._must_be_over(past, self.phase - 1, self._before[0])

    @rule(
        "C1-peek", "a poll that may spare a wait has asked the same, and was not too early either"
    )
    def spared(self, look: Look, lane: int, asks: tuple[object, ...]) -> None:
        """For a wait that a lane makes if its poll has answered no. If it has answered yes, the
        lane has learned at the poll what the wait would tell it: the wait only began earlier.

        Raises: Refuted, NotCovered: another phase may have ended then, or was asked for."""
        if (look.lane, look.life, look.asks) != (lane, self, asks):
            raise NotCovered(f"{self.name}: a wait that is left out by a poll of something else")
        self.no_early_pass(look.past)

    def waited(self, lanes: Lanes, positions: Positions, *, acquires: bool) -> PhaseOver | None:
        """Lanes have passed a wait for the last phase. Returns what they learn."""
        at = [*zip(lanes.tolist(), positions.tolist(), strict=True)]
        self._waits.setdefault(self.phase - 1, []).extend(at)
        self.acquired += at * acquires
        self.operations |= dict(at)
        return self.over


class NamedBarrier:
    """A named barrier of a CTA (E1 to E7)."""

    def __init__(self, name: str, nothing: Knowledge) -> None:
        self.name = name
        self.knowledge = nothing
        self._warps: set[int] = set()
        self._threads: int | None = None
        self._votes = False
        self._places: dict[bool, int] = {}
        self._joins: list[tuple[int, int]] = []
        self._before: list[tuple[int, int]] = []
        self._past: list[Positions] = []

    def state(self, s: State) -> None:
        """Tells all of it."""
        s.same(sorted(self._warps), self._threads, self._votes, len(self._past), {**self._places})
        self.knowledge.state(s)
        s.points(self._joins)
        s.points(sorted(self._before))
        for past in self._past:
            s.vectors(past)

    def join(
        self, lanes: Lanes, positions: Positions, past: Positions, warp: int, threads: int | None
    ) -> None:
        """The lanes of a warp join; they have met, and have one past."""
        self.in_one_round(past)
        self.counts_agree(threads)
        self.joins_once(warp)
        self._threads = threads
        self._warps.add(warp)
        self._joins += zip(lanes.tolist(), positions.tolist(), strict=True)
        self._past.append(past.copy())

    @rule("N", "all joins of a named barrier's round are in the past of every join of the next one")
    def in_one_round(self, past: Positions) -> None:
        """Raises: Refuted: the join could count for the round before."""
        if any(past[lane] < position for lane, position in self._before):
            raise Refuted("N", f"{self.name}: a join may count for an earlier round")

    @rule("E7", "all that join a round name the same count")
    def counts_agree(self, threads: int | None) -> None:
        """Raises: Refuted: they do not."""
        if self._warps and threads != self._threads:
            raise Refuted("E7", f"{self.name}: counts {self._threads} and {threads} in one round")

    @rule("E5", "barrier.red meets neither barrier.sync nor barrier.arrive in a round")
    def no_mixture(self, votes: bool) -> None:
        """Raises: Refuted: it does."""
        if self._warps and votes != self._votes:
            raise Refuted("E5", f"{self.name}: barrier.red and others in one round")
        self._votes = votes

    @rule("U16", "by the text, the .aligned barriers of a round that wait are one in the code")
    def at_one_place(self, number: int, *, waits: bool) -> None:
        """Those that only arrive are one as well (E8).

        Raises: Refuted: another instruction has joined the round so."""
        if self._places.setdefault(waits, number) != number:
            raise Refuted("U16", f"{self.name}: instruction {number} and another one in one round")

    @rule("E6", "a warp joins a round once")
    def joins_once(self, warp: int) -> None:
        """Raises: NotCovered: it joins twice, which `practice` accepts of some kernels (E6)."""
        if warp in self._warps:
            raise NotCovered(f"{self.name}: warp {warp} joins twice in a round")

    def complete(self, alive: set[int], ended: Mapping[int, Positions]) -> PhaseOver | None:
        """Ends the round if all that it counts have joined, of a CTA of which the warps ``alive``
        have not exited; others ``ended``, each with its past, and are not waited for (E9). Returns
        what those learn that wait for it: in time also the ends, which release nothing."""
        if not self._warps:
            return None
        need = len(alive | self._warps) if self._threads is None else self._threads // _WARP
        if len(self._warps) < need:
            return None
        outside = [past for n, past in ended.items()
                   if self._threads is None and n not in self._warps]  # fmt: skip
        over = PhaseOver(merged([*self._past, *outside]), (self.knowledge,))
        self.knowledge = Knowledge.like(self.knowledge.rows)
        self._before, self._joins, self._past = self._joins, [], []
        self._warps, self._places = set(), {}
        return over


class ClusterBarrier:
    """The barrier of a cluster (D1 to D6)."""

    def __init__(self, nothing: Knowledge) -> None:
        lanes = nothing.rows.shape[1]
        self.round = 0
        #: what a wait for the last round learns
        self.over: PhaseOver | None = None
        self._knowledge = nothing
        self._pasts: list[Positions] = []
        self._arrived = np.zeros(lanes, np.int32)  # rounds
        self._waited = np.zeros(lanes, np.int32)

    def state(self, s: State) -> None:
        """Tells all of it, rounds from the open one on."""
        s.same((self._arrived - self.round).tobytes(), (self._waited - self.round).tobytes(),
               len(self._pasts))  # fmt: skip
        self._knowledge.state(s)
        for past in self._pasts:
            s.vectors(past)
        if self.over is not None:
            self.over.state(s)

    @rule("D2", "a thread arrives once in a round, and waits for it before it arrives again")
    def arrive(self, lanes: Lanes, past: Positions) -> Knowledge:
        """Lanes that have met arrive. Returns what the round hands over, to be added to.

        Raises: Refuted: they have arrived already, or have not waited."""
        if (self._arrived[lanes] != self.round).any() or (self._waited[lanes] != self.round).any():
            raise Refuted("D2", "barrier.cluster.arrive twice, or without a wait in between")
        self._pasts.append(past.copy())
        self._arrived[lanes] += 1
        return self._knowledge

    def complete(self, alive: Lanes, ended: Lanes, past: Positions) -> None:
        """Ends the round if all lanes that have not exited have arrived; of those that ``ended``
        without, the end comes before in time (D5). ``past``: that of each lane."""
        if self._pasts and (self._arrived[alive] > self.round).all():
            outside = past[ended[self._arrived[ended] <= self.round]]
            pasts = [*self._pasts, outside.max(0, initial=0)]
            self.over = PhaseOver(merged(pasts), (self._knowledge,))
            self._knowledge = Knowledge.like(self._knowledge.rows)
            self._pasts = []
            self.round += 1

    @rule("U30", "a thread waits for a round of the cluster barrier at which it has arrived")
    def wait(self, lanes: Lanes) -> int:
        """The round for which lanes wait.

        Raises: Refuted: they have not arrived, or wait twice."""
        number = int(self._arrived[lanes[0]]) - 1
        if (self._arrived[lanes] != number + 1).any() or (self._waited[lanes] != number).any():
            raise Refuted("U30", "barrier.cluster.wait without an arrival")
        self._waited[lanes] += 1
        return number
