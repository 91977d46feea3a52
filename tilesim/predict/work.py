"""What the warps of some clusters execute, and which wait for which: the input of a prediction.

One run of the machine tells, as for `tilesim.conform.order`: which instructions each warp executes,
to which phase or round each contributes (at once, or when what it has started is done), and for
which it waits.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from tilesim.errors import UsageError
from tilesim.ir.op import Op
from tilesim.ir.program import Program
from tilesim.ir.scalars import communicates
from tilesim.records import dataclass, field
from tilesim.sim.machine.cta import cluster_ctas
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.named_barrier import NamedBarrier
from tilesim.sim.observers.event_log import Actor, Happenings, watch
from tilesim.transforms.lower import lower

if TYPE_CHECKING:
    from tilesim.sim.machine.machine import Warp

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
    if communicates(lower(program)) and program.ctas > program.cluster_size:
        raise UsageError(f"CTAs of {program.name} communicate through global memory")
    watchers = {index: _Work() for index in clusters}
    watch(program, {}, watchers, numbers=False)
    return [watcher.cluster(cluster_ctas(program, index)) for index, watcher in watchers.items()]


class _Work(Happenings[Executed]):
    """Notes what warps execute."""

    def __init__(self) -> None:
        super().__init__()
        self._warps: dict[tuple[int, int], list[Executed]] = {}
        #: the number of each group and the CTA in which it is, -1 for one of a cluster
        self._groups: dict[Group, tuple[int, int]] = {}
        self._counts: list[int] = []

    def watches(self, op: Op, cycles: int) -> bool:
        """See `Happenings.watches`."""
        return cycles > 0

    def enters(self, w: Warp, op: Op) -> Executed:
        """See `Happenings.enters`."""
        executed = Executed(op)
        self._warps.setdefault((w.cta.number, w.number), []).append(executed)
        return executed

    def gives(self, by: Actor[Executed], barrier: Mbarrier | NamedBarrier, number: int) -> None:
        """See `Happenings.gives`."""
        group = self._group(barrier, number)
        self._counts[group] += 1
        (by.executed.issues if by.engine else by.executed.gives).append(group)

    def takes(self, executed: Executed, barrier: Mbarrier | NamedBarrier, number: int) -> None:
        """See `Happenings.takes`."""
        executed.takes.append(self._group(barrier, number))

    def _group(self, barrier: Mbarrier | NamedBarrier, number: int) -> int:
        group = barrier.component, number
        if group not in self._groups:
            self._groups[group] = len(self._counts), _place(barrier)
            self._counts.append(0)
        return self._groups[group][0]

    def cluster(self, ctas: tuple[int, ...]) -> Cluster:
        """What was noted, of a cluster of these CTAs."""
        rank = {cta: n for n, cta in enumerate(ctas)}
        ranks = (rank.get(cta, 0) for _, cta in self._groups.values())
        return Cluster(
            len(ctas),
            {(rank[cta], warp): steps for (cta, warp), steps in self._warps.items()},
            tuple(zip(self._counts, ranks, strict=True)),
        )


def _place(barrier: Mbarrier | NamedBarrier) -> int:
    """The CTA in which a barrier is, -1 for that of a cluster."""
    if isinstance(barrier, Mbarrier):
        return barrier.cta.number
    return barrier.scope[0].cta.number if barrier.of_cta else -1
