"""Weak memory: what PTX lets a program do that no interleaving shows.

Exploration runs every interleaving that can differ. By PTX a load may find an older store than the
last one, and two loads of one thread may so find stores in another order than two of another one.
An execution without cycles of program order and reads-from is made event by event. Take the first
event with which it is no interleaving any more: what was before it is one, and is explored. So the
event is an access of an explored schedule that has a write in its past there, by program order and
by which accesses of one word came first, and yet need not come after that write in memory. If no
schedule has one (`Strong.unseen`), there is no such event: interleavings are all executions.

An execution with such a cycle has a load that finds what comes only because of it ("load
buffering"). Nothing forbids that where the write need not come after the load in causality order
(`Strong.loose`), be it that instructions depend on each other. If some load of the cycle has no
store of its thread that depends on it, it could have found another write, and all of the cycle is
in a schedule: from the load to the write, by program order and reads-from.

What the strong accesses of a schedule need not have seen is noted while it runs. A schedule shows
one interleaving, in which each load finds the latest store. By PTX it may find any that is not
older than one it comes after in causality order or has observed (coherence), and a store may take
its place in coherence order behind any such: an RMW stays next to the write that it reads. For each
access to a word that is written strongly, and each look at an mbarrier, the writes are noted that
it need not come after; `beyond_interleavings` says whether any of them could make the execution one
that no interleaving shows (PTX 8.9, 8.10).

Order is that of the machine's clocks, row G, one observation (H5), and the order of ``fence.sc``:
one comes before another for sure if an access behind it conflicts with one before the other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING

from tilesim.ir.ops.fence import FenceScope
from tilesim.records import dataclass, field
from tilesim.sim.machine.clock import Clock, Components, join
from tilesim.sim.machine.events import Strong, Trace, depends
from tilesim.sim.machine.release import mutual

if TYPE_CHECKING:
    from tilesim.sim.machine.events import Event, Key
    from tilesim.sim.machine.result import Outcome
    from tilesim.sim.machine.warp import Agent
    from tilesim.sim.observers.phase_conditions import Credit


def beyond_interleavings(trace: Trace, own: list[int]) -> str:
    """What PTX would allow beside a schedule that was run, as a sentence; empty if nothing.

    ``own``: by move, those before it by program order and by the order of what depends on each
    other, but for what the move itself touches; of as many as are to be looked at.
    """
    for index, past in enumerate(own):
        for access in trace.steps[index].accesses:
            for move in access.unseen:
                if past >> move & 1:
                    return _older(trace, index, move, access.place, reads=access.reads)
    return _buffered(trace, len(own))


def _older(trace: Trace, index: int, move: int, place: Hashable, *, reads: bool) -> str:
    """An access that need not come after a write which comes first in every interleaving."""
    what = "may find what was there before" if reads else "may come before"
    return (
        f"weak memory: {_access(trace, index, place)} {what} {_access(trace, move, place)}, "
        "which no interleaving of the threads shows and no fence.sc between their accesses excludes"
    )


def _buffered(trace: Trace, moves: int) -> str:
    """A load that may find what is written because of it."""
    if not any(access.loose for step in trace.steps[:moves] for access in step.accesses):
        return ""
    for index, past in enumerate(_led_to(trace, moves)):
        for access in trace.steps[index].accesses:
            for move in access.loose:
                if past >> move & 1:
                    return (
                        f"weak memory: {_access(trace, move, access.place)} may find what "
                        f"{_access(trace, index, access.place)} leaves, though that comes after it "
                        "in every interleaving: nothing orders loads before later stores"
                    )
    return ""


def _led_to(trace: Trace, moves: int) -> Iterator[int]:
    """By move, those before the move of its thread before it, by program order, reads-from and
    synchronisation: what a write itself reads decides nothing, as its word is coherent."""
    before: list[int] = []
    last_of: dict[Key, int] = {}
    written: dict[Hashable, int] = {}
    touched: dict[Hashable, list[tuple[int, Event]]] = {}
    for index, step in enumerate(trace.steps[:moves]):
        start = last_of.get(step.agent)
        past = 0 if start is None else before[start] | 1 << start
        yield past
        sources = [written[a.place] for a in step.accesses if a.reads and a.place in written]
        for event in step.events:
            if event.kind in ("pass", "poll", "leave"):
                near = touched.get(event.object, ())
                sources += [k for k, other in near if depends(other, event)]
        for source in sources:
            past |= before[source] | 1 << source
        before.append(past)
        last_of[step.agent] = index
        for key in step.spawned:
            last_of.setdefault(key, index)
        written.update((a.place, index) for a in step.accesses if a.writes)
        for event in step.events:
            if event.kind in ("credit", "join"):
                touched.setdefault(event.object, []).append((index, event))


def _access(trace: Trace, index: int, place: Hashable) -> str:
    """An access of a move, with its line."""
    for event in trace.steps[index].events:
        if event.object == place and event.op is not None:
            return f"{event.op.mnemonic} at {event.op.loc.whole}"
    return "an access"


# ---------------------------------------------------------- what strong accesses need not have seen


@dataclass(frozen=True, slots=True)
class _Point:
    """A position of some lanes of a warp, or (no ``warp``) of a component by itself; the number of
    the move that came to it."""

    warp: Agent | None
    lanes: int
    component: int
    tick: int
    move: int

    @property
    def thread(self) -> tuple[int, int]:
        """The warp, and its lanes if it does not always act as one."""
        apart = self.warp is not None and self.warp.may_divide
        return id(self.warp), self.lanes if apart else 0

    def before(self, w: Agent, clock: Clock, row: int) -> bool:
        """Whether it comes before what ``w`` does with ``clock``, in causality order, as the row
        says that begins there. Lanes of one warp are one thread only where it acts as one."""
        if self.warp is w and not w.may_divide:
            return True
        if self.warp is None:
            return bool(clock[row + self.component] >= self.tick)
        return self.warp.is_known(clock, row, self.component, self.tick, self.lanes)


@dataclass(frozen=True, slots=True)
class _Write:
    """A write of a word, or the end of a phase; ``chained``: an RMW, next to what it reads."""

    at: _Point
    chained: bool
    #: of the end of a phase, the arrival or the bytes with which it ended
    by: _Point | None = None

    def before(self, w: Agent, row: int) -> bool:
        """Whether it comes before what ``w`` does now, in causality order."""
        if self.at.before(w, w.clock, row):
            return True
        return self.by is not None and self.by.before(w, w.clock, row)


@dataclass(eq=False, slots=True)
class _Word:
    """A word, or an mbarrier as the phases that have ended."""

    writes: list[_Write] = field(default_factory=list)
    #: the reading thread, and how many of the writes it has observed
    reads: list[tuple[_Point, int]] = field(default_factory=list)
    #: by component, the position and the number of writes at the last of these reads
    last: dict[int, tuple[int, int]] = field(default_factory=dict)
    #: what is known by some access so far: by those behind the last write, and before it
    known: Clock | None = None
    before: Clock | None = None


@dataclass(frozen=True, slots=True)
class _Behind:
    """What is known by an access that conflicts with one at a position, and comes before it."""

    at: _Point
    known: Clock


@dataclass(frozen=True, slots=True)
class _Fence:
    """A ``fence.sc``, and what its thread knew behind it."""

    at: _Point
    scope: FenceScope
    known: Clock


class Views:
    """The words and mbarriers of one machine under a chosen schedule."""

    def __init__(self, components: Components, trace: Trace | None, *, ordered: bool) -> None:
        self._components = components
        self._trace = trace
        self._words: dict[Hashable, _Word] = {}
        #: whether the program has fences by whose order something is known
        self._ordered = ordered
        self._behind: list[_Behind] = []
        self._fences: list[_Fence] = []

    @property
    def _move(self) -> int:
        return len(self._trace.steps) - 1 if self._trace is not None else 0

    @property
    def _row(self) -> int:
        return self._components.size

    def _point(self, w: Agent) -> _Point:
        return _Point(w, w.mask, w.component, w.tick, self._move)

    # ------------------------------------------------------------------ words

    def access(self, w: Agent, place: Hashable, *, reads: bool, writes: bool) -> None:
        """Lanes of ``w`` are about to access a word strongly; an RMW reads and writes."""
        word, here = self._words.setdefault(place, _Word()), self._point(w)
        first = known = self._known(word, w)
        if writes:
            # a read-modify-write follows at once what it reads: nothing comes in between
            while first < len(word.writes) and word.writes[first].chained:
                first += 1
        unseen = tuple(write.at.move for write in word.writes[first:])
        loose = self._loose(word, w, w.clock, known) if writes else ()
        self._note(Strong(place, reads, writes, unseen, loose))
        if writes:
            word.writes.append(_Write(here, chained=reads))
        if reads:
            self._read(word, here, len(word.writes))
        if self._ordered:
            self._conflict(word, here, w.clock, writes=writes)

    def _known(self, word: _Word, w: Agent) -> int:
        """How many of the writes ``w`` comes after, up to the last one that it has to have seen."""
        known = len(word.writes)
        while known and not word.writes[known - 1].before(w, self._row):
            known -= 1
        for read, count in reversed(word.reads):
            if count > known and read.before(w, w.clock, self._row):
                known = count
        return known

    def _loose(self, word: _Word, w: Agent, clock: Clock, after: int) -> tuple[int, ...]:
        """The moves with reads of a word that need not come before a write that ``w`` makes now,
        behind the first ``after`` ones: nor by what their thread has then written there itself."""
        last = {write.at.thread: write.at.move for write in word.writes[:after]}
        return tuple(
            read.move
            for read, _ in word.reads
            if last.get(read.thread, -1) < read.move and not read.before(w, clock, self._row)
        )

    @staticmethod
    def _read(word: _Word, here: _Point, count: int) -> None:
        if word.last.get(here.component) != (here.tick, count):
            word.last[here.component] = here.tick, count
            word.reads.append((here, count))

    def _note(self, access: Strong) -> None:
        if self._trace is not None:
            self._trace.strong(access)

    # ------------------------------------------------------------------ mbarriers

    def ends(self, barrier: int, done: int, last: Credit, completed: Clock) -> None:
        """The phase of an mbarrier, which is its component, ends by the ``last`` of what counts
        there, with what it publishes: an RMW, as all of that is."""
        word = self._words.setdefault(barrier, _Word())
        here = _Point(None, 0, barrier, done, self._move)
        by = None
        if not last.asynchronous:
            by = _Point(last.warp, last.mask, last.component, last.tick, self._move)
        word.writes.append(_Write(here, chained=True, by=by))
        if self._ordered:
            self._conflict(word, by or here, completed, writes=True)

    def counts(self, w: Agent, barrier: int, clock: Clock) -> None:
        """An arrival, or bytes, by ``w`` or an operation that it issued with this clock."""
        word = self._words.setdefault(barrier, _Word())
        loose = self._loose(word, w, clock, 0)
        self._note(Strong(barrier, True, True, (), loose))

    def looks(self, w: Agent, barrier: int, *, passes: bool, answers: bool) -> None:
        """A wait that ``passes``, or blocks, or a poll that ``answers`` something.

        A wait finds its phase over, in whichever state after it, if not two phases too early."""
        word, here = self._words.setdefault(barrier, _Word()), self._point(w)
        ended = word.writes[: len(word.writes) - (passes and not answers)]
        unseen = tuple(write.at.move for write in ended[self._known(word, w) :])
        self._note(Strong(barrier, answers, False, unseen, ()))
        if passes or answers:
            self._read(word, here, len(word.writes) if passes else 0)
        if self._ordered:
            self._conflict(word, here, w.clock, writes=False)

    # ------------------------------------------------------------------ fence.sc

    def _conflict(self, word: _Word, here: _Point, clock: Clock, *, writes: bool) -> None:
        """What those know that access the word before, with a write in between or by one side, all
        of which come before a ``fence.sc`` that comes after this access."""
        if word.known is None or word.before is None:
            word.known, word.before = clock.copy(), clock * 0
        behind = word.known if writes else word.before
        self._behind.append(_Behind(here, behind.copy()))
        if writes:
            join(word.known, clock)
            word.before = word.known.copy()
        else:
            join(word.known, clock)

    def fence(self, w: Agent, scope: FenceScope) -> None:
        """A ``fence.sc``: it comes after those that are before it for sure (FenceSC, 8.9.3)."""
        size = self._row
        left, found = [*self._behind], True
        fences = [f for f in self._fences if _inclusive(f, w, scope)]
        while found:
            found = False
            for behind in [b for b in left if b.at.before(w, w.clock, self._row)]:
                left.remove(behind)
                for fence in [f for f in fences if f.at.before(w, behind.known, self._row)]:
                    fences.remove(fence)
                    if (w.clock[size:] < fence.known[size:]).any():
                        w.follows(fence.known)
                        w.learns(fence.known)
                        found = True
        self._fences.append(_Fence(self._point(w), scope, w.clock.copy()))
        # what the thread does next is behind the fence, and no part of what comes before it
        w.advance()


def _inclusive(fence: _Fence, w: Agent, scope: FenceScope) -> bool:
    """Whether each of two fences includes the other's thread."""
    assert fence.at.warp is not None
    return mutual(fence.scope, fence.at.warp.cta, scope, w.cta)


