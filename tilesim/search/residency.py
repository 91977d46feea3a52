"""Launches that are not cooperative: clusters start in any order, one at a time if need be.

Nothing more is promised than that a cluster that runs goes on (SEMANTICS 0.4a). So a cluster must
be able to end before any other has started. If each can, and one run proves the schedules in which
all are resident, then each wait needs only what its own cluster does, and passes whoever is
resident. Where it is up to the schedule what a cluster waits for, no run with one resident at a
time shows that; see `tilesim.sim.explore`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from tilesim.search.survey import Survey
from tilesim.sim.findings import Finding
from tilesim.sim.schedule import ResidentEnvironment
from tilesim.sim.simulate import Run, Simulation

#: why exploring the schedules of all clusters together is not enough
ANY_ORDER = (
    "clusters wait for each other; which of them are resident together is up to the hardware, as "
    "the launch is not cooperative (0.4a)"
)


@dataclass(frozen=True)
class Residency:
    """``failing``: the run in which cluster ``first`` is resident first, if one fails; else why
    that is not known of all clusters."""

    runs: int
    failing: Run | None = None
    first: int = 0
    left_open: tuple[str, ...] = ()


def matters(simulation: Simulation) -> bool:
    """Whether clusters may wait for others that have not been started."""
    return simulation.together and not simulation.program.cooperative


def one_at_a_time(simulation: Simulation, inputs: Mapping[str, NDArray[Any]]) -> Residency:
    """Runs each cluster as if the others had not been started, then all one after another."""
    apart = simulation.apart()
    alone = Survey(apart, inputs, lambda some: apart.run(inputs, lambda cluster: None, some))
    surveyed = alone.look(apart=True)
    first = surveyed.clusters[0] if surveyed.run.findings else 0
    run = simulation.run_in(ResidentEnvironment(first), 0, inputs)
    if run.findings:
        findings = tuple(map(_not_resident, run.findings))
        return Residency(len(surveyed.clusters) + 1, replace(run, findings=findings), first)
    left_open = surveyed.left_open
    if surveyed.run.findings:
        left_open = (f"cluster {first} fails by itself: {surveyed.run.findings[0].message}",)
    return Residency(len(surveyed.clusters) + 1, left_open=left_open)


def _not_resident(finding: Finding) -> Finding:
    if finding.rule != "deadlock":
        return finding
    note = "only one cluster is resident here: without a cooperative launch, CTAs of other"
    return replace(
        finding,
        notes=(*finding.notes, f"{note} clusters need not run before these exit (0.4a)"),
        fix="launch cooperatively (k.launch(cooperative=True)) if all CTAs fit on the device, or "
        "do not wait for other clusters",
    )
