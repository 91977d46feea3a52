"""Cluster launch control (SEMANTICS D.7); which requests succeed: `sim.machine.cta`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.solver import closure
from tilesim.analysis.ssa import value_of
from tilesim.ir import effects as fx
from tilesim.ir.declarations import View
from tilesim.ir.expr import Expr, Var, walk
from tilesim.ir.op import Op
from tilesim.sim.machine.compose import Effects, operation, with_effect
from tilesim.sim.machine.errors import BarrierError, Side
from tilesim.sim.machine.execute.copies import End, destinations, tracked_load
from tilesim.sim.machine.expression import assign
from tilesim.sim.machine.footprint import Access
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.unknown import UnknownSteers
from tilesim.sim.machine.view_access import ViewAccess, read_elements, uniform, unknown_in
from tilesim.sim.observers.uninitialised_reads import is_written

#: the words of a response: the first CTA's x, y, z, and whether a cluster was cancelled
_AXES = {"x": 0, "y": 1, "z": 2}
_CANCELED = 3
_BYTES = 16
_HALF = (1 << 64) - 1


@operation(with_effect(fx.Cancels))
def _try_cancel(c: Operands, op: Op, effects: Effects) -> Step:
    match effects:
        case (fx.Cancels(), fx.Writes(view=view), fx.Completes(mbar=tracked, multicast=mask)):
            target, mbar = c.view(view), c.mbar(tracked)
        case _:
            raise TypeError(f"{op.mnemonic}: a request has its response written and completed")

    def step(w: Warp) -> None:
        _require_more(w, op)
        w.cta.requests[w.component] = w.tick
        barrier = mbar(w)
        every_cta = (1 << len(w.cta.cluster.ctas)) - 1 if mask is not None else None
        for _ in range(w.lanes):
            first = w.machine.launch.cancel(w, op)
            words = np.array([*(first or (0, 0, 0)), first is not None], dtype=np.uint32)
            places = destinations(w, op, w.cta, barrier, every_cta)
            tracked_load(w, op, target, places, _Response(w, view, words), real=True)

    return step


class _Response(End):
    """An answer that is known when the request is issued, as the end of a copy."""

    def __init__(self, w: Warp, view: View, words: NDArray[Any]) -> None:
        super().__init__(w.cta.memory, None, _BYTES, view.dtype)
        self._words = words

    def load(self) -> NDArray[Any]:
        return self._words


def _require_more(w: Warp, op: Op) -> None:
    """No request once a failure has been observed in the CTA (D19)."""
    seen = w.cta.launch_over
    if seen is not None:
        raise BarrierError(
            "launch-control",
            f"{op.mnemonic} of {w} although a query of its CTA has seen an earlier request fail "
            "(D19)",
            "stop asking once a query says that nothing was cancelled",
            seen,
        )


class Answer(NamedTuple):
    """The words of a response for a warp; not ``came``: they are what the memory held before
    anything was written there; not ``loaded``: registers that no load has set."""

    words: NDArray[Any]
    came: bool = True
    loaded: bool = True


Response = Callable[[Warp, Op], Answer]


def _in_memory(c: Operands, view: View) -> Response:
    """Loads a response from shared memory."""
    access: ViewAccess = c.view(view)

    def load(w: Warp, op: Op) -> Answer:
        memory, footprint = access.memory(w), access.footprint(w)
        came = is_written(memory, footprint)
        reading = Access(w, op, w.component, w.tick, False, False)
        w.machine.races.read(memory, footprint, reading, w.clock)
        lost = unknown_in(memory, footprint, op)
        if lost is not None:
            raise UnknownSteers(lost)
        values = np.ascontiguousarray(read_elements(memory, footprint, view.dtype))
        return Answer(values.reshape(-1).view(np.uint32), came)

    return load


def _in_registers(c: Operands, op: Op, registers: tuple[Expr, Expr]) -> Response:
    """Takes a response from two registers of 64 bits."""
    parts = [c.expr(register) for register in registers]
    setters = _loads(c, op.number, registers)
    loaded = any(value_of(c.mir.effects[n]) is None for n in setters)

    def take(w: Warp, op: Op) -> Answer:
        values = [uniform(part(w), w) & _HALF for part in parts]
        came = loaded and not w.machine.races.unwritten.has_read(w, setters)
        return Answer(np.array(values, dtype=np.uint64).view(np.uint32), came, loaded)

    return take


def _loads(c: Operands, number: int, registers: tuple[Expr, ...]) -> frozenset[int]:
    """The instructions that may have brought what one finds in ``registers``, beside the
    assignments that moved it there."""

    def before(at: int, *values: Expr) -> set[int]:
        names = {e.name for value in values for e in walk(value) if isinstance(e, Var)}
        return {setter for name in names for setter in c.flow.setters(at, name)}

    def moved(setter: int) -> set[int]:
        value = value_of(c.mir.effects[setter])
        return set() if value is None else before(setter, value)

    return frozenset(closure(before(number, *registers), moved))


def _see_failure(w: Warp, op: Op) -> None:
    """A query sees that a request has failed: no request of the CTA may come after it (D19)."""
    machine, cta = w.machine, w.cta
    if cta.launch_over is None:
        cta.launch_over = Side(w, op)
    if any(w.clock[asker] < tick for asker, tick in cta.requests.items()):
        machine.nondeterministic("whether a request comes before a query that sees a failure", op)
    machine.note("write", ("launch", 0), w, op)


@operation(with_effect(fx.Queries))
def _query(c: Operands, op: Op, effects: Effects) -> Step:
    match effects:
        case (fx.Reads(view=view), fx.Queries(part=part), fx.Defines(var=var)):
            response, slot = _in_memory(c, view), c.slot(var)
        case (fx.Queries(part=part, registers=(low, high)), fx.Defines(var=var)):
            response, slot = _in_registers(c, op, (low, high)), c.slot(var)
        case _:
            raise TypeError(f"{op.mnemonic}: a query reads a response and sets a register")

    def canceled(w: Warp) -> None:
        answer = response(w, op)
        found = int(answer.words[_CANCELED])
        if not found and answer.came:  # what was never written is a race or worse, no failure
            _see_failure(w, op)
        assign(w, slot, found)

    def coordinate(w: Warp) -> None:
        words, came, loaded = response(w, op)
        if not words[_CANCELED] and not loaded:
            raise BarrierError(
                "launch-control",
                f"{op.mnemonic} of {w} on registers into which no response has been loaded (D19)",
                "load the 16 bytes of the response into them once its mbarrier has completed",
            )
        if came and not words[_CANCELED]:
            raise BarrierError(
                "launch-control",
                f"{op.mnemonic} of {w} on the response of a request that failed (D19)",
                "ask is_canceled first, and decode no response of which it is false",
            )
        assign(w, slot, int(words[_AXES[part]]))

    return canceled if part == "canceled" else coordinate
