"""Where barriers and buffers lie in shared memory: storage used twice, storage not requested."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import Mbarriers
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case

WARPS = 4
THREADS = 32 * WARPS


def _scaled_rows(inputs: Arrays, **params: Any) -> Arrays:
    scale = np.array([[2.0], [3.0]], dtype=np.float32)
    return {"Y": inputs["X"] * scale}


@kernel(warps=WARPS, family="bugs", reference=_scaled_rows)
def reused_storage(
    k: Builder, *, reuse: Literal["barrier", "data"] = "barrier", fixed: bool = False
) -> None:
    """facebookexperimental/triton #462; Triton #10106, #11120 (B059).

    Y[0] = 2 X[0], Y[1] = 3 X[1] in two passes, each with a copy into shared memory. The allocator
    considers the first pass's mbarrier dead and gives its bytes to the second pass: to its own
    mbarrier, which is initialised there, or to a table of factors. To the hardware the bytes still
    are a barrier.

    Fix: ``mbarrier.inval`` when the first pass is over.
    """
    X = k.tensor("X", f32, (2, THREADS))
    Y = k.tensor("Y", f32, (2, THREADS))
    buffer = k.shared("buffer", f32, (2, THREADS), offset=1024)
    first = k.mbarriers("first", 1, offset=0)
    second = k.mbarriers("second", 1, offset=0 if reuse == "barrier" else 512)
    factors = k.shared("factors", f32, (2,), offset=0 if reuse == "data" else 512)
    value, factor = k.var("value", dtype=f32), k.var("factor", dtype=f32)

    def copy(row: int, barrier: Mbarriers) -> None:
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(barrier, buffer[row].nbytes)
            k.bulk.load(buffer[row], X[row], barrier)
        k.mbarrier.wait(barrier, 0)
        k.mem.load(value, buffer[row, k.thread_id])

    with k.one_thread():
        k.mbarrier.init(first, 1)
        if reuse == "data":
            k.mbarrier.init(second, 1)
    k.sync_threads()
    with k.role("first pass", range(WARPS)):
        copy(0, first)
        k.mem.store(Y[0, k.thread_id], value * 2.0)
    k.sync_threads()

    with k.one_thread():
        if fixed:
            k.mbarrier.inval(first)
        if reuse == "barrier":
            k.mbarrier.init(second, 1)  # BUG: first is still alive at this address
        k.mem.store(factors[0], 2.0)  # BUG: with reuse="data", so it is here
        k.mem.store(factors[1], 3.0)
    k.sync_threads()
    with k.role("second pass", range(WARPS)):
        copy(1, second)
        k.mem.load(factor, factors[1])
        k.mem.store(Y[1, k.thread_id], value * factor)


def _total(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"].sum(dtype=np.float32, keepdims=True)}


@kernel(warps=WARPS, family="bugs", reference=_total)
def workspace_beyond_request(k: Builder, *, fixed: bool = False) -> None:
    """tilus #158 (B061).

    Y = the sum of X, reduced through a workspace. The high-water mark after buffer and barrier is
    not aligned; the workspace is placed at the next multiple of 128, but the launch requests the
    unaligned mark plus the size of the workspace, so its tail lies outside.

    Fix: request what the placement uses.
    """
    X = k.tensor("X", f32, (THREADS,))
    Y = k.tensor("Y", f32, (1,))
    buffer = k.shared("buffer", f32, (THREADS,), offset=0)
    full = k.mbarriers("full", 1, offset=buffer.nbytes)
    high_water = buffer.nbytes + full.nbytes
    aligned = -(-high_water // 128) * 128
    workspace = k.shared("workspace", f32, (THREADS,), offset=aligned)
    if fixed:
        k.launch(smem_bytes=aligned + workspace.nbytes)
    else:
        k.launch(smem_bytes=high_water + workspace.nbytes)  # BUG: forgets the alignment
    value, other = k.var("value", dtype=f32), k.var("other", dtype=f32)

    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, buffer.nbytes)
        k.bulk.load(buffer, X, full)
    with k.role("reduce", range(WARPS)):
        k.mbarrier.wait(full, 0)
        k.mem.load(value, buffer[k.thread_id])
        k.mem.store(workspace[k.thread_id], value)
        k.sync_threads()
        for half in (64, 32, 16, 8, 4, 2, 1):
            with k.if_(k.thread_id < half):
                k.mem.load(other, workspace[k.thread_id + half])
                k.assign(value, value + other)
                k.mem.store(workspace[k.thread_id], value)
            k.sync_threads()
        with k.if_(k.thread_id.eq(0)):
            k.mem.store(Y[0], value)


_LIFETIME = frozenset({"barrier-lifetime"})
_BOUNDS = frozenset({"out-of-bounds"})

CASES = (
    Case(reused_storage, {}, "bugs", "failed", _LIFETIME, source="B059"),
    Case(reused_storage, {"fixed": True}, "bugs", "proved", source="B059"),
    Case(
        reused_storage,
        {"reuse": "data"},
        "bugs",
        "failed",
        _LIFETIME,
        source="B059",
        note="ordinary data in a live barrier",
    ),
    Case(reused_storage, {"reuse": "data", "fixed": True}, "bugs", "proved", source="B059"),
    Case(workspace_beyond_request, {}, "bugs", "rejected", _BOUNDS, source="B061"),
    Case(workspace_beyond_request, {"fixed": True}, "bugs", "proved", source="B061"),
)
