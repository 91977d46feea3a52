"""Named barriers of a CTA and the cluster barrier: generations of warps (SEMANTICS D.1, E.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tilesim.findings.finding import Named
from tilesim.records import dataclass, field
from tilesim.sim.machine.clock import Clock, Components, join, joined
from tilesim.sim.machine.errors import Side
from tilesim.sim.machine.release import Fences
from tilesim.sim.machine.result import Violation
from tilesim.sim.machine.unknown import Unknown
from tilesim.sim.machine.warp import Barrier

if TYPE_CHECKING:
    from tilesim.ir.op import Op
    from tilesim.sim.machine.events import Kind
    from tilesim.sim.machine.interface import Core
    from tilesim.sim.machine.warp import Agent


@dataclass(slots=True)
class Join:
    """A warp that joined a generation; ``reduction`` marks ``barrier.red``, ``value`` its votes, or
    what says them, if they are not known."""

    warp: Agent
    op: Op
    component: int
    tick: int
    waits: bool
    reduction: bool = False
    lanes: int = 32
    value: int | Unknown = 0
    aligned: bool = False


@dataclass(slots=True)
class Generation:
    """One use of the barrier: which warps joined, and what it publishes when it completes."""

    number: int
    components: Components
    known: Clock | None = None
    joins: list[Join] = field(default_factory=list)
    threads: int | None = None
    complete: bool = False
    #: of the warps that joined, where the barrier hands them on
    fences: Fences | None = None
    #: by warp of which lanes come to the wait one after the other: those that have (D3)
    waiting: dict[Agent, int] = field(default_factory=dict)

    @property
    def joined(self) -> Clock:
        """What those that have joined publish: a clock, from the first of them on."""
        if self.known is None:
            self.known = self.components.clock()
        return self.known

    def collect(self, fences: Fences) -> None:
        """The fences of a warp that joins (practice reading of H3).

        By the text a fence only acts for strong operations of its own thread. Reductions over a
        grid are shipped with a fence in every thread, a CTA barrier, and one thread's atomic.
        """
        if fences:
            if self.fences is None:
                self.fences = Fences()
            self.fences.learn(fences)


def votes(joins: Iterable[Join]) -> int | Unknown:
    """How many threads have voted for it, or what says it, if it is not known."""
    found = 0
    for entry in joins:
        if isinstance(entry.value, Unknown):
            return entry.value
        found += entry.value
    return found


class Gathering:
    """Lanes of a warp that have come to a barrier, which the warp joins when all of them have (E2).

    ``generation``: the one that it has joined.
    """

    def __init__(self, join_: Join, threads: int | None, clock: Clock) -> None:
        self.entry = join_
        self.threads = threads
        self.mask = 0
        self.generation: Generation | None = None
        self._clock = clock

    def add(self, join_: Join, mask: int, clock: Clock) -> None:
        """More lanes have come."""
        if self.mask:
            self.entry.lanes += join_.lanes
            self.entry.value = votes((self.entry, join_))
            self.entry.waits |= join_.waits
            self.entry.op, self.entry.component = join_.op, join_.component
            self.entry.tick = join_.tick
        self.mask |= mask
        join(self._clock, clock)

    @property
    def joined(self) -> Clock:
        """What the round publishes, or this warp up to now."""
        return self._clock if self.generation is None else self.generation.joined


def round_of(joined: Generation | Gathering | None) -> Generation | None:
    """The round that a warp is in; None if lanes of it have not come yet."""
    return joined.generation if isinstance(joined, Gathering) else joined


class NamedBarrier(Barrier):
    """Barrier ``id`` of one CTA, or (``id`` None) the cluster barrier.

    ``threads`` None in an op means "all live warps of the scope"; such a generation completes
    when every warp that has not exited has joined (E9, D5).
    """

    def __init__(
        self,
        machine: Core,
        named: Named,
        component: int,
        scope: list[Agent],
        *,
        of_cta: bool,
    ) -> None:
        super().__init__(machine, named, component)
        self.scope = scope
        self.current = self._open(0)
        self.previous: Generation | None = None
        self.of_cta = of_cta
        #: rounds that the run has left out, because they are like others (`tilesim.sim.affine`)
        self.skipped = 0
        #: warps of which some lanes have come
        self._gathering: dict[Agent, Gathering] = {}

    @property
    def number(self) -> int:
        """The number of the round that is open."""
        return self.current.number + self.skipped

    def _open(self, number: int) -> Generation:
        return Generation(number, self.machine.components)

    def gather(
        self, join_: Join, threads: int | None, clock: Clock, mask: int, *, visible: bool
    ) -> Generation | Gathering:
        """Lanes of a warp have come; the warp joins when all that have not exited have."""
        warp = join_.warp
        gathering = self._gathering.get(warp)
        if gathering is None and mask == warp.live_mask:
            return self.join(join_, threads, clock, visible=visible)
        if gathering is None:
            known = self.machine.components.clock()
            gathering = self._gathering[warp] = Gathering(join_, threads, known)
        if gathering.mask & mask or gathering.threads != threads:
            before = gathering.entry
            raise self.misuse(
                "named-barrier",
                f"lanes of {warp} join {self.label} again, or with another count, before all its "
                "lanes have (E6, E7)",
                "let every lane of the warp join once in a round",
                Side(before.warp, before.op),
            )
        if not visible:
            size = self.machine.components.size
            clock = clock.copy()
            clock[size:] = 0
        gathering.add(join_, mask, clock)
        self.lanes_left(warp)
        return gathering

    def lanes_left(self, warp: Agent) -> None:
        """The warp joins if the lanes that have come are all that have not exited."""
        gathering = self._gathering.get(warp)
        if gathering is not None and not warp.live_mask & ~gathering.mask:
            del self._gathering[warp]
            known = gathering.joined
            gathering.generation = self.current
            self.join(gathering.entry, gathering.threads, known, visible=True)
            self.wake_waiters()  # lanes that have only arrived go on
        elif any(warp in each.waiting for each in (self.current, self.previous) if each):
            self.wake_waiters()  # lanes that wait for those that have ended go on

    def all_wait(self, warp: Agent, mask: int, generation: Generation) -> bool:
        """Whether all lanes of a warp that have not exited, some of which come now, have come to
        the wait for a round (D3)."""
        come = generation.waiting.get(warp, 0)
        if mask == warp.live_mask or not warp.live_mask & ~come:
            return True
        generation.waiting[warp] = come | mask
        if warp.live_mask & ~(come | mask):
            return False
        self.wake_waiters()
        return True

    def join(self, join_: Join, threads: int | None, clock: Clock, *, visible: bool) -> Generation:
        """Adds a warp to the open generation and completes it if it is full; returns it."""
        generation = self.current
        self._check_misuse(join_, threads, generation)
        self._check_generation(join_, clock)
        generation.threads = threads
        generation.joins.append(join_)
        if self.of_cta and not self.machine.options.ptx:
            generation.collect(join_.warp.fences)
        self.note("join", join_.warp, join_.op, "joins", generation.number)
        if visible:
            generation.known = joined(generation.known, clock)
        else:
            in_time = self.machine.components.in_time
            join(in_time(generation.joined), in_time(clock))
        self.complete_if_full()
        return generation

    def complete_if_full(self) -> None:
        """Completes the generation when its count is met (also called when a warp exits)."""
        generation, components = self.current, self.machine.components
        if not generation.joins:
            return
        if generation.threads is None:
            inside = {j.warp for j in generation.joins}
            outside = [w for w in self.scope if w not in inside]
            if not all(w.exited for w in outside):
                return
            for warp in outside:
                # in time, not in memory: an exit releases nothing, and no tcgen05.fence orders
                # anything before it (G22)
                past = components.in_time(warp.known).copy()
                past[self.machine.tensor_components] = 0
                join(components.in_time(generation.joined), past)
        elif 32 * len(generation.joins) < generation.threads:
            return
        components.rows(generation.joined, self.component)[:] = generation.number + 1
        generation.complete = True
        self.previous, self.current = generation, self._open(generation.number + 1)
        self.wake_waiters()

    def note(self, kind: Kind, warp: Agent, op: Op | None, verb: str, number: int) -> None:
        """Notes what a warp has to do with a round."""
        text = f"{verb} {{}} round {number}"
        self.machine.note(kind, self.component, warp, op, text, phase=number, named=self.named)

    def note_exit(self, warp: Agent) -> None:
        """A warp that exits counts as joined where all live warps are waited for (E9)."""
        last = self.current if self.current.joins else self.previous
        if last is not None and last.threads is None:
            self.note("join", warp, None, "exits, which counts for", self.current.number)

    def _check_misuse(self, join_: Join, threads: int | None, generation: Generation) -> None:
        again = next((j for j in generation.joins if j.warp is join_.warp), None)
        if again is not None and not self._signals_itself(again, join_):
            raise self.misuse(
                "named-barrier",
                f"{join_.warp} joins {self.label} again before the round it is already in has "
                "completed (E6)",
                "use two barrier ids in alternation, or wait (sync) before joining again",
                Side(again.warp, again.op),
            )
        if not generation.joins:
            return
        all_threads = 32 * len(self.scope)
        if (generation.threads or all_threads) != (threads or all_threads):
            raise self.misuse(
                "named-barrier",
                f"{self.label} is joined with {_count(threads)} while its open round was started "
                f"with {_count(generation.threads)} (E7)",
                "give every participant of a round the same thread count",
                Side(generation.joins[0].warp, generation.joins[0].op),
            )
        mixed = next((j for j in generation.joins if j.reduction != join_.reduction), None)
        if mixed is not None:
            raise self.misuse(
                "named-barrier",
                f"barrier.red and barrier.sync/arrive are mixed in one round of {self.label} (E5)",
                "use barrier.red in every participant, or another id",
                Side(mixed.warp, mixed.op),
            )

    def _signals_itself(self, first: Join, then: Join) -> bool:
        """An arrive and then a sync that fill one round together: how FlashAttention-3 starts the
        turns of its warpgroups. The text warns of more joins than intended; these are intended.
        """
        return then.waits and not first.waits and self.machine.accepts("E6", first.op, then.op)

    def _check_generation(self, join_: Join, clock: Clock) -> None:
        """Condition N: every join of the round before is ordered before this one."""
        before = self.previous
        if before is None or clock[self.component] >= before.number + 1:
            return
        for other in before.joins:
            if clock[other.component] < other.tick:
                past = self.machine.components.in_time(clock).copy()
                self.machine.violation(
                    Violation("N", self.named, self.number, join_.op, join_.warp,
                          other.op, other.warp, past),
                    self,
                )  # fmt: skip
                return

    def state(self, cta: int | None = None) -> str:
        """How full its round is, in a text that speaks of one ``cta``, or of none."""
        generation = self.current
        need = generation.threads or 32 * sum(not w.exited for w in self.scope)
        joined = 32 * len(generation.joins)
        return f"{self.named.seen_from(cta)} round {self.number}: {joined} of {need} threads"


def _count(threads: int | None) -> str:
    return "all threads" if threads is None else f"{threads} threads"
