"""Tensor memory and tcgen05 instructions (SEMANTICS section G).

Numbers are computed when an operation is issued; what others may rely on is decided by
`sim.machine.tmem_order` and, for operands in shared memory, by the race detector.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.op import Op
from tilesim.ir.ops.tcgen05 import (
    Tcgen05Commit,
    Tcgen05Fence,
    Tcgen05Mma,
    Tcgen05MmaSp,
    Tcgen05MmaWs,
    Tcgen05Product,
    Tcgen05Wait,
)
from tilesim.ir.ops.tcgen05_data import Tcgen05Cp, Tcgen05Ld, Tcgen05Shift, Tcgen05St
from tilesim.ir.tmem import TmemView
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.execute.credits import require_live
from tilesim.sim.execute.lanes import require_whole_warp
from tilesim.sim.execute.transfers import destinations
from tilesim.sim.expression import Evaluate
from tilesim.sim.machine.access import NEVER, Access
from tilesim.sim.machine.conditions import Credit
from tilesim.sim.machine.cta import Cta
from tilesim.sim.machine.groups import Issuer
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import ViewAccess, read_elements, uniform
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.tmem import GROUP, ORDER, AccessKind, Cells, Tmem, TmemAccess
from tilesim.sim.machine.tmem_order import TmemOrder
from tilesim.sim.ops.tcgen05_layout import Accumulator, a_copies, metadata_box, scale_boxes
from tilesim.sim.ops.tcgen05_mma import Inputs, Multiply, mma_cycles_of
from tilesim.sim.ops.tile import value_of

#: cycles from the end of the last tracked operation to the arrival of a commit
_COMMIT_LATENCY = 20
_COPY_CYCLES = 64
_QUARTER = 32


def tmem_of(cta: Cta) -> Tmem:
    """The tensor memory of a CTA of a program that uses tcgen05."""
    assert cta.tmem is not None
    return cta.tmem


def issuer_of(w: Warp) -> tuple[Issuer, TmemOrder]:
    """The warp's tcgen05 state and the machine's checker."""
    assert w.tcgen05 is not None
    assert w.machine.tmem is not None
    return w.tcgen05, w.machine.tmem


class Address:
    """A tensor memory operand: (lane, column) for a warp."""

    def __init__(self, c: Compiler, view: TmemView) -> None:
        self.view = view
        self._address: Evaluate = c.expr(view.address)

    def __call__(self, w: Warp) -> tuple[int, int]:
        value = self._address(w)
        if type(value) is not int:
            value = uniform(value, w)
        return value >> 16, value & 0xFFFF


class Operation:
    """One issued asynchronous operation; makes the records of its accesses."""

    def __init__(self, w: Warp, op: Op, kind: AccessKind) -> None:
        self.warp = w
        self.op = op
        self.kind: AccessKind = kind
        group = w.groups[GROUP[kind]]
        self.component = group.component
        self.sequence = group.issue()
        self.order = w.groups[ORDER].issue()
        self.tick = w.tick
        self.issuer, self._order = issuer_of(w)
        w.effects += 1

    def touch(
        self, tmem: Tmem, box: Cells, name: str, *, write: bool, accumulator: object = None
    ) -> None:
        """Checks and records an access to the operand ``name`` in tensor memory."""
        access = TmemAccess(
            self.warp, self.op, self.kind, write, self.tick, self.order, self.component,
            self.sequence, name, accumulator,
        )  # fmt: skip
        self._order.access(tmem, box, access)

    def reads(self, tmem: Tmem, boxes: list[Cells], name: str) -> None:
        """Checks and records reads of an operand that must hold something."""
        for box in boxes:
            self.touch(tmem, box, name, write=False)
            self.needs(tmem, box)

    def needs(self, tmem: Tmem, box: Cells) -> None:
        """The operation uses what the cells held before."""
        self._order.require_initialised(tmem, box, self.warp, self.op)

    def reads_shared(self, view: ViewAccess, cta: Cta) -> None:
        """Checks and records a read of shared memory, which lasts until completion (G16, G17)."""
        w = self.warp
        access = Access(w, self.op, self.component, self.sequence, True, False)
        footprint = view.footprint(w) if cta is w.cta else view.footprint_in(w, cta.memory)
        w.machine.races.read(cta.memory, footprint, access, w.clock)
        if cta is not w.cta:
            w.machine.peers.note(cta, access)


def issuers(w: Warp, op: Op) -> list[int]:
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
    )
    return [1 << i for i in range(32) if w.mask >> i & 1]


def ctas_of(w: Warp, op: Op, group: int) -> list[Cta]:
    """The CTAs an operation works in, even rank first (G10)."""
    if group == 1:
        return [w.cta]
    peer = w.machine.peer(w, w.cta.rank ^ 1)
    return sorted((w.cta, peer), key=lambda cta: cta.rank)


def run_for(w: Warp, cycles: float) -> None:
    """Occupies the CTA's tensor core (timed policy)."""
    if w.machine.timed and w.tcgen05 is not None:
        start = max(w.machine.env.now, w.cta.tensor_core_free)
        w.cta.tensor_core_free = w.tcgen05.finish = start + cycles


