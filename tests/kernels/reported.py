"""Protocols of further reported faults, each with a parameter for the fault; the default is right.

Where they were reported is in `tests.kernels.faults`. What is marked is the line that is to
be named first.
"""

from __future__ import annotations

from tilesim import Builder, ds, kernel
from tilesim.arith.types import bf16, f32, s32, u32
from tilesim.kernels.hopper.operands import multiply_tile
from tilesim.lib.opening import open_cluster, open_cta
from tilesim.lib.pipeline import Pipeline, Slot

LANES, GROUP = 32, 128


@kernel(warps=1)
def commit_after_wait(k: Builder, *, n: int = 5, stages: int = 3, fault: str = "") -> None:
    """A copy is committed before the wait of its turn, which counts it."""
    X, Y = k.tensor("X", f32, (n, LANES, 4)), k.tensor("Y", f32, (n, LANES))
    tile, x = k.shared("tile", f32, (stages, LANES, 4)), k.var("x", dtype=f32)
    for s in range(stages - 1):
        k.cp_async.copy(tile[s], X[s])
        k.cp_async.commit_group()
    k.cp_async.wait_group(stages - 2)
    with k.loop(n) as i:
        ahead = i + stages - 1
        with k.if_(ahead < n):
            k.cp_async.copy(tile[ahead % stages], X[ahead])
        if fault != "late":
            k.cp_async.commit_group()
        k.mem.load(x, tile[i % stages, k.lane_id, 0])
        k.mem.store(Y[i, k.lane_id], x)
        k.cp_async.wait_group(stages - 2)  # BUG: if the last copy is in no group
        if fault == "late":
            k.cp_async.commit_group()


@kernel(warps=1)
def acquires_ahead(k: Builder, *, n: int = 4, stages: int = 2, fault: str = "") -> None:
    """Who both fills and reads a ring fills one stage ahead, for which there is room."""
    stages = 1 if fault == "one" else stages
    X, Y = k.tensor("X", f32, (n, LANES)), k.tensor("Y", f32, (n, LANES))
    tile, x = k.shared("tile", f32, (stages, LANES)), k.var("x", dtype=f32)
    pipe = Pipeline(k, stages, consumers=LANES)
    open_cta(k, pipe)

    def fill(slot: Slot) -> None:
        with k.elected():
            slot.commit(4 * LANES)
            k.bulk.load(tile[slot.stage], X[0], slot.full)

    fill(pipe[0])
    with k.loop(n) as i:
        with k.if_(i + 1 < n):
            pipe[i + 1].acquire()  # BUG: if the only stage has yet to be read
            fill(pipe[i + 1])
        slot = pipe[i]
        slot.wait()
        k.mem.load(x, tile[slot.stage, k.lane_id])
        k.fence.proxy_async("shared::cta")
        slot.release()
        k.mem.store(Y[i, k.lane_id], x)


@kernel(warps=4)
def stored_operand_of_all(k: Builder, *, fault: str = "") -> None:
    """All warps store rows of an operand, each product reads all of them."""
    V, C = k.tensor("V", bf16, (64, 64)), k.tensor("C", f32, (64, 64))
    sP, sV = (k.shared(name, bf16, (64, 64), swizzle=128) for name in ("sP", "sV"))
    v_map, full = k.tensor_map(V, (64, 64), swizzle=128), k.mbarriers("full")
    acc = k.fragment("acc", f32, (64, 64), "warpgroup")
    p = k.fragment("p", bf16, (64, 64), "warpgroup")
    open_cta(k, (full, 1))
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, v_map.box_bytes)
        k.tma.load(v_map, sV, (0, 0), full)
    k.mbarrier.wait(full, 0)
    k.tile.fill(acc, 0.0)
    k.tile.fill(p, 1.0)
    k.tile.store(sP, p)  # BUG: if no fence follows
    if fault != "fence":
        k.fence.proxy_async("shared::cta")
    if fault != "barrier":
        k.bar.sync(1, GROUP)
    multiply_tile(k, acc, sP[:, :], sV[:, :])  # BUG: if no barrier precedes
    k.wgmma.wait_group(0)
    k.tile.store(C, acc)


