"""Pairs of programs at the boundaries of what the kernel decides. Mutants of the kernel have shown
them, or programs of other tests that it took for right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import tilesim as ts
from tests.kernel.programs import (
    allocates,
    copied,
    cta,
    ends,
    frees,
    gives_registers,
    wrong,
    zeros,
)
from tests.kernel.programs_ptx import handed_over, wrong_by_the_text
from tests.litmus.notation import begin, global_words, ones, thread, words
from tests.litmus.tcgen05 import setup
from tests.litmus.wgmma import operands
from tilesim import (
    Builder,
    address_of,
    bf16,
    ds,
    f16,
    f32,
    mbar_at,
    s32,
    select,
    u8,
    u16,
    u32,
    u64,
    view_at,
)
from tilesim.ir.declarations import Mbarriers, SharedTensor, View
from tilesim.ir.expr import Expr, Operand, as_expr
from tilesim.ir.ops.compute import Compute
from tilesim.ir.tensormap import StoreMode

# ---------------------------------------------------------------------- launches


@wrong("clusters")
def stores_by_all_coordinates_of_a_cta(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=(4, 6, 8), cluster=(2, 2, 2))
    g = global_words(k, "g", 192)
    with k.elected():
        k.mem.store(g[k.cta_x + 4 * k.cta_y + 24 * (k.cta_z if right else k.cta_z % 2)], 1)


@wrong("I")
def an_arrival_at_a_peer_and_not_at_the_own_mbarrier(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    k.fence.mbarrier_init()
    k.cluster.sync()
    with cta(k, 0):
        k.mbarrier.arrive(b[0].at(0 if right else 1), scope="cluster")


@wrong("E17")
def registers_of_a_launch_that_names_none(k: Builder, *, right: bool) -> None:
    k.launch(warps=12)
    gives_registers(k, 24 if right else 32)


@wrong("E17")
def registers_of_another_partition(k: Builder, *, right: bool) -> None:
    """3 x 72 + 104 are 4 x 80, and the SM has four partitions."""
    k.launch(warps=8, registers=128)
    with k.role("three", range(3)):
        k.setmaxnreg("dec", 48 if right else 56)
    with k.role("one", 3):
        k.setmaxnreg("dec", 24)
    with k.role("takes", range(4, 8)):
        k.setmaxnreg("inc", 208)


@wrong("E15")
def registers_in_each_cta_of_a_cluster(k: Builder, *, right: bool) -> None:
    k.launch(warps=4, grid=2, cluster=2, registers=168)
    with k.if_((k.warp_id < 3) | k.cluster_rank.eq(0) | int(right)):
        k.setmaxnreg("dec", 24)


@wrong("E15")
def three_warps_of_the_last_warpgroup_that_give_registers(k: Builder, *, right: bool) -> None:
    k.launch(warps=12, registers=168)
    with k.role("WG2", range(8, 12 if right else 11)):
        k.setmaxnreg("dec", 24)


def registers_of_three_warpgroups(
    k: Builder, *, meets: bool = True, again: int = 168, up: int = 168, ends_with: int = 24
) -> None:
    """One gives registers and takes them again, while one takes what it has, and one gives some."""
    k.launch(warps=12, registers=168)
    with k.role("WG0", range(4)):
        k.setmaxnreg("dec", 24)
        if meets:
            k.bar.sync(1, 128)
        k.setmaxnreg("inc", again)
    with k.role("WG1", range(4, 8)):
        k.setmaxnreg("inc", up)
        k.setmaxnreg("inc", up)
    with k.role("WG2", range(8, 12)):
        k.setmaxnreg("dec", 24)
        k.bar.sync(2, 128)
        k.setmaxnreg("dec", ends_with)


@wrong("E15")
def warps_that_have_not_met_take_registers_again(k: Builder, *, right: bool) -> None:
    registers_of_three_warpgroups(k, meets=right)


@wrong("E17", not_covered="changes its registers twice")
def registers_that_one_may_take_again_behind_another_one(k: Builder, *, right: bool) -> None:
    registers_of_three_warpgroups(k, up=168 if right else 176)


@wrong("E17")
def registers_that_are_given_back_that_it_has_not(k: Builder, *, right: bool) -> None:
    registers_of_three_warpgroups(k, ends_with=24 if right else 32)


@wrong("E17")
def registers_that_are_taken_again_and_again(k: Builder, *, right: bool) -> None:
    k.launch(warps=12, registers=168)
    with k.loop(3):
        gives_registers(k, 24 if right else 32)


@wrong("E17")
def more_than_it_had_is_taken_again(k: Builder, *, right: bool) -> None:
    k.launch(warps=4, registers=168)
    k.setmaxnreg("dec", 24)
    k.sync_threads()
    k.setmaxnreg("inc" if right else "dec", 168)


@wrong("E17", not_covered="given back after others are taken")
def registers_behind_a_barrier_that_an_end_releases(k: Builder, *, right: bool) -> None:
    """The warps that take them end behind that, and wait for the warps that give them."""
    k.launch(warps=8, registers=168)
    with k.role("WG0", range(4)):
        k.setmaxnreg("inc", 232)
        k.exit()
    if not right:
        k.sync_threads()
    k.setmaxnreg("dec", 104)


@wrong("E17", not_covered="given back after others are taken")
def registers_behind_a_cluster_barrier_that_an_end_releases(k: Builder, *, right: bool) -> None:
    k.launch(warps=8, registers=168, grid=2, cluster=2)
    with k.role("WG0", range(4)):
        if right:
            k.cluster.arrive()
        k.setmaxnreg("inc", 232)
        k.exit()
    k.cluster.sync()
    k.setmaxnreg("dec", 104)


@wrong("E17", not_covered="given back after others are taken")
def registers_behind_a_wait_of_another_lane(k: Builder, *, right: bool) -> None:
    """A warp gives them as a whole; one lane of it has waited for the warps that take them."""
    k.launch(warps=8, registers=168)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with k.role("WG0", range(4)):
        k.setmaxnreg("inc", 232)
        with k.if_(k.thread_id.eq(0)):
            k.mbarrier.arrive(b)
        k.exit()
    if not right:
        with k.if_(k.thread_id.eq(133), sync=False):
            k.mbarrier.wait(b, 0)
    k.setmaxnreg("dec", 104)


@wrong("E11")
def registers_of_a_warp_of_which_a_lane_has_ended(k: Builder, *, right: bool) -> None:
    """All threads of the warpgroup execute it (E15)."""
    k.launch(warps=4, registers=168)
    with k.if_(k.thread_id.eq(0)):
        if not right:
            k.exit()
    k.setmaxnreg("dec", 104)


@wrong("F1", breaks="deadlock")
def a_fence_of_the_fifth_of_six_warpgroups(k: Builder, *, right: bool) -> None:
    k.launch(warps=24)
    with k.role("WG4", range(16, 20 if right else 19)):
        k.wgmma.fence()


# ---------------------------------------------------------------------- addresses beside numbers


def zero_or_address(k: Builder, cluster: Expr, *, right: bool) -> tuple[SharedTensor, Expr]:
    """0, or where shared memory begins, which need not be there: as the first lane or cluster has
    it and as others do."""
    s = k.shared("s", u32, (4,))
    return s, select(cluster.eq(0), 0, 0 if right else address_of(s))


@wrong("class", not_covered="data decides the branch", classes=([[0, 1]], [[0, 1]]))
def a_word_that_holds_an_address_in_another_cluster(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2)
    s, number = zero_or_address(k, k.cta_x, right=right)
    r = k.var("r", dtype=u32)
    with k.elected():
        k.mem.store(s[1], number)
        k.mem.load(r, s[1])
        with k.if_(r.ne(0)):
            k.fence.proxy_async()


@wrong("agree")
def an_address_in_other_lanes_of_what_they_share(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    _, number = zero_or_address(k, k.lane_id, right=right)
    tile = k.fragment("tile", f32, (1, 32))
    k.tile.fill(tile, 1)
    k.tile.zip(tile, "mul", tile, number)


@wrong("counter-order", not_covered="not known", classes=([[0, 1]], [[0, 1]]))
def an_address_that_another_cluster_stores_to_a_word(k: Builder, *, right: bool) -> None:
    k.launch(warps=2, grid=2)
    s, number = zero_or_address(k, k.cta_x, right=right)
    seen = k.var("seen", 1, u32)
    with thread(k, 0):
        k.mem.store(s[1], 1)
    k.sync_threads()
    with thread(k, 0):
        k.mem.store(s[1], number, sem="release", scope="gpu")
    with thread(k, 1), k.while_(seen.ne(0)):
        k.mem.load(seen, s[1], sem="acquire", scope="gpu")


# ---------------------------------------------------------------------- values


@wrong("data", not_covered="data decides")
def a_branch_on_a_choice_by_a_loaded_value(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g, r = global_words(k, "g"), k.var("r")
    k.mem.load(r, g[0])
    with k.if_(ts.select((k.warp_id if right else r).eq(0), 1, 0).eq(0)):
        k.sync_warp()


@wrong("data", not_covered="data decides a phase")
def a_token_of_which_a_shuffle_moves_a_half(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, t, half = k.mbarriers("b"), k.var("t", dtype=u64), k.var("half", dtype=u32)
    begin(k, (b, 32))
    k.mbarrier.arrive(b, token=t)
    k.mem.shuffle(half, t, 0)
    k.mbarrier.wait(b, token=t if right else half)


# ---------------------------------------------------------------------- accesses


@wrong("out-of-bounds")
def an_mbarrier_beyond_shared_memory(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x = words(k, "x", 4)
    with k.elected():
        k.mbarrier.init(mbar_at(k.var("p", address_of(x) + (8 if right else 16), u32)), 1)


@wrong("H6")
def a_store_at_an_address_of_global_memory_beside_a_load(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    g, r = global_words(k, "g", 2), k.var("r")
    p = k.var("p", address_of(g), u64)
    with thread(k, 0):
        k.mem.store(view_at(p, s32, space="global"), 1)
    with thread(k, 1):
        k.mem.load(r, g[1 if right else 0])


@wrong("H6")
def a_strong_store_in_no_order_with_a_load_before_another_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=3)
    x, b, r = words(k, "x"), k.mbarriers("b"), k.var("r")
    begin(k, (b, 1), zero=[x])
    with thread(k, 2):  # the warp that completes the barrier goes on first
        k.mem.load(r, x[0])
        k.mbarrier.arrive(b)
    for warp in (0, 1):
        with thread(k, warp):
            if right or not warp:
                k.mbarrier.wait(b, 0)
            k.mem.store(x[0], 1, sem="relaxed")


@wrong("H6")
def copies_of_the_first_bytes_of_each_16(k: Builder, *, right: bool) -> None:
    k.launch(warps=2, target="sm_100a")
    x, g = k.shared("x", u8, (16,)), k.tensor("g", u8, (16,))
    begin(k, zero=[x])
    with thread(k, 0):
        k.bulk.store(g, x, mask=k.var("mask", 0b1111, u16))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    with thread(k, 1):
        k.mem.store(g[4 if right else 3], 1)


@wrong("H6")
def a_store_beside_what_is_copied_of_each_16_bytes(k: Builder, *, right: bool) -> None:
    """Bytes that a mask leaves out are not read."""
    k.launch(warps=1, target="sm_100a")
    x, g = k.shared("x", u8, (32,)), k.tensor("g", u8, (32,))
    begin(k, zero=[x])
    with thread(k, 0):
        k.bulk.store(g, x, mask=k.var("mask", 0b1111, u16))
        k.mem.store(x[20 if right else 19], 1)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@wrong("H6")
def a_box_of_which_nothing_is_in_its_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    d, g = words(k, "d", 8), global_words(k, "g", 16)
    box, n = k.tensor_map(g, (8,)), k.var("n", 16 if right else 8)
    begin(k, zero=[d])
    with thread(k, 0):
        k.tma.store(box, d, (n,))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    with thread(k, 1):
        k.mem.store(g[15], 1)


@wrong("H2", breaks="H6")
def two_tiles_that_are_stored_or_added_to_one_place(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    d, g = words(k, "d", 8), global_words(k, "g", 8)
    box = k.tensor_map(g, (8,))
    begin(k, zero=[d])
    for warp in range(2):
        with thread(k, warp):
            (k.tma.reduce if right else k.tma.store)(box, d, (0,))
            k.bulk.commit_group()
            k.bulk.wait_group(0)


@wrong("H6")
def a_tile_that_is_read_where_another_thread_stores(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), words(k, "d", 8), global_words(k, "g", 16)
    box = k.tensor_map(g, (8,))
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 32)
        k.tma.load(box, d, (0,), b)
        k.mbarrier.wait(b, 0)
    with thread(k, 1):
        k.mem.store(g[8 if right else 7], 1)


@wrong("H10", breaks="H6")
def a_copy_of_the_second_cta_behind_a_release_only(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    x, g = words(k, "x", 4), global_words(k, "g", 4)
    with cta(k, 1):
        for i in range(4):
            k.mem.store(x[i], 1)
        k.fence.proxy_async_generic("release")
        if right:
            k.fence.proxy_async_generic("acquire")
        copied(k, g, x)


# ---------------------------------------------------------------------- mbarriers


@wrong("A")
def an_arrival_of_a_lane_that_has_not_met_the_one_before(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with k.if_(k.lane_id.eq(0), sync=right):
        k.mbarrier.arrive(b)
    with k.if_(k.lane_id.eq(1), sync=False):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 1)


@wrong("D9")
def a_store_to_a_peer_before_an_arrival_of_another_lane(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    x, b = words(k, "x"), k.mbarriers("b")
    begin(k, (b, 1))
    k.fence.mbarrier_init()
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(0)):
        with k.if_(k.lane_id.eq(0), sync=right):
            k.mem.store(x.view().at(1)[0], 1)
        with k.if_(k.lane_id.eq(1)):
            k.mbarrier.arrive(b[0].at(1), scope="cluster")
    with k.if_(k.cluster_rank.eq(1)):
        k.mbarrier.wait(b, 0, scope="cluster")


@wrong("A20")
def a_token_in_place_of_a_parity(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, t = k.mbarriers("b"), k.var("t", 0)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b, token=t)
        k.mbarrier.wait(b, 0 if right else t)


# ---------------------------------------------------------------------- tensor memory


@wrong("G12")
def an_operand_in_other_lanes_than_the_accumulator(k: Builder, *, right: bool) -> None:
    done = k.mbarriers("done")
    s = setup(k, (done, 1))
    cells = k.tcgen05.tensor(s.address, f32, (128, 128), name="cells")
    tile = k.fragment("tile", f32, (128, 128), "warpgroup")
    lane = 0 if right else 16
    a = k.tcgen05.tensor(s.address + 64 + (lane << 16), ts.bf16, (64, 16), name="operand")
    d = k.tcgen05.tensor(s.address, f32, (64, 32), name="accumulator")
    with k.role("WG", range(4)):
        zeros(k, cells, tile)
        k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    with thread(k, 4):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, a, s.b, accumulate=0)
        k.tcgen05.commit(done)
    ends(k, s, done)


@wrong_by_the_text("G19", breaks="H6")
def a_load_of_the_warp_that_issued_the_product_of_which_a_lane_waits(
    k: Builder, *, right: bool
) -> None:
    b = k.mbarriers("b")
    s = setup(k, (b, 1))
    tile = k.fragment("tile", f32, (32, 32))
    with k.role("W0", 0):
        with k.if_(k.lane_id.eq(0)):
            k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
            k.tcgen05.commit(b)
        with k.if_(k.lane_id < (32 if right else 1)):
            k.mbarrier.wait(b, 0)
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(tile, k.tcgen05.tensor(s.address, f32, (32, 32)))
        k.tcgen05.wait_ld()
    ends(k, s, b)


@wrong_by_the_text("U9")
def a_commit_to_no_cta(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2, target="sm_100a")
    b = k.mbarriers("b")
    begin(k, (b, 1))
    k.cluster.sync()
    with thread(k, 0), k.if_(k.cluster_rank < (1 if right else 2)):
        k.tcgen05.commit(b, multicast=3 >> 16 * k.cluster_rank, cta_group=2)
    k.mbarrier.wait(b, 0, scope="cluster")
    k.cluster.sync()


@wrong("U9-commit", breaks="deadlock")
def a_commit_to_no_cta_that_is_waited_for(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, target="sm_100a")
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.tcgen05.commit(b, multicast=k.var("mask", int(right)))
    k.mbarrier.wait(b, 0)


@wrong_by_the_text("G19", breaks="H6")
def a_commit_in_place_of_the_first_fence(k: Builder, *, right: bool) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    tile = k.fragment("tile", f32, (32, 32))
    with k.role("W0", 0):
        zeros(k, k.tcgen05.tensor(s.address, f32, (32, 32)), tile)
        k.sync_warp()
        with k.elected():
            if right:
                k.tcgen05.commit(b)
            else:
                k.mbarrier.arrive(b)
    k.mbarrier.wait(b, 0)
    with thread(k, 4):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
        k.tcgen05.commit(done)
    ends(k, s, done)


@wrong("H6")
def a_product_behind_a_wait_that_acquires_nothing(k: Builder, *, right: bool) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 128), (done, 1))
    tile = k.fragment("tile", f32, (32, 32))
    with k.if_(k.warp_id < 4):
        zeros(k, k.tcgen05.tensor(s.address, f32, (32, 32)), tile)
        k.mbarrier.arrive(b)  # hands memory over, but no tcgen05.fence comes before it
    with thread(k, 4):
        k.mbarrier.wait(b, 0, sem="acquire" if right else "relaxed")
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
        k.tcgen05.commit(done)
    ends(k, s, done)


@wrong("H6")
def a_store_of_the_first_lane_before_an_allocation(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, target="sm_100a")
    x, slot, address = words(k, "x"), k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    r = k.var("r")
    with k.if_(k.lane_id.eq(0), sync=right):
        k.mem.store(x[0], 1)
    k.tcgen05.alloc(slot, 32)
    with k.if_(k.lane_id.eq(5)):
        k.mem.load(r, x[0])
    k.mem.load(address, slot[0])
    k.tcgen05.dealloc(address, 32)
    k.tcgen05.relinquish_alloc_permit()


@wrong("H6")
def a_product_that_overwrites_its_own_operand(k: Builder, *, right: bool) -> None:
    done = k.mbarriers("done")
    s = setup(k, (done, 1))
    p = k.fragment("p", bf16, (128, 16), "warpgroup")
    rows = k.tcgen05.tensor(s.address + 64, bf16, (128, 16), name="rows")
    with k.role("WG", range(4)):
        k.tile.fill(p, 1)
        k.tcgen05.st(rows, p)
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    with thread(k, 4):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(s.at(k, 0 if right else 64), rows, s.b, accumulate=0)
        k.tcgen05.commit(done)
    ends(k, s, done)


@wrong("A7")
def a_start_of_an_mbarrier_that_another_lane_fences(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    b = k.mbarriers("b")
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.init(b, 1)
    with k.if_(k.thread_id.eq(0 if right else 1)):
        k.fence.mbarrier_init()
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()
    with k.if_(k.cluster_rank.eq(1)), thread(k, 0):
        k.mbarrier.arrive(b.at(0), scope="cluster")
    k.cluster.sync()


# ---------------------------------------------------------------------- registers


@wrong("unset")
def a_register_that_another_warp_has_set(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    late, x = k.var("late", dtype=u32), words(k, "x", 64)
    with k.if_(k.warp_id.eq(0)):
        k.assign(late, 1)
    with k.if_(k.warp_id.eq(0 if right else 1)):
        k.mem.store(x[k.thread_id], late)


@wrong("unset")
def a_register_that_half_of_the_lanes_have_set(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    late, x = k.var("late", dtype=u32), words(k, "x", 32)
    with k.if_(k.lane_id < 16):
        k.assign(late, 1)
    if right:
        with k.if_(k.lane_id >= 16):
            k.assign(late, 2)
    k.mem.store(x[k.lane_id], late)


def branches_on_what_half_of_the_lanes_have_set(k: Builder, of: Expr | int, *, right: bool) -> None:
    late, x = k.var("late", dtype=u32), words(k, "x", 32)
    with k.if_(k.lane_id < 16):
        k.assign(late, of)
    if right:
        with k.if_(k.lane_id >= 16):
            k.assign(late, 2)
    with k.if_(late.eq(1)):
        k.mem.store(x[k.lane_id], 1)


@wrong("unset")
def a_branch_on_a_register_that_half_of_the_lanes_have_set(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    branches_on_what_half_of_the_lanes_have_set(k, 1, right=right)


@wrong("unset")
def a_branch_on_data_that_half_of_the_lanes_have_loaded(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    loaded = k.var("loaded", dtype=u32)
    k.mem.load(loaded, k.tensor("g", u32, (32,))[k.lane_id])
    branches_on_what_half_of_the_lanes_have_set(k, loaded, right=right)


def set_behind_a_poll(k: Builder, *, read: str = "there", again: bool = False) -> None:
    """What is set if a poll has answered no is read there, or behind that, or if another has."""
    k.launch(warps=2)
    b, seen, late, r = k.mbarriers("b"), k.var("seen", 0), k.var("late"), k.var("r")
    begin(k, (b, 1))
    with thread(k, 1):
        k.mbarrier.arrive(b)
    with thread(k, 0):
        k.mbarrier.try_wait(seen, b, 0)
        with k.if_(seen.eq(0)):
            k.assign(late, k.warp_id)
            if read == "there":
                k.assign(r, late + 1)
            k.mbarrier.wait(b, 0)
        if again:
            k.mbarrier.try_wait(seen, b, 0)
            with k.if_(seen.eq(0)):
                k.assign(r, late + 1)
                k.mbarrier.wait(b, 0)
        if read == "behind":
            k.assign(r, late + 1)


@wrong("unset")
def a_register_that_a_poll_has_spared_is_read(k: Builder, *, right: bool) -> None:
    set_behind_a_poll(k, read="there" if right else "behind")


@wrong("unset")
def a_register_that_another_poll_may_have_spared_is_read(k: Builder, *, right: bool) -> None:
    set_behind_a_poll(k, again=not right)


@wrong("unset")
def a_tile_that_is_stored_and_was_not_filled(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    tile, x = k.fragment("tile", f32, (16, 16)), k.shared("x", f32, (16, 16))
    if right:
        k.tile.fill(tile, 0)
    k.tile.store(x, tile)


@wrong("unset")
def a_product_that_adds_to_what_was_not_filled(k: Builder, *, right: bool) -> None:
    k.launch(warps=4)
    a, b, acc, _, _ = operands(k)
    k.wgmma.fence()
    k.wgmma.mma_async(acc, a[0], b, accumulate=0 if right else 1)
    k.wgmma.commit_group()
    k.wgmma.wait_group(0)


@wrong("unset")
def a_register_of_a_product_that_the_second_warp_has_not_set(k: Builder, *, right: bool) -> None:
    k.launch(warps=4)
    a, b, acc, _, _ = operands(k)
    adds = k.var("adds", dtype=u32)
    k.tile.fill(acc, 0)
    with k.if_(k.warp_id < 4) if right else k.if_(k.warp_id.ne(1)):
        k.assign(adds, 1)
    k.wgmma.fence()
    k.wgmma.mma_async(acc, a[0], b, accumulate=adds)
    k.wgmma.commit_group()
    k.wgmma.wait_group(0)


@wrong("F3")
def an_accumulator_that_was_an_operand_before_the_wait(k: Builder, *, right: bool) -> None:
    k.launch(warps=4)
    r, s = (k.fragment(name, f16, (64, 16), "warpgroup") for name in "rs")
    a, b = k.shared("a", f16, (64, 16), swizzle=32), k.shared("b", f16, (16, 16), swizzle=32)
    ones(k, a, b)
    k.tile.fill(r, 1)
    k.wgmma.fence()
    k.wgmma.mma_async(s, r, b, accumulate=0)
    k.wgmma.commit_group()
    k.wgmma.wait_group(0)
    if right:
        k.wgmma.fence()
    k.wgmma.mma_async(r, a, b, accumulate=0)
    k.wgmma.commit_group()
    k.wgmma.wait_group(0)


@wrong("agree")
def a_product_of_which_lanes_differ_in_what_it_keeps(k: Builder, *, right: bool) -> None:
    k.launch(warps=4)
    a, b, acc, _, _ = operands(k)
    k.tile.fill(acc, 0)
    k.wgmma.fence()
    k.wgmma.mma_async(acc, a[0], b, accumulate=1 if right else k.lane_id % 2)
    k.wgmma.commit_group()
    k.wgmma.wait_group(0)


def exchanges_addresses(k: Builder, other_from: int, *, clusters: int = 1) -> None:
    """The CTAs of clusters of two allocate tensor memory, and tell each other where; those of
    numbers from ``other_from`` on store at the address of the other one, which is as large a number
    in the canonical schedule."""
    k.launch(warps=1, grid=2 * clusters, cluster=2, target="sm_100a")
    slot, own, other = k.shared("slot", u32, (1,)), k.var("own", dtype=u32), k.var("o", dtype=u32)
    tile = k.fragment("tile", f32, (32, 32))
    k.tcgen05.alloc(slot, 64)
    k.mem.load(own, slot[0])
    k.cluster.sync()
    k.mem.load(other, slot[0].at(1 - k.cluster_rank), sem="relaxed", scope="cluster")
    address = ts.select(k.cta_x >= other_from, other, own)
    zeros(k, k.tcgen05.tensor(address, f32, (32, 32)), tile)
    k.cluster.sync()
    k.tcgen05.dealloc(own, 64)
    k.tcgen05.relinquish_alloc_permit()


@wrong("data", not_covered="in no tensor memory of its own")
def an_address_in_tensor_memory_of_the_other_cta(k: Builder, *, right: bool) -> None:
    exchanges_addresses(k, 2 if right else 0)


@wrong("H6", not_covered="stores that may be of equal values")
def warps_that_store_one_number_to_global_memory(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, g = words(k, "x"), global_words(k, "g")
    with k.elected():
        k.mem.store((x if right else g)[0], 1)


@wrong("clusters", not_covered="which clusters access where data decides")
def a_word_that_data_has_two_clusters_store(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2)
    g, out, x = global_words(k, "g", 2), global_words(k, "out", 2), k.var("x")
    with k.if_(k.lane_id.eq(0)):
        k.mem.load(x, g[k.cta_x])
        with k.if_(x.eq(7)):
            k.mem.store(out[k.cta_x if right else 0], 1)


# ---------------------------------------------------------------------- elections


@wrong_by_the_text("E12", not_covered="its mask may depend on which lane is elected")
def an_elected_lane_that_is_alone_in_a_mask(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    with k.if_(k.lane_id.eq(0), sync=False) if right else k.elected(sync=False):
        k.sync_warp(1)


@wrong_by_the_text("E12", not_covered="its mask may depend on which lane is elected")
def an_elected_lane_that_gets_a_value_of_the_first_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    r = k.var("r", 0)
    with k.if_(k.lane_id.eq(0), sync=False) if right else k.elected(sync=False):
        k.mem.shuffle(r, r, 0, mask=1)


@wrong_by_the_text("E12", not_covered="depend on which lane is elected")
def a_fence_of_the_elected_lane_for_an_arrival_of_the_first(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, b, r = words(k, "x"), k.mbarriers("b"), k.var("r")
    begin(k, (b, 1), zero=[x])
    with k.role("W0", 0):
        with k.elected():
            k.mem.store(x[0], 1)
            k.fence.memory("acq_rel", "cta")
        k.sync_warp()
        with k.elected() if right else k.if_(k.lane_id.eq(0)):
            k.mbarrier.arrive(b, sem="relaxed")
    with k.role("W1", 1), k.elected():
        k.mbarrier.wait(b, 0)
        k.mem.load(r, x[0])


@wrong_by_the_text("E12", not_covered="depend on which lane is elected")
def an_elected_lane_that_follows_the_wait_of_the_first(k: Builder, *, right: bool) -> None:
    x, b, r = handed_over(k)
    with k.role("W1", 1):
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mbarrier.wait(b, 0)
        if right:
            k.sync_warp()
        with k.elected(sync=False):
            k.mem.load(r, x[0])


@wrong_by_the_text("E12", not_covered="depend on which lane is elected")
def a_fence_of_all_lanes_behind_the_relaxed_wait_of_the_elected(k: Builder, *, right: bool) -> None:
    x, b, r = handed_over(k)
    with k.role("W1", 1):
        with k.elected():
            k.mbarrier.wait(b, 0, sem="relaxed")
        k.fence.memory("acq_rel", "cta")
        if right:
            k.sync_warp()
        with k.if_(k.lane_id.eq(0)):
            k.mem.load(r, x[0])


@wrong_by_the_text("E12", not_covered="depend on which lane is elected")
def a_store_of_the_first_lane_behind_the_group_of_the_elected(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x, g = words(k, "x", 4), global_words(k, "g", 4)
    begin(k, zero=[x])
    k.fence.proxy_async()
    with k.elected():
        k.bulk.store(g, x)
        k.bulk.commit_group()
    k.bulk.wait_group(0)
    if right:
        k.sync_warp()
    with k.if_(k.lane_id.eq(0)):
        k.mem.store(x[0], 1)


# ---------------------------------------------------------------------- copies of no plain box


@contextmanager
def copied_beside(k: Builder, b: Mbarriers, nbytes: int, stored: View) -> Iterator[None]:
    """A thread loads so many bytes and waits for them, another one stores to an element."""
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, nbytes)
        yield
        k.mbarrier.wait(b, 0)
    with thread(k, 1):
        k.mem.store(stored, 1)


def pixels_are_copied(k: Builder, *, moved: int = 0, stored: int = 0) -> None:
    """A copy by im2col takes pixels 1, 2, 4, 5, 6 and 12 of 24 while another warp stores to one;
    ``moved``: a value behind the first offset, of which there are 256."""
    k.launch(warps=2)
    b, d, g = k.mbarriers("b"), k.shared("d", s32, (6, 4)), k.tensor("g", s32, (2, 3, 4, 4))
    box, shift = k.tensor_map(g, (6, 4), lower=(0, 0), upper=(-1, -1)), k.var("shift", moved)
    with copied_beside(k, b, 96, g[stored // 12, stored // 4 % 3, stored % 4, 3]):
        k.tma.load(box, d, (0, 0, 1, 0), b, mode="im2col", info=(shift, 0))


@wrong("B23")
def an_offset_of_im2col_beyond_its_range(k: Builder, *, right: bool) -> None:
    pixels_are_copied(k, moved=255 if right else 256)


@wrong("H6")
def a_store_to_a_pixel_that_is_copied(k: Builder, *, right: bool) -> None:
    pixels_are_copied(k, stored=3 if right else 4)


@wrong("H6")
def a_store_to_a_pixel_of_the_next_image_that_is_copied(k: Builder, *, right: bool) -> None:
    pixels_are_copied(k, stored=13 if right else 12)


def rows_are_copied(
    k: Builder, *, mode: StoreMode, at: tuple[int, ...], stored: tuple[int, int]
) -> None:
    """A copy stores some rows of eight while another warp stores to one word."""
    k.launch(warps=2, target="sm_100a")
    s, g = k.shared("s", s32, (4, 4)), k.tensor("g", s32, (8, 4))
    tiled = mode == "tile"
    box = k.tensor_map(g, (8 if tiled else 1, 4), element_strides=(2, 1) if tiled else None)
    with k.if_(k.thread_id < 4):
        for i in range(4):
            k.mem.store(s[k.thread_id, i], 9)
    k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.tma.store(box, s, at, mode=mode)
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    with thread(k, 1):
        k.mem.store(g[stored], 1)


@wrong("H6")
def a_store_to_a_row_that_is_scattered(k: Builder, *, right: bool) -> None:
    rows_are_copied(k, mode="tile::scatter4", at=(1, 3, 5, 7, 0), stored=(2 if right else 3, 3))


@wrong("H23")
def two_rows_that_are_scattered_to_one_place(k: Builder, *, right: bool) -> None:
    at = (1, 3, 5 if right else 3, 7, 0)
    rows_are_copied(k, mode="tile::scatter4", at=at, stored=(0, 0))


@wrong("H6")
def a_store_to_a_row_of_every_second_one(k: Builder, *, right: bool) -> None:
    rows_are_copied(k, mode="tile", at=(0, 0), stored=(5 if right else 4, 0))


@wrong("H6")
def a_store_to_the_last_row_of_every_second_one(k: Builder, *, right: bool) -> None:
    rows_are_copied(k, mode="tile", at=(5, 0), stored=(6 if right else 7, 0))


def packed_elements_are_copied(k: Builder, *, first: int = 128, stored: int = 0) -> None:
    """128 elements of 4 bits of two rows are loaded, while another warp stores to a byte."""
    k.launch(warps=2, target="sm_100a")
    b, d, g = k.mbarriers("b"), k.shared("d", u8, (2, 64)), k.tensor("g", u8, (2, 192))
    box, at = k.tensor_map(g, (2, 128), packing="b4x16"), k.var("at", first)
    with copied_beside(k, b, 128, g[0, stored]):
        k.tma.load(box, d, (0, at), b)


@wrong("H6")
def a_store_in_front_of_packed_elements_that_are_copied(k: Builder, *, right: bool) -> None:
    packed_elements_are_copied(k, stored=63 if right else 64)


@wrong("H6")
def a_store_behind_packed_elements_that_are_copied(k: Builder, *, right: bool) -> None:
    packed_elements_are_copied(k, stored=128 if right else 127)


@wrong("B19")
def a_copy_that_starts_between_packed_elements(k: Builder, *, right: bool) -> None:
    packed_elements_are_copied(k, first=2 if right else 1)


# ---------------------------------------------------------------------- parts of a number


def a_part_is_loaded(k: Builder, *, at: int = 0, over: int = 0, size: int = 1) -> None:
    """A thread waits for another one, which arrives if a part of a word is 0; ``over``: a byte of
    that is stored once more."""
    k.launch(warps=2)
    word, r, b = words(k, "word"), k.var("r", 0), k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mem.store(word[0], 0x00020001)
        if over:
            k.mem.store(view_at(address_of(word) + over, u8), 0)
    k.sync_threads()
    k.mem.load(r, view_at(address_of(word) + at, u8 if size == 1 else u16))
    with thread(k, 1), k.if_(r.eq(0)):
        k.mbarrier.arrive(b)
    with thread(k, 0):
        k.mbarrier.wait(b, 0)


@wrong("data", breaks="deadlock")
def a_byte_of_a_word_that_decides(k: Builder, *, right: bool) -> None:
    a_part_is_loaded(k, at=1 if right else 2)


@wrong("data", breaks="deadlock")
def the_last_byte_of_a_word_that_decides(k: Builder, *, right: bool) -> None:
    a_part_is_loaded(k, at=3 if right else 0)


@wrong("data", not_covered="data decides")
def a_byte_of_a_word_of_which_another_one_is_stored_once_more(k: Builder, *, right: bool) -> None:
    a_part_is_loaded(k, at=2 if right else 1, over=2)


@wrong("data", not_covered="data decides")
def a_half_of_a_word_of_which_a_byte_is_stored_once_more(k: Builder, *, right: bool) -> None:
    a_part_is_loaded(k, at=1 if right else 2, over=0 if right else 3, size=1 if right else 2)


# ---------------------------------------------------------------------- what addresses are made of


@wrong("data", not_covered="an address decides an address")
def lanes_of_which_one_has_the_number_that_is_an_address_in_others(
    k: Builder, *, right: bool
) -> None:
    """What tcgen05.alloc gives here, the first lane has as a number."""
    address, x = allocates(k, 32), k.shared("x", u8, (512,))
    with k.if_(k.lane_id < 2):
        k.mem.store(x[480 if right else select(k.lane_id.eq(0), 480, address)], 1)
    frees(k, address, 32)


@wrong("class", not_covered="differs in", classes=([[0, 1]], [[0, 1]]))
def a_cluster_that_has_the_number_that_is_an_address_in_another_one(
    k: Builder, *, right: bool
) -> None:
    k.launch(warps=1, grid=2)
    x = k.shared("x", u8, (16,), align=1024)
    i = k.var("i", select(k.cta_x.eq(0), 0, 0 if right else address_of(x)), u32)
    with k.elected():
        k.mem.store(x[i], 1)


def on_how_far_it_is(moved: Operand) -> None:
    """Before an address, or at the other end of all, lies what is so far before it."""

    def program(k: Builder, *, right: bool) -> None:
        k.launch(warps=1)
        p = k.var("p", address_of(words(k, "x", 32)), u32)
        with k.if_((p + (64 if right else moved)) > p):
            k.sync_warp()

    program.__name__ = "a_branch_on_which_of_two_addresses_is_larger"
    wrong("address", breaks="data", not_covered="an address decides")(program)


on_how_far_it_is(0xFFFFFFC0)
on_how_far_it_is(1 << 20)


@wrong("address", breaks="data", not_covered="an address decides")
def the_remainder_of_an_address_before_shared_memory(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    p = k.var("p", address_of(words(k, "x", 32)), s32)
    with k.if_(((p + (16 if right else -16)) % 32).ne(0)):
        k.sync_warp()


@wrong("address", breaks="data", not_covered="an address decides")
def the_rank_in_an_address_before_shared_memory(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    p = k.var("p", address_of(words(k, "x", 32)), u32)
    with k.if_(((p + (64 if right else 0xFFFFFFC0)) >> 24).eq(0)):
        k.sync_warp()


@wrong("address", breaks="data", not_covered="an address decides")
def an_address_that_wraps_into_the_next_cta(k: Builder, *, right: bool) -> None:
    """mapa keeps the low bits of an address. Another launch has those of one before shared memory
    in the middle of it."""
    k.launch(warps=1, grid=2, cluster=2)
    x, p, by = words(k, "x", 8), k.var("p", dtype=u32), 16 if right else -16
    k.cluster.sync()
    with cta(k, 1):
        k.mem.mapa(p, address_of(x) + by, 0)
        k.mem.store(view_at(k.var("q", p - by, u32), s32, space="shared::cluster"), 1)
    k.cluster.sync()


@wrong("address", breaks="data", not_covered="an address decides")
def the_rank_of_a_cta_in_twice_an_address(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x, rank = words(k, "x"), k.var("rank", dtype=u32)
    k.mem.getctarank(rank, address_of(x) if right else address_of(x) * 2)
    with k.if_(rank.eq(0)):
        k.sync_warp()


def at_a_place(made: Callable[[Expr, Expr], Expr], said: str) -> None:
    """A store to the second of two arrays in shared memory."""

    def program(k: Builder, *, right: bool) -> None:
        k.launch(warps=1)
        x, y = address_of(words(k, "x", 64)), address_of(words(k, "y", 64))
        with k.elected():
            k.mem.store(view_at(k.var("p", y if right else made(x, y), u32), s32), 1)

    program.__name__ = "a_place_that_is_not_made_of_one_address"
    wrong("place", not_covered=said)(program)


at_a_place(lambda x, y: x + y, "an address decides")
at_a_place(lambda x, y: y * 2 - 256, "an address decides")
at_a_place(lambda x, y: (y << 1) - 256, "is not made of")
at_a_place(lambda x, y: (y >> 4) + 240, "is not made of")
at_a_place(lambda x, y: (y << 20) >> 20, "an address decides")
at_a_place(lambda x, y: (y >> 11) << 11, "an address decides")
at_a_place(lambda x, y: y & 0xFFF, "an address decides")
at_a_place(lambda x, y: y | 1024, "an address decides")
at_a_place(lambda x, y: as_expr(256), "is not made of")


def shifted_and_back(low: Callable[[Expr], Expr], said: str) -> None:
    """An address in a matrix descriptor, beside other bits, and out of it again."""

    def program(k: Builder, *, right: bool) -> None:
        k.launch(warps=1)
        before = k.var("before", address_of(words(k, "x", 64)) - 4096, u32)
        p = before + 4096 & 0xFFFFFFFF
        low_bits = (p & 0x3FFFF) >> 4 if right else low(p)
        whole = k.var("whole", low_bits + 2 | 1 << 46 | 1 << 30, u64)
        with k.elected():
            at = k.var("at", (whole & 0x3FFF) << 4, u32)
            k.mem.store(view_at(at, s32), 1)

    program.__name__ = "an_address_in_a_descriptor"
    wrong("place", not_covered=said)(program)


shifted_and_back(lambda p: (p & 0x3FFFF) >> 3, "an address decides")
shifted_and_back(lambda p: (p & 0xFFFF) >> 4, "an address decides")
shifted_and_back(lambda p: (p - 16 & 0x3FFFF) >> 4, "an address decides")


@wrong("place", not_covered="an address decides")
def a_place_of_bytes_of_an_address(k: Builder, *, right: bool) -> None:
    """What an instruction computes of an address is none."""
    k.launch(warps=1)
    x, p = address_of(words(k, "x")), k.var("p", dtype=u32)
    if right:
        k.assign(p, x)
    else:
        sources = (x, as_expr(0), as_expr(0x3210))
        k.emit(Compute(opcode="prmt.b32", results=(p,), sources=sources))
    with k.elected():
        k.mem.store(view_at(p, s32), 1)


@wrong("place", not_covered="is not made of")
def a_generic_place_that_counts_from_no_window(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x, p = address_of(words(k, "x")), k.var("p", dtype=u64)
    k.mem.cvta(p, x, space="shared")
    with k.elected():
        whole = p if right else k.var("q", x + (1 << 36), u64)
        k.mem.store(view_at(whole, s32, space="generic"), 1)


@wrong("place", not_covered="an address decides")
def a_generic_place_that_has_wrapped(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    by, x = 16 if right else -16, address_of(words(k, "x", 8))
    half = k.var("half", x + by, u32)
    q, p = k.var("q", half, u64), k.var("p", dtype=u64)
    k.mem.cvta(p, q + (-16 if right else 16 - (1 << 32)), space="shared")
    with k.elected():
        k.mem.store(view_at(p, s32, space="generic"), 1)


@wrong("place", not_covered="is not made of")
def a_place_in_the_next_tensor(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    g, h = address_of(global_words(k, "g", 4)), address_of(global_words(k, "h", 4))
    with k.elected():
        k.mem.store(view_at(h if right else g + (1 << 40), s32, space="global"), 1)


@wrong("place", not_covered="is not made of")
def an_mbarrier_at_a_number(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x = k.shared("x", u64, (1,))
    with k.elected():
        k.mbarrier.init(mbar_at(k.var("p", address_of(x) if right else 0, u32)), 1)


def in_tensor_memory(made: Callable[[Expr], Operand], rule: str, said: str = "") -> None:
    """A store at what is made of the address of an allocation."""

    def program(k: Builder, *, right: bool) -> None:
        address, tile = allocates(k, 32), k.fragment("tile", f32, (32, 4))
        at = k.var("at", address + 16 if right else made(address), u32)
        k.tile.fill(tile, 0)
        k.tcgen05.st(k.tcgen05.tensor(at, f32, (32, 4)), tile)
        k.tcgen05.wait_st()
        frees(k, address, 32)

    program.__name__ = "a_place_in_tensor_memory_of_a_number_or_other_bits"
    wrong(rule, not_covered=said)(program)


NOT_OWN = "in no tensor memory of its own"
in_tensor_memory(lambda address: 480, "G4")
in_tensor_memory(lambda address: address * 2 - 480, "data", NOT_OWN)
in_tensor_memory(lambda address: 960 - address, "data", NOT_OWN)
in_tensor_memory(lambda address: address & 0x1E0, "data", NOT_OWN)
in_tensor_memory(lambda address: address | 64, "data", NOT_OWN)


@wrong("G4")
def a_number_as_an_address_where_not_all_columns_are_allocated(k: Builder, *, right: bool) -> None:
    address, tile = allocates(k, 512 if right else 32), k.fragment("tile", f32, (32, 4))
    k.tile.fill(tile, 0)
    k.tcgen05.st(k.tcgen05.tensor(k.var("at", 0 if right else 480, u32), f32, (32, 4)), tile)
    k.tcgen05.wait_st()
    frees(k, address, 512 if right else 32)


def of_two_allocations(k: Builder) -> tuple[Expr, Expr]:
    """The second one lies before the first one here."""
    first, slot, second = allocates(k, 32), k.shared("other", u32, (1,)), k.var("second", dtype=u32)
    k.tcgen05.alloc(slot, 32)
    k.sync_threads()
    k.mem.load(second, slot[0])
    return first, second


@wrong("G4")
def columns_behind_an_allocation(k: Builder, *, right: bool) -> None:
    first, second = of_two_allocations(k)
    tile = k.fragment("tile", f32, (32, 4))
    k.tile.fill(tile, 0)
    k.tcgen05.st(k.tcgen05.tensor(second + (28 if right else 32), f32, (32, 4)), tile)
    k.tcgen05.wait_st()
    k.tcgen05.dealloc(second, 32)
    k.tcgen05.dealloc(first, 32)


@wrong("G8-address")
def an_allocation_that_is_freed_by_the_address_of_another_one(k: Builder, *, right: bool) -> None:
    first, second = of_two_allocations(k)
    k.tcgen05.dealloc(second, 32)
    k.tcgen05.dealloc(first if right else k.var("moved", second + 32, u32), 32)


# ---------------------------------------------------------------------- copies


@wrong("B.2")
def a_copy_of_shared_memory_into_the_own_cta(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    x, y, b = words(k, "x", 4), words(k, "y", 4), k.mbarriers("b")
    begin(k, (b, 1))
    k.mem.store(x[k.lane_id & 3], 1)
    k.fence.proxy_async()
    k.cluster.sync()
    with k.elected():
        to = k.cluster_rank ^ int(right)
        k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.copy(y.at(to), x, b.at(to))
        k.mbarrier.wait(b, 0)
    k.cluster.sync()


@wrong("H15")
def an_answer_of_launch_control_at_no_multiple_of_16_bytes(k: Builder, *, right: bool) -> None:
    k.launch(warps=1, target="sm_100a")
    response, b = k.shared("response", u32, (8,)), k.mbarriers("b")
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(b, 16)
        k.clc.try_cancel(response[ds(4 if right else 1, 4)], b)
        k.mbarrier.wait(b, 0)


@wrong("B2-multicast", breaks="H6")
def a_source_that_is_stored_to_when_a_copy_has_landed_in_one_of_two_ctas(
    k: Builder, *, right: bool
) -> None:
    k.launch(warps=1, grid=2, cluster=2)
    d, g, b = words(k, "d", 4), global_words(k, "g", 4), k.mbarriers("b")
    begin(k, (b, 1))
    with k.elected():
        k.mbarrier.arrive_expect_tx(b, 16)
    k.cluster.sync()
    with cta(k, 0):
        k.bulk.load(d, g, b, multicast=3)
    with k.elected():
        k.mbarrier.wait(b, 0)
    if right:
        k.cluster.sync()
    with cta(k, 0):
        k.mem.store(g[0], 1)
    k.cluster.sync()
