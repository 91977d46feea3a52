"""Remote asynchronous stores (SEMANTICS D11 to D13)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import numpy_dtype
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.execute.apart import each_lane
from tilesim.sim.execute.combine import COMBINE
from tilesim.sim.execute.compose import OPERATIONS, Effects, Operands
from tilesim.sim.execute.credits import require_initialised, require_live
from tilesim.sim.execute.memory import at_one_place, last_wins
from tilesim.sim.execute.registers import per_lane
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.clock import NEVER
from tilesim.sim.machine.conditions import Credit
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import unknown_at
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.unknown import Unknown


def _applies(effects: Effects) -> bool:
    return any(isinstance(e, fx.RemoteStore) for e in effects)


def _remote_store(c: Operands, op: Op, effects: Effects) -> Step:
    """A store that lands later and then completes its bytes on the peer's mbarrier (D11-D13)."""
    match effects:
        case (fx.RemoteStore() as store, fx.Completes(asynchronous=True) as completes):
            pass
        case _:
            raise TypeError(f"{op.mnemonic}: a remote store completes its bytes on an mbarrier")
    view, mbar, value = c.view(store.view), c.mbar(completes.mbar), c.expr(store.value)
    dtype, real = store.view.dtype, c.real(store.view.tensor)
    combine = None if store.combine is None else COMBINE[store.combine]

    def step(w: Warp) -> None:
        machine, barrier, cta = w.machine, mbar(w), view.cta(w)
        _require_peer(w, op, cta is w.cta and combine is not None, barrier.cta is cta)
        require_live(barrier, w, op)
        assert barrier.engine is not None
        _, footprint, addresses = view.lane_footprint(w)
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
        cells = cta.memory.typed(dtype)
        where = addresses // dtype.bytes
        given = value(w)
        lost = given if isinstance(given, Unknown) else None
        if combine is not None and lost is None:
            lost = unknown_at(cta.memory, addresses, dtype.bytes, op)
        new: NDArray[Any] = np.zeros(0)
        if lost is None:
            new = np.asarray(per_lane(w, given)).astype(numpy_dtype(dtype))
        if footprint.common and combine is None:
            at_one_place(access, footprint, addresses, None if lost else new)
            if lost is None:
                last_wins(w, op, footprint.tensor, addresses, new)
        if combine is not None:
            machine.races.unwritten.note(cta.memory, footprint, access)
        machine.races.write(cta.memory, footprint, access, w.clock)
        machine.peers.note(cta, access)
        issued, lanes = w.clock.copy(), w.lanes
        credit = Credit(w, op, 0, -dtype.bytes * lanes, 0, asynchronous=True, lanes=lanes)

        def land() -> None:
            require_initialised(barrier, op)
            if real and lost is not None:
                cta.memory.forget_at(addresses, dtype.bytes, lost)
            elif real:
                if cta.memory.marks is not None:
                    cta.memory.marks.set_at(addresses, dtype.bytes, None)
                for index, item in zip(where.tolist(), new, strict=True):
                    cells[index] = item if combine is None else combine(cells[index], item)
            barrier.landed.append(access)
            barrier.credit(credit, issued, visible=False)
            machine.changed()

        machine.launch_async(op, w, machine.copy_cycles(0), land)
        w.advance()
        w.effects += 1

    return each_lane(step)


def _require_peer(w: Warp, op: Op, own: bool, together: bool) -> None:
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
    if own:
        raise BarrierError(
            "out-of-bounds", f"{op.mnemonic} to the executing CTA's own shared memory (D12)",
            "use red (an atomic) on the own CTA",
        )  # fmt: skip


OPERATIONS.append((_applies, _remote_store))
