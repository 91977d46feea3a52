"""mbarrier instructions of a warp whose lanes name barriers of their own."""

from __future__ import annotations

import pytest

import tilesim as ts
from tilesim import Builder
from tilesim.arith.types import u32


def _begin(k: Builder, counts: tuple[int, ...]) -> ts.Mbarriers:
    bars = k.mbarriers("bars", len(counts))
    with k.one_thread():
        for bar, count in enumerate(counts):
            k.mbarrier.init(bars[bar], count)
    k.sync_threads()
    return bars


@ts.kernel(warps=3)
def gather(k: Builder, *, parity: int = 0, lanes: int = 2) -> None:
    """Each of two producers fills a word; a consumer's lanes wait for one barrier each."""
    words = k.shared("words", u32, (2,))
    bars = k.mbarriers("bars", 2)
    with k.role("consumer", 0), k.if_(k.lane_id < 2):
        k.mbarrier.init(bars[k.lane_id], 1)
    k.sync_threads()
    for number in range(2):
        with k.role(f"producer{number}", 1 + number), k.elected():
            k.mem.store(words[number], 1)
            k.mbarrier.arrive(bars[number])
    with k.role("consumer", 0):
        with k.if_(k.lane_id < lanes):
            k.mbarrier.wait(bars[k.lane_id], parity)
        with k.one_thread(0):
            value = k.var("value")
            for number in range(2):
                k.mem.load(value, words[number])  # reads
        with k.if_(k.lane_id < 2):
            k.mbarrier.inval(bars[k.lane_id])


def test_every_lane_waits_for_its_barrier() -> None:
    assert ts.check(gather.build()).verdict == "proved"


def test_one_barrier_is_not_waited_for() -> None:
    report = ts.check(gather.build(lanes=1))
    assert report.verdict == "failed"
    race = report.findings[0]
    assert race.rule == "race"
    assert {p.role for p in race.participants} == {"consumer", "producer1"}


def test_lanes_that_pass_at_once() -> None:
    report = ts.check(gather.build(parity=1))
    assert report.verdict == "failed"
    assert [f.rule for f in report.findings] == ["race", "race"]


@ts.kernel(warps=2)
def two_phases(k: Builder, *, waits_in_turn: bool = False) -> None:
    """Lane 1 waits for phase 1 of its barrier while lane 0 waits for what comes after that."""
    bars = _begin(k, (1, 1))
    with k.role("producer", 0), k.one_thread(0):
        k.mbarrier.arrive(bars[1])
        k.mbarrier.arrive(bars[1])
        k.mbarrier.arrive(bars[0])
    with k.role("consumer", 1):
        if waits_in_turn:
            k.mbarrier.wait(bars[0], 0)
            k.mbarrier.wait(bars[1], 1)
        else:
            with k.if_(k.lane_id < 2):
                k.mbarrier.wait(bars[k.lane_id], k.lane_id)


def test_lanes_look_before_the_others_have_passed() -> None:
    report = ts.check(two_phases.build())
    assert report.verdict == "bounded"
    assert "a wait could pass on a phase two before" in report.reasons[0]
    assert ts.check(two_phases.build(waits_in_turn=True)).verdict == "proved"


@ts.kernel(warps=2)
def never(k: Builder) -> None:
    """Nobody arrives for lane 1."""
    bars = _begin(k, (1, 1))
    with k.role("producer", 0), k.one_thread(0):
        k.mbarrier.arrive(bars[0])
    with k.role("consumer", 1), k.if_(k.lane_id < 2):
        k.mbarrier.wait(bars[k.lane_id], 0)


def test_a_lane_waits_for_ever() -> None:
    report = ts.check(never.build())
    assert report.verdict == "failed"
    assert report.findings[0].rule == "deadlock"
    assert "bars[1]" in str(report)


@pytest.mark.parametrize("policy", ["pct", "random"])
def test_schedules_of_lanes(policy: ts.Policy) -> None:
    for seed in range(5):
        assert not ts.simulate(gather.build(), policy=policy, seed=seed).findings
