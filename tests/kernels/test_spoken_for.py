"""Where the threads of a warpgroup have to meet before one of them releases what all have done."""

from __future__ import annotations

import pytest

import tilesim as ts
from tilesim.mistakes import diagnose as explain

WORDS, TURNS = 128, 4


@pytest.fixture(autouse=True)
def _strictly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A diagnosis that raises fails the test."""
    monkeypatch.setattr(explain, "RAISES", True)


@ts.kernel(warps=8)
def handed_over(k: ts.Builder, *, bug: str = "", turned: bool = False) -> None:
    """One warpgroup writes words and another one reads them, as in an unrolled loop."""
    out = k.tensor("out", ts.f32, (TURNS, WORDS))
    words = k.shared("words", ts.f32, (WORDS,))
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    value = k.var("value", dtype=ts.f32)
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 1)
    k.sync_threads()
    own = k.thread_id % WORDS
    with k.role("writer", range(4)):
        for turn in range(TURNS):
            k.mbarrier.wait(empty, (turn & 1) ^ 1)
            k.mem.store(words[own], 1.0 * turn)
            if bug != "writers":
                k.bar.sync(1, 128)
            with k.if_(own.eq(0)):
                k.mbarrier.arrive(full)  # @writers
    with k.role("reader", range(4, 8)):
        for turn in range(TURNS):
            k.mbarrier.wait(full, turn & 1)
            k.mem.load(value, words[WORDS - 1 - own if turned else own])
            k.mem.store(out[turn, own], value)
            if bug != "readers":
                k.bar.sync(2, 128)
            with k.if_(own.eq(0)):
                k.mbarrier.arrive(empty)  # @readers


SPOKEN = (
    # the words of warp 0 are read first, of which other lanes write some as well
    ("writers", False, "writer (warp 0) arrives on full[0] for writer (warp 1) as well", "0-3"),
    ("writers", True, "writer (warp 0) arrives on full[0] for writer (warp 3) as well", "0-3"),
    ("readers", False, "reader (warp 4) arrives on empty[0] for reader (warp ", "4-7"),
    # the next write of the writer is of its next turn, and nothing that it arrives too early for
    ("readers", True, "reader (warp 4) arrives on empty[0] for reader (warp ", "4-7"),
)


@pytest.mark.parametrize(("bug", "turned", "cause", "warps"), SPOKEN)
def test_the_barrier_that_lacks_is_that_of_the_warpgroup(
    bug: str, turned: bool, cause: str, warps: str
) -> None:
    report = ts.check(handed_over.build(bug=bug, turned=turned))
    finding = report.findings[0]
    assert (finding.rule, finding.diagnosis) == ("race", "no_barrier_before_release")
    assert cause in finding.cause
    assert f"bar.sync of the 128 threads of warps {warps}" in finding.fix
    assert finding.fix.endswith(f"before the mbarrier.arrive of {cause.partition(' arrives')[0]}")
    with open(__file__) as file:
        (line,) = (n for n, text in enumerate(file, 1) if f"# @{bug}\n" in text)
    assert line in [c.loc.line for c in finding.culprits]
    assert ts.check(handed_over.build(turned=turned)).verdict == "proved"


@ts.kernel(warps=4)
def stored_by_one(k: ts.Builder, *, fixed: bool = False) -> None:
    """All warps write a tile, and one thread stores it."""
    out = k.tensor("out", ts.f32, (4, 32))
    tile = k.shared("tile", ts.f32, (4, 32))
    k.mem.store(tile[k.warp_id, k.lane_id], 1.0)
    k.fence.proxy_async("shared::cta")
    if fixed:
        k.sync_threads()
    else:
        k.sync_warp()
    with k.one_thread():
        k.bulk.store(out, tile)
        k.bulk.commit_group()
        k.bulk.wait_group(0)


def test_who_copies_first_in_a_run_is_not_to_be_first() -> None:
    """The copy of warp 0 comes before the write of warp 1 where warp 1 is late: it is the copy that
    has to wait, and not the write that has to wait for the copy."""
    finding = ts.check(stored_by_one.build()).findings[0]
    assert "writes tile[1" in finding.message
    assert finding.fix == (
        "let warp 0 wait for warp 1's st before its cp.async.bulk.store: bar.sync of the "
        "whole CTA "
        "in between, or an mbarrier"
    )
    assert ts.check(stored_by_one.build(fixed=True)).verdict == "proved"


@ts.kernel(warps=2)
def freed_in_both(k: ts.Builder, *, fixed: bool = False) -> None:
    """A stage is filled for both CTAs of a pair, and freed in both by a lane each."""
    k.launch(grid=2, cluster=2)
    X, Y = k.tensor("X", ts.f32, (TURNS, 2, 32)), k.tensor("Y", ts.f32, (2, TURNS, 64))
    x_map = k.tensor_map(X, (1, 1, 32))
    stage = k.shared("stage", ts.f32, (2, 32))
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    value = k.var("value", dtype=ts.f32)
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 2)
        k.fence.mbarrier_init()
    k.cluster.sync()
    rank = k.cluster_rank
    with k.role("load", 1), k.elected(), k.loop(TURNS) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1, scope="cluster")
        k.mbarrier.arrive_expect_tx(full, 256)
        k.tma.load(x_map, stage[rank], (i, rank, 0), full, multicast=3)
    with k.role("use", 0), k.loop(TURNS) as i:
        k.mbarrier.wait(full, i & 1, scope="cluster")
        for half in range(2):
            k.mem.load(value, stage[half, k.lane_id])
            k.mem.store(Y[rank, i, 32 * half + k.lane_id], value)
        if fixed:
            k.sync_warp()
        with k.if_(k.lane_id < 2):
            with k.if_(k.lane_id.eq(0)):
                k.mbarrier.arrive(empty[0].at(0), scope="cluster")
            with k.else_():
                k.mbarrier.arrive(empty[0].at(1), scope="cluster")
    k.cluster.sync()


def test_lanes_that_part_twice_before_one_hands_on() -> None:
    finding = ts.check(freed_in_both.build()).findings[0]
    assert (finding.rule, finding.diagnosis) == ("race", "lanes_of_a_warp")
    assert any("a bar.warp.sync is missing between" in note for note in finding.notes)
    assert "(bar.warp.sync) before one of them releases" in finding.fix
    assert ts.check(freed_in_both.build(fixed=True)).verdict == "proved"
