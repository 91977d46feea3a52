"""What the warps of some clusters execute, and who waits for whom: the input of a prediction.

One run of the machine tells, as for `tilesim.conform.order`: which instructions each warp executes,
to which phase or round each contributes (at once, or when what it has started is done), and for
which it waits.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import simpy

from tilesim.errors import UsageError
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.sim.grid.geometry import cluster_ctas
from tilesim.sim.machine.machine import Watcher
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.machine.trace import Key, Kind
from tilesim.sim.simulate import Simulation, check_inputs

if TYPE_CHECKING:
    from tilesim.sim.machine.machine import Entry, Machine, Step, Warp
    from tilesim.sim.machine.trace import InFlight
    from tilesim.sim.machine.who import Who

#: a phase of an mbarrier, or a round of another barrier
Group = tuple[Hashable, int]


@dataclass(slots=True)
class Executed:
    """An instruction that a warp executes: to which groups it contributes, to which what it starts
    does, and for which it waits, as indices of `Cluster.groups`."""

    op: Op
    gives: list[int] = field(default_factory=list)
    issues: list[int] = field(default_factory=list)
    takes: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Cluster:
    """What a cluster executes: by (rank, warp) its instructions in order. ``groups``: how many
    contributions complete each group, and the rank in which it is (0 for the cluster's own)."""

    ranks: int
    warps: Mapping[tuple[int, int], list[Executed]]
    groups: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        """How many instructions are executed."""
        return sum(map(len, self.warps.values()))


def work_of(program: Program, clusters: list[int]) -> list[Cluster]:
    """What these clusters execute.

    Raises:
        UsageError: what the program executes depends on the schedule, CTAs of several clusters
            communicate, or it fails.
        InvalidProgram: the program is rejected.
    """
    simulation = Simulation(program, numbers=False, strict="practice")
    if simulation.together and program.ctas > program.cluster_size:
        raise UsageError(f"CTAs of {program.name} communicate through global memory")
    environments = [_Environment() for _ in clusters]
    run = simulation.run_on(
        check_inputs(simulation.program, {}), list(zip(clusters, environments, strict=True))
    )
    if run.findings:
        raise UsageError(f"{program.name} fails ({run.findings[0].rule})")
    if any(outcome.nondeterminism or outcome.asked for outcome in run.outcomes):
        raise UsageError(f"what {program.name} executes depends on the schedule")
    return [
        env.trace.cluster(cluster_ctas(program, index))
        for index, env in zip(clusters, environments, strict=True)
    ]


class _Environment(simpy.Environment):
    """The timed policy, watched."""

    def __init__(self) -> None:
        super().__init__()
        self.trace = _Work()


class _Work(Watcher):
    """Notes what warps execute."""

    def __init__(self) -> None:
        super().__init__()
        self._warps: dict[tuple[int, int], list[Executed]] = {}
        self._now: dict[Who, Executed] = {}
        self._waits: dict[Who, Op] = {}
        self._flying: dict[Key, Executed] = {}
        self._landing: Executed | None = None
        self._machine: Machine | None = None
        self._owners: dict[Hashable, int] = {}
        self._groups: dict[Group, int] = {}
        self._counts: list[int] = []

    def begin(self, agent: Key, enabled: tuple[Key, ...]) -> None:
        """The timed policy makes no moves."""

    def watch(self, machine: Machine) -> list[Entry]:
        """The program's steps, those of instructions with a note before."""
        self._machine = machine
        steps = list(machine.plan.steps)
        for first, (alone, _) in machine.plan.fused.items():
            steps[first] = alone
        return [
            (self._around(step, origin), sync, cycles) if isinstance(origin, Op) and cycles
            else (step, sync, cycles)
            for (step, sync, cycles), origin in zip(steps, machine.plan.origins, strict=True)
        ]  # fmt: skip

    def _around(self, step: Step, op: Op) -> Step:
        def run(w: Warp) -> bool | None:
            if self._waits.get(w) is not op:
                self._now[w] = executed = Executed(op)
                self._warps.setdefault((w.cta.number, w.number), []).append(executed)
            self._waits[w] = op
            stopped = step(w)
            if not stopped:
                del self._waits[w]
            return stopped

        return run

    def note(
        self, kind: Kind, obj: Hashable, phase: int, warp: Who, op: Op | None, text: str,
        *, loose: bool = False,
    ) -> None:  # fmt: skip
        """A touch of a barrier."""
        if op is None or kind not in ("credit", "join", "pass", "leave") or not self._knows(obj):
            return
        group = self._groups.setdefault((obj, phase), len(self._groups))
        if group == len(self._counts):
            self._counts.append(0)
        if kind in ("credit", "join"):
            self._counts[group] += 1
            if self._landing is not None:
                self._landing.issues.append(group)
            else:
                self._now[warp].gives.append(group)
        else:
            self._now[warp].takes.append(group)

    def spawn(self, operation: InFlight) -> None:
        """An asynchronous operation starts."""
        self._flying[operation.key] = self._now[operation.warp]

    def lands(self, operation: InFlight) -> None:
        """It is about to take effect."""
        self._landing = self._flying.pop(operation.key, None)

    def landed(self, operation: InFlight) -> None:
        """It has taken effect."""
        self._landing = None

    def _knows(self, obj: Hashable) -> bool:
        """True if it is a barrier."""
        if not self._owners and self._machine is not None:
            self._owners = dict(_barriers(self._machine))
        return obj in self._owners

    def cluster(self, ctas: tuple[int, ...]) -> Cluster:
        """What was noted, of a cluster of these CTAs."""
        rank = {cta: n for n, cta in enumerate(ctas)}
        places = (self._owners[obj] for obj, _ in self._groups)
        return Cluster(
            len(ctas),
            {(rank[cta], warp): steps for (cta, warp), steps in self._warps.items()},
            tuple(zip(self._counts, (rank.get(cta, 0) for cta in places), strict=True)),
        )


def _barriers(machine: Machine) -> Iterator[tuple[Hashable, int]]:
    """Every barrier, and the CTA in which it is; -1 for those of clusters."""
    for cta in machine.ctas:
        barriers: list[Mbarrier | NamedBarrier] = [*cta.mbarriers.values(), *cta.named.values()]
        for barrier in barriers:
            yield barrier.component, cta.number
    for cluster in machine.clusters:
        if cluster.barrier is not None:
            yield cluster.barrier.component, -1
