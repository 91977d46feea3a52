"""The states of the reference model."""

from __future__ import annotations

from typing import NamedTuple

from tests.sim.steps import Scope

#: the largest count of arrivals, and of bytes either way (A3)
_MOST = 2**20 - 1


class Undefined(Exception):
    """A move that breaks a rule: the rule's name."""


class Barrier(NamedTuple):
    """An mbarrier: completed phases, pending and expected arrivals, tx-count, what its open phase
    and the last one publish, and the event of its last init or inval."""

    phase: int
    pending: int
    expected: int
    tx: int = 0
    open: int = 0
    closed: int = 0
    event: int = 0

    def credited(
        self, arrivals: int, tx: int, publishes: int, drop: int = 0, carried: int = 0
    ) -> Barrier:
        """A.3: with arrivals and bytes in one step, and the end of the phase if both are used up;
        ``carried``: of what it publishes, what the next phase does, too.

        A barrier that everybody has dropped from has -1 pending: nothing may count there (U6).

        Raises:
            Undefined: there are too many.
        """
        expected = self.expected - drop
        if self.pending < 0 or arrivals > self.pending or expected < 0:
            raise Undefined("over-arrival")
        pending, tx, publishes = self.pending - arrivals, self.tx + tx, self.open | publishes
        if not -_MOST <= tx <= _MOST or pending > _MOST:
            raise Undefined("tx-mismatch")
        if pending or tx:
            return self._replace(pending=pending, expected=expected, tx=tx, open=publishes)
        return Barrier(
            self.phase + 1, expected or -1, expected, 0, publishes & carried, publishes, self.event
        )


class Named(NamedTuple):
    """The open round of a named barrier: thread count in warps, who is in it, who waits, who has
    arrived and then joined to wait."""

    size: int = 0
    members: int = 0
    waiting: int = 0
    open: int = 0
    twice: int = 0

    def joined(self, warp: int, size: int, known: int, *, waits: bool) -> Named | None:
        """With a warp more, as E2 to E7 have it at practice; None if that is undefined."""
        bit = 1 << warp
        again = bool(self.members & bit)
        if (self.members and self.size != size) or (again and (not waits or self.twice & bit)):
            return None
        return Named(
            size, self.members | bit, self.waiting | bit * waits, self.open | known,
            self.twice | bit * again,
        )  # fmt: skip

    @property
    def full(self) -> bool:
        """Whether as many have joined as there must be."""
        return self.members.bit_count() + self.twice.bit_count() >= self.size


class Meeting(NamedTuple):
    """The cluster barrier: the open round, the last one's knowledge, warps that have arrived and
    not waited, and those of them that need not wait any more."""

    members: int = 0
    open: int = 0
    closed: int = 0
    arrived: int = 0
    released: int = 0


class Flight(NamedTuple):
    """A copy or a later arrival: its line, the CTA it goes to, what its issuer knew, and of a
    commit what is over when it arrives."""

    warp: int
    line: int
    goal: int
    issued: int
    over: int = 0


class Flag(NamedTuple):
    """A flag: its value, and what was released through it: (scope, CTA of the releasing thread,
    knowledge); the writes that who reads it now observes, and the scope and CTA of the last."""

    value: int = 0
    sent: tuple[tuple[str, int, int], ...] = ()
    read: int = 0
    last: tuple[Scope, int] | None = None


class Strong(NamedTuple):
    """Strong accesses: the flags of every CTA; per warp what its last fence of CTA scope and of a
    wider scope covered; per warp what its relaxed loads saw of each CTA's releases; per warp what
    it has released itself, with the flag and the scope."""

    flags: tuple[Flag, ...]
    fenced: tuple[tuple[int, int], ...]
    saw: tuple[tuple[int, int], ...]
    told: tuple[tuple[tuple[int, Scope, int], ...], ...]


class Tensor(NamedTuple):
    """tcgen05, per warp: the events its last fence::after made sure of, and those that are over
    when its next commit arrives."""

    seen: tuple[int, ...]
    tracked: tuple[int, ...]


class State(NamedTuple):
    """Everything. Sets of warps and of events are ints of bits.

    What a warp ``knows``: see `tests.sim.model.Core`. ``parked`` warps wait at a named barrier;
    ``flags``: their peek answered yes; ``done`` are the accesses that were executed.
    """

    at: tuple[int, ...]
    knows: tuple[int, ...]
    barriers: tuple[Barrier, ...]
    named: tuple[Named, ...]
    flights: tuple[Flight, ...]
    parked: int
    flags: int
    done: int
    meeting: Meeting
    strong: Strong | None = None
    tensor: Tensor | None = None


class Next:
    """A state in the making."""

    __slots__ = (
        "at", "barriers", "done", "flags", "flights", "knows", "meeting", "named", "parked",
        "strong", "tensor",
    )  # fmt: skip

    def __init__(self, state: State) -> None:
        self.at = list(state.at)
        self.knows = list(state.knows)
        self.barriers = list(state.barriers)
        self.named = list(state.named)
        self.flights = list(state.flights)
        self.parked, self.flags, self.done, self.meeting, self.strong, self.tensor = state[5:]

    def freeze(self) -> State:
        """The state."""
        self.flights.sort()
        return State(
            tuple(self.at), tuple(self.knows), tuple(self.barriers), tuple(self.named),
            tuple(self.flights), self.parked, self.flags, self.done, self.meeting,
            self.strong, self.tensor,
        )  # fmt: skip
