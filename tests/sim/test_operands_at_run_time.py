"""What is wrong with an operand that is known only when an instruction is executed: each program
with its nearest right twin."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tilesim import Builder, bf16, check, ds, f32, u8, u32
from tilesim.ir.declarations import Mbar

Write = Callable[[Builder, bool], None]
ROWS: list[tuple[str, str, Write]] = []


def row(rule: str, message: str) -> Callable[[Write], None]:
    """Adds a program, which is right if it is given True: the rule of its finding, and a part of
    the message."""
    return lambda write: ROWS.append((rule, message, write))


def initialised(k: Builder) -> Mbar:
    """A barrier of each CTA of a cluster of two, initialised."""
    k.launch(warps=1, grid=2, cluster=2, target="sm_100a")
    full = k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.fence.mbarrier_init()
    k.cluster.sync()
    return full.only()


@row("out-of-bounds", "both must be in one other CTA of the cluster (B.2)")
def a_bulk_copy_into_the_own_cta(k: Builder, right: bool) -> None:
    full = initialised(k)
    src, dst = k.shared("src", u8, (16,)), k.shared("dst", u8, (16,))
    with k.if_(k.lane_id < 16):
        k.mem.store(src[k.lane_id], 1)
    k.fence.proxy_async()
    k.sync_warp()
    to = k.cluster_rank ^ 1 if right else k.cluster_rank ^ 0
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, 16)
        k.bulk.copy(dst.at(to), src[:], full.at(to))
    k.mbarrier.wait(full, 0, scope="cluster")
    k.cluster.sync()


@row("out-of-bounds", "at byte 136, not 16-byte aligned (B6)")
def a_bulk_copy_that_begins_between_two_pieces(k: Builder, right: bool) -> None:
    full = initialised(k)
    src, dst = k.tensor("src", u8, (64,)), k.shared("dst", u8, (64,))
    at = k.var("at", 0, u32)
    k.assign(at, k.cluster_rank * (16 if right else 8) + (0 if right else 8))
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(full, 16)
        k.bulk.load(dst[ds(at, 16)], src[0:16], full)
    k.mbarrier.wait(full, 0)
    k.cluster.sync()


@row("out-of-bounds", "not 16-byte aligned (B6)")
def a_bulk_copy_into_a_stage_between_two_pieces(k: Builder, right: bool) -> None:
    k.launch(warps=1)
    src, full = k.tensor("src", f32, (4,)), k.mbarriers("full")
    stages = k.shared("stages", f32, (4, 4 if right else 6))
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.loop(4) as i:
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(full, 16)
            k.bulk.load(stages[i, 0:4], src, full)
        k.mbarrier.wait(full, i & 1)


@row("out-of-bounds", "128")
def a_tensor_copy_into_a_stage_that_is_not_aligned(k: Builder, right: bool) -> None:
    k.launch(warps=1)
    src, full = k.tensor("src", f32, (32,)), k.mbarriers("full")
    box = k.tensor_map(src, (32,))
    stages = k.shared("stages", f32, (4, 32 if right else 36))
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.loop(4) as i:
        with k.one_thread():
            k.mbarrier.arrive_expect_tx(full, 128)
            k.tma.load(box, stages[i, 0:32], (0,), full)
        k.mbarrier.wait(full, i & 1)


@row("over-arrival", "with count 0, outside 1..1048575 (A5)")
def a_barrier_that_counts_nothing(k: Builder, right: bool) -> None:
    k.launch(warps=1, grid=2)
    full = k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, k.cta_x + 1 if right else k.cta_x)
    k.sync_threads()


@row("named-barrier", "join named barrier 1 again, or with another count")
def lanes_that_join_with_another_count(k: Builder, right: bool) -> None:
    k.launch(warps=2)
    threads = k.var("threads", 64, u32)
    with k.if_(k.lane_id < 16):
        k.bar.sync(1, threads, aligned=False)
    with k.else_():
        k.bar.sync(1, threads if right else threads - 32, aligned=False)


@row("out-of-bounds", "that are not neighbours in memory: a vector is one piece (H15)")
def a_vector_across_a_swizzle(k: Builder, right: bool) -> None:
    k.launch(warps=1)
    tile = k.shared("tile", bf16, (64, 64), swizzle=128)
    out = k.tensor("out", u32, (32, 4))
    r = [k.var(f"r{i}", 0, u32) for i in range(4)]
    for lane_row in (k.lane_id, k.lane_id + 32):
        for column in range(0, 64, 8):
            k.mem.store_vector(tile[lane_row, column : column + 8], r)
    k.sync_warp()
    first = k.var("first", 4, u32)
    at = first * 2 if right else first
    k.mem.load_vector(r, tile[k.lane_id, ds(at, 8)])
    k.mem.store_vector(out[k.lane_id, 0:4], r)


@row("tmem-lifetime", "while the other CTA of the pair executes tcgen05.alloc")
def a_pair_that_allocates_different_columns(k: Builder, right: bool) -> None:
    k.launch(warps=1, grid=2, cluster=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (1,)), k.var("address", 0, u32)
    k.cluster.sync()
    for rank in range(2):
        columns = 32 if right else 32 << rank
        with k.if_(k.cluster_rank.eq(rank)):
            k.tcgen05.alloc(slot[0], columns, cta_group=2)
    k.mem.load(address, slot[0])
    k.cluster.sync()
    for rank in range(2):
        columns = 32 if right else 32 << rank
        with k.if_(k.cluster_rank.eq(rank)):
            k.tcgen05.dealloc(address, columns, cta_group=2)
    k.tcgen05.relinquish_alloc_permit(cta_group=2)
    k.cluster.sync()


@row("tmem-lifetime", "while another warp of the CTA executes tcgen05.alloc")
def two_warps_that_allocate_for_a_pair(k: Builder, right: bool) -> None:
    k.launch(warps=2, grid=2, cluster=2, target="sm_100a")
    slot, address = k.shared("slot", u32, (2,)), k.var("address", 0, u32)
    k.cluster.sync()
    for warp in range(2):
        with k.if_(k.warp_id.eq(0 if right else warp)):
            k.tcgen05.alloc(slot[warp], 32, cta_group=2)
    k.cluster.sync()
    for warp in range(2):
        with k.if_(k.warp_id.eq(0)):
            k.mem.load(address, slot[warp])
            k.tcgen05.dealloc(address, 32, cta_group=2)
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.relinquish_alloc_permit(cta_group=2)
    k.cluster.sync()


@pytest.mark.parametrize(
    ("rule", "message", "write"), ROWS, ids=lambda x: getattr(x, "__name__", "")
)
def test_it_is_found_and_its_right_twin_is_proved(rule: str, message: str, write: Write) -> None:
    reports = []
    for right in (False, True):
        k = Builder(write.__name__)
        write(k, right)
        reports.append(check(k.finish()))
    wrong, right_one = reports
    assert wrong.verdict == "failed", wrong
    assert (wrong.findings[0].rule, message in wrong.findings[0].message) == (rule, True), wrong
    assert right_one.verdict == "proved", right_one
