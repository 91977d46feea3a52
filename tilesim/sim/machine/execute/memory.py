"""Accesses of lanes and warps to memory, through the generic proxy (SEMANTICS H.1, H.2, H15).

Asynchronous accesses of lanes to global memory (SEMANTICS D14) are here, too: each is made by a
thread of its own, which comes after what its lane did before, and with what the lane does next is
in no order. Such a thread is an agent that takes one step. It has what the lane's registers held
when the operation was issued, and a position of its own in clocks: threads that acquire what it
releases know it, the lane that issued it no sooner than others.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import DType, numpy_dtype
from tilesim.ir import effects as fx
from tilesim.ir.declarations import Fragment, Unsaid
from tilesim.ir.expr import Expr
from tilesim.ir.fragments import Held
from tilesim.ir.op import Op
from tilesim.ir.ops.fence import FenceScope
from tilesim.sim.machine.clock import GENERIC, SHARED, Clock
from tilesim.sim.machine.compose import Act, Give, Take, acting, executor, lane_by_lane
from tilesim.sim.machine.errors import BarrierError
from tilesim.sim.machine.execute.lanes import per_lane
from tilesim.sim.machine.footprint import ONE_OF_SEVERAL, Access, Footprint
from tilesim.sim.machine.lanes import FULL, mask_array
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.release import Fences
from tilesim.sim.machine.unknown import Unknown, require_known
from tilesim.sim.machine.view_access import ViewAccess, read_elements, unknown_in, write_elements
from tilesim.sim.machine.warp import Part, Parts
from tilesim.sim.machine.word_order import COMBINE, Combine
from tilesim.sim.observers.race_text import several_lanes


def is_whole(effect: fx.Reads | fx.Writes) -> bool:
    """Whether the warp makes one access."""
    plain = effect.proxy == "generic" and not effect.asynchronous and effect.sem == "weak"
    return plain and not effect.lanes


def read_whole(c: Operands, op: Op, effect: fx.Reads) -> Give | Act:
    """One read by the warp."""
    view, held = c.view(effect.view, split=_split(effect)), _fragment_accesses(c, effect)

    def look(w: Warp) -> tuple[Memory, Footprint]:
        memory, footprint = view.memory(w), view.footprint(w)
        access = _access(w, op, held, write=False)
        w.machine.races.read(memory, footprint, access, w.clock)
        return memory, footprint

    def act(w: Warp) -> None:
        look(w)

    def give(w: Warp) -> NDArray[Any]:
        return read_elements(*look(w), effect.view.dtype).copy()

    return Give(effect.view, give) if c.numbers else Act(act)


def write_whole(c: Operands, op: Op, effect: fx.Writes) -> Take | Act:
    """One write by the warp; of values that are not needed (None) only that it was made."""
    view, dtype = c.view(effect.view, split=_split(effect)), effect.view.dtype
    held = _fragment_accesses(c, effect)

    def take(w: Warp, values: Any) -> None:
        memory, footprint = view.memory(w), view.footprint(w)
        access = _access(w, op, held, write=True)
        w.machine.races.write(memory, footprint, access, w.clock)
        if isinstance(values, Unknown):
            memory.forget(footprint.bytes, values)
        elif values is not None:
            write_elements(memory, footprint, dtype, np.reshape(values, footprint.addresses.shape))
        w.effects += 1
        w.machine.changed()

    value = effect.value
    if value is None and not c.real(effect.view.tensor):
        return Act(lambda w: take(w, None))
    return Take(take, c.expr(value) if isinstance(value, Expr) else value)


def _split(effect: fx.Reads | fx.Writes) -> bool:
    """Whether a warp has a quarter of the rows."""
    return isinstance(effect.held, Fragment) and effect.held.split


def _fragment_accesses(c: Operands, effect: fx.Reads | fx.Writes) -> Held | Unsaid | None:
    """Which lane touches what."""
    fragment = effect.held
    if isinstance(fragment, Unsaid):
        return fragment
    if fragment is None or not effect.view.shape:
        return None
    rows, columns = fragment.warp_shape[0], effect.view.shape[-1]
    return Held(c.layouts[fragment.name], rows, columns, once=isinstance(effect, fx.Writes))


def _access(w: Warp, op: Op, held: Held | Unsaid | None, *, write: bool) -> Access:
    if held is None:
        return Access(w, op, w.component, w.tick, False, write)
    return Access(w, op, w.component, w.tick, False, write, among=FULL, piece=held)


# ---------------------------------------------------------------- accesses of lanes (H.1, H.2, H15)


def access_of(w: Warp, op: Op, *, write: bool, scope: FenceScope | None = None) -> Access:
    """What the active lanes access now, each its own share of it."""
    return Access(w, op, w.component, w.tick, False, write, scope, lanes=w.mask, among=w.mask)


def cells_of(w: Warp, value: Any, dtype: DType) -> NDArray[Any] | Unknown:
    """A register's value in each active lane, as an element of a memory; integers wrap."""
    if type(value) is Unknown:
        return value
    values, kind = np.asarray(per_lane(w, value)), numpy_dtype(dtype)
    if kind.kind in "iu" and values.dtype.kind == "O":
        values = np.array([int(v) & 0xFFFF_FFFF_FFFF_FFFF for v in values], dtype=np.uint64)
    return values.astype(kind)


