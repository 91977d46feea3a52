"""Small kernels with one mistake each, which is one finding: what it comes to follows it."""

from __future__ import annotations

import tilesim as ts
from tilesim.dsl.builder import Builder
from tilesim.lib.opening import open_cluster, open_cta

STAGES, ROWS, WARPS, TURNS = 2, 64, 4, 5


@ts.kernel(warps=WARPS + 1)
def ring(k: Builder, *, fault: str = "") -> None:
    """A producer and four consumers."""
    source = k.tensor("source", ts.bf16, (TURNS * ROWS, 64))
    result = k.tensor("result", ts.bf16, (TURNS * ROWS, 64))
    box = k.tensor_map(source, (ROWS, 64))
    tile = k.shared("tile", ts.bf16, (STAGES, ROWS, 64))
    full, empty = k.mbarriers("full", STAGES), k.mbarriers("empty", STAGES)
    part = k.fragment("part", ts.bf16, (ROWS // WARPS, 64))
    open_cta(k, (full, 1), (empty, WARPS))
    with k.role("load", WARPS):
        if fault == "lanes":
            with k.loop(TURNS) as i:
                k.mbarrier.wait(empty[i % STAGES], ((i // STAGES) & 1) ^ 1)
                k.mbarrier.arrive_expect_tx(full[i % STAGES], box.box_bytes)  # @lanes
                k.tma.load(box, tile[i % STAGES], (i * ROWS, 0), full[i % STAGES])
        else:
            with k.elected(), k.loop(TURNS) as i:
                if fault != "again":
                    k.mbarrier.wait(empty[i % STAGES], ((i // STAGES) & 1) ^ 1)
                k.mbarrier.arrive_expect_tx(full[i % STAGES], box.box_bytes)  # @again
                slot = (i + 1) % STAGES if fault == "slot" else i % STAGES
                k.tma.load(box, tile[slot], (i * ROWS, 0), full[i % STAGES])  # @slot
    with k.role("use", range(WARPS)), k.loop(TURNS) as i:
        if fault != "unwaited":
            k.mbarrier.wait(full[i % STAGES], (i // STAGES) & 1)
        rows = ts.ds(k.warp_id * (ROWS // WARPS), ROWS // WARPS)
        k.tile.load(part, tile[i % STAGES, rows, :])  # @unwaited
        k.tile.store(result[ts.ds(i * ROWS + k.warp_id * 16, 16), :], part)
        if fault == "all":
            k.mbarrier.arrive(empty[i % STAGES])  # @all
        else:
            with k.elected():
                k.mbarrier.arrive(empty[i % STAGES])
                if fault == "twice":
                    k.mbarrier.arrive(empty[i % STAGES])  # @twice


@ts.kernel(warps=4)
def turns(k: Builder, *, fault: str = "") -> None:
    """Two warps hand a word back and forth at named barriers."""
    result = k.tensor("result", ts.s32, (TURNS + 1, 32))
    word = k.shared("word", ts.s32, (32,))
    value = k.var("value", 0)
    with k.role("give", 0), k.loop(TURNS) as i:
        k.bar.sync(3 if fault == "id" else 2, 96 if fault == "count" else 64)  # @count @id
        k.mem.store(word[k.lane_id], i)
        k.bar.arrive(1, 64)
    more = int(fault == "trips")
    with k.role("take", 1), k.loop(TURNS + more) as i:  # @trips
        k.bar.arrive(2, 64)
        if fault != "unwaited":
            k.bar.sync(1, 64)
        k.mem.load(value, word[k.lane_id])  # @unwaited
        k.mem.store(result[i, k.lane_id], value)
    with k.role("rest", (2, 3)):
        if fault == "stray":
            k.bar.sync(1, 64)  # @stray


@ts.kernel(warps=4)
def staged(k: Builder, *, fault: str = "") -> None:
    """cp.async, three stages, of which every warp reads what another one has copied."""
    source, result = (k.tensor(name, ts.f32, (TURNS, 4, 128)) for name in ("source", "result"))
    s = k.shared("s", ts.f32, (3, 4, 128))
    part = k.fragment("part", ts.f32, (1, 128))
    for first in range(2):
        k.cp_async.copy(s[first, k.warp_id], source[first, k.warp_id])
        k.cp_async.commit_group()
    with k.loop(TURNS) as i:
        k.cp_async.wait_group(2 if fault == "late" else 1)  # @late
        k.sync_threads()
        row = ts.ds((k.warp_id + 1) % 4, 1)
        k.tile.load(part, s[i % 3, row, :])
        k.tile.store(result[i, row, :], part)
        with k.if_(i + 2 < TURNS):
            k.cp_async.copy(s[(i + 2) % 3, k.warp_id], source[i + 2, k.warp_id])  # @uncommitted
        if fault != "uncommitted":
            k.cp_async.commit_group()


@ts.kernel(warps=3)
def in_a_row(k: Builder, *, fault: str = "") -> None:
    """Each warp waits for the one before, and lets the next one go."""
    b = k.mbarriers("b", 3)
    open_cta(k, (b, 1))
    for warp, name in enumerate(("one", "two", "three")):
        with k.role(name, warp), k.elected():
            if warp or fault == "cycle":
                k.mbarrier.wait(b[warp], 0)  # @cycle
            if fault == "exit" and warp == 1:
                k.exit()  # @exit
            if fault == "once more" and warp == 1:
                k.mbarrier.wait(b[warp], 1)  # @once more
            k.mbarrier.arrive(b[(warp + 1) % 3])
    with k.role("last", 0), k.elected():
        k.mbarrier.wait(b[0], 0)


@ts.kernel(warps=5)
def pair(k: Builder, *, fault: str = "") -> None:
    """Each CTA of a pair loads half a tile for both."""
    k.launch(grid=2, cluster=2)
    source = k.tensor("source", ts.bf16, (TURNS * 64, 64))
    result = k.tensor("result", ts.bf16, (2 * TURNS * 64, 64))
    box = k.tensor_map(source, (32, 64))
    tile = k.shared("tile", ts.bf16, (2, 64, 64))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    part = k.fragment("part", ts.bf16, (16, 64))
    open_cluster(k, (full, 1), (empty, 8))
    with k.role("load", 4), k.elected(), k.loop(TURNS) as i:
        k.mbarrier.wait(empty[i % 2], ((i // 2) & 1) ^ 1)
        halves = 1 if fault == "bytes" else 2
        k.mbarrier.arrive_expect_tx(full[i % 2], halves * box.box_bytes)  # @bytes
        half = tile[i % 2, ts.ds(k.cluster_rank * 32, 32), :]
        start = (i * 64 + k.cluster_rank * 32, 0)
        k.tma.load(box, half, start, full[i % 2], multicast=3)
    with k.role("use", range(4)), k.loop(TURNS) as i:
        k.mbarrier.wait(full[i % 2], (i // 2) & 1, scope="cluster")
        k.tile.load(part, tile[i % 2, ts.ds(k.warp_id * 16, 16), :])
        row = (k.cluster_rank * TURNS + i) * 64 + k.warp_id * 16
        k.tile.store(result[ts.ds(row, 16), :], part)
        with k.elected():
            k.mbarrier.arrive(empty[i % 2].at(0))
            k.mbarrier.arrive(empty[i % 2].at(0 if fault == "rank" else 1))  # @rank
    k.cluster.sync()


@ts.kernel(warps=2)
def stored(k: Builder, *, fault: str = "") -> None:
    """Two warps fill a tile, one thread stores it, and they fill it again."""
    result = k.tensor("result", ts.f32, (2, 2, 32))
    tile = k.shared("tile", ts.f32, (2, 32))
    k.mem.store(tile[k.warp_id, k.lane_id], 1.0)
    k.fence.proxy_async("shared::cta")
    if fault != "by itself":
        k.sync_threads()
    if fault == "by itself":
        with k.if_(k.lane_id.eq(0)):
            k.bulk.store(result[0, k.warp_id], tile[k.warp_id])  # @by itself
            k.bulk.commit_group()
            k.bulk.wait_group(0)
        return
    with k.one_thread():
        k.bulk.store(result[0], tile)
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    if fault != "not met":
        k.sync_threads()
    k.mem.store(tile[k.warp_id, k.lane_id], 2.0)  # @not met
