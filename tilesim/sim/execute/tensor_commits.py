"""Completion and order of operations on tensor memory (SEMANTICS G22 to G28)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.execute.apart import each_lane
from tilesim.sim.execute.compose import OPERATIONS, Act, Effects, Operands, executor
from tilesim.sim.execute.credits import require_initialised, require_live
from tilesim.sim.execute.tensor_memory import issuer_of
from tilesim.sim.execute.transfers import destinations
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.clock import NEVER
from tilesim.sim.machine.conditions import Credit
from tilesim.sim.machine.cta import Cta
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.memory import uniform
from tilesim.sim.machine.tmem import ORDER

#: cycles from the end of the last tracked operation to the arrival of a commit
_COMMIT_LATENCY = 20


@executor(fx.OrdersTmem)
def _orders(c: Operands, op: Op, effect: fx.OrdersTmem) -> Act:
    def after(w: Warp) -> None:
        issuer, _ = issuer_of(w)
        issuer.see(w.mask, w.clock[: w.machine.components.size].copy())

    return Act(_publish_order if effect.before else after)


def _publish_order(w: Warp) -> None:
    """What is handed over next includes the order of what these lanes have issued, or know of, and
    the loads and stores that are complete (G22, G23)."""
    for kind in ("tcgen05.ld", "tcgen05.st"):
        group = w.groups.get(kind)
        if group is not None:
            w.clock[group.component] = group.done
    order = w.groups.get(ORDER)
    if order is None:
        return
    issuer, _ = issuer_of(w)
    if all(lanes & w.mask or _knows(w, lanes, *at) for lanes, at in issuer.latest.items()):
        w.clock[order.component] = order.opened
    for lane, own in issuer.own.items():
        if lane & w.mask:
            w.clock[own.order] = own.count


def _knows(w: Warp, lanes: int, component: int, tick: int) -> bool:
    """Whether the active lanes know what others of their warp did at a tick."""
    size = w.machine.components.size
    if w.clock[size + component] >= tick:
        return True
    return w.parts is not None and w.parts.lanes_known(w.clock, size, component, tick, lanes)


def _commits(effects: Effects) -> bool:
    return any(isinstance(e, fx.Commits) and e.group == "tcgen05" for e in effects)


def _commit(c: Operands, op: Op, effects: Effects) -> Step:
    """An arrival when what the thread has issued is complete, which implies the fence before."""
    match effects:
        case (fx.Commits(), fx.Arrives(asynchronous=True, mbar=tracked, multicast=ctas)):
            mbar, mask = c.mbar(tracked), None if ctas is None else c.expr(ctas)
        case _:
            raise TypeError(f"{op.mnemonic}: a group of tcgen05 is complete when it has arrived")

    def step(w: Warp) -> None:
        barrier = mbar(w)
        chosen = None if mask is None else uniform(mask(w), w)
        places = destinations(w, op, w.machine.ctas[barrier.cta.index], barrier, chosen)
        group = w.groups["tcgen05"]
        issuer, _ = issuer_of(w)
        _publish_order(w)
        issued = w.clock.copy()
        for lane in range(32):
            if not w.mask >> lane & 1:
                continue
            own = issuer.own.get(1 << lane)
            tracked = [(group.component, issuer.tracked(lane))]
            if own is not None:
                tracked.append((own.component, own.count))
            for cta, arrived in places:
                require_live(arrived, w, op)
                _signal(w, op, cta, arrived, tracked, issued)
        w.advance()
        w.effects += 1

    return each_lane(step, signals=True)


OPERATIONS.append((_commits, _commit))


def _signal(
    w: Warp, op: Op, cta: Cta, barrier: Mbarrier, tracked: list[tuple[int, int]],
    issued: NDArray[np.int64],
) -> None:  # fmt: skip
    """One arrival when so many operations of each component are complete (G26)."""
    machine = w.machine
    issuer, _ = issuer_of(w)
    access = Access(w, op, barrier.component, NEVER, True, True)
    if cta is not w.cta:
        machine.peers.note(cta, access)
    credit = Credit(w, op, 1, 0, 0, asynchronous=True)

    remote, waits = cta is not w.cta, machine.timed and any(count for _, count in tracked)
    completions = [_completion(barrier, *one, remote=remote) for one in tracked]

    def land() -> None:
        require_initialised(barrier, op)
        for publish in completions:
            publish()
        barrier.landed.append(access)
        barrier.credit(credit, issued, visible=False)
        machine.changed()

    pending = max(0.0, issuer.finish - machine.env.now) if waits else 0.0
    machine.launch_async(op, w, pending + _COMMIT_LATENCY, land)


def _completion(
    barrier: Mbarrier, component: int, count: int, *, remote: bool
) -> Callable[[], None]:
    """What tells those who wait that so many operations of a component are complete."""
    return lambda: barrier.publish_completion(component, count, remote=remote)
