"""What a recorded run did, and when: the data behind traces, stories and pictures.

`record` runs a program under the timed policy; `tilesim.checker.witness.retrace` repeats a witness.
A run that is not recorded pays nothing for this.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import simpy
from numpy.typing import NDArray

from tilesim.findings.finding import Finding, Named
from tilesim.ir import effects as fx
from tilesim.ir.loc import Loc
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.program import Program, Strict
from tilesim.records import dataclass
from tilesim.sim.machine.events import Event, Key, Kind
from tilesim.sim.machine.labels import AgentLike
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.schedule import ChoiceEnvironment, TimedEnvironment
from tilesim.sim.machine.simulate import Run, Simulation, Stats, check_inputs, kernel_of
from tilesim.sim.machine.warp import Agent, Barrier, names_of
from tilesim.sim.machine.warpgroup import Warpgroup
from tilesim.sim.observers.event_log import EventLog
from tilesim.sim.observers.wait_for import WaitFor, state_of

if TYPE_CHECKING:
    from tilesim.sim.machine.events import InFlight
    from tilesim.sim.machine.machine import Machine, Step, Warp


#: slices and points kept per cluster unless the caller says otherwise
LIMIT = 200_000
#: what the times of a timeline count: simulated cycles or (under a chosen schedule) instructions;
#: nanoseconds of a GPU, or cycles if its clock could not be measured
Unit = Literal["cycle", "step", "ns"]
SliceKind = Literal["run", "wait", "engine"]
FlowKind = Literal["arrive", "issue", "complete"]
#: an instruction that a warp executes: its CTA, its warp, the instruction's number in the machine's
#: program, the how-manieth
Instance = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Track:
    """A warp of a CTA, or (``warp`` None) one of its engines, called ``role``.

    Operations of an engine that overlap are on different ``lane``s.
    """

    cta: int
    role: str
    warp: int | None
    lane: int = 0

    def __str__(self) -> str:
        if self.warp is None:
            return f"{self.role} {self.lane + 1}" if self.lane else self.role
        own = f"warp {self.warp}"
        return own if self.role == own else f"{self.role} {own}"


@dataclass(frozen=True, slots=True)
class Slice:
    """Something that takes time: an instruction, a wait, an operation of an engine.

    ``stuck``: it has not ended when the run ends.
    """

    track: Track
    kind: SliceKind
    name: str
    start: float
    end: float
    loc: Loc
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of an mbarrier from ``time`` on; ``bytes`` is its tx-count."""

    cta: int
    barrier: str
    time: float
    phase: int
    pending: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Flow:
    """An arrow from the instruction or operation that causes something to what it causes.

    ``woke``: what it leads to had been waiting.
    """

    kind: FlowKind
    start: Track
    start_time: float
    end: Track
    end_time: float
    woke: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """One touch of a synchronisation object, or (``on`` empty) any other instruction.

    ``engine`` is the engine that acted for the warp, empty if it acted itself. ``named`` is the
    object as findings name it, ``alike`` what ``text`` says, but for numbers that depend on others.
    """

    time: float
    kind: Kind
    on: str
    phase: int
    track: Track
    engine: str
    text: str
    loc: Loc
    named: Named | None = None
    alike: tuple[bool, int] | None = None


@dataclass(frozen=True, slots=True)
class Releaser:
    """Warps that could release a waiter, where they would do it, and what they are doing."""

    name: str
    role: str
    cta: int
    instruction: str
    loc: Loc
    state: str


@dataclass(frozen=True, slots=True)
class Waiter:
    """Warps of one role that wait for ever at one place, and what they wait for."""

    name: str
    role: str
    cta: int
    text: str
    loc: Loc
    on: str
    state: str
    releasers: tuple[Releaser, ...]


