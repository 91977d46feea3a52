"""An instruction that n lanes execute is n events in an unspecified order."""

from __future__ import annotations

import pytest

import tilesim as ts
from tests.kernels.evidence import at, found, sites
from tilesim import Builder
from tilesim.arith.types import s32
from tilesim.checker.witness import replay


def _replayed(program: ts.Program, rule: str) -> ts.Finding:
    """The finding of a schedule in which some lanes of a warp go their own way: it replays."""
    report = ts.check(program)
    assert report.verdict == "failed"
    assert report.witness is not None
    assert report.witness["apart"]
    finding = found(report, rule)
    assert finding in replay(program, report.witness).findings
    return finding


def _begin(k: Builder, *counts: int) -> ts.Mbarriers:
    bars = k.mbarriers("bars", len(counts))
    with k.one_thread():
        for number, count in enumerate(counts):
            k.mbarrier.init(bars[number], count)
    k.sync_threads()
    return bars


# ------------------------------------------------------------------ bytes


@ts.kernel(warps=4)
def balance(k: Builder, *, ordered: bool = False) -> None:
    """64 bytes are expected with the arrival and 32 apart from it; 23 lanes complete 4 each."""
    bars = _begin(k, 1)
    if not ordered:
        with k.role("arms", 0), k.elected():
            k.mbarrier.arrive_expect_tx(bars[0], 64)
    with k.role("expects", 1), k.elected():
        k.mbarrier.expect_tx(bars[0], 32)
        k.mbarrier.complete_tx(bars[0], 4)
        if ordered:
            k.mbarrier.arrive_expect_tx(bars[0], 64)
    with k.role("completes", 2), k.if_(k.lane_id < 23):
        k.mbarrier.complete_tx(bars[0], 4)  # completes
    with k.role("waits", 3):
        k.mbarrier.wait(bars[0], 0)


def test_the_balance_is_zero_after_some_lanes() -> None:
    """After 16 of the 23 lanes, nothing is expected any more; an H200 adds up all of them (A32)."""
    report = ts.check(balance.build())
    finding = found(report, "tx-mismatch")
    assert report.verdict == "failed"
    assert sites(finding) == {("completes", at(balance, "# completes"))}
    assert "by the text phase 0 ends after" in finding.message


def test_all_bytes_are_expected_before_the_arrival() -> None:
    assert ts.check(balance.build(ordered=True)).verdict == "proved"


# ------------------------------------------------------------------ arrivals


@ts.kernel(warps=3)
def halves(k: Builder, *, arrivals: int = 48) -> None:
    """With 48, half of the second warp's lanes end a phase, by the text, and half begin the next:
    an H200 traps (A32)."""
    bars = _begin(k, arrivals)
    words, value = k.shared("words", s32, (32,)), k.var("value", 0)
    with k.role("first", 0):
        k.mem.store(words[k.lane_id], 1)
        k.mbarrier.arrive(bars[0])
        k.bar.arrive(1, 64, aligned=False)
    with k.role("second", 1):
        k.bar.sync(1, 64, aligned=False)
        k.mbarrier.arrive(bars[0])  # too many
    with k.role("third", 2):
        k.mbarrier.wait(bars[0], 0)
        k.mem.load(value, words[k.lane_id])


def test_lanes_of_one_instruction_must_not_end_a_phase_and_begin_the_next() -> None:
    for strict in ("practice", "ptx"):
        report = ts.check(halves.build(), strict=strict)
        finding = found(report, "over-arrival")
        assert report.verdict == "failed"
        assert ("second", at(halves, "# too many")) in sites(finding)
        assert ts.check(halves.build(arrivals=64), strict=strict).verdict == "proved"


@ts.kernel(warps=1)
def unequal(k: Builder, *, equal: bool = False) -> None:
    """Lanes that arrive by 1, 2 and 1 while 3 or, by 2 each, 6 are pending."""
    bars = _begin(k, 6 if equal else 3)
    with k.if_(k.lane_id < 3):
        k.mbarrier.arrive(bars[0], 2 if equal else 1 + (k.lane_id & 1))  # arrives


def test_lanes_that_arrive_by_different_counts() -> None:
    report = ts.check(unequal.build())
    (finding,) = report.findings
    assert (report.verdict, finding.rule) == ("failed", "over-arrival")
    assert [p.loc.line for p in finding.participants] == [at(unequal, "# arrives")]
    assert ts.check(unequal.build(equal=True)).verdict == "proved"


# ------------------------------------------------------------------ different objects