@kernel(warps=5)
def one_gives_back(k: Builder, *, n: int = 4, fault: str = "") -> None:
    """A group reads what one of its threads gives back."""
    X, Y = k.tensor("X", f32, (n, GROUP)), k.tensor("Y", f32, (n, GROUP))
    row, x = k.shared("row", f32, (GROUP,)), k.var("x", dtype=f32)
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    open_cta(k, (full, 1), (empty, 1))
    with k.role("load", 4), k.elected(), k.loop(n) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full, row.nbytes)
        k.bulk.load(row, X[i], full)
    with k.role("compute", range(4)) as group, k.loop(n) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(x, row[k.thread_id])
        k.fence.proxy_async("shared::cta")  # BUG: if nobody waits for this warp
        if fault != "alone":
            group.sync()
        with group.one_thread():
            k.mbarrier.arrive(empty)
        k.mem.store(Y[i, k.thread_id], x)


@kernel(warps=5)
def stored_weights(k: Builder, *, n: int = 4, fault: str = "") -> None:
    """One warp stores what a group reads; by two named barriers they tell each other."""
    W, Y = k.tensor("W", f32, (n, LANES)), k.tensor("Y", f32, (n, GROUP))
    s, x, threads = k.shared("s", f32, (LANES,)), k.var("x", dtype=f32), GROUP + LANES
    with k.role("load", 4), k.loop(n) as i:
        k.mem.load(x, W[i, k.lane_id])
        if fault != "unasked":
            with k.if_(i > 0):
                k.bar.sync(2, threads, aligned=False)
        k.mem.store(s[k.lane_id], x)  # BUG: if the group has not read
        k.bar.arrive(1, threads, aligned=False)
    with k.role("compute", range(4)), k.loop(n) as i:
        k.bar.sync(1, threads, aligned=False)
        k.mem.load(x, s[k.lane_id])
        if fault != "unasked":
            with k.if_(i + 1 < n):
                k.bar.arrive(2, threads, aligned=False)
        k.mem.store(Y[i, k.thread_id], x)


@kernel(warps=3)
def gate_of_empty_tiles(k: Builder, *, tiles: int = 4, fault: str = "") -> None:
    """A gate goes round from who loads over who stores; tiles without keys leave out the loads."""
    names = ("gate", "full", "done", "free")
    gate, full, done, free = (k.mbarriers(name) for name in names)
    open_cta(k, (gate, 1), (full, 1), (done, 1), (free, 1))
    with k.role("load", 0), k.elected(), k.loop(tiles) as t:
        k.mbarrier.wait(gate, (t & 1) ^ 1)
        if fault != "empty":
            k.mbarrier.arrive(full)
    with k.role("correct", 1), k.elected(), k.loop(tiles) as t:
        if fault != "empty":
            k.mbarrier.wait(full, t & 1)
        k.mbarrier.wait(free, (t & 1) ^ 1)
        k.mbarrier.arrive(done)
    with k.role("store", 2), k.elected(), k.loop(tiles) as t:
        k.mbarrier.wait(done, t & 1)
        k.mbarrier.arrive(free)
        k.mbarrier.arrive(gate)  # BUG: if the load of an earlier tile has yet to pass


@kernel(warps=1)
def peer_flags(k: Builder, *, rounds: int = 3, fault: str = "") -> None:
    """Two CTAs meet by numbers that each stores for the other, in two places by turns."""
    k.launch(grid=2, cooperative=True)
    sets = 1 if fault == "one" else 2
    flags, seen, peer = k.tensor("flags", u32, (sets, 2)), k.var("seen", 0, u32), 1 - k.cta_x
    with k.one_thread(), k.loop(rounds) as i:
        k.mem.store(flags[i % sets, peer], i + 1, sem="release", scope="sys")
        with k.while_(seen.ne(i + 1)):  # BUG: if the next number overwrites it
            k.mem.load(seen, flags[i % sets, k.cta_x], sem="acquire", scope="sys")


@kernel(warps=1)
def look_back(k: Builder, *, tiles: int = 3, fault: str = "") -> None:
    """Each CTA adds to the sum of the one before it, which a flag says is there."""
    k.launch(grid=tiles, cooperative=True)
    X, sums = k.tensor("X", f32, (tiles,)), k.tensor("sums", f32, (tiles,))
    flags, seen = k.tensor("flags", u32, (tiles,)), k.var("seen", 0, dtype=u32)
    x, before = k.var("x", dtype=f32), k.var("before", 0.0, dtype=f32)
    with k.one_thread():
        k.mem.load(x, X[k.cta_x])
        with k.if_(k.cta_x > 0):
            with k.while_(seen.eq(0)):
                k.mem.load(seen, flags[k.cta_x - 1], sem="relaxed", scope="gpu")  # BUG: no fence
            if fault != "load":
                k.fence.memory(scope="gpu")
            k.mem.load(before, sums[k.cta_x - 1])
        k.mem.store(sums[k.cta_x], before + x)
        if fault != "store":
            k.fence.memory(scope="gpu")
        k.mem.store(flags[k.cta_x], 1, sem="relaxed", scope="gpu")  # BUG: if not fenced


