"""Recorded runs: `record` runs a program under the timed policy.

`tilesim.witness.retrace` repeats a witness.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tilesim.ir.mir import Mir
from tilesim.ir.program import Program, Strict
from tilesim.sim.findings import Finding
from tilesim.sim.recorder import recorded, timeline_of
from tilesim.sim.schedule import TimedEnvironment
from tilesim.sim.simulate import Run, Simulation, Stats, check_inputs, kernel_of
from tilesim.sim.timeline import LIMIT, Timeline


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
        simulation.cut_off_at(steps)
    count = min(clusters, simulation.groups)
    environments = [(index, recorded(TimedEnvironment(), limit)) for index in range(count)]
    run = simulation.run_on(checked, [*environments])
    return Recording.of(run, (timeline_of(env) for _, env in environments))
