"""Small kernels with one fault each, beside the published ones: persistent, staged, split, pushed.

Each has a parameter that says what is wrong with it; the default is right.
"""

from __future__ import annotations

from typing import Literal

from tilesim import Builder, kernel
from tilesim.arith.types import bf16, f32, s32
from tilesim.kernels.hopper.operands import multiply_tile
from tilesim.lib.opening import open_cluster
from tilesim.lib.pipeline import Pipeline

ROW = 128


@kernel(warps=9)
def ping_pong(
    k: Builder, *, tiles: int = 4, k_tiles: int = 3, stages: int = 2, skips: bool = True
) -> None:
    """Two consumer warpgroups take output tiles in turn; each must skip the other one's k tiles."""
    X, Y = k.tensor("X", f32, (tiles * k_tiles, ROW)), k.tensor("Y", f32, (tiles, ROW))
    buffer = k.shared("buffer", f32, (stages, ROW))
    pipe = Pipeline(k, stages, consumers=ROW)
    order = k.mbarriers("order", 2)
    x, total = k.var("x", dtype=f32), k.var("total", dtype=f32)
    with k.one_thread():
        pipe.init()
        for group in range(2):
            k.mbarrier.init(order[group], ROW)
    k.sync_threads()
    with k.role("producer", 8), k.elected(), k.loop(tiles * k_tiles, name="item") as item:
        slot = pipe[item]
        slot.acquire()
        slot.commit(buffer[0].nbytes)
        k.bulk.load(buffer[slot.stage], X[item], slot.full)
    for group in range(2):
        with k.role(f"consumer {group}", range(4 * group, 4 * group + 4)):
            thread = k.thread_id - ROW * group
            with k.loop(group, tiles, 2, name="tile") as tile:
                turn = tile // 2
                k.mbarrier.wait(order[group], (turn & 1) ^ (1 - group))
                k.assign(total, 0.0)
                with k.loop(k_tiles, name="kt") as kt:
                    slot = pipe[(tile if skips else turn) * k_tiles + kt]
                    slot.wait()  # BUG: if the other group's items are not skipped
                    k.mem.load(x, buffer[slot.stage, thread])
                    k.fence.proxy_async("shared::cta")
                    slot.release()
                    k.assign(total, total + x)
                k.mbarrier.arrive(order[1 - group])
                k.mem.store(Y[tile, thread], total)


@kernel(warps=4)
def store_ring(k: Builder, *, subtiles: int = 6, stages: int = 2, pending: int = 1) -> None:
    """Epilogue through a ring of staging buffers: before reuse all but ``stages - 1`` are read."""
    X, Y = k.tensor("X", f32, (subtiles, ROW)), k.tensor("Y", f32, (subtiles, ROW))
    staging, x = k.shared("staging", f32, (stages, ROW)), k.var("x", dtype=f32)
    with k.role("epilogue", range(4)):
        with k.loop(subtiles) as i:
            with k.one_thread():
                k.bulk.wait_group(pending, read=True)
            k.bar.sync(1, ROW)
            k.mem.load(x, X[i, k.thread_id])
            k.mem.store(staging[i % stages, k.thread_id], x * 2.0)  # BUG: if still read
            k.fence.proxy_async("shared::cta")
            k.bar.sync(2, ROW)
            with k.one_thread():
                k.bulk.store(Y[i], staging[i % stages])
                k.bulk.commit_group()
        with k.one_thread():
            k.bulk.wait_group(0)


