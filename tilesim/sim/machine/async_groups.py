"""Groups of asynchronous operations: of a warp, and of each thread.

A warp has issued and committed groups, and initialisations. Groups of bulk copies and of cp.async
belong to the thread that issues them (B29, B30, C4, C6).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable

from tilesim.ir.op import Op
from tilesim.records import dataclass, field, replace
from tilesim.sim.machine.clock import Clock
from tilesim.sim.machine.lanes import FULL

#: what a warp has stored of all that it loaded from tensor memory
#: (`tilesim.sim.observers.tmem_order`): ``done`` counts loads
DRAINED = "tcgen05.ld.drained"
#: what a warp has issued to tensor memory before a fence
ORDER = "tcgen05.order"


@dataclass(slots=True, kw_only=True)
class Committed:
    """Groups of asynchronous operations that have been committed.

    ``committed`` holds the operation count at each commit, ``done`` how many operations are known
    complete.
    """

    committed: list[int] = field(default_factory=list)
    done: int = 0

    def wait(self, pending: int) -> int:
        """How many operations are complete once at most ``pending`` groups remain."""
        over = len(self.committed) - pending
        if over > 0:
            self.done = max(self.done, self.committed[over - 1])
            del self.committed[:over]
        return self.done


@dataclass(slots=True)
class Groups(Committed):
    """Groups of one kind of asynchronous operation, of a warp: ``opened`` counts operations issued;
    ``component`` publishes how many are complete."""

    component: int
    opened: int = 0
    finish: float = 0.0

    def issue(self, count: int = 1) -> int:
        """The sequence number of the first of some new operations in the open group."""
        self.opened += count
        return self.opened - count + 1

    def commit(self) -> None:
        """Closes the open group (which may be empty)."""
        self.committed.append(self.opened)


@dataclass(slots=True)
class FragmentUse:
    """A wgmma that uses a fragment: its number, and how many wgmma.fence came before it.

    ``accumulator`` is the shape of the instruction if the fragment is D, None if it is A.
    """

    sequence: int
    op: Op
    accumulator: tuple[int, int, int] | None
    fenced: int


@dataclass(slots=True)
class Inits:
    """The mbarrier.init of a warp, which fence.mbarrier_init hands over without its other writes.

    ``component`` publishes how many were made.
    """

    component: int
    _lanes: list[int] = field(default_factory=list)

    def add(self, lanes: int) -> int:
        """An init by ``lanes``; returns its number, from 1."""
        self._lanes.append(lanes)
        return len(self._lanes)

    def made_by(self, lanes: int) -> int:
        """How many, from the first on, are all of ``lanes``: a fence covers its own thread's."""
        others = (n for n, mask in enumerate(self._lanes) if mask & ~lanes)
        return next(others, len(self._lanes))


@dataclass(slots=True)
class Issued:
    """The mma, cp and shift that one lane has issued: their number. ``component`` publishes how
    many of them are complete, ``order`` how many have been issued."""

    component: int
    order: int
    count: int = 0


@dataclass(slots=True)
class Issuer:
    """What a warp has done with tensor cores.

    ``seen``: by lanes, row S at their last fence::after_thread_sync. ``spares``: components for the
    operations of lanes, as `Issued` has them; ``own``: by lane the operations that have such.
    ``runs``: (last sequence number, lanes) of the other mma, cp and shift, merged while the same
    lanes issue them; ``issuing``: lanes that have issued such, and ld
    and st. ``answer``: the partner has carried out what it waits for with it: the address that an
    alloc got, or 0. ``loaded``: by number of a tcgen05.ld its last execution;
    ``given``: those of which the next tcgen05.st stores something that is made of all registers
    (U33).
    """

    seen: dict[int, Clock] = field(default_factory=dict)
    spares: list[tuple[int, int]] = field(default_factory=list)
    own: dict[int, Issued] = field(default_factory=dict)
    runs: list[tuple[int, int]] = field(default_factory=list)
    issuing: set[int] = field(default_factory=set)
    answer: int | None = None
    loaded: dict[int, int] = field(default_factory=dict)
    given: frozenset[int] = frozenset()
    finish: float = 0.0

    def own_of(self, lane: int) -> Issued | None:
        """What a lane issues apart from the others, as long as there are components for it."""
        if lane not in self.own and self.spares:
            self.own[lane] = Issued(*self.spares.pop())
        return self.own.get(lane)

    def see(self, lanes: int, clock: Clock) -> None:
        """``lanes`` execute fence::after_thread_sync with row S of ``clock``."""
        for earlier in [mask for mask in self.seen if not mask & ~lanes]:
            del self.seen[earlier]
        self.seen[lanes] = clock

    @property
    def orders(self) -> list[int]:
        """Components that publish what lanes of their own have issued."""
        return [*(order for _, order in self.spares), *(own.order for own in self.own.values())]

    def saw(self, lanes: int, known: Callable[[Clock], bool], *, each: bool) -> bool:
        """Whether lanes may rely on what a clock says since their last fence: all of them do, or,
        if not ``each``, of lanes that act together one does."""
        relying = 0
        for mask, clock in self.seen.items():
            if known(clock):
                relying |= mask
        return not lanes & ~relying if each or not lanes & (lanes - 1) else relying != 0

    def issued(self, sequence: int, lanes: int) -> None:
        """Records that ``lanes`` issued operation ``sequence``."""
        if self.runs and self.runs[-1][1] == lanes:
            self.runs.pop()
        self.runs.append((sequence, lanes))

    def tracked(self, lane: int) -> int:
        """How many operations a commit by ``lane`` knows to be complete when it fires (G26)."""
        count = 0
        for last, lanes in self.runs:
            if not lanes >> lane & 1:
                break
            count = last
        return count