@kernel(warps=2)
def parts_in_turn(k: Builder, *, splits: int = 3, fault: str = "") -> None:
    """CTAs add their parts in turn, as a word in global memory says; one of them has none."""
    k.launch(grid=splits, cooperative=True)
    Y, turn = k.tensor("Y", f32, (64,)), k.tensor("turn", s32, (1,))
    y, now, has = k.var("y", dtype=f32), k.var("now", 0), k.cta_x.ne(1)
    with k.if_(has if fault == "skips" else k.cta_x >= 0):
        with k.one_thread(), k.while_(now.ne(k.cta_x)):  # BUG: if one before says nothing
            k.mem.load(now, turn[0], sem="acquire", scope="gpu")
        k.sync_threads()
        with k.if_(has):
            k.mem.load(y, Y[k.thread_id])
            k.mem.store(Y[k.thread_id], y + 1.0)  # BUG: if nothing hands it on
        k.sync_threads()
        with k.one_thread():
            if fault != "fence":
                k.fence.memory(scope="gpu")
            k.mem.store(turn[0], k.cta_x + 1, sem="relaxed", scope="gpu")  # BUG: without a fence


@kernel(warps=2)
def some_exchange(k: Builder, *, every: bool = True, n: int = 3, fault: str = "") -> None:
    """Some threads exchange words; the barrier is one of all threads, and stands between."""
    S, x = k.shared("S", f32, (64,)), k.var("x", 0.0, dtype=f32)
    here = k.thread_id < 48 if every else (k.thread_id % 4).eq(0)
    other = 47 - k.thread_id if every else (k.thread_id + 4) % 64
    with k.loop(n):
        k.sync_threads()
        with k.if_(here):
            k.mem.store(S[k.thread_id], x)
            if fault == "before":
                k.mem.load(x, S[other])  # BUG: if the barrier stands before both
        if fault != "before":
            k.sync_threads()
            with k.if_(here):
                k.mem.load(x, S[other])


@kernel(warps=1)
def stored_over_a_copy(k: Builder, *, size: int = 4, fault: str = "") -> None:
    """What was loaded for all CTAs of the cluster is overwritten by stores from each other."""
    k.launch(grid=size, cluster=size)
    X, Y = k.tensor("X", f32, (size, LANES)), k.tensor("Y", f32, (size, LANES))
    tile, full, x = k.shared("t", f32, (size, LANES)), k.mbarriers("full"), k.var("x", dtype=f32)
    rank = k.cluster_rank
    open_cluster(k, (full, 1))
    with k.elected():
        k.mbarrier.arrive_expect_tx(full, tile.nbytes)
        k.bulk.load(tile[rank], X[rank], full, multicast=(1 << size) - 1)
    k.mbarrier.wait(full, 0, scope="cluster")
    k.mem.load(x, tile[rank, k.lane_id])
    if fault != "early":
        k.cluster.sync()
    k.mem.store(tile[rank, k.lane_id].at((rank + 1) % size), x)  # BUG: if the copy may land there
    k.cluster.sync()
    k.mem.load(x, tile[(rank + size - 1) % size, k.lane_id])
    k.mem.store(Y[rank, k.lane_id], x)
    k.cluster.sync()


@kernel(warps=4)
def scratch_again(k: Builder, *, n: int = 3, fault: str = "") -> None:
    """The scratch of a reduction is used again in the next turn."""
    scratch, x, y = k.shared("scratch", s32, (4,)), k.var("x", 1), k.var("y", 0)
    with k.loop(n) as i:
        k.warp.redux(x, "add", k.thread_id + i)
        with k.elected():
            k.mem.store(scratch[k.warp_id], x)  # BUG: if others still read the last sums
        k.sync_threads()
        with k.loop(4) as w:
            k.mem.load(x, scratch[w])
            k.assign(y, y + x)
        if fault != "again":
            k.sync_threads()


