"""Non-bulk cp.async (SEMANTICS section C): an asynchronous thread of the generic proxy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilesim.ir.ops.cp_async import CpAsync
from tilesim.ir.types import numpy_dtype
from tilesim.sim.compile import RULES, Compiler
from tilesim.sim.execute.apart import each_lane
from tilesim.sim.machine.access import EVERY, Access
from tilesim.sim.machine.machine import Step, Warp
from tilesim.sim.machine.memory import read_elements, uniform, write_elements
from tilesim.sim.machine.misuse import BarrierError


@RULES.rule(CpAsync)
def _copy(c: Compiler, op: CpAsync) -> Step:
    source, target = c.view(op.src), c.view(op.dst)
    real = c.real(op.dst.tensor)
    limit = None if op.src_bytes is None else c.expr(op.src_bytes)
    dtype = op.src.dtype

    def step(w: Warp) -> None:
        races, group = w.machine.races, w.lane_groups["cp.async"]
        source_memory, target_memory = source.memory(w), target.memory(w)
        read, write = source.footprint(w), target.footprint(w)
        nbytes = op.src.nbytes if limit is None else uniform(limit(w), w)
        component, sequence = group.issue_by(w.mask)
        w.last_issue["cp.async"] = op
        access = Access(
            w, op, component, sequence, False, False, engine=True, lanes=w.mask,
            among=EVERY if w.lanes == 1 else w.mask, piece=op.size,
        )  # fmt: skip
        races.read(source_memory, read, access, w.clock)
        access = replace(access, write=True)
        races.write(target_memory, write, access, w.clock)
        # switch cpasync_proxy: once complete, the write is visible to the async proxy too
        access.asynchronous = not w.machine.options.ptx
        w.effects += 1
        if not 0 <= nbytes <= op.src.nbytes:
            raise BarrierError(
                "out-of-bounds", f"cp.async with src-size {nbytes} of {op.src.nbytes} bytes (C2)",
                "src-size is between 0 and the copy size",
            )  # fmt: skip
        if real:
            values = read_elements(source_memory, read, dtype).reshape(write.addresses.shape)
            if nbytes < op.src.nbytes:
                values = values.copy()
                values.ravel()[nbytes // dtype.bytes :] = np.zeros((), numpy_dtype(dtype))
            write_elements(target_memory, write, op.dst.dtype, values)

    return each_lane(step)
