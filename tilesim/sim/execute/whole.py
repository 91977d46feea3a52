"""Accesses of a whole warp to memory, through the generic proxy (SEMANTICS H.1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir import effects as fx
from tilesim.ir.distribution import Held
from tilesim.ir.expr import Expr
from tilesim.ir.memory import Fragment, Unsaid
from tilesim.ir.op import Op
from tilesim.sim.execute.compose import Act, Give, Operands, Take
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.lanes import FULL
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.memory import read_elements, write_elements
from tilesim.sim.machine.storage import Memory
from tilesim.sim.machine.unknown import Unknown


def is_whole(effect: fx.Reads | fx.Writes) -> bool:
    """Whether the warp makes one access."""
    plain = effect.proxy == "generic" and not effect.asynchronous and effect.sem == "weak"
    return plain and not effect.lanes


def read(c: Operands, op: Op, effect: fx.Reads) -> Give | Act:
    """One read by the warp."""
    view, held = c.view(effect.view, split=_split(effect)), _held(c, effect)

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


def write(c: Operands, op: Op, effect: fx.Writes) -> Take | Act:
    """One write by the warp; of values that nobody needs (None) only that it was made."""
    view, dtype = c.view(effect.view, split=_split(effect)), effect.view.dtype
    held = _held(c, effect)

    def take(w: Warp, values: Any) -> None:
        memory, footprint = view.memory(w), view.footprint(w)
        access = _access(w, op, held, write=True)
        w.machine.races.write(memory, footprint, access, w.clock)
        if isinstance(values, Unknown):
            memory.forget(footprint, values)
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


def _held(c: Operands, effect: fx.Reads | fx.Writes) -> Held | Unsaid | None:
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