# ------------------------------------------------------------------ groups of each thread


#: the kinds of groups that belong to threads; those of wgmma belong to a warpgroup (F5)
LANE_GROUPS = frozenset({"bulk", "bulk.write", "bulk.map", "cp.async"})
#: sets of lanes of a warp whose operations have a component of their own, at most
MAX_STREAMS = 8
#: lanes, and how many of the warp's operations these lanes are known to have completed
Cover = tuple[int, int]


@dataclass(slots=True)
class _Threads(Committed):
    """Lanes that have committed and waited for the same; ``tracked`` as in `LaneGroups`."""

    mask: int
    tracked: int = 0


@dataclass(frozen=True, slots=True)
class Promise:
    """What asynchronous arrivals on a barrier tell: ``covers`` of the operations ``runs``, of which
    those up to ``done`` had been complete before. ``own`` are the covers of lanes that arrived.
    ``component`` publishes how many operations are complete."""

    component: int
    done: int
    runs: tuple[Cover, ...]
    covers: tuple[Cover, ...]
    own: tuple[Cover, ...] = ()

    def join(self, other: Promise) -> Promise:
        """What both tell together."""
        later = max(self, other, key=lambda promise: [last for _, last in promise.runs[-1:]])
        covers, own = (*self.covers, *other.covers), (*self.own, *other.own)
        done = max(self.done, other.done)
        return Promise(self.component, done, later.runs, covers, own)

    @property
    def complete(self) -> int:
        """The number of the last operation up to which all are complete."""
        reached = self.done
        for mask, last in self.runs:
            covers = self.covers
            count = max((n for _, n in covers if not mask & ~_lanes(covers, n)), default=0)
            reached = max(reached, min(count, last))
            if count < last:
                break
        return reached

    def complete_of(self, mask: int) -> int:
        """The number up to which operations that just these lanes issued are complete."""
        counts = {count for _, count in self.own}
        return max((n for n in counts if not mask & ~_lanes(self.own, n)), default=0)


def _lanes(covers: tuple[Cover, ...], count: int) -> int:
    """The lanes that have completed so many operations."""
    result = 0
    for mask, number in covers:
        if number >= count:
            result |= mask
    return result


@dataclass(slots=True)
class Stream:
    """The operations that the same lanes have issued: they complete in order, whatever others do.

    ``issued`` are theirs, ``done`` of them are known to be complete. Those that follow each other
    in the order of all operations are one stretch: ``firsts`` are the numbers there of the first
    ones, ``before`` how many of theirs came before.
    """

    mask: int
    component: int
    issued: int = 0
    done: int = 0
    firsts: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)

    def issue(self, number: int) -> int:
        """One more, with this number among all operations; how many they are now."""
        if not self.firsts or self.number_of(self.issued) != number - 1:
            self.firsts.append(number)
            self.before.append(self.issued)
        self.issued += 1
        return self.issued

    def number_of(self, operation: int) -> int:
        """The number among all operations of one of theirs, counted from 1."""
        stretch = bisect_left(self.before, operation) - 1
        return self.firsts[stretch] + operation - 1 - self.before[stretch]

    def complete(self, number: int) -> int:
        """How many of them are complete if those are that have at most this number."""
        stretch = bisect_right(self.firsts, number)
        if not stretch:
            return 0
        end = self.before[stretch] if stretch < len(self.before) else self.issued
        return min(end, self.before[stretch - 1] + number - self.firsts[stretch - 1] + 1)


