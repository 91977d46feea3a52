"""Tensor memory: accesses, allocations, completion and order (SEMANTICS section G).

Numbers are computed when an operation is issued; what others may rely on is decided by
`tilesim.sim.observers.tmem_order` and, for operands in shared memory, by the race detector.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.analysis.executing_warps import executing
from tilesim.findings.finding import Stated
from tilesim.ir import effects as fx
from tilesim.ir.expr import constant
from tilesim.ir.frozen import cached
from tilesim.ir.mir import Mir
from tilesim.ir.op import Op
from tilesim.ir.tensor_memory import COLUMNS, TmemLayout, TmemPart
from tilesim.records import dataclass, replace
from tilesim.sim.machine.async_groups import ORDER, Issuer
from tilesim.sim.machine.clock import GENERIC, NEVER, SHARED, join
from tilesim.sim.machine.compose import (
    Act,
    Effects,
    Execution,
    Give,
    Take,
    each_lane,
    executor,
    lane_by_lane,
    operands_of,
    operation,
    with_effect,
)
from tilesim.sim.machine.cta import Cta, ctas_of_sm
from tilesim.sim.machine.errors import BarrierError, NotUniform, Side
from tilesim.sim.machine.execute.copies import destinations
from tilesim.sim.machine.execute.mbarrier import Landing, require_live
from tilesim.sim.machine.expression import Evaluate
from tilesim.sim.machine.footprint import Access
from tilesim.sim.machine.machine import Machine, Step, Warp
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.machine.operands import Operands
from tilesim.sim.machine.schedule import mma_cycles
from tilesim.sim.machine.tensor_memory import (
    GROUP,
    AccessKind,
    Allocation,
    Cells,
    Relinquished,
    Request,
    Tmem,
    TmemAccess,
    fitting,
    free_tag,
)
from tilesim.sim.machine.view_access import ViewAccess, read_elements, uniform
from tilesim.sim.machine.warp import Agent
from tilesim.sim.observers.phase_conditions import Credit
from tilesim.sim.observers.tmem_order import FOREIGN_LANES, TmemOrder

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
            self.issuer.issuing.add(self._lanes)
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


@operation(with_effect(fx.Issues, group="tcgen05"))
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

    def issue(w: Warp, lane: int, places: list[At]) -> None:
        operation = Operation(w, op, kind, lane)
        ctas = _ctas_of(w, pair=issues.pair)
        for cta in ctas:
            tmem = tmem_of(cta)
            for view in shared:
                operation.reads_shared(view, cta)
            for operand, at in zip(operands, places, strict=True):
                operation.uses(tmem, operand, at)
        _run_for(w, cycles)
        if values is not None:
            data = Execution(w, op, values)
            for view in shared:
                data.gives(view.view, partial(_matrix, w, view, ctas))
            for operand, at in zip(operands, places, strict=True):
                data.gives(operand.effect.view, partial(_rows, operand, at, ctas))
            results = [data.computed() for _ in ctas]
            for cta, rows in zip(ctas, results, strict=True):
                operands[-1].store(tmem_of(cta), places[-1], rows)

    def step(w: Warp) -> None:
        try:
            places = [operand.at(w) for operand in operands]
        except NotUniform:  # lanes name columns of their own
            if not w.may_divide:
                raise
            w.machine.outcome.explorable = False
            lane_by_lane(w, step)
            return
        for lane in _issuers(w, op):
            issue(w, lane, places)

    return step


def _matrix(
    w: Warp, view: ViewAccess, ctas: list[Cta], cta: int, _layout: TmemLayout | None
) -> NDArray[Any]:
    """What one of the CTAs has of an operand in shared memory."""
    memory = ctas[cta].memory
    values = read_elements(memory, view.footprint_in(w, memory), view.view.dtype)
    return values.reshape(view.view.shape)


def _rows(
    operand: Operand, at: At, ctas: list[Cta], cta: int, layout: TmemLayout | None
) -> NDArray[Any]:
    """What one of the CTAs has of an operand in tensor memory."""
    return operand.read(tmem_of(ctas[cta]), at, layout)


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
        ((w, f"executes {op.mnemonic} in {w.lanes} lanes", op),),
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


# ------------------------------------------------------------------ allocations (G4 to G9)


@executor(fx.AllocatesTmem)
def _allocates(c: Operands, op: Op, effect: fx.AllocatesTmem) -> Give:
    """Blocks until the columns are free; answers their address, which may be any that fits."""
    decides = effect.columns < COLUMNS and any(
        isinstance(e, fx.Writes) and e.value == effect and e.view.tensor.name in c.flow.branching
        for e in op.effects()
    )

    def read(w: Warp) -> int | None:
        if decides:
            w.machine.outcome.allocated[op.number] = op
        address = _answered(w)
        if address is not None:
            return address
        if tmem_of(w.cta).request is None:
            _check_alloc(w, effect)
        address = _grant(w, op, effect)
        if address is None:
            _wait(w, op, effect)
        return address

    return Give(effect, read, blocks=True)


def _check_alloc(w: Warp, effect: fx.AllocatesTmem) -> None:
    tmem = tmem_of(w.cta)
    gone = tmem.relinquished
    if gone is not None:
        raise BarrierError(
            "tmem-lifetime",
            f"tcgen05.alloc of {w} after tcgen05.relinquish_alloc_permit in its CTA (G7)",
            "relinquish after the last allocation",
            Side(gone.warp, gone.op),
        )
    before = tmem.latest
    if before is not None and effect.columns > before.columns:
        raise BarrierError(
            "tmem-lifetime",
            f"tcgen05.alloc of {effect.columns} columns after one of {before.columns}: allocations "
            "of a CTA must not grow (G5)",
            "allocate the largest number of columns first, or everything at once",
            Side(before.warp, before.op),
        )


def _grant(w: Warp, op: Op, effect: fx.AllocatesTmem) -> int | None:
    """Takes the columns if they are free (in both CTAs of a pair, once both ask): their address."""
    tmem, columns = tmem_of(w.cta), effect.columns
    partner = None
    if effect.pair:
        partner = _meet(w, Request(w, op, 0, columns))
        if partner is None:
            return None
    places = [tmem] if partner is None else [tmem, tmem_of(_peer_cta(w))]
    first = fitting([t.pool for t in places], columns)
    if first is None:
        return None
    _note_order(w, tmem, op)
    if any(_may_wait_for_others(w.machine, t) for t in places):
        what = "whether CTAs of other clusters on its SM leave columns for a tcgen05.alloc (G6)"
        w.machine.nondeterministic(what, op, explorable=False)
    if any(_may_share(w.machine, t, pair=effect.pair) for t in places):
        w.machine.outcome.spread[op.loc] = None
    if not all(t.pool.always_fits(columns) for t in places):
        what = "whether the columns that are free hold those of a tcgen05.alloc in a row"
        w.machine.nondeterministic(what, op, explorable=False)
    tag = free_tag(places, columns)
    new = tmem.take(first, columns, tag, w, op, None if partner is None else partner.warp)
    if partner is not None:
        places[1].take(first, columns, tag, partner.warp, partner.op, w)
        partner.warp.gather()
        _answer(w, partner, new.address)
    # what follows one of its lanes from here on follows it
    w.gather()
    return new.address


def _may_wait_for_others(machine: Machine, tmem: Tmem) -> bool:
    """Whether an alloc that now gets its columns may wait in another schedule for a cluster on the
    same SM that waits for this one: clusters there can fill the columns, and this one holds some
    while it asks again, or while another of its CTAs does. Where all clusters are run together,
    the pool that they share shows it."""
    program = machine.program
    clusters = min(program.ctas // program.cluster_size, ctas_of_sm(program))
    if clusters == 1 or len(machine.clusters) == program.ctas // program.cluster_size:
        return False
    times = len(tmem.live) + 1
    return program.cluster_size * times > 1 and clusters * times * _most_columns(machine) > COLUMNS


def _may_share(machine: Machine, tmem: Tmem, *, pair: bool) -> bool:
    """Whether CTAs of one cluster, of which the CTAs of a pair are on two SMs, fill the columns of
    an SM if it has as many of them as fit: then one may wait for what another holds."""
    program = machine.program
    ctas = min(program.cluster_size // (1 + pair), ctas_of_sm(program))
    times = len(tmem.live) + len(tmem.dead) + 1
    return ctas > 1 and ctas * times * _most_columns(machine) > COLUMNS


def _most_columns(machine: Machine) -> int:
    return max(e.columns for _, e in machine.loaded.mir.all_of(fx.AllocatesTmem))


def _note_order(w: Agent, tmem: Tmem, op: Op) -> None:
    """Which columns an alloc gets depends on the allocs and deallocs before it."""
    machine, pool = w.machine, tmem.pool
    if pool.last is not None and all(w.clock[c] < tick for c, tick in pool.last):
        machine.nondeterministic("which columns tcgen05.alloc returns", op)
    pool.last = w.positions
    machine.note("write", ("tmem", pool.number), w, op)


def _wait(w: Warp, op: Op, effect: fx.AllocatesTmem) -> bool:
    tmem = tmem_of(w.cta)
    if effect.pair and tmem_of(_peer_cta(w)).request is None:
        return _wait_for_pair(w, op)
    return w.block(
        tmem.pool, f"waits for {effect.columns} columns of tensor memory ({op.mnemonic})", op
    )


def _wait_for_pair(w: Warp, op: Op) -> bool:
    text = f"waits for the other CTA of the pair in {op.mnemonic}"
    return w.block(tmem_of(w.cta), text, op)


def _peer_cta(w: Warp) -> Cta:
    return w.cta.cluster.ctas[w.cta.rank ^ 1]


def _answered(w: Warp) -> int | None:
    """What its partner has answered that has carried out what the warp waited for with it."""
    issuer, _ = issuer_of(w)
    answer, issuer.answer = issuer.answer, None
    return answer


def _answer(w: Warp, partner: Request, answer: int = 0) -> None:
    """What both warps of a pair ask for is carried out: the one that waited goes on."""
    for tmem in (tmem_of(w.cta), tmem_of(_peer_cta(w))):
        tmem.request = None
    assert partner.warp.tcgen05 is not None
    partner.warp.tcgen05.answer = answer
    w.machine.wake(partner.warp)


def _together(w: Warp, request: Request, act: Callable[[Request], object]) -> bool | None:
    """Both warps of a pair execute it: the second one acts, and the one that waited goes on."""
    partner = _meet(w, request)
    if partner is None:
        return _wait_for_pair(w, request.op)
    act(partner)
    _answer(w, partner)
    return None


def _meet(w: Warp, request: Request) -> Request | None:
    """The partner's request in a pair's collective, once there is one; registers this one (G9)."""
    w.machine.peers.meet(w, _peer_cta(w), request.op)
    own, other = tmem_of(w.cta), tmem_of(_peer_cta(w))
    if own.request is not None and own.request.warp is not w:
        raise _mismatch(w, request, own.request, "another warp of the CTA executes")
    own.request = request
    partner = other.request
    if partner is None:
        return None
    same = (partner.op.mnemonic, partner.first, partner.columns)
    if same != (request.op.mnemonic, request.first, request.columns):
        raise _mismatch(w, request, partner, "the other CTA of the pair executes")
    return partner


def _mismatch(w: Warp, request: Request, other: Request, requester: str) -> BarrierError:
    return BarrierError(
        "tmem-lifetime",
        f"{_called(request)} by {w}, while {requester} {_called(other)} (G9)",
        "execute the same allocs and deallocs in the same order in one warp of each CTA",
        Side(other.warp, other.op),
    )


def _called(request: Request) -> str:
    columns = f" of {request.columns} columns" if request.columns else ""
    return f"{request.op.mnemonic}.cta_group::2{columns}"


@executor(fx.FreesTmem)
def _frees(c: Operands, op: Op, effect: fx.FreesTmem) -> Act:
    address, columns = c.expr(effect.address), effect.columns

    def step(w: Warp) -> bool | None:
        if _answered(w) is not None:
            return None
        request = Request(w, op, uniform(address(w), w), columns)
        if effect.pair:
            return _together(w, request, partial(_free_pair, w.machine, request))
        _give_back(w.machine, request, _freed(w.machine, request, pair=False)[0])
        return None

    return Act(step, blocks=True)


def _free_pair(machine: Machine, request: Request, partner: Request) -> None:
    """Frees both halves of a pair's allocation, which both CTAs have made by then (G9)."""
    sides = request, partner
    halves = [_freed(machine, side, pair=True) for side in sides]
    for side, (allocation, _) in zip(sides, halves, strict=True):
        _give_back(machine, side, allocation)
    if all(complete for _, complete in halves):
        for side, (allocation, _) in zip(sides, halves, strict=True):
            _check_peer_has_allocated(side.warp, side.op, allocation)


