"""The clusters of a class, told apart by how many repetitions they have made (`Parting`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilesim.sim.grid.follow import Follower
from tilesim.sim.grid.parting import Parting
from tilesim.sim.grid.touches import Mask


@dataclass(frozen=True)
class Apart:
    """Clusters that a run stands for although it made other numbers of repetitions: who follows
    them, and how many instructions and cycles they take more."""

    follower: Follower
    instructions: int
    cycles: float


def told_apart(follower: Follower) -> list[Apart]:
    """The clusters of a class that have made other numbers of repetitions than the one that ran.

    ``follower`` follows only those from now on that have made as many.
    """
    partings, follower.partings = follower.partings, ()
    if not partings:
        return []
    own, *others = _groups(partings, follower.same)
    found = [_apart(follower, which, partings) for which in others]
    what, loc = partings[0].what, partings[0].loc
    for number, apart in enumerate(found):
        left = sum(map(np.count_nonzero, others[number + 1 :]))
        if left:
            apart.follower.departures[what, loc] = int(left)
    follower.leave(~own, what, loc)
    return found


def _groups(partings: tuple[Parting, ...], same: Mask) -> list[Mask]:
    """Those with the same numbers of repetitions, in the order of the first of each; the first that
    takes the same steps at all is the one that was run."""
    more = np.stack([p.more for p in partings], axis=1)
    members = np.flatnonzero(same)
    _, first, names = np.unique(more[members], axis=0, return_index=True, return_inverse=True)
    groups = []
    for name in np.argsort(first).tolist():
        which = np.zeros(len(same), dtype=bool)
        which[members[names.ravel() == name]] = True
        groups.append(which)
    return groups


def _apart(follower: Follower, which: Mask, partings: tuple[Parting, ...]) -> Apart:
    own = int(np.flatnonzero(which)[0])
    more = [(int(p.more[own]), p) for p in partings]
    return Apart(
        follower.part(which),
        sum(n * p.instructions for n, p in more),
        sum(n * p.cycles for n, p in more),
    )
