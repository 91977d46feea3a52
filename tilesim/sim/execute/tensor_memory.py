"""Accesses to tensor memory: loads and stores of warps, operations of tensor cores (section G).

Numbers are computed when an operation is issued; what others may rely on is decided by
`sim.machine.tmem_order` and, for operands in shared memory, by the race detector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir import effects as fx
from tilesim.ir.expr import constant
from tilesim.ir.memory import View
from tilesim.ir.op import Op
from tilesim.ir.tmem import TmemLayout, TmemPart, TmemView
from tilesim.sim.execute.apart import lane_by_lane
from tilesim.sim.execute.compose import (
    OPERATIONS,
    Act,
    Effects,
    Execution,
    Give,
    Operands,
    Take,
    executor,
    operands_of,
)
from tilesim.sim.expression import Evaluate
from tilesim.sim.findings import Stated
from tilesim.sim.latency import mma_cycles
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.cta import Cta
from tilesim.sim.machine.errors import NotUniform
from tilesim.sim.machine.groups import Issuer
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import ViewAccess, read_elements, uniform
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.tmem import GROUP, ORDER, AccessKind, Cells, Tmem, TmemAccess
from tilesim.sim.machine.tmem_order import FOREIGN_LANES, TmemOrder

_COPY_CYCLES = 64
#: lanes of a warp, which hold one quarter of tensor memory
_QUARTER = 32
_FIX = "compute the address from the one that tcgen05.alloc wrote"
#: lane and column
At = tuple[int, int]


def tmem_of(cta: Cta) -> Tmem:
    """The tensor memory of a CTA of a program that uses tcgen05."""
    assert cta.tmem is not None
    return cta.tmem


def issuer_of(w: Warp) -> tuple[Issuer, TmemOrder]:
    """The warp's tcgen05 state and the machine's checker."""
    assert w.tcgen05 is not None
    assert w.machine.tmem is not None
    return w.tcgen05, w.machine.tmem


class Operand:
    """An operand in tensor memory: where it is for a warp, and its cells."""

    def __init__(self, c: Operands, op: Op, effect: fx.UsesTmem) -> None:
        self.effect = effect
        self.name = effect.called or effect.view.name
        self._op = op
        self._layout = effect.cells
        self._address: Evaluate = c.expr(effect.view.address)
        beside = self._layout.beside
        self._beside = None if beside is None else c.expr(beside.address)
        keeps = effect.keeps
        self._always = None if keeps is None else constant(keeps)
        self._keeps = None if keeps is None or self._always is not None else c.expr(keeps)
        self._by_lane: dict[int, list[tuple[int, TmemPart]]] = {}

    def at(self, w: Warp) -> At:
        """The lane and the column it starts at.

        Raises:
            BarrierError: it cannot start there.
        """
        at = _place(self._address, w)
        if self._layout.own:
            at = self._own(w, at[0]), at[1]
        if at[1] % self._layout.step:
            raise BarrierError(
                "out-of-bounds",
                f"{self.name} of {self._op.mnemonic} starts at column {at[1]}: it starts at a "
                f"multiple of {self._layout.step} (PTX 9.7.16.10.8.4)",
                _FIX,
            )
        self._runs(at[0])
        if self._beside is not None and len(self._layout.starts) > 1:
            lane = _place(self._beside, w)[0]
            if lane != at[0]:
                raise BarrierError(
                    "out-of-bounds",
                    f"{self.name} of {self._op.mnemonic} starts at lane {at[0]} and D at lane "
                    f"{lane}: both use the same half of the lanes (G14)",
                    f"put {self.name} and D at the same lane",
                )
        return at

    def keeps(self, w: Warp) -> bool:
        """Whether what was there is used, too."""
        return bool(self._always if self._keeps is None else uniform(self._keeps(w), w))

    def boxes(self, tmem: Tmem, at: At) -> list[Cells]:
        """Its cells in one CTA."""
        return [_box(tmem, at, part) for _, part in self._runs(at[0])]

    def read(self, tmem: Tmem, at: At, layout: TmemLayout | None = None) -> NDArray[Any]:
        """The elements, a row per lane, also of lanes that are left out."""
        view = self.effect.view
        boxes = (_box(tmem, at, part) for part in (layout or self._layout).parts)
        rows = [tmem.read(box, view.dtype, packed=view.packed) for box in boxes]
        return rows[0].copy() if len(rows) == 1 else np.concatenate(rows)

    def store(self, tmem: Tmem, at: At, values: NDArray[Any]) -> None:
        """Writes elements, a row per lane; what lies in lanes that are left out stays."""
        for row, part in self._runs(at[0]):
            rows = values[row : row + part.lanes]
            tmem.write(_box(tmem, at, part), rows, packed=self.effect.view.packed)

    def _runs(self, lane: int) -> list[tuple[int, TmemPart]]:
        """Its cells if it starts at this lane, each with the first of its rows."""
        known = self._by_lane.get(lane)
        if known is None:
            self._require_start(lane)
            known, row = [], 0
            for part in self._layout.parts:
                known += self._enabled(row, part, lane + part.lane)
                row += part.lanes
            self._by_lane[lane] = known
        return known

    def _enabled(self, row: int, part: TmemPart, lane: int) -> list[tuple[int, TmemPart]]:
        """The runs of lanes of a part that are not disabled."""
        disabled = self._layout.disabled
        if not disabled:
            return [(row, part)]
        runs: list[tuple[int, TmemPart]] = []
        for i in range(part.lanes):
            if disabled >> lane + i & 1:
                continue
            if runs and runs[-1][0] + runs[-1][1].lanes == row + i:
                first, last = runs[-1]
                runs[-1] = first, replace(last, lanes=last.lanes + 1)
            else:
                runs.append((row + i, replace(part, lane=part.lane + i, lanes=1)))
        return runs

    def _require_start(self, lane: int) -> None:
        starts = self._layout.starts
        if not starts or lane in starts:
            return
        rows = sum(part.lanes for part in self._layout.parts)
        raise BarrierError(
            "out-of-bounds",
            f"{self.name} of {self._op.mnemonic} starts at lane {lane}, with {rows} rows it can "
            f"start at lane {' or '.join(map(str, starts))} (G14, G18)",
            _FIX,
        )

    def _own(self, w: Warp, lane: int) -> int:
        """The first of the warp's own lanes that it accesses; in practice, an address that names
        no quarter, for all warps of a warpgroup, means the warp's (U21)."""
        rows = self._layout.parts[0].lanes
        quarter = _QUARTER * (w.number % 4)
        inside = lane % _QUARTER <= _QUARTER - rows and lane % 16 == 0
        if inside and lane < _QUARTER and not w.machine.options.ptx:
            order = w.machine.tmem
            assert order is not None
            order.address_without_quarter(w, self._op)
            return quarter + lane
        if inside and lane // _QUARTER * _QUARTER == quarter:
            return lane
        raise BarrierError(
            "out-of-bounds",
            f"{self._op.mnemonic} of {w} on lanes {lane}..{lane + rows - 1}: warp {w.number} of "
            f"the CTA can only access lanes {quarter}..{quarter + 31} (G12, U21)",
            FOREIGN_LANES,
        )


