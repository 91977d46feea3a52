"""What barriers did in a traced launch: their counters, and arrows to the waits they ended.

No warp sees a barrier change. But of a program whose schedules all do the same the machine says
which instruction changes which barrier by how much and which warps wait for that, and the records
of the launch say when. A change by a warp is drawn where the warp leaves the instruction,
one by a copy where the first wait for it passes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tilesim.conform.order import Group, Ordered, group_of
from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.records import dataclass, field, replace
from tilesim.sim.machine.events import Event
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.observers.event_log import Actor, watch
from tilesim.sim.observers.timeline import Flow, Instance, Sample, Timeline, Track

Times = Mapping[Instance, tuple[float, float]]
#: how an arrow's end is told from the end of the slice that it belongs to, in ns
_INSIDE = 1.0


def with_barriers(
    timelines: Sequence[Timeline], program: Program | Mir, inputs: Mapping[str, NDArray[Any]],
    times: Times,
) -> tuple[Timeline, ...]:  # fmt: skip
    """The timelines of a launch with counters and arrows to waits; ``times`` has when instructions
    were entered and left.

    Raises:
        UsageError: what the program executes depends on the schedule, or it fails.
    """
    watchers = [_Changes() for _ in timelines]
    watch(program, inputs, dict(enumerate(watchers)), numbers=False)
    return tuple(
        _Drawn(timeline, watcher, times).timeline()
        for timeline, watcher in zip(timelines, watchers, strict=True)
    )


# ---------------------------------------------------------------------- what the machine says


class _State(NamedTuple):
    """Of an mbarrier: which life, phase in that life, pending count, tx-count."""

    life: int
    phase: int
    pending: int
    tx: int


class _Change(NamedTuple):
    """What an instruction takes from the pending count and adds to the tx-count."""

    by: Actor[Instance]
    arrivals: int
    bytes: int


@dataclass
class _Phase:
    """A phase that begins with ``pending`` arrivals, and its changes; ``ended`` if it ends."""

    group: Group
    pending: int
    changes: list[_Change] = field(default_factory=list)
    ended: bool = False


@dataclass
class _Life:
    """An mbarrier of a CTA from its initialisation on."""

    cta: int
    name: str
    begun: Actor[Instance]
    phases: list[_Phase]


class _Changes(Ordered):
    """Notes what happens to mbarriers, too."""

    def __init__(self) -> None:
        super().__init__()
        self.lives: list[_Life] = []
        self._touched: dict[Mbarrier, Actor[Instance]] = {}
        self._states: dict[Mbarrier, tuple[_State, _Life]] = {}

    def note(self, event: Event) -> None:
        """A touch of a barrier."""
        super().note(event)
        barrier, by = self.barrier(event.object), self.actor(event.warp)
        if event.kind in ("credit", "life") and isinstance(barrier, Mbarrier) and by is not None:
            self._touched[barrier] = by

    def settle(self) -> None:
        """Looks at what the step has touched."""
        for barrier, by in self._touched.items():
            if not barrier.live:
                self._states.pop(barrier, None)
                continue
            now = _State(barrier.base, barrier.phase, barrier.pending, barrier.tx)
            if barrier in self._states:
                was, life = self._states[barrier]
                _note_change(life.phases, was, now, by)
            else:
                name = barrier.label.removeprefix(f"CTA {barrier.cta.number} ")
                life = _Life(barrier.cta.number, name, by, [])
                self.lives.append(life)
            if not life.phases or life.phases[-1].ended:
                group = group_of(barrier, now.life + now.phase)
                life.phases.append(_Phase(group, now.pending))
            self._states[barrier] = now, life
        self._touched.clear()


def _note_change(phases: list[_Phase], was: _State, now: _State, by: Actor[Instance]) -> None:
    ended = now.phase > was.phase
    pending, tx = (0, 0) if ended else (now.pending, now.tx)
    phases[-1].changes.append(_Change(by, was.pending - pending, tx - was.tx))
    phases[-1].ended = ended


# ---------------------------------------------------------------------- what the records say


class _Drawn:
    """The barriers of a cluster at the times of its launch."""

    def __init__(self, timeline: Timeline, machine: _Changes, times: Times) -> None:
        self._timeline = timeline
        self._machine = machine
        self._times = _trusted(machine, times)
        self._warps = {(t.cta, t.warp): t for t in timeline.tracks if t.warp is not None}
        self._engines = {(f.start, f.start_time): f.end for f in timeline.flows}
        self._gives: dict[Group, list[Actor[Instance]]] = defaultdict(list)
        self._takes: dict[Group, list[Instance]] = defaultdict(list)
        for what, instance, group in machine.happenings:
            if group is not None and what == "takes":
                self._takes[group].append(instance)
            elif group is not None:
                self._gives[group].append(Actor(instance, engine=what == "issues"))

    def timeline(self) -> Timeline:
        """The timeline with counters and arrows."""
        samples = sorted(
            (s for life in self._machine.lives for s in self._samples(life)), key=lambda s: s.time
        )
        arrows = (flow for group in self._takes for flow in self._flows(group))
        return replace(
            self._timeline, samples=tuple(samples), flows=(*self._timeline.flows, *arrows)
        )

    def _seen(self, group: Group) -> float | None:
        """When the first wait for the group has passed."""
        ends = [self._times[i][1] for i in self._takes[group] if i in self._times]
        return min(ends, default=None)

    def _time(self, by: Actor[Instance], group: Group) -> float | None:
        """When something was done for a group, at the latest; None if no record says it."""
        seen = self._seen(group)
        if by.executed not in self._times or (by.engine and seen is None):
            return None
        start, end = self._times[by.executed]
        if by.executed in self._takes[group]:
            return start  # it waits for the others
        if seen is None:
            return end
        return max(start, seen if by.engine else min(end, seen))

    def _samples(self, life: _Life) -> Iterator[Sample]:
        """The states of an mbarrier up to the first change of which no record says when it was."""
        begun = self._time(life.begun, life.phases[0].group)
        if begun is None:
            return
        for number, phase in enumerate(life.phases):
            state = Sample(life.cta, life.name, begun, number, phase.pending, 0)
            yield state
            at = [self._time(change.by, phase.group) for change in phase.changes]
            known = [t for t in at if t is not None]
            if len(known) < len(at):
                return
            for time, change in sorted(zip(known, phase.changes, strict=True), key=lambda x: x[0]):
                begun = max(begun, time)
                state = replace(
                    state, time=begun, pending=state.pending - change.arrivals,
                    bytes=state.bytes + change.bytes,
                )  # fmt: skip
                if not phase.ended or state.pending or state.bytes:
                    yield state

    def _flows(self, group: Group) -> Iterator[Flow]:
        """Arrows from what completes a group to each wait for it."""
        given = [(self._time(by, group), by) for by in self._gives[group]]
        known = [(t, by) for t, by in given if t is not None]
        if not known or len(known) < len(given):
            return
        last, by = max(known, key=lambda x: x[0])
        start = self._times[by.executed][0]
        origin = self._track(by.executed)
        if by.engine and (origin, start) in self._engines:
            origin, start = self._engines[origin, start], max(start, last - _INSIDE)
        for instance in self._takes[group]:
            if instance in self._times and instance != by.executed:
                began, end = self._times[instance]
                yield Flow(
                    "arrive", origin, min(start, end), self._track(instance),
                    max(min(start, end), began, end - _INSIDE), woke=began < last,
                )  # fmt: skip

    def _track(self, instance: Instance) -> Track:
        cta, warp, _, _ = instance
        return self._warps[cta, warp]


def _trusted(machine: _Changes, times: Times) -> Times:
    """The times of those instructions that each warp has executed as often as in the machine:
    of polls only those that were answered with yes are recorded."""
    expected = Counter(i[:3] for what, i, _ in machine.happenings if what == "enters")
    recorded = Counter(instance[:3] for instance in times)
    return {i: t for i, t in times.items() if recorded[i[:3]] == expected[i[:3]]}
