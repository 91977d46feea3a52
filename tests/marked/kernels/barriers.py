"""mbarriers: who knows of their initialisation and their end, whose tokens they take, and what is
handed over by words that are stored to twice."""

from __future__ import annotations

from tilesim import Builder, kernel, s32, u32, u64


@kernel(warps=2)
def a_fence_hands_over_an_initialisation(k: Builder) -> None:
    """That its thread made before it, by what this publishes after it (A7, D6): it stands before
    the initialisation, is of another warp, of another lane, or stands behind the arrival."""
    k.launch(grid=2, cluster=2)
    b = k.mbarriers("b")
    with k.one_thread():
        k.fence.mbarrier_init()  # wrong 2
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)  # error 1 2 3 4 5: init-visibility by opener
        k.fence.mbarrier_init()  # ok 1 2 3 4 5
    with k.one_thread(1):
        k.fence.mbarrier_init()  # wrong 3
    with k.role("fencing", 0), k.if_(k.lane_id.eq(7)):
        k.fence.mbarrier_init()  # wrong 4
    k.cluster.arrive(sem="relaxed")
    with k.one_thread():
        k.fence.mbarrier_init()  # wrong 5
    k.cluster.wait()
    with k.role("other", 0), k.if_(k.cluster_rank.eq(1)), k.elected():
        k.mbarrier.arrive(b.at(0), scope="cluster")  # error 1 2 3 4 5: init-visibility by other
    k.cluster.sync()


@kernel(warps=2)
def a_release_hands_over_an_initialisation(k: Builder) -> None:
    """Or a fence of the whole warp."""
    k.launch(grid=2, cluster=2)
    b = k.mbarriers("b", 2)
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b[0], 1)  # error 2: init-visibility by opener
        k.mbarrier.init(b[1], 1)
    k.fence.mbarrier_init()  # ok 2
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()
    with k.role("other", 0), k.if_(k.cluster_rank.eq(1)), k.elected():
        k.mbarrier.arrive(b[0].at(0), scope="cluster")  # error 2: init-visibility by other
    with k.role("opener", 0), k.elected():
        k.mbarrier.inval(b[1])  # wrong
        k.mbarrier.init(b[1], 1)  # wrong, error: init-visibility by opener
    k.cluster.arrive(sem="release")  # ok
    k.cluster.arrive(sem="relaxed")  # wrong
    k.cluster.wait()
    with k.role("other", 0), k.if_(k.cluster_rank.eq(1)), k.elected():
        k.mbarrier.arrive(b[1].at(0), scope="cluster")  # error: init-visibility by other
    k.cluster.sync()


@kernel(warps=2)
def a_fence_covers_the_initialisations_before_it(k: Builder) -> None:
    k.launch(grid=2, cluster=2)
    b = k.mbarriers("b", 2)
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b[0], 1)
        k.mbarrier.init(b[1], 1)  # ok
        k.fence.mbarrier_init()
        k.mbarrier.init(b[1], 1)  # wrong, error: init-visibility by opener
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()
    with k.role("other", 0), k.if_(k.cluster_rank.eq(1)), k.elected():
        k.mbarrier.arrive(b[0].at(0), scope="cluster")
        k.mbarrier.arrive(b[1].at(0), scope="cluster")  # error: init-visibility by other
    k.cluster.sync()


@kernel(warps=2)
def a_fence_hands_over_nothing_but_initialisations(k: Builder) -> None:
    k.launch(grid=2, cluster=2)
    b, x, y = k.mbarriers("b"), k.tensor("x", s32, (2,)), k.var("y")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
        k.mem.store(x[k.cluster_rank], 1)  # error: race by opener
        k.fence.mbarrier_init()
        k.fence.memory("acq_rel", "cluster")  # ok
    k.cluster.arrive(sem="relaxed")
    k.cluster.wait()
    with k.role("other", 1), k.elected():
        k.mem.load(y, x[1 - k.cluster_rank])  # error: race by other
        k.mbarrier.arrive(b.at(1 - k.cluster_rank), scope="cluster")
    k.cluster.sync()


@kernel(warps=3)
def an_initialisation_is_known_through_others(k: Builder) -> None:
    k.launch(grid=2, cluster=2)
    b, go = k.mbarriers("b"), k.mbarriers("go")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.init(go, 1)  # error: init-visibility by opener
        k.fence.mbarrier_init()
    k.cluster.arrive(sem="relaxed")
    with k.role("first", 0):
        k.cluster.wait()
        with k.elected():
            k.mbarrier.arrive(go)
    with k.role("second", 1):
        k.cluster.wait()  # ok
        with k.elected():
            k.mbarrier.wait(go, 0)  # error: init-visibility by second
            k.mbarrier.arrive(b.at(1 - k.cluster_rank), scope="cluster")
        k.cluster.wait()  # wrong
    with k.role("third", 2):
        k.cluster.wait()
    k.cluster.sync()


