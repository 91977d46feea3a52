"""Elements of vectors that acquire or release: none of them orders another (SEMANTICS H15).

PTX makes of a vector access as many accesses of one element, in no order. So what each element
releases is what its thread knew before the whole vector, and its own store; what they acquire, the
thread knows after the last one. All stores of a vector are made in one interval of their thread,
and what an element tells of its own is told at a component of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tilesim.sim.machine.clock import GENERIC, Clock, join
from tilesim.sim.machine.release import Released, mutual

if TYPE_CHECKING:
    from tilesim.ir.ops.fence import FenceScope
    from tilesim.sim.machine.agent import Agent

#: which one of how many
Element: TypeAlias = tuple[int, int]


def begins(element: Element) -> bool:
    """Whether it is the first one."""
    return element[0] == 0


def ends(element: Element) -> bool:
    """Whether it is the last one."""
    return element[0] == element[1] - 1


def position(warp: Agent, element: Element) -> tuple[int, int]:
    """The component that publishes the store of an element, and the tick."""
    return warp.elements[warp.component][element[0]], warp.tick


def published(warp: Agent, element: Element, *, own: bool) -> Clock:
    """What the store of an element releases: no other store of its vector; ``own``: itself."""
    clock, size = warp.clock.copy(), warp.machine.components.size
    before = clock[warp.component :: size]
    np.minimum(before, warp.tick - 1, out=before)
    if own:
        component, tick = position(warp, element)
        clock[component] = clock[GENERIC * size + component] = tick
    return clock


def gather(released: Released, warp: Agent, scope: FenceScope) -> None:
    """An element has read what is ``released`` at its address, which is learned at the end; of what
    is not morally strong, only that the read comes after it in time."""
    size = warp.machine.components.size
    for (sent, cta), clock in released.items():
        known = clock.copy()
        if not mutual(scope, warp.cta, sent, cta):
            known[size:] = 0
        warp.fences.gather(known)


def acquire(warp: Agent) -> None:
    """The last element has been read: the thread learns what all of them have found."""
    clock = warp.fences.gathered()
    if clock is not None:
        warp.follows(clock)
        join(warp.clock, clock)
