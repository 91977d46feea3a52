"""Schedules in which lanes of a warp run ahead of the others, or lag behind them.

Where nothing makes the lanes of a warp wait for each other, PTX has such schedules and the machine,
which moves warps, has none. They are looked for by exploring programs in which some lanes of one
warp are an agent of their own (`tilesim.transforms.rewrite`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from numpy.typing import NDArray

from tilesim.findings.finding import Finding
from tilesim.records import dataclass
from tilesim.sim.machine.lanes import name_lanes
from tilesim.sim.machine.result import Violation
from tilesim.sim.machine.simulate import Run, Simulation
from tilesim.sim.schedulers.exhaustive import explore
from tilesim.sim.schedulers.frontier import Limits

#: lanes that are tried: the first, all but the last, and halves
_LANES = (1, 0x7FFFFFFF, 0xFFFF, 0xFF, 0xFFFFFF)
#: what may be tried: warps, warp instructions for one choice of lanes, and schedules of it
_WARPS, _EACH, _SCHEDULES = 4, 4_000, 200
#: what can come of it
_RULES = frozenset(
    {"deadlock", "over-arrival", "tx-mismatch", "phase-alias", "barrier-lifetime", "race"}
)


@dataclass(frozen=True)
class Lagging:
    """A failing run of the ``simulation`` in which ``lanes`` of a warp of each CTA go apart."""

    simulation: Simulation
    run: Run
    warp: int
    lanes: int

    def __str__(self) -> str:
        go = "go their" if self.lanes & (self.lanes - 1) else "goes its"
        return f"{name_lanes(self.lanes)} of warp {self.warp} {go} own way"


def lagging(
    simulation: Simulation,
    first: Run,
    violations: Sequence[Violation],
    clusters: Sequence[int],
    inputs: Mapping[str, NDArray[Any]],
    limits: Limits,
) -> Lagging | None:
    """A schedule of some of the ``clusters`` that fails if lanes go apart; None if none is found.

    ``first`` is the timed run, which has left ``doubts``.
    """
    if len(clusters) > 1:
        return None
    budget = _EACH if isinstance(limits.budget, timedelta) else min(_EACH, limits.budget)
    if 8 * first.stats.instructions > budget:
        return None
    for warp, lanes in _choices(violations, simulation.program.warps):
        apart = simulation.lanes_apart(warp, lanes)
        found = explore(apart, clusters, inputs, Limits(budget, _SCHEDULES))
        run = found.failure
        if run is not None and run.findings[0].rule in _RULES and not _of_one(run.findings[0]):
            return Lagging(apart, run, warp, lanes)
    return None


def _of_one(finding: Finding) -> bool:
    """Whether two executions of one instruction race: that they leave the same was shown of the
    program as it is, by the names of what they store, and is not of its copies."""
    return finding.rule == "race" and len({p.instruction for p in finding.participants}) == 1


def _choices(violations: Sequence[Violation], warps: int) -> Iterator[tuple[int, int]]:
    """Warps, by their number in the CTA, with some lanes; first those that doubts are about."""
    about = (w.number for d in violations for w in (d.warp, d.other_warp) if w is not None)
    for warp in [*dict.fromkeys((*about, *range(warps)))][:_WARPS]:
        for lanes in _LANES:
            yield warp, lanes
