"""What a wait brings: the phase that it acquires (U7), what completed in it, on its bytes, and
arrivals that a copy lends; and words that reductions go on from."""

from __future__ import annotations

from tilesim import Builder, kernel, s32, u32
from tilesim.ir.ops.mbarrier import MAX_COUNT


@kernel(warps=1)
def a_later_phase_does_not_bring_an_earlier_one(k: Builder) -> None:
    source, words = k.tensor("source", u32, (2, 4)), k.shared("words", u32, (2, 4))
    full, value = k.mbarriers("full"), k.var("value")
    with k.elected():
        k.mbarrier.init(full, 1)
        k.mbarrier.arrive_expect_tx(full, 16)
        k.bulk.load(words[0], source[0], full)  # error: race
        k.mbarrier.wait(full, 0)  # ok
        k.mbarrier.wait(full, 0, sem="relaxed")  # wrong
        k.mbarrier.arrive_expect_tx(full, 16)
        k.bulk.load(words[1], source[1], full)
        k.mbarrier.wait(full, 1)
        k.mem.load(value, words[1, 0])
        k.mem.load(value, words[0, 0])  # error: race


@kernel(warps=2)
def a_second_life_does_not_bring_the_first_one(k: Builder) -> None:
    source, words = k.tensor("source", u32, (2, 4)), k.shared("words", u32, (2, 4))
    full, value = k.mbarriers("full"), k.var("value")
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.role("loader", 0):
        with k.elected():
            k.mbarrier.arrive_expect_tx(full, 16)
            k.bulk.load(words[0], source[0], full)  # error: race by loader
        k.mbarrier.wait(full, 0)  # ok
        k.mbarrier.wait(full, 0, sem="relaxed")  # wrong
    k.sync_threads()
    with k.one_thread():
        k.mbarrier.inval(full)
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.role("loader", 0), k.elected():
        k.mbarrier.arrive_expect_tx(full, 16)
        k.bulk.load(words[1], source[1], full)
    with k.role("reader", 1):
        k.mbarrier.wait(full, 0)
        k.mem.load(value, words[0, 0])  # error: race by reader
    k.sync_threads()


# strict=ptx
@kernel(warps=1)
def a_wait_of_cluster_scope_brings_its_phase(k: Builder) -> None:
    """At ptx, what a peer's operation has left takes a wait of cluster scope (U4)."""
    k.launch(grid=2, cluster=2)
    source, words = k.tensor("source", u32, (2, 4)), k.shared("words", u32, (2, 4))
    full, ready, value = k.mbarriers("full"), k.mbarriers("ready"), k.var("value", 0, u32)
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(ready, 1)
    k.cluster.sync()
    with k.one_thread(), k.if_(k.cluster_rank.eq(0)):
        k.bulk.load(words[0], source[0], full, multicast=2)  # error: race
        k.mbarrier.wait(ready, 0, scope="cluster")
        k.bulk.load(words[1], source[1], full, multicast=2)
    with k.one_thread(), k.if_(k.cluster_rank.eq(1)):
        k.mbarrier.arrive_expect_tx(full, 16)
        k.mbarrier.wait(full, 0, scope="cluster")  # ok
        k.mbarrier.wait(full, 0, scope="cta")  # wrong
        k.mbarrier.arrive(ready.at(0), scope="cluster")
        k.mbarrier.arrive_expect_tx(full, 16)
        k.mbarrier.wait(full, 1, scope="cluster")
        k.mem.load(value, words[1, 0])
        k.mem.load(value, words[0, 0])  # error: race
    k.cluster.sync()


# strict=ptx
@kernel(warps=1)
def a_wait_of_cluster_scope_brings_a_store_of_its_phase(k: Builder) -> None:
    k.launch(grid=2, cluster=2)
    words, value = k.shared("words", u32, (2,)), k.var("value", 0, u32)
    full, ready = k.mbarriers("full"), k.mbarriers("ready")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(ready, 1)
    k.cluster.sync()
    with k.one_thread(), k.if_(k.cluster_rank.eq(0)):
        k.cluster.st_async(words[0].at(1), 7, full.at(1))  # error: race
        k.mbarrier.wait(ready, 0, scope="cluster")
        k.cluster.st_async(words[1].at(1), 7, full.at(1))
    with k.one_thread(), k.if_(k.cluster_rank.eq(1)):
        k.mbarrier.arrive_expect_tx(full, 4)
        k.mbarrier.wait(full, 0, scope="cluster")  # ok
        k.mbarrier.wait(full, 0, scope="cta")  # wrong
        k.mbarrier.arrive(ready.at(0), scope="cluster")
        k.mbarrier.arrive_expect_tx(full, 4)
        k.mbarrier.wait(full, 1, scope="cluster")
        k.mem.load(value, words[1])
        k.mem.load(value, words[0])  # error: race
    k.cluster.sync()