@kernel(warps=4)
def last_block(k: Builder, *, splits: int = 3, fault: str = "") -> None:
    """Split-K in global memory: who counts last adds the partial sums."""
    k.launch(grid=splits, cooperative=True)
    X, parts = k.tensor("X", f32, (splits, ROW)), k.tensor("parts", f32, (splits, ROW))
    counter, Y = k.tensor("counter", s32, (1,)), k.tensor("Y", f32, (ROW,))
    seen = k.shared("seen", s32, (1,))
    x, total, count = k.var("x", dtype=f32), k.var("total", 0.0, dtype=f32), k.var("count", 0)
    k.mem.load(x, X[k.cta_x, k.thread_id])
    k.mem.store(parts[k.cta_x, k.thread_id], x * 2.0)
    if fault != "no barrier":
        k.sync_threads()
    with k.one_thread():
        sem: Literal["relaxed", "acq_rel"] = "relaxed" if fault == "relaxed" else "acq_rel"
        k.mem.atomic(counter[0], "add", 1, result=count, sem=sem, scope="gpu")
        k.mem.store(seen[0], count)
    k.sync_threads()
    k.mem.load(count, seen[0])
    with k.if_(count.eq(splits - 1)):
        with k.loop(splits, name="split") as split:
            k.mem.load(x, parts[split, k.thread_id])  # BUG: if nothing orders the partial sums
            k.assign(total, total + x)
        k.mem.store(Y[k.thread_id], total)


