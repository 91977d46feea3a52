"""Systematic exploration: every schedule that can make a difference, once.

Stateless depth-first search with source sets and sleep sets (Abdulla, Aronis, Jonsson, Sagonas,
"Optimal dynamic partial order reduction", POPL 2014, the source-DPOR algorithm). Two moves depend
on each other if they touch the same synchronisation object in a way that does not commute
(`_depends`); data accesses need no branching, because a race is found in any schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tilesim.sim.machine.trace import Event, Key, Step, Trace
from tilesim.sim.schedule import ChoiceEnvironment, Move

if TYPE_CHECKING:
    from tilesim.sim.simulate import Run, Simulation


@dataclass(slots=True)
class _Node:
    """A state of the search: what can move, what was tried, what must be tried.

    ``sleep`` are agents whose move from here leads only to what was explored already; their events
    tell when that stops being true.
    """

    enabled: tuple[Key, ...]
    chosen: Key
    sleep: dict[Key, list[Event]]
    backtrack: set[Key] = field(default_factory=set)
    done: dict[Key, list[Event]] = field(default_factory=dict)


class Pruned(Exception):
    """Everything that can move here has been explored from an earlier state."""


class _Guide:
    """A chooser that makes the move of the agent ``wanted``."""

    def __init__(self) -> None:
        self.wanted: Key = (0, 0)

    def choose(self, moves: Sequence[Move]) -> int:
        """The index of the wanted agent's move."""
        return [move.agent.key for move in moves].index(self.wanted)

    def toss(self) -> int:
        """A try_wait never gives up early here; the search reports that it did not branch."""
        return 0


class SearchEnvironment(ChoiceEnvironment):
    """Runs one schedule: the path of the search, then the first agent that is not asleep.

    ``sleep`` is the sleep set of the path's last node, its chosen agent left out.
    """

    def __init__(self, path: list[_Node], sleep: dict[Key, list[Event]]) -> None:
        self._guide = _Guide()
        super().__init__(self._guide, traced=True)
        self._path = path
        self._sleep = sleep
        self._prefix = len(path)
        self._count = 0

    def step(self) -> None:
        """Makes the next move; raises `Pruned` where everything that can move is asleep."""
        if self._count and self._count >= self._prefix:
            assert self.trace is not None
            self._sleep = _awaken(self._sleep, self.trace.steps[-1])
        if self._moves:
            if self._count >= self._prefix:
                self._extend()
            self._guide.wanted = self._path[self._count].chosen
            self._count += 1
        super().step()

    def _extend(self) -> None:
        keys = tuple(move.agent.key for move in self._moves)
        awake = [key for key in keys if key not in self._sleep]
        if not awake:
            raise Pruned
        self._path.append(_Node(keys, awake[0], dict(self._sleep), {awake[0]}))


def _awaken(sleep: dict[Key, list[Event]], step: Step) -> dict[Key, list[Event]]:
    """The sleepers that ``step`` neither is nor disturbs."""
    return {
        key: events
        for key, events in sleep.items()
        if key != step.agent and not _conflict(events, step.events)
    }


def _conflict(first: list[Event], second: list[Event]) -> bool:
    """Whether two moves from one state may differ in effect by their order.

    Credits commute within a phase if both fit into it; two that were made from the same state,
    each as the first, need not, so a sleeper wakes at any credit on its barrier.
    """
    return any(
        _depends(a, b) or _depends(b, a) or _same_counter(a, b) for a in first for b in second
    )


def _same_counter(first: Event, second: Event) -> bool:
    counts = ("credit", "join")
    same = first.object == second.object and first.kind == second.kind
    return same and first.kind in counts


def _depends(first: Event, second: Event) -> bool:
    """Whether the order of two touches of one object can matter (``first`` came first)."""
    if first.object != second.object:
        return False
    kinds = (first.kind, second.kind)
    match kinds:
        case ("life", _) | (_, "life") | ("write", _) | (_, "write"):
            return True
        case ("credit", "credit") | ("join", "join"):
            return first.phase != second.phase or first.loose or second.loose
        case ("credit", "pass"):
            return first.phase <= second.phase
        case ("pass", "credit"):
            return second.phase > first.phase
        case ("credit", "block"):
            return first.phase < second.phase
        case ("credit", "poll") | ("poll", "credit"):
            return True
        case ("join", "leave"):
            return first.phase == second.phase
        case _:
            return False


def _reversible(first: Event, second: Event) -> bool:
    """False where the second move could not have been made before the first."""
    enables = (first.kind, second.kind) in (("credit", "pass"), ("join", "leave"))
    return not (enables and first.phase == second.phase)