def _freed(machine: Machine, request: Request, *, pair: bool) -> tuple[Allocation, bool]:
    """The allocation that is freed, and whether every use of it, in a pair also the peer's, is over
    (G8, G9); that it is not is reported."""
    warp, op, first, columns = request.warp, request.op, request.first, request.columns
    cta, order = machine.ctas[warp.cta.index], machine.tmem
    assert order is not None
    tmem = tmem_of(cta)
    allocation = tmem.named(first, columns, warp, op)
    _check_same_warp(warp, op, allocation.warp, allocation.op)
    access = TmemAccess(warp, op, "dealloc", True, warp.tick, 0, warp.component, 0)
    complete = order.free(tmem, allocation, access)
    if pair:
        peer = tmem_of(cta.cluster.ctas[cta.rank ^ 1])
        for other in peer.live:
            if (other.address, other.columns) == (first, columns):
                complete &= order.free(peer, other, access)
    return allocation, complete


def _give_back(machine: Machine, request: Request, allocation: Allocation) -> None:
    """Ends an allocation, for which others may wait."""
    warp, op = request.warp, request.op
    tmem = tmem_of(machine.ctas[warp.cta.index])
    _note_order(warp, tmem, op)
    tmem.give_back(allocation, Side(warp, op))
    warp.gather()
    warp.effects += 1
    tmem.pool.wake_waiters()


