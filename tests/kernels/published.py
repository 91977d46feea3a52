"""Protocols of reported faults, each with a parameter for the fault; the default is the fix.

Where they were reported is in `tests.kernels.faults`.
"""

from __future__ import annotations

from tilesim import Builder, ds, kernel, minimum, select
from tilesim.arith.types import f32, s32, u32
from tilesim.lib.opening import open_cluster, open_cta

LANES = 32


@kernel(warps=3)
def tile_without_keys(k: Builder, *, tiles: int = 3, fault: str = "") -> None:
    """A tile that has no keys: the warps that compute only tell the one that loads."""
    with k.role("load", 0), k.loop(tiles):
        k.bar.sync(1, 96, aligned=False)
    with k.role("compute", [1, 2]), k.loop(tiles):
        if fault == "arrive":
            k.bar.arrive(1, 96, aligned=False)  # BUG: if nobody waits for the last tile
        else:
            k.bar.sync(1, 96, aligned=False)


@kernel(warps=8)
def pairs_and_group(k: Builder, *, rounds: int = 3, fault: str = "") -> None:
    """Pairs of warps exchange partial rows by barriers of their own, another role by one of its."""
    parts, rows = k.shared("parts", f32, (4, LANES)), k.shared("rows", f32, (2, 4, LANES))
    x, own = k.var("x", dtype=f32), 2 if fault == "id" else 3
    for warp in range(4):
        pair = 1 + warp // 2
        with k.role(f"correction {warp}", warp), k.loop(rounds):
            k.mem.store(parts[warp, k.lane_id], 1.0)
            k.bar.sync(pair, 64, aligned=False)  # the id of a pair
            k.mem.load(x, parts[warp ^ 1, k.lane_id])
            k.bar.sync(pair, 64, aligned=False)
    with k.role("softmax", range(4, 8)), k.loop(rounds) as i:
        k.mem.store(rows[i & 1, k.warp_id - 4, k.lane_id], 2.0)
        k.bar.sync(own, 128, aligned=False)  # BUG: if a pair has this id
        k.mem.load(x, rows[i & 1, (k.warp_id - 3) % 4, k.lane_id])


@kernel(warps=2)
def clamped_box(k: Builder, *, rows: int = 8, fault: str = "") -> None:
    """A box that is clamped to a small tensor completes its own bytes, not those of the tile."""
    X, tile, full = (
        k.tensor("X", f32, (rows, 32)),
        k.shared("tile", f32, (16, 32)),
        k.mbarriers("f"),
    )
    box, x = k.tensor_map(X, (min(rows, 16), 32)), k.var("x", dtype=f32)
    open_cta(k, (full, 1))
    with k.role("load", 0), k.elected():
        bytes_ = tile.nbytes if fault == "tile" else box.box_bytes
        k.mbarrier.arrive_expect_tx(full, bytes_)  # BUG: if the tile is larger
        k.tma.load(box, tile[: min(rows, 16), :], (0, 0), full)
    with k.role("use", 1):
        k.mbarrier.wait(full, 0)
        k.mem.load(x, tile[0, k.lane_id])


