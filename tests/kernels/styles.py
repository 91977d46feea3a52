"""Right kernels in styles that the gallery does not have: named barriers, semaphores, clusters."""

from __future__ import annotations

from tilesim import Builder, ds, kernel
from tilesim.arith.types import f32, s32
from tilesim.lib.opening import open_cluster, open_cta
from tilesim.lib.pipeline import Pipeline

LANES = 32


@kernel(warps=9)
def ping_pong_named(k: Builder, *, tiles: int = 6, kt: int = 2, stages: int = 3) -> None:
    """Ping-pong consumers ordered by named barriers (FlashAttention-3 warp scheduler barriers)."""
    X, Y = k.tensor("X", f32, (tiles * kt, 128)), k.tensor("Y", f32, (tiles, 128))
    buf, x, total = (
        k.shared("buf", f32, (stages, 128)),
        k.var("x", dtype=f32),
        k.var("t", dtype=f32),
    )
    pipe = Pipeline(k, stages, consumers=128)
    with k.one_thread():
        pipe.init()
    k.sync_threads()
    with k.role("load", 8), k.elected(), k.loop(tiles * kt) as i:
        s = pipe[i]
        s.acquire()
        s.commit(512)
        k.bulk.load(buf[s.stage], X[i], s.full)
    for g in range(2):
        with k.role(f"math {g}", range(4 * g, 4 * g + 4)):
            if g == 1:
                k.bar.arrive(1, 256, aligned=False)
            with k.loop(tiles // 2) as t:
                tile = 2 * t + g
                k.bar.sync(1 + g, 256, aligned=False)
                k.assign(total, 0.0)
                with k.loop(kt) as j:
                    s = pipe[tile * kt + j]
                    s.wait()
                    k.mem.load(x, buf[s.stage, k.thread_id - 128 * g])
                    k.fence.proxy_async("shared::cta")
                    s.release()
                    k.assign(total, total + x)
                if g == 0:
                    k.bar.arrive(2, 256, aligned=False)
                else:
                    with k.if_(t + 1 < tiles // 2):
                        k.bar.arrive(1, 256, aligned=False)
                k.mem.store(Y[tile, k.thread_id - 128 * g], total)


@kernel(warps=4)
def stream_k_semaphores(k: Builder, *, ctas: int = 3, tiles: int = 2) -> None:
    """Stream-K: units split over CTAs; peers of a tile add in turn by a semaphore each."""
    k.launch(grid=ctas, cooperative=True)
    units = 3
    Y, sem, now = k.tensor("Y", f32, (tiles, 128)), k.tensor("sem", s32, (tiles,)), k.var("now", 0)
    y = k.var("y", dtype=f32)
    per = tiles * units // ctas
    with k.loop(per) as i:
        unit = k.cta_x * per + i
        tile, part = unit // units, unit % units
        k.assign(now, 0)
        with k.one_thread(), k.while_(now < part):
            k.mem.load(now, sem[tile], sem="acquire", scope="gpu")
        k.sync_threads()
        k.mem.load(y, Y[tile, k.thread_id])
        k.mem.store(Y[tile, k.thread_id], y + 1.0)
        k.sync_threads()
        with k.one_thread():
            k.mem.atomic(sem[tile], "add", 1, sem="release", scope="gpu")


@kernel(warps=4)
def split_k_dsmem(k: Builder, *, splits: int = 4) -> None:
    """Split-K: each CTA reduces a quarter of the tile out of its peers' shared memory."""
    k.launch(grid=splits, cluster=splits)
    X, Y = k.tensor("X", f32, (splits, 128)), k.tensor("Y", f32, (128,))
    part, x, t = k.shared("part", f32, (128,)), k.var("x", dtype=f32), k.var("t", 0.0, dtype=f32)
    k.mem.load(x, X[k.cluster_rank, k.thread_id])
    k.mem.store(part[k.thread_id], x)
    k.cluster.sync()
    with k.if_(k.thread_id < 128 // splits):
        at = k.cluster_rank * (128 // splits) + k.thread_id
        with k.loop(splits) as r:
            k.mem.load(x, part[at].at(r))
            k.assign(t, t + x)
        k.mem.store(Y[at], t)
    k.cluster.sync()


@kernel(warps=2)
def cluster_reduction(k: Builder, *, size: int = 4, n: int = 3) -> None:
    """Row sums by remote stores and remote arrives, two slots, every CTA reads its own."""
    k.launch(grid=size, cluster=size)
    X, Y = k.tensor("X", f32, (n, size, 64)), k.tensor("Y", f32, (n, size))
    slot, full, empty = (
        k.shared("slot", f32, (2, size * 2)),
        k.mbarriers("full", 2),
        k.mbarriers("empty", 2),
    )
    x, t = k.var("x", dtype=f32), k.var("t", dtype=f32)
    open_cluster(k, (full, size * 2), (empty, size))
    r = k.cluster_rank
    with k.loop(n) as i:
        s, ph = i % 2, (i // 2) & 1
        k.mem.load(x, X[i, r, k.thread_id])
        k.mbarrier.wait(empty[s], ph ^ 1, scope="cluster")
        k.sync_warp()
        with k.if_(k.lane_id < size):
            k.mem.store(slot[s, r * 2 + k.warp_id].at(k.lane_id), x)
            k.mbarrier.arrive(full[s].at(k.lane_id), scope="cluster")
        with k.one_thread():
            k.mbarrier.wait(full[s], ph, scope="cluster")
            k.assign(t, 0.0)
            with k.loop(size * 2) as j:
                k.mem.load(x, slot[s, j])
                k.assign(t, t + x)
            k.mem.store(Y[i, r], t)
            with k.loop(size) as p:
                k.mbarrier.arrive(empty[s].at(p), scope="cluster")
    k.cluster.sync()


@kernel(warps=6)
def mixed_producers(k: Builder, *, n: int = 5, stages: int = 2) -> None:
    """One warp loads A by TMA, another one B by cp.async, on one full barrier; a group consumes."""
    A, B, Y = (
        k.tensor("A", f32, (n, 128)),
        k.tensor("B", f32, (n, LANES, 4)),
        k.tensor("Y", f32, (n, 128)),
    )
    sa, sb = k.shared("sa", f32, (stages, 128)), k.shared("sb", f32, (stages, LANES, 4))
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    x, y = k.var("x", dtype=f32), k.var("y", dtype=f32)
    open_cta(k, (full, 1 + LANES), (empty, 4))
    with k.role("tma", 4), k.elected(), k.loop(n) as i:
        k.mbarrier.wait(empty[i % stages], ((i // stages) & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[i % stages], 512)
        k.bulk.load(sa[i % stages], A[i], full[i % stages])
    with k.role("ldgsts", 5), k.loop(n) as i:
        k.mbarrier.wait(empty[i % stages], ((i // stages) & 1) ^ 1)
        k.cp_async.copy(sb[i % stages], B[i])
        k.cp_async.mbarrier_arrive(full[i % stages], noinc=True)
    with k.role("math", range(4)), k.loop(n) as i:
        k.mbarrier.wait(full[i % stages], (i // stages) & 1)
        k.mem.load(x, sa[i % stages, k.thread_id])
        k.mem.load(y, sb[i % stages, k.lane_id, k.warp_id])
        k.fence.proxy_async("shared::cta")
        k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(empty[i % stages])
        k.mem.store(Y[i, k.thread_id], x + y)


@kernel(warps=12)
def register_split(k: Builder, *, n: int = 3) -> None:
    """A producer group gives registers to two consumer groups; one of its warps loads."""
    k.launch(registers=168)
    X, Y = k.tensor("X", f32, (n, 256)), k.tensor("Y", f32, (n, 256))
    buf, x, pipe = (
        k.shared("buf", f32, (2, 256)),
        k.var("x", dtype=f32),
        Pipeline(k, 2, consumers=8),
    )
    open_cta(k, pipe)
    with k.warpgroup(0, "producer"):
        k.setmaxnreg("dec", 40)
        with k.if_(k.warp_id.eq(0)), k.elected(), k.loop(n) as i:
            s = pipe[i]
            s.acquire()
            s.commit(1024)
            k.bulk.load(buf[s.stage], X[i], s.full)
    for g in range(2):
        with k.warpgroup(1 + g, f"consumer {g}"):
            k.setmaxnreg("inc", 232)
            with k.loop(n) as i:
                s = pipe[i]
                s.wait()
                k.mem.load(x, buf[s.stage, k.thread_id - 128])
                k.fence.proxy_async("shared::cta")
                k.sync_warp()
                with k.elected():
                    s.release()
                k.mem.store(Y[i, k.thread_id - 128], x)


@kernel(warps=1)
def grid_of_mbarriers(k: Builder, *, size: int = 8, rounds: int = 3) -> None:
    """An mbarrier of the first CTA counts all CTAs of the cluster, which it then tells to go on."""
    k.launch(grid=size, cluster=size)
    work, x = k.tensor("work", f32, (rounds, size, LANES)), k.var("x", dtype=f32)
    count, go = k.mbarriers("count"), k.mbarriers("go")
    open_cluster(k, (count, size), (go, 1))
    r = k.cluster_rank
    with k.loop(rounds) as i:
        k.mem.store(work[i, r, k.lane_id], 1.0)
        k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(count[0].at(0), scope="cluster")
            with k.if_(r.eq(0)):
                k.mbarrier.wait(count, i & 1, scope="cluster")
                with k.loop(size) as p:
                    k.mbarrier.arrive(go[0].at(p), scope="cluster")
        k.mbarrier.wait(go, i & 1, scope="cluster")
        k.mem.load(x, work[i, (r + 1) % size, k.lane_id])
    k.cluster.sync()


@kernel(warps=3)
def prefetch_warp(k: Builder, *, n: int = 5) -> None:
    """A warp does nothing but prefetch to L2, and keeps in step by a barrier it waits for."""
    X, Y = k.tensor("X", f32, (n, LANES)), k.tensor("Y", f32, (n, LANES))
    buf, x, pipe = (
        k.shared("buf", f32, (2, LANES)),
        k.var("x", dtype=f32),
        Pipeline(k, 2, consumers=LANES + 1),
    )
    open_cta(k, pipe)
    with k.role("prefetch", 2), k.elected():
        k.bulk.prefetch(X[0])
        with k.loop(n) as i:
            with k.if_(i + 1 < n):
                k.bulk.prefetch(X[i + 1])
            s = pipe[i]
            s.wait()
            s.release()
    with k.role("load", 1), k.elected(), k.loop(n) as i:
        s = pipe[i]
        s.acquire()
        s.commit(128)
        k.bulk.load(buf[s.stage], X[i], s.full)
    with k.role("math", 0), k.loop(n) as i:
        s = pipe[i]
        s.wait()
        k.mem.load(x, buf[s.stage, k.lane_id])
        k.fence.proxy_async("shared::cta")
        s.release()
        k.mem.store(Y[i, k.lane_id], x)


@kernel(warps=2)
def early_trigger(k: Builder) -> None:
    """launch_dependents before the stores: who waits does so for the end of the grid anyway."""
    k.launch(grid=2)
    X, Y, x = (
        k.tensor("X", f32, (2, 64), dependent=True),
        k.tensor("Y", f32, (2, 64)),
        k.var("x", dtype=f32),
    )
    k.griddep.wait()
    k.griddep.launch_dependents()
    k.mem.load(x, X[k.cta_x, k.thread_id])
    k.mem.store(Y[k.cta_x, k.thread_id], x)


@kernel(warps=1)
def idle_ranks(k: Builder, *, size: int = 8) -> None:
    """sgl-project/sglang#25574: ranks that are not needed return; the first one touches no peer."""
    k.launch(grid=size, cluster=size)
    Y = k.tensor("Y", f32, (LANES,))
    with k.if_(k.cluster_rank.ne(0)):
        k.exit()
    k.mem.store(Y[k.lane_id], 1.0)


@kernel(warps=4)
def table_of_pages(k: Builder, *, n: int = 4) -> None:
    """Paged loads by cp.async with a guard that data decides; a block-wide vote ends early."""
    pages, X, Y = (
        k.tensor("pages", s32, (n,)),
        k.tensor("X", f32, (16, 128, 4)),
        k.tensor("Y", f32, (n, 128)),
    )
    buf, x, page = k.shared("buf", f32, (2, 128, 4)), k.var("x", dtype=f32), k.var("page", 0)
    k.mem.load(page, pages[0])
    own = ds(k.warp_id * LANES, LANES)
    k.cp_async.copy(buf[0, own], X[page, own])
    k.cp_async.commit_group()
    with k.loop(n) as i:
        with k.if_(i + 1 < n):
            k.mem.load(page, pages[i + 1])
            k.cp_async.copy(buf[(i + 1) % 2, own], X[page, own])
        k.cp_async.commit_group()
        k.cp_async.wait_group(1)
        k.sync_threads()
        k.mem.load(x, buf[i % 2, (k.thread_id + 1) % 128, 0])
        k.mem.store(Y[i, k.thread_id], x)
        k.sync_threads()
