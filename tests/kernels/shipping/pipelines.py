"""Pipelines of Hopper libraries: CUTLASS, ThunderKittens, FlashMLA, FlashAttention-3, DeepGEMM."""

from __future__ import annotations

from tilesim import Builder, any_of, ds, kernel
from tilesim.arith.types import f32, s32
from tilesim.lib.opening import open_cluster
from tilesim.lib.pipeline import Pipeline

ROW = 128


@kernel(warps=5)
def peek(k: Builder, *, stages: int = 2, n: int = 5, fault: str = "") -> None:
    """CUTLASS PipelineTmaAsync: both sides try a stage early, and wait only if that failed."""
    X, Y = (k.tensor(name, f32, (max(n, 1), ROW)) for name in "XY")
    buffer, x = k.shared("buffer", f32, (stages, ROW)), k.var("x", dtype=f32)
    pipe = Pipeline(k, stages, consumers=4)
    full, free = k.var("full_seen", 0), k.var("free_seen", 0)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("producer", 4), k.elected():
        k.mbarrier.try_wait(free, pipe[0].empty, 1)
        with k.loop(n) as i:
            slot, after = pipe[i], pipe[i + 1]
            with k.if_(free.eq(0)):
                slot.acquire()
            slot.commit(buffer[0].nbytes)
            k.bulk.load(buffer[slot.stage], X[i], slot.full)
            k.mbarrier.try_wait(free, after.empty, after.parity ^ 1)
        with k.loop(n, n + stages) as i:  # the tail
            pipe[i].acquire()
    with k.role("consumer", range(4)):
        k.mbarrier.try_wait(full, pipe[0].full, 0)
        with k.loop(n) as i:
            slot, after = pipe[i], pipe[i if fault == "this stage" else i + 1]
            with k.if_(full.eq(0)):
                slot.wait()
            k.mem.load(x, buffer[slot.stage, k.thread_id])  # BUG: if another stage was tried
            k.fence.proxy_async("shared::cta")
            k.sync_warp()
            with k.elected():
                slot.release()
            k.mem.store(Y[i, k.thread_id], x)
            with k.if_(i + 1 < n):
                k.mbarrier.try_wait(full, after.full, after.parity)


