"""The word in which tcgen05.alloc leaves its address, and what is copied over it (H24)."""

from __future__ import annotations

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, u32
from tilesim.checker import check


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


def test_threads_that_did_not_meet_race() -> None:
    finding = found(check(reused.build(meet=False)), "race")
    alloc, read = at(reused, "k.tcgen05.alloc("), at(reused, "k.mem.load(")
    assert {line for _, line in sites(finding)} == {alloc, read}
