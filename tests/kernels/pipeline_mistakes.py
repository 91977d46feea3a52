"""Pipelines like those of published kernels, with one mistake each.

Attention with two warpgroups that take turns, a persistent GEMM on a cluster of two, a persistent
GEMM with two accumulators, copies by ``cp.async`` in a ring.
"""

from __future__ import annotations

import tilesim as ts
from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.kernels.hopper.operands import multiply_tile
from tilesim.lib import tensor_memory
from tilesim.lib.opening import open_cluster

BOX = (64, 64)


@ts.kernel(warps=12)
def attention(k: Builder, *, blocks: int = 4, fault: str = "") -> None:
    """K and V in rings of their own; the two warpgroups take turns at the tensor cores."""
    K, V = (k.tensor(n, bf16, (64 * blocks, 64)) for n in "KV")
    Q, out = k.tensor("Q", bf16, (128, 64)), k.tensor("O", f32, (128, 64))
    k_map, v_map = (k.tensor_map(t, BOX, swizzle=128) for t in (K, V))
    q_map = k.tensor_map(Q, (128, 64), swizzle=128)
    sq = k.shared("sq", bf16, (128, 64), swizzle=128)
    sk, sv = (k.shared(n, bf16, (2, 64, 64), swizzle=128) for n in ("sk", "sv"))
    q_full = k.mbarriers("q_full")
    k_full, k_empty, v_full, v_empty = (
        k.mbarriers(n, 2) for n in ("k_full", "k_empty", "v_full", "v_empty")
    )
    acc, scores = (k.fragment(n, f32, (64, 64), "warpgroup") for n in ("acc", "scores"))
    with k.one_thread():
        k.mbarrier.init(q_full, 1)
        for stage in range(2):
            k.mbarrier.init(k_full[stage], 1)
            k.mbarrier.init(v_full[stage], 1)
            k.mbarrier.init(k_empty[stage], 2)
            k.mbarrier.init(v_empty[stage], 1 if fault == "count" else 2)  # @count
    k.sync_threads()
    with k.role("producer", 0), k.elected():
        k.mbarrier.arrive_expect_tx(q_full, q_map.box_bytes)
        k.tma.load(q_map, sq, (0, 0), q_full)
        with k.loop(blocks, name="b") as i:
            s, parity = i % 2, (i // 2) & 1
            k.mbarrier.wait(k_empty[s], parity ^ 1)
            k.mbarrier.arrive_expect_tx(k_full[s], k_map.box_bytes)
            k.tma.load(k_map, sk[s], (i * 64, 0), k_full[s])
            if fault != "no acquire":
                k.mbarrier.wait(v_empty[s], parity ^ 1)
            k.mbarrier.arrive_expect_tx(v_full[s], v_map.box_bytes)  # @no acquire
            target = k_full[s] if fault == "other array" else v_full[s]
            k.tma.load(v_map, sv[s], (i * 64, 0), target)  # @other array
    for group in range(2):
        first = 4 + 4 * group
        with k.role(f"group {group}", range(first, first + 4)):
            k.mbarrier.wait(q_full, 0)
            k.tile.fill(acc, 0.0)
            if group == 1:
                k.bar.arrive(1, 256)
            with k.loop(blocks, name="b") as i:
                s, parity = i % 2, (i // 2) & 1
                rows = sq[64 * group : 64 * group + 64]
                k.bar.sync(1 + group, 256)
                k.mbarrier.wait(k_full[s], parity)
                k.tile.fill(scores, 0.0)
                multiply_tile(k, scores, rows, sk[s])
                if fault == "early":
                    with k.one_thread(first):
                        k.mbarrier.arrive(k_empty[s])  # @early
                k.wgmma.wait_group(0)
                k.bar.arrive(1 + group if fault == "own id" else 2 - group, 256)  # @own id
                if fault != "early":
                    k.bar.sync(3 + group, 128)
                    with k.one_thread(first):
                        k.mbarrier.arrive(k_empty[s])
                k.mbarrier.wait(v_full[s], parity)
                multiply_tile(k, acc, rows, sv[s])
                k.wgmma.wait_group(0)
                k.bar.sync(3 + group, 128)
                with k.one_thread(first):
                    k.mbarrier.arrive(v_empty[s])
            k.tile.store(out[64 * group : 64 * group + 64], acc)


@ts.kernel(warps=5)
def multicast(k: Builder, *, tiles: int = 2, steps: int = 3, fault: str = "") -> None:
    """Each CTA of a pair copies half of B for both; results leave through one buffer."""
    k.launch(grid=2, cluster=2)
    A, B = k.tensor("A", bf16, (2 * tiles * 64, steps * 64)), k.tensor("B", bf16, (64, steps * 64))
    C = k.tensor("C", f32, (2 * tiles * 64, 64))
    a_map, b_map = k.tensor_map(A, BOX, swizzle=128), k.tensor_map(B, (32, 64), swizzle=128)
    c_map = k.tensor_map(C, BOX)
    a, b = (k.shared(n, bf16, (2, 64, 64), swizzle=128) for n in "ab")
    c = k.shared("c", f32, (64, 64))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    acc, rank = k.fragment("acc", f32, (64, 64), "warpgroup"), k.cluster_rank
    open_cluster(k, (full, 1), (empty, 1 if fault == "one of two" else 2))  # @one of two
    with k.role("copy", 4), k.elected(), k.loop(tiles, name="t") as t, k.loop(steps) as step:
        n = t * steps + step
        s, half = n % 2, ts.ds(rank * 32, 32)
        k.mbarrier.wait(empty[s], ((n // 2) & 1) ^ 1, scope="cluster")
        k.mbarrier.arrive_expect_tx(full[s], a_map.box_bytes + 2 * b_map.box_bytes)
        k.tma.load(a_map, a[s], ((2 * t + rank) * 64, step * 64), full[s])
        mask = None if fault == "no mask" else 0b11
        k.tma.load(b_map, b[s, half], (rank * 32, step * 64), full[s], multicast=mask)  # @no mask
    with k.role("math", range(4)):
        with k.loop(tiles, name="t") as t:
            k.tile.fill(acc, 0.0)
            with k.loop(steps) as step:
                n = t * steps + step
                s = n % 2
                k.mbarrier.wait(full[s], (n // 2) & 1, scope="cluster")
                multiply_tile(k, acc, a[s], b[s])
                k.wgmma.wait_group(0)
                k.bar.sync(2, 128)
                with k.one_thread():
                    k.mbarrier.arrive(empty[s].at(rank), scope="cluster")
                    other = rank if fault == "own rank" else 1 - rank
                    k.mbarrier.arrive(empty[s].at(other), scope="cluster")  # @own rank
            with k.one_thread():
                k.bulk.wait_group(0, read=True)
            if fault != "no barrier":
                k.bar.sync(1, 128)
            k.tile.store(c, acc)  # @no barrier
            k.fence.proxy_async("shared::cta")
            k.bar.sync(1, 128)
            with k.one_thread():
                k.tma.store(c_map, c, ((2 * t + rank) * 64, 0))
                k.bulk.commit_group()
        with k.one_thread():
            k.bulk.wait_group(0)
    k.cluster.sync()


@ts.kernel(target="sm_100a", warps=6)
def accumulators(k: Builder, *, tiles: int = 4, steps: int = 2, fault: str = "") -> None:
    """A load warp with slot and parity in registers, an MMA warp, an epilogue."""
    A, C = k.tensor("A", bf16, (tiles * 128, steps * 64)), k.tensor("C", f32, (tiles * 128, 64))
    B = k.tensor("B", bf16, (64, steps * 64))
    a_map, b_map = (k.tensor_map(t, (n, 64), swizzle=128) for t, n in ((A, 128), (B, 64)))
    a = k.shared("a", bf16, (3, 128, 64), swizzle=128)
    b = k.shared("b", bf16, (3, 64, 64), swizzle=128)
    full, empty = k.mbarriers("full", 3), k.mbarriers("empty", 3)
    ready, free = k.mbarriers("ready", 2), k.mbarriers("free", 2)
    memory, acc = tensor_memory.TensorMemory(k, 128), k.fragment("acc", f32, (128, 64), "warpgroup")
    memory.allocate()
    with k.one_thread():
        for array, count in ((full, 1), (empty, 1), (ready, 1), (free, 4)):
            for s in range(array.count):
                k.mbarrier.init(array[s], count)
    k.sync_threads()
    address, slot, parity = memory.address(), k.var("slot", 0), k.var("parity", 0)
    with k.role("load", 4), k.elected(), k.loop(tiles, name="t") as t, k.loop(steps) as step:
        k.mbarrier.wait(empty[slot], parity ^ 1)
        k.mbarrier.arrive_expect_tx(full[slot], a_map.box_bytes + b_map.box_bytes)
        k.tma.load(a_map, a[slot], (t * 128, step * 64), full[slot])
        k.tma.load(b_map, b[slot], (0, step * 64), full[slot])
        if fault != "never flips":
            k.assign(parity, parity ^ (1 if fault == "flips" else slot.eq(2)))  # @flips
        k.assign(slot, (slot + 1) % 3)  # @never flips
    with k.role("mma", 5), k.elected(), k.loop(tiles, name="t") as t:
        d = k.tcgen05.tensor(address + (t % 2) * 64, f32, (128, 64), name="d")
        k.mbarrier.wait(free[t % 2], ((t // 2) & 1) ^ 1)
        k.tcgen05.fence_after_thread_sync()
        with k.loop(steps) as step:
            n = t * steps + step
            k.mbarrier.wait(full[n % 3], (n // 3) & 1)
            k.tcgen05.fence_after_thread_sync()
            tensor_memory.multiply_tile(k, d, a[n % 3], b[n % 3], first=step.eq(0))
            k.tcgen05.commit(empty[n % 3])
        k.tcgen05.commit(ready[t % 2])
    last = tiles - (fault == "trips")
    with k.role("epilogue", range(4)), k.loop(last, name="t") as t:  # @trips
        d = k.tcgen05.tensor(address + (t % 2) * 64, f32, (128, 64), name="d")
        k.mbarrier.wait(ready[t % 2], (t // 2) & 1)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d)
        k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        with k.elected():
            k.mbarrier.arrive(free[t % 2])
        k.tile.store(C[ts.ds(t * 128, 128)], acc)
    memory.free()


@ts.kernel(warps=4)
def groups(k: Builder, *, rows: int = 6, fault: str = "") -> None:
    """Copies two rows ahead; a group is committed in every turn."""
    X, Y = k.tensor("X", f32, (rows, 128)), k.tensor("Y", f32, (rows, 128))
    ring, x, own = k.shared("ring", f32, (3, 128)), k.var("x", dtype=f32), ts.ds(k.warp_id * 32, 32)
    for row in range(2):
        k.cp_async.copy(ring[row, own], X[row, own], size=4)
        k.cp_async.commit_group()
    with k.loop(rows, name="i") as i:
        k.cp_async.wait_group(1)
        k.sync_threads()
        k.mem.load(x, ring[i % 3, (k.thread_id + 32) % 128])
        with k.if_(i + 2 < rows):
            k.cp_async.copy(ring[(i + 2) % 3, own], X[i + 2, own], size=4)
            if fault == "seldom":
                k.cp_async.commit_group()  # @seldom
        if fault != "seldom":
            k.cp_async.commit_group()
        k.mem.store(Y[i, k.thread_id], x)
