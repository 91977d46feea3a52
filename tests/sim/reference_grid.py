"""Every execution of a small program of several clusters.

The third explicit-state model: one lane per warp, up to 4 CTAs in each of up to 3 clusters. Unless
the launch is cooperative, clusters start in any order, and one need not start before another has
ended (0.4a); each start is a move. Global memory is read and written; flags there are added to by
atom, whose result steers, and polled; clusterlaunchcontrol may cancel, for any CTA that asks, any
cluster that has not started, or none (D17 to D21). What a warp knows is a vector clock. SEMANTICS
A.3, A21, A26, A28, H1 to H6.

Weak accesses are made as soon as they can be: a race shows in whichever order they are made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.sim import steps as s
from tests.sim.code_grid import END, Code, Line
from tests.sim.flags_grid import Clock, Flag, Touch
from tests.sim.model import Search, Verdict
from tests.sim.states import Undefined

#: units of bytes that an answer of launch control counts
_ANSWER = 1


_SCOPES: tuple[s.Scope, ...] = ("cta", "cluster", "gpu", "sys")


class Mbar(NamedTuple):
    """An mbarrier, and what its open phase and the last one publish."""

    phase: int
    pending: int
    expected: int
    tx: int
    open: Clock
    closed: Clock


class Cell(NamedTuple):
    """A place of memory: its last write, and the last read of everybody."""

    writer: int
    time: int
    reads: Clock


class Warp(NamedTuple):
    """A warp: its line, iteration, register (-1: nothing was cancelled), clock; what its last
    fence covered, and what its relaxed loads saw of others; what it has released, with the flag and
    the scope."""

    at: int
    trip: int
    register: int
    clock: Clock
    fenced: Clock
    saw: Clock
    told: tuple[tuple[int, s.Scope, Clock], ...] = ()


class State(NamedTuple):
    """Everything; ``waiting`` clusters have not started, ``gone`` ones never will; ``asked``
    requests are under way (warp, slot, barrier, number); ``refused`` CTAs have seen a failure."""

    warps: tuple[Warp, ...]
    cells: tuple[Cell, ...]
    flags: tuple[Flag, ...]
    barriers: tuple[Mbar, ...]
    slots: tuple[int, ...]
    waiting: frozenset[int]
    asked: tuple[tuple[int, int, int, int], ...] = ()
    refused: frozenset[int] = frozenset()


class _Next:
    """A state in the making."""

    __slots__ = ("asked", "barriers", "cells", "flags", "refused", "slots", "waiting", "warps")

    def __init__(self, state: State) -> None:
        self.warps, self.cells = list(state.warps), list(state.cells)
        self.flags, self.barriers = list(state.flags), list(state.barriers)
        self.slots, self.waiting = list(state.slots), state.waiting
        self.asked, self.refused = list(state.asked), state.refused

    def freeze(self) -> State:
        """The state."""
        return State(
            tuple(self.warps), tuple(self.cells), tuple(self.flags), tuple(self.barriers),
            tuple(self.slots), self.waiting, tuple(sorted(self.asked)), self.refused,
        )  # fmt: skip


#: a warp goes on; a cluster starts; a request is answered: the cluster it cancels, or None
Move = tuple[str, int, int | None]


def explore(
    program: s.Small, limit: int = 100_000, *, until: str = "",
    beyond: frozenset[str] = frozenset(),
) -> Verdict:  # fmt: skip
    """Every execution of ``program``; stops early once the rule ``until`` is broken.

    ``beyond``: rules about data that are not looked at.

    Raises:
        TooLarge: there are more than ``limit`` states.
    """
    return _Model(program).explore(limit, until, beyond)


def _join(one: Clock, two: Clock) -> Clock:
    return one if one == two else tuple(map(max, one, two))


class _Model(Search[State, Move]):
    """The moves of one program. Components of a clock: the warps, then the slots of all CTAs."""

    def __init__(self, program: s.Small) -> None:
        super().__init__(program)
        self.code = Code(program)
        self.count = len(program.warps)
        self.per_cluster = self.count // program.clusters
        self.zero: Clock = (0,) * (self.count + self.code.slots * program.ctas * program.clusters)

    def cta(self, warp: int) -> int:
        """The CTA of a warp, counted through the grid."""
        return warp // self.program.width

    def cluster(self, warp: int) -> int:
        """The cluster of a warp."""
        return warp // self.per_cluster

    # ------------------------------------------------------------------ the search

    def after(self, state: State, move: Move) -> State:
        """What a move leads to."""
        n = _Next(state)
        self._make(n, move)
        return n.freeze()

    def rests(self, moves: Sequence[Move]) -> bool:
        """Those clusters that have started may be all that fit."""
        return all(kind == "start" for kind, _, _ in moves)

    def at_rest(self, state: State) -> Iterator[str]:
        """What is wrong if no warp can move although some have not ended."""
        if any(
            w.at != END and self.cluster(i) not in state.waiting for i, w in enumerate(state.warps)
        ):
            yield "deadlock"
            yield from self._polls(state)

    def _polls(self, state: State) -> Iterator[str]:
        """What is wrong with loads of warps that poll for ever."""
        for warp, me in enumerate(state.warps):
            step = None if me.at == END else self.code.lines[warp][me.at].step
            if not isinstance(step, s.Spin) or self.cluster(warp) in state.waiting:
                continue
            try:
                self._strong(_Next(state), warp, step.flag, step.scope, reads=True, writes=False)
            except Undefined as error:
                yield str(error)

    def first(self) -> State:
        """No warp has moved."""
        warp = [Warp(start, 0, 0, self.zero, self.zero, self.zero) for start in self.code.start]
        ctas = self.program.ctas * self.program.clusters
        together = self.program.cooperative or self.program.clusters == 1
        barriers = [Mbar(0, n, n, 0, self.zero, self.zero) for n in self.program.counts]
        cells = self.code.places + self.code.slots * ctas
        return State(
            tuple(warp), (Cell(-1, 0, self.zero),) * cells, (Flag(),) * self.program.flags,
            tuple(barriers * ctas), (-1,) * (self.code.slots * ctas),
            frozenset() if together else frozenset(range(self.program.clusters)),
        )  # fmt: skip

    def moves(self, state: State) -> Iterator[Move]:
        """All that can happen; a weak access is the only thing if there is one."""
        for i, warp in enumerate(state.warps):
            if warp.at != END and self.cluster(i) not in state.waiting:
                step = self.code.lines[i][warp.at].step
                if isinstance(step, (s.Put, s.Get, s.If, s.Leave, s.Forever, s.MemoryFence)):
                    yield "warp", i, None
                    return
        for i, warp in enumerate(state.warps):
            if warp.at != END and self.cluster(i) not in state.waiting and self._ready(state, i):
                yield "warp", i, None
        for place in range(len(state.asked)):
            yield "answer", place, None
            for cluster in state.waiting:
                yield "answer", place, cluster
        for cluster in state.waiting:
            yield "start", cluster, None

    def _ready(self, state: State, warp: int) -> bool:
        me = state.warps[warp]
        match self.code.lines[warp][me.at].step:
            case s.Wait(parity=parity, stages=stages, carried=carried) as step:
                wanted = parity ^ (me.trip // stages & 1 if carried else 0)
                return state.barriers[self._bar(warp, step.barrier, stages, me)].phase & 1 != wanted
            case s.Spin(flag=flag, least=least):
                return state.flags[flag].value >= least
            case s.SpinTicket(flag=flag):
                return state.flags[flag].value >= me.register
            case _:
                return True

    def _bar(self, warp: int, barrier: int, stages: int, me: Warp, cta: int | None = None) -> int:
        own = self.cta(warp)
        if cta is not None:
            own = own - own % self.program.ctas + cta
        return own * len(self.program.counts) + barrier + me.trip % stages

    def _make(self, n: _Next, move: Move) -> None:
        kind, which, cluster = move
        if kind == "start":
            n.waiting -= {which}
        elif kind == "answer":
            self._answer(n, which, cluster)
        else:
            line = self.code.lines[which][n.warps[which].at]
            n.warps[which] = n.warps[which]._replace(at=line.after)
            self._step(n, which, line)
            if n.warps[which].at == END and any(
                self.cta(w) == self.cta(which) for w, _, _, _ in n.asked
            ):
                own = range(self.count)
                if all(n.warps[w].at == END for w in own if self.cta(w) == self.cta(which)):
                    raise Undefined("async-at-exit")

    # ------------------------------------------------------------------ memory

    def _touch(self, n: _Next, warp: int, cell: int, *, writes: bool, time: int, by: int) -> None:
        """An access of ``warp``, or for it by component ``by``, to ordinary memory (H6)."""
        clock, old = n.warps[warp].clock, n.cells[cell]
        if old.writer >= 0 and clock[old.writer] < old.time:
            self.broken("race")
        if writes and any(map(int.__gt__, old.reads, clock)):
            self.broken("race")
        if writes:
            n.cells[cell] = Cell(by, time, self.zero)
        else:
            n.cells[cell] = old._replace(reads=_at(old.reads, by, time))

    def _place(self, place: int) -> int:
        """The cell of a place in global memory; behind these lie the slots of launch control."""
        if place >= self.code.places:
            raise Undefined("out-of-bounds")
        return place

    def _tick(self, n: _Next, warp: int) -> int:
        """A new event of the warp."""
        me = n.warps[warp]
        time = me.clock[warp] + 1
        n.warps[warp] = me._replace(clock=_at(me.clock, warp, time))
        return time

    def _includes(self, scope: s.Scope, one: int, two: int) -> bool:
        """Whether the scope of a thread of warp ``one`` includes warp ``two`` (H1)."""
        if scope == "cta":
            return self.cta(one) == self.cta(two)
        return scope != "cluster" or self.cluster(one) == self.cluster(two)

    def _mutual(self, one: int, scope: s.Scope, two: int, other: s.Scope) -> bool:
        return self._includes(scope, one, two) and self._includes(other, two, one)

    def _strong(
        self, n: _Next, warp: int, flag: int, scope: s.Scope, *, reads: bool, writes: bool,
        chain: bool = True,
    ) -> None:  # fmt: skip
        """H2, H6: a strong access races with those whose scopes do not include each other."""
        clock = n.warps[warp].clock
        for touch in n.flags[flag].touched:
            strong = self._mutual(warp, scope, touch.warp, touch.scope)
            if (writes or touch.writes) and not strong and not touch.known(clock):
                self.broken("race")
        new = Touch(warp, scope, writes, self._tick(n, warp))
        n.flags[flag] = n.flags[flag].accessed(new, self._mutual, reads=reads, chain=chain)

    def _release(
        self, n: _Next, warp: int, flag: int, scope: s.Scope, sem: str, value: int, *, rmw: bool
    ) -> None:
        """What is released through a flag: a store ends what was before, an RMW continues it."""
        old, me = n.flags[flag], n.warps[warp]
        clock = me.clock if sem in ("release", "acq_rel") else me.fenced
        sent = {(x, w): c for x, w, c in old.sent} if rmw else {}
        sent[scope, warp] = _join(sent.get((scope, warp), self.zero), clock)
        if sem in ("release", "acq_rel"):
            told = tuple(sorted({*me.told, (flag, scope, clock)}))
            n.warps[warp] = me._replace(told=told)
        for at, before, known in me.told:  # what it has released here before (H3)
            narrow = min(before, scope, key=_SCOPES.index)
            if at == flag:
                sent[narrow, warp] = _join(sent.get((narrow, warp), self.zero), known)
        entry = tuple(sorted((x, w, c) for (x, w), c in sent.items() if c != self.zero))
        n.flags[flag] = old._replace(value=value, sent=entry)

    def _acquire(self, n: _Next, warp: int, flag: int, scope: s.Scope, sem: str) -> None:
        me = n.warps[warp]
        for other, origin, clock in n.flags[flag].sent:
            if self._mutual(warp, scope, origin, other):
                if sem in ("acquire", "acq_rel"):
                    me = me._replace(clock=_join(me.clock, clock))
                else:
                    me = me._replace(saw=_join(me.saw, clock))
        n.warps[warp] = me

    # ------------------------------------------------------------------ steps

    def _step(self, n: _Next, warp: int, line: Line) -> None:
        me = n.warps[warp]
        match line.step:
            case s.Put(place=place, by=by):
                cell = self._place(place + (me.register if by else 0))
                time = self._tick(n, warp)
                self._touch(n, warp, cell, writes=True, time=time, by=warp)
            case s.Get(place=place, by=by):
                cell = self._place(place + (me.register if by else 0))
                time = self._tick(n, warp)
                self._touch(n, warp, cell, writes=False, time=time, by=warp)
            case s.If(value=value):
                self._jump(n, warp, line, me.register == value)
            case s.Leave():
                self._jump(n, warp, line, me.register < 0)
            case s.Forever():
                n.warps[warp] = n.warps[warp]._replace(trip=me.trip + 1)
            case s.MemoryFence():
                clock = _join(me.clock, me.saw)
                n.warps[warp] = n.warps[warp]._replace(clock=clock, fenced=clock)
            case s.Ticket() | s.Tiles() | s.Set() | s.Add() | s.Spin() | s.SpinTicket():
                self._on_flag(n, warp, line)
            case s.Cancel() | s.Query():
                self._control(n, warp, line.step)
            case _:
                self._on_barrier(n, warp, line.step)

    def _jump(self, n: _Next, warp: int, line: Line, yes: bool) -> None:
        n.warps[warp] = n.warps[warp]._replace(at=line.after if yes else line.no)

    def _on_flag(self, n: _Next, warp: int, line: Line) -> None:
        match line.step:
            case s.Spin(least=least) if least <= 0:
                pass  # the loop ends before it begins
            case s.SpinTicket() if n.warps[warp].register <= 0:
                pass
            case s.Ticket(flag=flag, sem=sem, scope=scope):
                self._take(n, warp, flag, sem, scope)
            case s.Tiles(flag=flag, limit=limit):
                self._take(n, warp, flag, "relaxed", "gpu")
                self._jump(n, warp, line, n.warps[warp].register < limit)
            case s.Set(flag=flag, value=value, release=release, scope=scope):
                self._strong(n, warp, flag, scope, reads=False, writes=True, chain=False)
                sem = "release" if release else "relaxed"
                self._release(n, warp, flag, scope, sem, value, rmw=False)
            case s.Add(flag=flag, release=release, scope=scope):
                self._strong(n, warp, flag, scope, reads=False, writes=True)
                sem = "release" if release else "relaxed"
                value = n.flags[flag].value + 1
                self._release(n, warp, flag, scope, sem, value, rmw=True)
            case s.Spin(flag=flag, acquire=acquire, scope=scope):
                self._strong(n, warp, flag, scope, reads=True, writes=False)
                self._acquire(n, warp, flag, scope, "acquire" if acquire else "relaxed")
            case s.SpinTicket(flag=flag):
                self._strong(n, warp, flag, "gpu", reads=True, writes=False)
                self._acquire(n, warp, flag, "gpu", "acquire")
            case _:
                raise AssertionError(line.step)

    def _take(self, n: _Next, warp: int, flag: int, sem: str, scope: s.Scope) -> None:
        self._strong(n, warp, flag, scope, reads=True, writes=True)
        self._acquire(n, warp, flag, scope, sem)
        value = n.flags[flag].value
        self._release(n, warp, flag, scope, sem, value + 1, rmw=True)
        n.warps[warp] = n.warps[warp]._replace(register=value)

    def _on_barrier(self, n: _Next, warp: int, step: s.Step) -> None:
        me = n.warps[warp]
        match step:
            case s.Arrive(barrier=barrier, count=count, cta=cta, stages=stages):
                index = self._bar(warp, barrier, stages, me, cta)
                self._credit(n, index, count, 0, me.clock)
            case s.ArriveExpect(barrier=barrier, words=words, stages=stages):
                self._credit(n, self._bar(warp, barrier, stages, me), 1, words, me.clock)
            case s.Expect(barrier=barrier, words=words, stages=stages):
                index = self._bar(warp, barrier, stages, me)
                phase = n.barriers[index].phase
                self._credit(n, index, 0, words, self.zero)
                if n.barriers[index].phase != phase:
                    raise Undefined("tx-mismatch")
            case s.Wait(barrier=barrier, stages=stages):
                closed = n.barriers[self._bar(warp, barrier, stages, me)].closed
                n.warps[warp] = me._replace(clock=_join(me.clock, closed))
            case _:
                raise AssertionError(step)

    def _credit(self, n: _Next, index: int, arrivals: int, tx: int, clock: Clock) -> None:
        """A.3."""
        b = n.barriers[index]
        if arrivals > b.pending:
            raise Undefined("over-arrival")
        pending, tx, open_ = b.pending - arrivals, b.tx + tx, _join(b.open, clock)
        if pending == 0 and tx == 0:
            n.barriers[index] = Mbar(b.phase + 1, b.expected, b.expected, 0, self.zero, open_)
        else:
            n.barriers[index] = Mbar(b.phase, pending, b.expected, tx, open_, b.closed)

    # ------------------------------------------------------------------ launch control

    def _control(self, n: _Next, warp: int, step: s.Cancel | s.Query) -> None:
        me, cta = n.warps[warp], self.cta(warp)
        slot = cta * self.code.slots + step.slot + me.trip % step.stages
        cell = self.code.places + slot
        if isinstance(step, s.Query):
            if n.cells[cell].writer < 0:
                self.broken("uninitialised-read")
            time = self._tick(n, warp)
            self._touch(n, warp, cell, writes=False, time=time, by=warp)
            n.warps[warp] = n.warps[warp]._replace(register=n.slots[slot])
            if n.slots[slot] < 0:
                n.refused |= {cta}
            return
        if cta in n.refused:
            raise Undefined("launch-control")
        component = self.count + slot
        number = 1 + max(
            [n.cells[cell].time if n.cells[cell].writer == component else 0,
             *(time for _, x, _, time in n.asked if x == slot)]
        )  # fmt: skip
        self._touch(n, warp, cell, writes=True, time=number, by=component)
        barrier = self._bar(warp, step.barrier, step.stages, me)
        n.asked.append((warp, slot, barrier, number))

    def _answer(self, n: _Next, place: int, cluster: int | None) -> None:
        """A request ends: what it writes is published, and nothing else (A28)."""
        _, slot, barrier, number = n.asked.pop(place)
        n.slots[slot] = -1 if cluster is None else cluster * self.program.ctas
        if cluster is not None:
            n.waiting -= {cluster}
            for warp in range(self.count):
                if self.cluster(warp) == cluster:
                    n.warps[warp] = n.warps[warp]._replace(at=END)
        self._credit(n, barrier, 0, -_ANSWER, _at(self.zero, self.count + slot, number))

    def label(self, state: State, move: Move) -> str:
        """A move, in words."""
        kind, which, cluster = move
        if kind == "start":
            return f"cluster {which} starts"
        if kind == "answer":
            return f"a request of warp {state.asked[which][0]} gets {cluster}"
        return f"warp {which}: {self.code.lines[which][state.warps[which].at].step}"


def _at(clock: Clock, place: int, time: int) -> Clock:
    return (*clock[:place], time, *clock[place + 1 :])
