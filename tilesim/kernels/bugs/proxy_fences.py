"""Ordinary accesses and TMA copies of the same bytes: where ``fence.proxy.async`` has to be.

Loads and stores go through the generic proxy, TMA copies through the async proxy, and a barrier
between the two does not connect the proxies.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

ROWS, COLUMNS = 64, 32
WARPS = 4
#: rows of one warp
SHARE = ROWS // WARPS


def _doubled(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"] * 2}


@kernel(warps=WARPS + 1, family="bugs", reference=_doubled)
def overwritten_after_read(
    k: Builder, *, blocks: int = 5, stages: int = 2, fixed: bool = False, issuer: bool = False
) -> None:
    """Triton #7262, #7278; DeepEP #642; TransformerEngine #2695 (B036).

    Y = 2 X. Consumers read a stage with ordinary loads, release it, and the next TMA copy writes
    the same bytes: a generic read before an asynchronous write. By the text of PTX the two proxies
    need a fence; shipping kernels omit it, so this is a finding at strictness ``ptx`` only.

    Fix: ``fence.proxy.async`` after the reads, before the release; or, as in DeepEP, in the thread
    that issues the copy, between its wait and the copy (``issuer``).
    """
    X = k.tensor("X", f32, (blocks * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (blocks * ROWS, COLUMNS))
    x_map = k.tensor_map(X, (ROWS, COLUMNS), swizzle=128)
    buffer = k.shared("buffer", f32, (stages, ROWS, COLUMNS), swizzle=128)
    pipe = Pipeline(k, stages, consumers=WARPS)
    x = k.fragment("x", f32, (SHARE, COLUMNS))

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with k.role("consumer", range(WARPS)), k.loop(blocks) as i:
        slot = pipe[i]
        mine = ds(k.warp_id * SHARE, SHARE)
        slot.wait()
        k.tile.load(x, buffer[slot.stage, mine, :])  # BUG: no proxy fence after this read
        if fixed:
            k.fence.proxy_async("shared::cta")
        k.sync_warp()
        with k.elected():
            slot.release()
        k.tile.zip(x, "mul", x, 2.0)
        k.tile.store(Y[ds(i * ROWS + k.warp_id * SHARE, SHARE), :], x)

    with k.role("producer", WARPS), k.elected(), k.loop(blocks) as i:
        slot = pipe[i]
        slot.acquire()
        if issuer:
            k.fence.proxy_async("shared::cta")
        slot.commit(x_map.box_bytes)
        k.tma.load(x_map, buffer[slot.stage], (i * ROWS, 0), slot.full)


def _summed(inputs: Arrays, *, steps: int, **params: Any) -> Arrays:
    blocks = inputs["X"].reshape(-1, ROWS, COLUMNS)[:steps]
    return {"Y": blocks.sum(axis=0, dtype=np.float32)}


@kernel(warps=WARPS, family="bugs", reference=_summed)
def fence_in_loop(k: Builder, *, steps: int = 0, fixed: bool = False) -> None:
    """MoonshotAI/FlashKDA #24 (B038).

    Y = the sum of ``steps`` blocks of X. The state starts as zeros in shared memory, every step
    updates it and executes ``fence.proxy.async``, at the end a TMA store writes it out. An empty
    sequence makes no step and executes no fence, so the store may not see the zeros.

    Fix: a fence after the initialisation, too.
    """
    X = k.tensor("X", f32, (max(steps, 1) * ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (ROWS, COLUMNS))
    length = k.scalar("length", steps)
    y_map = k.tensor_map(Y, (ROWS, COLUMNS))
    state = k.shared("state", f32, (ROWS, COLUMNS))
    total = k.fragment("total", f32, (SHARE, COLUMNS))
    x = k.fragment("x", f32, (SHARE, COLUMNS))

    with k.role("scan", range(WARPS)):
        mine = state[ds(k.warp_id * SHARE, SHARE), :]
        k.tile.fill(total, 0.0)
        k.tile.store(mine, total)  # BUG: only the loop has a fence, and it may not run
        if fixed:
            k.fence.proxy_async("shared::cta")
        with k.loop(length, name="t") as t:
            k.tile.load(x, X[ds(t * ROWS + k.warp_id * SHARE, SHARE), :])
            k.tile.load(total, mine)
            k.tile.zip(total, "add", total, x)
            k.tile.store(mine, total)
            k.fence.proxy_async("shared::cta")
        k.sync_threads()
        with k.one_thread():
            k.tma.store(y_map, state, (0, 0))
            k.bulk.commit_group()
            k.bulk.wait_group(0)


@kernel(warps=WARPS, family="bugs", reference=_doubled)
def fence_after_barrier(k: Builder, *, fence: str = "none") -> None:
    """jax-ml/jax cdae5fcfc7, Mosaic GPU (B042).

    Y = 2 X through shared memory and a TMA store. The original executes ``fence.proxy.async`` after
    the warpgroup's barrier; its authors moved the fence in front of it, as NVIDIA's guides have it,
    without having seen a failure. PTX asks for a fence on the path from the writes to the store,
    and the issuing warp's own fence after the barrier is one (H11): ``after`` is accepted, as is
    ``before``; only ``none`` is a defect.
    """
    X = k.tensor("X", f32, (ROWS, COLUMNS))
    Y = k.tensor("Y", f32, (ROWS, COLUMNS))
    y_map = k.tensor_map(Y, (ROWS, COLUMNS))
    tile = k.shared("tile", f32, (ROWS, COLUMNS))
    x = k.fragment("x", f32, (SHARE, COLUMNS))

    with k.role("warpgroup", range(WARPS)):
        mine = ds(k.warp_id * SHARE, SHARE)
        k.tile.load(x, X[mine, :])
        k.tile.zip(x, "mul", x, 2.0)
        k.tile.store(tile[mine, :], x)
        if fence == "before":
            k.fence.proxy_async("shared::cta")
        k.bar.sync(1, 32 * WARPS)
        if fence == "after":
            k.fence.proxy_async("shared::cta")
        with k.one_thread():
            k.tma.store(y_map, tile, (0, 0))  # BUG: with no fence before it at all
            k.bulk.commit_group()
            k.bulk.wait_group(0)


_PROXY = frozenset({"proxy-fence"})

CASES = (
    Case(overwritten_after_read, {}, "bugs", "failed", _PROXY, strict="ptx", source="B036"),
    Case(
        overwritten_after_read,
        {},
        "bugs",
        "proved",
        source="B036",
        note="common practice: no fence between a read and the next copy",
    ),
    Case(overwritten_after_read, {"fixed": True}, "bugs", "proved", strict="ptx", source="B036"),
    Case(overwritten_after_read, {"issuer": True}, "bugs", "proved", strict="ptx", source="B036"),
    Case(fence_in_loop, {}, "bugs", "failed", _PROXY, source="B038", note="an empty sequence"),
    Case(
        fence_in_loop,
        {"steps": 3},
        "bugs",
        "proved",
        source="B038",
        note="the loop's fence covers the initialisation",
    ),
    Case(fence_in_loop, {"fixed": True}, "bugs", "proved", source="B038"),
    Case(fence_in_loop, {"steps": 3, "fixed": True}, "bugs", "proved", source="B038"),
    Case(fence_after_barrier, {}, "bugs", "failed", _PROXY, source="B042"),
    Case(
        fence_after_barrier,
        {"fence": "after"},
        "bugs",
        "proved",
        source="B042",
        note="the issuing warp's fence lies on the path",
    ),
    Case(fence_after_barrier, {"fence": "before"}, "bugs", "proved", source="B042"),
)