@kernel(warps=5)
def multicast(
    k: Builder, *, stages: int = 2, n: int = 5, columns: int = 2, rows: int = 2, fault: str = ""
) -> None:
    """CUTLASS PipelineTmaAsync in a cluster: A along rows, B along columns of CTAs.

    Another thread releases to each CTA of the same row or column. There is no closing cluster
    barrier: the producer's tail waits for the last releases.
    """
    size = columns * rows
    k.launch(grid=(columns, rows), cluster=(columns, rows))
    A, B = k.tensor("A", f32, (n, rows, ROW)), k.tensor("B", f32, (n, columns, ROW))
    Y, sa, sb = (
        k.tensor("Y", f32, (size, n, ROW)),
        *(k.shared(name, f32, (stages, ROW)) for name in ("sa", "sb")),
    )
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    x, y = k.var("x", dtype=f32), k.var("y", dtype=f32)
    open_cluster(k, (full, 1), (empty, size if fault == "all" else columns + rows - 1))
    rank = k.cluster_rank
    column, row = rank % columns, rank // columns
    along_row = ((1 << columns) - 1) << (row * columns)
    along_column = sum(1 << (r * columns) for r in range(rows)) << column
    with k.role("producer", 4), k.elected():
        with k.loop(n) as i:
            stage = i % stages
            phase = (i // stages) & 1
            k.mbarrier.wait(empty[stage], phase ^ 1, scope="cluster")  # BUG: if it is owed
            k.mbarrier.arrive_expect_tx(full[stage], 2 * ROW * 4)
            part = ds(column * (ROW // columns), ROW // columns)
            k.bulk.load(sa[stage, part], A[i, row, part], full[stage], multicast=along_row)
            part = ds(row * (ROW // rows), ROW // rows)
            k.bulk.load(sb[stage, part], B[i, column, part], full[stage], multicast=along_column)
        if fault != "tail":
            with k.loop(n, n + stages) as i:
                k.mbarrier.wait(empty[i % stages], ((i // stages) & 1) ^ 1, scope="cluster")
    with k.role("consumer", range(4)), k.loop(n) as i:
        stage = i % stages
        k.mbarrier.wait(full[stage], (i // stages) & 1, scope="cluster")
        k.mem.load(x, sa[stage, k.thread_id])
        k.mem.load(y, sb[stage, k.thread_id])
        k.fence.proxy_async()
        k.bar.sync(1, ROW, aligned=False)
        for peer in range(size):
            signals = any_of(column.eq(peer % columns), row.eq(peer // columns))
            if fault == "own":
                signals = rank.eq(peer)
            with k.if_(k.thread_id.eq(peer)), k.if_(signals):
                k.mbarrier.arrive(empty[stage].at(peer), scope="cluster")  # BUG: if it is gone
        k.mem.store(Y[rank, i, k.thread_id], x + y)


@kernel(warps=3)
def lane_release(k: Builder, *, stages: int = 2, n: int = 5, fault: str = "") -> None:
    """DeepGEMM with two CTAs: lane ``i`` of a warp gives the stage back to CTA ``i``."""
    k.launch(grid=2, cluster=2)
    X, Y = k.tensor("X", f32, (n, 2, 32)), k.tensor("Y", f32, (2, n, 64))
    buffer, x = k.shared("buffer", f32, (stages, 2, 32)), k.var("x", dtype=f32)
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    open_cluster(k, (full, 1), (empty, 4))
    with k.role("producer", 2), k.elected():
        with k.loop(n) as i:
            stage = i % stages
            phase = (i // stages) & 1
            k.mbarrier.wait(empty[stage], phase ^ 1, scope="cluster")  # BUG: if a lane
            half = k.cluster_rank
            k.bulk.load(buffer[stage, half], X[i, half], full[stage], multicast=0b11)
            k.mbarrier.arrive_expect_tx(full[stage], 256)
        with k.loop(n, n + stages) as i:
            k.mbarrier.wait(empty[i % stages], ((i // stages) & 1) ^ 1, scope="cluster")
    with k.role("math", range(2)), k.loop(n) as i:
        stage = i % stages
        k.mbarrier.wait(full[stage], (i // stages) & 1, scope="cluster")
        k.mem.load(x, buffer[stage, k.warp_id, k.lane_id])
        k.fence.proxy_async()
        k.sync_warp()
        with k.if_(k.lane_id < (1 if fault == "one lane" else 2)):
            peer = k.cluster_rank if fault == "own" else k.lane_id
            k.mbarrier.arrive(empty[stage].at(peer), scope="cluster")
        k.mem.store(Y[k.cluster_rank, i, k.thread_id], x)


@kernel(warps=9)
def ordered(
    k: Builder, *, stages: int = 2, tiles: int = 4, depth: int = 2, fault: str = ""
) -> None:
    """CUTLASS ping-pong: OrderedSequenceBarrier gives main loop and epilogue turns."""
    X, Y = k.tensor("X", f32, (tiles * depth, ROW)), k.tensor("Y", f32, (tiles, ROW))
    buffer, out = k.shared("buffer", f32, (stages, ROW)), k.shared("out", f32, (ROW,))
    x, total = k.var("x", dtype=f32), k.var("total", dtype=f32)
    pipe, order = Pipeline(k, stages), k.mbarriers("order", 4)
    with k.one_thread():
        pipe.init()
        for turn in range(4):
            k.mbarrier.init(order[turn], ROW)
    k.sync_threads()
    with k.role("producer", 8), k.elected(), k.loop(tiles * depth) as i:
        slot = pipe[i]
        slot.acquire()
        slot.commit(buffer[0].nbytes)
        k.bulk.load(buffer[slot.stage], X[i], slot.full)
    for group in range(2):
        first, bar = 4 * group, 1 + group
        with (
            k.role(f"consumer {group}", range(first, first + 4)),
            k.loop(group, tiles, 2, name="tile") as tile,
        ):
            thread, parity = k.thread_id - ROW * group, (tile // 2 & 1) ^ (1 - group)
            k.mbarrier.wait(order[group], parity)
            k.assign(total, 0.0)
            with k.loop(depth, name="j") as j:
                slot = pipe[tile * depth + j]
                slot.wait()
                k.mem.load(x, buffer[slot.stage, thread])
                k.assign(total, total + x)
                k.fence.proxy_async("shared::cta")
                k.bar.sync(bar, ROW, aligned=False)
                with k.one_thread(first):
                    slot.release()
            k.mbarrier.arrive(order[1 - group])
            k.mbarrier.wait(order[2 + group], parity)
            k.mem.store(out[thread], total)  # BUG: if the other group's store still reads it
            k.fence.proxy_async("shared::cta")
            k.bar.sync(bar, ROW, aligned=False)
            if fault == "turn":
                k.mbarrier.arrive(order[3 - group])
            with k.one_thread(first):
                k.bulk.store(Y[tile], out)
                k.bulk.commit_group()
                k.bulk.wait_group(0, read=True)
            if fault != "turn":
                k.mbarrier.arrive(order[3 - group])


@kernel(warps=4)
def staged_store(k: Builder, *, stages: int = 2, n: int = 5, fault: str = "") -> None:
    """CUTLASS PipelineTmaStore: the first ``stages`` stores need not wait for a buffer."""
    X, Y = k.tensor("X", f32, (n, ROW)), k.tensor("Y", f32, (n, ROW))
    staging, x = k.shared("staging", f32, (stages, ROW)), k.var("x", dtype=f32)
    with k.loop(n) as i:
        k.mem.load(x, X[i, k.thread_id])
        with k.if_(i > stages if fault == "late" else i >= stages):
            with k.one_thread():
                k.bulk.wait_group(stages - 1, read=True)
            k.bar.sync(1, ROW)
        k.mem.store(staging[i % stages, k.thread_id], x)  # BUG: if it is still read
        k.fence.proxy_async("shared::cta")
        k.bar.sync(1, ROW)
        with k.one_thread():
            k.bulk.store(Y[i], staging[i % stages])
            k.bulk.commit_group()
    with k.one_thread():
        k.bulk.wait_group(0, read=True)


@kernel(warps=6)
def load_compute_store(
    k: Builder, *, stages: int = 2, outs: int = 2, n: int = 3, tiles: int = 2, fault: str = ""
) -> None:
    """ThunderKittens' template: load, compute, store and finish, with a semaphore for each."""
    items = tiles * n
    X, Y = k.tensor("X", f32, (items, ROW)), k.tensor("Y", f32, (items, ROW))
    inputs, outputs = k.shared("inputs", f32, (stages, ROW)), k.shared("outputs", f32, (outs, ROW))
    loads = Pipeline(k, stages, name="in", consumers=4)
    stores = Pipeline(k, outs, name="out", producers=4)
    finished, x = k.mbarriers("finished"), k.var("x", dtype=f32)
    with k.one_thread():
        loads.init()
        stores.init()
        k.mbarrier.init(finished, 4)
    k.sync_threads()
    with k.role("load", 4), k.elected(), k.loop(tiles, name="tile") as tile:
        with k.loop(n) as i:
            slot = loads[i if fault == "restart" else tile * n + i]
            slot.acquire()
            slot.commit(inputs[0].nbytes)
            k.bulk.load(inputs[slot.stage], X[tile * n + i], slot.full)
        k.mbarrier.wait(finished, tile & 1)
    with k.role("store", 5), k.elected():
        with k.loop(items) as i:
            slot = stores[i]
            slot.wait()
            k.bulk.store(Y[i], outputs[slot.stage])
            k.bulk.commit_group()
            if fault != "in flight":
                k.bulk.wait_group(0, read=True)
            slot.release()
        k.bulk.wait_group(0)
    with k.role("compute", range(4)), k.loop(tiles, name="tile") as tile:
        with k.loop(n) as i:
            slot, out = loads[i if fault == "restart" else tile * n + i], stores[tile * n + i]
            slot.wait()
            k.mem.load(x, inputs[slot.stage, k.thread_id])
            k.fence.proxy_async("shared::cta")
            k.sync_warp()
            with k.elected():
                slot.release()
            out.acquire()
            k.mem.store(outputs[out.stage, k.thread_id], x * 2.0)  # BUG: if it is still read
            if fault != "fence":
                k.fence.proxy_async("shared::cta")
            k.sync_warp()
            with k.elected():
                out.commit()
        with k.elected():
            k.mbarrier.arrive(finished)


@kernel(warps=8)
def exchange(k: Builder, *, n: int = 3, fault: str = "") -> None:
    """FlashMLA: two warpgroups hand each other their half of P, by named barriers."""
    X, Y = k.tensor("X", f32, (n, 2, ROW)), k.tensor("Y", f32, (2, n, ROW))
    halves = k.shared("halves", f32, (2, ROW))
    x, y = k.var("x", dtype=f32), k.var("y", dtype=f32)
    for group in range(2):
        with k.role(f"group {group}", range(4 * group, 4 * group + 4)), k.loop(n) as i:
            thread, other = k.thread_id - ROW * group, 1 - group
            k.mem.load(x, X[i, group, thread])
            if fault != "free":
                with k.if_(i > 0):
                    k.bar.sync(3 + group, 2 * ROW, aligned=False)
            k.mem.store(halves[group, thread], x)  # BUG: if the other group still reads it
            k.bar.arrive(1 if fault == "id" else 1 + group, 2 * ROW, aligned=False)
            k.bar.sync(1 if fault == "id" else 1 + other, 2 * ROW, aligned=False)
            k.mem.load(y, halves[other, ROW - 1 - thread])
            with k.if_(i + 1 < n):
                if fault != "free":
                    k.bar.arrive(3 + other, 2 * ROW, aligned=False)
            k.mem.store(Y[group, i, thread], x + y)


@kernel(warps=5)
def tile_counter(k: Builder, *, tiles: int = 1, ctas: int = 2, fault: str = "") -> None:
    """FlashAttention-3's dynamic scheduler: atomicAdd, then a slot between two named barriers."""
    k.launch(grid=ctas, cooperative=True)
    counter, Y = k.tensor("counter", s32, (1,)), k.tensor("Y", s32, (tiles, ROW))
    slot, full, empty = k.shared("slot", s32, (1,)), 1, 2
    tile, drawn = k.var("tile", k.cta_x), k.var("drawn", 0)
    with k.role("producer", 4), k.while_(tile < tiles):
        with k.if_(k.lane_id.eq(0)):
            k.mem.atomic(counter[0], "add", 1, result=drawn)
            k.assign(tile, drawn + k.grid_x)
        k.mem.shuffle(tile, tile, 0)
        k.bar.sync(empty, ROW + 32, aligned=False)
        with k.elected():
            k.mem.store(slot[0], tile)
        k.bar.arrive(full, ROW + 32, aligned=False)
    with k.role("consumer", range(4)):
        if fault != "closed":
            k.bar.arrive(empty, ROW + 32, aligned=False)
        with k.while_(tile < tiles):
            k.mem.store(Y[tile, k.thread_id], tile)
            k.bar.sync(full, ROW + 32, aligned=False)
            if fault == "early":
                k.bar.arrive(empty, ROW + 32, aligned=False)
            k.mem.load(tile, slot[0])  # BUG: if the slot was given back before
            if fault != "early":
                k.bar.arrive(empty, ROW + 32, aligned=False)
