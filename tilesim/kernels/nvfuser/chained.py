"""Chained asynchronous warps: one consumes what the other produced.

An embedding lookup, ``out[i, :] = table[index[i], :]``. The first asynchronous warp copies blocks
of indices to shared memory. The second reads an index from there and copies that row of the table:
its *addresses* depend on data another asynchronous warp produced, so it waits for that warp's full
barrier and releases its stage like any consumer. A third warp stores the rows, also by bulk copies.
Each edge of the chain has its own full/empty pair.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import f32, s32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline


def _lookup(inputs: Arrays, **params: Any) -> Arrays:
    return {"out": inputs["table"][inputs["index"]]}


def _inputs(rng: np.random.Generator, *, count: int, entries: int, width: int, **_: Any) -> Arrays:
    return {
        "index": rng.integers(0, entries, count, dtype=np.int32),
        "table": rng.integers(-8, 9, (entries, width)).astype(np.float32),
    }


@kernel(warps=3, family="nvfuser", reference=_lookup, inputs=_inputs)
def chained(
    k: Builder,
    *,
    count: int = 24,
    entries: int = 16,
    width: int = 64,
    block: int = 4,
    stages: int = 3,
) -> None:
    """out (count, width) = table[index]; indices travel in blocks of ``block``."""
    index = k.tensor("index", s32, (count,))
    table = k.tensor("table", f32, (entries, width))
    out = k.tensor("out", f32, (count, width))
    indices = k.shared("indices", s32, (2, block))
    rows = k.shared("rows", f32, (stages, width))
    indexed = Pipeline(k, 2, name="indexed")
    looked_up = Pipeline(k, stages, name="looked_up")
    row = k.var("row", dtype=s32)
    blocks = tiles(count, block, "count")

    with k.one_thread():
        indexed.init()
        looked_up.init()
    k.sync_threads()

    with k.role("load indices", 0), k.elected(), k.loop(blocks, name="b") as b:
        slot = indexed[b]
        slot.acquire()
        slot.commit(indices[slot.stage].nbytes)
        k.bulk.load(indices[slot.stage], index[ds(b * block, block)], slot.full)

    with k.role("look up", 1), k.elected(), k.loop(blocks, name="b") as b:
        source = indexed[b]
        source.wait()
        with k.loop(block, name="j") as j:
            slot = looked_up[b * block + j]
            slot.acquire()
            k.mem.load(row, indices[source.stage, j])
            slot.commit(rows[slot.stage].nbytes)
            k.bulk.load(rows[slot.stage], table[row], slot.full)
        k.fence.proxy_async("shared::cta")  # the index reads, before the next block is copied in
        source.release()

    with k.role("store rows", 2), k.elected(), k.loop(count) as i:
        slot = looked_up[i]
        slot.wait()
        k.bulk.store(out[i], rows[slot.stage])
        k.bulk.commit_group()
        k.bulk.wait_group(0, read=True)
        slot.release()


CASES = (
    Case(chained, {}, "nvfuser", "proved"),
    Case(chained, {"stages": 1, "count": 8}, "nvfuser", "proved"),
)
