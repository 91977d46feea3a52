"""Accesses count by bytes: strides that overlap, steps of tensor maps, parts that were not read,
and strong accesses of different sizes. These programs are not in LITMUS.md."""

from __future__ import annotations

from typing import Literal

from tilesim import Builder, f16, f32, u16, u32, u64
from tilesim.arith.types import DType

from .notation import begin, thread
from .table import completes, defect, fails, row
from .tcgen05 import FREED

Space = Literal["shared::cta", "shared::cluster"] | None


@row("LI01", fails(defect("race", T0="k.mem.store(y[0, k.lane_id], 0)",
                          T1="k.mem.store(y[1, k.lane_id], 1)")), strides=(16, 1))  # fmt: skip
@row("LI01-apart", completes(y=[[0] * 32, [1] * 32]), strides=(32, 1))
@row("LI01-turned", completes(y=[[0] * 32, [1] * 32]), strides=(1, 2))
def rows_of_a_tensor(k: Builder, *, strides: tuple[int, int]) -> None:
    """Two warps write a row each; rows of 32 elements 16 apart share half of their bytes."""
    k.launch(warps=2)
    y = k.tensor("y", u32, (2, 32), strides)
    with k.role("T0", 0):
        k.mem.store(y[0, k.lane_id], 0)
    with k.role("T1", 1):
        k.mem.store(y[1, k.lane_id], 1)


@row("LI02", fails(defect("race", T0="k.tile.store(y, part)")), stride=0)
@row("LI02-apart", completes(y=[[1] * 32] * 2), stride=32)
def rows_of_one_store(k: Builder, *, stride: int) -> None:
    """One store of rows that are all at the same place."""
    k.launch(warps=1)
    y, part = k.tensor("y", f32, (2, 32), (stride, 1)), k.fragment("part", f32, (2, 32))
    with k.role("T0", 0):
        k.tile.fill(part, 1)
        k.tile.store(y, part)


