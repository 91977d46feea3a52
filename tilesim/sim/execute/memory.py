"""Accesses of lanes to memory through the generic proxy (SEMANTICS H.1, H.2, H15)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import numpy_dtype
from tilesim.ir import effects as fx
from tilesim.ir.expr import Expr
from tilesim.ir.op import Op
from tilesim.sim.execute import whole
from tilesim.sim.execute.combine import COMBINE
from tilesim.sim.execute.compose import Act, Give, Operands, Take, executor
from tilesim.sim.machine.access import ONE_OF_SEVERAL, Access
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.lanes import mask_array
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.memory import ViewAccess, unknown_at
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.race_text import several_lanes
from tilesim.sim.machine.storage import Memory
from tilesim.sim.machine.unknown import Unknown


def last_wins(
    w: Warp, op: Op, tensor: str, addresses: NDArray[np.int64], values: NDArray[Any]
) -> None:
    """Notes that lanes leave different values at one address: which one stays, nobody knows."""
    if tensor not in w.machine.plan.flow.steering:
        return
    left: dict[int, Any] = {}
    for address, new in zip(addresses.tolist(), values.tolist(), strict=True):
        if left.setdefault(address, new) != new:
            what = f"which lane's value stays in {tensor}"
            w.machine.nondeterministic(what, op, explorable=False)
            return


def at_one_place(
    access: Access, footprint: Footprint, addresses: NDArray[np.int64], values: Any
) -> None:
    """Lanes of one weak store that write the same bytes, in no order (H4).

    In practice one of them stays, as CUDA's guide says: no race as long as only they do that, and
    if the ``values``, where they are known, differ, no other store is the same (H23).
    """
    machine = access.warp.machine
    lanes = np.flatnonzero(mask_array(access.lanes))
    pieces = addresses.reshape(len(lanes), -1)
    rows = None if values is None else np.reshape(values, pieces.shape)
    left: dict[int, int] = {}
    for i, address in enumerate(pieces[:, 0].tolist()):
        first = left.setdefault(address, i)
        if first == i:
            continue
        if machine.options.ptx:
            several_lanes(footprint, access, int(lanes[first]), int(lanes[i]))
            return
        if rows is not None and (rows[first] != rows[i]).any():
            access.stored = ONE_OF_SEVERAL
    machine.lean("H23", access.op)


class _Lanes:
    """What each lane accesses: neighbouring elements, at a multiple of their size."""

    def __init__(self, c: Operands, op: Op, effect: fx.Reads | fx.Writes) -> None:
        if effect.asynchronous or effect.proxy != "generic":
            raise TypeError(f"{op.mnemonic}: only accesses of lanes have an executor")
        if effect.sem != "weak" and not effect.elsewhere:
            raise TypeError(f"{op.mnemonic}: strong accesses of lanes have no executor")
        self.op = op
        self.view: ViewAccess = c.view(effect.view)
        self.dtype = effect.view.dtype
        self.size = effect.view.size
        #: of memory that other devices share: what is handed over there, this one cannot tell (H22)
        self.scope = None if effect.sem == "weak" else effect.scope
        self._limit = (1 << effect.lanes) - 1

    def access(self, w: Warp, mask: int, *, write: bool) -> Access:
        """The access of some lanes."""
        return Access(
            w, self.op, w.component, w.tick, False, write, self.scope, lanes=mask, among=mask
        )

    def masks(self, w: Warp) -> Iterator[int]:
        """The lanes that access the memory of one CTA."""
        mask = w.mask & self._limit
        if not mask:
            return
        peers = self.view.peers(w)
        for one in [mask] if peers is None else [m & mask for m in peers.values()]:
            if one:
                yield one

    def places(self, w: Warp) -> tuple[Memory, Footprint, NDArray[np.int64]]:
        """What the active lanes access: memory, footprint and addresses, (lanes, elements)."""
        memory, footprint, flat = self.view.lane_footprint(w)
        addresses = flat.reshape(-1, self.size)
        nbytes = self.size * self.dtype.bytes
        if footprint.vector != nbytes:
            self._require_vectors(footprint, addresses, nbytes)
            footprint.vector = nbytes
        return memory, footprint, addresses

    def _require_vectors(
        self, footprint: Footprint, addresses: NDArray[np.int64], nbytes: int
    ) -> None:
        """What each lane accesses is one piece, at a multiple of its size (H15)."""
        first = addresses[:, :1]
        if (addresses != first + np.arange(self.size) * self.dtype.bytes).any():
            raise BarrierError(
                "out-of-bounds",
                f"{self.op.mnemonic} of elements of {footprint.tensor} that are not neighbours in "
                "memory: a vector is one piece (H15)",
                "access them one by one",
            )
        if (first % nbytes).any():
            wrong = int(first[first % nbytes != 0][0])
            raise BarrierError(
                "out-of-bounds",
                f"{self.op.mnemonic} at byte {wrong} of {footprint.tensor}: {nbytes} bytes at once "
                f"need an address that is a multiple of {nbytes} (H15)",
                "align the tensor, its rows and the index",
            )


@contextmanager
def _as(w: Warp, mask: int) -> Iterator[None]:
    active, w.mask = w.mask, mask
    try:
        yield
    finally:
        w.mask = active


@executor(fx.Reads)
def _reads(c: Operands, op: Op, effect: fx.Reads) -> Give | Act:
    if whole.is_whole(effect):
        return whole.read(c, op, effect)
    lanes = _Lanes(c, op, effect)
    dtype, size = lanes.dtype, lanes.size

    def read(w: Warp) -> NDArray[Any] | Unknown:
        whole = np.zeros((32, size), numpy_dtype(dtype))
        lost: Unknown | None = None
        for mask in lanes.masks(w):
            with _as(w, mask):
                memory, footprint, addresses = lanes.places(w)
                access = lanes.access(w, mask, write=False)
                w.machine.races.read(memory, footprint, access, w.clock)
                if lost is None:
                    lost = unknown_at(memory, addresses, dtype.bytes, op)
                whole[mask_array(mask)] = memory.typed(dtype)[addresses // dtype.bytes]
        return whole if lost is None else lost

    return Give(effect.view, read)


@executor(fx.Writes)
def _writes(c: Operands, op: Op, effect: fx.Writes) -> Take | Act:
    if whole.is_whole(effect):
        return whole.write(c, op, effect)
    lanes = _Lanes(c, op, effect)
    dtype, real = lanes.dtype, c.real(effect.view.tensor)
    combine = None if effect.combine is None else COMBINE[effect.combine]
    # what has no data is one write of the whole warp
    gathers = any(isinstance(e, fx.Gathers) for e in op.effects())
    plain = combine is None and effect.sem == "weak" and not (gathers and not op.data)
    together = plain and gathers

    def write(w: Warp, rows: NDArray[Any] | Unknown | None) -> None:
        for mask in lanes.masks(w):
            with _as(w, mask):
                memory, footprint, addresses = lanes.places(w)
                access = lanes.access(w, mask, write=True)
                lost = rows if isinstance(rows, Unknown) else None
                told = None if rows is None or lost is not None else rows[mask_array(mask)]
                if footprint.common and plain:
                    at_one_place(access, footprint, addresses, told)
                if together and told is not None and access.stored is None:
                    access.stored = footprint, told.tobytes()
                w.machine.races.write(memory, footprint, access, w.clock)
                if combine is not None and lost is None:
                    lost = unknown_at(memory, addresses, dtype.bytes, op)
                if real and lost is not None:
                    memory.forget_at(addresses, dtype.bytes, lost)
                elif rows is not None and not isinstance(rows, Unknown):
                    if memory.marks is not None:
                        memory.marks.set_at(addresses, dtype.bytes, None)
                    values = rows[mask_array(mask)].astype(numpy_dtype(dtype))
                    cells, places = memory.typed(dtype), addresses // dtype.bytes
                    if combine is None:
                        last_wins(w, op, footprint.tensor, addresses.ravel(), values.ravel())
                        cells[places] = values
                    else:
                        for place, new in zip(places, values, strict=True):
                            cells[place] = combine(cells[place], new)
                for address in set(addresses.ravel().tolist()) if w.machine.released else ():
                    w.machine.released.pop((id(memory), address), None)
        w.effects += 1
        w.machine.changed()

    if effect.lost:
        left = Unknown(effect.lost)
        return Act(lambda w: write(w, left))
    value = effect.value
    results = [e for e in op.effects() if isinstance(e, fx.Writes | fx.Defines)]
    if not real and value is None and len(results) == 1:
        return Act(lambda w: write(w, None))  # nobody needs what the instruction computes
    return Take(write, c.expr(value) if isinstance(value, Expr) else value)
