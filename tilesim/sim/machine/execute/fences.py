"""Fences: of a thread's own accesses, and between proxies (SEMANTICS H.3, H.5)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilesim.analysis.relaxed import uses_fences_after
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.machine.clock import GENERIC, GLOBAL, HALF, SHARED, Clock, join
from tilesim.sim.machine.compose import Act, executor, in_groups
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.operands import Operands

_ROWS: dict[fx.Side, int] = {
    "generic": GENERIC, "async.shared": SHARED, "async.global": GLOBAL, "half": HALF,
}  # fmt: skip


def _learn(w: Warp, source: int, row: int) -> None:
    size = w.machine.components.size
    join(w.clock[row * size : (row + 1) * size], w.clock[source * size : (source + 1) * size])


def _row(w: Warp, side: fx.Side) -> int:
    """The row of the warp's clock; shared memory of one CTA has rows where that matters (H9)."""
    rows = w.machine.components
    match side:
        case "async.own":
            return rows.own_row(w.cta.rank) if rows.own else SHARED
        case "half.own":
            return rows.own_half(w.cta.rank) if rows.own else HALF
        case _:
            return _ROWS[side]


@executor(fx.Crosses)
def _crosses(c: Operands, op: Op, effect: fx.Crosses) -> Act:
    source, targets = effect.source, effect.targets

    def step(w: Warp) -> None:
        if source == "half":
            rows = w.machine.components
            for rank in range(rows.own):
                _learn(w, rows.own_half(rank), rows.own_row(rank))
        in_shared = source == "generic" and w.machine.components.in_shared
        for target in targets:
            _learn(w, _row(w, source), _row(w, target))
            if in_shared and target != "async.global":
                _learn(w, w.machine.components.in_shared_row, _row(w, target))
        # what the warp does after the fence is not covered by it
        w.advance()

    return Act(step)


def lean_on_fences(w: Warp, op: Op) -> None:
    """At ``op`` threads of a warp are handed what others have fenced, as in practice (H3): notes it
    where they may use that."""
    if op.number in uses_fences_after(w.machine.plan.mir):
        w.machine.lean("H3", op)


def _hand_over_inits(w: Warp) -> None:
    """What a fence gives to a later arrive at the cluster barrier: that mbarriers exist (D6)."""
    assert w.inits is not None
    made = w.machine.components.clock()
    w.components.rows(made, w.inits.component)[GENERIC] = w.inits.made_by(w.mask)
    w.fences.hand_over("cluster", made)


def _by_observers(w: Warp, fence: Callable[[Warp], None], *, acquires: bool) -> None:
    """A fence, in the lanes that have observed something apart from those that have not (H3)."""
    observers = w.fences.observers if acquires else []
    lanes = [lane for lane in range(32) if w.mask >> lane & 1]
    keys = [sum((mask >> lane & 1) << n for n, mask in enumerate(observers)) for lane in lanes]
    in_groups(w, keys, lambda _: fence(w))


def _of_own_memory(w: Warp) -> Clock:
    """What a releasing fence for the shared memory of its CTA hands over: what threads of the CTA
    have done there, and which copies there are complete (H18)."""
    components = w.machine.components
    known = components.of_shared(w.clock)
    rows = known.reshape(-1, components.size)
    rows[components.in_shared_row] = 0
    others = np.ones(components.size, dtype=np.bool_)
    others[w.cta.components] = False
    rows[components.of_owners_row, others] = 0
    return known


@executor(fx.Orders)
def _orders(c: Operands, op: Op, effect: fx.Orders) -> Act:
    acquires, releases, scope = effect.acquires, effect.releases, effect.scope
    if effect.inits:
        return Act(_hand_over_inits)
    if not (acquires or releases):
        raise TypeError(f"{op.mnemonic} orders nothing that a thread has released or acquired")

    if effect.in_shared:

        def in_shared(w: Warp) -> None:
            if acquires:
                w.fences.acquire_in_shared(w.cta, w.clock, w.machine.components)
            if releases:
                w.fences.release_in_shared(_of_own_memory(w))
                w.advance()

        return Act(lambda w: _by_observers(w, in_shared, acquires=acquires))

    def step(w: Warp) -> None:
        if acquires:
            w.fences.acquire(scope, w.cta, w.clock)
        if releases:
            w.fences.release(scope, w.clock)
            w.advance()
        if effect.sc and w.machine.views is not None:
            w.machine.views.fence(w, scope)

    return Act(lambda w: _by_observers(w, step, acquires=acquires))
