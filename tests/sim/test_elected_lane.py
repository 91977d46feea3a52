"""By the text lane 0 and the lane that elect.sync picks may be two threads (E12), with groups of
their own; in practice elect.sync picks the first lane."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal

import pytest

import tilesim as ts
from tilesim import Builder
from tilesim.arith.types import u32
from tilesim.ir.program import Strict

from .sites import sites
from .tensor_cores import allocate, barrier, build, copied, fill, free
from .test_any_lane_elected import ELECTED, staged

AgentLike = Literal["lane 0", "elected"]
_READ = "k.mem.load(seen, data[0])  # read"


def _only(k: Builder, who: AgentLike) -> AbstractContextManager[object]:
    return k.elected() if who == "elected" else k.if_(k.lane_id.eq(0))


def stored(issues: AgentLike, waits: AgentLike) -> ts.Program:
    """One thread stores a tile and another one waits for it, before it is filled again."""
    lanes = {"lane 0": 0, "elected": ELECTED}
    return staged.build(issues=lanes[issues], waits=lanes[waits])


@pytest.mark.parametrize("who", ["lane 0", "elected"])
def test_one_thread(who: AgentLike) -> None:
    assert ts.check(stored(who, who), strict="ptx").verdict == "proved"


@pytest.mark.parametrize("issues", ["lane 0", "elected"])
def test_two_threads(issues: AgentLike) -> None:
    waits: AgentLike = "elected" if issues == "lane 0" else "lane 0"
    program = stored(issues, waits)
    assert ts.check(program).verdict == "proved"
    report = ts.check(program, strict="ptx")
    assert report.verdict == "failed"
    race = report.findings[0]
    assert race.rule == "race"
    assert [p.role for p in race.participants] == ["filler", "storer"]
    assert "bulk.store" in race.participants[1].action


def product(commits: AgentLike) -> ts.Program:
    """The elected thread issues a product; a commit tracks what its own thread has issued."""

    def body(k: Builder) -> None:
        k.launch(warps=4)
        a, b = copied(k, "a", ts.bf16, (128, 16), 32), copied(k, "b", ts.bf16, (32, 16), 32)
        done = barrier(k, "done")
        address = allocate(k)
        fill(k, a, b)
        d = k.tcgen05.tensor(address, ts.f32, (128, 32), name="d")
        with k.role("mma", 0):
            with k.elected():
                k.tcgen05.mma(d, a[0], b[0], accumulate=0)
            with _only(k, commits):
                k.tcgen05.commit(done)
        k.mbarrier.wait(done, 0)
        k.tcgen05.fence_after_thread_sync()
        result = k.fragment("result", ts.f32, (128, 32), "warpgroup")
        k.tcgen05.ld(result, d)
        k.tcgen05.wait_ld()
        free(k, address)

    return build(body)


def test_commit_by_the_thread_that_issued() -> None:
    assert ts.check(product("elected"), strict="ptx").verdict == "proved"


def test_commit_by_another_thread() -> None:
    assert ts.check(product("lane 0")).verdict == "proved"
    report = ts.check(product("lane 0"), strict="ptx")
    assert report.verdict == "failed"
    assert "tcgen05-order" in report.rules


@ts.kernel(warps=2)
def waits_alone(k: Builder, *, met: bool = False, reader: int = 0) -> None:
    """The elected lane alone learns that data are there; then a lane of a fixed number reads it."""
    full = k.mbarriers("full")
    data = k.shared("data", u32, (4,))
    seen = k.var("seen", 0, u32)
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.role("producer", 0), k.one_thread(0):
        k.mem.store(data[0], 7)  # data
        k.mbarrier.arrive(full)
    with k.role("consumer", 1):
        with k.elected(sync=False):
            k.mbarrier.wait(full, 0)
        if met:
            k.sync_warp()
        with k.if_(k.lane_id.eq(reader)):
            k.mem.load(seen, data[0])  # read


def test_another_lane_follows_what_the_elected_one_waited_for() -> None:
    """Proved with the lane that is elected in practice, which the report says; not at `ptx`."""
    report = ts.check(waits_alone.build())
    assert report.verdict == "proved"
    assert "E12" in [leaning.name for leaning in report.leanings]
    assert _races(waits_alone.build(reader=31), "practice")
    assert _races(waits_alone.build(), "ptx")
    assert _races(waits_alone.build(reader=31), "ptx")


@pytest.mark.parametrize("reader", [0, 31])
def test_lanes_that_meet_know_what_the_elected_one_waited_for(reader: int) -> None:
    program = waits_alone.build(met=True, reader=reader)
    report = ts.check(program)
    assert report.verdict == "proved"
    assert "E12" not in [leaning.name for leaning in report.leanings]
    assert ts.check(program, strict="ptx").verdict == "proved"


def _races(program: ts.Program, strict: Strict) -> bool:
    """Whether the data race with what reads them, and nothing else is found."""
    parts = {("producer", "k.mem.store(data[0], 7)  # data"), ("consumer", _READ)}
    return sites(ts.check(program, strict=strict), waits_alone.function) == [("race", parts)]
