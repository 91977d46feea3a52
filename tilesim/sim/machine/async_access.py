"""Asynchronous accesses of lanes to global memory (SEMANTICS D14): each is made by a thread of its
own, which comes after what its lane did before, and with what the lane does next is in no order.

Such a thread is an agent that takes one step. It has what the lane's registers held when the
operation was issued, and a position of its own in clocks: threads that acquire what it releases
know it, the lane that issued it no sooner than others.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from tilesim.ir.op import Op
from tilesim.sim.machine.clock import GENERIC, Clock
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.release import Fences
from tilesim.sim.machine.unknown import require_known


def issue(w: Warp, op: Op, step: Step) -> None:
    """Each active lane issues ``step``, which an agent of its own makes at any later time."""
    if w.perhaps is not None:
        require_known(w.perhaps)
    active = w.mask
    if active & (active - 1) == 0:
        _issue(w, op, step, w.clock.copy())
    elif w.parts is not None:
        try:
            for part in w.parts.shatter(active):
                w.mask = part.mask
                w.act_as(part)
                _issue(w, op, step, w.clock.copy())
        finally:
            w.mask = active
        w.regroup()
    else:
        known = w.shared_by_lanes(w.clock)
        try:
            for lane in np.flatnonzero(mask_array(active)).tolist():
                w.mask = 1 << lane
                _issue(w, op, step, known.copy())
        finally:
            w.mask = active
    w.advance()
    w.effects += 1


def _issue(w: Warp, op: Op, step: Step, clock: Clock) -> None:
    """One lane of ``w`` issues an operation that knows ``clock``."""
    machine = w.machine
    one = _agent(w, op, clock)
    machine.races.async_agents.append(one)

    def land() -> None:
        machine.races.async_agents.remove(one)
        step(one)
        one.exited = True

    operation = machine.launch_async(op, w, machine.copy_cycles(0), land)
    one.key, one.index = operation.key, operation.index


def _agent(w: Warp, op: Op, clock: Clock) -> Warp:
    """The thread that carries out what the active lane of ``w`` issues."""
    machine = w.machine
    component = _position(w, op)
    tick = w.async_ticks[component] = w.async_ticks[component] + 1
    clock[component] = clock[GENERIC * machine.components.size + component] = tick
    one = copy(w)
    one.base = one.component = component
    one.origin, one.clock, one.fences = one, clock, Fences()
    one.parts = one.part = one.spread = one.inits = one.tcgen05 = None
    one.frames, one.laps, one.looks, one.arrivals = [], {}, {}, []
    one.settled = {component: tick}
    one.followed, one.gathered, one.marks, one.moments = {}, {}, {}, {}
    one.exchanges = one.diverged = False
    one.alone = one.left = one.turn = one.apart = one.executed = 0
    one.registers = [*w.registers]
    one.async_ticks = {}
    return one


def _position(w: Warp, op: Op) -> int:
    """A component for the next thread of ``w``: one of which ``w`` knows that the last thread that
    had it is through. Where there is none left, it shares one: knowing the later of the two then
    counts as knowing the earlier one as well."""
    size, known = w.machine.components.size, w.clock.item
    for component, tick in w.async_ticks.items():
        if known(component) >= tick and known(GENERIC * size + component) >= tick:
            return component
    what = f"which of more than {len(w.async_ticks)} operations that are under way are made"
    w.machine.nondeterministic(what, op, explorable=False)
    return min(w.async_ticks, key=w.async_ticks.__getitem__)
