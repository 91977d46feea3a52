"""Remote asynchronous stores (SEMANTICS D11 to D13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.expr import Expr
from tilesim.ir.memory import Mbar, View
from tilesim.ir.ops.cluster import (
    RedAsync,
    StAsync,
)
from tilesim.ir.types import numpy_dtype
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.execute.apart import each_lane
from tilesim.sim.execute.combine import COMBINE
from tilesim.sim.execute.credits import require_live
from tilesim.sim.execute.registers import per_lane
from tilesim.sim.latency import COPY_LATENCY
from tilesim.sim.machine.access import NEVER, Access
from tilesim.sim.machine.conditions import Credit
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.misuse import BarrierError


def _remote_store(
    c: Compiler, op: StAsync | RedAsync, dst: View, source: Expr, mbarrier: Mbar,
    combine: Callable[[Any, Any], Any] | None,
) -> Step:  # fmt: skip
    """A store that lands later and then completes its bytes on the peer's mbarrier (D11-D13)."""
    view, mbar, value = c.view(dst), c.mbar(mbarrier), c.expr(source)
    dtype, real = dst.dtype, c.real(dst.tensor)

    def step(w: Warp) -> None:
        machine, barrier, cta = w.machine, mbar(w), view.cta(w)
        _require_peer(w, op, cta is w.cta, barrier.cta is cta)
        require_live(barrier, w, op)
        assert barrier.engine is not None
        footprint, addresses = view.lane_footprint(w)
        access = Access(
            w,
            op,
            barrier.engine,
            NEVER,
            False,
            True,
            scope=None if combine is None else "cluster",
            engine=True,
            lanes=w.mask,
            among=w.mask,
        )
        machine.races.write(cta.memory, footprint, access, w.clock)
        machine.peers.note(cta, access)
        cells = cta.memory.typed(dtype)
        where = addresses // dtype.bytes
        new: NDArray[Any] = np.asarray(per_lane(w, value(w))).astype(numpy_dtype(dtype))
        issued, lanes = w.clock.copy(), w.lanes

        def land() -> None:
            require_live(barrier, w, op)
            if real:
                for index, item in zip(where.tolist(), new, strict=True):
                    cells[index] = item if combine is None else combine(cells[index], item)
            barrier.landed.append(access)
            credit = Credit(w, op, 0, -dtype.bytes * lanes, 0, asynchronous=True, lanes=lanes)
            barrier.credit(credit, issued, visible=False)
            machine.changed()

        machine.launch_async(op, w, COPY_LATENCY, land)
        w.advance()
        w.effects += 1

    return each_lane(step)


def _require_peer(w: Warp, op: StAsync | RedAsync, own: bool, together: bool) -> None:
    if not together:
        raise BarrierError(
            "out-of-bounds", f"{op.mnemonic}: destination and mbarrier are in different CTAs (D11)",
            "name the same CTA rank for both",
        )  # fmt: skip
    if len(w.cta.cluster.ctas) == 1:
        raise BarrierError(
            "out-of-bounds", f"{op.mnemonic} in a cluster of one CTA (D11)",
            "launch clusters of at least two CTAs, or use an ordinary store",
        )  # fmt: skip
    if own and isinstance(op, RedAsync):
        raise BarrierError(
            "out-of-bounds", f"{op.mnemonic} to the executing CTA's own shared memory (D12)",
            "use red (an atomic) on the own CTA",
        )  # fmt: skip


@RULES.rule(StAsync)
def _st_async(c: Compiler, op: StAsync) -> Step:
    return _remote_store(c, op, op.dst, op.value, op.mbar, None)


@RULES.rule(RedAsync)
def _red_async(c: Compiler, op: RedAsync) -> Step:
    return _remote_store(c, op, op.dst, op.value, op.mbar, COMBINE[op.op])