@dataclass(frozen=True)
class Timeline:
    """The recording of one cluster (or of the whole grid, if its clusters communicate).

    ``truncated``: the limit was reached at ``end``; ``waiters`` are those of a deadlock.
    """

    unit: Unit
    ctas: tuple[int, ...]
    tracks: tuple[Track, ...]
    slices: tuple[Slice, ...]
    samples: tuple[Sample, ...]
    flows: tuple[Flow, ...]
    points: tuple[Point, ...]
    waiters: tuple[Waiter, ...]
    end: float
    truncated: bool = False


# ------------------------------------------------------------------ recording a run


TMA, TENSOR_CORE = "TMA", "tensor core"
#: how an engine's last moment is told from the first moment of what follows
_INSTANT = 0.001


E = TypeVar("E", TimedEnvironment, ChoiceEnvironment)


def recorded(env: E, limit: int = LIMIT) -> E:
    """``env``, whose run will be recorded."""
    env.trace = Recorder(env, limit)
    return env


def timeline_of(env: TimedEnvironment | ChoiceEnvironment) -> Timeline | None:
    """What was recorded; None if nothing ran."""
    recorder = env.trace
    assert isinstance(recorder, Recorder)
    return recorder.timeline()


class Recorder(EventLog):
    """The trace of a run with times, as slices, points, samples and flows.

    Under a chosen schedule there is no time; then one instruction or landing after another takes
    one step. ``limit`` bounds what is kept.
    """

    def __init__(self, env: simpy.Environment, limit: int) -> None:
        super().__init__()
        self._env = env
        self._timed = not isinstance(env, ChoiceEnvironment)
        self._left = limit
        self._step = 0
        self._end = 0.0
        self._cut = False
        self._slices: list[Slice] = []
        self._points: list[Point] = []
        self._samples: list[Sample] = []
        self._flows: list[Flow] = []
        self._tracks: dict[Track, None] = {}
        #: per warp: when its last instruction ends, since when it waits, for what
        self._busy: dict[AgentLike, float] = {}
        self._waiting: dict[AgentLike, tuple[float, Op | Loc, str]] = {}
        #: operations in flight: since when, and the instruction that issued them
        self._flying: dict[Key, tuple[float, Track, InFlight]] = {}
        self._lanes: dict[tuple[int, str], list[float]] = {}
        self._landing: tuple[Track, float] | None = None
        self._last_credit: dict[tuple[Hashable, int], tuple[Track, float]] = {}
        #: per warp and kind of group: its last operation and when that ends
        self._last_engine: dict[tuple[AgentLike, str], tuple[Track, float]] = {}
        self._touched: dict[Mbarrier, None] = {}
        self._states: dict[Mbarrier, tuple[int, int, int]] = {}
        self._waiters: tuple[Waiter, ...] = ()

    # ------------------------------------------------------------------ hooks of the machine

    def note(self, event: Event) -> None:
        """A touch of a synchronisation object."""
        if self._full():
            return
        kind, phase, warp = event.kind, event.phase, event.warp
        on, track = self.object(event.object), self.track(warp)
        engine, time = "", self._now(warp)
        where = track, time
        if self._landing is not None:
            where = self._landing
            engine, time = where[0].role, where[1]
            where = where[0], time - _INSTANT if self._timed else time
        if isinstance(on, Mbarrier):
            self._touched[on] = None
        if kind in ("credit", "join"):
            self._last_credit[event.object, phase] = where
        elif kind in ("pass", "leave") and not isinstance(on, Warpgroup):
            last = self._last_credit.get((event.object, phase))
            self._flow("arrive", last, track, time, woke=warp in self._waiting)
        own = event.op.loc if event.op is not None else _loc(warp.last_op())
        shown = phase - on.base if isinstance(on, Mbarrier) else phase
        named = None if on is None else on.named
        name = "" if named is None else named.label
        self._points.append(
            Point(time, kind, name, shown, track, engine, event.text, own, named, event.alike)
        )
        self._left -= 1

    def spawn(self, operation: InFlight) -> None:
        """An asynchronous operation starts."""
        time = self._now(operation.warp)
        self._flying[operation.key] = (time, self.track(operation.warp), operation)

    def lands(self, operation: InFlight) -> None:
        """An asynchronous operation is about to take effect: its slice ends here."""
        issued = self._flying.pop(operation.key, None)
        if issued is None or self._full():
            return
        end = self._env.now if self._timed else float(self._step + 1)
        self._landing = self._operate(operation.op, operation.warp, issued[0], end), end

    def landed(self, operation: InFlight) -> None:
        """It has taken effect."""
        self._landing = None
        self._step += 1
        self._sample(self._env.now if self._timed else float(self._step))

    def over(self) -> None:
        """What waits for ever, and what could end that."""
        if self._machine is not None:
            self._waiters = tuple(_waiters(self._machine))

    # ------------------------------------------------------------------ instructions

    def around(self, step: Step, number: int, origin: Op | Loc, cycles: int) -> Step:
        """A step, followed by its recording."""
        waits = None
        if isinstance(origin, Op):
            waits = next((e.group for e in origin.effects() if isinstance(e, fx.WaitsGroup)), None)

        def run(w: Warp) -> bool | None:
            if self._full():
                return step(w)
            start = self._now(w)
            core, stores = w.cta.tensor_core_free, _bulk_operations(w)
            stopped = step(w)
            if stopped:
                self._stopped(w, origin, start, parked=cycles > 0)
            else:
                self._resumed(w, start)
                if waits is not None:
                    self._completed(w, waits, start)
                if isinstance(origin, Op):
                    self._executed(w, origin, start, cycles)
                    self._engines(w, origin, start, core, stores)
            self._sample(start)
            return stopped

        return run

    def _stopped(self, w: Warp, origin: Op | Loc, start: float, *, parked: bool) -> None:
        """The step did not get through: the warp waits, is asleep, or ends."""
        if w.exited or w in self._waiting or not (parked or w.blocked):
            return
        text = f"waits in {'a loop' if isinstance(origin, Loc) else origin.mnemonic}"
        if w.blocked is not None:
            text = w.blocked.seen_from(w.cta.number)
        self._waiting[w] = (start, origin, text)
        self._step += 1

    def _resumed(self, w: Warp, now: float) -> None:
        waited = self._waiting.pop(w, None)
        if waited is not None:
            since, origin, text = waited
            self._add(self.track(w), "wait", text, since, now, _loc(origin))

    def _executed(self, w: Warp, op: Op, start: float, cycles: int) -> None:
        end = start + cycles if self._timed else start + 1
        self._add(self.track(w), "run", op.mnemonic, start, end, op.loc)
        self._busy[w] = end
        self._step += 1

    def _engines(self, w: Warp, op: Op, issued: float, core: float, stores: int) -> None:
        """What the step gave the tensor core, or the TMA to store, under the timed policy."""
        if not self._timed:
            return
        now, finish = float(self._env.now), w.cta.tensor_core_free
        if finish != core:
            (kind,) = (e.group for e in op.effects() if isinstance(e, fx.Issues))
            self._work(w, op, TENSOR_CORE, kind, issued, max(now, core), finish)
        if _bulk_operations(w) != stores:
            self._work(w, op, TMA, "bulk", issued, issued, w.lane_groups["bulk"].finish)

    def _work(
        self, w: Warp, op: Op, engine: str, group: str, issued: float, start: float, end: float
    ) -> None:
        """An operation that completes through a group of the warp.

        The machine may start it when the warp's turn starts, a few cycles before the warp has come
        to the instruction; the arrow then points into it.
        """
        track = self._engine_track(w, engine, start, end)
        self._add(track, "engine", op.mnemonic, start, end, op.loc)
        if issued < end:
            self._flow("issue", (self.track(w), issued), track, max(issued, start))
        self._last_engine[w, group] = track, max(start, end - _INSTANT)

    def _completed(self, w: Warp, group: str, now: float) -> None:
        """A wait for a group has passed: an arrow from the group's last operation."""
        last = self._last_engine.pop((w, group), None)
        if last is not None and last[1] <= now:
            self._flow("complete", last, self.track(w), now)

    def _operate(
        self, op: Op, w: AgentLike, start: float, end: float, *, stuck: bool = False
    ) -> Track:
        """The slice of an asynchronous operation, on its engine's track."""
        track = self._engine_track(w, op.engine or op.mnemonic, start, end)
        self._add(track, "engine", op.mnemonic, start, end, op.loc, stuck=stuck)
        self._flow("issue", (self.track(w), start), track, start)
        return track

    # ------------------------------------------------------------------ bookkeeping

    def track(self, w: AgentLike) -> Track:
        """The track of a warp."""
        track = Track(w.cta.number, w.role, w.number)
        self._tracks.setdefault(track)
        return track

    def _engine_track(self, w: AgentLike, engine: str, start: float, end: float) -> Track:
        """The first lane of an engine that is free from ``start`` on."""
        lanes = self._lanes.setdefault((w.cta.number, engine), [])
        lane = next((n for n, free in enumerate(lanes) if free <= start), len(lanes))
        lanes[lane : lane + 1] = [end]
        track = Track(w.cta.number, engine, None, lane)
        self._tracks.setdefault(track)
        return track

    def _now(self, w: AgentLike) -> float:
        if not self._timed:
            return float(self._step)
        return max(float(self._env.now), self._busy.get(w, 0.0))

    def _full(self) -> bool:
        self._cut = self._cut or self._left <= 0
        return self._cut

    def _add(
        self, track: Track, kind: SliceKind, name: str, start: float, end: float, loc: Loc,
        *, stuck: bool = False,
    ) -> None:  # fmt: skip
        self._slices.append(Slice(track, kind, name, start, end, loc, stuck))
        self._end = max(self._end, end)
        self._left -= 1

    def _flow(
        self, kind: FlowKind, start: tuple[Track, float] | None, end: Track, time: float,
        *, woke: bool = False,
    ) -> None:  # fmt: skip
        if start is not None:
            # a warp that sleeps loses the cycles of its turn: its own clock may be a little ahead
            self._flows.append(Flow(kind, *start, end, max(time, start[1]), woke))

    def _sample(self, time: float) -> None:
        """The new state of every mbarrier that was touched."""
        for barrier in self._touched:
            state = barrier.phase, barrier.pending, barrier.tx
            if self._states.get(barrier) != state:
                self._states[barrier] = state
                name = barrier.named.seen_from(barrier.cta.number)
                self._samples.append(Sample(barrier.cta.number, name, time, *state))
        self._touched.clear()

    # ------------------------------------------------------------------ the end

    def timeline(self) -> Timeline | None:
        """Everything recorded, in a fixed order; None if the cluster never ran."""
        machine = self._machine
        if machine is None:
            return None
        if not self._cut:
            self._close()
        return Timeline(
            "cycle" if self._timed else "step",
            tuple(cta.number for cta in machine.ctas),
            tuple(sorted(self._tracks, key=_place(machine))),
            tuple(sorted(self._slices, key=lambda s: s.start)),
            tuple(self._samples),
            tuple(self._flows),
            tuple(self._points),
            self._waiters,
            self._end,
            self._cut,
        )

    def _close(self) -> None:
        """Ends what is still open when the run is over."""
        end = max(self._end, *(since for since, _, _ in self._waiting.values()), 0.0) + (
            1 if self._waiting else 0
        )
        for warp, (since, origin, text) in self._waiting.items():
            self._add(self.track(warp), "wait", text, since, end, _loc(origin), stuck=True)
        for since, _, operation in self._flying.values():
            self._operate(operation.op, operation.warp, since, end, stuck=True)
        self._waiting.clear()
        self._flying.clear()