@kernel(warps=8)
def waited_by_groups(k: Builder, *, n: int = 3, fault: str = "") -> None:
    """Each group waits for its own products; the next load overwrites what both read."""
    A, B = k.tensor("A", bf16, (64, 64 * n)), k.tensor("B", bf16, (64, 64 * n))
    acc = k.fragment("acc", f32, (64, 64), "warpgroup")
    a_map, b_map = (k.tensor_map(t, (64, 64), swizzle=128) for t in (A, B))
    sA, sB = (k.shared(f"s{x}", bf16, (64, 64), swizzle=128) for x in "AB")
    full = k.mbarriers("full")
    open_cta(k, (full, 1))
    k.tile.fill(acc, 0.0)
    with k.loop(n) as i:
        with k.one_thread():  # BUG: if the other group still reads
            k.mbarrier.arrive_expect_tx(full, 2 * a_map.box_bytes)
            k.tma.load(a_map, sA, (0, i * 64), full)
            k.tma.load(b_map, sB, (0, i * 64), full)
        k.mbarrier.wait(full, i & 1)
        multiply_tile(k, acc, sA[:, :], sB[:, :])
        k.wgmma.wait_group(0)
        if fault != "own":
            k.sync_threads()


@kernel(warps=4)
def operand_in_registers(k: Builder, *, n: int = 3, fault: str = "") -> None:
    """A is in registers, which are set again for the next product."""
    B, sB = k.tensor("B", bf16, (64, 16)), k.shared("sB", bf16, (64, 16), swizzle=32)
    full = k.mbarriers("full")
    acc = k.fragment("acc", f32, (64, 64), "warpgroup")
    a, b_map = k.fragment("a", bf16, (64, 16), "warpgroup"), k.tensor_map(B, (64, 16), swizzle=32)
    open_cta(k, (full, 1))
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, b_map.box_bytes)
        k.tma.load(b_map, sB, (0, 0), full)
    k.mbarrier.wait(full, 0)
    k.tile.fill(acc, 0.0)
    with k.loop(n):
        if fault != "reuse":
            k.wgmma.wait_group(0)
        k.tile.fill(a, 1.0)
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a, sB)  # BUG: if nothing waits for it before A is set again
        k.wgmma.commit_group()
    k.wgmma.wait_group(0)


@kernel(warps=4)
def lagging_waiters(k: Builder, *, n: int = 4, fault: str = "") -> None:
    """One CTA publishes phases to the warps of both, once all of them have seen the last one."""
    k.launch(grid=2, cluster=2)
    full, used, rank = k.mbarriers("full"), k.mbarriers("used"), k.cluster_rank
    open_cluster(k, (full, 1), (used, 8))
    with k.loop(n) as i:
        with k.one_thread(), k.if_(rank.eq(0)):
            if fault != "ahead":
                k.mbarrier.wait(used, (i & 1) ^ 1, scope="cluster")
            for to in range(2):
                k.mbarrier.arrive(full[0].at(to), scope="cluster")  # BUG: if some lag behind
        k.mbarrier.wait(full, i & 1, scope="cluster")
        if fault != "ahead":
            with k.elected():
                k.mbarrier.arrive(used[0].at(0), scope="cluster")
    k.cluster.sync()


@kernel(warps=8)
def initialised_twice(k: Builder, *, fault: str = "") -> None:
    """One warp initialises the barriers of the CTA, not one of each group."""
    b, number = k.mbarriers("b"), k.warp_id % 4 if fault == "groups" else k.warp_id
    with k.if_(number.eq(1)), k.elected():
        k.mbarrier.init(b, 256)  # BUG: if two warps do
    k.sync_threads()
    k.mbarrier.arrive(b)
    k.mbarrier.wait(b, 0)


@kernel(warps=4)
def leaders_scalar(k: Builder, *, n: int = 4, fault: str = "") -> None:
    """All threads leave a loop by a word that one of them sets again in every turn."""
    word, x, i = k.shared("word", s32, (1,)), k.var("x", 1), k.var("i", 0)
    with k.while_(x.ne(0)):
        with k.one_thread():  # BUG: if others have yet to read
            k.mem.store(word[0], n - 1 - i)
        k.sync_threads()
        k.mem.load(x, word[0])
        k.assign(i, i + 1)
        if fault != "rewritten":
            k.sync_threads()


@kernel(warps=1)
def uneven_meetings(k: Builder, *, fault: str = "") -> None:
    """CTAs meet once per step by a counter: they have the same number of steps."""
    k.launch(grid=2, cooperative=True)
    met, seen = k.tensor("met", u32, (1,)), k.var("seen", 0, dtype=u32)
    with k.one_thread(), k.loop(k.cta_x + 2 if fault == "uneven" else 3) as i:
        k.mem.atomic(met[0], "add", 1, sem="release", scope="gpu")
        k.assign(seen, 0)
        with k.while_(seen < 2 * (i + 1)):  # BUG: if the other one has no such step
            k.mem.load(seen, met[0], sem="acquire", scope="gpu")


