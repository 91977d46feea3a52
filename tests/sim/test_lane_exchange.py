"""Lanes of a warp that acts as one: only bar.warp.sync orders what different ones do (E11)."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, u32
from tilesim.checker import check
from tilesim.ir.program import Strict

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


@kernel(warps=1)
def reverse(k: Builder, *, between: str = "sync", space: str = "shared") -> None:
    """Lanes read in reverse what they have stored."""
    words = k.shared("words", u32, (32,)) if space == "shared" else k.tensor("words", u32, (32,))
    y, value = k.tensor("y", u32, (32,)), k.var("value", 0, dtype=u32)
    k.mem.store(words[k.lane_id], k.lane_id)
    match between:
        case "sync":
            k.sync_warp()
        case "barrier":
            k.sync_threads()
        case "shuffle":
            k.mem.shuffle(value, k.lane_id, 0)
        case _:
            pass
    k.mem.load(value, words[31 - k.lane_id])
    k.mem.store(y[k.lane_id], value)


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("between", ["nothing", "shuffle"])
def test_lanes_that_exchange_words_have_to_meet(between: str, space: str, strict: Strict) -> None:
    report = check(reverse.build(between=between, space=space), strict=strict)
    finding = found(report, "race")
    assert report.verdict == "failed"
    assert any("a bar.warp.sync is missing between (E11)" in note for note in finding.notes)
    load, store = at(reverse, "value, words"), at(reverse, "words[k.lane_id], k")
    assert sites(finding) == {("warp 0", load), ("warp 0", store)}


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("between", ["sync", "barrier"])
def test_lanes_that_have_met_may_exchange_words(between: str, space: str, strict: Strict) -> None:
    assert check(reverse.build(between=between, space=space), strict=strict).verdict == "proved"


@kernel(warps=1)
def own(k: Builder, *, shift: int = 0) -> None:
    """Lanes read back their own words, or those of a neighbour, trip after trip."""
    words, value = k.shared("words", u32, (64,)), k.var("value", 0, dtype=u32)
    with k.loop(3) as i:
        k.mem.store(words[k.lane_id], i)
        k.mem.load(value, words[(k.lane_id + shift) % 32])


@pytest.mark.parametrize("strict", LEVELS)
def test_a_lane_comes_after_itself(strict: Strict) -> None:
    assert check(own.build(), strict=strict).verdict == "proved"
    places = {("warp 0", at(own, "k.mem.store(")), ("warp 0", at(own, "k.mem.load("))}
    findings = check(own.build(shift=1), strict=strict).findings
    assert [(f.rule, sites(f)) for f in findings] == [("race", places)] * 2  # and in the next trip


@kernel(warps=2)
def through_a_barrier(k: Builder, *, waits: bool = True) -> None:
    """All lanes arrive and wait for the phase: that orders them as well."""
    bar, words, value = k.mbarriers("bar"), k.shared("words", u32, (32,)), k.var("value", 0, u32)
    with k.one_thread():
        k.mbarrier.init(bar, 32)
    k.sync_threads()
    with k.role("exchange", 1):
        k.mem.store(words[k.lane_id], 1)
        k.mbarrier.arrive(bar)
        if waits:
            k.mbarrier.wait(bar, 0)
        k.mem.load(value, words[31 - k.lane_id])


@pytest.mark.parametrize("strict", LEVELS)
def test_an_mbarrier_that_all_lanes_pass_orders_them(strict: Strict) -> None:
    assert check(through_a_barrier.build(), strict=strict).verdict == "proved"
    finding = found(check(through_a_barrier.build(waits=False), strict=strict), "race")
    assert {role for role, _ in sites(finding)} == {"exchange"}


@kernel(warps=1)
def same_word(k: Builder) -> None:
    """All lanes store to one word, twice, and read it: each relies on its own order."""
    word, value = k.shared("word", u32, (1,)), k.var("value", 0, dtype=u32)
    k.mem.store(word[0], 1)
    k.mem.store(word[0], 2)
    k.mem.load(value, word[0])


def test_a_word_that_all_lanes_store_is_a_race_in_the_text_only() -> None:
    assert check(same_word.build()).verdict == "proved"
    assert check(same_word.build(), strict="ptx").findings[0].rule == "race"
