"""Protocols of further reported faults in sm_90a kernels: rings, staging buffers, flags, clusters.

Where they were reported is in `tests.kernels.faults`. What is marked is the line that is to
be named first.
"""

from __future__ import annotations

from typing import Literal

from tilesim import Builder, ds, kernel, select
from tilesim.arith.types import bf16, f32, s32
from tilesim.kernels.hopper.operands import multiply_tile
from tilesim.lib.opening import open_cluster, open_cta
from tilesim.lib.pipeline import Pipeline

GROUP = 128


@kernel(warps=5)
def operands_apart(k: Builder, *, n: int = 4, fault: str = "") -> None:
    """A and B have full barriers of their own; a group multiplies and gives both back."""
    A, B = (k.tensor(name, bf16, (64, 64 * n)) for name in "AB")
    C = k.tensor("C", f32, (64, 64))
    maps = [k.tensor_map(t, (64, 64), swizzle=128) for t in (A, B)]
    tiles = [k.shared(name, bf16, (2, 64, 64), swizzle=128) for name in ("sA", "sB")]
    loaded, empty = [k.mbarriers(name, 2) for name in ("a", "b")], k.mbarriers("empty", 2)
    acc = k.fragment("acc", f32, (64, 64), "warpgroup")
    open_cta(k, *((full, 1) for full in loaded), (empty, GROUP))
    with k.role("load", 4), k.elected(), k.loop(n) as i:
        k.mbarrier.wait(empty[i % 2], ((i // 2) & 1) ^ 1)
        for box, tile, full in zip(maps, tiles, loaded, strict=True):
            k.mbarrier.arrive_expect_tx(full[i % 2], box.box_bytes)
            k.tma.load(box, tile[i % 2], (0, i * 64), full[i % 2])
    with k.role("multiply", range(4)):
        k.tile.fill(acc, 0.0)
        with k.loop(n) as i:
            if fault != "late":
                k.mbarrier.wait(loaded[0][i % 2], (i // 2) & 1)
            k.mbarrier.wait(loaded[1][i % 2], (i // 2) & 1)
            multiply_tile(k, acc, tiles[0][i % 2], tiles[1][i % 2])  # BUG: if one is not there
            if fault == "late":
                k.mbarrier.wait(loaded[0][i % 2], (i // 2) & 1)
            if fault != "flying":
                k.wgmma.wait_group(0)
            k.mbarrier.arrive(empty[i % 2])  # BUG: if a product is in flight
        k.wgmma.wait_group(0)
        k.tile.store(C, acc)


@kernel(warps=4)
def rows_by_threads(k: Builder, *, n: int = 3, fault: str = "") -> None:
    """A group stages rows, each of its first threads adds one of them to global memory."""
    X, Y = k.tensor("X", f32, (n, 16, GROUP)), k.tensor("Y", f32, (n, 16, GROUP))
    rows, x = k.shared("rows", f32, (16, GROUP)), k.var("x", dtype=f32)
    with k.loop(n) as i:
        with k.if_(k.thread_id < 16):
            k.bulk.wait_group(0, read=True)
        if fault != "own":
            k.bar.sync(1, GROUP)
        with k.loop(16) as row:
            k.mem.load(x, X[i, row, k.thread_id])
            k.mem.store(rows[row, k.thread_id], x)  # BUG: if only own rows are waited for
        k.fence.proxy_async("shared::cta")
        if fault != "others":
            k.bar.sync(1, GROUP)
        with k.if_(k.thread_id < 16):
            k.bulk.reduce(Y[i, k.thread_id], rows[k.thread_id])  # BUG: if the others still store
            k.bulk.commit_group()
    with k.if_(k.thread_id < 16):
        k.bulk.wait_group(0)


@kernel(warps=5)
def tiles_left_out(k: Builder, *, n: int = 6, fault: str = "") -> None:
    """Some tiles are neither loaded nor used; their turn in the ring is theirs all the same."""
    X, Y = k.tensor("X", f32, (n, GROUP)), k.tensor("Y", f32, (n, GROUP))
    tile, x, pipe = (
        k.shared("t", f32, (2, GROUP)),
        k.var("x", dtype=f32),
        Pipeline(k, 2, consumers=4),
    )
    open_cta(k, pipe)
    with k.role("load", 4), k.elected(), k.loop(n) as i:
        s = pipe[i]
        s.acquire()
        with k.if_((i % 3).ne(1)):  # BUG: if there is nothing else
            s.commit(tile.nbytes // 2)
            k.bulk.load(tile[s.stage], X[i], s.full)
        if fault != "silent":
            with k.else_():
                if fault == "expects":
                    k.mbarrier.expect_tx(s.full, 0)  # BUG: no arrival
                else:
                    s.commit()
    with k.role("use", range(4)), k.loop(n) as i:
        s = pipe[i]
        s.wait()
        with k.if_((i % 3).ne(1)):  # BUG: if the release is one of what is left out
            k.mem.load(x, tile[s.stage, k.thread_id])
            k.mem.store(Y[i, k.thread_id], x)
            k.fence.proxy_async("shared::cta")
            if fault == "inside":
                k.sync_warp()
                with k.elected():
                    s.release()
        if fault != "inside":
            with k.elected(sync=fault != "lanes"):
                s.release()  # BUG: if other lanes still read


@kernel(warps=8)
def bystanders(k: Builder, *, n: int = 6, fault: str = "") -> None:
    """Two of four warps gather rows; the others leave, as nobody counts them."""
    X, Y = k.tensor("X", f32, (n, 64)), k.tensor("Y", f32, (n, GROUP))
    row, x = k.shared("row", f32, (64,)), k.var("x", dtype=f32)
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    open_cta(k, (full, 64), (empty, GROUP))
    with k.role("gather", range(4, 8)):
        mine = k.thread_id - GROUP
        if fault != "stay":
            with k.if_(mine >= 64):
                k.exit()
        with k.loop(n) as i:
            k.mbarrier.wait(empty, (i & 1) ^ 1)
            with k.if_(mine < 64):
                k.mem.load(x, X[i, mine])
                k.mem.store(row[mine], x)
                k.mbarrier.arrive(full)
    with k.role("use", range(4)), k.loop(n) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(x, row[k.thread_id % 64])
        k.mbarrier.arrive(empty)  # BUG: if somebody looks whom it does not wait for
        k.mem.store(Y[i, k.thread_id], x)


@kernel(warps=4)
def own_and_shared(k: Builder, *, n: int = 4, fault: str = "") -> None:
    """Each CTA loads its A, one of them B for both: both expect the bytes of A and B."""
    k.launch(grid=2, cluster=2)
    A, B, Y = (k.tensor(name, f32, (2, n, GROUP)) for name in "ABY")
    a, b = k.shared("a", f32, (GROUP,)), k.shared("b", f32, (GROUP,))
    x, y, full, rank = (
        k.var("x", dtype=f32),
        k.var("y", dtype=f32),
        k.mbarriers("full"),
        k.cluster_rank,
    )
    open_cluster(k, (full, 1))
    with k.loop(n) as i:
        with k.one_thread():
            size = 512 + select(rank.eq(0), 512, 0) if fault == "sent" else 1024
            k.mbarrier.arrive_expect_tx(full, size)
            k.bulk.load(a, A[rank, i], full)
            with k.if_(rank.eq(0)):
                k.bulk.load(b, B[0, i], full, multicast=0b11)
        k.mbarrier.wait(full, i & 1, scope="cluster")
        k.mem.load(x, a[k.thread_id])
        k.mem.load(y, b[k.thread_id])
        k.mem.store(Y[rank, i, k.thread_id], x + y)
        k.fence.proxy_async()
        k.cluster.sync()


@kernel(warps=4)
def refills(k: Builder, *, n: int = 7, stages: int = 3, fault: str = "") -> None:
    """The stages are filled before a loop, which fills each again as long as there are tiles."""
    X, Y = k.tensor("X", f32, (n + stages, GROUP)), k.tensor("Y", f32, (n, GROUP))
    tile, x, pipe = (
        k.shared("t", f32, (stages, GROUP)),
        k.var("x", dtype=f32),
        Pipeline(k, stages, consumers=GROUP),
    )
    open_cta(k, pipe)
    with k.one_thread():
        for stage in range(stages):
            pipe[stage].commit(512)
            k.bulk.load(tile[stage], X[stage], pipe[stage].full)
    with k.loop(n) as i:
        s = pipe[i]
        s.wait()
        k.mem.load(x, tile[s.stage, k.thread_id])
        k.mem.store(Y[i, k.thread_id], x)
        k.fence.proxy_async("shared::cta")
        s.release()
        with k.one_thread(), k.if_(i + stages < n if fault != "drain" else i >= 0):
            k.mbarrier.wait(s.empty, s.parity)
            s.commit(512)
            k.bulk.load(tile[s.stage], X[i + stages], s.full)  # BUG: if nobody waits for it


@kernel(warps=4)
def flag_behind_a_copy(k: Builder, *, fault: str = "") -> None:
    """A tile leaves by a bulk store; a flag tells another CTA that it has been written."""
    k.launch(grid=2, cooperative=True)
    W, Y, flag = (
        k.tensor("W", f32, (GROUP,)),
        k.tensor("Y", f32, (GROUP,)),
        k.tensor("flag", s32, (1,)),
    )
    out, x, ready = k.shared("out", f32, (GROUP,)), k.var("x", dtype=f32), k.var("ready", 0)
    reach: Literal["cta", "gpu"] = "cta" if fault == "scope" else "gpu"
    with k.if_(k.cta_x.eq(0)):
        k.mem.store(out[k.thread_id], 1.0)
        k.fence.proxy_async("shared::cta")
        k.sync_threads()
        with k.one_thread():
            k.bulk.store(W, out)
            k.bulk.commit_group()
            k.bulk.wait_group(0, read=fault == "read")  # BUG: if only the source has been read
            k.fence.proxy_async("global")
            k.fence.memory("acq_rel", reach)  # BUG: too small a scope
            k.mem.store(flag[0], 1, sem="relaxed", scope="gpu")
    with k.else_():
        with k.one_thread(), k.while_(ready.eq(0)):
            k.mem.load(ready, flag[0], sem="acquire", scope="gpu")
        k.sync_threads()
        k.mem.load(x, W[k.thread_id])
        k.mem.store(Y[k.thread_id], x)


@kernel(warps=5)
def recycled_by_all(k: Builder, *, n: int = 4, fault: str = "") -> None:
    """All threads of a cluster meet after each tile, those that send it on once they know of it."""
    k.launch(grid=2, cluster=2)
    X, Y = k.tensor("X", f32, (n, GROUP)), k.tensor("Y", f32, (2, n, GROUP))
    tile, x = k.shared("tile", f32, (GROUP,)), k.var("x", dtype=f32)
    full, done = k.mbarriers("full"), k.mbarriers("done")
    open_cluster(k, (full, 1), (done, GROUP))
    with k.role("multiply", range(4)), k.loop(n) as i:
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(full, tile.nbytes)
            k.bulk.load(tile, X[i], full)
        k.mbarrier.wait(full, i & 1)
        k.mem.load(x, tile[k.thread_id])
        k.mem.store(Y[k.cluster_rank, i, k.thread_id], x)
        k.fence.proxy_async("shared::cta")
        if fault != "first":
            k.mbarrier.arrive(done)
        k.cluster.sync()  # BUG: if it comes before what the others wait for
        if fault == "first":
            k.mbarrier.arrive(done)
    with k.role("send", 4), k.loop(n) as i:
        k.mbarrier.wait(done, i & 1)
        k.cluster.sync()


@kernel(warps=2)
def bytes_of_a_barrier(k: Builder, *, fault: str = "") -> None:
    """Where a barrier was, threads exchange words afterwards."""
    X, Y = k.tensor("X", f32, (64,)), k.tensor("Y", f32, (64,))
    words, tile = k.shared("words", f32, (64,), offset=0), k.shared("tile", f32, (64,), offset=256)
    x, full = k.var("x", dtype=f32), k.mbarriers("full", offset=0)
    open_cta(k, (full, 1))
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, tile.nbytes)
        k.bulk.load(tile, X, full)
    k.mbarrier.wait(full, 0)
    k.sync_threads()
    if fault != "valid":
        with k.one_thread():
            k.mbarrier.inval(full)
        k.sync_threads()
    k.mem.load(x, tile[k.thread_id])
    k.mem.store(words[k.thread_id], x)  # BUG: if the barrier is still one
    k.sync_threads()
    k.mem.load(x, words[63 - k.thread_id])
    k.mem.store(Y[k.thread_id], x)


@kernel(warps=5)
def halves_for_both(k: Builder, *, n: int = 5, fault: str = "") -> None:
    """Each CTA of a pair loads half of a tile for both, and ends when both have read the last."""
    k.launch(grid=2, cluster=2)
    X, Y = k.tensor("X", f32, (n, GROUP)), k.tensor("Y", f32, (2, n, GROUP))
    tile, x, rank = k.shared("t", f32, (2, GROUP)), k.var("x", dtype=f32), k.cluster_rank
    pipe = Pipeline(k, 2, consumers=2)
    open_cluster(k, pipe)
    half = ds(64 * rank, 64)
    with k.role("load", 4), k.elected():
        with k.loop(n) as i:
            s = pipe[i]
            s.acquire(scope="cluster")
            s.commit(512)
            k.bulk.load(tile[s.stage, half], X[i, half], s.full, multicast=0b11)
        if fault != "tail":
            with k.loop(n, n + 2) as i:
                pipe[i].acquire(scope="cluster")
    with k.role("use", range(4)) as group, k.loop(n) as i:
        s = pipe[i]
        s.wait(scope="cluster")
        k.mem.load(x, tile[s.stage, k.thread_id])
        k.mem.store(Y[rank, i, k.thread_id], x)
        k.fence.proxy_async()
        group.sync()
        with k.if_(k.thread_id < 2):
            s.release_at(k.thread_id)  # BUG: if the CTA that has it may have ended


@kernel(warps=9)
def stores_for_a_group(k: Builder, *, tiles: int = 3, fault: str = "") -> None:
    """Eight warps stage a tile and go on; a ninth one stores it, and is counted as well."""
    Y, out = k.tensor("Y", f32, (tiles, 256)), k.shared("out", f32, (256,))
    with k.role("compute", range(8)), k.loop(tiles):
        k.bar.sync(2, 288, aligned=False)
        k.mem.store(out[k.thread_id], 1.0)
        k.fence.proxy_async("shared::cta")
        k.bar.arrive(1, 256 if fault == "count" else 288, aligned=False)  # BUG: those who arrive
    with k.role("store", 8), k.loop(tiles) as i:
        with k.elected():
            k.bulk.wait_group(0, read=True)
        k.bar.arrive(2, 288, aligned=False)
        k.bar.sync(1, 288, aligned=False)
        with k.elected():
            k.bulk.store(Y[i], out)
            k.bulk.commit_group()
    with k.role("store", 8), k.elected():
        k.bulk.wait_group(0)


@kernel(warps=9)
def groups_in_order(k: Builder, *, tiles: int = 6, fault: str = "") -> None:
    """Two groups load their tiles in turn, as barriers of an array say, each for the other one."""
    X, Y = k.tensor("X", f32, (tiles, GROUP)), k.tensor("Y", f32, (tiles, GROUP))
    tile, x, pipe = (
        k.shared("t", f32, (2, GROUP)),
        k.var("x", dtype=f32),
        Pipeline(k, 2, consumers=GROUP),
    )
    order = k.mbarriers("order", 2)
    open_cta(k, pipe, (order, GROUP))
    with k.role("load", 8), k.elected(), k.loop(tiles) as i:
        s = pipe[i]
        s.acquire()
        s.commit(512)
        k.bulk.load(tile[s.stage], X[i], s.full)
    for g in range(2):
        with k.role(f"group {g}", range(4 * g, 4 * g + 4)), k.loop(tiles // 2) as t:
            s = pipe[2 * t + g]
            k.mbarrier.wait(order[g], (t & 1) ^ (1 - g))
            s.wait()
            k.mem.load(x, tile[s.stage, k.thread_id % GROUP])
            k.fence.proxy_async("shared::cta")
            s.release()
            k.mbarrier.arrive(order[g if fault == "own" else 1 - g])  # BUG: if it is its own
            k.mem.store(Y[2 * t + g, k.thread_id % GROUP], x)


@kernel(warps=9)
def stores_for_its_own(k: Builder, *, tiles: int = 3, fault: str = "") -> None:
    """The last warp of a group stores what all of them stage: it arrives, and waits for all."""
    Y, out = k.tensor("Y", f32, (tiles, 256)), k.shared("out", f32, (256,))
    with k.role("group", range(8)), k.loop(tiles) as i:
        k.mem.store(out[k.thread_id], 1.0)
        k.fence.proxy_async("shared::cta")
        k.bar.arrive(1, 256 if fault == "count" else 288, aligned=False)  # BUG: once more
        with k.if_(k.warp_id.eq(7)):
            k.bar.sync(1, 288, aligned=False)
            with k.elected():
                k.bulk.store(Y[i], out)
                k.bulk.commit_group()
                k.bulk.wait_group(0, read=True)
        k.bar.sync(2, 256, aligned=False)