class Sources:
    """The operands in tensor memory that an mma only reads: their boxes, and their checks."""

    def __init__(self, c: Compiler, op: Tcgen05Product) -> None:
        self._op = op
        self._a = Address(c, op.a) if isinstance(op.a, TmemView) else None
        self._metadata = Address(c, op.metadata) if isinstance(op, Tcgen05MmaSp) else None
        self._scales: list[tuple[Address, int, int]] = []
        if isinstance(op, Tcgen05Mma) and op.scale_a is not None and op.scale_b is not None:
            self._scales = [
                (Address(c, op.scale_a), op.rows, 1),
                (Address(c, op.scale_b), op.shape[1], op.folds),
            ]

    def __call__(
        self, w: Warp, tmem: Tmem, operation: Operation, d_lane: int
    ) -> tuple[list[list[Cells]] | None, list[list[Cells]], Cells | None]:
        """Boxes of A, of the scale factors and of the metadata, after recording the reads."""
        op, a, metadata = self._op, None, None
        if self._a is not None:
            a = a_copies(tmem, op, self._a(w), self._a.view.columns, d_lane)
            operation.reads(tmem, [box for copy in a for box in copy], "A")
        scales = []
        for address, rows, folds in self._scales:
            assert isinstance(op, Tcgen05Mma)
            scales.append(scale_boxes(tmem, op, address(w), rows, folds))
            operation.reads(tmem, scales[-1], "the scale factors")
        if self._metadata is not None:
            assert isinstance(op, Tcgen05MmaSp)
            metadata = metadata_box(tmem, op, self._metadata(w))
            operation.reads(tmem, [metadata], "the metadata")
        return a, scales, metadata


@RULES.rule(Tcgen05Mma, Tcgen05MmaSp, Tcgen05MmaWs)
def _mma(c: Compiler, op: Tcgen05Product) -> Step:
    d, b, sources = Address(c, op.d), c.view(op.b), Sources(c, op)
    a_view = None if isinstance(op.a, TmemView) else c.view(op.a)
    accumulate, accumulator = c.expr(op.accumulate), Accumulator(op)
    multiply = Multiply(op) if c.numbers else None
    cycles, instruction = mma_cycles_of(op), (op.mnemonic, op.shape, op.kind)

    def issue(w: Warp, lane: int) -> None:
        operation = Operation(w, op, "mma")
        operation.issuer.issued(operation.sequence, lane)
        keep = bool(uniform(accumulate(w), w))
        at, parts, ctas = d(w), [], ctas_of(w, op, op.cta_group)
        for cta in ctas:
            tmem = tmem_of(cta)
            boxes = accumulator.boxes(tmem, at)
            if a_view is not None:
                operation.reads_shared(a_view, cta)
            operation.reads_shared(b, cta)
            inputs = sources(w, tmem, operation, at[0])
            for box in boxes:
                if keep:
                    operation.needs(tmem, box)
                operation.touch(tmem, box, op.d.name, write=True, accumulator=(at, instruction))
            parts.append((tmem, boxes, inputs))
        run_for(w, cycles)
        if multiply is None:
            return
        pieces = accumulator.pieces(at[0])
        multiply(
            [
                Inputs(
                    tmem, list(zip(pieces, boxes, strict=True)), *inputs,
                    None if a_view is None else _matrix(a_view, w, cta), _matrix(b, w, cta),
                )
                for cta, (tmem, boxes, inputs) in zip(ctas, parts, strict=True)
            ],
            keep=keep,
        )  # fmt: skip

    def step(w: Warp) -> None:
        for lane in issuers(w, op):
            issue(w, lane)

    return step


