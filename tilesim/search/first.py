"""The first run of a check: of all clusters, or of those that stand for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tilesim.search import extent
from tilesim.search.survey import MANY, Survey, Surveyed
from tilesim.sim import certificate
from tilesim.sim.machine.machine import TakesLong
from tilesim.sim.simulate import Run, Simulation

#: instructions that all clusters together have at most if none of them is to stand for others,
#: and if none does where that leaves anything open; and warp instructions that they then make at
#: most, skipped ones included
_SHORT, _LONG, PATIENCE = 1_280, 16_384, 65_536


@dataclass(frozen=True)
class First:
    """The timed run, of which clusters; what `Surveyed` says of all."""

    run: Run
    clusters: list[int]
    extent: str
    left_open: tuple[str, ...] = ()


def first_run(
    simulation: Simulation, inputs: Mapping[str, NDArray[Any]], clusters: list[int],
    run: Callable[[list[int], int | None], Run], begun: Callable[[Survey | None], None],
) -> First:  # fmt: skip
    """The timed run of ``clusters``, which are all.

    If they have many instructions one of each class is run, as that is faster; all of them where
    this finds anything, or leaves anything open, and they are few enough.

    Args:
        run: runs some clusters, unless they take longer than one has patience for.
        begun: is told the survey that is made, and that there is none any more.
    """
    short = all_are_run(simulation) or len(clusters) == 1
    if short:
        with suppress(TakesLong):
            return _all(simulation, clusters, run)
    survey = Survey(simulation, inputs, lambda some: run(some, None))
    begun(survey)
    found = survey.look()
    if not short and _have_at_most(simulation, _LONG) and not _tells_all(found):
        followers, simulation.followers = simulation.followers, {}
        with suppress(TakesLong):
            every = _all(simulation, clusters, run)
            begun(None)
            return every
        simulation.followers = followers
    return First(found.run, found.clusters, found.extent, found.left_open)


def all_are_run(simulation: Simulation) -> bool:
    """Whether no cluster has to stand for others, unless loops take long."""
    return _have_at_most(simulation, _SHORT)


def _have_at_most(simulation: Simulation, instructions: int) -> bool:
    clusters = simulation.groups
    return clusters <= MANY and clusters * len(simulation.code.mir.code) <= instructions


def _all(
    simulation: Simulation, clusters: list[int], run: Callable[[list[int], int | None], Run]
) -> First:
    patience = PATIENCE if len(clusters) > 1 else None
    return First(run(clusters, patience), clusters, extent.whole(simulation))


def _tells_all(surveyed: Surveyed) -> bool:
    """Whether nothing is wrong with those that were run, and all are proved by them."""
    outcomes = surveyed.run.outcomes
    doubts = certificate.standing_doubts(outcomes)
    open_ = surveyed.left_open or certificate.reasons(outcomes, doubts)
    return not surveyed.run.findings and not open_