def _place(address: Evaluate, w: Warp) -> At:
    value = address(w)
    if type(value) is not int:
        value = uniform(value, w)
    return value >> 16, value & 0xFFFF


def _box(tmem: Tmem, at: At, part: TmemPart) -> Cells:
    return tmem.box(at[0] + part.lane, part.lanes, at[1] + part.column, part.columns)


class Operation:
    """One issued asynchronous operation; makes the records of its accesses.

    ``lanes``: the one that issues it, as a mask; 0: the warp does.
    """

    def __init__(self, w: Warp, op: Op, kind: AccessKind, lanes: int = 0) -> None:
        self.warp = w
        self.op = op
        self.kind: AccessKind = kind
        self._tick, self._issuer, self._lanes = w.tick, w.component, lanes or w.mask
        self.issuer, self._order = issuer_of(w)
        own = self.issuer.own_of(lanes) if lanes else None
        if own is not None:
            own.count += 1
            self.component, self._queue = own.component, own.order
            self.sequence = self._number = own.count
        else:
            group, order = w.groups[GROUP[kind]], w.groups[ORDER]
            self.component, self._queue = group.component, order.component
            self.sequence, self._number = group.issue(), order.issue()
            self.issuer.latest[self._lanes] = self._issuer, self._tick
            if lanes:
                self.issuer.issued(self.sequence, lanes)
        w.effects += 1

    def uses(self, tmem: Tmem, operand: Operand, at: At) -> None:
        """Checks and records an access to an operand; what is read must hold something."""
        effect = operand.effect
        needs = not effect.write or operand.keeps(self.warp)
        form = None if effect.product is None else (at, effect.product)
        for box in operand.boxes(tmem, at):
            access = TmemAccess(
                self.warp, self.op, self.kind, effect.write, self._tick, self._number,
                self.component, self.sequence, operand.name, form,
                issuer=self._issuer, lanes=self._lanes, queue=self._queue,
            )  # fmt: skip
            if needs and effect.write:
                self._order.require_initialised(tmem, box, self.warp, self.op)
            self._order.access(tmem, box, access)
            if needs and not effect.write:
                self._order.require_initialised(tmem, box, self.warp, self.op)

    def reads_shared(self, view: ViewAccess, cta: Cta) -> None:
        """Checks and records a read of shared memory, which lasts until completion (G16, G17)."""
        w = self.warp
        access = Access(w, self.op, self.component, self.sequence, True, False)
        footprint = view.footprint(w) if cta is w.cta else view.footprint_in(w, cta.memory)
        w.machine.races.read(cta.memory, footprint, access, w.clock)
        if cta is not w.cta:
            w.machine.peers.note(cta, access)