def _check_peer_has_allocated(warp: Agent, op: Op, allocation: Allocation) -> None:
    """The two allocs of a pair are not known to end together: the warp that frees must know that
    the other CTA's is done (G9; a B300 fails otherwise)."""
    assert allocation.partner is not None
    partner, at = allocation.partner
    if any(warp.rows(component)[GENERIC] >= tick for component, tick in at):
        return
    warp.machine.report(
        "tmem-lifetime",
        f"tcgen05.dealloc.cta_group::2 of {warp} is not ordered after the alloc of {partner}, "
        "the other half of the pair's (G9)",
        ((warp, "frees the columns", op), (partner, "allocates them", allocation.op)),
        fix="put a cluster barrier between the allocs and the deallocs of a pair",
    )


def _check_same_warp(w: Agent, op: Op, owner: Agent, alloc: Op) -> None:
    """Strict reading: the warp that allocated frees; practice hands the address to another."""
    if owner is w or w.machine.accepts("G8", op, alloc):
        return
    w.machine.report(
        "tmem-lifetime",
        f"{w} frees columns that {owner} allocated (G8, G9)",
        ((w, "frees the columns", op), (owner, "allocated them", alloc)),
        fix="let the warp that allocated free, after it has synchronised with all users",
    )


@executor(fx.RelinquishesTmem)
def _relinquishes(c: Operands, op: Op, effect: fx.RelinquishesTmem) -> Act:
    def step(w: Warp) -> bool | None:
        if _answered(w) is not None:
            return None
        tmem = tmem_of(w.cta)
        last = tmem.pool.last
        if last is not None and all(w.clock[c] < tick for c, tick in last):
            w.machine.nondeterministic("whether an alloc comes before relinquish_alloc_permit", op)
        w.machine.note("write", ("tmem", tmem.pool.number), w, op)
        again = tmem.relinquished is not None
        if tmem.relinquished is None:
            made = len(tmem.live) + len(tmem.dead), len(tmem.dead)
            now = w.component, w.clock.item(w.component)
            tmem.relinquished = Relinquished(w, op, *now, made)
        w.effects += 1
        return _relinquish_pair(w, op, again=again) if effect.pair else None

    return Act(step, blocks=True)


