"""Instructions whose lanes name objects of their own: once for all lanes, or lane by lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from tilesim.sim.machine.errors import NotUniform
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Step, Warp

#: what tells lanes apart
Key = TypeVar("Key", int, tuple[int, tuple[int, ...]])


def in_groups(w: Warp, keys: Sequence[Key], act: Callable[[Key], object]) -> None:
    """``act`` once for each of the ``keys`` of the active lanes, in those lanes that have it.

    What they learn they know for themselves, up to where they meet.
    """
    different = sorted(set(keys))
    if len(different) <= 1:
        for key in different:
            act(key)
        return
    # a warp whose lanes may name different ones has parts (`tilesim.ir.splitting`)
    assert w.parts is not None
    active = w.mask
    lanes = np.flatnonzero(mask_array(active)).tolist()
    w.machine.outcome.explorable = False
    try:
        for key in different:
            mask = sum(1 << lane for lane, own in zip(lanes, keys, strict=True) if own == key)
            for part in w.parts.divide(mask):
                w.mask = part.mask
                w.act_as(part)
                act(key)
    finally:
        w.mask = active
    w.regroup()


def lane_by_lane(w: Warp, step: Step) -> None:
    """``step`` in each lane, which then has a clock of its own until the lanes meet."""
    assert w.parts is not None
    active = w.mask
    try:
        for part in w.parts.shatter(active):
            w.mask = part.mask
            w.act_as(part)
            step(w)
    finally:
        w.mask = active
    w.regroup()


def each_lane(step: Step, *, signals: bool = False) -> Step:
    """``step`` once for all lanes, or lane by lane where each names a barrier of its own.

    ``step`` evaluates its operands before it does anything else. No lane comes after another one:
    all publish what the warp knew before, and what they do is known when the instruction is over.
    ``signals``: other agents can see what is between the lanes, and no move of the machine shows.
    """

    def lanes(w: Warp) -> None:
        try:
            step(w)
        except NotUniform:
            active = w.mask
            w.machine.look_at_clock()
            if signals:
                w.machine.outcome.explorable = False
            if signals and w.parts is not None:
                lane_by_lane(w, step)
                return
            w.apart = 1
            try:
                for lane in np.flatnonzero(mask_array(active)).tolist():
                    w.mask = 1 << lane
                    before = w.tick
                    step(w)
                    w.retreat(before)
            finally:
                w.mask, w.apart = active, 0
            w.advance()

    return lanes