# ---------------------------------------------------------------------- of a warp: ld and st


@executor(fx.UsesTmem)
def _uses(c: Operands, op: Op, effect: fx.UsesTmem) -> Give | Take | Act:
    if effect.kind not in ("ld", "st"):
        raise TypeError(f"{op.mnemonic}: such an operation joins the open group of its thread")
    operand, kind = Operand(c, op, effect), effect.kind
    given = any(op.number in loads for loads in c.code.drained.given.values())

    def access(w: Warp) -> tuple[Tmem, At]:
        tmem, at = tmem_of(w.cta), operand.at(w)
        operation = Operation(w, op, kind)
        operation.uses(tmem, operand, at)
        if given:
            operation.issuer.loaded[op.number] = operation.sequence
        if kind == "st":
            operation.issuer.given = frozenset()
        return tmem, at

    def act(w: Warp) -> None:
        access(w)

    def read(w: Warp) -> NDArray[Any]:
        return operand.read(*access(w))

    def write(w: Warp, values: NDArray[Any]) -> None:
        operand.store(*access(w), values)

    if not c.numbers:
        return Act(act)
    return Take(write, effect.value) if effect.write else Give(effect.view, read)


# ---------------------------------------------------------------------- of a tensor core


def _issued(effects: Effects) -> bool:
    return any(isinstance(e, fx.Issues) and e.group == "tcgen05" for e in effects)


