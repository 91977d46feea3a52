"""Pairs of programs for the level `ptx`: the wrong one keeps the rules at `practice` only.

A switch of docs/semantics.md, or, of E12, what depends on which lane is elected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tests.kernel.programs import (
    Program,
    allocates,
    columns_of_a_pair,
    copied,
    copies_of_lanes,
    copies_over_the_word,
    cta,
    ends,
    frees,
    frees_of_a_pair,
    wrong,
)
from tests.litmus.notation import begin, global_words, thread, words
from tests.litmus.tcgen05 import finish, scaled, setup
from tilesim import Builder, f32, pred, u8, u32
from tilesim.ir.declarations import Mbarriers, SharedTensor
from tilesim.ir.expr import Var
from tilesim.ir.ops.bar import ElectSync

_Scope = Literal["cta", "cluster"]


def wrong_by_the_text(
    rule: str, *, breaks: str = "", not_covered: str = ""
) -> Callable[[Program], Program]:
    """Decorator: the program breaks this rule at `ptx`, and none at `practice`; see `Pair`."""
    return wrong(rule, breaks=breaks, not_covered=not_covered, strict="ptx")


# ---------------------------------------------------------------------- mbarriers


@wrong_by_the_text("U1")
def an_arrival_of_a_phase_before_which_nothing_has_waited(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with k.elected():
        k.mbarrier.arrive(b)
        if right:
            k.mbarrier.wait(b, 0)
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 1)


@wrong_by_the_text("U1")
def a_commit_that_arrives_in_a_phase_before_which_nothing_has_waited(
    k: Builder, *, right: bool
) -> None:
    b = k.mbarriers("b")
    s = setup(k, (b, 1))
    with thread(k, 4):
        k.mbarrier.arrive(b)
        if right:
            k.mbarrier.wait(b, 0)
        k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
        k.tcgen05.commit(b)
        k.mbarrier.wait(b, 1)
        k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


@wrong_by_the_text("A6-order", not_covered="in time only")
def an_end_of_an_mbarrier_behind_a_vote(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, r = k.mbarriers("b"), k.var("r", dtype=u32)
    begin(k, (b, 32))
    k.mbarrier.arrive(b)
    k.mbarrier.wait(b, 0)
    k.warp.ballot(r, k.lane_id.eq(0))
    if right:
        k.sync_warp()
    with k.if_(k.lane_id.eq(0)):
        k.mbarrier.inval(b)


@wrong_by_the_text("A21")
def a_parity_of_two(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, parity = k.mbarriers("b"), k.var("parity", 0 if right else 2)
    begin(k, (b, 1))
    with thread(k, 0):
        k.mbarrier.arrive(b)
        k.mbarrier.wait(b, parity)


@wrong_by_the_text("I")
def a_commit_that_may_arrive_when_its_own_cta_has_ended(k: Builder, *, right: bool) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    with thread(k, 4):
        k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
        k.tcgen05.commit(done)
        k.tcgen05.commit(b)
    k.mbarrier.wait(done, 0)
    if right:
        k.mbarrier.wait(b, 0)
    k.tcgen05.fence_after_thread_sync()
    finish(k, s.address)


@wrong_by_the_text("I")
def an_arrival_of_cp_async_that_may_come_when_its_cta_has_ended(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4)
    begin(k, (b, 1))
    with thread(k, 0):
        k.cp_async.copy(d, g)
        k.cp_async.mbarrier_arrive(b, noinc=True)
        k.cp_async.wait_all()
        if right:
            k.mbarrier.wait(b, 0)


@wrong_by_the_text("B-last")
def an_arrival_of_cp_async_in_a_phase_that_stays_open(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, d, g = k.mbarriers("b"), words(k, "d", 4), global_words(k, "g", 4)
    begin(k, (b, 1))
    with thread(k, 0):
        k.cp_async.copy(d, g)
        k.cp_async.mbarrier_arrive(b)
        k.cp_async.wait_all()
        if right:
            k.mbarrier.arrive(b)
            k.mbarrier.wait(b, 0)


# ---------------------------------------------------------------------- pairs of CTAs (G9)


@wrong_by_the_text("G9", breaks="deadlock")
def a_permit_that_one_cta_of_a_pair_gives_up_before_a_barrier(k: Builder, *, right: bool) -> None:
    address = columns_of_a_pair(k)
    for rank in range(2):
        with k.if_(k.cluster_rank.eq(rank)):
            if rank and not right:
                k.cluster.sync()
            k.tcgen05.relinquish_alloc_permit(cta_group=2)
            if right or not rank:
                k.cluster.sync()
    frees_of_a_pair(k, address)


# ---------------------------------------------------------------------- scopes (U4)


def _pair(k: Builder) -> None:
    k.launch(warps=1, grid=2, cluster=2)


def _stores_to_a_peer(
    k: Builder, *, arrives: _Scope = "cluster", waits: _Scope = "cluster",
    fences: Literal["before", "behind"] | None = None,
) -> None:  # fmt: skip
    """CTA 1 stores to CTA 0, which reads it, by an arrival and a wait of these scopes; with a fence
    before the arrival, or behind the wait, that one is relaxed."""
    _pair(k)
    x, b, r = words(k, "x"), k.mbarriers("b"), k.var("r")
    begin(k, (b, 1), zero=[x])
    k.cluster.sync()
    with cta(k, 1):
        k.mem.store(x.view().at(0)[0], 1)
        if fences == "before":
            k.fence.memory("acq_rel", "cluster")
        k.mbarrier.arrive(
            b[0].at(0), sem="relaxed" if fences == "before" else "release", scope=arrives
        )
    with cta(k, 0):
        k.mbarrier.wait(b, 0, sem="relaxed" if fences == "behind" else "acquire", scope=waits)
        if fences == "behind":
            k.fence.memory("acq_rel", "cluster")
        k.mem.load(r, x[0])
    k.cluster.sync()


@wrong_by_the_text("H6")
def a_store_that_an_arrival_of_scope_cta_hands_to_a_peer(k: Builder, *, right: bool) -> None:
    _stores_to_a_peer(k, arrives="cluster" if right else "cta")


@wrong_by_the_text("H6")
def a_store_of_a_peer_that_a_wait_of_scope_cta_takes(k: Builder, *, right: bool) -> None:
    _stores_to_a_peer(k, waits="cluster" if right else "cta")


@wrong_by_the_text("H6")
def a_fence_before_an_arrival_of_scope_cta_at_a_peer(k: Builder, *, right: bool) -> None:
    _stores_to_a_peer(k, arrives="cluster" if right else "cta", fences="before")


@wrong_by_the_text("H6")
def a_fence_behind_a_wait_of_scope_cta_for_a_peer(k: Builder, *, right: bool) -> None:
    _stores_to_a_peer(k, waits="cluster" if right else "cta", fences="behind")


@wrong_by_the_text("H6")
def a_copy_of_a_peer_that_a_wait_of_scope_cta_takes(k: Builder, *, right: bool) -> None:
    _pair(k)
    d, g = words(k, "d", 4), global_words(k, "g", 4)
    b, r = k.mbarriers("b"), k.var("r")
    begin(k, (b, 1))
    with k.elected():
        k.mbarrier.arrive_expect_tx(b, 16)
    k.cluster.sync()
    with cta(k, 1):
        k.bulk.load(d, g, b, multicast=3)
    with cta(k, 1):
        k.mbarrier.wait(b, 0)
    with cta(k, 0):
        k.mbarrier.wait(b, 0, scope="cluster" if right else "cta")
        k.mem.load(r, d[0])
    k.cluster.sync()


@wrong_by_the_text("H6")
def a_remote_store_that_a_wait_of_scope_cta_takes(k: Builder, *, right: bool) -> None:
    _pair(k)
    d, b, r = words(k, "d"), k.mbarriers("b"), k.var("r")
    begin(k, (b, 1))
    k.cluster.sync()
    with cta(k, 1):
        k.cluster.st_async(d.view().at(0)[0], 1, b[0].at(0))
    with cta(k, 0):
        k.mbarrier.arrive_expect_tx(b, 4)
        k.mbarrier.wait(b, 0, scope="cluster" if right else "cta")
        k.mem.load(r, d[0])
    k.cluster.sync()


# ---------------------------------------------------------------------- proxies


@wrong_by_the_text("H6")
def a_copy_over_what_was_read_without_a_proxy_fence(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x, g, b, r = words(k, "x", 4), global_words(k, "g", 4), k.mbarriers("b"), k.var("r")
    begin(k, (b, 1), zero=[x])
    with k.elected():
        k.mem.load(r, x[0])
        if right:
            k.fence.proxy_async()
        k.mbarrier.arrive_expect_tx(b, 16)
        k.bulk.load(x, g, b)
        k.mbarrier.wait(b, 0)


def _copied_on(
    k: Builder, *, fence: bool, space: Literal["shared::cta"] | None = None, by_mbarrier: bool
) -> None:
    """A copy of cp.async that is stored by a bulk copy; ``fence``: one between the two."""
    k.launch(warps=1)
    d, g, out = words(k, "d", 4), global_words(k, "g", 4), global_words(k, "out", 4)
    b = k.mbarriers("b")
    begin(k, (b, 1))
    with k.elected():
        k.cp_async.copy(d, g)
        if by_mbarrier:
            k.cp_async.mbarrier_arrive(b, noinc=True)
            k.mbarrier.wait(b, 0)
        else:
            k.cp_async.wait_all()
        if fence:
            k.fence.proxy_async(space)
        copied(k, out, d)


@wrong_by_the_text("H6")
def a_copy_of_cp_async_that_is_stored_without_a_proxy_fence(k: Builder, *, right: bool) -> None:
    _copied_on(k, fence=right, by_mbarrier=False)


@wrong_by_the_text("H6")
def a_copy_of_cp_async_that_an_mbarrier_hands_to_another_proxy(k: Builder, *, right: bool) -> None:
    _copied_on(k, fence=right, space="shared::cta", by_mbarrier=True)


# ---------------------------------------------------------------------- aligned instructions


@wrong_by_the_text("U16")
def a_round_that_is_joined_at_two_places(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    bar = k.named_barrier(64)
    for warp in range(2):
        with k.role(f"W{warp}", warp):
            bar.sync(aligned=not right)


@wrong_by_the_text("U16")
def a_round_with_arrivals_at_two_places(k: Builder, *, right: bool) -> None:
    k.launch(warps=3)
    bar = k.named_barrier(96)
    for warp in range(2):
        with k.role(f"W{warp}", warp):
            bar.arrive(aligned=not right)
    with k.role("W2", 2):
        bar.sync(aligned=True)


@wrong_by_the_text("E15")
def registers_that_are_given_at_two_places(k: Builder, *, right: bool) -> None:
    k.launch(warps=4, registers=168)
    for n, warps in enumerate([range(4)] if right else [range(2), range(2, 4)]):
        with k.role(f"R{n}", warps):
            k.setmaxnreg("dec", 24)


@wrong_by_the_text("E15")
def registers_of_a_warpgroup_that_lacks_a_warp(k: Builder, *, right: bool) -> None:
    k.launch(warps=4 if right else 3, registers=168)
    k.setmaxnreg("dec", 24)


# ---------------------------------------------------------------------- tensor memory


@wrong_by_the_text("G19", breaks="H6")
def a_copy_over_what_a_product_reads(k: Builder, *, right: bool) -> None:
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 1), (done, 1))
    q = scaled(k)
    d, scales = s.at(k, 0), k.tcgen05.tensor(s.address + 64, u8, (32, 16), name="scales")
    with thread(k, 4):
        k.tcgen05.cp(scales, q.factors, "32x128b", multicast="warpx4")
        k.tcgen05.mma(d, q.x, q.y, kind="mxf8f6f4", accumulate=0, scale_a=scales, scale_b=scales)
        if right:
            k.tcgen05.commit(b)
            k.mbarrier.wait(b, 0)
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.cp(scales, q.factors, "32x128b", multicast="warpx4")
        k.tcgen05.commit(done)
    ends(k, s, done)


def _loaded(k: Builder, *, before: bool, after: bool) -> None:
    """Loads of four warps, and a product of another one in their place, behind fences."""
    b, done = k.mbarriers("b"), k.mbarriers("done")
    s = setup(k, (b, 128), (done, 1))
    d = s.at(k, 0)
    with k.role("WG", range(4)):
        k.tile.fill(s.acc, 0)
        k.tcgen05.st(d, s.acc)
        k.tcgen05.wait_st()
        if before:
            k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(b)
    with thread(k, 4):
        k.mbarrier.wait(b, 0)
        if after:
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, s.a, s.b, accumulate=0)
        k.tcgen05.commit(done)
    ends(k, s, done)


@wrong_by_the_text("G19", breaks="H6")
def tensor_memory_that_is_handed_over_without_the_first_fence(k: Builder, *, right: bool) -> None:
    _loaded(k, before=right, after=True)


@wrong_by_the_text("G19", breaks="H6")
def tensor_memory_that_is_handed_over_without_the_second_fence(k: Builder, *, right: bool) -> None:
    _loaded(k, before=True, after=right)


def loads_behind_a_commit(k: Builder, *, fencing: int) -> None:
    """Four warps wait for a commit, so many lanes of each fence behind that, and all load."""
    b = k.mbarriers("b")
    s = setup(k, (b, 1))
    d = s.at(k, 0)
    with thread(k, 4):
        k.tcgen05.mma(d, s.a, s.b, accumulate=0)
        k.tcgen05.commit(b)
    with k.role("WG", range(4)):
        k.mbarrier.wait(b, 0)
        with k.if_(k.lane_id < fencing):
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(s.acc, d)
        k.tcgen05.wait_ld()
    ends(k, s, b)


@wrong_by_the_text("G19", breaks="H6")
def a_load_behind_a_commit_without_a_fence(k: Builder, *, right: bool) -> None:
    loads_behind_a_commit(k, fencing=32 if right else 0)


@wrong_by_the_text("G19", breaks="H6")
def a_load_of_a_warp_of_which_one_lane_has_fenced(k: Builder, *, right: bool) -> None:
    loads_behind_a_commit(k, fencing=32 if right else 1)


def relayed(k: Builder, *, ends_with: str) -> None:
    """A thread waits for a commit, or for an arrival, and arrives in turn, relaxed and without a
    fence of its own: the order of execution is handed on, and no memory."""
    b, relay = k.mbarriers("b"), k.mbarriers("relay")
    s = setup(k, (b, 1), (relay, 1), warps=6)
    d = s.at(k, 0)
    with thread(k, 4):
        k.tcgen05.mma(d, s.a, s.b, accumulate=0)
        if ends_with == "commit":
            k.tcgen05.commit(b)
        else:
            k.mbarrier.arrive(b, sem="relaxed", scope="cluster")
    with thread(k, 5):
        k.mbarrier.wait(b, 0, sem="relaxed", scope="cluster")
        k.mbarrier.arrive(relay, sem="relaxed", scope="cluster")
    with k.role("WG", range(4)):
        with k.if_(k.lane_id.eq(0)):
            k.mbarrier.wait(relay, 0, sem="relaxed", scope="cluster")
        if ends_with != "no fence":
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(s.acc, d)
        k.tcgen05.wait_ld()
    ends(k, s, b)


@wrong("G19", breaks="H6")
def a_load_of_a_product_that_a_relayed_arrival_does_not_end(k: Builder, *, right: bool) -> None:
    relayed(k, ends_with="commit" if right else "arrival")


@wrong("G19", breaks="H6")
def a_load_behind_a_relayed_commit_without_a_fence(k: Builder, *, right: bool) -> None:
    relayed(k, ends_with="commit" if right else "no fence")


def _handed_over(k: Builder, *, fencing: int | None, arriving: int) -> None:
    """Lane 0 of a warp issues a product; that a lane fences, or each does, and one arrives; another
    warp goes on in the same columns."""
    b, first, done = k.mbarriers("b"), k.mbarriers("first"), k.mbarriers("done")
    s = setup(k, (b, 1), (first, 1), (done, 1))
    d = s.at(k, 0)
    with k.role("W4", 4):
        with k.if_(k.lane_id.eq(0)):
            k.tcgen05.mma(d, s.a, s.b, accumulate=0)
        if fencing is None:
            k.tcgen05.fence_before_thread_sync()
        else:
            with k.if_(k.lane_id.eq(fencing)):
                k.tcgen05.fence_before_thread_sync()
        with k.if_(k.lane_id.eq(arriving)):
            k.mbarrier.arrive(b)
        with k.if_(k.lane_id.eq(0)):
            k.tcgen05.commit(first)
    with k.role("W3", 3), k.if_(k.lane_id.eq(0)):
        k.mbarrier.wait(b, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(d, s.a, s.b, accumulate=1)
        k.tcgen05.commit(done)
    k.mbarrier.wait(first, 0)
    ends(k, s, done)


@wrong_by_the_text("G19", breaks="H6")
def a_product_that_is_handed_over_by_a_lane_that_has_not_issued_it(
    k: Builder, *, right: bool
) -> None:
    """All lanes have fenced, each for what it has issued."""
    _handed_over(k, fencing=None, arriving=0 if right else 5)


@wrong_by_the_text("G19", breaks="H6")
def a_product_behind_a_fence_of_another_lane(k: Builder, *, right: bool) -> None:
    """The lanes have met, which is no fence."""
    _handed_over(k, fencing=0 if right else 5, arriving=5)


@wrong_by_the_text("G8", breaks="H6")
def columns_that_are_freed_without_a_fence(k: Builder, *, right: bool) -> None:
    b = k.mbarriers("b")
    s = setup(k, (b, 1))
    with thread(k, 4):
        k.tcgen05.mma(s.at(k, 0), s.a, s.b, accumulate=0)
        k.tcgen05.commit(b)
    k.mbarrier.wait(b, 0)
    with k.if_(k.warp_id.eq(0)):
        if right:
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(s.address, 128)


@wrong_by_the_text("G8")
def columns_that_another_warp_frees(k: Builder, *, right: bool) -> None:
    address = allocates(k, 32, warps=2)
    k.sync_threads()
    with k.if_(k.warp_id.eq(0 if right else 1)):
        k.tcgen05.dealloc(address, 32)


@wrong_by_the_text("G12")
def an_address_that_names_no_quarter(k: Builder, *, right: bool) -> None:
    address, tile = allocates(k, 32, warps=4), k.fragment("tile", f32, (32, 32))
    k.tile.fill(tile, 0)
    first = 32 * (k.warp_id % 4) << 16 if right else 0
    k.tcgen05.st(k.tcgen05.tensor(address + first, f32, (32, 32)), tile)
    k.tcgen05.wait_st()
    frees(k, address, 32)


# ---------------------------------------------------------------------- elections


@wrong_by_the_text("E12", not_covered="data decides")
def an_elected_lane_that_stores_to_a_word_of_its_own(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    x = words(k, "x", 32)
    with k.elected():
        k.mem.store(x[0 if right else k.lane_id], 1)


@wrong_by_the_text("E12", not_covered="depend on which lane is elected")
def a_lane_that_leaves_a_word_to_the_elected_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, b, r = words(k, "x"), k.mbarriers("b"), k.var("r")
    begin(k, (b, 1))
    with k.role("W0", 0):
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mem.store(x[0], 1)
        with k.elected(sync=right):
            k.mbarrier.arrive(b)
    with k.role("W1", 1):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, x[0])


def handed_over(k: Builder) -> tuple[SharedTensor, Mbarriers, Var]:
    """A word to which a thread stores before it arrives, its mbarrier, and a register for it."""
    k.launch(warps=2)
    x, b, r = words(k, "x"), k.mbarriers("b"), k.var("r")
    begin(k, (b, 1), zero=[x])
    with thread(k, 0):
        k.mem.store(x[0], 1)
        k.mbarrier.arrive(b)
    return x, b, r


@wrong_by_the_text("E12", not_covered="decides")
def a_lane_that_follows_the_wait_of_the_elected_one(k: Builder, *, right: bool) -> None:
    x, b, r = handed_over(k)
    with k.role("W1", 1):
        with k.elected(sync=False):
            k.mbarrier.wait(b, 0)
        if right:
            k.sync_warp()
        with k.if_(k.lane_id.eq(0)):
            k.mem.load(r, x[0])


@wrong_by_the_text("E12", not_covered="depend on which lane is elected")
def a_lane_that_waits_for_a_group_of_the_elected_one(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, g = words(k, "x", 4), global_words(k, "g", 4)
    begin(k, zero=[x])
    with k.role("W0", 0):
        with k.elected():
            k.bulk.store(g, x)
            k.bulk.commit_group()
        with k.elected() if right else k.if_(k.lane_id.eq(0)):
            k.bulk.wait_group(0)
    k.sync_threads()
    with thread(k, 1):
        k.mem.store(x[0], 2)


@wrong_by_the_text("E12", not_covered="depend on which lane is elected")
def a_group_of_a_lane_that_all_wait_for_before_one_is_elected(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, g = words(k, "x", 4), global_words(k, "g", 4)
    b = k.mbarriers("b")
    begin(k, (b, 1), zero=[x])
    with k.role("W0", 0):
        with k.if_(k.lane_id.eq(0)):
            k.bulk.store(g, x)
            k.bulk.commit_group()
        k.bulk.wait_group(0)
        with k.elected(sync=right):
            k.mbarrier.arrive(b)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
        k.mem.store(x[0], 2)


@wrong_by_the_text("E12", not_covered="which lane is elected decides")
def a_lane_that_does_what_it_has_if_it_was_elected(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, n = k.mbarriers("b", 2), k.var("n", 0)
    with k.one_thread():
        for i in range(2):
            k.mbarrier.init(b[i], 1)
    k.sync_threads()
    with k.elected():
        k.assign(n, 1)
        if right:
            k.mbarrier.arrive(b[n])
    if not right:
        with k.if_(k.lane_id.eq(0)):
            k.mbarrier.arrive(b[n])
    k.sync_warp()
    k.mbarrier.wait(b[1], 0)


@wrong_by_the_text("E12", not_covered="data decides")
def lanes_that_get_from_the_first_whether_it_was_elected(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    b, own, first = k.mbarriers("b"), k.var("own", 0), k.var("first", 0)
    begin(k, (b, 1))
    with k.elected():
        k.assign(own, 1)
    k.mem.shuffle(first, k.lane_id if right else own, 0)
    with k.if_(first.eq(0 if right else 1)), k.elected():
        k.mbarrier.arrive(b)
    k.mbarrier.wait(b, 0)


@wrong_by_the_text("E12", not_covered="which lane is elected decides")
def lanes_apart_in_which_one_was_elected(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    chosen = k.var("chosen", 0)
    with k.elected():
        k.assign(chosen, 1)
    with k.if_(k.lane_id < (32 if right else 16)), k.if_(chosen.eq(1)):
        k.fence.proxy_async()


@wrong_by_the_text("E12", not_covered="some lanes of a warp elect one")
def half_of_a_warp_that_elects(k: Builder, *, right: bool) -> None:
    k.launch(warps=1)
    one = k.var("one", dtype=pred)
    if right:
        k.emit(ElectSync(result=one))
    else:
        with k.if_(k.lane_id < 16):
            k.emit(ElectSync(result=one, mask=0xFFFF))


@wrong_by_the_text("E12", not_covered="depend on which lane is elected")
def a_vector_of_lanes_behind_what_the_elected_one_has_seen(k: Builder, *, right: bool) -> None:
    k.launch(warps=2)
    x, b, r = words(k, "x", 32), k.mbarriers("b"), k.var("r")
    begin(k, (b, 1), zero=[x])
    with k.role("W0", 0):
        k.mem.store(x[k.lane_id], 1)
        if right:
            k.sync_warp()
        with k.elected(sync=False):
            k.mbarrier.arrive(b)
    with thread(k, 1):
        k.mbarrier.wait(b, 0)
        k.mem.load(r, x[0])


@wrong_by_the_text("H24", breaks="H6")
def a_copy_over_the_word_of_an_allocation(k: Builder, *, right: bool) -> None:
    copies_over_the_word(k, fence=right)


@wrong_by_the_text("H23-copies", breaks="H6")
def copies_of_one_box_by_all_lanes(k: Builder, *, right: bool) -> None:
    copies_of_lanes(k, lanes=1 if right else 32)
