"""Systematic exploration: every schedule that can make a difference, once.

Stateless depth-first search with source sets and sleep sets (Abdulla, Aronis, Jonsson, Sagonas,
"Optimal dynamic partial order reduction", POPL 2014, the source-DPOR algorithm). It branches only
where moves depend on each other (`tilesim.sim.machine.events`). With a bound on preemptions,
the start of a stretch of moves by one agent is branched on, too (Coons, Musuvathi, McKinley,
"Bounded partial-order reduction", OOPSLA 2013), and nothing is claimed about what the bound cuts
off.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from tilesim.errors import UsageError
from tilesim.ir.text.mir import fingerprint
from tilesim.records import dataclass, replace
from tilesim.sim.machine.events import (
    UNDEFINED,
    Event,
    Key,
    Sleep,
    Trace,
    awaken,
    depends,
    reversible,
    touches,
)
from tilesim.sim.machine.schedule import ChoiceEnvironment, Move
from tilesim.sim.observers.weak_memory import beyond_interleavings
from tilesim.sim.schedulers.frontier import MAX_SCHEDULES, Explored, Frontier, Limits, Node, digest
from tilesim.version import __version__
from tilesim.wording import count

if TYPE_CHECKING:
    from tilesim.sim.machine.simulate import Run, Simulation

Inputs = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Exploration:
    """What `explore` did: the failure if there is one, else what stopped it and what is left.

    ``stopped`` says which limit was reached; ``interrupted``: the user stopped it; ``unspanned``:
    a schedule came to something whose outcomes the moves do not span.
    """

    explored: Explored
    failure: Run | None = None
    stopped: str = ""
    interrupted: bool = False
    frontier: Frontier | None = None
    unspanned: bool = False

    @property
    def complete(self) -> bool:
        """Whether every schedule that can differ was run, none failed, and PTX allows no others."""
        explored = self.explored
        done = self.failure is None and self.frontier is None
        return done and explored.exact and not explored.weak


def explore(
    simulation: Simulation,
    clusters: Sequence[int],
    inputs: Inputs,
    limits: Limits,
    *,
    frontier: Frontier | None = None,
    progress: Callable[[int], None] | None = None,
) -> Exploration:
    """Explores the schedules of ``clusters``, one after another, until one fails or all are done.

    With a ``frontier`` goes on where an earlier exploration stopped; limits count from there.

    Raises:
        UsageError: the frontier is one of another program, of other inputs, or of another bound.
    """
    program = _digest(simulation, clusters, inputs)
    if frontier is not None:
        _require_fit(frontier, program, clusters, limits)
    todo = clusters[clusters.index(frontier.cluster) :] if frontier else clusters
    result = Exploration(frontier.explored if frontier else Explored())
    meter = _Meter(limits, result.explored)
    for cluster in todo:
        bound, explored = limits.preemptions, result.explored
        search = _Search(simulation, cluster, inputs, bound, explored, frontier)
        unspanned = result.unspanned
        result = _finish(search, meter, program, progress)
        result = replace(result, unspanned=unspanned or search.unspanned)
        if result.failure is not None or result.frontier is not None:
            break
        frontier = None
    return result


def _finish(
    search: _Search, meter: _Meter, program: str, progress: Callable[[int], None] | None
) -> Exploration:
    """Explores one cluster until a schedule fails, all are done, or a limit is reached."""
    failure: Run | None = None
    stopped = ""
    interrupted = False
    try:
        while search.pending and failure is None and not stopped:
            stopped = meter.used_up(search.explored)
            if not stopped:
                failure = search.advance()
                if progress is not None:
                    progress(search.explored.schedules)
    except KeyboardInterrupt:
        interrupted = True
    left = search.frontier(program) if search.pending and failure is None else None
    return Exploration(search.explored, failure, stopped, interrupted, left)


def outcomes(
    simulation: Simulation, cluster: int, inputs: Inputs, *, schedules: int = MAX_SCHEDULES
) -> tuple[frozenset[frozenset[str]], bool]:
    """The sets of rules that schedules of a cluster break, and whether those are all there are.

    Goes on after a failure. Undefined behaviour ends a run before the other agents have shown what
    they depend on; along such a run everything is branched on.
    """
    search = _Search(simulation, cluster, inputs, None, Explored(), None)
    found: set[frozenset[str]] = set()
    while search.pending:
        if search.explored.schedules >= schedules:
            return frozenset(found), False
        run = search.advance(stop=False)
        if run is not None:
            found.add(frozenset(f.rule for f in run.findings))
    return frozenset(found), search.explored.exact


def _digest(simulation: Simulation, clusters: Sequence[int], inputs: Inputs) -> str:
    values = [(name, array.tobytes()) for name, array in sorted(inputs.items())]
    settings = f"{__version__} {simulation.options.ptx} {list(clusters)}"
    return digest(fingerprint(simulation.code.mir), [("", settings.encode()), *values])


def _require_fit(frontier: Frontier, program: str, clusters: Sequence[int], limits: Limits) -> None:
    if frontier.program != program or frontier.cluster not in clusters:
        raise UsageError(
            "this exploration was begun with another program, other inputs, another strictness or "
            "another version of tilesim; delete the file to start again"
        )
    if frontier.preemptions != limits.preemptions:
        said = {bound: f"at most {bound}" for bound in (frontier.preemptions, limits.preemptions)}
        said[None] = "any number of"
        raise UsageError(
            f"this exploration was begun with {said[frontier.preemptions]} preemptions per "
            f"schedule and cannot go on with {said[limits.preemptions]}"
        )


class _Meter:
    """Compares what has been explored with the limits."""

    def __init__(self, limits: Limits, start: Explored) -> None:
        self.start = start
        self._limits = limits
        self._begin = monotonic()

    def used_up(self, explored: Explored) -> str:
        """Which limit is reached, as a clause; empty if none."""
        budget, schedules = self._limits.budget, self._limits.schedules
        if isinstance(budget, timedelta):
            if monotonic() - self._begin >= budget.total_seconds():
                return f"its budget of {budget.total_seconds():g} s is used up"
        elif explored.instructions - self.start.instructions >= budget:
            return f"its budget of {budget} warp instructions is used up"
        if explored.schedules - self.start.schedules >= schedules:
            return f"its limit of {count(schedules, 'schedule')} is reached"
        return ""


# ------------------------------------------------------------------ one schedule


class Pruned(Exception):
    """Everything that can move here has been explored from an earlier state, or is out of bound."""


class SearchEnvironment(ChoiceEnvironment):
    """Runs one schedule: the path of the search, then the first agent that is not asleep.

    ``sleep`` is the sleep set of the path's last node, its chosen agent left out. With a ``bound``
    on preemptions the agent that moved last goes on if it can; ``cut`` if the bound ended the run.
    """

    def __init__(self, path: list[Node], sleep: Sleep, bound: int | None) -> None:
        super().__init__(self, traced=True)
        self._wanted: Key = (0, 0)
        self.cut = False
        self._path = path
        self._sleep = sleep
        self._bound = bound
        self._prefix = len(path)
        self._count = 0

    def step(self) -> None:
        """Makes the next move; raises `Pruned` where there is none to make."""
        if self._count and self._count >= self._prefix:
            assert self.trace is not None
            self._sleep = awaken(self._sleep, self.trace.steps[-1])
        if self._moves:
            if self._count >= self._prefix:
                self._extend()
            self._wanted = self._path[self._count].chosen
            self._count += 1
        super().step()

    def choose(self, moves: Sequence[Move]) -> int:
        """The index of the move of the agent that is wanted."""
        keys = [move.agent.key for move in moves]
        if self._wanted not in keys:
            raise UsageError("this exploration does not fit the program; delete its file")
        return keys.index(self._wanted)

    def toss(self) -> int:
        """A try_wait never gives up early here; the search reports that it did not branch."""
        return 0

    def _extend(self) -> None:
        keys = tuple(move.agent.key for move in self._moves)
        awake = [key for key in keys if key not in self._sleep]
        if not awake:
            raise Pruned
        node = Node(keys, awake[0], dict(self._sleep))
        if self._bound is not None:
            self._continue(node, awake, self._bound)
        node.backtrack.add(node.chosen)
        self._path.append(node)

    def _continue(self, node: Node, awake: list[Key], bound: int) -> None:
        """Lets the agent that moved last go on, so that no preemption is spent by accident."""
        if self._path:
            before = self._path[-1]
            node.last, node.preemptions = before.chosen, before.cost(before.chosen)
        if node.last in awake:
            node.chosen = node.last
        if node.cost(node.chosen) > bound:
            self.cut = True
            raise Pruned


# ------------------------------------------------------------------ the search


@dataclass(frozen=True)
class _Place:
    """Where the search is, replaced in one piece so that an interrupt leaves no half of it.

    The next schedule takes the path's first ``depth`` nodes, ``chosen`` at the last of them, and
    then any agent that is not in ``sleep``. A depth of -1: nothing is left.
    """

    depth: int
    chosen: Key | None
    sleep: Sleep
    explored: Explored


class _Search:
    """The depth-first search of one cluster: the current path and what is left to try along it."""

    def __init__(
        self,
        simulation: Simulation,
        cluster: int,
        inputs: Inputs,
        bound: int | None,
        explored: Explored,
        frontier: Frontier | None,
    ) -> None:
        self._simulation = simulation
        self._inputs = inputs
        self._cluster = cluster
        self._bound = bound
        self._path = list(frontier.path) if frontier else []
        chosen = self._path[-1].chosen if self._path else None
        sleep = frontier.sleep if frontier else {}
        self._place = _Place(len(self._path), chosen, sleep, explored)
        #: a schedule came to something whose outcomes the moves do not span
        self.unspanned = False

    @property
    def pending(self) -> bool:
        """Whether there is a schedule left to run."""
        return self._place.depth >= 0

    @property
    def explored(self) -> Explored:
        """What has been done so far."""
        return self._place.explored

    def frontier(self, program: str) -> Frontier:
        """What is left; ``program`` is the digest of what is explored."""
        place = self._place
        path = self._path[: place.depth]
        if place.chosen is not None:
            path[-1] = replace(path[-1], chosen=place.chosen)
        return Frontier(
            program, self._bound, self._cluster, place.explored, tuple(path), place.sleep
        )

    def advance(self, *, stop: bool = True) -> Run | None:
        """Runs the next schedule and moves on; the run if it failed.

        Without ``stop``, every run that was not pruned; the search then covers what follows
        failures.
        """
        env, run, weak = self._run()
        place, before = self._place, self._place.explored
        if run is not None:
            exact = before.exact and not _cut_off(run) and not self._needs_others(run)
            self.unspanned |= any(not outcome.explorable for outcome in run.outcomes)
            before = Explored(
                before.schedules + 1, before.instructions + run.stats.instructions, exact,
                before.weak,
            )  # fmt: skip
            if not stop and any(outcome.undefined for outcome in run.outcomes):
                for node in self._path:
                    node.backtrack.update(node.enabled)
                self._path[-1].done[self._path[-1].chosen] = UNDEFINED
        exact = before.exact and not (env.tossed or env.cut)
        explored = replace(before, exact=exact, weak=before.weak or weak)
        if run is not None and run.findings and stop:
            self._place = replace(place, explored=explored)
            return run
        self._place = self._next(explored)
        return None if stop else run

    def _needs_others(self, run: Run) -> bool:
        """Whether a cluster waited for others, which need not be resident (0.4a)."""
        simulation = self._simulation
        if not simulation.together or simulation.program.cooperative:
            return False
        return any(outcome.waited for outcome in run.outcomes)

    def _run(self) -> tuple[SearchEnvironment, Run | None, str]:
        """Runs the next schedule, None if it was pruned; and what PTX would allow beside it."""
        place = self._place
        del self._path[place.depth :]
        if place.chosen is not None:
            self._path[-1].chosen = place.chosen
        env = SearchEnvironment(self._path, place.sleep, self._bound)
        run: Run | None = None
        with suppress(Pruned):
            run = self._simulation.run_on(self._inputs, [(self._cluster, env)])
        assert env.trace is not None
        for node, step in zip(self._path, env.trace.steps, strict=False):
            node.done[node.chosen] = touches(step.events)
        own = _find_races(env.trace, self._path, bounded=self._bound is not None)
        return env, run, beyond_interleavings(env.trace, own)

    def _next(self, explored: Explored) -> _Place:
        """The deepest state with something left to try."""
        for depth in range(len(self._path), 0, -1):
            node = self._path[depth - 1]
            left = sorted(node.backtrack - node.done.keys() - node.sleep.keys())
            within = [a for a in left if self._bound is None or node.cost(a) <= self._bound]
            if len(within) < len(left):
                explored = replace(explored, exact=False)
            if within:
                asleep = {**node.sleep, **node.done}
                sleep = {key: events for key, events in asleep.items() if key != within[0]}
                return _Place(depth, within[0], sleep, explored)
        return _Place(-1, None, {}, explored)


def _cut_off(run: Run) -> bool:
    """Whether the run was cut off, or the moves do not span what could happen in it."""
    return any(outcome.cut_off or not outcome.explorable for outcome in run.outcomes)


def _find_races(trace: Trace, path: list[Node], *, bounded: bool) -> list[int]:
    """For every reversible race, makes the earlier state try an agent that reverses it.

    By move, those before it, but for what it touches itself."""
    before: list[int] = []
    own: list[int] = []
    last_of: dict[Key, int] = {}
    spawner: dict[Key, int] = {}
    touched: dict[object, list[tuple[int, Event]]] = {}
    for index, step in enumerate(trace.steps[: len(path)]):
        past = 0
        start = last_of.get(step.agent, spawner.get(step.agent))
        if start is not None:
            past = before[start] | 1 << start
        own.append(past)
        races: list[tuple[int, bool]] = []
        for event in step.events:
            for earlier, other in reversed(touched.get(event.object, ())):
                if not past >> earlier & 1 and depends(other, event):
                    races.append((earlier, reversible(other, event)))
                    past |= 1 << earlier
        for earlier, _ in races:
            past |= before[earlier]
        for earlier, can_reverse in races:
            hidden = any(before[k] >> earlier & 1 for k, _ in races if k != earlier)
            if can_reverse and not hidden:
                initials = _initials(trace, before, earlier, index, past)
                _try(path[earlier], initials)
                if bounded:
                    _try(path[_stretch(path, earlier)], initials)
        before.append(past)
        last_of[step.agent] = index
        for key in step.spawned:
            spawner[key] = index
        for event in step.events:
            touched.setdefault(event.object, []).append((index, event))
    return own


def _initials(trace: Trace, before: list[int], earlier: int, later: int, past: int) -> list[Key]:
    """The agents that can lead from before ``earlier`` to ``later`` without it, by moving first."""
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
    return initials


def _try(node: Node, initials: list[Key]) -> None:
    """Makes the search try one of ``initials`` from ``node``, or all if none of them can move."""
    if any(agent in node.backtrack for agent in initials):
        return
    usable = [agent for agent in initials if agent in node.enabled]
    if usable:
        node.backtrack.add(usable[0])
    else:
        node.backtrack.update(node.enabled)


def _stretch(path: list[Node], place: int) -> int:
    """Where the stretch of moves by the agent that moves at ``place`` begins."""
    while place and path[place - 1].chosen == path[place].chosen:
        place -= 1
    return place