@ts.kernel(warps=2)
def two_barriers(k: Builder, *, together: bool = True) -> None:
    """Two lanes arrive at two barriers; a poll of the second tells nothing of the first."""
    bars = _begin(k, 1, 1)
    answer = k.var("answer")
    with k.role("arrives", 0):
        if together:
            with k.if_(k.lane_id < 2):
                k.mbarrier.arrive(bars[k.lane_id])
        else:
            with k.elected():
                k.mbarrier.arrive(bars[0])
                k.mbarrier.arrive(bars[1])
    with k.role("polls", 1), k.elected():
        k.mbarrier.wait(bars[1], 0)
        k.mbarrier.test_wait(answer, bars[0], 0)
        with k.if_(answer < 1):
            k.mbarrier.wait(bars[0], 1)


def test_lanes_arrive_at_two_barriers_in_any_order() -> None:
    program = two_barriers.build()
    finding = _replayed(program, "deadlock")
    assert sites(finding) == {("polls", at(two_barriers, "k.mbarrier.wait(bars[0], 1)"))}


def test_one_lane_arrives_at_two_barriers_in_turn() -> None:
    assert ts.check(two_barriers.build(together=False)).verdict == "proved"


@ts.kernel(warps=2)
def two_words(k: Builder, *, together: bool = True) -> None:
    """Two lanes store two words; who sees the second need not see the first."""
    words = k.shared("words", s32, (2,))
    state = k.var("state", 0)
    with k.one_thread():
        k.mem.store(words[0], 0)
        k.mem.store(words[1], 0)
    k.sync_threads()
    with k.role("stores", 0):
        if together:
            with k.if_(k.lane_id < 2):
                k.mem.store(words[k.lane_id], 1, sem="release", scope="cta")
        else:
            with k.elected():
                k.mem.store(words[0], 1, sem="release", scope="cta")
                k.mem.store(words[1], 1, sem="release", scope="cta")
    with k.role("reads", 1), k.elected():
        with k.while_(state < 1):
            k.mem.load(state, words[1], sem="acquire", scope="cta")
        k.mem.load(state, words[0], sem="acquire", scope="cta")
        with k.if_(state.eq(0)):
            k.bar.sync(1, 64, aligned=False)


def test_lanes_store_two_words_in_any_order() -> None:
    finding = _replayed(two_words.build(), "deadlock")
    assert sites(finding) == {("reads", at(two_words, "k.bar.sync("))}


def test_one_lane_stores_two_words_in_turn() -> None:
    assert ts.check(two_words.build(together=False)).verdict in ("proved", "exhausted")


@ts.kernel(warps=1)
def last_lane(k: Builder, *, same: bool = False) -> None:
    """All lanes store to one word, and what stays there steers."""
    word, value = k.shared("word", s32, (1,)), k.var("value", 0)
    bars = _begin(k, 1)
    k.mem.store(word[0], 31 if same else k.lane_id)  # stores
    k.sync_threads()
    k.mem.load(value, word[0])
    with k.if_(value < 31):
        k.mbarrier.wait(bars[0], 0)
    with k.elected():
        k.mbarrier.arrive(bars[0])


def test_the_value_that_stays_depends_on_the_order_of_lanes() -> None:
    report = ts.check(last_lane.build())
    assert report.verdict == "bounded"
    assert report.reasons[0].startswith("which lane's value stays in word")
    assert f":{at(last_lane, '# stores')})" in report.reasons[0]
    assert ts.check(last_lane.build(same=True)).verdict == "proved"


# ------------------------------------------------------------------ peeks


@pytest.mark.parametrize("wrong", [False, True])
def test_a_peek_whose_flag_another_lane_overwrites(wrong: bool) -> None:
    """Lane 1 takes another value; the others may still leave out the wait by the peek's answer."""
    k = Builder("peek", warps=2)
    bars, flag = _begin(k, 1), k.var("flag", 0)
    with k.role("producer", 0), k.elected():
        k.mbarrier.arrive(bars[0])
    with k.role("consumer", 1):
        k.mbarrier.try_wait(flag, bars[0], int(wrong))
        with k.if_(k.lane_id.eq(1)):
            k.assign(flag, 0)
        with k.if_(flag.eq(0)):
            k.mbarrier.wait(bars[0], 0)
    report = ts.check(k.finish())
    assert report.verdict != "proved"
    assert "whether mbarrier.try_wait lets the wait on bars out" in report.reasons[0]


@ts.kernel(warps=2)
def two_sizes(k: Builder, *, sizes: tuple[int, int] = (2, 1)) -> None:
    """Lanes of two warps arrive by one or two on a barrier that counts 32."""
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 32)
    k.sync_threads()
    for warp, size in enumerate(sizes):
        with k.role(f"w{warp}", warp):
            k.mbarrier.arrive(bar, size)


def test_lanes_that_arrive_by_two_at_once_are_too_many() -> None:
    """64 on a count of 32 are too many; 32 and then 32 of two warps end two phases."""
    finding = found(ts.check(two_sizes.build()), "over-arrival")
    assert {line for _, line in sites(finding)} == {at(two_sizes, "k.mbarrier.arrive(")}
    assert ts.check(two_sizes.build(sizes=(1, 1))).verdict in ("proved", "exhausted")