def _place(machine: Machine) -> Callable[[Track], tuple[int, bool, int, str, int, int]]:
    """Orders tracks by CTA, then roles by their first warp, then engines."""
    first: dict[tuple[int, str], int] = {}
    for w in machine.warps:
        first.setdefault((w.cta.number, w.role), w.number)

    def key(track: Track) -> tuple[int, bool, int, str, int, int]:
        role = first.get((track.cta, track.role), 0)
        return (
            track.cta, track.warp is None, role, track.role if track.warp is None else "",
            track.warp or 0, track.lane,
        )  # fmt: skip

    return key


def _bulk_operations(w: Warp) -> int:
    group = w.lane_groups.get("bulk")
    return 0 if group is None else group.opened


def _loc(origin: Op | Loc) -> Loc:
    return origin if isinstance(origin, Loc) else origin.loc


def _waiters(machine: Machine) -> Iterator[Waiter]:
    """The warps that wait for ever, those of one role at one place together."""
    together: dict[tuple[object, ...], list[Warp]] = {}
    for warp in machine.warps:
        if warp.blocked is not None and not warp.exited:
            key = (warp.role, warp.cta.number, warp.blocked.text, warp.blocked.loc)
            together.setdefault(key, []).append(warp)
    if not together:
        return
    graph = WaitFor(machine)
    for warps in together.values():
        blocked = warps[0].blocked
        assert blocked is not None
        on = blocked.on
        label, state = (on.label, str(on)) if isinstance(on, Barrier) else ("", "")
        releasers = tuple(_releasers(graph.suppliers(warps[0])))
        yield Waiter(
            names_of(warps), warps[0].role, warps[0].cta.number, blocked.text, blocked.loc, label,
            state, releasers,
        )  # fmt: skip