@kernel(warps=1)
def peers_staging(k: Builder, *, tiles: int = 3, fault: str = "") -> None:
    """A tile is loaded for both CTAs, which store from where it was: both give it back."""
    k.launch(grid=2, cluster=2)
    X, Y = k.tensor("X", f32, (tiles, LANES)), k.tensor("Y", f32, (2, tiles, LANES))
    tile, x, rank = k.shared("tile", f32, (LANES,)), k.var("x", dtype=f32), k.cluster_rank
    full, free, own = k.mbarriers("full"), k.mbarriers("free"), fault == "own"
    open_cluster(k, (full, 1), (free, 1 if own else 2))
    with k.loop(tiles) as i:
        with k.elected():
            k.mbarrier.arrive_expect_tx(full, tile.nbytes)
            with k.if_(rank.eq(0)):
                k.mbarrier.wait(free, (i & 1) ^ 1, scope="cluster")
                k.bulk.load(tile, X[i], full, multicast=0b11)
        k.mbarrier.wait(full, i & 1, scope="cluster")
        k.mem.load(x, tile[k.lane_id])
        k.sync_warp()
        k.mem.store(tile[k.lane_id], x * 2.0)
        k.fence.proxy_async("shared::cta")
        k.sync_warp()
        with k.elected():
            k.bulk.store(Y[rank, i], tile)  # BUG: if the peer does not say that it has read
            k.bulk.commit_group()
            k.bulk.wait_group(0, read=True)
            with k.if_(rank.eq(0) if own else rank >= 0):
                k.mbarrier.arrive(free[0].at(0), scope="cluster")
    k.cluster.sync()


@kernel(warps=1)
def channel(k: Builder, *, n: int = 3, fault: str = "") -> None:
    """The lanes of a warp write a token, one of them says so; those of another one read it."""
    k.launch(grid=2, cooperative=True)
    buf, tail, x = k.tensor("buf", f32, (n, LANES)), k.tensor("tail", s32, (1,)), k.var("x", 0, f32)
    seen, first = k.var("seen", 0), k.lane_id.eq(0)
    with k.if_(k.cta_x.eq(0)), k.loop(n) as i:
        k.mem.store(buf[i, k.lane_id], 1.0)
        if fault != "send":
            k.sync_warp()
        with k.if_(first, sync=False):
            k.mem.store(tail[0], i + 1, sem="release", scope="sys")  # BUG: if others have not met
    with k.if_(k.cta_x.eq(1)), k.loop(n) as i:
        with k.if_(first, sync=False), k.while_(seen < i + 1):
            k.mem.load(seen, tail[0], sem="acquire", scope="sys")
        if fault != "receive":
            k.sync_warp()
        k.mem.load(x, buf[i, k.lane_id])  # BUG: if its lane has not waited


@kernel(warps=2)
def early_inval(k: Builder, *, fault: str = "") -> None:
    """One thread invalidates a barrier once all have waited."""
    X, tile, b = k.tensor("X", f32, (LANES,)), k.shared("tile", f32, (LANES,)), k.mbarriers("b")
    x = k.var("x", dtype=f32)
    open_cta(k, (b, 1))
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(b, tile.nbytes)
        k.bulk.load(tile, X, b)
    k.mbarrier.wait(b, 0)
    k.mem.load(x, tile[k.lane_id])  # BUG: if others still wait
    if fault != "early":
        k.sync_threads()
    with k.one_thread():
        k.mbarrier.inval(b)


@kernel(warps=4)
def partials_over_operand(k: Builder, *, fault: str = "") -> None:
    """Partial sums are stored where the first stage was, once all warps have read it."""
    X, Y, full = k.tensor("X", f32, (4, GROUP)), k.tensor("Y", f32, (GROUP,)), k.mbarriers("full")
    operand = k.shared("operand", f32, (4, GROUP), offset=128)
    sums = k.shared("sums", f32, (4, LANES), offset=128)
    x, total = k.var("x", dtype=f32), k.var("total", 0.0, dtype=f32)
    open_cta(k, (full, 1))
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, operand.nbytes)
        k.bulk.load(operand, X, full)
    k.mbarrier.wait(full, 0)
    with k.loop(4) as s:
        k.mem.load(x, operand[s, k.lane_id * 4 + k.warp_id])
        k.assign(total, total + x)
    if fault != "early":
        k.bar.sync(1, GROUP)
    k.mem.store(sums[k.warp_id, k.lane_id], total)  # BUG: if it is still read
    k.bar.sync(1, GROUP)
    with k.loop(4) as w:
        k.mem.load(x, sums[w, k.lane_id])
        k.assign(total, total + x)
    k.mem.store(Y[ds(k.warp_id * LANES, LANES)][k.lane_id], total)
