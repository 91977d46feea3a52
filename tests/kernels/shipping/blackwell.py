"""Blackwell: accumulator pipelines, CTA pairs, dQ by bulk reductions, launch control."""

from __future__ import annotations

from tilesim import Builder, ds, kernel
from tilesim.arith.types import bf16, f32, s32, u32
from tilesim.ir.declarations import Mbarriers
from tilesim.ir.expr import Expr
from tilesim.lib.opening import open_cluster
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.tensor_memory import TensorMemory, multiply_tile

ROW = 128


@kernel(target="sm_100a", warps=6)
def accumulators(
    k: Builder,
    *,
    stages: int = 2,
    depth: int = 3,
    tiles: int = 3,
    slots: int = 2,
    fault: str = "",
) -> None:
    """CUTLASS PipelineUmmaAsync: the MMA warp drains its accumulators, then frees them itself."""
    A, B = k.tensor("A", bf16, (ROW * tiles, 64 * depth)), k.tensor("B", bf16, (64, 64 * depth))
    a_map, b_map = (k.tensor_map(t, (r, 64), swizzle=128) for t, r in ((A, ROW), (B, 64)))
    C = k.tensor("C", f32, (ROW * tiles, 64))
    sa = k.shared("sa", bf16, (stages, ROW, 64), swizzle=128)
    sb = k.shared("sb", bf16, (stages, 64, 64), swizzle=128)
    loads, sums = Pipeline(k, stages), Pipeline(k, slots, name="sum", consumers=4)
    memory, part = TensorMemory(k, 64 * slots, warp=4), k.fragment("p", f32, (ROW, 64), "warpgroup")
    memory.allocate()
    with k.one_thread(5):
        loads.init()
        sums.init()
    k.sync_threads()
    address = memory.address()
    with k.role("load", 5), k.elected():
        with k.loop(tiles * depth) as i:
            slot = loads[i]
            slot.acquire()
            slot.commit(a_map.box_bytes + b_map.box_bytes)
            k.tma.load(a_map, sa[slot.stage], (i // depth * ROW, i % depth * 64), slot.full)
            k.tma.load(b_map, sb[slot.stage], (0, i % depth * 64), slot.full)
        loads.drain(tiles * depth)
    with k.role("mma", 4):
        with k.elected():
            with k.loop(tiles, name="t") as t:
                out = sums[t]
                if fault != "no acquire":
                    out.acquire()
                k.tcgen05.fence_after_thread_sync()
                d = k.tcgen05.tensor(address + out.stage * 64, f32, (ROW, 64))
                with k.loop(depth, name="j") as j:
                    slot = loads[t * depth + j]
                    slot.wait()
                    k.tcgen05.fence_after_thread_sync()
                    multiply_tile(k, d, sa[slot.stage], sb[slot.stage], first=j.eq(0))
                    if fault == "arrive":
                        slot.release()
                    else:
                        k.tcgen05.commit(slot.empty)
                k.tcgen05.commit(out.full)
            if fault != "tail":
                with k.loop(tiles, tiles + slots, name="t") as t:
                    sums[t].acquire()
        k.sync_warp()
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 64 * slots)  # BUG: if the epilogue still reads
    with k.role("epilogue", range(4)), k.loop(tiles, name="t") as t:
        out = sums[t]
        out.wait()
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(part, k.tcgen05.tensor(address + out.stage * 64, f32, (ROW, 64)))
        if fault != "wait::ld":
            k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        k.sync_warp()
        with k.elected():
            out.release()
        k.tile.store(C[ds(t * ROW, ROW)], part)


def _await_empty(k: Builder, empty: Mbarriers, i: Expr) -> None:
    stages = empty.count
    k.mbarrier.wait(empty[i % stages], ((i // stages) & 1) ^ 1, scope="cluster")


@kernel(target="sm_100a", warps=6)
def pair(k: Builder, *, stages: int = 2, depth: int = 3, tiles: int = 2, fault: str = "") -> None:
    """CUTLASS 2-SM GEMM: all bytes on the leader's barrier, commits to both, producer's tail."""
    k.launch(grid=2, cluster=2)
    A = k.tensor("A", bf16, (2 * ROW * tiles, 64 * depth))
    B, C = k.tensor("B", bf16, (ROW, 64 * depth)), k.tensor("C", f32, (2 * ROW * tiles, ROW))
    a_map, b_map = (k.tensor_map(t, (r, 64), swizzle=128) for t, r in ((A, ROW), (B, 64)))
    sa = k.shared("sa", bf16, (stages, ROW, 64), swizzle=128)
    sb = k.shared("sb", bf16, (stages, 64, 64), swizzle=128)
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    done, free = k.mbarriers("done"), k.mbarriers("free")
    memory = TensorMemory(k, ROW, warp=4, cta_group=2)
    part, rank = k.fragment("part", f32, (ROW, ROW), "warpgroup"), k.cluster_rank
    open_cluster(k, (full, 1), (empty, 1), (done, 1), (free, 8))
    memory.allocate()
    k.cluster.sync()
    d = k.tcgen05.tensor(memory.address(), f32, (ROW, ROW))
    each = a_map.box_bytes + b_map.box_bytes
    with k.role("load", 5), k.elected():
        with k.loop(tiles * depth) as i:
            stage, column = i % stages, i % depth * 64
            _await_empty(k, empty, i)
            with k.if_(rank.eq(0)):
                nbytes = each if fault == "bytes" else 2 * each
                k.mbarrier.arrive_expect_tx(full[stage], nbytes, scope="cluster")
            row = (i // depth * 2 + rank) * ROW
            k.tma.load(a_map, sa[stage], (row, column), full[stage].at(0), cta_group=2)
            k.tma.load(b_map, sb[stage], (rank * 64, column), full[stage].at(0), cta_group=2)
        if fault != "tail":
            with k.loop(tiles * depth, tiles * depth + stages) as i:
                _await_empty(k, empty, i)
    with k.role("mma", 4), k.elected(), k.if_(rank.eq(0)), k.loop(tiles, name="t") as t:
        k.mbarrier.wait(free, (t & 1) ^ 1, scope="cluster")
        k.tcgen05.fence_after_thread_sync()
        with k.loop(depth, name="j") as j:
            item = t * depth + j
            stage = item % stages
            k.mbarrier.wait(full[stage], (item // stages) & 1, scope="cluster")
            k.tcgen05.fence_after_thread_sync()
            multiply_tile(k, d, sa[stage], sb[stage], first=j.eq(0), cta_group=2)
            mask = 0b01 if fault == "mask" else 0b11
            k.tcgen05.commit(empty[stage], multicast=mask, cta_group=2)  # BUG: if CTA 1 is gone
        k.tcgen05.commit(done, multicast=0b11, cta_group=2)
    with k.role("epilogue", range(4)), k.loop(tiles, name="t") as t:
        k.mbarrier.wait(done, t & 1, scope="cluster")
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(part, d)
        k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(free[0].at(rank if fault == "own" else 0), scope="cluster")
        k.tile.store(C[ds((t * 2 + rank) * ROW, ROW)], part)
    memory.free()


@kernel(target="sm_100a", warps=9)
def dq(k: Builder, *, n: int = 4, stages: int = 2, fault: str = "") -> None:
    """FlashAttention-4 backward: dS through shared memory, dQ added to by bulk reductions."""
    K, dQ = k.tensor("K", bf16, (64, 64)), k.tensor("dQ", f32, (n * ROW, 64))
    k_map, sk = k.tensor_map(K, (64, 64), swizzle=128), k.shared("sk", bf16, (64, 64), swizzle=128)
    ds_tile = k.shared("ds", bf16, (ROW, 64), swizzle=128)
    staging = k.shared("staging", f32, (stages, ROW, 64))
    loaded = k.mbarriers("loaded")
    scores = Pipeline(k, 1, name="ds", producers=ROW)
    sums = Pipeline(k, 1, name="dq", consumers=ROW)
    memory, part = TensorMemory(k, 64, warp=8), k.fragment("part", f32, (ROW, 64), "warpgroup")
    values = k.fragment("values", bf16, (32, 64))
    memory.allocate()
    with k.one_thread(8):
        k.mbarrier.init(loaded, 1)
        scores.init()
        sums.init()
    k.sync_threads()
    d = k.tcgen05.tensor(memory.address(), f32, (ROW, 64))
    with k.role("compute", range(4, 8)):
        with k.loop(n) as i:
            slot = scores[i]
            slot.acquire()
            k.tile.fill(values, 1.0)
            k.tile.store(ds_tile[ds((k.warp_id - 4) * 32, 32)], values)
            if fault != "fence":
                k.fence.proxy_async("shared::cta")
            slot.commit()
        scores.drain(n)
    with k.role("mma", 8), k.elected():
        k.mbarrier.arrive_expect_tx(loaded, k_map.box_bytes)
        k.tma.load(k_map, sk, (0, 0), loaded)
        k.mbarrier.wait(loaded, 0)
        with k.loop(n) as i:
            slot, out = scores[i], sums[i]
            slot.wait()
            if fault != "no acquire":
                out.acquire()
            k.tcgen05.fence_after_thread_sync()
            for c in range(0, 64, 16):
                at = slice(c, c + 16)
                k.tcgen05.mma(d, ds_tile[:, at], sk[at], b_trans=True, accumulate=int(c > 0))
            k.tcgen05.commit(slot.empty)
            k.tcgen05.commit(out.full)
    with k.role("reduce", range(4)):
        with k.loop(n) as i:
            out = sums[i]
            out.wait()
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.ld(part, d)
            k.tcgen05.wait_ld()
            k.tcgen05.fence_before_thread_sync()
            out.release()
            with k.one_thread():
                k.bulk.wait_group(stages if fault == "pending" else stages - 1, read=True)
            k.bar.sync(1, ROW, aligned=False)
            k.tile.store(staging[i % stages], part)  # BUG: if a reduction still reads it
            k.fence.proxy_async("shared::cta")
            if fault != "barrier":
                k.bar.sync(1, ROW, aligned=False)
            with k.one_thread():
                k.bulk.reduce(dQ[ds(i * ROW, ROW)], staging[i % stages])
                k.bulk.commit_group()
        with k.one_thread():
            k.bulk.wait_group(0, read=True)
    memory.free()


@kernel(target="sm_100a", warps=4)
def answers(k: Builder, *, tiles: int = 4, stages: int = 2, size: int = 2, fault: str = "") -> None:
    """CUTLASS PipelineCLCFetchAsync: one CTA asks for the cluster, all CTAs read the answers."""
    k.launch(grid=tiles * size, cluster=size)
    marks, response = k.tensor("marks", s32, (tiles * size, 3)), k.shared("r", u32, (stages, 4))
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    open_cluster(k, (full, 1), (empty, 4 * size))
    x, more, count = k.var("x", k.cta_x), k.var("more", 1), k.var("count", 0)
    with k.while_(more.ne(0)):
        stage = count % stages
        with k.role("scheduler", 3), k.elected(), k.if_(k.cluster_rank.eq(0)):
            _await_empty(k, empty, count)
            for peer in range(size):
                k.mbarrier.arrive_expect_tx(full[stage].at(peer), 16, scope="cluster")
            k.clc.try_cancel(response[stage], full[stage], multicast=True)
        with k.role("work", range(3)), k.elected():
            k.mem.store(marks[x, k.warp_id], x + 1)
        k.mbarrier.wait(full[stage], (count // stages) & 1, scope="cluster")
        k.clc.query_is_canceled(more, response[stage])
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(x, response[stage])
            k.assign(x, x + k.cluster_rank)
        k.fence.proxy_async("shared::cta")
        k.sync_warp()
        with k.elected():
            peer_empty = empty[stage].at(k.cluster_rank if fault == "own" else 0)
            k.mbarrier.arrive(peer_empty, scope="cluster")  # BUG: if CTA 0 is gone
        k.assign(count, count + 1)
    if fault != "exit":
        k.cluster.sync()
