"""The word in which tcgen05.alloc leaves its address, and what is copied over it (H24)."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, u32
from tilesim.checker import check
from tilesim.ir.program import Strict

from .sites import BOTH


@kernel(target="sm_100a", warps=2)
def reused(k: Builder, *, meet: bool = True, stored: bool = False) -> None:
    """Warp 0 allocates; all have read the address before warp 1 copies over it."""
    source, address = k.tensor("source", u32, (4,)), k.var("address", dtype=u32)
    slot = k.shared("slot", u32, (1,), offset=0)
    words = k.shared("words", u32, (4,), offset=0)
    full = k.mbarriers("full", offset=64)
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.fence.mbarrier_init()
    with k.role("owner", 0):
        k.tcgen05.alloc(slot, 32)
        if stored:
            with k.elected():
                k.mem.store(words[1], 0)
    if meet:
        k.sync_threads()
    k.mem.load(address, slot[0])
    k.sync_threads()
    with k.one_thread(1):
        k.mbarrier.arrive_expect_tx(full, 16)
        k.bulk.load(words, source, full)
    k.mbarrier.wait(full, 0)
    with k.role("owner", 0):
        k.tcgen05.dealloc(address, 32)


def test_a_copy_over_the_word_needs_no_proxy_fence_in_practice() -> None:
    assert check(reused.build()).verdict == "proved"
    report = check(reused.build(), strict="ptx")
    assert report.rules == {"proxy-fence"}
    alloc, load = at(reused, "k.tcgen05.alloc("), at(reused, "k.bulk.load(")
    assert {alloc, load} in [{line for _, line in sites(f)} for f in report.findings]


def test_other_words_do() -> None:
    report = check(reused.build(stored=True), strict="practice")
    finding = found(report, "proxy-fence")
    store, load = at(reused, "k.mem.store("), at(reused, "k.bulk.load(")
    assert {line for _, line in sites(finding)} == {store, load}


@kernel(target="sm_100a")
def added_to(k: Builder, *, fence: bool = True) -> None:
    """A peer adds to the word in which an address was left."""
    k.launch(warps=1, grid=2, cluster=2)
    slot, address = k.shared("slot", u32, (4,)), k.var("address", dtype=u32)
    source, full = k.shared("source", u32, (4,)), k.mbarriers("full")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.fence.mbarrier_init()
        k.mem.store_vector(slot[0:4], (0, 0, 0, 0))
        k.mem.store_vector(source[0:4], (0, 0, 0, 0))
    k.fence.proxy_async()
    k.tcgen05.alloc(slot[0], 32)
    k.mem.load(address, slot[0])
    if fence:
        k.fence.proxy_async()
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(1)), k.elected():
        k.bulk.reduce_peer(slot.at(0), source, full.at(0))
    with k.if_(k.cluster_rank.eq(0)):
        with k.elected():
            k.mbarrier.arrive_expect_tx(full, 16)
        k.mbarrier.wait(full, 0, scope="cluster")
    k.sync_warp()
    k.tcgen05.dealloc(address, 32)
    k.cluster.sync()


def test_what_adds_to_the_word_needs_a_proxy_fence() -> None:
    report = check(added_to.build(fence=False))
    assert report.rules == {"proxy-fence"}
    alloc, reduction = at(added_to, "k.tcgen05.alloc("), at(added_to, "k.bulk.reduce_peer(")
    assert {alloc, reduction} in [{line for _, line in sites(f)} for f in report.findings]
    assert check(added_to.build(), strict="ptx").verdict == "proved"


def test_threads_that_did_not_meet_race() -> None:
    finding = found(check(reused.build(meet=False)), "race")
    alloc, read = at(reused, "k.tcgen05.alloc("), at(reused, "k.mem.load(")
    assert {line for _, line in sites(finding)} == {alloc, read}


@kernel(target="sm_100a", warps=5)
def constant(
    k: Builder, *, between: str = "wait and fence", meets: bool = True, parts: bool = False
) -> None:
    """Warp 4 takes all columns, whose address is known, and copies to them; others wait for that
    only (or just come late), and look."""
    tile, slot = k.shared("tile", u32, (32, 4)), k.shared("slot", u32, (1,))
    done, over = k.mbarriers("done"), k.mbarriers("over")
    late = k.tensor("late", u32, (4, 32))
    first, value = k.shared("first", u32, (1,)), k.fragment("value", u32, (128, 4), "warpgroup")
    with k.one_thread():
        k.mbarrier.init(done, 1)
        k.mbarrier.init(over, 128)
        k.fence.mbarrier_init()
    with k.role("looks", range(4)):
        k.mem.store(tile[k.lane_id, k.warp_id], 0)
    k.fence.proxy_async()
    k.sync_threads()
    with k.role("owner", 4):
        if parts:
            with k.if_(k.lane_id.eq(0), sync=False):
                k.mem.store(first[0], 0)
        k.tcgen05.alloc(slot, 512)
        if meets:
            k.sync_warp()
        with k.elected():
            k.tcgen05.cp(k.tcgen05.tensor(0, u32, (32, 4)), tile, "32x128b", multicast="warpx4")
            k.tcgen05.commit(done)
        k.mbarrier.wait(over, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(0, 512)
    with k.role("looks", range(4)):
        if between == "time":
            with k.loop(100):
                k.mem.store(late[k.warp_id, k.lane_id], 0)
        if "wait" in between:
            k.mbarrier.wait(done, 0)
        if "fence" in between:
            k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(value, k.tcgen05.tensor(0, u32, (128, 4)))
        k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(over)


@pytest.mark.parametrize("parts", [False, True])
@pytest.mark.parametrize("meets", [True, False])
@pytest.mark.parametrize("strict", BOTH)
def test_a_commit_hands_on_what_is_allocated(strict: Strict, meets: bool, parts: bool) -> None:
    """Whether the lanes of the owner have met before it, or meet behind it."""
    report = check(constant.build(meets=meets, parts=parts), strict=strict)
    assert (report.verdict, report.findings) == ("proved", ())
    assert "U20" not in {leaning.name for leaning in report.leanings}
    for wrong in ("nothing", "time"):
        finding = found(
            check(constant.build(between=wrong, meets=meets, parts=parts)), "tmem-lifetime"
        )
        assert at(constant, "k.tcgen05.ld(") in {line for _, line in sites(finding)}


def test_without_the_fence_behind_the_wait_it_is_handed_on_in_practice() -> None:
    report = check(constant.build(between="wait"), strict="practice")
    assert (report.verdict, report.findings) == ("proved", ())
    assert "U20" in {leaning.name for leaning in report.leanings}
    finding = found(check(constant.build(between="wait"), strict="ptx"), "tmem-lifetime")
    alloc, load = at(constant, "k.tcgen05.alloc("), at(constant, "k.tcgen05.ld(")
    assert sites(finding) == {("owner", alloc), ("looks", load)}
