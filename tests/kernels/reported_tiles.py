"""Protocols of further reported faults in sm_100a kernels: tile numbers, accumulators, pairs."""

from __future__ import annotations

from tilesim import Builder, kernel
from tilesim.arith.types import bf16, f32, s32, u32
from tilesim.lib.opening import open_cluster, open_cta
from tilesim.lib.tensor_memory import TensorMemory

from .more_blackwell import COLUMNS, GROUP, ROWS, operands


@kernel(target="sm_100a", warps=6)
def one_number(k: Builder, *, tiles: int = 5, fault: str = "") -> None:
    """The number of the next tile goes through one word, which all readers have to have read."""
    k.launch(grid=tiles)
    Y, answer = k.tensor("Y", f32, (tiles, GROUP)), k.shared("answer", u32, (4,), align=16)
    word, asked = k.shared("word", s32, (1,)), k.mbarriers("asked")
    there, read = k.mbarriers("there"), k.mbarriers("read")
    open_cta(k, (asked, 1), (there, 1), (read, 5))
    tile, more, i = k.var("tile", k.cta_x), k.var("more", 1), k.var("i", 0)
    with k.role("ask", 5), k.elected(), k.while_(more.ne(0)):
        k.mbarrier.arrive_expect_tx(asked, 16)  # BUG: if nothing in this turn waits for readers
        k.clc.try_cancel(answer, asked)
        k.mbarrier.wait(asked, i & 1)
        k.clc.query_is_canceled(more, answer)
        k.assign(tile, -1)
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(tile, answer)
        k.fence.proxy_async("shared::cta")
        if fault != "unasked":
            k.mbarrier.wait(read, (i & 1) ^ 1)
        k.mem.store(word[0], tile)
        k.mbarrier.arrive(there)
        k.assign(i, i + 1)
    for name, warps, early in (("multiply", 4, fault == "early"), ("store", range(4), False)):
        with k.role(name, warps), k.while_(tile >= 0):
            if name == "store":
                k.mem.store(Y[tile, k.thread_id], 1.0)
            k.mbarrier.wait(there, i & 1)
            if not early:
                k.mem.load(tile, word[0])
            k.sync_warp()
            with k.elected():
                k.mbarrier.arrive(read)  # BUG: if it comes before the load
            if early:
                k.mem.load(tile, word[0])
            k.assign(i, i + 1)


@kernel(target="sm_100a", warps=5)
def rescaled(k: Builder, *, n: int = 4, fault: str = "") -> None:
    """A group rescales an accumulator before the next product adds to it."""
    full, ready = k.mbarriers("full"), k.mbarriers("ready")
    memory = TensorMemory(k, COLUMNS)
    memory.allocate()
    a, b = operands(k, (full, 1), (ready, GROUP))
    d = k.tcgen05.tensor(memory.address(), f32, (ROWS, COLUMNS), name="d")
    acc = k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup")
    with k.role("mma", 4), k.elected(), k.loop(n) as i:
        with k.if_(i > 0):
            k.mbarrier.wait(ready, (i - 1) & 1)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, a, b, accumulate=i > 0)
        k.tcgen05.commit(full)
    with k.role("rescale", range(4)), k.loop(n) as i:
        k.mbarrier.wait(full, i & 1)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d)
        k.tcgen05.wait_ld()
        with k.if_(i + 1 < n):
            k.tcgen05.st(d, acc)  # BUG: if nothing waits for it
            if fault != "flying":
                k.tcgen05.wait_st()
            if fault != "fence":
                k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(ready)  # BUG: without a fence
    memory.free()


@kernel(target="sm_100a", warps=1)
def bytes_of_a_pair(k: Builder, *, size: int = 4, fault: str = "") -> None:
    """Both CTAs of a pair load onto a barrier of its first one; other pairs have their own."""
    k.launch(grid=size, cluster=size)
    A = k.tensor("A", bf16, (size * ROWS, 64))
    box, a = k.tensor_map(A, (ROWS, 64), swizzle=128), k.shared("a", bf16, (ROWS, 64), swizzle=128)
    full, rank = k.mbarriers("full"), k.cluster_rank
    open_cluster(k, (full, 1))
    lead = rank // 2 * 2
    with k.elected():
        with k.if_(rank.eq(lead)):
            times = size if fault == "cluster" else 2
            k.mbarrier.arrive_expect_tx(full, times * box.box_bytes)  # BUG: as if for all CTAs
        k.tma.load(box, a, (rank * ROWS, 0), full[0].at(lead), cta_group=2)
        with k.if_(rank.eq(lead)):
            k.mbarrier.wait(full, 0, scope="cluster")
    k.cluster.sync()


@kernel(target="sm_100a", warps=3)
def answers_for_both(k: Builder, *, tiles: int = 4, fault: str = "") -> None:
    """The first CTA of a pair asks for both, whose warps tell it when they have read the answer."""
    k.launch(grid=2 * tiles, cluster=2)
    Y, answer = k.tensor("Y", f32, (2 * tiles, 32)), k.shared("answer", u32, (4,), align=16)
    full, empty, rank = k.mbarriers("full"), k.mbarriers("empty"), k.cluster_rank
    open_cluster(k, (full, 1), (empty, 2 if fault == "own" else 4))  # BUG: if only those of one CTA
    tile, more, i = k.var("tile", k.cta_x), k.var("more", 1), k.var("i", 0)
    with k.role("ask", 2), k.elected(), k.while_(more.ne(0)):
        with k.if_(rank.eq(0)):
            k.mbarrier.wait(empty, (i & 1) ^ 1, scope="cluster")
            for cta in range(2):
                k.mbarrier.arrive_expect_tx(full[0].at(cta), 16, scope="cluster")
            k.clc.try_cancel(answer, full, multicast=True)
        k.mbarrier.wait(full, i & 1, scope="cluster")
        k.clc.query_is_canceled(more, answer)
        k.fence.proxy_async()
        k.mbarrier.arrive(empty[0].at(0), scope="cluster")
        k.assign(i, i + 1)
    with k.role("work", 0), k.while_(more.ne(0)):
        k.mem.store(Y[tile, k.lane_id], 1.0)
        k.mbarrier.wait(full, i & 1, scope="cluster")
        k.clc.query_is_canceled(more, answer)
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(tile, answer)
            k.assign(tile, tile + rank)
        k.fence.proxy_async()
        k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(empty[0].at(0), scope="cluster")
        k.assign(i, i + 1)
    k.cluster.sync()