@dataclass(slots=True)
class LaneGroups(Groups):
    """Groups of one kind, of the 32 threads of a warp.

    Operations are numbered in the order of their issue. What is published is how many of the first
    of them are complete: an operation is, when all lanes that issued it have waited for it. Where
    lanes of the warp may go their own ways, the operations of the same lanes also have a component
    of their own, as long as there are ``spares``: they do not wait for those of others.
    """

    spares: list[int] = field(default_factory=list)
    streams: dict[int, Stream] = field(default_factory=dict)

    #: operations that an mbarrier tracks (cp.async.mbarrier.arrive)
    tracked: int = 0
    threads: list[_Threads] = field(default_factory=lambda: [_Threads(FULL)])
    #: operations that are not complete, the oldest first: the lanes that issued them, and the
    #: number of the last one of as many as these lanes issued in a row
    runs: list[Cover] = field(default_factory=list)
    #: by barrier: the phase, and what asynchronous arrivals have told it in that phase
    promised: dict[int, tuple[int, Promise]] = field(default_factory=dict)

    @property
    def components(self) -> list[int]:
        """All components that publish what is complete."""
        return [self.component, *self.spares, *(s.component for s in self.streams.values())]

    def issue_by(self, mask: int) -> tuple[int, int]:
        """The component that publishes an operation of these lanes, and its number there."""
        number = self.issue()
        if self.spares and mask not in self.streams:
            self.streams[mask] = Stream(mask, self.spares.pop())
        if self.runs and self.runs[-1][0] == mask:
            self.runs.pop()
        self.runs.append((mask, number))
        stream = self.streams.get(mask)
        if stream is None:
            return self.component, number
        return stream.component, stream.issue(number)

    def commit_by(self, mask: int) -> None:
        """Closes the open group of each of these lanes."""
        for threads in self._split(mask):
            threads.committed.append(self.opened)

    def must_wait(self, mask: int, pending: int) -> bool:
        """Whether one of these lanes has more than ``pending`` groups."""
        return any(pending < len(t.committed) for t in self._split(mask))

    def wait_by(self, mask: int, pending: int) -> list[tuple[int, int]]:
        """By component, how many operations are complete once these lanes have ``pending`` groups
        at most."""
        for threads in self._split(mask):
            threads.wait(pending)
        self.done = self._promise([(t.mask, t.done) for t in self.threads]).complete
        while self.runs and self.runs[0][1] <= self.done:
            del self.runs[0]
        for stream in self.streams.values():
            least = min(t.done for t in self.threads if t.mask & stream.mask)
            stream.done = stream.complete(least)
        return self.known_to(mask)

    def known_to(self, mask: int) -> list[tuple[int, int]]:
        """By component, how many operations are complete as far as these lanes have waited."""
        own = [s for s in self.streams.values() if not s.mask & ~mask]
        return [(self.component, self.done), *((s.component, s.done) for s in own)]

    def waited_partly(self, mask: int) -> list[tuple[int, int]]:
        """By component of operations that other lanes issued as well, how many of them these lanes
        have waited for."""
        found = []
        for stream in self.streams.values():
            if stream.mask & mask and stream.mask & ~mask:
                least = min(t.done for t in self.threads if t.mask & stream.mask & mask)
                found.append((stream.component, stream.complete(least)))
        return found

    def waited(self, component: int, number: int) -> int:
        """The lanes that have waited for the operation of this number there."""
        for stream in self.streams.values():
            if stream.component == component:
                number = stream.number_of(number)
        return sum(t.mask for t in self.threads if t.done >= number)

    def track_by(self, mask: int) -> Promise:
        """What is complete when an arrival of these lanes lands that waits for their copies."""
        self.tracked = self.opened
        for threads in self._split(mask):
            threads.tracked = self.opened
        promise = self._promise([(mask, self.opened), *((t.mask, t.done) for t in self.threads)])
        return replace(promise, own=((mask, self.opened),))

    def tell(self, barrier: int, phase: int, promise: Promise) -> list[tuple[int, int]]:
        """By component, how many operations are complete for warps that wait for this phase of the
        barrier, now that an arrival has landed there."""
        before, known = self.promised.get(barrier, (phase, promise))
        together = promise.join(known) if before == phase and known is not promise else promise
        self.promised[barrier] = phase, together
        streams = self.streams.values()
        own = [(s.component, s.complete(together.complete_of(s.mask))) for s in streams]
        return [(self.component, together.complete), *own]

    def over(self, known: Callable[[int], int]) -> bool:
        """Whether all operations are complete, as lanes have waited for them or as a clock says:
        of those that a component publishes, ``known`` ones."""
        if self.opened <= max(self.done, known(self.component)):
            return True
        streams = self.streams.values()
        told = all(s.issued <= max(s.done, known(s.component)) for s in streams)
        return told and sum(s.issued for s in streams) == self.opened

    @property
    def closed(self) -> int:
        """How many operations are complete, in a committed group, or tracked by an mbarrier."""
        ends = [(t.mask, max(t.done, t.tracked, *t.committed[-1:])) for t in self.threads]
        return self._promise(ends).complete

    def _split(self, mask: int) -> list[_Threads]:
        """The threads of these lanes, apart from all others."""
        inside = [t for t in self.threads if t.mask & mask]
        for threads in inside:
            rest = threads.mask & ~mask
            if rest:
                committed = [*threads.committed]
                self.threads.append(
                    _Threads(rest, threads.tracked, committed=committed, done=threads.done)
                )
                threads.mask &= mask
        return inside

    def _promise(self, covers: list[Cover]) -> Promise:
        return Promise(self.component, self.done, tuple(self.runs), tuple(covers))
