"""The schedule: which agent moves next, what else hardware chooses, and the latencies of the timed
policy.

The schedule is the only source of nondeterminism of a run. Every agent that can move (a runnable
warp, an asynchronous operation in flight) has exactly one event in the environment. `timed` runs
them in order of simulated time under the latency model; a `Chooser` picks among them, so any
interleaving can be produced and replayed.

The latency model, in cycles, is a documented model, not a measurement of one chip: its purpose is a
plausible order of events. Verdicts never depend on it (a certificate covers every schedule). What a
warp needs to issue an instruction is in its definition (`Op.cycles`).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, Protocol, SupportsIndex, TypeAlias

import simpy
from simpy.core import EmptySchedule
from simpy.events import NORMAL, Event, EventPriority

from tilesim.errors import UsageError
from tilesim.ir.op import Op
from tilesim.records import dataclass
from tilesim.sim.machine.clock import Clock
from tilesim.sim.machine.events import Trace
from tilesim.sim.machine.labels import Numbered


class Move(Event):
    """An event that lets one agent act: ``agent`` names it, ``act`` is what happens."""

    def __init__(
        self, env: simpy.Environment, act: Callable[[object], None], delay: float, agent: Any
    ) -> None:
        self.env = env
        self.callbacks = [act]
        self.agent = agent
        env.schedule(self, NORMAL, delay)


class Chooser(Protocol):
    """Picks the next move."""

    def choose(self, moves: Sequence[Move]) -> int:
        """Index of the move to make; called only if there are at least two."""
        ...

    def toss(self) -> int:
        """0 or 1: whether something that may fail spuriously does."""
        ...


class TimedEnvironment(simpy.Environment):
    """A simpy environment that lets others look at what is ``due``: time, priority, number, event.

    ``trace`` watches the run. An event of it cannot fail, and is not looked at once it is over.
    """

    def __init__(self, trace: Trace | None = None) -> None:
        super().__init__()
        self.trace = trace
        self.due: list[tuple[float, EventPriority, int, Event]] = []
        self._time: float = 0
        self._numbers = count()

    @property
    def now(self) -> float:
        """The cycle."""
        return self._time

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """Adds an event; those of one time and priority come in the order they were added."""
        heappush(self.due, (self._time + delay, priority, next(self._numbers), event))

    def step(self) -> None:
        """Makes the next move."""
        if not self.due:
            raise EmptySchedule
        self._time, _, _, event = heappop(self.due)
        for callback in event.callbacks:
            callback(event)

    def run(self, until: float | Event | None = None) -> Any:
        """Makes moves until none is left, in a loop of its own: that is faster than steps."""
        if until is not None:
            return super().run(until)
        due = self.due
        while due:
            self._time, _, _, event = heappop(due)
            for callback in event.callbacks:
                callback(event)
        return None

    def peek(self) -> float:
        """When the next event is due; infinity if there is none."""
        return self.due[0][0] if self.due else simpy.core.Infinity


class ChoiceEnvironment(simpy.Environment):
    """A simpy environment whose next event is picked by a `Chooser` instead of by time.

    ``choices`` records the picks, which `ReplayChooser` reproduces; ``traced`` also records what
    every move touched.
    """

    def __init__(self, chooser: Chooser, *, traced: bool = False) -> None:
        super().__init__()
        self.chooser = chooser
        self.choices: list[int] = []
        self.tossed = False
        self.trace: Trace | None = Trace() if traced else None
        self._moves: list[Move] = []

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """Adds an event to the enabled moves."""
        assert isinstance(event, Move)
        self._moves.append(event)

    def step(self) -> None:
        """Makes the chosen move."""
        moves = self._moves
        if not moves:
            raise EmptySchedule
        index = 0
        if len(moves) > 1:
            index = self.chooser.choose(moves)
            self.choices.append(index)
        if self.trace is not None:
            enabled = tuple(move.agent.key for move in moves)
            self.trace.begin(enabled[index], enabled)
        move = moves.pop(index)
        for callback in move.callbacks:
            callback(move)

    def flip(self) -> bool:
        """A recorded coin toss (a try_wait that gives up early)."""
        side = self.chooser.toss()
        self.tossed = True
        self.choices.append(side)
        return bool(side)

    def peek(self) -> float:
        """Zero while moves are enabled, infinity otherwise."""
        return 0 if self._moves else simpy.core.Infinity


class ResidentEnvironment(ChoiceEnvironment):
    """Only one cluster is on the machine at a time: the next starts when it has exited.

    That is all the hardware promises without a cooperative launch (SEMANTICS 0.4a), and not in
    which order: cluster ``first`` is the first one, the others follow in order.
    """

    def __init__(self, first: int = 0) -> None:
        super().__init__(ReplayChooser(()))
        self._first = first
        self._resident: Numbered | None = None
        #: the moves of the others, by cluster in their order
        self._held: dict[Numbered, list[Move]] = {}

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """Adds an event to the moves of its cluster."""
        assert isinstance(event, Move)
        cluster = _cluster_of(event)
        resident = cluster is self._resident
        (self._moves if resident else self._held.setdefault(cluster, [])).append(event)

    def step(self) -> None:
        """Makes the first move of the cluster that is resident."""
        before, held = self._resident, self._held
        if held and (before is None or before.exited):
            self._resident = next(c for c in held if before or c.number == self._first)
            left, self._moves = self._moves, held.pop(self._resident)
            if before is not None and left:
                held[before] = left
        super().step()

    def peek(self) -> float:
        """Zero while a cluster has moves, infinity otherwise."""
        return 0 if self._held else super().peek()


def _cluster_of(move: Move) -> Numbered:
    warp = getattr(move.agent, "warp", move.agent)
    cluster: Numbered = warp.cta.cluster
    return cluster


def require_seed(seed: int) -> None:
    """Raises a UsageError if ``seed`` is none that gives the same schedules each time."""
    if not isinstance(seed, SupportsIndex) or isinstance(seed, bool):
        raise UsageError(f"seed must be an integer, not {seed!r}")


class RandomChooser:
    """Every enabled move is equally likely."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def choose(self, moves: Sequence[Move]) -> int:
        return self._random.randrange(len(moves))

    def toss(self) -> int:
        return self._random.randrange(2)