def leave(
    op: Op, memory: Memory, footprint: Footprint, addresses: NDArray[np.int64], dtype: DType,
    values: NDArray[Any] | Unknown, combine: Combine | None = None,
) -> None:  # fmt: skip
    """Lanes leave values at their addresses, or combine them with what is there, one after the
    other; what is made of an unknown one is not known."""
    before = None if combine is None else unknown_in(memory, footprint, op)
    if isinstance(values, Unknown) or before is not None:
        lost = values if isinstance(values, Unknown) else before
        assert lost is not None
        memory.forget(footprint.bytes, lost)
        return
    if memory.marks is not None:
        memory.marks.set(footprint.bytes, None)
    cells, places = memory.typed(dtype), addresses // dtype.bytes
    if combine is None:
        cells[places] = values
        return
    for place, new in zip(places, values, strict=True):
        cells[place] = combine(cells[place], new)


def last_wins(
    access: Access, tensor: str, addresses: NDArray[np.int64], values: NDArray[Any]
) -> None:
    """Notes that lanes leave different values at one address: which one stays is not known."""
    machine = access.warp.machine
    if tensor not in machine.plan.flow.steering:
        return
    left: dict[int, Any] = {}
    for address, new in zip(addresses.ravel().tolist(), values.ravel().tolist(), strict=True):
        if left.setdefault(address, new) != new:
            what = f"which lane's value stays in {tensor}"
            machine.nondeterministic(what, access.op, explorable=False)
            return


def judge_lanes_that_overlap(
    access: Access, footprint: Footprint, addresses: NDArray[np.int64],
    values: NDArray[Any] | Unknown | None,
) -> None:  # fmt: skip
    """Lanes of one weak store that write the same bytes, in no order (H4).

    In practice one of them stays, as CUDA's guide says: no race as long as only they do that, and
    if the ``values``, where they are known, differ, no other store is the same (H23). Nothing says
    so of asynchronous stores.
    """
    if not footprint.common:
        return
    machine = access.warp.machine
    lanes = np.flatnonzero(mask_array(access.lanes))
    pieces = addresses.reshape(len(lanes), -1)
    rows = np.reshape(values, pieces.shape) if isinstance(values, np.ndarray) else None
    left: dict[int, int] = {}
    for i, address in enumerate(pieces[:, 0].tolist()):
        first = left.setdefault(address, i)
        if first == i:
            continue
        if access.engine or not machine.accepts("H23", access.op):
            several_lanes(footprint, access, int(lanes[first]), int(lanes[i]))
            return
        if rows is not None and (rows[first] != rows[i]).any():
            access.stored = ONE_OF_SEVERAL


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

    def masks(self, w: Warp) -> Iterator[int]:
        """The lanes that access the memory of one CTA."""
        mask = w.mask & self._limit
        if not mask:
            return
        with acting(w, mask):  # what others have for an address does not matter
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


