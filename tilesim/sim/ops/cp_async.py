"""Non-bulk cp.async (SEMANTICS section C): an asynchronous thread of the generic proxy."""

from __future__ import annotations

import numpy as np

from tilesim.ir.ops.cp_async import (
    CpAsync,
    CpAsyncCommitGroup,
    CpAsyncMbarrierArrive,
    CpAsyncWaitAll,
    CpAsyncWaitGroup,
)
from tilesim.ir.types import numpy_dtype
from tilesim.sim.compile import RULES, Compiler, require_live
from tilesim.sim.latency import COPY_LATENCY
from tilesim.sim.machine.access import Access
from tilesim.sim.machine.mbarrier import BarrierError, Credit
from tilesim.sim.machine.memory import read_elements, uniform, write_elements
from tilesim.sim.machine.warp import Step, Warp


@RULES.rule(CpAsync)
def _copy(c: Compiler, op: CpAsync) -> Step:
    source, target = c.view(op.src), c.view(op.dst)
    real = c.real(op.dst.tensor)
    limit = None if op.src_bytes is None else c.expr(op.src_bytes)
    dtype = op.src.dtype

    def step(w: Warp) -> None:
        races, group = w.machine.races, w.groups["cp.async"]
        source_memory, target_memory = source.memory(w), target.memory(w)
        read, write = source.footprint(w), target.footprint(w)
        sequence = group.issue()
        w.last_issue["cp.async"] = op
        access = Access(w, op, group.component, sequence, False, False, engine=True)
        races.read(source_memory, read, access, w.clock)
        access = Access(w, op, group.component, sequence, False, True, engine=True)
        races.write(target_memory, write, access, w.clock)
        # switch cpasync_proxy: once complete, the write is visible to the async proxy too
        access.asynchronous = not w.machine.options.ptx
        w.effects += 1
        nbytes = op.src.nbytes if limit is None else uniform(limit(w), w)
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

    return step


@RULES.rule(CpAsyncCommitGroup)
def _commit(c: Compiler, op: CpAsyncCommitGroup) -> Step:
    return lambda w: w.groups["cp.async"].commit()


def _wait(w: Warp, pending: int) -> None:
    group = w.groups["cp.async"]
    size = w.machine.components.size
    w.clock[size + group.component] = group.wait(pending)
    w.machine.version += 1


@RULES.rule(CpAsyncWaitGroup)
def _wait_group(c: Compiler, op: CpAsyncWaitGroup) -> Step:
    return lambda w: _wait(w, op.pending)


@RULES.rule(CpAsyncWaitAll)
def _wait_all(c: Compiler, op: CpAsyncWaitAll) -> Step:
    def step(w: Warp) -> None:
        w.groups["cp.async"].commit()
        _wait(w, 0)

    return step


@RULES.rule(CpAsyncMbarrierArrive)
def _mbarrier_arrive(c: Compiler, op: CpAsyncMbarrierArrive) -> Step:
    mbar = c.mbar(op.mbar)

    def step(w: Warp) -> None:
        machine, barrier = w.machine, mbar(w)
        require_live(barrier, w, op)
        lanes = w.lanes
        if not op.noinc:
            barrier.credit(Credit(w, op, -lanes, 0, w.tick), w.clock, visible=False)
            w.advance()
        issued = w.clock.copy()
        published = machine.components.clock()
        group = w.groups.get("cp.async")
        if group is not None:
            published[machine.components.size + group.component] = group.opened
            group.tracked = group.opened

        def land() -> None:
            require_live(barrier, w, op)
            barrier.publish(published)
            credit = Credit(w, op, lanes, 0, 0, asynchronous=True, lent=not op.noinc)
            barrier.credit(credit, issued, visible=False)
            machine.changed()

        machine.launch_async(op, w, COPY_LATENCY, land)
        w.advance()
        w.effects += 1

    return step
