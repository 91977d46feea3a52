"""Grids of many clusters: one of each class is run, and what all of them access is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilesim.checker.options import MANY
from tilesim.ir.loc import Loc
from tilesim.records import dataclass, replace
from tilesim.sim.affine.cluster_plan import Integers, asks_for_clusters
from tilesim.sim.machine.result import Outcome
from tilesim.sim.machine.simulate import Run, Simulation, Stats
from tilesim.sim.observers.certificate import may_depend

if TYPE_CHECKING:
    from tilesim.sim.affine.cluster_classes import Follower, OtherTripCount
    from tilesim.sim.affine.footprints import Contacts, Kind

#: clusters that are run at most, more than `MANY` only while few instructions have been executed
_AT_MOST = 512
_INSTRUCTIONS = 30_000
#: pairs of clusters that are run together, to see what their accesses to the same bytes mean
_PAIRS = 64


@dataclass(frozen=True)
class Surveyed:
    """What is known about a grid: ``run`` joins those of the ``clusters`` that stand for all.

    ``extent`` says so in words; ``left_open`` is why nothing can be said of the whole grid.
    """

    run: Run
    clusters: list[int]
    extent: str
    left_open: tuple[str, ...] = ()


class Survey:
    """Runs one cluster of each class of a grid; ``run`` runs clusters on one global memory."""

    def __init__(
        self,
        simulation: Simulation,
        inputs: Mapping[str, NDArray[Any]],
        run: Callable[[list[int]], Run],
    ) -> None:
        self._simulation = simulation
        self._run_clusters = run
        self._plans = simulation.plans(inputs)
        self._total = simulation.groups
        size = simulation.program.cluster_size
        self._what = (
            f"{self._total} CTAs" if size == 1 else f"{self._total} clusters of {size} CTAs"
        )
        #: by the cluster that was run: what followed the others of its class, and the run
        self._classes: dict[int, Follower] = {}
        self._runs: dict[int, Run] = {}
        #: clusters that others of other numbers of repetitions stand for: what follows those like
        #: them, and what a run of them would be
        self._split_off: dict[int, tuple[Follower, Run]] = {}
        self._open: list[str] = []
        #: the first run that failed, and its clusters
        self._failure: Surveyed | None = None
        #: members and accesses of all classes when the survey was done
        self._state: tuple[int, ...] = ()

    def look(self, *, apart: bool = False) -> Surveyed:
        """Runs clusters until each is of a class of which one was run, or they become too many.

        ``apart``: what they access is not compared.
        """
        if asks_for_clusters(self._simulation.code.mir):
            return self._some("clusters do the work of others (clusterlaunchcontrol)")
        return self._look(apart=apart)

    def look_again(self) -> Surveyed:
        """Looks at the clusters that have turned out to differ, and at what else was accessed."""
        return self._look(apart=False)

    def _look(self, *, apart: bool) -> Surveyed:
        known = [f.members for f in self._classes.values()]
        every = np.arange(self._total, dtype=np.int64)
        left = self._find_classes(np.setdiff1d(every, np.concatenate(known)) if known else every)
        if not left and self._failure is None and not apart:
            left = self._compare()
        unseen = {f.unseen for f in self._classes.values() if f.unseen}
        self._open += [f"{what} was not compared between clusters" for what in sorted(unseen)]
        self._state = self._so_far()
        if self._failure is not None:
            return self._failure
        ran = list(self._classes)
        if self._simulation.code.losing and len(ran) < self._total:
            self._open.append("what clusters that were not run read of what they have discarded")
        if left:
            self._open.append(
                f"{left} of {self._what} were not looked at: too many differ from those that were"
                f"{self._main_departure()}"
            )
        extent = f"all {self._what}"
        if len(ran) < self._total:
            extent += f", of which {len(ran)} were run: the others take the same steps"
        if self._open:
            extent = f"{len(ran)} of {self._what}"
        return Surveyed(self._joined(), ran, extent, tuple(dict.fromkeys(self._open)))

    @property
    def settled(self) -> bool:
        """Whether runs since then have shown nothing new about the clusters that were not run."""
        return self._so_far() == self._state

    def again(self) -> tuple[str, ...]:
        """Why further runs of the clusters that were run do not stand for all."""
        if self.settled:
            return ()
        return (
            f"{self._what} take the same steps in the timed schedule, not in every one"
            f"{self._main_departure()}",
        )

    def _some(self, why: str) -> Surveyed:
        step = self._total / MANY
        picks = sorted({int(i * step) for i in range(MANY)} | {self._total - 1})
        extent = f"{len(picks)} of {self._what}"
        reason = f"only {extent} were run: {why}"
        return Surveyed(self._run_clusters(picks), picks, extent, (reason,))

    # ------------------------------------------------------------------ classes

    def _may_go_on(self) -> bool:
        ran = len(self._classes)
        cheap = sum(run.stats.instructions for run in self._runs.values()) < _INSTRUCTIONS
        return self._failure is None and (ran < MANY or (ran < _AT_MOST and cheap))

    def _judged(self, run: Run, clusters: list[int]) -> Run:
        if run.findings:
            single = "CTA" if self._simulation.program.cluster_size == 1 else "cluster"
            several = f"{single}s" if len(clusters) > 1 else single
            extent = f"{several} {' and '.join(map(str, clusters))} of {self._what}"
            self._failure = Surveyed(run, clusters, extent)
        return run

    def _find_classes(self, left: Integers) -> int:
        """Runs the first cluster that is in no class, until there is none; how many are left."""
        while len(left) and self._may_go_on():
            follower = self._look_at(left)
            left = np.setdiff1d(left, follower.members, assume_unique=True)
        return len(left)

    def _look_at(self, clusters: Integers) -> Follower:
        """Runs the first of ``clusters``, unless a run stands for it, and follows the others."""
        first = int(clusters[0])
        known = self._split_off.pop(first, None)
        if known is not None:
            self._classes[first], self._runs[first] = known
            self._simulation.followers[first] = known[0]
            return known[0]
        follower = self._simulation.follow(clusters, self._plans)
        run = self._run_clusters([first])
        if run.findings and self._simulation.code.named and len(follower.members) < len(clusters):
            # what stores leave was compared in all that were followed, also in those that differ
            follower = self._simulation.follow(follower.members, self._plans)
            run = self._run_clusters([first])
        self._classes[first], self._runs[first] = follower, self._judged(run, [first])
        from tilesim.sim.affine.cluster_classes import by_trip_count, is_plain

        others = by_trip_count(follower)
        if not run.findings and is_plain(run.outcomes[0]):
            self._split_off |= {
                int(o.follower.clusters[0]): (o.follower, _as(o, run)) for o in others
            }
        return follower

    @property
    def runs(self) -> list[Run]:
        """The runs that have ended."""
        return list(self._runs.values())

    def _main_departure(self) -> str:
        departures: Counter[tuple[str, Loc]] = Counter()
        for follower in self._classes.values():
            departures.update(follower.departures)
        if not departures:
            return ""
        (what, loc), _ = departures.most_common(1)[0]
        return f", first of all in `{what}` ({', '.join(loc.chain)})"

    def _so_far(self) -> tuple[int, ...]:
        all_touches = (t for f in self._classes.values() for t in (f.touches, f.far))
        touches = [t for by_name in all_touches for t in by_name.values()]
        members = sum(int(f.same.sum()) for f in self._classes.values())
        return members, sum(len(t.boxes) for t in touches)

    # ------------------------------------------------------------------ what they access

    def _compare(self) -> int:
        """Compares the accesses of all clusters; how many clusters were not looked at in the end.

        What the accesses of two clusters to the same bytes mean, a run of the two says.
        """
        pairs: dict[tuple[Kind, Kind], tuple[int, int]] = {}
        irregular: set[int] = set()
        for tensor in self._simulation.program.tensors:
            self._simulation.require_time()
            found = self._contacts(tensor.name)
            if found.too_many:
                self._open.append(
                    f"too many accesses to {tensor.name} to compare those of all CTAs"
                )
            pairs.update(found.pairs)
            irregular |= found.irregular
        self._meet(pairs)
        return self._look_alone(sorted(irregular - self._classes.keys()))

    def _contacts(self, name: str) -> Contacts:
        from tilesim.sim.affine.footprints import Part, contacts

        tensor = next(t for t in self._simulation.program.tensors if t.name == name)
        followers = self._classes.values()
        parts = [Part(f.clusters, f.same, f.touches[name].boxes) for f in followers
                 if name in f.touches]  # fmt: skip
        far = [Part(f.clusters, f.same, f.far[name].boxes) for f in followers if name in f.far]
        return contacts(tensor, parts, far)

    def _look_alone(self, clusters: list[int]) -> int:
        """Runs clusters of which accesses overlap otherwise than in the one that was run."""
        for done, cluster in enumerate(clusters):
            if not self._may_go_on():
                return len(clusters) - done
            self._look_at(np.array([cluster], dtype=np.int64))
        return 0

    def _meet(self, pairs: Mapping[tuple[Kind, Kind], tuple[int, int]]) -> None:
        weak_first = sorted(pairs.items(), key=lambda item: _is_strong(*item[0]))
        runs: dict[tuple[int, int], Run] = {}
        for (one, other), (a, b) in weak_first:
            sides = (f"{side.op.mnemonic} at {side.op.loc.whole}" for side in (one, other))
            where = " and ".join(sides)
            if (a, b) not in runs:
                if len(runs) >= _PAIRS:
                    self._open.append(f"clusters {a} and {b} access the same bytes: {where}")
                    continue
                runs[a, b] = self._run_together(a, b)
                if self._failure is not None:
                    return
            if not runs[a, b].findings and not _is_strong(one, other):
                self._open.append(f"clusters {a} and {b} access the same bytes: {where}")

    def _run_together(self, a: int, b: int) -> Run:
        """A run of two clusters, which says what all their accesses to the same bytes mean."""
        run = self._judged(self._run_clusters([a, b]), [a, b])
        self._runs[next(iter(self._runs))].outcomes[0].rounds |= any(
            outcome.rounds for outcome in run.outcomes
        )
        self._open += [
            may_depend(what, loc)
            for outcome in run.outcomes
            for what, loc in outcome.nondeterminism.items()
        ]
        return run

    def _joined(self) -> Run:
        """The runs of the classes as one."""
        runs = list(self._runs.values())
        stats = [run.stats for run in runs]
        return Run(
            (),
            runs[0].outputs,
            Stats(
                sum(s.instructions for s in stats),
                sum(s.ctas for s in stats),
                max(s.cycles for s in stats),
                by_parts=sum(s.by_parts for s in stats),
            ),
            tuple(o for run in runs for o in run.outcomes),
        )


def _as(apart: OtherTripCount, run: Run) -> Run:
    """The run of clusters that another one stands for."""
    stats = run.stats
    instructions = stats.instructions + apart.instructions
    cycles = int(stats.cycles + apart.cycles)
    skipped = stats.skipped + apart.instructions
    outcome = Outcome(leaned=set(run.outcomes[0].leaned))
    return replace(run, stats=Stats(instructions, stats.ctas, cycles, skipped), outcomes=(outcome,))


def _is_strong(one: Kind, other: Kind) -> bool:
    return one.scope is not None and other.scope is not None
