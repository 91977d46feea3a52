"""A run of a program in the order of modelled times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilesim.ir.mir import Mir
from tilesim.ir.program import Program
from tilesim.sim.machine.simulate import Run, Simulation


def timed(
    program: Program | Mir, inputs: Mapping[str, Any] | None = None, *, skips: bool = True
) -> Run:  # fmt: skip
    """The run of the first cluster, and of those that follow it, with what tensors hold; where it
    ``skips``, it leaves repetitions out."""
    simulation = Simulation(program, numbers=False, strict="practice")
    simulation.skips = skips
    return simulation.run(inputs or {}, lambda cluster: None, [0])
