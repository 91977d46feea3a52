"""What goes on from shared memory that nothing has written: reductions as well as reads."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, s32, u32
from tilesim.checker import check


@kernel(warps=2)
def counted(
    k: Builder, *, zero: bool = False, how: Literal["add", "exch", "max"] = "add",
    used: bool = False,
) -> None:  # fmt: skip
    """All warps combine with one word, which should hold something before."""
    word, old = k.shared("word", u32, (1,)), k.var("old", 0, dtype=u32)
    if zero:
        with k.one_thread():
            k.mem.store(word[0], 0)
    k.sync_threads()
    with k.elected():
        if used:
            k.mem.atomic(word[0], how, 1, result=old)  # used
        else:
            k.mem.atomic(word[0], how, 1)
    k.sync_threads()
    k.mem.load(old, word[0])


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("how", ["add", "max"])
def test_an_atomic_goes_on_from_what_is_there(how: Literal["add", "max"], *, used: bool) -> None:
    assert not check(counted.build(zero=True, how=how, used=used)).findings
    finding = found(check(counted.build(how=how, used=used)), "uninitialised-read")
    step = "# used" if used else "k.mem.atomic(word[0], how, 1)\n"
    assert {line for _, line in sites(finding)} == {at(counted, step.strip("\n"))}


def test_an_exchange_whose_result_is_not_used_puts_a_number_there() -> None:
    assert not check(counted.build(how="exch")).findings
    finding = found(check(counted.build(how="exch", used=True)), "uninitialised-read")
    assert {line for _, line in sites(finding)} == {at(counted, "# used")}


@kernel(warps=1)
def sent(k: Builder, *, zero: bool = False) -> None:
    """A peer adds to a word of this CTA."""
    k.launch(grid=2, cluster=2)
    sums, done = k.shared("sums", s32, (1,)), k.mbarriers("done")
    value, peer = k.var("value", 0, dtype=s32), 1 - k.cluster_rank
    with k.one_thread():
        if zero:
            k.mem.store(sums[0], 0)
        k.mbarrier.init(done, 1)
    k.cluster.sync()
    with k.elected():
        k.mbarrier.arrive_expect_tx(done, 4)
        k.cluster.red_async(sums.view().at(peer)[0], "add", 1, done[0].at(peer))
    k.mbarrier.wait(done, 0, scope="cluster")
    k.mem.load(value, sums[0])
    k.cluster.sync()


def test_a_reduction_into_a_peer_goes_on_from_what_is_there() -> None:
    assert check(sent.build(zero=True)).verdict == "proved"
    finding = found(check(sent.build()), "uninitialised-read")
    assert {line for _, line in sites(finding)} == {at(sent, "k.cluster.red_async(")}


@kernel(warps=1)
def pushed(
    k: Builder, *, filled: int = 4, used: int = 4, how: Literal["add", "max"] = "add"
) -> None:
    """A bulk reduction adds four words to those of a peer."""
    k.launch(grid=2, cluster=2)
    out = k.tensor("out", u32, (2, 4))
    sums, ones, done = k.shared("sums", u32, (4,)), k.shared("ones", u32, (4,)), k.mbarriers("done")
    value, peer = k.var("value", 0, dtype=u32), 1 - k.cluster_rank
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
        k.bulk.reduce_peer(sums.at(peer), ones, done.at(peer), how)
    k.mbarrier.wait(done, 0, scope="cluster")
    with k.if_(k.lane_id < used):
        k.mem.load(value, sums[k.lane_id])
        k.mem.store(out[k.cluster_rank, k.lane_id], value)
    k.cluster.sync()


@pytest.mark.parametrize("how", ["add", "max"])
def test_a_bulk_reduction_goes_on_from_what_is_there(how: Literal["add", "max"]) -> None:
    assert check(pushed.build(how=how)).verdict == "proved"
    finding = found(check(pushed.build(filled=0, how=how)), "uninitialised-read")
    assert {line for _, line in sites(finding)} == {at(pushed, "k.bulk.reduce_peer(")}


def test_words_of_a_bulk_reduction_that_nobody_uses_need_nothing_before() -> None:
    assert check(pushed.build(filled=2, used=2)).verdict == "proved"
    finding = found(check(pushed.build(filled=2)), "uninitialised-read")
    assert {line for _, line in sites(finding)} == {at(pushed, "k.bulk.reduce_peer(")}
