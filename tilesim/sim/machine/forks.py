"""Lanes of a warp that go on as an agent of their own, from a branch to where its lanes meet."""

from __future__ import annotations

from tilesim.sim.machine.machine import Warp
from tilesim.sim.schedule import Move


def fork(warp: Warp, lanes: int, pc: int) -> None:
    """``lanes`` of ``warp``, which a branch has split off, go on at ``pc``."""
    machine = warp.machine
    other = warp.fork(lanes, pc)
    machine.forks.append(other)
    if machine.trace is not None:
        machine.trace.steps[-1].spawned.append(other.key)
    Move(machine.env, other.run, 0, other)


def end(warp: Warp) -> None:
    """Such lanes have come to where the lanes of the branch meet; the last let the rest go on."""
    machine, parent = warp.machine, warp.frames[-1].parent
    assert parent is not None
    parent.running -= 1
    warp.origin.executed += warp.executed
    machine.forks.remove(warp)
    if not parent.running and parent.waiter is not None:
        waiter, parent.waiter = parent.waiter, None
        machine.wake(waiter)


def lanes_exit(warp: Warp, lanes: int) -> None:
    """``lanes`` of ``warp`` have ended: barriers do not wait for them."""
    origin = warp.origin
    for agent in (origin, *(f for f in warp.machine.forks if f.origin is origin)):
        agent.exited_lanes |= lanes
    for barrier in (*warp.cta.named.values(), warp.cta.cluster.barrier):
        if barrier is not None:
            barrier.lanes_left(origin)
