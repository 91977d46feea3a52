"""Lanes that wait together and then act apart: some may still be looking when others go on."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel
from tilesim.arith.types import bf16, f32
from tilesim.checker import check
from tilesim.checker.witness import replay
from tilesim.lib.opening import open_cta
from tilesim.sim.machine.simulate import Simulation
from tilesim.sim.schedulers.exhaustive import explore
from tilesim.sim.schedulers.frontier import Limits


@kernel(warps=2)
def halves(k: Builder, *, sync: bool = True) -> None:
    """Half of a warp leaves the barrier in the first phase; the other half ends the second one."""
    b = k.mbarriers("b")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, 32)
    k.sync_threads()
    with k.role("W1", 1):
        with k.if_(k.lane_id < 16):
            k.mbarrier.arrive_drop(b)
        with k.if_(k.lane_id >= 16):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 0)
        if sync:
            k.sync_warp()
        with k.if_(k.lane_id >= 16):
            k.mbarrier.arrive(b)
        k.mbarrier.wait(b, 1)


def test_lanes_that_met_have_all_passed() -> None:
    assert check(halves.build(), strict="ptx").verdict == "proved"


def test_lanes_that_did_not_may_miss_the_phase() -> None:
    """A lane that still looks when the others have ended the next phase waits for ever. That a
    thread has waited (A24) is true all the same: each lane that arrives has waited itself."""
    program = halves.build(sync=False)
    report = check(program)
    assert report.verdict == "failed"
    assert report.witness is not None
    assert "of warp 1 go their own way" in report.covers
    finding = found(report, "deadlock")
    assert ("W1", at(halves, "k.mbarrier.wait(b, 0)")) in sites(finding)
    assert finding in replay(program, report.witness).findings


@kernel(warps=2)
def leader(k: Builder, *, sync: bool = True) -> None:
    """All lanes wait, and one of them answers for all (cutlass#3654)."""
    there, back = k.mbarriers("there"), k.mbarriers("back")
    with k.one_thread():
        k.mbarrier.init(there, 32)
        k.mbarrier.init(back, 1)
    k.sync_threads()
    with k.role("asks", 0), k.loop(3) as i:
        k.mbarrier.arrive(there)
        k.mbarrier.wait(back, i & 1)
    with k.role("answers", 1), k.loop(3) as i:
        k.mbarrier.wait(there, i & 1)
        if sync:
            k.sync_warp()
        with k.if_(k.lane_id.eq(31)):
            k.mbarrier.arrive(back)


def test_a_leader_answers_when_all_have_passed() -> None:
    assert check(leader.build(), strict="ptx").verdict == "proved"
    program = leader.build(sync=False)
    report = check(program)
    finding = found(report, "deadlock")
    assert ("answers", at(leader, "k.mbarrier.wait(there")) in sites(finding)
    assert report.witness is not None
    assert finding in replay(program, report.witness).findings


@kernel(warps=2)
def elected_leader(
    k: Builder, *, gather: str = "elect", ends: bool = False, first: bool = False
) -> None:
    """The lane that answers, or ends the barrier, is elected; nothing hands over memory before.

    ``first``: its lane 0 ends the barrier, and nothing gathers the lanes after they looked."""
    there, back = k.mbarriers("there"), k.mbarriers("back")
    chosen = k.var("chosen", 0)
    with k.one_thread():
        k.mbarrier.init(there, 32)
        k.mbarrier.init(back, 1)
    k.sync_threads()
    with k.role("asks", 0), k.loop(3) as i:
        k.mbarrier.arrive(there)
        k.mbarrier.wait(back, i & 1)
    with k.role("answers", 1):
        with k.loop(3) as i:
            k.mbarrier.wait(there, i & 1)
            if gather == "shuffle":
                k.mem.shuffle(chosen, k.lane_id, 0)
            with k.elected(sync=False) if gather == "elect" else k.if_(k.lane_id.eq(0)):
                k.mbarrier.arrive(back)
        if first:
            k.mbarrier.wait(there, 0)
        if ends:
            with k.if_(k.lane_id.eq(0)) if first else k.elected(sync=False):
                k.mbarrier.inval(there)


@pytest.mark.parametrize("gather", ["elect", "shuffle"])
def test_lanes_that_are_gathered_have_all_passed(gather: str) -> None:
    """elect.sync and shfl.sync wait for all lanes of the mask (E19, E20)."""
    assert check(elected_leader.build(gather=gather), strict="ptx").verdict == "proved"
    wrong = elected_leader.build(gather="")
    finding = found(check(wrong), "deadlock")
    assert ("answers", at(elected_leader, "k.mbarrier.wait(there, i")) in sites(finding)


def test_but_what_they_did_is_not_known_in_memory() -> None:
    """mbarrier.inval writes what the other lanes have read (A6): `practice` takes gathered lanes
    for ordered, as the end of libcu++'s pipeline does."""
    program = elected_leader.build(ends=True)
    inval = ("answers", at(elected_leader, "k.mbarrier.inval(there)"))
    finding = found(check(program, strict="ptx"), "barrier-lifetime")
    assert inval in sites(finding)
    report = check(program)
    assert report.verdict == "proved"
    assert [one.name for one in report.leanings if one.kind == "practice"] == ["A6"]
    alone = check(elected_leader.build(ends=True, first=True))
    assert alone.verdict == "bounded"
    lines = [at(elected_leader, text) for text in ("k.mbarrier.inval(there)", "wait(there, 0)")]
    (reason,) = alone.reasons
    assert "condition I" in reason
    assert all(f"test_lagging_lanes.py:{line}" in reason for line in lines)


@kernel(warps=5)
def released(k: Builder, *, pending: int = 0, items: int = 3, who: str = "thread 0") -> None:
    """One thread of a warpgroup gives a stage back, as in many a kernel for Hopper: the others have
    passed the wait for it, as the products of all four warps wait for them."""
    stages = 2
    X, C = k.tensor("X", bf16, (64, 64 * items)), k.tensor("C", f32, (64, 64))
    x_map = k.tensor_map(X, (64, 64), swizzle=128)
    tile = k.shared("tile", bf16, (stages, 64, 64), swizzle=128)
    acc = k.fragment("acc", f32, (64, 64), "warpgroup")
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    open_cta(k, (full, 1), (empty, 1))
    with k.role("producer", 4), k.elected(), k.loop(items) as i:
        stage, turn = i % stages, i // stages
        k.mbarrier.wait(empty[stage], (turn & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full[stage], x_map.box_bytes)
        k.tma.load(x_map, tile[stage], (0, 64 * i), full[stage])
    with k.warpgroup(0):
        k.tile.fill(acc, 0.0)
        with k.loop(items) as i:
            stage, turn = i % stages, i // stages
            k.mbarrier.wait(full[stage], turn & 1)
            k.wgmma.fence()
            for start in (0, 16):
                part = tile[stage, :, start : start + 16]
                k.wgmma.mma_async(acc, part, part)
            k.wgmma.commit_group()
            k.wgmma.wait_group(pending)
            chosen = k.thread_id.eq(0) if who == "thread 0" else k.thread_id.eq(37)
            with k.if_(chosen):
                k.mbarrier.arrive(empty[stage])
        k.wgmma.wait_group(0)
        k.tile.store(C, acc)


@pytest.mark.parametrize("who", ["thread 0", "thread 37"])
def test_products_wait_for_the_lanes_of_their_warp(who: str) -> None:
    report = check(released.build(who=who), strict="ptx")
    assert (report.verdict, report.findings) == ("proved", ()), report
    early = check(released.build(who=who, pending=1))
    race = found(early, "race")
    assert ("producer", at(released, "k.tma.load(x_map")) in sites(race)


@pytest.mark.parametrize("lanes", [1, 0xFFFF])
def test_lanes_that_come_one_by_one_execute_products_in_a_row(lanes: int) -> None:
    """Several products are one step: all lanes that have waited for each other go on behind it."""
    simulation = Simulation(released.build(items=2), numbers=False, strict="practice")
    tried = explore(simulation.lanes_apart(0, lanes), [0], {}, Limits(20_000, 20))
    assert tried.failure is None


@kernel(warps=2)
def answered(k: Builder, *, sync: bool = True) -> None:
    """One lane answers for all that wait (as `leader`), and an elected one asks."""
    there, back = k.mbarriers("there"), k.mbarriers("back")
    open_cta(k, (there, 1), (back, 1))
    with k.role("asks", 0), k.elected(), k.loop(3) as i:
        k.mbarrier.arrive(there)
        k.mbarrier.wait(back, i & 1)
    with k.role("answers", 1), k.loop(3) as i:
        k.mbarrier.wait(there, i & 1)
        if sync:
            k.sync_warp()
        with k.if_(k.lane_id.eq(0)):
            k.mbarrier.arrive(back)


def test_the_lane_that_has_missed_a_phase_is_named_first() -> None:
    """The code of the lanes that go their own way is a copy: what the other lanes execute of theirs
    was executed."""
    assert check(answered.build()).verdict == "proved"
    finding = check(answered.build(sync=False)).findings[0]
    assert (finding.rule, finding.locations[0].line) == (
        "deadlock", at(answered, "k.mbarrier.wait(there")
    )  # fmt: skip
    assert "never executed" not in finding.cause
