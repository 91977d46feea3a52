"""What every operation that counts on an mbarrier asks of it (SEMANTICS A.1)."""

from __future__ import annotations

from tilesim.ir.op import Op
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.misuse import BarrierError


def require_live(barrier: Mbarrier, warp: Warp, op: Op) -> None:
    """Raises unless ``barrier`` is initialised, visibly to ``warp`` (A6, A7)."""
    if not barrier.live:
        if barrier.ended is not None:
            raise BarrierError(
                "barrier-lifetime",
                f"{op.mnemonic} on {barrier.label} after its mbarrier.inval (A6)",
                "invalidate a barrier only after its last use, and synchronise in between",
                barrier.ended,
            )
        raise BarrierError(
            "uninitialised-barrier",
            f"{op.mnemonic} on {barrier.label}, which has not been initialised yet (A6)",
            "initialise it in one thread and synchronise (__syncthreads, or a cluster barrier "
            "after fence.mbarrier_init) before any other use",
        )
    if warp.index not in barrier.visible_to:
        barrier.check_visible(warp, op)
