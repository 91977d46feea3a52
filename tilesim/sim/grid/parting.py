"""Clusters that take the same steps, but make different numbers of repetitions of some of them.

A persistent CTA works on sixteen tiles, its neighbour on fifteen. Where repetitions are skipped
(`tilesim.sim.steady`), each cluster makes as many of them as it makes; what comes after that is the
same again, and is followed for all. So the run of one stands for the others, as if each number
of repetitions had been run: these clusters are told apart as a run of them would have.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from tilesim.ir.loc import Loc
from tilesim.sim.grid.geometry import Integers
from tilesim.sim.grid.touches import Mask
from tilesim.sim.machine.outcome import Outcome


@dataclass(frozen=True)
class Parting:
    """A jump over repetitions, of which each cluster makes ``more`` than the one that is run, with
    so many ``instructions`` and ``cycles`` each; ``what`` and ``loc`` decide how many."""

    more: Integers
    instructions: int
    cycles: float
    what: str
    loc: Loc

    def only(self, kept: Mask) -> Parting:
        """The same, of some of the clusters."""
        return replace(self, more=self.more[kept])


def is_plain(outcome: Outcome) -> bool:
    """Whether a run produced nothing that names a cluster, or that others would have to be run
    for."""
    nothing = Outcome()
    told = ("leaned", "explorable")
    return outcome.explorable and all(
        getattr(outcome, f.name) == getattr(nothing, f.name)
        for f in fields(Outcome)
        if f.name not in told
    )
