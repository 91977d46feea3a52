"""The cluster barrier (SEMANTICS D.1)."""

from __future__ import annotations

from tilesim.ir.ops.cluster import ClusterArrive, ClusterWait
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.machine.clock import join
from tilesim.sim.machine.mbarrier import BarrierError
from tilesim.sim.machine.named_barrier import Join
from tilesim.sim.machine.warp import Step, Warp
from tilesim.sim.ops.bar import require_converged, wait_for


@RULES.rule(ClusterArrive)
def _arrive(c: Compiler, op: ClusterArrive) -> Step:
    def step(w: Warp) -> None:
        require_converged(w, op, aligned=op.aligned)
        barrier = w.machine.cluster_barrier
        entry = Join(w, op, w.tick, True)
        visible = op.sem == "release"
        generation = barrier.join(entry, None, w.clock, visible=visible)
        if not visible and w.fence_clock is not None:
            size = w.machine.components.size
            join(generation.joined[size:], w.fence_clock[size:])
        w.cluster_round = generation
        w.advance()
        w.effects += 1
        w.machine.changed()

    return step


@RULES.rule(ClusterWait)
def _wait(c: Compiler, op: ClusterWait) -> Step:
    def step(w: Warp) -> bool | None:
        require_converged(w, op, aligned=op.aligned)
        generation = w.cluster_round
        if generation is None:
            raise BarrierError(
                "participation",
                "barrier.cluster.wait without an arrive of this warp in the round (U30)",
                "execute barrier.cluster.arrive before every barrier.cluster.wait",
            )
        blocked = wait_for(w, w.machine.cluster_barrier, generation, op)
        if not blocked:
            w.cluster_round = None
        return blocked

    return step