# ------------------------------------------------------------------ the order of lanes


class LaneOrder:
    """Whether the moves of one explored schedule show all orders of what happens in it.

    The machine takes the lanes of a warp in the order of the text, and those of one instruction in
    one move. Between two lanes of a warp no more order exists than between two warps: an
    exploration, whose moves have one order of the lanes, exhausts nothing where that order is none
    and anything depends on an order (docs/soundness/lanes.md).

    They do not if events of different lanes of a warp are in no order, as the moves have them in
    one (they are *loose*), and anything depends on an order (it is *contended*). Where all lanes of
    a warp act as one, or some between two meetings of all, its events are in order.
    """

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._loose = self._contended = False
        #: by warp: events that some lanes of it do not yet come after, by component and lanes the
        #: position of the last one (what comes after that comes after the earlier ones)
        self._open: dict[int, dict[tuple[int, int], int]] = {}

    def acts(self, warp: Agent) -> None:
        """The active lanes of ``warp`` do what others can see."""
        if not warp.may_divide or self._loose:
            return
        known = self._open.setdefault(warp.index, {})
        unknown = {
            (component, lanes): tick
            for (component, lanes), tick in known.items()
            if not warp.in_order(component, tick, lanes)
        }
        if len(warp.acting) > 1 or any(lanes != warp.mask for _, lanes in unknown):
            self._loose = True
            self._judge()
        left = unknown if warp.mask == warp.live_mask else known
        left[warp.component, warp.mask] = warp.clock.item(warp.component)
        self._open[warp.index] = left

    def contend(self) -> None:
        """Something depends on an order that nothing makes."""
        self._contended = True
        self._judge()

    def _judge(self) -> None:
        if self._loose and self._contended:
            self._outcome.explorable = False
