"""A run in which ``elect.sync`` chooses another lane than in the others (SEMANTICS E12).

By the text any lane may be chosen. The machine takes the last one at `ptx`; where which one may
matter, a check proves nothing, and tries the first one, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tilesim.ir.elected import depends_on_elected
from tilesim.sim import certificate
from tilesim.sim.simulate import Run, Simulation


@dataclass(frozen=True)
class FirstLane:
    """The timed ``run`` of a ``simulation`` whose elections choose the first lane."""

    simulation: Simulation
    run: Run

    @property
    def told(self) -> dict[str, Any]:
        """What a witness says of it."""
        return {"first_lane": True}

    def __str__(self) -> str:
        return "elect.sync chooses the first lane"


def first_lane(
    simulation: Simulation, inputs: Mapping[str, NDArray[Any]], clusters: list[int]
) -> tuple[int, FirstLane | None]:
    """How many runs were made, none if it would not differ from that with the last lane; and the
    one that fails."""
    if not (simulation.options.ptx and depends_on_elected(simulation.code.graph)):
        return 0, None
    other = simulation.electing_first()
    run = certificate.annotate(other.run(inputs, lambda cluster: None, clusters))
    return 1, FirstLane(other, run) if run.findings else None
