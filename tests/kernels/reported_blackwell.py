"""Protocols of further reported faults in sm_100a kernels: tensor memory, launch control."""

from __future__ import annotations

from tilesim import Builder, kernel
from tilesim.arith.types import f32, u32
from tilesim.lib.opening import open_cluster
from tilesim.lib.tensor_memory import TensorMemory

from .more_blackwell import COLUMNS, GROUP, ROWS, operands


@kernel(target="sm_100a", warps=5)
def two_uses(k: Builder, *, n: int = 3, fault: str = "") -> None:
    """One accumulator is used twice per turn, and given back after its load each time."""
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    memory = TensorMemory(k, COLUMNS)
    memory.allocate()
    a, b = operands(k, (full, 1), (empty, GROUP))
    d = k.tcgen05.tensor(memory.address(), f32, (ROWS, COLUMNS), name="d")
    acc = k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup")
    with k.role("mma", 4), k.elected(), k.loop(2 * n) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, a, b, accumulate=0)
        k.tcgen05.commit(full)
    with k.role("group", range(4)), k.loop(n):
        for use in range(2):
            early = fault == "second" and use == 1
            k.mbarrier.wait(full, use)
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.ld(acc, d)
            if not early:
                k.tcgen05.wait_ld()
            k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(empty)  # BUG: if the load is in flight
            if early:
                k.tcgen05.wait_ld()
    memory.free()


@kernel(target="sm_100a", warps=8)
def stored_by_others(k: Builder, *, n: int = 2, fault: str = "") -> None:
    """A half of the columns is loaded by one group and overwritten by the other one."""
    memory = TensorMemory(k, 64)
    memory.allocate()
    k.sync_threads()
    base, half = memory.address(), k.warp_id // 4
    s = k.tcgen05.tensor(base + 32 * half, f32, (128, 32), name="s")
    p = k.tcgen05.tensor(base + 32 * (1 - half), f32, (128, 32), name="p")
    x = k.fragment("x", f32, (128, 32), "warpgroup")

    def meet() -> None:
        k.tcgen05.fence_before_thread_sync()
        k.sync_threads()
        k.tcgen05.fence_after_thread_sync()

    k.tile.fill(x, 1.0)
    k.tcgen05.st(s, x)
    k.tcgen05.wait_st()
    meet()
    with k.loop(n):
        k.tcgen05.ld(x, s)
        k.tcgen05.wait_ld()
        if fault != "alias":
            meet()
        k.tcgen05.st(p, x)  # BUG: if the other group still loads
        k.tcgen05.wait_st()
        meet()
    memory.free()


@kernel(target="sm_100a", warps=5)
def shared_columns(k: Builder, *, n: int = 4, fault: str = "") -> None:
    """Two accumulators share columns: each is read before the other one is computed."""
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    memory = TensorMemory(k, COLUMNS)
    memory.allocate()
    a, b = operands(k, (full, 1), (empty, GROUP))
    d = k.tcgen05.tensor(memory.address(), f32, (ROWS, COLUMNS), name="d")
    acc = k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup")
    with k.role("mma", 4), k.elected(), k.loop(n) as i:
        for part in range(2):
            if part or fault != "drain":
                k.mbarrier.wait(empty[1 - part], (i & 1) ^ (1 - part))
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.mma(d, a, b, accumulate=0)  # BUG: if the other one is still read
            k.tcgen05.commit(full[part])
    with k.role("reduce", range(4)), k.loop(n) as i:
        for part in range(2):
            k.mbarrier.wait(full[part], i & 1)
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.ld(acc, d)
            k.tcgen05.wait_ld()
            k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(empty[part])
    memory.free()


@kernel(target="sm_100a", warps=1)
def expected_by_both(k: Builder, *, grid: int = 4, fault: str = "") -> None:
    """An answer of launch control goes to both CTAs of a cluster: each expects its bytes."""
    k.launch(grid=grid, cluster=2)
    answer, more = k.shared("answer", u32, (4,), align=16), k.var("more", 0)
    full, rank = k.mbarriers("full"), k.cluster_rank
    open_cluster(k, (full, 1))
    with k.elected():
        with k.if_(rank.eq(0) if fault == "one" else rank >= 0):
            k.mbarrier.arrive_expect_tx(full, 16)
        with k.if_(rank.eq(0)):
            k.clc.try_cancel(answer, full, multicast=True)  # BUG: if the peer expects nothing
    k.mbarrier.wait(full, 0, scope="cluster")
    k.clc.query_is_canceled(more, answer)
    k.cluster.sync()
