"""A second, deliberately simple opinion: every interleaving of a small program, one by one.

An explicit-state model of one CTA, or of two in a cluster, that shares nothing with
``tilesim.sim``. A state is where each warp stands, what the barriers count, which copies are in
flight and which accesses each warp knows of; every enabled move is followed from every state.
SEMANTICS rules are cited where they apply: A.3 (mbarriers), A5 to A7 (lifetime), A16 (drops), A21,
A22 (parity), A26 to A29 (what is published), B1 to B3 (copies), B29 to B34 (groups), C6, D1 to D9
(clusters), E1 to E7 (named barriers), H6, H11 (races and proxy fences).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any

from tests.sim import steps as s
from tests.sim.code import END, Line
from tests.sim.model import DEAD, UNBORN
from tests.sim.model import TooLarge as TooLarge
from tests.sim.model import Verdict as Verdict
from tests.sim.states import Barrier, Flight, Meeting, Named, Next, State, Undefined
from tests.sim.strong import Memory
from tests.sim.tensor import TensorMemory
from tests.sim.wgmma import note_groups


def explore(
    program: s.Small, limit: int = 100_000, *, until: str = "",
    beyond: frozenset[str] = frozenset(),
) -> Verdict:  # fmt: skip
    """Every interleaving of ``program``; stops early once the rule ``until`` is broken.

    ``beyond``: rules about data that are not looked at.

    Raises:
        TooLarge: there are more than ``limit`` states.
    """
    try:
        return _Model(program).explore(limit, until, beyond)
    except _Between:
        apart = replace(program, warps=tuple(map(_lane_by_lane, program.warps)))
        return explore(apart, limit, until=until, beyond=beyond)


class _Between(Exception):
    """Some lanes of an arrive end a phase, others begin the next: what is between counts."""


def _lane_by_lane(steps: tuple[s.Step, ...]) -> tuple[s.Step, ...]:
    """The steps, with one arrive after another for each lane."""
    lanes = 128 if any(isinstance(step, s.OF_GROUPS) for step in s.every(steps)) else 32

    def apart(body: tuple[s.Step, ...]) -> Iterator[s.Step]:
        for step in body:
            one = s.with_parts(step, tuple(tuple(apart(part)) for part in s.parts(step)))
            if isinstance(one, s.Arrive) and one.full:
                yield from repeat(replace(one, full=False), one.lanes or lanes)
            else:
                yield one

    return tuple(apart(steps))


class _Model(Memory, TensorMemory):
    """The moves of one program."""

    def __init__(self, program: s.Small) -> None:
        super().__init__(program)
        starts = zip(self.code.lines, self.code.start, strict=True)
        #: per warpgroup, the reads of products that nobody waits for
        self.flying = [note_groups(lines, start) for lines, start in starts]
        self.groups = [any(isinstance(x.step, s.OF_GROUPS) for x in c) for c in self.code.lines]
        self.ids = 1 + max(
            (x.id for steps in program.warps for x in s.every(steps) if isinstance(x, s.Join)),
            default=-1,
        )
        self._rules: dict[type[Any], Callable[[Next, int, Line, int], None]] = {
            s.Arrive: self._arrive, s.ArriveExpect: self._arrive_expect, s.Expect: self._expect,
            s.Complete: self._complete, s.Copy: self._copy, s.Later: self._later,
            s.Wait: self._wait, s.Peek: self._peek, s.WaitUnless: self._wait_unless,
            s.Poll: self._poll, s.Init: self._init, s.Inval: self._inval, s.Read: self.read,
            s.Write: self.write, s.Store: self._store, s.Commit: self._nothing,
            s.WaitGroup: self._wait_group, s.Fence: self.proxy_fence, s.Join: self._join,
            s.ClusterArrive: self._cluster_arrive, s.ClusterWait: self._cluster_wait,
            s.Red: self.write, s.Remote: self.remote, s.Set: self.raise_flag,
            s.Add: self.raise_flag, s.Spin: self.spin, s.MemoryFence: self.memory_fence,
            s.Mma: self.engine, s.Cp: self.engine, s.Ld: self.move, s.St: self.move,
            s.TensorWait: self.tensor_wait, s.TensorFence: self.tensor_fence,
            s.TensorCommit: self.tensor_commit, s.WgFence: self._nothing, s.WgMma: self._product,
            s.WgCommit: self._nothing, s.WgWait: self._wait_group, s.WgUse: self._nothing,
        }  # fmt: skip

    # ------------------------------------------------------------------ the search

    def first(self) -> State:
        """Nothing has moved."""
        known = (1 << self.program.ctas) - 1
        if self.program.fenced:
            known |= known << self.shift
        barriers = [Barrier(0 if n else UNBORN, n, n) for n in self.program.counts]
        return State(
            tuple(self.code.start), (known,) * len(self.code.start),
            tuple(barriers * self.program.ctas), (Named(),) * (self.ids * self.program.ctas), (),
            0, 0, (1 << self.program.ctas) - 1, Meeting(), self.begin_strong(),
            self.begin_tensor(),
        )  # fmt: skip

    def at_rest(self, state: State) -> Iterator[str]:
        """What is wrong with a state in which nothing can move."""
        if state.parked or any(at != END for at in state.at):
            yield "deadlock"
            return
        for known, sources, loose, flying in zip(
            state.knows, self.code.sources, self.code.uncommitted, self.flying, strict=True
        ):
            if loose:
                yield "bulk-group"
            if sources & ~known or flying:
                yield "async-at-exit"
        if self.leftover(state.knows, state.done):
            yield "tmem-lifetime"

    def moves(self, state: State) -> Iterator[Flight | int]:
        """What lands, and warps that go on."""
        yield from state.flights
        for warp, at in enumerate(state.at):
            if at == END or state.parked >> warp & 1:
                continue
            if not self._blocks(state, warp, self.code.lines[warp][at].step):
                yield warp

    def after(self, state: State, move: Flight | int) -> State:
        """What a move leads to."""
        after = Next(state)
        if isinstance(move, int):
            line = self.code.lines[move][state.at[move]]
            if line.breaks:
                self.passing.append(line.breaks)
            after.at[move] = line.after
            self._rules[type(line.step)](after, move, line, after.knows[move])
            if after.at[move] == END:
                self._exit(after, move)
        else:
            after.flights.remove(move)
            self._land(after, move)
        return after.freeze()

    def _blocks(self, state: State, warp: int, step: s.Step) -> bool:
        match step:
            case s.Wait(barrier=barrier, parity=parity):
                pass
            case s.WaitUnless(barrier=barrier, parity=parity):
                if state.flags >> warp & 1:
                    return False
            case s.Spin(flag=flag, least=least, cta=cta):
                assert state.strong is not None
                own = self.code.cta[warp]
                place = (own if cta is None else cta) * self.program.flags + flag
                return state.strong.flags[place].value < least
            case s.ClusterWait():
                meeting = state.meeting
                return bool(meeting.arrived & ~meeting.released & 1 << warp)
            case _:
                return False
        found = state.barriers[self.index(warp, barrier)]
        unseen = found.event & ~state.knows[warp]
        return found.phase >= 0 and not unseen and found.phase & 1 == parity

    def _exit(self, n: Next, warp: int) -> None:
        """The warp has ended: it counts as arrived at the cluster barrier (D5); D9, B34."""
        self._meet(n)
        cta = self.code.cta[warp]
        if not self.over(n, cta):
            return
        last = all(at == END for at in n.at)
        for flight in n.flights:
            step = self.code.lines[flight.warp][flight.line].step
            own = self.code.cta[flight.warp] == cta
            moves = isinstance(step, (s.Copy, s.Remote))
            if moves and last:
                self.passing.append("async-at-exit")
            if flight.goal == cta and (moves or (isinstance(step, s.TensorCommit) and not own)):
                self.passing.append("async-at-exit" if own else "peer-exit")
            elif own and isinstance(step, s.Remote) and step.form in ("copy", "reduce"):
                self.passing.append("peer-exit")  # it reads the memory of this CTA

    # ------------------------------------------------------------------ mbarriers

    def _on_barrier(self, n: Next, warp: int, line: Line, index: int) -> Barrier:
        """The barrier, if it may be used, which the warp itself does now."""
        n.done |= line.use
        n.knows[warp] |= line.use
        return self.use(n, index, n.knows[warp])

    def _arrive(self, n: Next, warp: int, line: Line, known: int) -> None:
        """Lanes arrive one after another; of others in between see `tests.sim.reference_lanes`.

        Raises:
            _Between: some of the lanes end a phase, and the others are of the next one.
        """
        step = line.step
        assert isinstance(step, s.Arrive)
        cta = self.reach(n, warp, step.cta)
        index = cta * self.count + step.barrier
        self._on_barrier(n, warp, line, index)
        publishes = (known & self.handed if step.relaxed else known) | line.use
        drop = step.count if step.drop else 0
        phase = n.barriers[index].phase
        for _ in range((step.lanes or (128 if self.groups[warp] else 32)) if step.full else 1):
            if n.barriers[index].phase != phase:
                raise _Between
            if step.partial and step.count >= n.barriers[index].pending:
                raise Undefined("over-arrival")
            self.credit(n, index, step.count, 0, publishes, drop)

    def _arrive_expect(self, n: Next, warp: int, line: Line, known: int) -> None:
        step = line.step
        assert isinstance(step, s.ArriveExpect)
        index = self.index(warp, step.barrier)
        self._on_barrier(n, warp, line, index)
        self.credit(n, index, 1, step.words * s.WORD, known | line.use)

    def _expect(self, n: Next, warp: int, line: Line, known: int) -> None:
        step = line.step
        assert isinstance(step, s.Expect)
        index = self.index(warp, step.barrier)
        phase = self._on_barrier(n, warp, line, index).phase
        self.credit(n, index, 0, step.words * s.WORD, known & self.handed | line.use)
        if n.barriers[index].phase != phase:
            raise Undefined("tx-mismatch")

    def _complete(self, n: Next, warp: int, line: Line, known: int) -> None:
        step = line.step
        assert isinstance(step, s.Complete)
        index = self.index(warp, step.barrier)
        self._on_barrier(n, warp, line, index)
        self.credit(n, index, 0, -step.words * s.WORD, known & self.handed | line.use)

    def _later(self, n: Next, warp: int, line: Line, known: int) -> None:
        """C6: with ``inc`` the phase expects one more from now on."""
        step = line.step
        assert isinstance(step, s.Later)
        index = self.index(warp, step.barrier)
        self.use(n, index, known)
        if step.inc:
            self.credit(n, index, -1, 0, known & self.handed)
        n.flights.append(Flight(warp, line.place, self.code.cta[warp], known))

    def _wait(self, n: Next, warp: int, line: Line, known: int) -> None:
        step = line.step
        assert isinstance(step, (s.Wait, s.WaitUnless, s.Peek, s.Poll))
        index = self.index(warp, step.barrier)
        closed = self._on_barrier(n, warp, line, index).closed
        if isinstance(step, s.Wait) and step.relaxed:
            closed &= self.handed | self.code.credits.get(index, 0)
        n.knows[warp] |= closed

    def _asks(self, n: Next, warp: int, line: Line, known: int) -> bool:
        """A21: whether the phase of this parity is the preceding one; if so, acquires it."""
        step = line.step
        assert isinstance(step, (s.Peek, s.Poll))
        barrier = self._on_barrier(n, warp, line, self.index(warp, step.barrier))
        if barrier.phase & 1 == step.parity:
            return False
        n.knows[warp] |= barrier.closed
        return True

    def _peek(self, n: Next, warp: int, line: Line, known: int) -> None:
        n.flags &= ~(1 << warp)
        n.flags |= int(self._asks(n, warp, line, known)) << warp

    def _wait_unless(self, n: Next, warp: int, line: Line, known: int) -> None:
        if not n.flags >> warp & 1:
            self._wait(n, warp, line, known)

    def _poll(self, n: Next, warp: int, line: Line, known: int) -> None:
        n.at[warp] = line.after if self._asks(n, warp, line, known) else line.no

    def _init(self, n: Next, warp: int, line: Line, known: int) -> None:
        step = line.step
        assert isinstance(step, s.Init)
        index = self.index(warp, step.barrier)
        before = n.barriers[index]
        if before.phase >= 0:
            raise Undefined("barrier-lifetime")
        if before.event & ~known:
            self.broken("race")
        n.barriers[index] = Barrier(0, step.count, step.count, event=line.events[0])
        n.knows[warp] |= line.events[0]

    def _inval(self, n: Next, warp: int, line: Line, known: int) -> None:
        step = line.step
        assert isinstance(step, s.Inval)
        index = self.index(warp, step.barrier)
        self.use(n, index, known)
        if self.code.uses.get(index, 0) & n.done & ~known:
            raise Undefined("barrier-lifetime")
        n.barriers[index] = Barrier(DEAD, 0, 0, event=line.events[0])
        n.knows[warp] |= line.events[0]

    # ------------------------------------------------------------------ data

    def _copy(self, n: Next, warp: int, line: Line, known: int) -> None:
        step = line.step
        assert isinstance(step, s.Copy)
        for goal in line.goals:
            self.reach(n, warp, goal)
            self.use(n, goal * self.count + step.barrier, known)
            flight = Flight(warp, line.place, goal, known)
            self._check_copy(n, flight)
            if any(other.goal == goal and self._overlap(other, flight) for other in n.flights):
                self.broken("race")
            n.flights.append(flight)

    def _words(self, flight: Flight) -> range:
        """The words a flight writes: none for a later arrival."""
        step = self.code.lines[flight.warp][flight.line].step
        return range(step.word, step.word + step.words) if isinstance(step, s.Copy) else range(0)

    def _overlap(self, one: Flight, two: Flight) -> bool:
        return not set(self._words(one)).isdisjoint(self._words(two))

    def _check_copy(self, n: Next, flight: Flight) -> None:
        """What was executed on its words comes before the copy was issued (B1, B2)."""
        writes = reads = 0
        for word in self._words(flight):
            writes |= self.code.writes[flight.goal][word]
            reads |= self.code.reads[flight.goal][word]
        writes = self.overwrites(writes, 0, flight.issued)
        self.async_access(writes, reads, n.done, flight.issued)

    def _land(self, n: Next, flight: Flight) -> None:
        """A copy is done: it publishes its own write and nothing else (A28)."""
        line = self.code.lines[flight.warp][flight.line]
        step = line.step
        assert isinstance(step, (s.Copy, s.Later, s.Remote, s.TensorCommit))
        index = flight.goal * self.count + step.barrier
        barrier = n.barriers[index]
        if barrier.phase < 0 or barrier.event & ~flight.issued:
            raise Undefined("barrier-lifetime")
        order = flight.issued & self.handed
        if isinstance(step, s.Later):
            self.credit(n, index, 1, 0, order)
            return
        if isinstance(step, s.TensorCommit):
            self.credit(n, index, 1, 0, self.completion(flight))
            return
        if isinstance(step, s.Remote):
            done = sum(line.events)
            if step.form in ("copy", "reduce"):
                done |= done << self.shift
            self.credit(n, index, 0, -s.WORD, done | order | flight.over)
            return
        event = line.events[line.goals.index(flight.goal)]
        self._check_copy(n, flight)
        n.done |= event
        event |= self.covered(n, flight.goal, self._words(flight), flight.issued)
        tx = -step.words * s.WORD
        self.credit(n, index, 0, tx, event | event << self.shift | order)

    def _store(self, n: Next, warp: int, line: Line, known: int) -> None:
        step = line.step
        assert isinstance(step, s.Store)
        self.async_access(self.code.writes[self.code.cta[warp]][step.word], 0, n.done, known)
        self.async_access(self.code.places[step.place], 0, n.done, known)
        n.done |= line.events[0] | line.events[1]

    def _wait_group(self, n: Next, warp: int, line: Line, known: int) -> None:
        n.knows[warp] |= line.events[0] | line.events[0] << self.shift

    def _product(self, n: Next, warp: int, line: Line, known: int) -> None:
        """F2, F4: a wgmma reads a word by the async proxy."""
        step = line.step
        assert isinstance(step, s.WgMma)
        self.async_access(self.code.writes[self.code.cta[warp]][step.word], 0, n.done, known)
        n.done |= line.events[0]

    def _nothing(self, n: Next, warp: int, line: Line, known: int) -> None:
        """What a group is made of is in the code already."""

    # ------------------------------------------------------------------ warps that meet

    def _join(self, n: Next, warp: int, line: Line, known: int) -> None:
        """E2 to E7: the last of a round releases the waiting ones."""
        step = line.step
        assert isinstance(step, s.Join)
        index = self.code.cta[warp] * self.ids + step.id
        joined = n.named[index].joined(warp, step.warps, known, waits=step.waits)
        if joined is None or step.warps > self.program.width:
            raise Undefined("named-barrier")
        n.parked |= int(step.waits) << warp
        n.named[index] = joined
        if joined.full:
            for other in range(len(n.knows)):
                if joined.waiting >> other & 1:
                    n.knows[other] |= joined.open
            n.parked &= ~joined.waiting
            n.named[index] = Named()

    def _cluster_arrive(self, n: Next, warp: int, line: Line, known: int) -> None:
        """D1, D2: a warp arrives again only after it has waited."""
        step = line.step
        assert isinstance(step, s.ClusterArrive)
        m = n.meeting
        if m.arrived >> warp & 1:
            raise Undefined("named-barrier")
        n.meeting = m._replace(
            members=m.members | 1 << warp,
            open=m.open | (known & self.handed if step.relaxed else known),
            arrived=m.arrived | 1 << warp,
        )
        self._meet(n)

    def _meet(self, n: Next) -> None:
        """Completes the round if every warp that has not ended is in it (D2, D5).

        With tensor memory the warps of a CTA end together.
        """
        m, cta = n.meeting, self.code.cta
        ended = {c: self.over(n, c) for c in cta} if self.program.slots else {}
        if m.members and all(
            m.members >> w & 1 or (at == END and ended.get(cta[w], True))
            for w, at in enumerate(n.at)
        ):
            n.meeting = Meeting(0, 0, m.open, m.arrived, m.released | m.members)

    @staticmethod
    def _cluster_wait(n: Next, warp: int, line: Line, known: int) -> None:
        m = n.meeting
        if not m.arrived >> warp & 1:
            raise Undefined("participation")
        rest = ~(1 << warp)
        n.meeting = m._replace(arrived=m.arrived & rest, released=m.released & rest)
        n.knows[warp] |= m.closed

    # ------------------------------------------------------------------ stories

    def label(self, state: State, move: Flight | int) -> str:
        """A step of a warp, or what lands."""
        if isinstance(move, int):
            return f"warp {move}: {self.code.lines[move][state.at[move]].step}"
        step = self.code.lines[move.warp][move.line].step
        return f"lands in CTA {move.goal}: {step} of warp {move.warp}"