def _matrix(view: ViewAccess, w: Warp, cta: Cta) -> NDArray[Any]:
    footprint = view.footprint_in(w, cta.memory)
    values = read_elements(cta.memory, footprint, view.view.dtype)
    return values.reshape(view.view.shape)


@RULES.rule(Tcgen05Cp)
def _cp(c: Compiler, op: Tcgen05Cp) -> Step:
    target, source, numbers = Address(c, op.dst), c.view(op.src), c.numbers

    def step(w: Warp) -> None:
        for lane in issuers(w, op):
            operation = Operation(w, op, "cp")
            operation.issuer.issued(operation.sequence, lane)
            at = target(w)
            for cta in ctas_of(w, op, op.cta_group):
                tmem = tmem_of(cta)
                operation.reads_shared(source, cta)
                rows = None
                if numbers:
                    flat = np.ascontiguousarray(_matrix(source, w, cta)).view(np.uint8)
                    rows = flat.reshape(op.dst.shape[0], -1)
                for lane, count, first in _copies(op):
                    box = tmem.box(at[0] + lane, count, at[1], op.dst.columns)
                    operation.touch(tmem, box, op.dst.name, write=True)
                    if rows is not None:
                        tmem.write(box, rows[first : first + count])
            run_for(w, _COPY_CYCLES)

    return step


