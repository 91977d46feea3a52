"""A run that is made again: its follower has seen nothing of the first one."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy

import numpy as np

from tilesim.sim.grid.follow import Follower


def kept(follower: Follower) -> Callable[[], None]:
    """A function that makes a follower forget what it has seen since now."""
    state = copy(vars(follower))
    state["departures"] = dict(follower.departures)
    whole = np.ones(len(follower.clusters), dtype=bool)
    for name in ("touches", "far"):
        state[name] = {key: touches.only(whole) for key, touches in state[name].items()}

    def restore() -> None:
        follower.forget()
        vars(follower).update(state)

    return restore