@kernel(warps=3)
def a_wait_that_comes_before_the_end_in_time_only(k: Builder) -> None:
    """mbarrier.inval is a write: what was done with the barrier happens before it."""
    b, told = k.mbarriers("b"), k.mbarriers("told")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.init(told, 1)
    k.sync_threads()
    with k.role("user", 1), k.elected():
        k.mbarrier.wait(b, 0)  # error: barrier-lifetime by user
        k.mbarrier.arrive(told)  # ok
        k.mbarrier.arrive(told, sem="relaxed")  # wrong
    with k.role("ender", 2), k.elected():
        k.mbarrier.arrive(b)
        k.mbarrier.wait(told, 0)
        k.mbarrier.inval(b)  # error: barrier-lifetime by ender


@kernel(warps=2)
def arrivals_that_the_warp_has_waited_for_come_before_the_end(k: Builder) -> None:
    b = k.mbarriers("b")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    with k.role("user", 0), k.elected():
        k.mbarrier.arrive(b)  # error: barrier-lifetime by user
    with k.role("ender", 1), k.elected():
        k.mbarrier.wait(b, 0, sem="relaxed")  # ok
        k.mbarrier.inval(b)  # error: barrier-lifetime by ender


@kernel(warps=1)
def a_barrier_ends_once(k: Builder) -> None:
    """Each lane ends it, which all but the first of them find ended (A6)."""
    b, lanes = k.mbarriers("b"), 1
    lanes = 2  # wrong 1
    lanes = 32  # wrong 2
    with k.elected():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    with k.if_(k.lane_id < lanes):
        k.mbarrier.inval(b)  # error 1 2: barrier-lifetime


@kernel(warps=1)
def a_token_of_another_barrier(k: Builder) -> None:
    """A19: by each instruction that returns one."""
    b, t, other, done = k.mbarriers("b", 6), k.var("t"), k.var("other"), k.var("done")
    with k.role("T0", 0), k.elected():
        for number in range(6):
            k.mbarrier.init(b[number], 1)
        k.mbarrier.arrive(b[0], token=t)
        k.mbarrier.arrive(b[1], token=other)  # error 1: phase-alias
        k.assign(t, other)  # wrong 1
        k.mbarrier.wait(b[0], token=t)  # error 1: phase-alias
        k.mbarrier.arrive_drop(b[2], token=t)
        k.mbarrier.arrive_drop(b[3], token=other)  # error 2: phase-alias
        k.assign(t, other)  # wrong 2
        k.mbarrier.try_wait(done, b[2], token=t)  # error 2: phase-alias
        k.mbarrier.arrive_expect_tx(b[4], 0, token=t)
        k.mbarrier.arrive_expect_tx(b[5], 0, token=other)  # error 3: phase-alias
        k.assign(t, other)  # wrong 3
        k.mbarrier.wait(b[4], token=t)  # error 3: phase-alias


@kernel(warps=1)
def a_token_of_an_earlier_life(k: Builder) -> None:
    """Where its phase would do (A20)."""
    b, t = k.mbarriers("b"), k.var("t")
    with k.role("T0", 0), k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.arrive(b, token=t)  # error: phase-alias
        k.mbarrier.wait(b, token=t)
        k.mbarrier.inval(b)
        k.mbarrier.init(b, 1)
        k.mbarrier.arrive(b, token=t)  # ok
        k.mbarrier.arrive(b)  # wrong
        k.mbarrier.wait(b, token=t)  # error: phase-alias


@kernel(warps=1)
def a_number_that_stands_for_no_phase(k: Builder) -> None:
    """Tokens are passed on in registers."""
    b, t, copy = k.mbarriers("b"), k.var("t"), k.var("copy")
    with k.role("T0", 0), k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.arrive(b, token=t)
        k.assign(copy, t)
        k.assign(copy, t * 0)  # wrong 1
        k.assign(copy, t + 1)  # wrong 2
        k.assign(copy, t ^ 1)  # wrong 3
        k.mbarrier.wait(b, token=copy)  # error 1 2 3: phase-alias