# strict=ptx
@kernel(warps=2)
def what_a_peer_has_heard_of_comes_with_its_arrival(k: Builder) -> None:
    """A warp of CTA 1 waits for the later of two phases, which CTA 0 ends after it has heard from
    another one, which has waited for the earlier one."""
    k.launch(grid=2, cluster=2)
    words, value = k.shared("words", u32, (2,)), k.var("value", 0, u32)
    full, ready, turn = k.mbarriers("full"), k.mbarriers("ready"), k.mbarriers("turn")
    with k.one_thread():
        for barrier in (full, ready, turn):
            k.mbarrier.init(barrier, 1)
    k.cluster.sync()
    with k.one_thread(), k.if_(k.cluster_rank.eq(0)):
        k.cluster.st_async(words[0].at(1), 7, full.at(1))  # error: race
        k.mbarrier.arrive_expect_tx(full.at(1), 4, scope="cluster")
        k.mbarrier.wait(ready, 0, scope="cluster")
        k.cluster.st_async(words[1].at(1), 7, full.at(1))
        k.mbarrier.arrive_expect_tx(full.at(1), 4, scope="cluster")
    with k.if_(k.cluster_rank.eq(1)):
        with k.one_thread():
            k.mbarrier.wait(full, 0, scope="cluster")  # ok
            k.mbarrier.wait(full, 0, scope="cta")  # wrong
            k.mbarrier.arrive(ready.at(0), scope="cluster")
            k.mbarrier.arrive(turn, sem="relaxed")
        with k.one_thread(1):
            k.mbarrier.wait(turn, 0, sem="relaxed")
            k.mbarrier.wait(full, 1, scope="cluster")
            k.mem.load(value, words[0])  # error: race
    k.cluster.sync()


# strict=ptx
@kernel(warps=1)
def a_release_brings_what_its_thread_did_in_earlier_phases(k: Builder) -> None:
    k.launch(grid=2, cluster=2)
    words, value = k.shared("words", u32, (1,)), k.var("value", 0, u32)
    full, ready = k.mbarriers("full"), k.mbarriers("ready")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(ready, 1)
    k.cluster.sync()
    with k.one_thread(), k.if_(k.cluster_rank.eq(0)):
        k.mem.store(words[0].at(1), 7)  # error: race
        k.mbarrier.arrive(full.at(1), scope="cluster")
        k.mbarrier.wait(ready, 0, scope="cluster")
        k.mbarrier.arrive(full.at(1), scope="cluster")  # ok
        k.mbarrier.arrive(full.at(1), sem="relaxed", scope="cluster")  # wrong
    with k.one_thread(), k.if_(k.cluster_rank.eq(1)):
        k.mbarrier.wait(full, 0, scope="cta")
        k.mbarrier.arrive(ready.at(0), scope="cluster")
        k.mbarrier.wait(full, 1, scope="cluster")
        k.mem.load(value, words[0])  # error: race
    k.cluster.sync()


@kernel(warps=2)
def copies_of_lanes_say_what_they_were_copied_over(k: Builder) -> None:
    """And nothing of other words."""
    done, value, read = k.mbarriers("done"), k.var("value", 0, dtype=u32), 3
    words, source = k.shared("words", u32, (32,)), k.tensor("source", u32, (32,))
    read = 4  # wrong
    with k.one_thread():
        k.mbarrier.init(done, 3)
    k.sync_threads()
    with k.role("copy", 0):
        k.mem.store(words[k.lane_id], 1)  # error: race by copy
        with k.if_(k.lane_id < 3):
            k.cp_async.copy(words[k.lane_id], source[k.lane_id], size=4)
            k.cp_async.mbarrier_arrive(done, noinc=True)
    with k.role("read", 1):
        k.mbarrier.wait(done, 0)
        with k.if_(k.lane_id < read):
            k.mem.load(value, words[k.lane_id])  # error: race by read


@kernel(warps=2)
def a_copy_of_some_lanes_over_what_some_have_stored(k: Builder) -> None:
    done, value, read = k.mbarriers("done"), k.var("value", 0, dtype=u32), 8
    words, source = k.shared("words", u32, (32,)), k.tensor("source", u32, (32,))
    read = 9  # wrong
    with k.one_thread():
        k.mbarrier.init(done, 8)
    k.sync_threads()
    with k.role("copy", 0):
        with k.if_(k.lane_id < 9):
            k.mem.store(words[k.lane_id], 1)  # error: race by copy
        with k.if_(k.lane_id < 8):
            k.cp_async.copy(words[k.lane_id], source[k.lane_id], size=4)
            k.cp_async.mbarrier_arrive(done, noinc=True)
    with k.role("read", 1):
        k.mbarrier.wait(done, 0)
        with k.if_(k.lane_id < read):
            k.mem.load(value, words[k.lane_id])  # error: race by read