def _relinquish_pair(w: Warp, op: Op, *, again: bool) -> bool | None:
    """By the text one warp of each CTA does it, and the first may wait for the second (G9); in
    practice it does not, which matters if the second comes to it only behind the first.

    That is known of the only pair, where in each CTA one warp makes all allocs and deallocs, and
    both have made as many before: nothing else could meet it.
    """
    machine, peer = w.machine, _peer_cta(w)
    if not machine.options.ptx:
        machine.peers.meet(w, peer, op)
        own, other = tmem_of(w.cta).relinquished, tmem_of(peer).relinquished
        alone = len(machine.ctas) == 2 and not w.may_divide
        if again or not alone or _warps_of_pairs(machine.plan.mir) != {w.number}:
            machine.lean("G9", op)
        elif own is not None and other is not None:
            behind = w.clock.item(other.component) >= other.tick
            if behind or own.made != other.made:
                machine.lean("G9", op, surely=behind)
        return None
    return _together(w, Request(w, op), lambda partner: None)


@cached
def _warps_of_pairs(mir: Mir) -> frozenset[int]:
    """The warps of a CTA that may make what two CTAs of a pair do together."""
    numbers = [number for number, effect in mir.all_of(fx.AllocatesTmem) if effect.pair]
    numbers += [number for number, effect in mir.all_of(fx.FreesTmem) if effect.pair]
    numbers += [number for number, effect in mir.all_of(fx.RelinquishesTmem) if effect.pair]
    return frozenset(warp for number in numbers for warp in executing(mir)[number])


