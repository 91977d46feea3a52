"""What completes at a time of its own publishes itself, and what it came after on its bytes."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, bf16, f32, kernel, u32
from tilesim.checker import check


@kernel(warps=1)
def store_and_add(k: Builder, *, read: int = 0, store: int = 0, form: str = "red") -> None:
    """CTA 0 stores to a word of CTA 1 and adds to word 0 there; CTA 1 waits for the bytes."""
    k.launch(grid=2, cluster=2)
    done, value = k.mbarriers("done"), k.var("value", 0, dtype=u32)
    words, ones = k.shared("words", u32, (8,)), k.shared("ones", u32, (4,))
    with k.one_thread():
        k.mbarrier.init(done, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.one_thread(), k.if_(k.cluster_rank.eq(0)):
        if form == "bulk":
            for place in range(4):
                k.mem.store(ones[place], 1)
        k.mem.store(words[store].at(1), 5)
        k.fence.proxy_async()
        if form == "red":
            k.cluster.red_async(words[0].at(1), "add", 1, done.at(1))
        else:
            k.bulk.reduce_peer(words[0:4].at(1), ones, done.at(1))
    with k.one_thread(), k.if_(k.cluster_rank.eq(1)):
        k.mbarrier.arrive_expect_tx(done, 4 if form == "red" else 16)
        k.mbarrier.wait(done, 0, scope="cluster")
        k.mem.load(value, words[read])
    k.cluster.sync()


@pytest.mark.parametrize("form", ["red", "bulk"])
def test_who_waits_for_a_reduction_comes_after_what_it_added_to(form: str) -> None:
    report = check(store_and_add.build(form=form), strict="ptx")
    assert report.verdict == "proved", report


@pytest.mark.parametrize("form", ["red", "bulk"])
def test_a_reduction_says_nothing_of_other_words(form: str) -> None:
    finding = found(check(store_and_add.build(form=form, store=5, read=5)), "race")
    store, load = at(store_and_add, "words[store]"), at(store_and_add, "words[read]")
    assert {line for _, line in sites(finding)} == {store, load}


@kernel(target="sm_100a", warps=6)
def overlaid(k: Builder, *, parts: int = 2) -> None:
    """What a product has read is overwritten in parts by those that wait for the product alone."""
    x, y = k.tensor("x", bf16, (128, 16)), k.tensor("y", bf16, (32, 16))
    out = k.tensor("out", u32, (256,))
    x_map, y_map = (k.tensor_map(t, t.shape, swizzle=32) for t in (x, y))
    a = k.shared("a", bf16, (128, 16), swizzle=32)
    b = k.shared("b", bf16, (32, 16), swizzle=32, offset=8192)
    words = k.shared("words", u32, (256,), offset=8192)
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    full, done = k.mbarriers("full"), k.mbarriers("done")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(done, 1)
        k.fence.mbarrier_init()
    with k.role("owner", 0):
        k.tcgen05.alloc(slot, 32)
    k.sync_threads()
    k.mem.load(address, slot[0])
    d = k.tcgen05.tensor(address, f32, (128, 32), name="d")
    with k.role("load", 4), k.elected():
        k.mbarrier.arrive_expect_tx(full, x_map.box_bytes + y_map.box_bytes)
        k.tma.load(x_map, a, (0, 0), full)
        k.tma.load(y_map, b, (0, 0), full)
    with k.role("mma", 5), k.elected():
        k.mbarrier.wait(full, 0)
        k.tcgen05.mma(d, a, b, accumulate=0)
        k.tcgen05.commit(done)
    with k.role("epilogue", range(4)):
        k.mbarrier.wait(done, 0)
        for part in range(parts):
            k.mem.store(words[128 * part + k.thread_id], 1)
        k.fence.proxy_async("shared::cta")
        k.bar.sync(1, 128)
        with k.one_thread():
            k.bulk.store(out, words)
            k.bulk.commit_group()
            k.bulk.wait_group(0)
    k.sync_threads()
    with k.role("owner", 0):
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.dealloc(address, 32)


def test_what_threads_overwrite_in_parts_is_no_copy_any_more() -> None:
    assert check(overlaid.build()).verdict == "proved"


def test_what_they_leave_of_a_copy_is_read_without_its_completion() -> None:
    finding = found(check(overlaid.build(parts=1)), "race")
    load, store = at(overlaid, "k.tma.load(y_map"), at(overlaid, "k.bulk.store(out")
    assert {line for _, line in sites(finding)} == {load, store}