@kernel(warps=1)
def more_arrivals_than_a_barrier_counts(k: Builder) -> None:
    """cp.async.mbarrier.arrive without .noinc raises the pending count, which has a range (A3)."""
    b, count = k.mbarriers("b"), MAX_COUNT - 32
    count = MAX_COUNT - 31  # wrong
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, count)  # error: over-arrival by opener
    k.sync_threads()
    with k.role("T0", 0):
        k.cp_async.mbarrier_arrive(b)  # error: over-arrival by T0
        with k.elected():
            k.mbarrier.arrive(b, count)
        k.mbarrier.wait(b, 0)


@kernel(warps=2)
def more_arrivals_in_some_order(k: Builder) -> None:
    """Those of one warp have landed, or not, when the other warp adds its own."""
    b, count = k.mbarriers("b"), MAX_COUNT - 64
    count = MAX_COUNT - 63  # wrong
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, count)  # error: over-arrival by opener
    k.sync_threads()
    with k.role("T0", 0):
        k.cp_async.mbarrier_arrive(b)  # error: over-arrival by T0
    with k.role("T1", 1):
        with k.loop(2000):
            k.sync_warp()
        k.cp_async.mbarrier_arrive(b)  # error: over-arrival by T1
    k.sync_threads()
    with k.role("T0", 0):
        with k.elected():
            k.mbarrier.arrive(b, count)
        k.mbarrier.wait(b, 0)


@kernel(warps=2)
def arrivals_that_come_before_make_room(k: Builder) -> None:
    b, first = k.mbarriers("b"), 32
    first = 31  # wrong
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, MAX_COUNT)  # error: over-arrival by opener
    k.sync_threads()
    with k.role("T1", 1):
        with k.elected():
            k.mbarrier.arrive(b, first)
        k.cp_async.mbarrier_arrive(b)  # error: over-arrival by T1
    k.sync_threads()
    with k.role("T1", 1):
        with k.elected():
            k.mbarrier.arrive(b, MAX_COUNT - first)
        k.mbarrier.wait(b, 0)


@kernel(warps=1)
def a_reduction_into_a_peer_goes_on_from_what_is_there(k: Builder) -> None:
    k.launch(grid=2, cluster=2)
    sums, done = k.shared("sums", s32, (1,)), k.mbarriers("done")
    value, peer = k.var("value", 0, dtype=s32), 1 - k.cluster_rank
    with k.one_thread():
        k.mem.store(sums[0], 0)  # ok
        k.mbarrier.init(done, 1)
    k.cluster.sync()
    with k.elected():
        k.mbarrier.arrive_expect_tx(done, 4)
        to = sums.view().at(peer)[0]
        k.cluster.red_async(to, "add", 1, done[0].at(peer))  # error: uninitialised-read
    k.mbarrier.wait(done, 0, scope="cluster")
    k.mem.load(value, sums[0])
    k.cluster.sync()


@kernel(warps=1)
def a_bulk_reduction_goes_on_from_what_is_there(k: Builder) -> None:
    """For words that are used."""
    k.launch(grid=2, cluster=2)
    out, filled, used = k.tensor("out", u32, (2, 4)), 2, 2
    sums, ones, done = k.shared("sums", u32, (4,)), k.shared("ones", u32, (4,)), k.mbarriers("done")
    value, peer = k.var("value", 0, dtype=u32), 1 - k.cluster_rank
    filled = 0  # wrong 1
    used = 4  # wrong 2
    with k.one_thread():
        k.mbarrier.init(done, 1)
    with k.if_(k.lane_id < 4):
        k.mem.store(ones[k.lane_id], 1)
    with k.if_(k.lane_id < filled):
        k.mem.store(sums[k.lane_id], 0)
    k.fence.proxy_async()
    k.cluster.sync()
    with k.elected():
        k.mbarrier.arrive_expect_tx(done, 16)
        to = sums.at(peer)
        k.bulk.reduce_peer(to, ones, done.at(peer), "max")  # error 1 2: uninitialised-read
    k.mbarrier.wait(done, 0, scope="cluster")
    with k.if_(k.lane_id < used):
        k.mem.load(value, sums[k.lane_id])
        k.mem.store(out[k.cluster_rank, k.lane_id], value)
    k.cluster.sync()
