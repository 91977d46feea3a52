"""Per-lane scalars: assignment, loads, stores, atomics, shuffles (SEMANTICS H)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.op import Op
from tilesim.ir.ops.fence import FenceScope
from tilesim.ir.ops.scalar import Assign, Atomic, Load, Shuffle, Store
from tilesim.ir.types import numpy_dtype
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.expression import plain
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.memory import Memory
from tilesim.sim.machine.reduction import exact, reduction_form
from tilesim.sim.machine.release import add, observe
from tilesim.sim.machine.trace import Kind
from tilesim.sim.machine.warp import FULL, Step, Warp, mask_array


def assign(w: Warp, slot: int, value: Any) -> None:
    """``register = value`` in the active lanes; the others keep theirs."""
    if w.mask == FULL or w.registers[slot] is None:
        w.registers[slot] = value
        return
    old = plain(w.registers[slot])
    w.registers[slot] = np.where(mask_array(w.mask), plain(value), old)


@RULES.rule(Assign)
def _assign(c: Compiler, op: Assign) -> Step:
    slot, value = c.slot(op.var), c.expr(op.value)

    def step(w: Warp) -> None:
        assign(w, slot, value(w))

    return step


def spread(w: Warp, values: NDArray[Any]) -> Any:
    """One value per active lane as a register value: a scalar if all lanes hold the same."""
    kind = np.float64 if values.dtype.kind == "V" or values.dtype.kind == "f" else np.int64
    values = values.astype(kind)
    if (values == values[0]).all():
        return values[0].item()
    result = np.zeros(32, dtype=kind)
    result[mask_array(w.mask)] = values
    return result


def per_lane(w: Warp, value: Any) -> NDArray[Any]:
    """A register value as one element per active lane."""
    lanes: NDArray[Any] = np.broadcast_to(plain(value), 32)[mask_array(w.mask)]
    return lanes


def _note(
    w: Warp, op: Op, memory: Memory, addresses: NDArray[np.int64], kind: Kind, form: int = 0
) -> None:
    """Strong accesses: their order decides what is read; reductions of one ``form`` commute."""
    trace = w.machine.trace
    if trace is None:
        return
    for address in sorted(set(addresses.tolist())):
        text = (
            f"{'reads' if kind == 'read' else 'writes'} {memory.label}+{address} by {op.mnemonic}"
        )
        trace.note(kind, (memory.label, address), form, w, op, text)


def _observe_value(
    w: Warp, memory: Memory, addresses: NDArray[np.int64], scope: FenceScope, *, acquires: bool
) -> None:
    """Joins what the releases to these addresses published to this warp (H3, H4)."""
    for address in set(addresses.tolist()):
        released = w.machine.released.get((id(memory), address))
        if released is not None:
            observe(released, w, scope, acquires=acquires)


def _publish_value(
    w: Warp, memory: Memory, addresses: NDArray[np.int64], scope: FenceScope,
    *, releases: bool, chain: bool,
) -> None:  # fmt: skip
    """What an acquire of these addresses will learn; an RMW continues the release sequence."""
    machine = w.machine
    size = machine.components.size
    for address in set(addresses.tolist()):
        key = (id(memory), address)
        released = machine.released.setdefault(key, {})
        if not chain:
            released.clear()
        add(released, (scope, w.cta), w.clock, slice(None if releases else size))
        if not releases:
            w.fences.publish(released, scope, w.cta, size)
    w.advance()


@RULES.rule(Load)
def _load(c: Compiler, op: Load) -> Step:
    view, slot = c.view(op.src), c.slot(op.var)
    strong, dtype = op.sem != "weak", op.src.dtype
    scope = op.scope if strong else None

    def step(w: Warp) -> None:
        memory = view.memory(w)
        footprint, addresses = view.lane_footprint(w)
        access = Access(w, op, w.component, w.tick, False, False, scope)
        # before the acquire: whether the write it reads comes first is up to the schedule
        w.machine.races.read(memory, footprint, access, w.clock)
        if strong:
            _note(w, op, memory, addresses, "read")
            _observe_value(w, memory, addresses, op.scope, acquires=op.sem == "acquire")
        values = memory.typed(dtype)[addresses // dtype.bytes]
        assign(w, slot, spread(w, values))

    return step


@RULES.rule(Store)
def _store(c: Compiler, op: Store) -> Step:
    view, value = c.view(op.dst), c.expr(op.value)
    strong, dtype, real = op.sem != "weak", op.dst.dtype, c.real(op.dst.tensor)
    scope = op.scope if strong else None

    def step(w: Warp) -> None:
        memory = view.memory(w)
        footprint, addresses = view.lane_footprint(w)
        access = Access(w, op, w.component, w.tick, False, True, scope)
        w.machine.races.write(memory, footprint, access, w.clock)
        if real:
            values = np.asarray(per_lane(w, value(w)))
            memory.typed(dtype)[addresses // dtype.bytes] = values.astype(numpy_dtype(dtype))
        if strong:
            _note(w, op, memory, addresses, "write")
            releases = op.sem == "release"
            _publish_value(w, memory, addresses, op.scope, releases=releases, chain=False)
        w.effects += 1
        w.machine.changed()

    return step


_RMW: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "exch": lambda a, b: b,
}


@RULES.rule(Atomic)
def _atomic(c: Compiler, op: Atomic) -> Step:
    view, value, dtype = c.view(op.dst), c.expr(op.value), op.dst.dtype
    compare = None if op.compare is None else c.expr(op.compare)
    slot = None if op.result is None else c.slot(op.result)
    acquires, releases = op.sem in ("acquire", "acq_rel"), op.sem in ("release", "acq_rel")
    real = c.real(op.dst.tensor)
    form = reduction_form(op) if exact(op) else None
    touch: Kind = "write" if form is None else "reduce"

    def update(w: Warp, memory: Memory, addresses: NDArray[np.int64]) -> NDArray[Any]:
        cells = memory.typed(dtype)
        operands = per_lane(w, value(w))
        expected = None if compare is None else per_lane(w, compare(w))
        old = np.zeros(len(addresses), dtype=cells.dtype)
        with np.errstate(over="ignore"):
            for lane, address in enumerate((addresses // dtype.bytes).tolist()):
                old[lane] = cells[address]
                if expected is None:
                    new = _RMW[op.op](cells[address].item(), operands[lane].item())
                    cells[address] = np.asarray(new).astype(cells.dtype)
                elif cells[address] == expected[lane]:
                    cells[address] = operands[lane]
        return old

    def step(w: Warp) -> None:
        memory = view.memory(w)
        footprint, addresses = view.lane_footprint(w)
        if slot is not None:
            # lanes at one address take their turns in an order that no move of the machine shows
            alone = len(np.unique(addresses)) == len(addresses)
            what = f"the result of atom.{op.op} on {op.dst.tensor.name}"
            w.machine.nondeterministic(what, op, explorable=alone)
            _observe_value(w, memory, addresses, op.scope, acquires=acquires)
        _note(w, op, memory, addresses, touch, form or 0)
        access = Access(w, op, w.component, w.tick, False, True, op.scope)
        w.machine.races.write(memory, footprint, access, w.clock)
        old = update(w, memory, addresses) if real else None
        _publish_value(w, memory, addresses, op.scope, releases=releases, chain=True)
        if slot is not None and old is not None:
            assign(w, slot, spread(w, old))
        w.effects += 1
        w.machine.changed()

    return step


@RULES.rule(Shuffle)
def _shuffle(c: Compiler, op: Shuffle) -> Step:
    value, lane, slot = c.expr(op.value), c.expr(op.lane), c.slot(op.result)
    lanes = np.arange(32, dtype=np.int64)
    source: dict[str, Callable[[Any], Any]] = {
        "idx": lambda d: np.broadcast_to(d, 32) & 31,
        "up": lambda d: lanes - d,
        "down": lambda d: lanes + d,
        "bfly": lambda d: lanes ^ d,
    }

    def step(w: Warp) -> None:
        values = np.broadcast_to(plain(value(w)), 32)
        where = source[op.mode](plain(lane(w)))
        inside = (where >= 0) & (where < 32)
        assign(w, slot, values[np.where(inside, where, lanes)])

    return step
