"""What a run did to its synchronisation objects, in order: for exploration and for stories.

A move of the schedule is one agent acting until its next synchronising instruction; the events of
a move say which objects it touched, which is all that the order of moves can matter for.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.compile import Entry
    from tilesim.sim.machine.conditions import Credit
    from tilesim.sim.machine.machine import InFlight, Machine
    from tilesim.sim.machine.mbarrier import Mbarrier
    from tilesim.sim.machine.warp import Warp

#: ``credit`` an arrival or bytes, ``pass`` a wait that passed, ``block`` one that did not,
#: ``poll`` a test that answered no, ``join`` and ``leave`` a named barrier, ``life`` init or inval,
#: ``read`` and ``write`` of anything else
Kind = Literal[
    "credit", "pass", "block", "poll", "join", "leave", "life", "read", "write", "reduce"
]


@dataclass(frozen=True, slots=True)
class Event:
    """One touch of ``object`` (its phase or round, where it has one) and a clause for readers.

    ``loose`` credits do not commute even within their phase (bare expect_tx).
    """

    kind: Kind
    object: Hashable
    phase: int
    warp: Warp
    op: Op | None
    text: str
    loose: bool = False


#: an agent, stable over schedules: (warp, 0), or (warp, n) for the n-th asynchronous operation
Key = tuple[int, int]


@dataclass(slots=True)
class Step:
    """One move of the schedule: who moved, which others could have, and what it touched."""

    agent: Key
    enabled: tuple[Key, ...]
    events: list[Event] = field(default_factory=list)
    spawned: list[Key] = field(default_factory=list)


class Trace:
    """The steps of one run."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def begin(self, agent: Key, enabled: tuple[Key, ...]) -> None:
        """The next move."""
        self.steps.append(Step(agent, enabled))

    def note(
        self,
        kind: Kind,
        obj: Hashable,
        phase: int,
        warp: Warp,
        op: Op | None,
        text: str,
        *,
        loose: bool = False,
    ) -> None:
        """Adds an event to the current move."""
        self.steps[-1].events.append(Event(kind, obj, phase, warp, op, text, loose))

    def watch(self, machine: Machine) -> list[Entry]:
        """The steps that ``machine`` is to execute: a recorder puts its own around them."""
        return machine.plan.steps

    def spawn(self, operation: InFlight) -> None:
        """The current move started an asynchronous operation."""
        self.steps[-1].spawned.append(operation.key)

    def lands(self, operation: InFlight) -> None:
        """An asynchronous operation is about to take effect."""

    def landed(self, operation: InFlight) -> None:
        """It has taken effect."""


def note_credit(trace: Trace, barrier: Mbarrier, credit: Credit) -> None:
    """Notes a change of an mbarrier's counts, with what it leaves."""
    parts = []
    if credit.arrivals:
        parts.append(f"arrives on {barrier.label} ({barrier.pending} left)")
    if credit.tx:
        verb = "expects" if credit.tx > 0 else "completes"
        parts.append(f"{verb} {abs(credit.tx)} bytes on {barrier.label}")
    what = ", ".join(parts) or f"touches {barrier.label}"
    trace.note(
        "credit", barrier.component, barrier.base + barrier.phase, credit.warp, credit.op,
        f"{what}, phase {barrier.phase}",
        # more bytes than expected so far: the order may decide which phase gets the rest
        loose=barrier.keeps_clocks or barrier.tx < 0,
    )  # fmt: skip
