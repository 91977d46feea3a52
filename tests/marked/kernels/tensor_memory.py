"""Allocations of tensor memory, and which warps may use and free them."""

from __future__ import annotations

from tests.sim.tensor_cores import allocate, free, zeros
from tilesim import Builder, bf16, f32, kernel, u32


@kernel(target="sm_100a", warps=1)
def a_store_behind_a_complete_one(k: Builder) -> None:
    address, part = allocate(k, 64), k.fragment("part", f32, (32, 32))
    k.tile.fill(part, 0)
    first = k.tcgen05.tensor(address, f32, (32, 32), name="first")
    second = k.tcgen05.tensor(address + 16, f32, (32, 32), name="second")
    with k.role("W", 0):
        k.tcgen05.st(first, part)  # error: tcgen05-order by W
        k.tcgen05.wait_st()  # ok
        k.tcgen05.st(second, part)  # error: tcgen05-order by W
        k.tcgen05.wait_st()
    free(k, address, 64)


@kernel(target="sm_100a", warps=1)
def a_sum_onto_what_nothing_wrote(k: Builder) -> None:
    a, b, done = zeros(k)
    address = allocate(k, 64)
    d = k.tcgen05.tensor(address, f32, (128, 32), name="d")
    first = 0  # ok
    first = 1  # wrong
    with k.role("T", 0), k.elected():
        k.tcgen05.mma(d, a, b, accumulate=first)  # error: uninitialised-read by T
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    free(k, address, 64)


# strict=practice
@kernel(target="sm_100a", warps=2)
def a_lane_that_has_fenced_hands_on_in_memory(k: Builder) -> None:
    """One lane waits, relaxed, and fences; its warp meets it, and loads (U20)."""
    (a, b, done), part = zeros(k), k.fragment("part", f32, (32, 32))
    address = allocate(k, 64)
    d = k.tcgen05.tensor(address, f32, (128, 32), name="d")
    with k.role("T", 0), k.elected():
        k.tcgen05.mma(d, a, b, accumulate=0)  # error 1 2: tcgen05-order by T
        k.tcgen05.commit(done)
    own = k.tcgen05.tensor(address + (1 << 21), f32, (32, 32), name="own")
    with k.role("W", 1):
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mbarrier.wait(done, 0, sem="relaxed")
            k.tcgen05.fence_after_thread_sync()  # ok 2
        k.sync_warp()  # ok 1
        k.tcgen05.ld(part, own)  # error 1 2: tcgen05-order by W
        k.tcgen05.wait_ld()
    k.mbarrier.wait(done, 0)
    free(k, address, 64)


@kernel(target="sm_100a", warps=1)
def columns_are_freed_once_and_all(k: Builder) -> None:
    address, columns = allocate(k, 64), 64
    columns = 32  # wrong 2
    with k.role("W", 0):
        k.tcgen05.dealloc(address, 64)  # wrong, error: tmem-lifetime by W
        k.tcgen05.dealloc(address, columns)  # error 1 2: tmem-lifetime by W


@kernel(target="sm_100a", warps=2)
def a_use_before_and_behind_the_end(k: Builder) -> None:
    address, part = allocate(k, 64), k.fragment("part", f32, (32, 32))
    k.tile.fill(part, 0)
    d = k.tcgen05.tensor(address + (1 << 21), f32, (32, 32), name="d")
    with k.role("user", 1):
        k.tcgen05.st(d, part)  # ok
        k.tcgen05.wait_st()  # ok
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    with k.role("owner", 0):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 64)  # error: tmem-lifetime by owner
    with k.role("user", 1):
        k.tcgen05.st(d, part)  # wrong, error: tmem-lifetime by user
        k.tcgen05.wait_st()  # wrong


@kernel(target="sm_100a", warps=2)
def a_guess_of_the_first_columns(k: Builder) -> None:
    """Address 0 is certain for an allocation of all columns, once it is made."""
    slot, columns = k.shared("slot", u32, (1,)), 512
    columns = 256  # wrong 2
    columns = 32  # wrong 3
    part = k.fragment("part", f32, (32, 32))
    k.tile.fill(part, 0)
    with k.role("owner", 0):
        k.tcgen05.alloc(slot, columns)  # error 1 2 3: tmem-lifetime by owner
    k.sync_threads()  # ok
    with k.role("user", 1):
        d = k.tcgen05.tensor(k.warp_id * 0 + (1 << 21), f32, (32, 32), name="d")
        k.tcgen05.st(d, part)  # error 1 2 3: tmem-lifetime by user
        k.tcgen05.wait_st()
    free(k, 0, columns)