class PctChooser:
    """Priorities per agent with ``depth - 1`` random priority drops (probabilistic concurrency
    testing): finds bugs that need few ordering constraints with known probability.

    An agent that has moved ``horizon`` times comes after all others from there on: one that polls a
    word, and looks at the time in between, would otherwise keep the one it waits for from moving
    until the run is cut off. ``gives_up``: whatever may fail spuriously does, so that one that
    tries a number of times and goes on comes to its last try before the one it waits for moves.
    """

    def __init__(
        self, seed: int, depth: int = 3, horizon: int = 2000, *, gives_up: bool = False
    ) -> None:
        self._random = random.Random(seed)
        self._gives_up = gives_up
        self._priority: dict[Any, float] = {}
        self._drops = {self._random.randrange(horizon) for _ in range(depth - 1)}
        self._horizon = horizon
        self._moved: Counter[Any] = Counter()
        self._step = 0

    def choose(self, moves: Sequence[Move]) -> int:
        for move in moves:
            if move.agent not in self._priority:
                self._priority[move.agent] = self._random.random()
        best = max(range(len(moves)), key=lambda i: self._priority[moves[i].agent])
        if self._step in self._drops:
            self._priority[moves[best].agent] = -self._random.random()
            best = max(range(len(moves)), key=lambda i: self._priority[moves[i].agent])
        self._step += 1
        agent = moves[best].agent
        self._moved[agent] += 1
        if not self._moved[agent] % self._horizon:
            self._priority[agent] = min(self._priority.values()) - 1
        return best

    def toss(self) -> int:
        return 1 if self._gives_up else self._random.randrange(2)


class ReplayChooser:
    """Repeats recorded choices; past their end the first move is made."""

    def __init__(self, choices: Sequence[int]) -> None:
        self._choices = list(choices)
        self._next = 0

    def choose(self, moves: Sequence[Move]) -> int:
        index = self._choices[self._next] if self._next < len(self._choices) else 0
        self._next += 1
        return min(index, len(moves) - 1)

    def toss(self) -> int:
        side = self._choices[self._next] if self._next < len(self._choices) else 0
        self._next += 1
        return side & 1


class DirectedChooser:
    """Runs what lies in the causal ``past`` first, then the ``victim`` early (or last).

    The divergent schedule of DETERMINACY theorem 2: each warp runs up to its position in the past;
    once nothing in there can move, ``victim`` is preferred if ``early``, else it moves last;
    remaining ties are random. Of the asynchronous operations those of the instruction ``late``
    complete when nothing else can move.
    """

    def __init__(
        self, past: Clock | None, victim: Any, *, early: bool, seed: int, late: Op | None = None
    ) -> None:
        self._past = past
        self._late = late
        self._victim = victim
        self._early = early
        self._random = random.Random(seed)

    def choose(self, moves: Sequence[Move]) -> int:
        ranked = [self._rank(move) for move in moves]
        best = min(ranked)
        return self._random.choice([i for i, rank in enumerate(ranked) if rank == best])

    def toss(self) -> int:
        return self._random.randrange(2)

    def _rank(self, move: Move) -> int:
        agent = move.agent
        if self._late is not None and agent.component is None and agent.op is self._late:
            return 4
        if agent.index == self._victim:
            return 1 if self._early else 3
        if self._past is None or agent.component is None:
            return 2
        return 0 if agent.clock[agent.component] <= self._past[agent.component] else 2


# ------------------------------------------------------------------ latencies of the timed policy


#: cycles from issue to first byte, and bytes per cycle, of the copy engines
COPY_LATENCY = 650
COPY_BYTES_PER_CYCLE = 64
#: multiply-adds per cycle of one SM's tensor core on 16-bit inputs
MMA_PER_CYCLE = 4096


def copy_cycles(nbytes: int) -> int:
    """Cycles from issue to completion of a bulk copy of ``nbytes``."""
    return COPY_LATENCY + nbytes // COPY_BYTES_PER_CYCLE


def mma_cycles(m: int, n: int, k: int) -> int:
    """Cycles of a matrix multiply-accumulate."""
    return max(1, m * n * k // MMA_PER_CYCLE)


# -------------------------------------------------------------------- what hardware chooses besides


#: what sends requests: the rank of its CTA and the number of the warp in it
Asker: TypeAlias = tuple[int, int]


#: by cluster and asker: the clusters that its requests cancel, one after the other
Answers: TypeAlias = Mapping[int, Mapping[Asker, tuple[int, ...]]]


#: a word: the memory it is in, and its address
Word: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Order:
    """In which order warps (by their index) draw; one that is not named comes last.

    ``alike``: warps that are all told to be the last one of their counter. No schedule does that,
    but each of them sees with those that are not named what it sees in one; what two of them do is
    not compared. ``number``: what each is told that it has drawn, if that is not what it finds.
    """

    warps: tuple[int, ...] = ()
    alike: frozenset[int] = frozenset()
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Draw:
    """A number that a warp has drawn, by its index, from a word of a tensor."""

    warp: int
    tensor: str
    word: Word
    number: int
