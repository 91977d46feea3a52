"""What CTAs do once they have drawn a number, if it is the same whichever of them draws it.

A kernel whose last CTA to count does more than the others ("last block", split-K) is to be right
whichever CTA that is. A CTA meets others by its draw alone, so what it does before that is the same
in every order. One CTA is run by itself, told its number, and the others that draw from the word
are followed. If all take the same steps, access from then on the same places, and each such access
comes after all that their own CTA has accessed before, then a run in which one of them is the last
stands for runs in which others are: with all CTAs but that one, for which another run is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.affine.cluster_classes import Follower
from tilesim.sim.affine.cluster_plan import Plan
from tilesim.sim.affine.footprints import Boxes
from tilesim.sim.machine.clock import NEVER
from tilesim.sim.machine.footprint import Access, Footprint
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.schedule import Order
from tilesim.sim.machine.simulate import Simulation

if TYPE_CHECKING:
    from tilesim.sim.machine.machine import Machine


class AfterDraw:
    """Shows a follower what its CTA accesses in global memory after a draw; ``ordered``: each such
    access comes after all that the CTA accessed before it."""

    def __init__(self, machine: Machine, follower: Follower) -> None:
        self._machine = machine
        self._follower = follower
        self._before: list[Access] = []
        self.ordered = True

    def touch(self, memory: Memory, footprint: Footprint, access: Access) -> None:
        """Before the draw, where an access lies is compared with all others in every run."""
        self.ordered = self.ordered and access.may_access is None
        if self._machine.tickets.drawn:
            self._follower.touch(memory, footprint, access)
            self.ordered = self.ordered and self._comes_after_all(access)
        elif memory.tracked:
            self._before.append(access)

    def _comes_after_all(self, access: Access) -> bool:
        """By its own clock, whatever bytes both access, and whichever lanes do."""
        warp, row = access.warp, self._machine.components.size
        clock = warp.part.clock
        one_lane = not access.lanes & (access.lanes - 1)
        return not (access.asynchronous or access.engine) and all(
            record.warp.is_known(clock, row, record.component, record.tick, record.lanes)
            and (
                record.tick <= warp.part.settled.get(record.component, NEVER)
                or (one_lane and record.warp is warp and record.lanes == access.lanes)
            )
            for record in self._before
        )


def accesses_after(
    simulation: Simulation, inputs: Mapping[str, NDArray[Any]], plans: Mapping[int, Plan],
    clusters: Sequence[int], number: int,
) -> list[Boxes] | None:  # fmt: skip
    """What ``clusters`` of one CTA, each by itself, access after they have drawn ``number``; None
    if they take different steps, or an access does not come after all those before the draw.
    ``plans``: what to look at to know that."""
    apart, seen = simulation.apart(), list[AfterDraw]()
    follower = apart.follow(np.array(clusters, dtype=np.int64), plans)

    def watch(machine: Machine) -> None:
        machine.races.observer = AfterDraw(machine, follower)
        seen.append(machine.races.observer)

    apart.watches = watch
    run = apart.run(inputs, lambda cluster: None, [clusters[0]], order=Order(number=number))
    outcome = run.outcomes[0]
    ended = not (run.findings or outcome.cut_off or outcome.undefined)
    same = len(follower.members) == len(clusters) and not follower.trip_counts
    if not (ended and same and seen[-1].ordered) or follower.unseen:
        return None
    every = (*follower.touches.values(), *follower.far.values())
    return [boxes for touches in every for boxes in touches.boxes]


def is_same_in_all_ctas(boxes: Boxes) -> bool:
    """Whether an access lies where it does in all CTAs that are followed."""
    move = boxes.move
    return move.where is None and all(
        bool((by == by[0]).all()) for by in (move.by, move.more) if by is not None
    )