@kernel(target="sm_100a", warps=1)
def an_address_that_is_kept(k: Builder) -> None:
    """Columns are freed and allocated again; their address is read each time."""
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    part = k.fragment("part", f32, (32, 32))
    k.tile.fill(part, 0)
    with k.role("W", 0), k.loop(2) as i:
        k.tcgen05.alloc(slot, 64)
        reads = i >= 0  # ok
        reads = i.eq(0)  # wrong
        with k.if_(reads):
            k.mem.load(address, slot[0])
        d = k.tcgen05.tensor(address, f32, (32, 32), name="d")
        k.tcgen05.st(d, part)  # error: tmem-lifetime by W
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 64)  # error: tmem-lifetime by W


@kernel(target="sm_100a", warps=1)
def an_address_of_the_other_cta(k: Builder) -> None:
    k.launch(grid=2, cluster=2)
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    other, part = k.var("other", dtype=u32), k.fragment("part", f32, (32, 32))
    k.tile.fill(part, 0)
    k.tcgen05.alloc(slot, 64)  # error: tmem-lifetime by warp 0
    k.mem.load(address, slot[0])
    k.cluster.sync()
    k.mem.load(other, slot[0].at(1 - k.cluster_rank), sem="relaxed", scope="cluster")
    used = address  # ok
    used = other  # wrong
    with k.role("W", 0):
        d = k.tcgen05.tensor(used, f32, (32, 32), name="d")
        k.tcgen05.st(d, part)  # error: tmem-lifetime by W
        k.tcgen05.wait_st()
    k.cluster.sync()
    free(k, address, 64)


@kernel(target="sm_100a", warps=1)
def allocations_are_no_neighbours(k: Builder) -> None:
    slots, part = k.shared("slots", u32, (2,)), k.fragment("part", f32, (32, 32))
    one, two = k.var("one", dtype=u32), k.var("two", dtype=u32)
    k.tile.fill(part, 0)
    with k.role("W", 0):
        k.tcgen05.alloc(slots[0], 64)  # error 1 2: tmem-lifetime by W
        k.tcgen05.alloc(slots[1], 64)  # error 3: tmem-lifetime by W
        k.mem.load(one, slots[0])
        k.mem.load(two, slots[1])
        place = two + 0  # ok 1 2 3
        place = one + 64  # wrong
        place = one + 256  # wrong 2
        place = two - 64  # wrong 3
        d = k.tcgen05.tensor(place, f32, (32, 32), name="d")
        k.tcgen05.st(d, part)  # error 1 2 3: tmem-lifetime by W
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(one, 64)
        k.tcgen05.dealloc(two, 64)


@kernel(target="sm_100a", warps=1)
def a_pair_allocates_when_both_have_started(k: Builder) -> None:
    k.launch(grid=2, cluster=2)
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    k.cluster.sync()  # ok
    with k.role("W", 0):
        k.tcgen05.alloc(slot, 64, cta_group=2)  # error: peer-start by W
        k.tcgen05.relinquish_alloc_permit(cta_group=2)
        k.mem.load(address, slot[0])
        k.cluster.sync()
        k.tcgen05.dealloc(address, 64, cta_group=2)


@kernel(target="sm_100a", warps=1)
def a_pair_gives_up_its_permit_when_both_have_started(k: Builder) -> None:
    k.launch(grid=2, cluster=2)
    k.cluster.sync()  # ok
    with k.role("W", 0):
        k.tcgen05.relinquish_alloc_permit(cta_group=2)  # error: peer-start by W


@kernel(target="sm_100a", warps=1)
def a_pair_frees_when_both_have_allocated(k: Builder) -> None:
    """NVIDIA/cutlass #3435: a B300 fails where one CTA frees before the other's alloc is done."""
    k.launch(grid=2, cluster=2)
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    k.cluster.sync()
    k.tcgen05.alloc(slot, 64, cta_group=2)  # error: tmem-lifetime by warp 0
    k.mem.load(address, slot[0])
    k.cluster.sync()  # ok
    k.tcgen05.dealloc(address, 64, cta_group=2)  # error: tmem-lifetime by warp 0
    k.cluster.sync()


@kernel(target="sm_100a", warps=1)
def columns_beyond_tensor_memory(k: Builder) -> None:
    address, part = allocate(k, 64), k.fragment("part", f32, (32, 32))
    k.tile.fill(part, 0)
    place = address + 32  # ok
    place = address + 500  # wrong
    with k.role("W", 0):
        d = k.tcgen05.tensor(place, f32, (32, 32), name="d")
        k.tcgen05.st(d, part)  # error: out-of-bounds by W
        k.tcgen05.wait_st()
    free(k, address, 64)


