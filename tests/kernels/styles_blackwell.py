"""Right sm_100a kernels in styles that the gallery does not have: subtiles, pairs of pairs."""

from __future__ import annotations

from tilesim import Builder, ds, kernel
from tilesim.arith.types import bf16, f32, u32
from tilesim.lib.opening import open_cta
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.tensor_memory import TensorMemory

from .more_blackwell import operands


@kernel(target="sm_100a", warps=13)
def softmax_correction(k: Builder, *, blocks: int = 4) -> None:
    """MMA warp, two softmax groups, a correction group: S, P, O in tensor memory."""
    s_full, p_full = k.mbarriers("s_full", 2), k.mbarriers("p_full", 2)
    m_full, m_free = k.mbarriers("m_full", 2), k.mbarriers("m_free", 2)
    o_full, o_ready = k.mbarriers("o_full", 2), k.mbarriers("o_ready", 2)
    maxima = k.shared("maxima", f32, (2, 128))
    memory = TensorMemory(k, 256)
    memory.allocate()
    a, b = operands(
        k, (s_full, 1), (p_full, 128), (m_full, 128), (m_free, 128), (o_full, 1), (o_ready, 128)
    )
    base = memory.address()
    s = [k.tcgen05.tensor(base + 32 * q, f32, (128, 32), name=f"s{q}") for q in range(2)]
    o = [k.tcgen05.tensor(base + 64 + 32 * q, f32, (128, 32), name=f"o{q}") for q in range(2)]
    p = [k.tcgen05.tensor(base + 128 + 32 * q, bf16, (128, 16), name=f"p{q}") for q in range(2)]
    scores, part = (
        k.fragment("scores", f32, (128, 32), "warpgroup"),
        k.fragment("part", bf16, (128, 16), "warpgroup"),
    )
    x, Y = k.var("x", dtype=f32), k.tensor("Y", f32, (2, 128, 32))
    with k.role("mma", 12), k.elected():
        for q in range(2):
            k.tcgen05.mma(s[q], a, b, accumulate=0)
            k.tcgen05.commit(s_full[q])
        with k.loop(blocks) as i:
            for q in range(2):
                k.mbarrier.wait(p_full[q], i & 1)
                with k.if_(i > 0):
                    k.mbarrier.wait(o_ready[q], (i - 1) & 1)
                k.tcgen05.fence_after_thread_sync()
                k.tcgen05.mma(o[q], p[q], b, accumulate=i > 0)
                k.tcgen05.commit(o_full[q])
                with k.if_(i + 1 < blocks):
                    k.tcgen05.mma(s[q], a, b, accumulate=0)
                    k.tcgen05.commit(s_full[q])
    for q in range(2):
        with k.role(f"softmax {q}", range(4 * q, 4 * q + 4)), k.loop(blocks) as i:
            k.mbarrier.wait(s_full[q], i & 1)
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.ld(scores, s[q])
            k.tcgen05.wait_ld()
            k.mbarrier.wait(m_free[q], (i & 1) ^ 1)
            k.mem.store(maxima[q, k.thread_id - 128 * q], 1.0)
            k.mbarrier.arrive(m_full[q])
            k.tile.fill(part, 1.0)
            with k.if_(i > 0):
                k.mbarrier.wait(o_full[q], (i - 1) & 1)
                k.tcgen05.fence_after_thread_sync()
            k.tcgen05.st(p[q], part)
            k.tcgen05.wait_st()
            k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(p_full[q])
    with k.role("correction", range(8, 12)), k.loop(blocks) as i:
        for q in range(2):
            k.mbarrier.wait(m_full[q], i & 1)
            k.mem.load(x, maxima[q, k.thread_id - 256])
            k.mbarrier.arrive(m_free[q])
            k.mbarrier.wait(o_full[q], i & 1)
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.ld(scores, o[q])
            k.tcgen05.wait_ld()
            k.tile.map(scores, "exp2", scores)
            with k.if_(i + 1 < blocks):
                k.tcgen05.st(o[q], scores)
                k.tcgen05.wait_st()
                k.tcgen05.fence_before_thread_sync()
                k.mbarrier.arrive(o_ready[q])
            with k.else_():
                k.tile.store(Y[q], scores)
    memory.free()


@kernel(target="sm_100a", warps=6)
def clc_loop(k: Builder, *, tiles: int = 5, stages: int = 2) -> None:
    """Persistent by launch control: a scheduler, a loader and an epilogue read each answer."""
    k.launch(grid=tiles)
    X, Y = k.tensor("X", f32, (tiles, 128)), k.tensor("Y", f32, (tiles, 128))
    answer, buf = k.shared("answer", u32, (stages, 4), align=16), k.shared("buf", f32, (2, 128))
    ring, pipe = Pipeline(k, stages, name="answer", consumers=3), Pipeline(k, 2, consumers=128)
    tile, more, c, x = (
        k.var("tile", k.cta_x),
        k.var("more", 1),
        k.var("c", 0),
        k.var("x", dtype=f32),
    )
    open_cta(k, ring, pipe)

    with k.role("scheduler", 4), k.elected(), k.while_(more.ne(0)):
        s = ring[c]
        s.acquire()
        s.commit(16)
        k.clc.try_cancel(answer[s.stage], s.full)
        s = ring[c]
        s.wait()
        k.clc.query_is_canceled(more, answer[s.stage])
        k.fence.proxy_async("shared::cta")
        s.release()
        k.assign(c, c + 1)
    with k.role("load", 5), k.elected(), k.while_(more.ne(0)):
        p = pipe[c]
        p.acquire()
        p.commit(512)
        k.bulk.load(buf[p.stage], X[tile], p.full)
        s = ring[c]
        s.wait()
        k.clc.query_is_canceled(more, answer[s.stage])
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(tile, answer[s.stage])
        k.fence.proxy_async("shared::cta")
        s.release()
        k.assign(c, c + 1)
    with k.role("epilogue", range(4)) as group, k.while_(more.ne(0)):
        p = pipe[c]
        p.wait()
        k.mem.load(x, buf[p.stage, k.thread_id])
        k.fence.proxy_async("shared::cta")
        p.release()
        k.mem.store(Y[tile, k.thread_id], x)
        s = ring[c]
        s.wait()
        k.clc.query_is_canceled(more, answer[s.stage])
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(tile, answer[s.stage])
        k.fence.proxy_async("shared::cta")
        group.sync()
        with group.one_thread():
            s.release()
        k.assign(c, c + 1)