# ---------------------------------------------------------------- completion and order (G22 to G28)


#: cycles from the end of the last tracked operation to the arrival of a commit
_COMMIT_LATENCY = 20


@executor(fx.OrdersTmem)
def _orders(c: Operands, op: Op, effect: fx.OrdersTmem) -> Act:
    def after(w: Warp) -> None:
        issuer, _ = issuer_of(w)
        in_time, components = w.components.in_time(w.clock).copy(), w.components
        issuer.see(w.mask, in_time)
        if components.tensor:
            row = components.tensor_row * components.size
            join(w.clock[row : row + components.size], in_time)

    return Act(_publish_order if effect.before else after)


def _publish_order(w: Warp) -> None:
    """What is handed over next includes the order of what these lanes have issued, and the loads
    and stores that are complete (G22, G23)."""
    for kind in ("tcgen05.ld", "tcgen05.st"):
        group = w.groups.get(kind)
        if group is not None:
            w.clock[group.component] = group.done
    order = w.groups.get(ORDER)
    if order is None:
        return
    issuer, _ = issuer_of(w)
    told = [(own.order, own.count) for lane, own in issuer.own.items() if lane & w.mask]
    if all(lanes & w.mask for lanes in issuer.issuing):
        told.append((order.component, order.opened))
    for component, issued in told:
        w.rows(component)[:SHARED] = issued


@operation(with_effect(fx.Commits, group="tcgen05"))
def _commit(c: Operands, op: Op, effects: Effects) -> Step:
    """An arrival when what the thread has issued is complete, which implies the fence before.

    In practice a mask of 0 signals no mbarrier (U9): cuTile's CTA pairs shift the mask of the pair
    by the rank, so that only the first CTA arrives on barriers which count one commit of the two.
    """
    match effects:
        case (fx.Commits(), fx.Arrives(asynchronous=True, mbar=tracked, multicast=ctas)):
            mbar, mask = c.mbar(tracked), None if ctas is None else c.expr(ctas)
        case _:
            raise TypeError(f"{op.mnemonic}: a group of tcgen05 is complete when it has arrived")

    def step(w: Warp) -> None:
        barrier = mbar(w)
        chosen = None if mask is None else uniform(mask(w), w)
        w.effects += 1
        if chosen == 0 and w.machine.accepts("U9", op):
            w.advance()
            return
        places = destinations(w, op, w.machine.ctas[barrier.cta.index], barrier, chosen)
        group = w.groups["tcgen05"]
        issuer, _ = issuer_of(w)
        _publish_order(w)
        issued = w.clock.copy()
        for lane in range(32):
            if not w.mask >> lane & 1:
                continue
            own = issuer.own.get(1 << lane)
            tracked = [(group.component, issuer.tracked(lane))]
            if own is not None:
                tracked.append((own.component, own.count))
            for cta, arrived in places:
                require_live(arrived, w, op)
                _signal(w, op, cta, arrived, tracked, issued)
        w.advance()

    return each_lane(step, signals=True)


def _signal(
    w: Warp, op: Op, cta: Cta, barrier: Mbarrier, tracked: list[tuple[int, int]],
    issued: NDArray[np.int64],
) -> None:  # fmt: skip
    """One arrival when so many operations of each component are complete (G26)."""
    machine = w.machine
    issuer, _ = issuer_of(w)
    access = Access(w, op, barrier.component, NEVER, True, True)
    if cta is not w.cta:
        machine.peers.note(cta, access)
    credit = Credit(w, op, 1, 0, 0, asynchronous=True)
    tell = Completed(barrier, tuple(tracked), cta is not w.cta).tell
    landing = Landing(w, op, barrier, credit, issued, tell, [access])
    waits = machine.timed and any(count for _, count in tracked)
    pending = max(0.0, issuer.finish - machine.env.now) if waits else 0.0
    landing.launch(pending + _COMMIT_LATENCY)


@dataclass(frozen=True, slots=True)
class Completed:
    """What an arrival tells warps that wait: by component, how many operations are complete, of
    another CTA's warp if ``remote``."""

    barrier: Mbarrier
    counts: tuple[tuple[int, int], ...]
    remote: bool

    def tell(self) -> None:
        """The arrival is made."""
        for component, count in self.counts:
            self.barrier.publish_completion(component, count, remote=self.remote)