@executor(fx.Reads)
def _reads(c: Operands, op: Op, effect: fx.Reads) -> Give | Act:
    if is_whole(effect):
        return read_whole(c, op, effect)
    lanes = _Lanes(c, op, effect)
    dtype, size = lanes.dtype, lanes.size

    def read(w: Warp) -> NDArray[Any] | Unknown:
        whole = np.zeros((32, size), numpy_dtype(dtype))
        lost: Unknown | None = None
        for mask in lanes.masks(w):
            with acting(w, mask):
                memory, footprint, addresses = lanes.places(w)
                access = access_of(w, op, write=False, scope=lanes.scope)
                w.machine.races.read(memory, footprint, access, w.clock)
                if lost is None:
                    lost = unknown_in(memory, footprint, op)
                whole[mask_array(mask)] = memory.typed(dtype)[addresses // dtype.bytes]
        return whole if lost is None else lost

    return Give(effect.view, read)


@executor(fx.Writes)
def _writes(c: Operands, op: Op, effect: fx.Writes) -> Take | Act:
    if is_whole(effect):
        return write_whole(c, op, effect)
    lanes = _Lanes(c, op, effect)
    dtype, real = lanes.dtype, c.real(effect.view.tensor)
    combine = None if effect.combine is None else COMBINE[effect.combine]
    # what has no data is one write of the whole warp
    gathers = any(isinstance(e, fx.Gathers) for e in op.effects())
    plain = combine is None and effect.sem == "weak" and not (gathers and not op.data)
    together = plain and gathers

    def write(w: Warp, rows: NDArray[Any] | Unknown | None) -> None:
        for mask in lanes.masks(w):
            with acting(w, mask):
                memory, footprint, addresses = lanes.places(w)
                access = access_of(w, op, write=True, scope=lanes.scope)
                new = rows
                if rows is not None and not isinstance(rows, Unknown):
                    new = rows[mask_array(mask)]
                if plain:
                    judge_lanes_that_overlap(access, footprint, addresses, new)
                if together and isinstance(new, np.ndarray) and access.stored is None:
                    access.stored = footprint, new.tobytes()
                w.machine.races.write(memory, footprint, access, w.clock)
                if real and new is not None:
                    if isinstance(new, np.ndarray):
                        new = new.astype(numpy_dtype(dtype))
                        if combine is None:
                            last_wins(access, footprint.tensor, addresses, new)
                    leave(op, memory, footprint, addresses, dtype, new, combine)
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
        return Act(lambda w: write(w, None))  # what the instruction computes is not needed
    return Take(write, c.expr(value) if isinstance(value, Expr) else value)


# ------------------------------------------------------------- asynchronous accesses of lanes (D14)


def issue(w: Warp, op: Op, step: Step) -> None:
    """Each active lane issues ``step``, which an agent of its own makes at any later time."""
    if w.may_access is not None:
        require_known(w.may_access)
    if w.lanes > 1:
        lane_by_lane(w, lambda w: _issue(w, op, step, w.clock.copy()))
    else:
        _issue(w, op, step, w.clock.copy())
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
    component = _position(w, op)
    tick = w.async_ticks[component] = w.async_ticks[component] + 1
    w.components.rows(clock, component)[:SHARED] = tick
    one = copy(w)
    one.base, one.origin = component, one
    one.act_as(Part(FULL, component, clock, Fences(), {component: tick}))
    one.parts, one.inits, one.tcgen05 = Parts(one), None, None
    one.frames, one.laps, one.looks, one.arrivals = [], {}, {}, []
    one.followed, one.gathered, one.marks, one.moments = {}, {}, {}, {}
    one.exchanges = one.diverged = False
    one.alone = one.left = one.iteration = one.apart = one.executed = 0
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
    what = f"which of more than {len(w.async_ticks)} operations in flight are made"
    w.machine.nondeterministic(what, op, explorable=False)
    return min(w.async_ticks, key=w.async_ticks.__getitem__)
