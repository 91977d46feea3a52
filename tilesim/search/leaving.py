"""Runs in which all threads of each CTA end where data may make them (`tilesim.sim.leaving`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilesim.sim import certificate
from tilesim.sim.machine.machine import needs
from tilesim.sim.machine.unknown import UnknownSteers
from tilesim.sim.simulate import Run, Simulation


def reasons(simulation: Simulation, first: Run, run: Callable[[Simulation], Run]) -> Iterator[str]:
    """Why nothing is proved of executions in which CTAs end where in the ``first`` run they stay;
    ``run`` makes one of a simulation.

    What goes wrong there may do so for no data, so it is no finding.
    """
    leaves = {t: told for outcome in first.outcomes for t, told in outcome.leaves.items()}
    for turn, (number, value) in leaves.items():
        loc = simulation.code.mir.code[number].loc
        other = run(simulation.leaving(turn))
        doubts = certificate.standing_doubts(other.outcomes)
        for finding in other.findings[:1]:
            yield needs(UnknownSteers(value, finding), "control flow", loc)
        yield from certificate.reasons(other.outcomes, doubts)
        if any(outcome.draws or outcome.asked for outcome in other.outcomes):
            yield needs(UnknownSteers(value), "control flow", loc)
