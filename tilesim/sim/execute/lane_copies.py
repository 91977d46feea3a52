"""Copies by asynchronous threads of the generic proxy (SEMANTICS section C)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.types import DType, numpy_dtype
from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.sim.execute.apart import each_lane
from tilesim.sim.execute.compose import OPERATIONS, Effects, Operands
from tilesim.sim.expression import Evaluate, plain
from tilesim.sim.machine.access import EVERY, Access
from tilesim.sim.machine.errors import NotUniform
from tilesim.sim.machine.footprint import Footprint
from tilesim.sim.machine.lanes import mask_array, mask_bits
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import (
    ViewAccess,
    read_elements,
    uniform,
    unknown_in,
    write_elements,
)
from tilesim.sim.machine.misuse import BarrierError
from tilesim.sim.machine.storage import Memory

#: where a copy reads or writes
_At = tuple[Memory, Footprint]


@dataclass(frozen=True)
class _Copy:
    """One instruction: a box that lanes share out ``piece`` by ``piece`` (``shares``), or one each.

    ``most``: bytes of a box; ``limit``: how many of them are read, the rest is zero.
    """

    op: Op
    source: ViewAccess
    target: ViewAccess
    dtype: DType
    most: int
    limit: Evaluate | None
    piece: int
    shares: bool
    real: bool

    def of_one_box(self, w: Warp) -> None:
        """All lanes name one box: they share it out, or each of them copies it, which in practice
        counts as one copy that is over once each lane has waited for its own (H23).

        Raises:
            NotUniform: they do not, or their copies need an order; nothing has been done.
        """
        several = w.lanes > 1
        if several and not self.shares and w.machine.options.ptx:
            raise NotUniform
        nbytes = self.most if self.limit is None else uniform(self.limit(w), w)
        target = self.target.memory(w), self.target.footprint(w)
        # a copy of nothing has no source: kernels fill with zeros where an address means nothing
        origin = (self.source.memory(w), self.source.footprint(w)) if nbytes else None
        among = w.mask if several and self.shares else EVERY
        if several and not self.shares:
            w.machine.lean("H23", self.op)
        self._record(w, origin, target, (w.mask, among), among, self.piece)
        if not 0 <= nbytes <= self.most:
            raise BarrierError(
                "out-of-bounds",
                f"{self.op.mnemonic} with src-size {nbytes} of {self.most} bytes (C2)",
                "src-size is between 0 and the copy size",
            )
        if self.real and not self._forgets(origin, target):
            values = np.zeros(target[1].addresses.shape, numpy_dtype(self.dtype))
            if origin is not None:
                count = nbytes // self.dtype.bytes
                values.ravel()[:count] = read_elements(*origin, self.dtype).ravel()[:count]
            write_elements(*target, self.target.view.dtype, values)

    def of_each(self, w: Warp) -> None:
        """Each lane copies the box that it names, all in one operation.

        Boxes that do not overlap may be written in any order, and the records say which lane has
        which bytes. Only an arrival that some of the lanes let their own copies make needs an
        operation of each (C6).

        Raises:
            NotUniform: lane by lane it has to be; nothing has been done.
        """
        if w.parts is not None and w.machine.plan.tracks_copies:
            raise NotUniform
        limit = self.most if self.limit is None else plain(self.limit(w))
        sizes = np.full(32, limit) if type(limit) is int else np.broadcast_to(limit, 32)
        if type(limit) is int and 0 <= limit <= self.most:
            reading = w.mask if limit else 0
        else:
            active = mask_array(w.mask)
            if ((sizes < 0) | (sizes > self.most))[active].any():
                raise NotUniform
            reading = mask_bits((sizes > 0) & active)
        memory, target, _ = self.target.lane_footprint(w)
        if target.bytes.nbytes != w.lanes * self.most:
            raise NotUniform
        origin = self._sources(w, reading) if reading else None
        self._record(w, origin, (memory, target), (reading, reading), w.mask, 0)
        if self.real and not self._forgets(origin, (memory, target)):
            self._move(origin, (memory, target), sizes[mask_array(w.mask)])

    def _sources(self, w: Warp, reading: int) -> _At:
        """What the lanes read that read anything, which is in one memory."""
        active, w.mask = w.mask, reading
        try:
            return self.source.lane_footprint(w)[:2]
        finally:
            w.mask = active

    def _forgets(self, origin: _At | None, target: _At) -> bool:
        """Whether what is copied is not known, and then neither is the target."""
        lost = None if origin is None else unknown_in(*origin, self.op)
        if lost is not None:
            target[0].forget(target[1], lost)
        return lost is not None

    def _move(self, origin: _At | None, target: _At, sizes: NDArray[np.int64]) -> None:
        """The bytes of all lanes, ``sizes`` of each; zeros after them."""
        each = self.most // self.dtype.bytes
        values = np.zeros((len(sizes), each), numpy_dtype(self.dtype))
        if origin is not None:
            values[sizes > 0] = read_elements(*origin, self.dtype).reshape(-1, each)
        values[np.arange(each) >= sizes[:, None] // self.dtype.bytes] = 0
        write_elements(*target, self.target.view.dtype, values.ravel())

    def _record(
        self, w: Warp, origin: _At | None, target: _At, reading: tuple[int, int], among: int,
        piece: int,
    ) -> None:  # fmt: skip
        """One operation of the active lanes; ``reading``: those that have a source, and how they
        share it (as `Access.lanes` and `Access.among`)."""
        for memory, footprint in filter(None, (origin, target)):
            self._require_aligned(memory, footprint)
        races = w.machine.races
        component, sequence = w.lane_groups["cp.async"].issue_by(w.mask)
        w.last_issue["cp.async"] = self.op
        access = Access(
            w, self.op, component, sequence, False, True, engine=True, lanes=w.mask, among=among,
            piece=piece,
        )  # fmt: skip
        if origin is not None and origin[0].tracked:
            lanes, sharing = reading
            source = replace(access, write=False, lanes=lanes, among=sharing)
            races.read(*origin, source, w.clock)
        races.write(*target, access, w.clock)
        # switch cpasync_proxy: once complete, the write is visible to the async proxy too
        access.asynchronous = not w.machine.options.ptx
        w.effects += 1

    def _require_aligned(self, memory: Memory, footprint: Footprint) -> None:
        """What a lane copies at a time begins at a multiple of its size at both ends (C1)."""
        starts = footprint.addresses.ravel()[:: max(1, self.piece // footprint.itemsize)]
        wrong = starts[starts % self.piece != 0]
        if wrong.size:
            raise BarrierError(
                "out-of-bounds",
                f"{self.op.mnemonic} of {self.piece} bytes at byte {wrong[0]} of {memory.label}: "
                f"its address must be a multiple of {self.piece} (C1)",
                "align both ends to the size of the copy, or copy fewer bytes at a time",
            )


def _applies(effects: Effects) -> bool:
    return any(isinstance(e, fx.Issues) and e.group == "cp.async" for e in effects)


def _copy(c: Operands, op: Op, effects: Effects) -> Step:
    match effects:
        case (fx.Reads(view=src), fx.Writes(view=dst), fx.Issues() as issues):
            piece, given, shares = issues.piece, issues.real, issues.shared_out
        case _:
            raise TypeError(f"{op.mnemonic}: such a copy reads, writes, and joins its group")
    limit = None if given is None else c.expr(given)
    real = c.real(dst.tensor)
    copy = _Copy(op, c.view(src), c.view(dst), src.dtype, src.nbytes, limit, piece, shares, real)

    def step(w: Warp) -> None:
        if not copy.target.differs(w):
            try:
                copy.of_one_box(w)
                return
            except NotUniform:
                pass
        copy.of_each(w)

    return each_lane(step)


OPERATIONS.append((_applies, _copy))