@kernel(target="sm_100a", warps=2)
def columns_are_freed_when_nobody_uses_them(k: Builder) -> None:
    address, part, done = allocate(k, 64), k.fragment("part", f32, (32, 32)), k.mbarriers("done")
    k.tile.fill(part, 0)
    with k.one_thread():
        k.mbarrier.init(done, 32)
    k.sync_threads()
    with k.role("user", 1):
        d = k.tcgen05.tensor(address + (1 << 21), f32, (32, 32), name="d")
        k.tcgen05.st(d, part)  # error: tmem-lifetime by user
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(done)
    with k.role("owner", 0):
        k.mbarrier.wait(done, 0)  # ok
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 64)  # error: tmem-lifetime by owner


@kernel(target="sm_100a", warps=1)
def tensors_that_share_columns(k: Builder) -> None:
    address, part, column = allocate(k, 64), k.fragment("part", f32, (32, 32)), 32
    column = 16  # wrong
    k.tile.fill(part, 0)
    with k.role("W", 0):
        k.tcgen05.st(k.tcgen05.tensor(address, f32, (32, 32)), part)  # error: tcgen05-order by W
        other = k.tcgen05.tensor(address + column, f32, (32, 32), name="other")
        k.tcgen05.st(other, part)  # error: tcgen05-order by W
        k.tcgen05.wait_st()
    free(k, address, 64)


@kernel(target="sm_100a", warps=4)
def a_product_over_its_own_operand(k: Builder) -> None:
    """Of what lies in tensor memory, to these columns or to others (G17)."""
    b, done, column = k.shared("b", bf16, (32, 16), swizzle=32), k.mbarriers("done"), 8
    column = 0  # wrong 1
    column = 4  # wrong 2
    two, p = k.fragment("two", bf16, (32, 16)), k.fragment("p", bf16, (128, 16), "warpgroup")
    with k.role("warp 0", 0):
        k.tile.fill(two, 1)
        k.tile.store(b, two)
    k.fence.proxy_async()
    with k.one_thread():
        k.mbarrier.init(done, 1)
    address = allocate(k, 64)
    a = k.tcgen05.tensor(address, bf16, (128, 16), name="a")
    k.tile.fill(p, 1)
    k.tcgen05.st(a, p)
    k.tcgen05.wait_st()
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    with k.role("T", 0), k.elected():
        k.tcgen05.fence_after_thread_sync()
        d = k.tcgen05.tensor(address + column, f32, (128, 32), name="d")
        k.tcgen05.mma(d, a, b, accumulate=0)  # error 1 2: tcgen05-order by T
        k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    free(k, address, 64)


@kernel(target="sm_100a", warps=2)
def a_pair_frees_when_each_knows_that_both_are_done(k: Builder) -> None:
    """Warp 1 of a CTA uses columns; both CTAs free them, whichever comes first."""
    k.launch(grid=2, cluster=2)
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    done, tile, user, ends = k.mbarriers("done"), k.fragment("tile", f32, (32, 32)), 0, [0, 1]
    user, ends = 0, [0]  # wrong 1
    user, ends = 1, [1]  # wrong 2
    with k.one_thread():
        k.mbarrier.init(done, 32)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.role("W", 0):
        k.tcgen05.alloc(slot, 32, cta_group=2)
    k.cluster.sync()
    k.mem.load(address, slot[0])
    d = k.tcgen05.tensor(address + (32 << 16), f32, (32, 32))
    with k.role("U", 1), k.if_(k.cluster_rank.eq(user)):
        k.tile.fill(tile, 0)
        k.tcgen05.st(d, tile)  # error 1 2: tmem-lifetime by U
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        for rank in ends:
            k.mbarrier.arrive(done[0].at(rank), scope="cluster")
    with k.role("W", 0):
        for rank in ends:
            with k.if_(k.cluster_rank.eq(rank)):
                k.mbarrier.wait(done, 0, scope="cluster")
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 32, cta_group=2)  # error 1 2: tmem-lifetime by W
    k.cluster.sync()


@kernel(target="sm_100a", warps=2)
def an_allocation_that_can_never_succeed(k: Builder) -> None:
    slots, got = k.shared("slots", u32, (3,)), [k.var(f"got{i}") for i in range(3)]
    sizes = [256, 256]
    sizes = [256, 256, 64]  # wrong
    with k.role("owner", 0):
        for i, columns in enumerate(sizes):
            k.tcgen05.alloc(slots[i], columns)  # error: tmem-lifetime by owner
            k.mem.load(got[i], slots[i])
        for i, columns in enumerate(sizes):
            k.tcgen05.dealloc(got[i], columns)
    k.sync_threads()  # error: tmem-lifetime by warp 1
