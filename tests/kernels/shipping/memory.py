"""The CUDA programming guide's barriers and pipelines, flags in global memory, peers' memory."""

from __future__ import annotations

from tilesim import Builder, all_of, ds, kernel, select
from tilesim.arith.types import f32, s32, u64
from tilesim.ir.ops.fence import FenceScope
from tilesim.lib.opening import open_cluster

ROW = 128


@kernel(warps=4)
def early_exit(k: Builder, *, n: int = 3, fault: str = "") -> None:
    """cuda::barrier: a warp that has nothing left to do leaves by arrive_and_drop."""
    b, token, works = k.mbarriers("b"), k.var("token", 0, dtype=u64), k.var("works", 1)
    with k.one_thread():
        k.mbarrier.init(b, ROW)
    k.sync_threads()
    with k.loop(n) as i, k.if_(works.ne(0)):
        with k.if_(k.warp_id.eq(i)):
            if fault != "silent":
                k.mbarrier.arrive_drop(b)
            k.assign(works, 0)
        with k.else_():
            k.mbarrier.arrive(b, token=token)
            k.mbarrier.wait(b, token=token)


@kernel(warps=4)
def double_buffer(k: Builder, *, n: int = 5, fault: str = "") -> None:
    """cuda::barrier: producer and consumer warps around two buffers, arrivals of all threads."""
    X, Y = k.tensor("X", f32, (n, 64)), k.tensor("Y", f32, (n, 64))
    buffer, x, token = k.shared("b", f32, (2, 64)), k.var("x", dtype=f32), k.var("t", 0, dtype=u64)
    ready, filled = k.mbarriers("ready", 2), k.mbarriers("filled", 2)
    with k.one_thread():
        for side in range(2):
            k.mbarrier.init(ready[side], ROW)
            k.mbarrier.init(filled[side], ROW)
    k.sync_threads()
    with k.role("producer", range(2)), k.loop(n) as i:
        k.mbarrier.arrive(ready[i % 2], token=token)
        k.mbarrier.wait(ready[i % 2], token=token)
        k.mem.load(x, X[i, k.thread_id])
        k.mem.store(buffer[i % 2, k.thread_id], x)
        k.mbarrier.arrive(filled[i % 2])
    with k.role("consumer", range(2, 4)):
        k.mbarrier.arrive(ready[0])
        if fault != "one side":
            k.mbarrier.arrive(ready[1])
        with k.loop(n) as i:
            k.mbarrier.arrive(filled[i % 2], token=token)
            k.mbarrier.wait(filled[i % 2], token=token)
            if fault == "early":
                k.mbarrier.arrive(ready[i % 2])
            k.mem.load(x, buffer[i % 2, k.thread_id - 64])  # BUG: if it was given back
            if fault != "early":
                k.mbarrier.arrive(ready[i % 2])
            k.mem.store(Y[i, k.thread_id - 64], x)