def _releasers(suppliers: Iterable[tuple[Agent, Op]]) -> Iterator[Releaser]:
    together: dict[tuple[object, ...], tuple[list[Agent], Op]] = {}
    for warp, op in suppliers:
        key = (warp.role, warp.cta.number, op.loc, state_of(warp))
        together.setdefault(key, ([], op))[0].append(warp)
    for warps, op in together.values():
        first = warps[0]
        yield Releaser(
            names_of(warps), first.role, first.cta.number, op.mnemonic, op.loc, state_of(first)
        )


# ------------------------------------------------------------------ recorded runs


@dataclass(frozen=True)
class Recording:
    """What a run has shown and cost, and the timelines of the clusters that were recorded.

    Plain data, without the machine that ran: results of checks have it, which go from process to
    process. ``cut_off``: why it ended before the kernel did; empty if it did not.
    """

    findings: tuple[Finding, ...]
    stats: Stats
    timelines: tuple[Timeline, ...]
    cut_off: str = ""

    @classmethod
    def of(cls, run: Run, timelines: Iterable[Timeline | None]) -> Recording:
        """What is kept of a run."""
        cut_off = next((o.cut_off for o in run.outcomes if o.cut_off), "")
        recorded_of = tuple(t for t in timelines if t is not None)
        return cls(run.findings, run.stats, recorded_of, cut_off)

    def of_cta(self, cta: int) -> Timeline | None:
        """The timeline in which a CTA appears."""
        return next((t for t in self.timelines if cta in t.ctas), None)


def record(
    program: Program | Mir,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    *,
    strict: Strict = "practice",
    numbers: bool = False,
    clusters: int = 1,
    limit: int = LIMIT,
    steps: int | None = None,
) -> Recording:
    """Runs the first ``clusters`` clusters under the timed policy and records them.

    ``steps``: scheduling points at which each is cut off, if not where checks are.

    Raises:
        InvalidProgram: the program is rejected before it runs.
        UsageError: an input does not fit its tensor.
    """
    checked = check_inputs(kernel_of(program), inputs or {})
    simulation = Simulation(program, numbers=numbers, strict=strict)
    if steps is not None:
        simulation.set_options(max_steps=steps)
    count = min(clusters, simulation.groups)
    environments = [(index, recorded(TimedEnvironment(), limit)) for index in range(count)]
    run = simulation.run_on(checked, [*environments])
    return Recording.of(run, (timeline_of(env) for _, env in environments))
