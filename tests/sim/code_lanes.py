"""A program of lanes made flat: the lines of each class of lanes, and who accesses what.

Lanes of a warp that no step of the program tells apart are one class, but for one of them, which
may run ahead of the others or lag behind them; small classes are split into single lanes. Nothing
keeps classes together but a bar.warp.sync and barriers. The lanes of a line act one after another,
and each knows its own accesses only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from tests.sim import steps as s
from tests.sim.steps import Small, Step

#: where a class is that has ended
END = -1
LANES = 32
#: classes of at most so many lanes are taken apart
_SINGLE = 3
_EVERYBODY = frozenset(range(LANES))
#: steps that touch only what their own lanes know
_LOCAL = (
    s.Read, s.Write, s.Fence, s.Store, s.Commit, s.WaitGroup, s.CpAsync, s.CpWait, s.Copy, s.Remote
)  # fmt: skip


class IllFormed(ValueError):
    """Not a program: a lane has no barrier of its own, or part of a warp elects."""


class Line:
    """A step of a class, with the bits of its events: lane i's is ``i`` places above the first.

    ``sync``: the lanes that wait for each other here, for a bar.warp.sync or `Gather`. ``group``:
    the other classes of which this is the same instruction, and where it stands in their lines.
    ``learns``: for waits for groups and later arrivals, the accesses that are over. ``writes`` and
    ``reads``: per lane, the events that a conflicting access may have had before. ``eager``: it
    touches nothing but what its own lanes know.
    """

    __slots__ = (
        "agent", "eager", "events", "group", "key", "learns", "places", "reads", "step", "sync",
        "writes",
    )  # fmt: skip

    def __init__(self, step: Step, agent: Agent, sync: frozenset[int] | None = None) -> None:
        self.step = step
        self.agent = agent
        self.sync = sync
        self.eager = sync is not None or isinstance(step, _LOCAL)
        self.eager |= isinstance(step, s.Later) and not step.inc
        self.key: object = None
        self.group: tuple[tuple[int, int], ...] = ()
        self.events = 0
        self.learns = 0
        self.writes: list[int] = []
        self.reads: list[int] = []
        self.places: list[int] = []


class Agent:
    """A class: its warp (counted through all CTAs), CTA, lanes and lines.

    ``own``: per lane, the events that are its own. ``copies``: those of cp.async; ``loose``: what
    nothing completes in a group; ``unwaited``: bulk stores that nobody waits for.
    """

    __slots__ = (
        "copies", "cta", "lanes", "lines", "loose", "number", "own", "unwaited", "warp",
    )  # fmt: skip

    def __init__(self, number: int, warp: int, cta: int, lanes: tuple[int, ...]) -> None:
        self.number = number
        self.warp = warp
        self.cta = cta
        self.lanes = lanes
        self.lines: list[Line] = []
        self.own: list[int] = []
        self.copies = self.loose = self.unwaited = 0


def classes(program: Small) -> Iterator[tuple[int, ...]]:
    """The classes of lanes, the same in all warps."""
    matters = any(_matters(tuple(s.unrolled(steps))) for steps in program.warps)
    cuts = {0, LANES}
    for steps in program.warps:
        for step in s.every(steps):
            match step:
                case s.Lanes(low=low, high=high):
                    cuts |= {low, high}
                case s.Elect():
                    cuts.add(1)
                case s.Own():
                    cuts |= set(range(1, len(program.counts) + 1))
                case s.Read(cell=int(cell)) | s.Write(cell=int(cell)):
                    cuts |= {cell, cell + 1}
                case _:
                    pass
    ordered = sorted(cuts)
    for low, high in pairwise(ordered):
        together = low if high - low <= _SINGLE else high - matters
        if together > low:
            yield tuple(range(low, together))
        yield from ((lane,) for lane in range(together, high))


def _matters(steps: tuple[Step, ...]) -> bool:
    """Whether lanes may be ahead of others of their class where it can be seen: they execute two
    different steps, not just local ones, before they meet again."""
    seen: set[Step] = set()
    for step in steps:
        match step:
            case s.Lanes() | s.Elect(meets=False):
                return True
            case (
                s.Elect()
                | s.WarpSync()
                | s.Gather()
                | s.Join()
                | s.ClusterArrive()
                | s.ClusterWait()
            ):
                seen = set()
            case _ if not isinstance(step, _LOCAL):
                seen.add(step)
        if len(seen) > 1:
            return True
    return False


class Code:
    """All classes with their lines; ``shift`` events in all; ``asynchronous`` ones among them."""

    def __init__(self, program: Small) -> None:
        self.program = program
        self.agents: list[Agent] = []
        self.shift = 0
        self.asynchronous = 0
        cells = [[0] * LANES for _ in range(program.words)]
        self._writes = [[row[:] for row in cells] for _ in range(program.ctas)]
        self._reads = [[row[:] for row in cells] for _ in range(program.ctas)]
        self._places: dict[int, int] = {}
        kinds = list(classes(program))
        for warp, steps in enumerate(program.warps):
            flat = tuple(s.unrolled(steps))
            for lanes in kinds:
                agent = Agent(len(self.agents), warp, warp // program.width, lanes)
                self._label: tuple[object, ...] = (warp,)
                self._lay(agent, flat, _EVERYBODY, ())
                self.agents.append(agent)
        self._form_groups()
        for agent in self.agents:
            self._settle(agent)
        self.generic = (1 << self.shift) - 1

    def _lay(
        self, agent: Agent, steps: tuple[Step, ...], active: frozenset[int], path: tuple[int, ...]
    ) -> None:
        """Appends the lines of a class for steps that the ``active`` lanes execute."""
        for place, step in enumerate(steps):
            here = (*path, place)
            match step:
                case s.Lanes(body=(), orelse=()) if active != _EVERYBODY or not step.meets:
                    pass  # neither lowering nor compilers have a branch for it
                case s.Lanes(low=low, high=high):
                    inside = active & frozenset(range(low, high))
                    taken = agent.lanes[0] in inside
                    self._label += (here, taken)
                    arm, lanes = (step.body, inside) if taken else (step.orelse, active - inside)
                    self._lay(agent, arm, lanes, (*here, int(taken)))
                    if active == _EVERYBODY and step.meets:
                        self._meet(agent, step, active, here)
                case s.Elect(body=body, meets=meets):
                    if active != _EVERYBODY:
                        raise IllFormed
                    if meets:
                        self._meet(agent, step, active, here)
                    else:
                        self._append(Line(s.Gather("elect"), agent, active), here)
                    self._label += (here, agent.lanes[0] == 0)
                    if agent.lanes[0] == 0:
                        self._lay(agent, body, frozenset({0}), here)
                    if meets:
                        self._meet(agent, step, active, (*here, -1))
                case s.WarpSync():
                    self._meet(agent, step, active, here)
                case s.Gather(kind=kind):
                    if kind == "elect" and active != _EVERYBODY:
                        raise IllFormed
                    self._append(Line(step, agent, active), here)
                case s.Own(step=inner):
                    barrier = inner.barrier + agent.lanes[-1]
                    if barrier >= len(self.program.counts):
                        raise IllFormed
                    self._append(Line(replace(inner, barrier=barrier), agent), here)
                case _:
                    line = Line(step, agent)
                    self._append(line, here)
                    self._note(line)
                    if isinstance(step, (s.Join, s.ClusterArrive, s.ClusterWait)):
                        self._label = (agent.warp, here)

    def _append(self, line: Line, here: tuple[int, ...]) -> None:
        line.key = (here, self._label)
        line.agent.lines.append(line)

    def _meet(self, agent: Agent, step: Step, lanes: frozenset[int], here: tuple[int, ...]) -> None:
        """A bar.warp.sync, after which these lanes are one group."""
        self._append(Line(step, agent, lanes), here)
        self._label = (agent.warp, here)

    def _form_groups(self) -> None:
        """Who executes a line together."""
        groups: dict[object, list[tuple[int, int]]] = {}
        for agent in self.agents:
            for place, line in enumerate(agent.lines):
                groups.setdefault(line.key, []).append((agent.number, place))
        for agent in self.agents:
            for line in agent.lines:
                line.group = tuple(x for x in groups[line.key] if x[0] != agent.number)

    def _note(self, line: Line) -> None:
        """The events of a line."""
        agent, step = line.agent, line.step
        cta, count = agent.cta, len(agent.lanes)
        if not isinstance(step, (s.Read, s.Write, s.CpAsync, s.Copy, s.Store, s.Remote)):
            return
        first, self.shift = self.shift, self.shift + count
        line.events = ((1 << count) - 1) << first
        if isinstance(step, (s.Copy, s.Store)):
            self.asynchronous |= line.events
        if isinstance(step, s.Remote):
            cta = step.cta
        table = self._reads if isinstance(step, (s.Read, s.Store)) else self._writes
        for i, lane in enumerate(agent.lanes):
            for cell in _cells(step, lane):
                table[cta][step.word][cell] |= 1 << first + i
            if isinstance(step, s.Store):
                place = step.place + lane
                self._places[place] = self._places.get(place, 0) | 1 << first + i

    def _settle(self, agent: Agent) -> None:
        """What depends on all lines: conflicts, and what a wait for groups learns."""
        copies = stored = waited = tracked = 0
        open_, closed = 0, [0]
        for line in agent.lines:
            step = line.step
            match step:
                case s.Read() | s.Write() | s.CpAsync() | s.Copy() | s.Store() | s.Remote():
                    self._conflicts(line, step)
                case s.CpWait() | s.Later():
                    line.learns = tracked = copies
                case s.Commit():
                    closed.append(open_)
                    open_ = 0
                case s.WaitGroup(pending=pending):
                    for events in closed[: max(0, len(closed) - pending)]:
                        line.learns |= events
                    waited |= line.learns
                case _:
                    pass
            copies |= line.events if isinstance(step, s.CpAsync) else 0
            stored |= line.events if isinstance(step, s.Store) else 0
            open_ |= line.events if isinstance(step, s.Store) else 0
        agent.copies, agent.unwaited = copies, stored & ~waited
        agent.loose = open_ | copies & ~tracked
        for i in range(len(agent.lanes)):
            bits = 0
            for line in agent.lines:
                bits |= line.events & -line.events and (line.events & -line.events) << i
            agent.own.append(bits | bits << self.shift)

    def _conflicts(
        self, line: Line, step: s.Read | s.Write | s.CpAsync | s.Copy | s.Store | s.Remote
    ) -> None:
        """What is in conflict with the line; not lanes of one store, of which one wins."""
        cta = step.cta if isinstance(step, s.Remote) else line.agent.cta
        same = 0
        if isinstance(step, s.Write):
            same = line.events
            for agent, place in line.group:
                same |= self.agents[agent].lines[place].events
        for lane in line.agent.lanes:
            writes = reads = 0
            for cell in _cells(step, lane):
                writes |= self._writes[cta][step.word][cell]
                reads |= self._reads[cta][step.word][cell]
            line.writes.append(writes & ~same)
            line.reads.append(reads)
            if isinstance(step, s.Store):
                line.places.append(self._places[step.place + lane])


def _cells(step: s.Read | s.Write | s.CpAsync | s.Copy | s.Store | s.Remote, lane: int) -> range:
    """The cells of its word that a lane touches."""
    match step:
        case s.Copy() | s.Store():
            return range(LANES)
        case s.Read(cell=int(cell)) | s.Write(cell=int(cell)):
            return range(cell, cell + 1)
        case _:
            return range(lane, lane + 1)