def _issue(c: Operands, op: Op, effects: Effects) -> Step:
    """An operation on the tensor memory of one CTA, or at the same addresses of a pair's (G10)."""
    match effects:
        case (fx.Issues() as issues, *_, fx.UsesTmem(write=True, kind=kind)):
            pass
        case _:
            raise TypeError(f"{op.mnemonic}: an operation of a tensor core writes tensor memory")
    shared = [c.view(e.view) for e in effects if isinstance(e, fx.Reads)]
    operands = [Operand(c, op, e) for e in effects if isinstance(e, fx.UsesTmem)]
    cycles = _COPY_CYCLES if issues.work is None else mma_cycles(*issues.work)
    values = operands_of(c, op) if c.numbers else None

    def issue(w: Warp, lane: int) -> None:
        operation = Operation(w, op, kind, lane)
        places = [operand.at(w) for operand in operands]
        ctas = _ctas_of(w, pair=issues.pair)
        for cta in ctas:
            tmem = tmem_of(cta)
            for view in shared:
                operation.reads_shared(view, cta)
            for operand, at in zip(operands, places, strict=True):
                operation.uses(tmem, operand, at)
        _run_for(w, cycles)
        if values is not None:
            execution = _Execution(w, op, values, ctas, shared, (operands, places))
            execution.store()

    def step(w: Warp) -> None:
        if w.mask & (w.mask - 1) and w.parts is not None and differ(w):
            lane_by_lane(w, lambda w: issue(w, w.mask))
            return
        for lane in _issuers(w, op):
            issue(w, lane)

    def differ(w: Warp) -> bool:
        """Whether lanes name other columns than others."""
        try:
            for operand in operands:
                operand.at(w)
        except NotUniform:
            w.machine.outcome.explorable = False
            return True
        return False

    return step


OPERATIONS.append((_issued, _issue))


class _Execution(Execution):
    """One execution of an operation in the CTAs that take part."""

    def __init__(
        self, w: Warp, op: Op, values: dict[int, Evaluate], ctas: list[Cta],
        shared: list[ViewAccess], operands: tuple[list[Operand], list[At]],
    ) -> None:  # fmt: skip
        super().__init__(w, op, values)
        self._ctas = ctas
        self._reads: dict[int, Callable[[Cta, TmemLayout | None], NDArray[Any]]] = {}
        for view in shared:
            self._reads[id(view.view)] = partial(_matrix, view, w)
        for operand, at in zip(*operands, strict=True):
            self._reads[id(operand.effect.view)] = partial(_rows, operand, at)
        self._result = operands[0][-1], operands[1][-1]

    def part(
        self, place: View | TmemView, cta: int, layout: TmemLayout | None = None
    ) -> NDArray[Any]:
        return self._reads[id(place)](self._ctas[cta], layout)

    def store(self) -> None:
        """Computes what the operation writes, and writes it."""
        operand, at = self._result
        parts = [self.computed() for _ in self._ctas]
        for cta, values in zip(self._ctas, parts, strict=True):
            operand.store(tmem_of(cta), at, values)


def _matrix(view: ViewAccess, w: Warp, cta: Cta, _: object) -> NDArray[Any]:
    values = read_elements(cta.memory, view.footprint_in(w, cta.memory), view.view.dtype)
    return values.reshape(view.view.shape)


def _rows(operand: Operand, at: At, cta: Cta, layout: TmemLayout | None) -> NDArray[Any]:
    return operand.read(tmem_of(cta), at, layout)


def _issuers(w: Warp, op: Op) -> list[int]:
    """The active lanes, each as a mask: each of them issues an operation of its own (G11).

    They use the same columns, and nothing orders the operations of different threads.
    """
    if not w.mask & (w.mask - 1):
        return [w.mask]
    w.machine.report(
        "tcgen05-order",
        f"{w.lanes} lanes of {w} execute {op.mnemonic}: each of them issues one, and nothing "
        "orders those of different threads (G11, G20)",
        (w.machine.participant(w, f"executes {op.mnemonic} in {w.lanes} lanes", op),),
        fix="let one elected lane execute it (k.elected)",
        kind="tcgen05-order/lanes",
        facts=Stated(lanes=w.lanes),
    )
    return [1 << i for i in range(32) if w.mask >> i & 1]


def _ctas_of(w: Warp, *, pair: bool) -> list[Cta]:
    """The CTAs an operation works in, even rank first (G10)."""
    if not pair:
        return [w.cta]
    peer = w.machine.peer(w, w.cta.rank ^ 1)
    return sorted((w.cta, peer), key=lambda cta: cta.rank)


def _run_for(w: Warp, cycles: float) -> None:
    """Occupies the CTA's tensor core (timed policy)."""
    if w.machine.timed and w.tcgen05 is not None:
        start = max(w.machine.env.now, w.cta.tensor_core_free)
        w.cta.tensor_core_free = w.tcgen05.finish = start + cycles