@row(
    "LI03",
    fails(
        defect(
            "race",
            T0="k.tma.store(every_second, tile, (0, 0))",
            T1="k.tma.store(every_second, tile, (second, 0))",
        )
    ),
    second=2,
)
@row("LI03-between", completes(y=[[1] * 16] * 8), second=1)
def every_second_row(k: Builder, *, second: int) -> None:
    """Two boxes of every second row: they interleave, or share rows."""
    k.launch(warps=2)
    y, tile = k.tensor("y", f32, (8, 16)), k.shared("tile", f32, (4, 16))
    every_second = k.tensor_map(y, (8, 16), element_strides=(2, 1))
    with k.if_(k.thread_id < 16), k.loop(4) as i:
        k.mem.store(tile[i, k.thread_id], 1)
    k.fence.proxy_async()
    k.sync_threads()
    with thread(k, 0):
        k.tma.store(every_second, tile, (0, 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    with thread(k, 1):
        k.tma.store(every_second, tile, (second, 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0)


@row("LI04", fails(defect("race", T0=("k.tma.load(map_a, a, (0, 0), full)", "# again")),
                   also=("async-at-exit", *FREED)), slices=1)  # fmt: skip
@row("LI04-all", completes(), slices=2)
def refill_what_was_multiplied(k: Builder, *, slices: int) -> None:
    """A stage that TMA filled comes back by tcgen05.commit alone: what the products did not read
    has no place in that."""
    k.launch(warps=2, target="sm_100a")
    ga, gb = k.tensor("ga", f16, (128, 32)), k.tensor("gb", f16, (64, 32))
    a, b = k.shared("a", f16, (128, 32), swizzle=64), k.shared("b", f16, (64, 32), swizzle=64)
    map_a = k.tensor_map(ga, (128, 32), swizzle=64)
    map_b = k.tensor_map(gb, (64, 32), swizzle=64)
    slot, address = k.shared("slot", u32, (1,)), k.var("address")
    full, empty, done = k.mbarriers("full"), k.mbarriers("empty"), k.mbarriers("done")
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.alloc(slot, 64)
    begin(k, (full, 1), (empty, 1), (done, 1))
    k.mem.load(address, slot[0])
    d = k.tcgen05.tensor(address, f32, (128, 64), name="d")
    with thread(k, 0):
        k.mbarrier.arrive_expect_tx(full, map_a.box_bytes + map_b.box_bytes)
        k.tma.load(map_a, a, (0, 0), full)
        k.tma.load(map_b, b, (0, 0), full)
        k.mbarrier.wait(empty, 0)
        k.mbarrier.arrive_expect_tx(done, map_a.box_bytes)
        k.tma.load(map_a, a, (0, 0), done)  # again
        k.mbarrier.wait(done, 0)
    with thread(k, 1):
        k.mbarrier.wait(full, 0)
        for n in range(slices):
            columns = slice(16 * n, 16 * n + 16)
            k.tcgen05.mma(d, a[:, columns], b[:, columns], accumulate=n > 0)
        k.tcgen05.commit(empty)
        k.mbarrier.wait(empty, 0)
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    with k.if_(k.warp_id.eq(0)):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 64)


@row("LI05", fails(defect("race", T0="k.mem.store(x[0], 1, sem", T1="k.mem.load(r, y[0], sem")),
     other=u64, offset=0)  # fmt: skip
@row("LI05-part", fails(defect("race", T0="k.mem.store(x[0], 1, sem",
                               T1="k.mem.load(r, y[0], sem")), other=u16, offset=2)  # fmt: skip
@row("LI05-beside", completes(), other=u32, offset=4)
@row("LI05-same", completes(verdicts=("bounded", "proved", "exhausted"),
                            note="what the load sees depends on the schedule"),
     other=u32, offset=0)  # fmt: skip
def strong_accesses_of_two_sizes(k: Builder, *, other: DType, offset: int) -> None:
    """Strong accesses are only safe against each other where they access one and the same word."""
    k.launch(warps=2)
    x, y = k.shared("x", u32, (2,), offset=0), k.shared("y", other, (1,), offset=offset, align=2)
    r = k.var("r", dtype=other)
    begin(k, zero=[x])
    with thread(k, 0):
        k.mem.store(x[0], 1, sem="relaxed", scope="cta")
    with thread(k, 1):
        k.mem.load(r, y[0], sem="relaxed", scope="cta")


@row("LI06", fails(defect("race", T0="k.mem.atomic(count[0], ", T1="k.mem.load(r, low[0], sem")),
     other=u16)  # fmt: skip
@row("LI06-same", completes(out=[7], verdicts=("exhausted",), note="not seen as a counter"),
     other=u32)  # fmt: skip
def a_counter_by_two_names(k: Builder, *, other: DType) -> None:
    """A flag that is raised as a word, and polled as its lower half."""
    k.launch(warps=2)
    count, low = k.shared("count", u32, (1,), offset=0), k.shared("low", other, (1,), offset=0)
    data, out = k.shared("data", u32, (1,), offset=128), k.tensor("out", u32, (1,))
    r, value = k.var("r", dtype=other), k.var("value", dtype=u32)
    begin(k, zero=[count])
    with thread(k, 0):
        k.mem.store(data[0], 7)
        k.mem.atomic(count[0], "add", 1, sem="release", scope="cta")
    with thread(k, 1):
        k.assign(r, 0)
        with k.while_(r < 1):
            k.mem.load(r, low[0], sem="acquire", scope="cta")
        k.mem.load(value, data[0])
        k.mem.store(out[0], value)


@row("LI09", completes(), then="same")
@row("LI09-sync", completes(), then="turned", sync=True)
@row(
    "LI09-turned", fails(defect("race", W=("k.tile.store(s", "k.tile.load(turned"))), then="turned"
)
@row("LI09-row", fails(defect("race", W=("k.tile.store(s", "k.tile.load(means"))), then="row")
@row("LI09-copied", fails(defect("race", W=("k.tile.store(s", "k.bulk.store("))), then="copied")
@row("LI09-copied-sync", completes(), then="copied", sync=True)
def lanes_touch_what_they_hold_of_a_tile(
    k: Builder, *, then: Literal["same", "turned", "row", "copied"], sync: bool = False
) -> None:
    """Lane c % 32 has column c; what it has written another one may read after a meeting."""
    k.launch(warps=1)
    s, out = k.shared("s", f32, (33, 32), offset=0), k.tensor("out", f32, (32, 32))
    beside = k.shared("beside", f32, (1, 32), offset=4, align=4)
    tile, turned = k.fragment("tile", f32, (32, 32)), k.fragment("turned", f32, (1, 32))
    means = k.fragment("means", f32, (32, 1))
    with k.role("W", 0):
        k.tile.fill(tile, 1.0)
        k.tile.store(s[:32], tile)
        k.fence.proxy_async()
        if sync and then != "copied":
            k.sync_warp()
        if then == "same":
            k.tile.load(tile, s[:32])
        if then == "turned":
            k.tile.load(turned, beside)
        if then == "row":
            k.tile.load(means, s[:32, 4:5])
        if then == "copied":
            with k.elected(sync=sync):
                k.bulk.store(out, s[:32])
                k.bulk.commit_group()
                k.bulk.wait_group(0)


@row("LI10", completes(), columns=64)
@row("LI10-column", fails(defect("race", WG=("k.tile.store(s", "k.tile.load(part"))), columns=1)
@row("LI10-sync", completes(), columns=1, sync=True)
def lanes_touch_what_they_hold_of_a_tile_of_a_warpgroup(
    k: Builder, *, columns: int, sync: bool = False
) -> None:
    """The four lanes of a row hold two columns of eight each, and all of them a sum of the row."""
    k.launch(warps=4)
    s = k.shared("s", f32, (64, 64))
    tile, part = (k.fragment(n, f32, (64, c), "warpgroup") for n, c in (("t", 64), ("p", columns)))
    with k.role("WG", range(4)):
        k.tile.fill(tile, 1.0)
        k.tile.store(s, tile)
        if sync:
            k.sync_warp()
        k.tile.load(part, s[:, :columns])


#: the places of fences in `store_that_a_peer_sends`
Place = Literal["writer", "owner", "release", "none"]
_BOTH = defect("proxy-fence", CTA1="k.mem.store(buffer.at(0)", CTA0="k.bulk.store(y, buffer)")


@row("LI07-none", fails(_BOTH), place="none", space=None)
@row("LI07-own", fails(_BOTH), place="writer", space="shared::cta")
@row("LI07-half", fails(_BOTH), place="release", space=None)
@row("LI07-cluster", completes(y=[5] * 32), place="writer", space="shared::cluster")
@row("LI07-all", completes(y=[5] * 32), place="writer", space=None)
@row("LI07-owner", completes(y=[5] * 32), place="owner", space="shared::cta")
def store_that_a_peer_sends(k: Builder, *, place: Place, space: Space) -> None:
    """CTA 1 writes CTA 0's shared memory, CTA 0 sends it on: a fence for ``shared::cta`` is about
    the memory of the CTA that executes it."""
    k.launch(warps=2, grid=2, cluster=2)
    y, buffer, ready = k.tensor("y", u32, (32,)), k.shared("buffer", u32, (32,)), k.mbarriers("b")
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.init(ready, 32)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.role("CTA1", 0), k.if_(k.cluster_rank.eq(1)):
        k.mem.store(buffer.at(0)[k.lane_id], 5)
        if place == "writer":
            k.fence.proxy_async(space)
        if place == "release":
            k.fence.proxy_async_generic("release")
        k.mbarrier.arrive(ready.at(0), scope="cluster")
    with k.role("CTA0", 1), k.if_(k.cluster_rank.eq(0)):
        k.mbarrier.wait(ready, 0, scope="cluster")
        if place == "owner":
            k.fence.proxy_async(space)
        if place == "release":
            k.fence.proxy_async_generic("acquire")
        with k.elected():
            k.bulk.store(y, buffer)
            k.bulk.commit_group()
            k.bulk.wait_group(0)
    k.cluster.sync()


@row("LI08", fails(defect("proxy-fence", CTA0="k.mem.store(buffer[", CTA1="# over")),
     space=None)  # fmt: skip
@row("LI08-own", completes(), space="shared::cta")
def store_that_a_peer_overwrites(k: Builder, *, space: Space) -> None:
    """CTA 0 writes its own shared memory and fences that, CTA 1 copies over it."""
    k.launch(warps=2, grid=2, cluster=2)
    buffer, source = k.shared("buffer", u32, (32,)), k.shared("source", u32, (32,))
    other = k.shared("other", u32, (32,))
    peeked, ready, full = k.var("peeked", dtype=u32), k.mbarriers("b"), k.mbarriers("full")
    with k.if_(k.thread_id.eq(0)):
        k.mbarrier.init(ready, 32)
        k.mbarrier.init(full, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.role("CTA0", 0), k.if_(k.cluster_rank.eq(0)):
        k.mem.store(other[k.lane_id], 4)
        k.mem.store(buffer[k.lane_id], 5)
        if space is not None:
            k.fence.proxy_async(space)
        k.mbarrier.arrive(ready.at(1), scope="cluster")
        with k.elected():
            k.mbarrier.arrive_expect_tx(full, 128)
        k.mbarrier.wait(full, 0, scope="cluster")
    with k.role("CTA1", 1), k.if_(k.cluster_rank.eq(1)):
        k.mem.store(source[k.lane_id], 6)
        k.fence.proxy_async()
        k.sync_warp()
        k.mbarrier.wait(ready, 0, scope="cluster")
        k.mem.load(peeked, other.at(0)[k.lane_id])
        with k.elected():
            k.bulk.copy(buffer.at(0), source, full.at(0))  # over
    k.cluster.sync()