@kernel(warps=2)
def a_token_in_memory(k: Builder) -> None:
    """Another warp waits with it, for its own CTA's barrier or for the same one of the peer."""
    k.launch(grid=2, cluster=2)
    b, handed = k.mbarriers("b"), k.shared("handed", u64, (1,))
    t, y, other = k.var("t"), k.var("y", dtype=u64), 0
    other = 1  # wrong
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 1)
    k.cluster.sync()
    with k.role("T0", 0), k.elected():
        k.mbarrier.arrive(b, token=t)  # error: phase-alias by T0
        k.mem.store(handed.at(k.cluster_rank ^ other)[0], t)
    k.cluster.sync()
    with k.role("T1", 1), k.elected():
        k.mem.load(y, handed[0])
        k.mbarrier.wait(b, token=y)  # error: phase-alias by T1
    k.cluster.sync()


@kernel(warps=1)
def lanes_of_one_instruction_arrive_in_one_phase(k: Builder) -> None:
    """Of a count of 10 they would end three: an H200 adds up their arrivals and traps (A32)."""
    b, t, count = k.mbarriers("b"), k.var("t"), 32
    count = 10  # wrong
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, count)
    k.sync_threads()
    with k.role("W0", 0):
        k.mbarrier.arrive(b, token=t)  # error: over-arrival
        k.mbarrier.wait(b, token=t)


# right=exhausted
@kernel(warps=1)
def the_pending_count_of_something_else(k: Builder) -> None:
    """It takes the token of a .noComplete arrive."""
    b, t, n, whole = k.mbarriers("b"), k.var("t"), k.var("n"), False
    whole = True  # wrong 1
    with k.role("T0", 0), k.elected():
        k.mbarrier.init(b, 3)
        k.mbarrier.arrive(b, token=t, no_complete=not whole)  # error 1: phase-alias
        k.assign(t, t + 1)  # wrong 2
        k.mbarrier.pending_count(n, t)  # error 1 2: phase-alias


@kernel(warps=2)
def a_later_store_hands_over_what_its_thread_has_released(k: Builder) -> None:
    """Warp 1 waits for the second of two stores to a flag (H3): what no release precedes, what
    comes behind it, and what another lane has released is not handed over."""
    data, value, read, lane = k.shared("data", u32, (2,)), k.var("value", 0, dtype=u32), 0, 0
    flag = k.tensor("flag", u32, (1,))
    read = 1  # wrong 2
    lane = 1  # wrong 3
    with k.role("tells", 0):
        with k.if_(k.lane_id.eq(0)):
            k.mem.store(data[0], 7)  # error 1 3: race by tells
            k.mem.store(flag[0], 1, sem="release", scope="gpu")  # ok
            k.mem.store(flag[0], 1, sem="relaxed", scope="gpu")  # wrong
            k.mem.store(data[1], 8)  # error 2: race by tells
        with k.if_(k.lane_id.eq(lane)):
            k.mem.store(flag[0], 2, sem="relaxed", scope="gpu")
    with k.role("waits", 1), k.if_(k.lane_id.eq(0)):
        with k.while_(value < 2):
            k.mem.load(value, flag[0], sem="acquire", scope="gpu")
        k.mem.load(value, data[read])  # error 1 2 3: race by waits


@kernel(warps=1)
def both_stores_have_the_reader_in_their_scope(k: Builder) -> None:
    k.launch(grid=2, cooperative=True)
    data, flag = k.tensor("data", u32, (1,)), k.tensor("flag", u32, (1,))
    value = k.var("value", 0, dtype=u32)
    with k.if_(k.lane_id.eq(0)):
        with k.if_(k.cta_x.eq(0)):
            k.mem.store(data[0], 7)  # error: race
            k.mem.store(flag[0], 1, sem="release", scope="gpu")  # ok
            k.mem.store(flag[0], 1, sem="release", scope="cta")  # wrong, error: race
            k.mem.store(flag[0], 2, sem="relaxed", scope="gpu")
        with k.else_():
            with k.while_(value < 2):
                k.mem.load(value, flag[0], sem="acquire", scope="gpu")  # error: race
            k.mem.load(value, data[0])  # error: race


@kernel(warps=2)
def of_lanes_that_store_at_one_place_any_may_stay(k: Builder) -> None:
    """One lane has released there before; what a reader finds may be another one's (H3)."""
    data, flag = k.shared("data", u32, (1,)), k.tensor("flag", u32, (1,))
    value, stored = k.var("value", 0, dtype=u32), 1
    stored = 2  # wrong
    with k.role("tells", 0):
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mem.store(data[0], 7)  # error: race by tells
            k.mem.store(flag[0], 1, sem="release", scope="gpu")
        with k.if_(k.lane_id < stored, sync=False):
            k.mem.store(flag[0], 2, sem="relaxed", scope="gpu")
    with k.role("waits", 1), k.if_(k.lane_id.eq(0)):
        with k.while_(value < 2):
            k.mem.load(value, flag[0], sem="acquire", scope="gpu")
        k.mem.load(value, data[0])  # error: race by waits
