"""Copies by asynchronous threads of the generic proxy (SEMANTICS section C)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilesim.ir import effects as fx
from tilesim.ir.op import Op
from tilesim.ir.types import numpy_dtype
from tilesim.sim.execute.apart import each_lane
from tilesim.sim.execute.compose import OPERATIONS, Effects, Operands
from tilesim.sim.machine.access import EVERY, Access
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import read_elements, uniform, write_elements
from tilesim.sim.machine.misuse import BarrierError


def _applies(effects: Effects) -> bool:
    return any(isinstance(e, fx.Issues) and e.group == "cp.async" for e in effects)


def _copy(c: Operands, op: Op, effects: Effects) -> Step:
    match effects:
        case (fx.Reads(view=src), fx.Writes(view=dst), fx.Issues(piece=piece, real=given)):
            pass
        case _:
            raise TypeError(f"{op.mnemonic}: such a copy reads, writes, and joins its group")
    source, target, real = c.view(src), c.view(dst), c.real(dst.tensor)
    limit = None if given is None else c.expr(given)
    dtype, most = src.dtype, src.nbytes

    def step(w: Warp) -> None:
        races, group = w.machine.races, w.lane_groups["cp.async"]
        nbytes = most if limit is None else uniform(limit(w), w)
        # a copy of nothing has no source: kernels fill with zeros where an address means nothing
        origin = (source.memory(w), source.footprint(w)) if nbytes else None
        target_memory, write = target.memory(w), target.footprint(w)
        component, sequence = group.issue_by(w.mask)
        w.last_issue["cp.async"] = op
        access = Access(
            w, op, component, sequence, False, False, engine=True, lanes=w.mask,
            among=EVERY if w.lanes == 1 else w.mask, piece=piece,
        )  # fmt: skip
        if origin is not None:
            races.read(*origin, access, w.clock)
        access = replace(access, write=True)
        races.write(target_memory, write, access, w.clock)
        # switch cpasync_proxy: once complete, the write is visible to the async proxy too
        access.asynchronous = not w.machine.options.ptx
        w.effects += 1
        if not 0 <= nbytes <= most:
            raise BarrierError(
                "out-of-bounds", f"{op.mnemonic} with src-size {nbytes} of {most} bytes (C2)",
                "src-size is between 0 and the copy size",
            )  # fmt: skip
        if real:
            values = np.zeros(write.addresses.shape, numpy_dtype(dtype))
            if origin is not None:
                count = nbytes // dtype.bytes
                values.ravel()[:count] = read_elements(*origin, dtype).ravel()[:count]
            write_elements(target_memory, write, dst.dtype, values)

    return each_lane(step)


OPERATIONS.append((_applies, _copy))
