"""Named barriers of a CTA and the cluster barrier: generations of warps (SEMANTICS D.1, E.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilesim.sim.machine.clock import Clock, join
from tilesim.sim.machine.doubt import Doubt
from tilesim.sim.machine.misuse import BarrierError, Side
from tilesim.sim.machine.release import Fences

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.machine import Machine
    from tilesim.sim.machine.warp import Warp


@dataclass(slots=True)
class Join:
    """A warp that joined a generation; ``reduction`` marks ``barrier.red``."""

    warp: Warp
    op: Op
    component: int
    tick: int
    waits: bool
    reduction: bool = False
    lanes: int = 32
    value: int = 0


@dataclass(slots=True)
class Generation:
    """One use of the barrier: who joined, and what it publishes when it completes."""

    number: int
    joined: Clock
    joins: list[Join] = field(default_factory=list)
    threads: int | None = None
    complete: bool = False
    #: of the warps that joined, where the barrier hands them on
    fences: Fences | None = None

    def collect(self, fences: Fences) -> None:
        """The fences of a warp that joins (practice reading of H3).

        By the text a fence only acts for strong operations of its own thread. Reductions over a
        grid are shipped with a fence in every thread, a CTA barrier, and one thread's atomic.
        """
        if fences:
            if self.fences is None:
                self.fences = Fences()
            self.fences.learn(fences)


class NamedBarrier:
    """Barrier ``id`` of one CTA, or (``id`` None) the cluster barrier.

    ``threads`` None in an op means "all live warps of the scope"; such a generation completes
    when every warp that has not exited has joined (E9, D5).
    """

    def __init__(
        self,
        machine: Machine,
        label: str,
        component: int,
        scope: list[Warp],
        *,
        of_cta: bool,
    ) -> None:
        self.machine = machine
        self.label = label
        self.component = component
        self.scope = scope
        self.current = self._open(0)
        self.previous: Generation | None = None
        self.waiters: list[Warp] = []
        self._of_cta = of_cta
        #: how much each warp had done when it last joined
        self._effects: dict[Warp, int] = {}

    def _open(self, number: int) -> Generation:
        return Generation(number, self.machine.components.clock())

    def join(self, join_: Join, threads: int | None, clock: Clock, *, visible: bool) -> Generation:
        """Adds a warp to the open generation and completes it if it is full; returns it."""
        generation = self.current
        self._check_misuse(join_, threads, generation)
        self._check_generation(join_, clock)
        generation.threads = threads
        generation.joins.append(join_)
        if self._of_cta and not self.machine.options.ptx:
            generation.collect(join_.warp.fences)
        self._effects[join_.warp] = join_.warp.effects + 1
        if self.machine.trace is not None:
            text = f"joins {self.label} round {generation.number}"
            number = generation.number
            self.machine.trace.note("join", self.component, number, join_.warp, join_.op, text)
        size = self.machine.components.size
        if visible:
            join(generation.joined, clock)
        else:
            join(generation.joined[:size], clock[:size])
        self.complete_if_full()
        return generation

    def complete_if_full(self) -> None:
        """Completes the generation when its count is met (also called when a warp exits)."""
        generation = self.current
        if not generation.joins:
            return
        if generation.threads is None:
            inside = {j.warp for j in generation.joins}
            if any(not w.exited and w not in inside for w in self.scope):
                return
            self._check_absent(generation, inside)
        elif 32 * len(generation.joins) < generation.threads:
            return
        size = self.machine.components.size
        generation.joined[self.component :: size] = generation.number + 1
        generation.complete = True
        self.previous, self.current = generation, self._open(generation.number + 1)
        waiters, self.waiters = self.waiters, []
        for warp in waiters:
            self.machine.wake(warp)

    def _check_absent(self, generation: Generation, inside: set[Warp]) -> None:
        """A CTA barrier that only completes because warps that worked on have exited (E8, E9).

        Warps that leave at once, the early return of idle threads, are no participants.
        """
        if not self._of_cta:
            return
        for warp in self.scope:
            if warp in inside or warp.effects <= self._effects.get(warp, 0):
                continue
            join_ = generation.joins[0]
            self.machine.report(
                "participation",
                f"{self.label} is a barrier of the whole CTA, but {warp} exits without joining "
                f"round {generation.number}: it completes only because exited threads do not count "
                "(E8, E9)",
                (
                    self.machine.participant(join_.warp, f"joins {self.label}", join_.op),
                    self.machine.participant(warp, "exits", warp.last_op()),
                ),
                fix="let every warp reach it, or use a named barrier for those that do",
            )
            return

    def note_leave(self, warp: Warp, generation: Generation, op: Op) -> None:
        """A warp goes on after its round has completed."""
        if self.machine.trace is not None:
            text = f"leaves {self.label} round {generation.number}"
            self.machine.trace.note("leave", self.component, generation.number, warp, op, text)

    def note_exit(self, warp: Warp) -> None:
        """A warp that exits counts as joined where all live warps are waited for (E9)."""
        last = self.current if self.current.joins else self.previous
        if self.machine.trace is not None and last is not None and last.threads is None:
            number, text = self.current.number, f"exits, which counts for {self.label}"
            self.machine.trace.note("join", self.component, number, warp, None, text)

    def _check_misuse(self, join_: Join, threads: int | None, generation: Generation) -> None:
        again = next((j for j in generation.joins if j.warp is join_.warp), None)
        if again is not None and not self._signals_itself(again, join_):
            raise BarrierError(
                "named-barrier",
                f"{join_.warp} joins {self.label} again before the round it is already in has "
                "completed (E6)",
                "use two barrier ids in alternation, or wait (sync) before joining again",
                Side(again.warp, again.op),
            )
        if not generation.joins:
            return
        everyone = 32 * len(self.scope)
        if (generation.threads or everyone) != (threads or everyone):
            raise BarrierError(
                "named-barrier",
                f"{self.label} is joined with {_count(threads)} while its open round was started "
                f"with {_count(generation.threads)} (E7)",
                "give every participant of a round the same thread count",
                Side(generation.joins[0].warp, generation.joins[0].op),
            )
        mixed = next((j for j in generation.joins if j.reduction != join_.reduction), None)
        if mixed is not None:
            raise BarrierError(
                "named-barrier",
                f"barrier.red and barrier.sync/arrive are mixed in one round of {self.label} (E5)",
                "use barrier.red in every participant, or another id",
                Side(mixed.warp, mixed.op),
            )

    def _signals_itself(self, first: Join, then: Join) -> bool:
        """An arrive and then a sync that fill one round together: how FlashAttention-3 starts the
        turns of its warpgroups. The text warns of more joins than intended; these are intended.
        """
        return then.waits and not first.waits and not self.machine.options.ptx

    def _check_generation(self, join_: Join, clock: Clock) -> None:
        """Condition N: every join of the round before is ordered before this one."""
        before = self.previous
        if before is None or clock[self.component] >= before.number + 1:
            return
        for other in before.joins:
            if clock[other.component] < other.tick:
                size = self.machine.components.size
                self.machine.doubt(
                    Doubt("N", self.label, self.current.number, join_.op, join_.warp,
                          other.op, other.warp, clock[:size].copy()),
                    self,
                )  # fmt: skip
                return

    def __str__(self) -> str:
        generation = self.current
        need = generation.threads or 32 * sum(not w.exited for w in self.scope)
        joined = 32 * len(generation.joins)
        return f"{self.label} round {generation.number}: {joined} of {need} threads"


def _count(threads: int | None) -> str:
    return "all threads" if threads is None else f"{threads} threads"
