"""Every interleaving of a small program of lanes.

The explicit-state model of `tests.sim.reference`, one level further down. What moves is one lane
of a class (`tests.sim.code_lanes`), so the n lanes of an instruction are n events, and arms of a
branch go their own ways. A lane knows what it did itself and what it learned; lanes of a warp tell
each other at bar.warp.sync and at barriers, and nowhere else. SEMANTICS A.3, A21, A26 to A29, B1 to
B5, B29 to B31, C3 to C7, D1 to D9, D11, E2, E11, E12, E19 to E21, H6 and H11.

Moves that touch nothing but what their own lane knows commute with all others, so they are made as
soon as they can be (a race shows in whichever order its accesses are made).
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.sim import steps as s
from tests.sim.code_lanes import END, LANES, Code, Line
from tests.sim.model import Search, Verdict
from tests.sim.states import Barrier, Meeting, Named, Undefined
from tests.sim.states_lanes import Flight, Next, State

_SHUFFLES = (s.Gather("shfl"), s.Gather("shfl", used=True))
#: what a cell counts in bytes, in units
_CELL, _WORD = 1, LANES


def explore(
    program: s.Small, limit: int = 100_000, *, until: str = "",
    beyond: frozenset[str] = frozenset(),
) -> Verdict:  # fmt: skip
    """Every interleaving of ``program``; stops early once the rule ``until`` is broken.

    ``beyond``: rules about data that are not looked at.

    Raises:
        TooLarge: there are more than ``limit`` states.
    """
    return _Model(program).explore(limit, until, beyond)


class _Model(Search[State | None, int | Flight]):
    """The moves of one program."""

    def __init__(self, program: s.Small) -> None:
        super().__init__(program)
        self.code = Code(program)
        self.agents = self.code.agents
        self.warps = [[a for a in self.agents if a.warp == w] for w in range(len(program.warps))]
        self.ids = 1 + max(
            (x.id for steps in program.warps for x in s.every(steps) if isinstance(x, s.Join)),
            default=-1,
        )

    # ------------------------------------------------------------------ the search

    def first(self) -> None:
        """Before the start, at which what needs nothing else is done."""

    def after(self, state: State | None, move: int | Flight) -> State:
        """What a move leads to, and all that needs nothing else."""
        n = Next(self._first() if state is None else state)
        if state is not None:
            self._make(n, move)
        self._settle(n)
        if self.passing:
            raise Undefined(self.passing.pop())
        return n.freeze()

    def _first(self) -> State:
        nothing = (0,) * len(self.agents)
        barriers = [Barrier(0, n, n) for n in self.program.counts]
        return State(
            tuple(0 if a.lines else END for a in self.agents), nothing, nothing, nothing,
            tuple(barriers * self.program.ctas), (), (Named(),) * (self.ids * self.program.ctas),
            Meeting(), 0, 0,
        )  # fmt: skip

    def at_rest(self, state: State | None) -> Iterator[str]:
        """What is wrong with a state in which nothing can move."""
        assert state is not None
        if state.parked or any(at != END for at in state.at):
            yield "deadlock"
            lines = (self._line(state, agent.number) for agent in self.agents)
            if any(line is not None and line.step in _SHUFFLES for line in lines):
                yield "participation"  # a lane reads one that never comes (PTX 9.7.9.6)
            return
        for agent in self.agents:
            if agent.loose:
                yield "bulk-group"
            if agent.unwaited or agent.copies & ~self._known_to(state, agent.cta):
                yield "async-at-exit"

    def _known_to(self, state: State, cta: int) -> int:
        """What somebody of a CTA knows."""
        known = 0
        for agent in self.agents:
            if agent.cta == cta:
                known |= state.common[agent.number] | state.mine[agent.number]
        return known

    def _line(self, state: State | Next, agent: int) -> Line | None:
        at = state.at[agent]
        return None if at == END else self.agents[agent].lines[at]

    def moves(self, state: State | None) -> Iterator[int | Flight]:
        """A class, of which a lane goes on; or a flight, one of which lands."""
        if state is None:
            yield END
            return
        yield from state.flights
        for agent in self.agents:
            line = self._line(state, agent.number)
            if line is None or line.sync is not None or state.parked >> agent.warp & 1:
                continue
            match line.step:
                case s.Wait(barrier=barrier, parity=parity):
                    if state.barriers[self._index(line, barrier)].phase & 1 == parity:
                        continue
                case s.Join() | s.ClusterArrive() | s.ClusterWait():
                    if not self._gathered(state, line):
                        continue
                case _:
                    pass
            yield agent.number

    def _gathered(self, state: State, line: Line) -> bool:
        """Whether the warp's lanes that have not ended are all at such a step (E2, D3); the first
        class moves for all."""
        here = [self._line(state, a.number) for a in self.warps[line.agent.warp]]
        live = [x for x in here if x is not None]
        if live[0] is not line or any(x.step != line.step for x in live):
            return False
        if isinstance(line.step, s.ClusterWait):
            meeting, bit = state.meeting, 1 << line.agent.warp
            return not meeting.arrived & ~meeting.released & bit
        return True

    def _make(self, n: Next, move: int | Flight) -> None:
        if isinstance(move, Flight):
            n.flights.remove(move)
            self._land(n, move)
            return
        agent = self.agents[move]
        line = agent.lines[n.at[move]]
        match line.step:
            case s.Wait():
                self._wait(n, line, line.step)
            case s.Join():
                self._join(n, line, line.step)
            case s.ClusterArrive() | s.ClusterWait():
                self._cluster(n, line, line.step)
            case _:
                self._credit_step(n, line, n.past[move])
                n.past[move] += 1
                if n.past[move] == len(agent.lanes):
                    self._on(n, move)

    def _on(self, n: Next, agent: int) -> None:
        """The class is past its line."""
        n.past[agent] = 0
        n.at[agent] += 1
        if n.at[agent] == len(self.agents[agent].lines):
            n.at[agent] = END
            self._exit(n, self.agents[agent].cta)

    def _exit(self, n: Next, cta: int) -> None:
        """D5, D9: nothing may be under way to a CTA that has ended."""
        self._meet(n)
        if not self._over(n, cta):
            return
        last = all(at == END for at in n.at)
        for flight in n.flights:
            step = self.agents[flight.agent].lines[flight.line].step
            if not isinstance(step, (s.Copy, s.Remote)):
                continue
            own = self.agents[flight.agent].cta == cta
            goal = step.cta if isinstance(step, s.Remote) else self.agents[flight.agent].cta
            if last:
                self.passing.append("async-at-exit")
            if goal == cta:
                self.passing.append("async-at-exit" if own else "peer-exit")

    def _over(self, n: Next, cta: int) -> bool:
        return all(n.at[a.number] == END for a in self.agents if a.cta == cta)

    def _index(self, line: Line, barrier: int, cta: int | None = None) -> int:
        own = line.agent.cta if cta is None else cta
        return own * len(self.program.counts) + barrier

    # ------------------------------------------------------------------ what lanes know

    def _knows(self, n: Next, line: Line, lane: int) -> int:
        """What one lane of the class knows."""
        agent = line.agent
        return n.common[agent.number] | n.mine[agent.number] & agent.own[lane]

    def _settle(self, n: Next) -> None:
        """All moves that touch nothing but what their lanes know."""
        again = True
        while again:
            again = False
            for agent in self.agents:
                number = agent.number
                while (at := n.at[number]) != END and (line := agent.lines[at]).eager:
                    if n.parked >> agent.warp & 1:
                        break
                    if line.sync is None:
                        self._local(n, line)
                        self._on(n, number)
                    elif not self._synced(n, line):
                        break
                    again = True

    def _synced(self, n: Next, line: Line) -> bool:
        """If all lanes that are meant are here, they go on: where they meet, they know what any of
        them did (E11), but not where they are only gathered (E12, E19 to E21)."""
        assert line.sync is not None
        members = [a.number for a in self.warps[line.agent.warp] if a.lanes[0] in line.sync]
        here = [self._line(n, a) for a in members]
        if any(x is None or x.sync != line.sync for x in here):
            return False
        known = 0
        for a in members if not isinstance(line.step, s.Gather) else ():
            known |= n.common[a] | n.mine[a]
        for a in members:
            n.common[a] |= known
            self._on(n, a)
        return True

    def _local(self, n: Next, line: Line) -> None:
        agent, step = line.agent.number, line.step
        match step:
            case s.Fence():
                for known in (n.common, n.mine):
                    known[agent] |= (known[agent] & self.code.generic) << self.code.shift
            case s.CpWait() | s.WaitGroup():
                over = line.learns
                n.mine[agent] |= over | (over << self.code.shift if _bulk(step) else 0)
            case s.Commit():
                pass
            case s.Later():
                self._issue(n, line)
            case _:
                self._access(n, line)

    def _access(self, n: Next, line: Line) -> None:
        """An access of every lane, which conflicts with what was done and is not known (H6)."""
        agent, step = line.agent.number, line.step
        over = 0
        for i in range(len(line.agent.lanes)):
            known = self._knows(n, line, i)
            conflicts = line.writes[i] | (0 if isinstance(step, s.Read) else line.reads[i])
            if isinstance(step, s.Store):
                conflicts = line.writes[i] | line.places[i]
            if conflicts & n.done & ~known:
                self.broken("race")
            if isinstance(step, (s.Store, s.Copy)):
                unfenced = line.writes[i] & n.done & ~self.code.asynchronous
                if unfenced & ~(known >> self.code.shift):
                    self.broken("proxy-fence")
            n.done |= line.events & (line.events & -line.events) << i
            if isinstance(step, (s.Copy, s.Remote)):
                over |= conflicts & n.done & known
        if isinstance(step, (s.Read, s.Write)):
            n.mine[agent] |= line.events
        elif isinstance(step, (s.Copy, s.Remote)):
            self._issue(n, line, over)

    def _issue(self, n: Next, line: Line, over: int = 0) -> None:
        agent = line.agent.number
        if isinstance(line.step, s.Remote):
            self._reach(n, line, line.step.cta)
        n.flights.append(Flight(agent, n.at[agent], 0, n.common[agent], n.mine[agent], over))

    def _reach(self, n: Next, line: Line, cta: int) -> None:
        if cta != line.agent.cta and self._over(n, cta):
            self.passing.append("peer-exit")

    # ------------------------------------------------------------------ mbarriers

    def _credit(
        self, n: Next, index: int, arrivals: int, tx: int, publishes: int, drop: int = 0
    ) -> None:
        n.barriers[index] = n.barriers[index].credited(arrivals, tx, publishes, drop)

    def _credit_step(self, n: Next, line: Line, lane: int) -> None:
        """What one lane does to a barrier."""
        known = self._knows(n, line, lane)
        match line.step:
            case s.Arrive(barrier=barrier, count=count, cta=cta, drop=drop, relaxed=relaxed):
                if cta is not None:
                    self._reach(n, line, cta)
                index = self._index(line, barrier, cta)
                self._credit(n, index, count, 0, 0 if relaxed else known, count * drop)
            case s.ArriveExpect(barrier=barrier, words=words):
                self._credit(n, self._index(line, barrier), 1, words, known)
            case s.Expect(barrier=barrier, words=words):
                index = self._index(line, barrier)
                phase = n.barriers[index].phase
                self._credit(n, index, 0, words, 0)
                if n.barriers[index].phase != phase:
                    raise Undefined("tx-mismatch")
            case s.Complete(barrier=barrier, words=words):
                self._credit(n, self._index(line, barrier), 0, -words, 0)
            case s.Later(barrier=barrier):
                self._credit(n, self._index(line, barrier), -1, 0, 0)
                agent = line.agent
                if lane == len(agent.lanes) - 1:
                    self._issue(n, line)
            case _:
                raise AssertionError(line.step)

    def _wait(self, n: Next, line: Line, step: s.Wait) -> None:
        closed = n.barriers[self._index(line, step.barrier)].closed
        n.common[line.agent.number] |= 0 if step.relaxed else closed
        self._on(n, line.agent.number)

    def _land(self, n: Next, flight: Flight) -> None:
        """One of the operations is over; it publishes its own accesses and nothing else (A28)."""
        line = self.agents[flight.agent].lines[flight.line]
        own = line.agent.own[flight.lane]
        more = flight.lane + 1 < len(line.agent.lanes)
        if more:
            n.flights.append(flight._replace(lane=flight.lane + 1))
        both = line.events | line.events << self.code.shift
        match line.step:
            case s.Later(barrier=barrier):
                publishes = line.learns & own | self._covered(flight)
                self._credit(n, self._index(line, barrier), 1, 0, publishes)
            case s.Remote(barrier=barrier, cta=cta):
                index = self._index(line, barrier, cta)
                self._credit(n, index, 0, -_CELL, line.events & own | flight.over)
            case s.Copy(barrier=barrier):
                over = flight.over | flight.over << self.code.shift
                self._credit(n, self._index(line, barrier), 0, -_WORD, both & own | over)
            case _:
                raise AssertionError(line.step)

    def _covered(self, flight: Flight) -> int:
        """What copies of a lane came after in the cells that they wrote: nobody who comes after a
        copy can see it."""
        agent, events = self.agents[flight.agent], 0
        for line in agent.lines[: flight.line]:
            if isinstance(line.step, s.CpAsync):
                events |= line.writes[flight.lane] | line.reads[flight.lane]
        return events & (flight.common | flight.mine & agent.own[flight.lane])

    # ------------------------------------------------------------------ warps that meet

    def _all_on(self, n: Next, warp: int) -> int:
        """The warp's lanes go on; returns what they know together."""
        known = 0
        for a in self.warps[warp]:
            known |= n.common[a.number] | n.mine[a.number]
        for a in self.warps[warp]:
            if n.at[a.number] != END:
                self._on(n, a.number)
        return known

    def _tell(self, n: Next, warp: int, known: int) -> None:
        for a in self.warps[warp]:
            n.common[a.number] |= known

    def _join(self, n: Next, line: Line, step: s.Join) -> None:
        """E2 to E7: the last of a round releases the waiting ones."""
        warp = line.agent.warp
        index = line.agent.cta * self.ids + step.id
        known = self._all_on(n, warp)
        joined = n.named[index].joined(warp, step.warps, known, waits=step.waits)
        if joined is None or step.warps > self.program.width:
            raise Undefined("named-barrier")
        n.parked |= int(step.waits) << warp
        n.named[index] = joined
        if joined.full:
            for other in range(len(self.warps)):
                if joined.waiting >> other & 1:
                    self._tell(n, other, joined.open)
            n.parked &= ~joined.waiting
            n.named[index] = Named()

    def _cluster(self, n: Next, line: Line, step: s.ClusterArrive | s.ClusterWait) -> None:
        """D1 to D5."""
        warp = line.agent.warp
        bit, m = 1 << warp, n.meeting
        if isinstance(step, s.ClusterWait):
            if not m.arrived & bit:
                raise Undefined("participation")
            self._all_on(n, warp)
            n.meeting = m._replace(arrived=m.arrived & ~bit, released=m.released & ~bit)
            self._tell(n, warp, m.closed)
            return
        if m.arrived & bit:
            raise Undefined("named-barrier")
        known = self._all_on(n, warp)
        n.meeting = m._replace(
            members=m.members | bit, open=m.open | (0 if step.relaxed else known),
            arrived=m.arrived | bit,
        )  # fmt: skip
        self._meet(n)

    def _meet(self, n: Next) -> None:
        m = n.meeting
        if m.members and all(
            m.members >> w & 1 or all(n.at[a.number] == END for a in lanes)
            for w, lanes in enumerate(self.warps)
        ):
            n.meeting = Meeting(0, 0, m.open, m.arrived, m.released | m.members)

    # ------------------------------------------------------------------ stories

    def label(self, state: State | None, move: int | Flight) -> str:
        """A step of a lane, or what lands."""
        if state is None:
            return "start"
        if isinstance(move, Flight):
            agent = self.agents[move.agent]
            step, lane = agent.lines[move.line].step, move.lane
            return f"lands: {step} of warp {agent.warp} lane {agent.lanes[lane]}"
        agent = self.agents[move]
        step, lane = agent.lines[state.at[move]].step, agent.lanes[state.past[move]]
        return f"warp {agent.warp} lane {lane}: {step}"


def _bulk(step: s.Step) -> bool:
    return isinstance(step, s.WaitGroup)