@kernel(target="sm_100a", warps=5)
def subtile_releases(k: Builder, *, tiles: int = 4, subs: int = 2) -> None:
    """Two accumulators by turns; the epilogue stores subtiles, and releases after its last load."""
    pipe = Pipeline(k, 2, name="acc", consumers=128)
    memory = TensorMemory(k, 128)
    memory.allocate()
    a, b = operands(k, (pipe.full, 1), (pipe.empty, 128))
    base, acc = memory.address(), k.fragment("acc", f32, (128, 16), "warpgroup")
    staging = k.shared("staging", f32, (2, 128, 16))
    Y = k.tensor("Y", f32, (tiles * subs, 128, 16))
    with k.role("mma", 4), k.elected(), k.loop(tiles) as i:
        s = pipe[i]
        s.acquire()
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(
            k.tcgen05.tensor(base + s.stage * 32, f32, (128, 32), name="d"), a, b, accumulate=0
        )
        k.tcgen05.commit(s.full)
    with k.role("epilogue", range(4)) as group:
        with k.loop(tiles) as i:
            s = pipe[i]
            s.wait()
            k.tcgen05.fence_after_thread_sync()
            for sub in range(subs):
                k.tcgen05.ld(
                    acc, k.tcgen05.tensor(base + s.stage * 32 + 16 * sub, f32, (128, 16), name="e")
                )
                k.tcgen05.wait_ld()
                if sub == subs - 1:
                    k.tcgen05.fence_before_thread_sync()
                    k.mbarrier.arrive(s.empty)
                at = sub % 2
                with group.one_thread():
                    k.bulk.wait_group(1, read=True)
                group.sync()
                k.tile.store(staging[at], acc)
                k.fence.proxy_async("shared::cta")
                group.sync()
                with group.one_thread():
                    k.bulk.store(Y[i * subs + sub], staging[at])
                    k.bulk.commit_group()
        with group.one_thread():
            k.bulk.wait_group(0)
    memory.free()


@kernel(target="sm_100a", warps=6)
def pair_multicast(k: Builder, *, items: int = 4, size: int = 4) -> None:
    """Two pairs in a cluster of four: B goes to both; commits tell all who sent to the stage."""
    stages, half = 2, 16
    k.launch(grid=size, cluster=size)
    A, B = k.tensor("A", bf16, (items * size * 128, 16)), k.tensor("B", bf16, (items * 32, 16))
    a_map, b_map = (
        k.tensor_map(A, (128, 16), swizzle=32),
        k.tensor_map(B, (half // 2, 16), swizzle=32),
    )
    a, b = (
        k.shared("a", bf16, (stages, 128, 16), swizzle=32),
        k.shared("b", bf16, (stages, half, 16), swizzle=32),
    )
    full, empty, done = (
        k.mbarriers("full", stages),
        k.mbarriers("empty", stages),
        k.mbarriers("done"),
    )
    rank = k.cluster_rank
    with k.one_thread():
        for each in range(stages):
            k.mbarrier.init(full[each], 2)
            k.mbarrier.init(empty[each], size // 2)
        k.mbarrier.init(done, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    memory = TensorMemory(k, 32, cta_group=2)
    memory.allocate()
    k.sync_threads()
    d = k.tcgen05.tensor(memory.address(), f32, (128, 32), name="d")
    pair, odd = rank // 2, rank % 2
    lead = rank - odd
    with k.role("load", 5), k.elected():
        with k.loop(items) as i:
            s = i % stages
            k.mbarrier.wait(empty[s], ((i // stages) & 1) ^ 1, scope="cluster")
            where = full[s].at(lead)
            k.mbarrier.arrive_expect_tx(
                where, a_map.box_bytes + 2 * b_map.box_bytes, scope="cluster"
            )
            k.tma.load(a_map, a[s], ((i * size + rank) * 128, 0), where, cta_group=2)
            # a half of this CTA's half of B, which goes to the CTA of its kind in both pairs
            part = b[s, ds(pair * (half // 2), half // 2)]
            mask = (1 << odd) | (1 << (odd + 2))
            k.tma.load(
                b_map,
                part,
                (i * 32 + odd * half + pair * (half // 2), 0),
                where,
                cta_group=2,
                multicast=mask,
            )
        with k.loop(items, items + stages) as i:
            k.mbarrier.wait(empty[i % stages], ((i // stages) & 1) ^ 1, scope="cluster")
    with k.role("mma", 4), k.elected(), k.if_(odd.eq(0)):
        with k.loop(items) as i:
            s = i % stages
            k.mbarrier.wait(full[s], (i // stages) & 1, scope="cluster")
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.mma(d, a[s], b[s], accumulate=i > 0, cta_group=2)
            k.tcgen05.commit(empty[s], multicast=0b1111, cta_group=2)
        k.tcgen05.commit(done, multicast=0b11 << lead, cta_group=2)
    k.mbarrier.wait(done, 0, scope="cluster")
    memory.free()
    k.cluster.sync()