@kernel(warps=2)
def work_numbers(k: Builder, *, n: int = 5, fault: str = "") -> None:
    """The number of the next tile goes through two words: a consumer must not lap the producer."""
    words, number = k.shared("words", s32, (2,)), k.var("number")
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    open_cta(k, (full, 1), (empty, LANES))
    with k.role("producer", 0), k.elected(), k.loop(n) as i:
        if fault != "lap":
            k.mbarrier.wait(empty[i % 2], ((i // 2) & 1) ^ 1)
        k.mem.store(words[i % 2], i)  # BUG: if the last number may still be read
        k.mbarrier.arrive(full[i % 2])
    with k.role("consumer", 1), k.loop(n) as i:
        k.mbarrier.wait(full[i % 2], (i // 2) & 1)
        k.mem.load(number, words[i % 2])
        if fault != "lap":
            k.mbarrier.arrive(empty[i % 2])


@kernel(warps=1)
def copy_by_one(k: Builder, *, fault: str = "") -> None:
    """One thread copies to a cuda::barrier that all threads arrive at, and expects the bytes."""
    X, tile = k.tensor("X", f32, (64,)), k.shared("tile", f32, (64,))
    done, x = k.mbarriers("done"), k.var("x", dtype=f32)
    open_cta(k, (done, LANES))
    with k.if_(k.thread_id.eq(0)):
        k.bulk.load(tile, X, done)
        if fault == "arrives":
            k.mbarrier.arrive_expect_tx(done, tile.nbytes)
        else:
            k.mbarrier.expect_tx(done, tile.nbytes)
    k.mbarrier.arrive(done)  # BUG: if one has arrived already
    k.mbarrier.wait(done, 0)
    k.mem.load(x, tile[k.lane_id])


@kernel(warps=1)
def copy_ring(k: Builder, *, n: int = 6, stages: int = 2, fault: str = "") -> None:
    """Tiles pass through a ring, in by a load and out by a store: all stores have to have read."""
    X, Y = (k.tensor(name, f32, (n, LANES)) for name in "XY")
    tile, full = k.shared("tile", f32, (stages, LANES)), k.mbarriers("full", stages)
    open_cta(k, (full, 1))
    with k.one_thread():
        for stage in range(stages):
            k.mbarrier.arrive_expect_tx(full[stage], 4 * LANES)
            k.bulk.load(tile[stage], X[stage], full[stage])
        with k.loop(n) as i:
            at = i % stages
            k.mbarrier.wait(full[at], (i // stages) & 1)
            k.bulk.store(Y[i], tile[at])
            k.bulk.commit_group()
            with k.if_(i + stages < n):
                k.bulk.wait_group(stages - 1 if fault == "pending" else 0, read=True)
                k.mbarrier.arrive_expect_tx(full[at], 4 * LANES)
                k.bulk.load(tile[at], X[i + stages], full[at])  # BUG: if the store still reads
        k.bulk.wait_group(0)


@kernel(warps=4)
def staged_waves(k: Builder, *, waves: int = 3, fault: str = "") -> None:
    """A warpgroup stages its result for a store in every wave: none may be ahead of the store."""
    Y, staged = k.tensor("Y", f32, (waves, 128)), k.shared("staged", f32, (128,))
    with k.role("group", range(4)) as group, k.loop(waves) as wave:
        if fault != "refill":
            group.sync()
        k.mem.store(staged[k.thread_id], 1.0)  # BUG: if the last wave is still read
        k.fence.proxy_async("shared::cta")
        group.sync()
        with group.one_thread():
            k.bulk.store(Y[wave], staged)
            if fault != "open":
                k.bulk.commit_group()
                k.bulk.wait_group(0, read=True)
    if fault == "open":
        with k.one_thread():
            k.bulk.commit_group()
            k.bulk.wait_group(0)


@kernel(warps=1)
def fused_residual(k: Builder, *, fault: str = "") -> None:
    """Weights may be loaded before griddepcontrol.wait; what the grid before writes may not."""
    residual, gamma = (
        k.tensor("residual", f32, (LANES,), dependent=True),
        k.tensor("gamma", f32, (LANES,)),
    )
    Y, r, g = k.tensor("Y", f32, (LANES,)), k.var("r", dtype=f32), k.var("g", dtype=f32)
    k.mem.load(g, gamma[k.lane_id])
    if fault == "early":
        k.mem.load(r, residual[k.lane_id])  # BUG: if the grid before still writes it
    k.griddep.wait()
    if fault != "early":
        k.mem.load(r, residual[k.lane_id])
    k.mem.store(Y[k.lane_id], r + g)


@kernel(warps=1)
def split_barrier(k: Builder, *, splits: int = 3, cooperative: bool = True) -> None:
    """All CTAs of a tile wait for each other by a counter: they have to be resident together."""
    k.launch(grid=splits, cooperative=cooperative)
    work, count = k.tensor("work", f32, (splits, LANES)), k.tensor("count", u32, (1,))
    seen, x = k.var("seen", 0, dtype=u32), k.var("x", dtype=f32)
    k.mem.store(work[k.cta_x, k.lane_id], 1.0)
    k.sync_threads()
    with k.if_(k.thread_id.eq(0)):
        k.fence.memory(scope="gpu")
        k.mem.atomic(count[0], "add", 1, scope="gpu")
        with k.while_(seen < splits):  # BUG: if another CTA may not have started
            k.mem.atomic(count[0], "add", 0, result=seen, scope="gpu")
        k.fence.memory(scope="gpu")
    k.sync_threads()
    k.mem.load(x, work[(k.cta_x + 1) % splits, k.lane_id])


@kernel(warps=1)
def grid_rounds(k: Builder, *, ctas: int = 2, rounds: int = 2, fault: str = "") -> None:
    """A grid barrier that is used again: the last CTA resets the counter and ends a generation."""
    k.launch(grid=ctas, cooperative=True)
    count, generation = k.tensor("count", u32, (1,)), k.tensor("generation", u32, (1,))
    ticket, began, now = (k.var(name, 0, dtype=u32) for name in ("ticket", "began", "now"))
    waits = count if fault == "counter" else generation
    with k.one_thread(), k.loop(rounds):
        if fault != "counter":
            k.mem.load(began, generation[0], sem="acquire", scope="gpu")
        k.mem.atomic(count[0], "add", 1, result=ticket, sem="acq_rel", scope="gpu")
        with k.if_(ticket.eq(ctas - 1)):
            k.mem.store(count[0], 0, sem="relaxed", scope="gpu")
            k.mem.atomic(generation[0], "add", 1, sem="release", scope="gpu")
        with k.else_():
            goal = now.ne(0) if fault == "counter" else now.eq(began)
            k.assign(now, ctas if fault == "counter" else began)
            with k.while_(goal):  # BUG: if the next round may have begun
                k.mem.load(now, waits[0], sem="acquire", scope="gpu")


@kernel(warps=4)
def table_and_rows(k: Builder, *, rows: int = 2, fault: str = "") -> None:
    """One warp fetches a table by cp.async, every warp its rows: each waits for its own copies."""
    X, T = k.tensor("X", f32, (rows, 128, 4)), k.tensor("T", f32, (LANES, 4))
    tile, table, x = k.shared("tile", f32, (128, 4)), k.shared("table", f32, (LANES, 4)), k.var("x")
    with k.role("first", 0):
        k.cp_async.copy(table, T)
        if fault != "barrier":
            k.cp_async.wait_all()
    k.sync_threads()
    with k.loop(rows) as i:
        own = ds(k.warp_id * LANES, LANES)
        k.cp_async.copy(tile[own], X[i, own])
        k.cp_async.wait_all()
        k.mem.load(x, tile[k.thread_id, 0])
        k.mem.load(x, table[k.lane_id, 0])  # BUG: if only a barrier came before


@kernel(warps=1)
def filled_tail(k: Builder, *, n: int = 4, stages: int = 3, fault: str = "") -> None:
    """Copies past the end fill with zeros: the last ones are in flight behind the loop."""
    X, tile, x = (
        k.tensor("X", f32, (n, LANES, 4)),
        k.shared("t", f32, (stages, LANES, 4)),
        k.var("x"),
    )
    for stage in range(stages - 1):
        k.cp_async.copy(tile[stage], X[stage])
        k.cp_async.commit_group()
    with k.loop(n) as i:
        k.cp_async.wait_group(stages - 2)
        k.mem.load(x, tile[i % stages, k.lane_id, 0])
        ahead = i + stages - 1
        here = select(ahead < n, 16, 0)
        k.cp_async.copy(tile[ahead % stages], X[minimum(ahead, n - 1)], src_bytes=here)
        k.cp_async.commit_group()
    if fault != "tail":
        k.cp_async.wait_all()
    k.sync_warp()
    for stage in range(stages):
        k.mem.store(tile[stage, k.lane_id, 0], 3.0)  # BUG: if zeros are still to come


@kernel(target="sm_100a", warps=5)
def last_accumulator(k: Builder, *, fault: str = "") -> None:
    """The epilogue tells the warp that frees tensor memory when it has loaded the accumulator."""
    Y, acc = k.tensor("Y", f32, (128, 32)), k.fragment("acc", f32, (128, 32), "warpgroup")
    slot, address, read = k.shared("slot", u32, (1,)), k.var("address", dtype=u32), k.mbarriers("r")
    with k.role("mma", 4):
        k.tcgen05.alloc(slot, 32)
    open_cta(k, (read, 128))
    k.mem.load(address, slot[0])
    d = k.tcgen05.tensor(address, f32, (128, 32))
    with k.role("epilogue", range(4)):
        k.tile.fill(acc, 0.0)
        k.tcgen05.st(d, acc)
        k.tcgen05.wait_st()
        k.tcgen05.ld(acc, d)
        if fault != "ld":
            k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(read)
        if fault == "ld":
            k.tcgen05.wait_ld()
        k.tile.store(Y, acc)
    with k.role("mma", 4):
        k.mbarrier.wait(read, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 32)  # BUG: if a load is in flight
        k.tcgen05.relinquish_alloc_permit()


@kernel(target="sm_100a", warps=2)
def late_allocation(k: Builder, *, fault: str = "") -> None:
    """The address of tensor memory is published by the barrier that opens the kernel, or not."""
    k.launch(grid=2, cluster=2)
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    if fault == "late":
        k.cluster.sync()
    with k.role("mma", 0):
        k.tcgen05.alloc(slot, 32)
        k.tcgen05.relinquish_alloc_permit()
    if fault != "late":
        k.cluster.sync()
    with k.role("epilogue", 1):
        k.mem.load(address, slot[0])  # BUG: if no barrier followed the allocation
    k.sync_threads()
    with k.role("mma", 0):
        k.mem.load(address, slot[0])
        k.tcgen05.dealloc(address, 32)


@kernel(target="sm_100a", warps=2)
def answer_as_barrier(k: Builder, *, fault: str = "") -> None:
    """That launch control has answered hands over the answer, not what its asker knew."""
    k.launch(grid=2, cluster=2)
    answer, slot = k.shared("answer", u32, (4,), align=16), k.shared("slot", s32, (1,))
    answered, used, x, rank = (
        k.mbarriers("answered"),
        k.mbarriers("used"),
        k.var("x"),
        k.cluster_rank,
    )
    with k.one_thread(), k.if_(rank.eq(0)):
        k.mem.store(slot[0], 1)
    open_cluster(k, (answered, 1), (used, 1))
    k.cluster.sync()
    with k.role("consumer", 1), k.elected(), k.if_(rank.eq(1)):
        k.mem.load(x, slot[0].at(0))
        k.mbarrier.arrive(used[0].at(0), scope="cluster")
    with k.role("scheduler", 0), k.elected():
        with k.if_(rank.eq(0)):
            k.mbarrier.wait(used, 0, scope="cluster")
        k.mbarrier.arrive_expect_tx(answered, 16)
        with k.if_(rank.eq(0)):
            k.clc.try_cancel(answer, answered, multicast=True)
        k.mbarrier.wait(answered, 0, scope="cluster")
        with k.if_(rank.eq(1 if fault == "peer" else 0)):
            k.mem.store(slot[0].at(0), 2)  # BUG: if only the asker waited for the reader
    k.cluster.sync()


@kernel(target="sm_100a", warps=2)
def answers_to_all(k: Builder, *, size: int = 4, grid: int = 8, fault: str = "") -> None:
    """CTA 0 asks for all CTAs of the cluster: each of them says when it has read the answer."""
    k.launch(grid=grid, cluster=size)
    answer, more, c = k.shared("answer", u32, (4,), align=16), k.var("more", 1), k.var("c", 0)
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    tells = k.cluster_rank < (2 if fault == "two" else size)
    open_cluster(k, (full, 1), (empty, 2 if fault == "two" else size))
    with k.role("scheduler", 0), k.elected(), k.if_(k.cluster_rank.eq(0)), k.while_(more.ne(0)):
        k.mbarrier.wait(empty, (c & 1) ^ 1, scope="cluster")
        k.clc.try_cancel(answer, full, multicast=True)  # BUG: if a CTA still reads
        k.mbarrier.wait(full, c & 1, scope="cluster")
        k.clc.query_is_canceled(more, answer)
        k.fence.proxy_async()
        k.assign(c, c + 1)
    with k.role("reader", 1), k.elected(), k.while_(more.ne(0)):
        k.mbarrier.arrive_expect_tx(full, 16)
        k.mbarrier.wait(full, c & 1, scope="cluster")
        k.clc.query_is_canceled(more, answer)
        k.fence.proxy_async()
        with k.if_(tells):
            k.mbarrier.arrive(empty[0].at(0), scope="cluster")
        k.assign(c, c + 1)
    k.cluster.sync()


@kernel(warps=5)
def stored_in_turn(k: Builder, *, n: int = 4, stages: int = 2, fault: str = "") -> None:
    """A warp stores tiles, one of them in flight: it may give back the stage before."""
    Y, tile = k.tensor("Y", f32, (n, 128)), k.shared("tile", f32, (stages, 128))
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    open_cta(k, (full, 128), (empty, 1))
    with k.role("math", range(4)), k.loop(n) as i:
        k.mbarrier.wait(empty[i % stages], ((i // stages) & 1) ^ 1)
        k.mem.store(tile[i % stages, k.thread_id], 1.0)  # BUG: if its store has not read
        k.fence.proxy_async("shared::cta")
        k.mbarrier.arrive(full[i % stages])
    with k.role("store", 4), k.elected():
        with k.loop(n) as i:
            k.mbarrier.wait(full[i % stages], (i // stages) & 1)
            k.bulk.store(Y[i], tile[i % stages])
            k.bulk.commit_group()
            k.bulk.wait_group(1, read=True)
            if fault == "own":
                k.mbarrier.arrive(empty[i % stages])
            else:
                with k.if_(i > 0):
                    k.mbarrier.arrive(empty[(i + stages - 1) % stages])
        k.bulk.wait_group(0)


@kernel(target="sm_100a", warps=4)
def two_groups(k: Builder, *, fault: str = "") -> None:
    """All tcgen05 instructions of a kernel have one cta_group, the commit like the allocation."""
    k.launch(grid=2, cluster=2)
    slot, address, done = k.shared("slot", u32, (1,)), k.var("a", dtype=u32), k.mbarriers("done")
    open_cluster(k, (done, 1))
    with k.role("mma", 0):
        k.tcgen05.alloc(slot, 32, cta_group=2)
    k.cluster.sync()
    k.mem.load(address, slot[0])
    with k.role("mma", 0):
        with k.elected():
            k.tcgen05.commit(done, cta_group=1 if fault == "commit" else 2)  # BUG: if it is 1
        k.mbarrier.wait(done, 0)
    k.cluster.sync()
    with k.role("mma", 0):
        k.tcgen05.dealloc(address, 32, cta_group=2)
        k.tcgen05.relinquish_alloc_permit(cta_group=2)


@kernel(warps=1)
def both_sides(k: Builder, *, n: int = 5, buffers: int = 2, fault: str = "") -> None:
    """Two CTAs send each other words by st.async, and say when they have read them."""
    k.launch(grid=2, cluster=2)
    box, x, peer = k.shared("box", s32, (buffers, LANES)), k.var("x"), k.cluster_rank ^ 1
    full, free = k.mbarriers("full", buffers), k.mbarriers("free", buffers)
    open_cluster(k, (full, 1), (free, LANES))
    with k.loop(n) as i:
        at, turn = i % buffers, i // buffers
        with k.elected():
            k.mbarrier.arrive_expect_tx(full[at], 4 * LANES)
        if fault != "free":
            k.mbarrier.wait(free[at], (turn & 1) ^ 1, scope="cluster")
        k.cluster.st_async(box[at, k.lane_id].at(peer), i, full[at].at(peer))  # BUG: if it is read
        k.mbarrier.wait(full[at], turn & 1, scope="cluster")
        k.mem.load(x, box[at, k.lane_id])
        if fault != "free":
            k.mbarrier.arrive(free[at].at(peer), scope="cluster")
    k.cluster.sync()