@kernel(warps=3)
def shared_halves(k: Builder, *, items: int = 4, everywhere: bool = True) -> None:
    """Each CTA of a pair multicasts its half of a stage; both must have released it in both."""
    k.launch(grid=2, cluster=2)
    X, Y = k.tensor("X", f32, (items, 2, 32)), k.tensor("Y", f32, (2, items, 64))
    buffer = k.shared("buffer", f32, (2, 2, 32))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    x = k.var("x", dtype=f32)
    open_cluster(k, (full, 1), (empty, 2 if everywhere else 1))
    with k.role("producer", 2), k.elected(), k.loop(items) as i:
        stage = i % 2
        k.mbarrier.wait(empty[stage], ((i // 2) & 1) ^ 1, scope="cluster")
        k.mbarrier.arrive_expect_tx(full[stage], 256)
        half = k.cluster_rank
        k.bulk.load(buffer[stage, half], X[i, half], full[stage], multicast=0b11)
    with k.role("consumer", range(2)), k.loop(items) as i:
        stage = i % 2
        k.mbarrier.wait(full[stage], (i // 2) & 1, scope="cluster")
        k.mem.load(x, buffer[stage, k.warp_id, k.lane_id])  # BUG: if only this CTA is asked
        k.fence.proxy_async()
        k.bar.sync(1, 64)
        with k.one_thread():
            k.mbarrier.arrive(empty[stage], scope="cluster")
            if everywhere:
                peer = empty[stage].at(k.cluster_rank ^ 1)
                k.mbarrier.arrive(peer, scope="cluster")
        k.mem.store(Y[k.cluster_rank, i, k.thread_id], x)
    k.cluster.sync()


@kernel(warps=2)
def cp_async_ring(k: Builder, *, items: int = 5, noinc: bool = True, early: bool = False) -> None:
    """A cp.async producer: each lane's arrival follows its own copies."""
    X, Y = k.tensor("X", f32, (items, 32)), k.tensor("Y", f32, (items, 32))
    buffer, x = k.shared("buffer", f32, (2, 32)), k.var("x", dtype=f32)
    pipe = Pipeline(k, 2, producers=32, consumers=32)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("producer", 0), k.loop(items) as i:
        slot = pipe[i]
        slot.acquire()
        k.cp_async.copy(buffer[slot.stage], X[i], size=4)
        if early:
            slot.commit()  # BUG: nothing waits for the copies
        else:
            k.cp_async.mbarrier_arrive(slot.full, noinc=noinc)  # BUG: without .noinc
    with k.role("consumer", 1), k.loop(items) as i:
        slot = pipe[i]
        slot.wait()
        k.mem.load(x, buffer[slot.stage, k.lane_id])
        slot.release()
        k.mem.store(Y[i, k.lane_id], x)


@kernel(warps=2)
def row_gather(k: Builder, *, rows: int = 7, counted: bool = True) -> None:
    """Gathers rows by index, four per stage; the last stage has fewer, and fewer bytes."""
    per, stages = 4, 2
    items = -(-rows // per)
    X, index = k.tensor("X", f32, (16, 32)), k.tensor("index", s32, (rows,))
    Y = k.tensor("Y", f32, (rows, 32))
    buffer, x, row = k.shared("buffer", f32, (stages, per, 32)), k.var("x", dtype=f32), k.var("row")
    pipe = Pipeline(k, stages, consumers=32)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(items) as i:
        slot = pipe[i]
        slot.acquire()
        full_stage = (i + 1) * per <= rows
        with k.if_(full_stage):
            slot.commit(per * 128)
        with k.else_():
            slot.commit((rows - i * per) * 128 if counted else per * 128)  # BUG: all rows
        with k.loop(per, name="r") as r, k.if_(i * per + r < rows):
            k.mem.load(row, index[i * per + r])
            k.bulk.load(buffer[slot.stage, r], X[row], slot.full)
    with k.role("consumer", 1), k.loop(items) as i:
        slot = pipe[i]
        slot.wait()
        with k.loop(per, name="r") as r, k.if_(i * per + r < rows):
            k.mem.load(x, buffer[slot.stage, r, k.lane_id])
            k.mem.store(Y[i * per + r, k.lane_id], x)
        k.fence.proxy_async("shared::cta")
        slot.release()


@kernel(warps=5)
def deep_wgmma(k: Builder, *, iterations: int = 5, stages: int = 3, release: int = 1) -> None:
    """One wgmma group stays in flight, so the stage before may be released, not this one."""
    A, B = k.tensor("A", bf16, (64, 64 * iterations)), k.tensor("B", bf16, (64, 64 * iterations))
    C, acc = k.tensor("C", f32, (64, 64)), k.fragment("acc", f32, (64, 64), "warpgroup")
    a_map, b_map = k.tensor_map(A, (64, 64), swizzle=128), k.tensor_map(B, (64, 64), swizzle=128)
    sA = k.shared("sA", bf16, (stages, 64, 64), swizzle=128)
    sB = k.shared("sB", bf16, (stages, 64, 64), swizzle=128)
    pipe = Pipeline(k, stages)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("producer", 4), k.elected(), k.loop(iterations) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, sA[slot.stage], (0, i * 64), slot.full)
        k.tma.load(b_map, sB[slot.stage], (0, i * 64), slot.full)
    with k.role("consumer", range(4)):
        k.tile.fill(acc, 0.0)
        with k.loop(iterations) as i:
            slot = pipe[i]
            slot.wait()
            multiply_tile(k, acc, sA[slot.stage], sB[slot.stage])
            k.wgmma.wait_group(1)
            k.bar.sync(1, ROW)
            with k.if_(i >= release), k.one_thread():
                pipe[i - release].release()  # BUG: if its wgmma is the one in flight
        k.wgmma.wait_group(0)
        k.tile.store(C, acc)


@kernel(warps=5)
def tile_counter(k: Builder, *, tiles: int = 5, ctas: int = 2, asks: bool = True) -> None:
    """Persistent CTAs take tiles from a counter in global memory, through one shared slot."""
    k.launch(grid=ctas, cooperative=True)
    counter, Y = k.tensor("counter", s32, (1,)), k.tensor("Y", s32, (tiles, ROW))
    slot = k.shared("slot", s32, (1,))
    pipe = Pipeline(k, 1, name="tile", consumers=ROW)
    tile, count = k.var("tile", 0), k.var("count", 0)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("scheduler", 4), k.elected(), k.while_(tile < tiles):
        if asks:
            pipe[count].acquire()
        k.mem.atomic(counter[0], "add", 1, result=tile, scope="gpu")
        k.mem.store(slot[0], tile)  # BUG: if nobody asked whether the last one was read
        pipe[count].commit()
        k.assign(count, count + 1)
    with k.role("worker", range(4)), k.while_(tile < tiles):
        pipe[count].wait()
        k.mem.load(tile, slot[0])
        pipe[count].release()
        k.assign(count, count + 1)
        with k.if_(tile < tiles):
            k.mem.store(Y[tile, k.thread_id], tile + 1)


@kernel(warps=4)
def stream_k(k: Builder, *, fault: str = "") -> None:
    """The CTA that owns a tile waits by a flag for the part that another CTA computed."""
    k.launch(grid=2, cooperative=True)
    X, work = k.tensor("X", f32, (2, ROW)), k.tensor("work", f32, (ROW,))
    flag, Y = k.tensor("flag", s32, (1,)), k.tensor("Y", f32, (ROW,))
    x, other, ready = k.var("x", dtype=f32), k.var("other", dtype=f32), k.var("ready", 0)
    k.mem.load(x, X[k.cta_x, k.thread_id])
    with k.if_(k.cta_x.eq(1)):
        k.mem.store(work[k.thread_id], x)
        if fault != "no barrier":
            k.sync_threads()
        with k.one_thread():
            k.mem.store(flag[0], 1, sem="release", scope="gpu")
    with k.if_(k.cta_x.eq(0)):
        with k.one_thread(), k.while_(ready.eq(0)):
            sem: Literal["relaxed", "acquire"] = "relaxed" if fault == "relaxed" else "acquire"
            k.mem.load(ready, flag[0], sem=sem, scope="gpu")
        k.sync_threads()
        k.mem.load(other, work[k.thread_id])  # BUG: if the flag orders nothing
        k.mem.store(Y[k.thread_id], x + other)


@kernel(warps=1)
def pushed_sums(k: Builder, *, ranks: int = 3, senders: int = 2) -> None:
    """Every rank but the root pushes its row with st.async; the root expects these bytes."""
    k.launch(grid=ranks, cluster=ranks)
    X, Y = k.tensor("X", f32, (ranks, 32)), k.tensor("Y", f32, (32,))
    rows, b = k.shared("rows", f32, (ranks, 32)), k.mbarriers("b")
    x, part = k.var("x", dtype=f32), k.var("part", dtype=f32)
    open_cluster(k, (b, 1))
    k.mem.load(x, X[k.cluster_rank, k.lane_id])
    with k.if_(k.cluster_rank.ne(0)):
        k.cluster.st_async(rows[k.cluster_rank, k.lane_id].at(0), x, b[0].at(0))
    with k.if_(k.cluster_rank.eq(0)):
        with k.elected():
            k.mbarrier.arrive_expect_tx(b, 128 * senders)
        k.mbarrier.wait(b, 0, scope="cluster")  # BUG: if the root counts itself, or too few
        for rank in range(1, ranks):
            k.mem.load(part, rows[rank, k.lane_id])
            k.assign(x, x + part)
        k.mem.store(Y[k.lane_id], x)
    k.cluster.sync()


@kernel(warps=4)
def reduced_output(k: Builder, *, waits: bool = True) -> None:
    """A partial sum leaves by cp.reduce.async.bulk, which reads shared memory until waited for."""
    k.launch(grid=2)
    X, Y = k.tensor("X", f32, (2, ROW)), k.tensor("Y", f32, (ROW,))
    out, x = k.shared("out", f32, (ROW,)), k.var("x", dtype=f32)
    k.mem.load(x, X[k.cta_x, k.thread_id])
    k.mem.store(out[k.thread_id], x)
    k.fence.proxy_async("shared::cta")
    k.sync_threads()
    with k.one_thread():
        k.bulk.reduce(Y, out)  # BUG: if the CTA ends before it has been read
        k.bulk.commit_group()
        if waits:
            k.bulk.wait_group(0, read=True)


@kernel(warps=4)
def dependent_launch(k: Builder, *, waits: bool = True) -> None:
    """Reads what the grid before this one writes, after griddepcontrol.wait."""
    X, Y = k.tensor("X", f32, (ROW,), dependent=True), k.tensor("Y", f32, (ROW,))
    x = k.var("x", dtype=f32)
    if waits:
        k.griddep.wait()
    k.mem.load(x, X[k.thread_id])  # BUG: without the wait
    k.mem.store(Y[k.thread_id], x)