@dataclass(frozen=True)
class Exploration:
    """What `explore` did: how many schedules, whether that was all of them, and the failure."""

    schedules: int
    complete: bool
    instructions: int
    failure: Run | None = None


def explore(
    simulation: Simulation,
    cluster: int,
    inputs: Mapping[str, NDArray[Any]],
    *,
    budget: int,
    max_schedules: int,
    progress: Callable[[int], None] | None = None,
) -> Exploration:
    """Explores the schedules of one cluster until one fails, all are done or the budget is used.

    ``budget`` is the number of warp instructions to execute at most, over all schedules.
    ``complete`` also requires that no run was cut off and no try_wait was asked to give up.
    """
    search = _Search(simulation, cluster, inputs)
    instructions = schedules = 0
    complete = True
    while search.pending:
        if schedules >= max_schedules or instructions >= budget:
            return Exploration(schedules, False, instructions)
        run, exact = search.run()
        complete = complete and exact
        if run is not None:
            schedules += 1
            instructions += run.stats.instructions
            if run.findings:
                return Exploration(schedules, False, instructions, run)
        if progress is not None:
            progress(schedules)
        search.next()
    return Exploration(schedules, complete, instructions)


class _Search:
    """The depth-first search: the current path and what is left to try along it."""

    def __init__(
        self, simulation: Simulation, cluster: int, inputs: Mapping[str, NDArray[Any]]
    ) -> None:
        self._simulation = simulation
        self._inputs = inputs
        self._cluster = cluster
        self._path: list[_Node] = []
        self._sleep: dict[Key, list[Event]] = {}
        self.pending = True

    def run(self) -> tuple[Run | None, bool]:
        """Runs the next schedule; None if it was pruned. Also: whether it was exact."""
        env = SearchEnvironment(self._path, self._sleep)
        pruned = False
        run: Run | None = None
        try:
            run = self._simulation.run_in(env, self._cluster, self._inputs)
        except Pruned:
            pruned = True
        assert env.trace is not None
        for node, step in zip(self._path, env.trace.steps, strict=False):
            node.done[node.chosen] = step.events
        _find_races(env.trace, self._path)
        exact = not env.tossed and (pruned or not _cut_off(run))
        return run, exact

    def next(self) -> None:
        """Backs up to the deepest state with something left to try."""
        while self._path:
            node = self._path[-1]
            left = sorted(node.backtrack - node.done.keys() - node.sleep.keys())
            if left:
                asleep = {**node.sleep, **node.done}
                node.chosen = left[0]
                self._sleep = {key: events for key, events in asleep.items() if key != left[0]}
                return
            self._path.pop()
        self.pending = False


def _cut_off(run: Run | None) -> bool:
    return run is None or any(outcome.step_limit for outcome in run.outcomes)


def _find_races(trace: Trace, path: list[_Node]) -> None:
    """For every reversible race, makes the earlier state try an agent that reverses it."""
    before: list[int] = []
    last_of: dict[Key, int] = {}
    spawner: dict[Key, int] = {}
    touched: dict[object, list[tuple[int, Event]]] = {}
    for index, step in enumerate(trace.steps[: len(path)]):
        past = 0
        start = last_of.get(step.agent, spawner.get(step.agent))
        if start is not None:
            past = before[start] | 1 << start
        races: list[tuple[int, bool]] = []
        for event in step.events:
            for earlier, other in reversed(touched.get(event.object, ())):
                if not past >> earlier & 1 and _depends(other, event):
                    races.append((earlier, _reversible(other, event)))
                    past |= 1 << earlier
        for earlier, _ in races:
            past |= before[earlier]
        for earlier, reversible in races:
            hidden = any(before[k] >> earlier & 1 for k, _ in races if k != earlier)
            if reversible and not hidden:
                _reverse(trace, path, before, earlier, index, past)
        before.append(past)
        last_of[step.agent] = index
        for key in step.spawned:
            spawner[key] = index
        for event in step.events:
            touched.setdefault(event.object, []).append((index, event))


def _reverse(
    trace: Trace, path: list[_Node], before: list[int], earlier: int, later: int, past: int
) -> None:
    """Adds to the state before ``earlier`` an agent that leads to ``later`` without it."""
    node = path[earlier]
    between = [
        k for k in range(earlier + 1, later) if not before[k] >> earlier & 1
    ] + [later]  # fmt: skip
    chosen = 0
    initials: list[Key] = []
    for k in between:
        history = past if k == later else before[k]
        agent = trace.steps[k].agent
        if not history & chosen and agent not in initials:
            initials.append(agent)
        chosen |= 1 << k
    if any(agent in node.backtrack for agent in initials):
        return
    usable = [agent for agent in initials if agent in node.enabled]
    if usable:
        node.backtrack.add(usable[0])
    else:
        node.backtrack.update(node.enabled)
