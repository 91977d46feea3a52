"""Groups of asynchronous copies: they belong to one thread, ``wait_group N`` leaves N open."""

from __future__ import annotations

from typing import Any

from tilesim.arith.types import f32, s32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.errors import UsageError
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

ROWS, COLUMNS = 64, 32
WARPS = 8
#: a tile leaves in this many column blocks, each stored by one thread
BLOCKS = 2
#: rows of a column block that one warp writes
SHARE = ROWS * BLOCKS // WARPS


def _doubled(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"] * 2}


@kernel(warps=WARPS, family="bugs", reference=_doubled)
def waited_by_issuers(k: Builder, *, tiles: int = 3, fixed: bool = False) -> None:
    """deepseek-ai/DeepGEMM 83aa960 (B075).

    Y = 2 X, tile by tile through one buffer in shared memory. Two threads store a column block
    each; before the next tile these two wait until their stores have read the buffer, and then all
    256 threads overwrite it. The wait says nothing to the other threads.

    Fix: a barrier of all threads after the wait.
    """
    X = k.tensor("X", f32, (tiles * ROWS, BLOCKS * COLUMNS))
    Y = k.tensor("Y", f32, (tiles * ROWS, BLOCKS * COLUMNS))
    y_map = k.tensor_map(Y, (ROWS, COLUMNS), swizzle=128)
    buffer = k.shared("buffer", f32, (BLOCKS, ROWS, COLUMNS), swizzle=128)
    x = k.fragment("x", f32, (SHARE, COLUMNS))

    with k.role("math", range(WARPS)), k.loop(tiles) as i:
        block, row = k.warp_id % BLOCKS, k.warp_id // BLOCKS * SHARE
        k.tile.load(x, X[ds(i * ROWS + row, SHARE), ds(block * COLUMNS, COLUMNS)])
        k.tile.zip(x, "mul", x, 2.0)
        with k.if_(k.warp_id < BLOCKS), k.elected():
            k.bulk.wait_group(0, read=True)
        if fixed:
            k.bar.sync(1, 32 * WARPS)
        k.tile.store(buffer[block, ds(row, SHARE), :], x)  # BUG: only two threads have waited
        k.fence.proxy_async("shared::cta")
        k.bar.sync(1, 32 * WARPS)
        with k.if_(k.warp_id < BLOCKS), k.elected():
            k.tma.store(y_map, buffer[k.warp_id], (i * ROWS, k.warp_id * COLUMNS))
            k.bulk.commit_group()
            with k.if_((i + 1).eq(tiles)):
                k.bulk.wait_group(0)


def _gathered(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["pages"].copy()}


@kernel(warps=2, family="bugs", reference=_gathered)
def waited_too_little(k: Builder, *, tiles: int = 6, stages: int = 3, fixed: bool = False) -> None:
    """NVIDIA/cutlass #2502, example 77 (B077).

    A warp loads page tables with ``cp.async``, ``stages - 1`` of them ahead, one group each. It
    then waits until at most ``stages - 1`` groups are open, which is always so, and announces a
    table that may not have arrived. Y is what the reader finds.

    Fix: ``wait_group(stages - 2)``.
    """
    if stages < 2:
        raise UsageError(f"{stages=} must be at least 2")
    ahead = stages - 1
    pages = k.tensor("pages", s32, (tiles, 32))
    Y = k.tensor("Y", s32, (tiles, 32))
    table = k.shared("table", s32, (stages, 32))
    pipe = Pipeline(k, stages, producers=32, consumers=32)
    page = k.var("page")

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with k.role("page loader", 0):
        for s in range(ahead):
            if s < tiles:
                k.cp_async.copy(table[s], pages[s], size=4)
            k.cp_async.commit_group()
        with k.loop(tiles) as i:
            if fixed:
                k.cp_async.wait_group(ahead - 1)
            else:
                k.cp_async.wait_group(ahead)  # BUG: waits for nothing
            pipe[i].commit()
            with k.if_(i + ahead < tiles):
                following = pipe[i + ahead]
                following.acquire()
                k.cp_async.copy(table[following.stage], pages[i + ahead], size=4)
            k.cp_async.commit_group()

    with k.role("load", 1), k.loop(tiles) as i:
        slot = pipe[i]
        slot.wait()
        k.mem.load(page, table[slot.stage, k.lane_id])
        slot.release()
        k.mem.store(Y[i, k.lane_id], page)


_RACE = frozenset({"race"})

CASES = (
    Case(waited_by_issuers, {}, "bugs", "failed", _RACE, source="B075"),
    Case(waited_by_issuers, {"tiles": 1}, "bugs", "proved", source="B075", note="never refilled"),
    Case(waited_by_issuers, {"fixed": True}, "bugs", "proved", source="B075"),
    Case(waited_too_little, {}, "bugs", "failed", _RACE, source="B077"),
    Case(waited_too_little, {"fixed": True}, "bugs", "proved", source="B077"),
    Case(waited_too_little, {"fixed": True, "stages": 2}, "bugs", "proved", source="B077"),
)