def _copies(op: Tcgen05Cp) -> Iterator[tuple[int, int, int]]:
    """(first lane, lanes, first row) of every part a tcgen05.cp writes."""
    match op.multicast:
        case "warpx4":
            yield from ((32 * i, 32, 0) for i in range(4))
        case "warpx2::02_13":
            yield from ((32 * i, 32, 32 * (i % 2)) for i in range(4))
        case "warpx2::01_23":
            yield from ((32 * i, 32, 32 * (i // 2)) for i in range(4))
        case None if op.shape == "4x256b":
            yield from ((32 * i, 1, i) for i in range(4))
        case None:
            yield (0, op.dst.shape[0], 0)


@RULES.rule(Tcgen05Shift)
def _shift(c: Compiler, op: Tcgen05Shift) -> Step:
    target, numbers = Address(c, op.dst), c.numbers

    def step(w: Warp) -> None:
        for lane in issuers(w, op):
            operation = Operation(w, op, "shift")
            operation.issuer.issued(operation.sequence, lane)
            first, column = target(w)
            _require_quarter(op, first)
            for cta in ctas_of(w, op, op.cta_group):
                tmem = tmem_of(cta)
                box = tmem.box(first, 32, column, op.dst.columns)
                operation.needs(tmem, box)
                operation.touch(tmem, box, op.dst.name, write=True)
                if numbers:
                    values = tmem.read(box, op.dst.dtype).copy()
                    values[:-1] = values[1:]
                    tmem.write(box, values)
            run_for(w, _COPY_CYCLES)

    return step


def _require_quarter(op: Tcgen05Shift, lane: int) -> None:
    if lane % _QUARTER:
        raise BarrierError(
            "out-of-bounds",
            f"{op.mnemonic} of {op.dst.name} from lane {lane}: it shifts {_QUARTER} lanes from a "
            f"multiple of {_QUARTER} on (PTX 9.7.16.9.3)",
            "name the lanes of one quarter",
        )


class LaneBoxes:
    """The cells a tcgen05.ld or st of a warp accesses: its own lanes only (G12)."""

    def __init__(self, c: Compiler, op: Tcgen05Ld | Tcgen05St, view: TmemView) -> None:
        self._op = op
        self._address = Address(c, view)
        self._view = view

    def __call__(self, w: Warp) -> list[Cells]:
        op, tmem = self._op, tmem_of(w.cta)
        lane, column = self._address(w)
        rows, columns = self._view.shape[0], self._view.columns
        quarter = _QUARTER * (w.number % 4)
        if not quarter <= lane <= quarter + _QUARTER - rows or (lane - quarter) % 16:
            raise BarrierError(
                "out-of-bounds",
                f"{op.mnemonic} of {w} on lanes {lane}..{lane + rows - 1}: warp {w.number} of the "
                f"CTA can only access lanes {quarter}..{quarter + 31} (G12, U21)",
                "add 32 * (warp_id % 4) lanes to the address",
            )
        if op.shape == "16x32bx2":
            return [
                tmem.box(lane, rows, column, columns),
                tmem.box(lane, rows, column + op.half_split, columns),
            ]
        return [tmem.box(lane, rows, column, columns)]


@RULES.rule(Tcgen05Ld)
def _ld(c: Compiler, op: Tcgen05Ld) -> Step:
    boxes_of, numbers = LaneBoxes(c, op, op.src), c.numbers
    dtype, packed = op.src.dtype, op.src.packed

    def step(w: Warp) -> None:
        require_whole_warp(w, op)
        tmem, boxes = tmem_of(w.cta), boxes_of(w)
        operation = Operation(w, op, "ld")
        for box in boxes:
            operation.touch(tmem, box, op.src.name, write=False)
            operation.needs(tmem, box)
        values = None
        if numbers:
            values = np.concatenate([tmem.read(box, dtype, packed=packed) for box in boxes])
        w.fragments[op.dst.name] = values

    return step


@RULES.rule(Tcgen05St)
def _st(c: Compiler, op: Tcgen05St) -> Step:
    boxes_of, numbers = LaneBoxes(c, op, op.dst), c.numbers

    def step(w: Warp) -> None:
        require_whole_warp(w, op)
        tmem, boxes = tmem_of(w.cta), boxes_of(w)
        values = value_of(w, op.src, op)
        operation = Operation(w, op, "st")
        row = 0
        for box in boxes:
            operation.touch(tmem, box, op.dst.name, write=True)
            count = box.lanes[1] - box.lanes[0]
            if numbers:
                tmem.write(box, values[row : row + count], packed=op.dst.packed)
            row += count

    return step


@RULES.rule(Tcgen05Wait)
def _wait(c: Compiler, op: Tcgen05Wait) -> Step:
    kind = f"tcgen05.{op.kind}"

    def step(w: Warp) -> None:
        require_whole_warp(w, op)
        group = w.groups[kind]
        group.done = group.opened
        size = w.machine.components.size
        w.clock[size + group.component] = w.clock[2 * size + group.component] = group.done

    return step


@RULES.rule(Tcgen05Fence)
def _fence(c: Compiler, op: Tcgen05Fence) -> Step:
    before = op.side == "before_thread_sync"

    def step(w: Warp) -> None:
        if before:
            publish_order(w)
        else:
            issuer, _ = issuer_of(w)
            issuer.seen = w.clock[: w.machine.components.size].copy()

    return step


def publish_order(w: Warp) -> None:
    """fence::before_thread_sync: what is handed over next includes the order of what was issued,
    and the loads and stores that are complete (G22, G23)."""
    for kind in ("tcgen05.ld", "tcgen05.st"):
        group = w.groups.get(kind)
        if group is not None:
            w.clock[group.component] = group.done
    order = w.groups.get(ORDER)
    if order is not None:
        w.clock[order.component] = order.opened


@RULES.rule(Tcgen05Commit)
def _commit(c: Compiler, op: Tcgen05Commit) -> Step:
    mbar = c.mbar(op.mbar)
    mask = None if op.multicast is None else c.expr(op.multicast)

    def step(w: Warp) -> None:
        barrier = mbar(w)
        chosen = None if mask is None else uniform(mask(w), w)
        places = destinations(w, op, w.machine.ctas[barrier.cta.index], barrier, chosen)
        group = w.groups["tcgen05"]
        issuer, _ = issuer_of(w)
        publish_order(w)
        issued = w.clock.copy()
        for lane in range(32):
            if not w.mask >> lane & 1:
                continue
            count = issuer.tracked(lane)
            for cta, tracked in places:
                require_live(tracked, w, op)
                _signal(w, op, cta, tracked, group.component, count, issued)
        w.advance()
        w.effects += 1

    return step


def _signal(
    w: Warp, op: Op, cta: Cta, barrier: Any, component: int, count: int, issued: NDArray[np.int64]
) -> None:
    """One arrival when ``count`` operations of the warp are complete (G26)."""
    machine = w.machine
    issuer, _ = issuer_of(w)
    access = Access(w, op, barrier.component, NEVER, True, True)
    if cta is not w.cta:
        machine.peers.note(cta, access)

    def land() -> None:
        require_live(barrier, w, op)
        barrier.publish_completion(component, count, remote=cta is not w.cta)
        barrier.landed.append(access)
        barrier.credit(Credit(w, op, 1, 0, 0, asynchronous=True), issued, visible=False)
        machine.changed()

    pending = max(0.0, issuer.finish - machine.env.now) if machine.timed and count else 0.0
    machine.launch_async(op, w, pending + _COMMIT_LATENCY, land)