@kernel(warps=4)
def unified_pipeline(k: Builder, *, n: int = 5, stages: int = 2, fault: str = "") -> None:
    """cuda::pipeline of a block: every thread copies ahead and consumes."""
    X, Y = k.tensor("X", f32, (max(n, 1), ROW)), k.tensor("Y", f32, (max(n, 1), ROW))
    buffer, x = k.shared("buffer", f32, (stages, ROW)), k.var("x", dtype=f32)
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    with k.one_thread():
        for stage in range(stages):
            k.mbarrier.init(full[stage], ROW)
            k.mbarrier.init(empty[stage], ROW)
    k.sync_threads()
    fetch, mine = k.var("fetch", 0), ds(k.warp_id * 32, 32)
    with k.loop(n) as i:
        with k.while_(all_of(fetch < n, fetch < i + stages)):
            at = fetch % stages
            k.mbarrier.wait(empty[at], ((fetch // stages) & 1) ^ 1)
            k.cp_async.copy(buffer[at, mine], X[fetch, mine], size=4)
            k.cp_async.mbarrier_arrive(full[at], noinc=fault != "inc")
            k.assign(fetch, fetch + 1)
        stage_ = i % stages
        k.mbarrier.wait(full[stage_], (i // stages) & 1)
        k.mem.load(x, buffer[stage_, (k.thread_id + 1) % ROW])
        if fault != "no release":
            k.mbarrier.arrive(empty[stage_])
        k.mem.store(Y[i, k.thread_id], x)


@kernel(warps=4)
def multistage(k: Builder, *, n: int = 7, stages: int = 3, fault: str = "") -> None:
    """CUTLASS' multistage loop: a group per step, empty ones too, so that the count is right."""
    X, Y = k.tensor("X", f32, (n, ROW)), k.tensor("Y", f32, (n, ROW))
    buffer, x = k.shared("buffer", f32, (stages, ROW)), k.var("x", dtype=f32)
    mine = ds(k.warp_id * 32, 32)
    for step in range(stages - 1):
        if step < n:
            k.cp_async.copy(buffer[step, mine], X[step, mine], size=4)
        k.cp_async.commit_group()
    with k.loop(n) as i:
        k.cp_async.wait_group(stages - 1 if fault == "pending" else stages - 2)
        if fault != "no barrier":
            k.sync_threads()
        ahead = i + (stages - 1)
        with k.if_(ahead < n):
            k.cp_async.copy(buffer[ahead % stages, mine], X[ahead, mine], size=4)
            if fault == "tail":
                k.cp_async.commit_group()
        if fault != "tail":
            k.cp_async.commit_group()
        k.mem.load(x, buffer[i % stages, (k.thread_id + 40) % ROW])  # BUG: if it is in flight
        k.mem.store(Y[i, k.thread_id], x)


@kernel(warps=1)
def row_sums(k: Builder, *, size: int = 2, rows: int = 5, fault: str = "") -> None:
    """QuACK's cluster reduction, persistent: partial sums by st.async, given back by arrivals."""
    k.launch(grid=size, cluster=size)
    X, Y = k.tensor("X", f32, (rows, size * 32)), k.tensor("Y", f32, (rows, size * 32))
    parts, x, part = k.shared("p", f32, (size,)), k.var("x", dtype=f32), k.var("part", dtype=f32)
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    open_cluster(k, (full, 1), (empty, size))
    with k.loop(rows) as i:
        k.mem.load(x, X[i, k.cluster_rank * 32 + k.lane_id])
        if fault != "no empty":
            k.mbarrier.wait(empty, (i & 1) ^ 1, scope="cluster")
        with k.elected():
            k.mbarrier.arrive_expect_tx(full, 4 * (size - 1))
        with k.elected():
            for peer in range(size):
                with k.if_(k.cluster_rank.ne(peer)):
                    place = parts[k.cluster_rank].at(peer)
                    k.cluster.st_async(place, x, full[0].at(peer))
        k.mbarrier.wait(full, i & 1, scope="cluster")
        for peer in range(size):
            with k.if_(k.cluster_rank.ne(peer)):
                k.mem.load(part, parts[peer])
                k.assign(x, x + part)
        k.sync_warp()
        with k.elected():
            for peer in range(size):
                k.mbarrier.arrive(empty[0].at(peer), scope="cluster")
        k.mem.store(Y[i, k.cluster_rank * 32 + k.lane_id], x)
    if fault != "exit":
        k.cluster.sync()


@kernel(warps=4)
def turnstile(k: Builder, *, splits: int = 2, release: FenceScope = "gpu", fault: str = "") -> None:
    """cutlass::Semaphore, serial split-K: a CTA adds its part when the lock has its number."""
    k.launch(grid=splits, cooperative=True)
    X, D = k.tensor("X", f32, (splits, ROW)), k.tensor("D", f32, (ROW,))
    lock, state = k.tensor("lock", s32, (1,)), k.var("state", -1)
    x, total = k.var("x", dtype=f32), k.var("total", 0.0, dtype=f32)
    k.mem.load(x, X[k.cta_x, k.thread_id])
    with k.one_thread(), k.while_(state.ne(k.cta_x)):
        k.mem.load(state, lock[0], sem="acquire", scope="gpu")
    if fault != "no entry":
        k.sync_threads()
    with k.if_(k.cta_x > 0):
        k.mem.load(total, D[k.thread_id])  # BUG: if nothing orders the part before it
    k.mem.store(D[k.thread_id], total + x)
    if fault != "no exit":
        k.sync_threads()
    with k.one_thread():
        after = select(k.cta_x.eq(splits - 1), 0, k.cta_x + 1)
        k.mem.store(lock[0], after, sem="release", scope=release)


@kernel(warps=1)
def message(
    k: Builder,
    *,
    release: FenceScope = "gpu",
    acquire: FenceScope = "gpu",
    fence: bool = False,
    cluster: int = 1,
) -> None:
    """Data and a flag from one CTA to the other, with these scopes on both sides."""
    k.launch(grid=2, cluster=cluster, cooperative=cluster == 1)
    data, flag, Y = (k.tensor(name, s32, (1,)) for name in ("data", "flag", "Y"))
    x, seen = k.var("x", 0), k.var("seen", 0)
    with k.elected():
        with k.if_(k.cta_x.eq(0)):
            k.mem.store(data[0], 7)
            if fence:
                k.fence.memory("acq_rel", scope=release)
                k.mem.store(flag[0], 1, sem="relaxed", scope="gpu")
            else:
                k.mem.store(flag[0], 1, sem="release", scope=release)
        with k.else_():
            with k.while_(seen.eq(0)):
                k.mem.load(seen, flag[0], sem="relaxed" if fence else "acquire",
                           scope="gpu" if fence else acquire)  # fmt: skip
            if fence:
                k.fence.memory("acq_rel", scope=acquire)
            k.mem.load(x, data[0])  # BUG: if a scope leaves out the other CTA
            k.mem.store(Y[0], x)


@kernel(warps=1)
def counter(k: Builder, *, scope: FenceScope = "gpu", cluster: int = 1) -> None:
    """Two CTAs count in global memory."""
    k.launch(grid=2, cluster=cluster, cooperative=cluster == 1)
    count = k.tensor("count", s32, (1,))
    with k.elected():
        k.mem.atomic(count[0], "add", 1, scope=scope)
