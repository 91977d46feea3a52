"""Repetitions are skipped, and the report is what it is without (`tilesim.sim.affine`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import getsource
from typing import Any

import numpy as np
import pytest

import tilesim as ts
from tests.campaign import tally
from tests.gpu import needs
from tests.ptx.campaign import back
from tests.sim.steady_campaign import REPEATED, judged
from tests.sim.steady_everything import Tally as Everything
from tests.sim.steady_everything import compare
from tests.sim.steady_programs import ring
from tests.sim.timed import timed
from tilesim import Builder, f32, s32, u32
from tilesim.dsl.kernel import Kernel
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import EmitError
from tilesim.ir.expr import Expr, select
from tilesim.ir.program import Program
from tilesim.kernels.blackwell import matmul_v0 as blackwell_v0
from tilesim.kernels.blackwell import matmul_v3 as blackwell_v3
from tilesim.kernels.cluster import matmul as cluster
from tilesim.kernels.cluster import split_k
from tilesim.kernels.hopper import attention, matmul_v0, matmul_v3, matmul_v5
from tilesim.kernels.registry import Case, cases
from tilesim.sim.affine.loop_skipping import Skipper
from tilesim.sim.affine.snapshot import Snapshot, slots_of
from tilesim.sim.affine.state_fields import FIELDS, snapshot
from tilesim.sim.machine import simulate
from tilesim.sim.machine.machine import Machine


def require_same(program: Program, *, skipped: bool = True) -> ts.Report:
    """The report of a check that skips, which is the same without."""
    report = ts.check(program, schedules=2, budget=500)
    assert report == ts.check(program, schedules=2, budget=500, skip=False)
    assert bool(timed(program, skips=True).stats.skipped) is skipped
    return report


@ts.kernel(warps=2)
def parting(k: Builder, *, trips: int = 100, met: bool = True) -> None:
    """In each turn one lane copies, and the lanes do not meet behind it; those that read what has
    come meet before one of them says so, or do not."""
    source, value = k.tensor("source", s32, (32,)), k.var("value", 0)
    stage, full, empty = k.shared("stage", s32, (32,)), k.mbarriers("full"), k.mbarriers("empty")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 1)
    k.sync_threads()
    with k.role("producer", 0), k.loop(trips) as i, k.elected(sync=False):
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full, 128)
        k.bulk.load(stage, source, full)
    with k.role("consumer", 1), k.loop(trips) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(value, stage[k.lane_id])
        if met:
            k.sync_warp()
        with k.elected(sync=False):
            k.fence.proxy_async("shared::cta")
            k.mbarrier.arrive(empty)


@ts.kernel(warps=1)
def two_arms(k: Builder, *, trips: int = 400) -> None:
    """The halves of the warp wait as agents of their own once; then come turns of all lanes."""
    words, done = k.shared("words", s32, (64,)), k.mbarriers("done")
    own, value = k.mbarriers("own", 2), k.var("value", 0)
    with k.one_thread():
        k.mbarrier.init(own[0], 16)
        k.mbarrier.init(own[1], 16)
        k.mbarrier.init(done, 32)
    k.sync_warp()
    for half in range(2):
        with k.if_(k.lane_id < 16) if half == 0 else k.else_():
            k.mbarrier.arrive(own[half])
            k.mbarrier.wait(own[half], 0)
            k.mem.store(words[k.lane_id + 32 * half], 1)
    with k.loop(trips) as i:
        k.assign(value, value + 1)
        k.mbarrier.arrive(done)
        k.mbarrier.wait(done, i & 1)
    k.mem.store(words[k.lane_id], value)


# ---------------------------------------------------------------------- nothing else changes


@pytest.mark.parametrize(
    ("kernel", "params"),
    [
        (matmul_v0.matmul, {"depth": 64 * 90, "m": 64, "n": 64}),
        (matmul_v3.matmul, {"depth": 64 * 97, "m": 64, "n": 64, "stages": 1}),
        (matmul_v5.matmul, {"iterations": 153, "ctas": 1, "stages": 2}),
        (attention.attention, {"keys": 128 * 40, "queries": 128, "heads": 1}),
        (split_k.split_k, {"tiles": 150, "iterations": 150, "splits": 2}),
        (cluster.matmul, {"iterations": 70, "rows": 1, "stages": 1}),
        (blackwell_v0.matmul, {"depth": 64 * 90, "m": 128, "n": 64}),
        (blackwell_v3.matmul, {"depth": 64 * 200, "m": 128, "n": 64}),
    ],
)
def test_kernels_are_proved_all_the_same(kernel: Kernel, params: dict[str, int]) -> None:
    assert require_same(kernel.build(**params)).verdict == "proved"


@pytest.mark.parametrize(("trips", "stages"), [(300, 1), (301, 2), (307, 3)])
def test_rings_need_not_divide_the_trip_count(trips: int, stages: int) -> None:
    assert require_same(ring(trips, stages=stages)).verdict == "proved"


@pytest.mark.parametrize(("met", "verdict"), [(True, "proved"), (False, "failed")])
def test_lanes_that_part_in_each_turn(
    met: bool, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What their parts did before is told apart from what nobody can ask for any more."""
    monkeypatch.setattr(Skipper, "thrifty", False)
    assert require_same(parting.build(met=met)).verdict == verdict


def test_turns_behind_lanes_that_were_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their accesses are on record when they have met the others again, and so are they."""
    monkeypatch.setattr(Skipper, "thrifty", False)
    require_same(two_arms.build())


def test_a_small_grid_is_covered_by_the_same_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether one CTA is run for all depends on what they do, not on what of it is skipped."""
    monkeypatch.setattr("tilesim.checker.verdict.PATIENCE", 35_000)
    report = require_same(matmul_v5.matmul.build(ctas=2, iterations=120, stages=2))
    assert "every schedule of all 2 CTAs;" in report.covers
    report = require_same(matmul_v5.matmul.build(ctas=2, iterations=200, stages=2))
    assert "of all 2 CTAs, of which 1 were run" in report.covers


@ts.kernel(warps=1)
def sums(k: Builder, *, trips: int = 3000, seen: bool = False) -> None:
    """Adds to words in every turn; or one lane does, and uses what it finds."""
    word, found = k.tensor("word", f32, (32,)), k.var("found", 0.0, dtype=f32)
    if seen:
        with k.elected(), k.loop(trips):
            k.mem.atomic(word[0], "add", 1.0, result=found, scope="gpu")
    else:
        with k.loop(trips):
            k.mem.atomic(word[k.lane_id], "add", 1.0, scope="gpu")


def test_strong_writes_in_every_turn_are_skipped() -> None:
    """They are numbered, for those who observe them."""
    assert require_same(sums.build()).verdict == "proved"


def test_what_is_kept_of_observations_does_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = running(sums.build(seen=True), monkeypatch)
    words = machine.races.observations._words.values()
    assert machine.races.observations.count > 10
    assert all(len(looks) <= 1 for word in words for looks in word.looks.values())


@ts.kernel(warps=2)
def racing(k: Builder, *, trips: int = 300) -> None:
    """Nothing lies between what a warp stores and the other one loads, in any turn."""
    word, value = k.shared("word", s32, (32,)), k.var("value", 0)
    with k.loop(trips):
        with k.role("writer", 0):
            k.mem.store(word[k.lane_id], 1)
        with k.role("reader", 1):
            k.mem.load(value, word[k.lane_id])
        k.sync_threads()


def test_turns_with_a_finding_are_skipped() -> None:
    report = require_same(racing.build())
    assert report.rules >= {"race"}
    races = [f for f in report.findings if f.rule == "race"]
    assert {frozenset(p.role for p in f.participants) for f in races} == {
        frozenset({"writer", "reader"})
    }


def test_what_is_skipped_is_counted() -> None:
    program = ring(100_000)
    stats = timed(program, skips=True).stats
    short, shorter = (timed(ring(n), skips=False).stats for n in (600, 500))
    each = (short.instructions - shorter.instructions) // 100
    cycles = (short.cycles - shorter.cycles) // 100
    assert stats.instructions == short.instructions + each * (100_000 - 600)
    assert stats.cycles == short.cycles + cycles * (100_000 - 600)
    assert stats.instructions - stats.skipped < 20_000


def test_turns_that_are_skipped_do_not_count_for_the_limit_on_steps() -> None:
    """A million turns of four CTAs would be 56 million scheduling points."""
    report = ts.check(cluster.matmul.build(iterations=1_000_000, rows=1))
    assert report.verdict == "proved"


def test_a_loop_without_end_is_cut_off() -> None:
    k = Builder("endless", warps=2)
    with k.loop(2) as i:
        k.sync_threads()
        k.assign(i, i - 1)
    assert ts.check(k.finish(), schedules=0, budget=0).verdict == "bounded"


def test_a_few_programs_of_the_campaign() -> None:
    found = tally(judged, range(103, 107))
    assert not found.wrong
    assert found.amounts[REPEATED] > 1


@needs.compiler
def test_a_few_programs_of_the_campaign_in_ptx() -> None:
    """What a compiler makes of them, with guards and `selp`."""
    found = tally(partial(judged, kind="emitted"), range(80, 83))
    assert not found.wrong
    assert found.amounts[REPEATED]


def test_a_few_programs_with_registers_set_under_predicates() -> None:
    """Those of 86 and 149 were said to be proved: what lanes keep that do not execute a move."""
    found = tally(partial(judged, kind="guarded"), (86, 149))
    assert not found.wrong
    assert found.said["1 of 2 fail"] == 2


#: rows of the gallery with loops, whose PTX is compared in every run of the tests
_QUICK = frozenset({
    "hopper.copy::vector", "hopper.attention_v1::attention[keys=128,ctas=1]",
    "nvfuser.chained::chained",
    "cluster.split_k::split_k[splits=2,tiles=1]",
    "hopper.matmul_v5::matmul[stages=2,iterations=5,ctas=1]", "bugs.parity::persistent",
    "blackwell.matmul_v3::matmul[stages=2,depth=64]", "bugs.parity::persistent[fixed=True]",
    "bugs.reuse_guards::staging_guard", "bugs.reuse_guards::staging_guard[guard=per tile]",
    "bugs.proxy_fences::fence_in_loop", "bugs.proxy_fences::fence_in_loop[fixed=True]",
    "bugs.copy_groups::waited_too_little", "bugs.copy_groups::waited_too_little[fixed=True]",
    "nvfuser.multi_role::multi_role[stages=1,rows=3]", "bugs.tensor_memory::released_between_reads",
    "bugs.cluster_phases::loop_parity", "bugs.cluster_phases::loop_parity[fixed=True]",
    "bugs.empty_tiles::block_sparse", "hopper.softmax::softmax", "bugs.launch_control::answer",
    "bugs.arrival_count::contiguous_load", "bugs.role_agreement::release_behind_work",
})  # fmt: skip


def _row(case: Case) -> Any:
    quick = str(case.target).removeprefix("tilesim.kernels.") in _QUICK
    return pytest.param(case, id=str(case.target), marks=() if quick else pytest.mark.slow)


@needs.compiler
@pytest.mark.parametrize("case", [_row(c) for c in cases(None) if c.expected != "rejected"])
def test_the_gallery_in_ptx(case: Case) -> None:
    """Whole reports, with verdict, rules and lines, of what is read back from the PTX."""
    try:
        loaded = back(emit(case.kernel.build(**case.params)))
    except EmitError:
        return  # it has no CUDA
    tally = Everything()
    compare(str(case.target), loaded, case.strict, tally)
    assert not tally.different
    assert tally.verdicts


# ---------------------------------------------------------------------- late faults


@pytest.mark.parametrize(
    ("trips", "where"),
    [*((400, w) for w in ("first", "middle", "last but one", "last", "never")), (3_000, "last")],
)
def test_a_fault_in_one_turn_is_found(trips: int, where: str) -> None:
    turn = {
        "first": 1, "middle": trips // 2 + 1, "last but one": trips - 2, "last": trips - 1,
        "never": trips,
    }[where]  # fmt: skip
    program = ring(trips, faulty=lambda i: i.eq(turn))
    report = ts.check(program, schedules=0, budget=0)
    assert report.verdict == ("proved" if where == "never" else "failed")
    if where != "never" and trips < 1_000:
        assert report == ts.check(program, schedules=0, budget=0, skip=False)


@pytest.mark.parametrize(
    ("faulty", "found"),
    [
        (lambda i, n: i > 390, True),
        (lambda i, n: i.eq(n - 7), True),
        (lambda i, n: (i % 389).eq(388), True),
        (lambda i, n: (i * i).eq(397 * 397), True),
        (lambda i, n: (i & 255).eq(254), True),
        (lambda i, n: ((i >> 3) ^ 5).eq(40), True),
        (lambda i, n: select(i < 395, 0, 1).eq(1), True),
        (lambda i, n: i < 0, False),
        (lambda i, n: (i % 389).eq(389), False),
    ],
)
def test_faults_under_other_conditions(faulty: Callable[[Expr, int], Expr], found: bool) -> None:
    program = ring(400, faulty=lambda i: faulty(i, 400))
    report = ts.check(program, schedules=0, budget=0)
    assert report.verdict == ("failed" if found else "proved")
    assert report == ts.check(program, schedules=0, budget=0, skip=False)


@pytest.mark.parametrize("more", [-1, 1])
def test_consumers_that_make_another_number_of_turns(more: int) -> None:
    report = require_same(ring(400, consumer_trips=400 + more))
    assert report.verdict == ("failed" if more > 0 else "proved")


def test_a_counter_that_wraps_is_not_skipped_over() -> None:
    """An unsigned counter begins shortly before it wraps; where it is zero a store is missing."""

    def program(start: int) -> Program:
        k = Builder("wraps", warps=1)
        data = k.shared("data", s32, (32,))
        count, value = k.var("count", start, u32), k.var("value", 0)
        with k.loop(400):
            k.assign(count, count + 1)
            with k.if_(count < 3):
                k.mem.load(value, data[31 - k.lane_id])
            k.mem.store(data[k.lane_id], 1)
            k.sync_threads()
        return k.finish()

    assert require_same(program(1000)).verdict == "proved"
    late = ts.check(program((1 << 32) - 300), schedules=0, budget=0)
    assert late == ts.check(program((1 << 32) - 300), schedules=0, budget=0, skip=False)


def test_nested_loops_and_loops_of_different_length() -> None:
    k = Builder("nested", warps=2)
    done = k.mbarriers("done", 1)
    with k.one_thread():
        k.mbarrier.init(done[0], 32)
    k.sync_threads()
    with k.role("outer", 0), k.loop(40) as i, k.loop(30) as j:
        k.sync_warp()
        with k.if_((i * 30 + j).eq(1_199)):
            k.mbarrier.arrive(done[0])
    with k.role("long", 1):
        with k.loop(777):
            k.sync_warp()
        k.mbarrier.wait(done[0], 0)
    assert require_same(k.finish(), skipped=False).verdict == "proved"


# ---------------------------------------------------------------------- the state


def running(program: Program, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine in the middle of its timed run."""
    machines: list[Machine] = []

    def some(machine: Machine) -> None:
        simulate._start(machine)
        machine.env.run(until=3_000)
        machines.append(machine)

    monkeypatch.setattr(Machine, "release", lambda machine: None)
    monkeypatch.setattr("tilesim.sim.machine.simulate.run_machine", some)
    timed(program, skips=False)
    return machines[0]


def test_fields_that_may_move_exist() -> None:
    for kind, special in FIELDS.items():
        text = "".join(getsource(base) for base in kind.__mro__ if base.__module__ != "builtins")
        for name in special:
            assert re.search(rf"\b{name}\b", text), (kind, name)


#: fields of a machine, a warp, a barrier and a CTA that do not count, and why
DO_NOT_COUNT = {
    "executed": "statistics", "steps": "statistics", "skipped": "statistics",
    "by_parts": "statistics",
    "finish": "a time that is over", "tensor_core_free": "a time that is over",
    "_limit": "when it is worth it to tidy up", "_made": "how many sets of bytes have been named",
}  # fmt: skip


def test_whatever_changes_shows_in_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = running(matmul_v5.matmul.build(iterations=30, ctas=1, stages=2), monkeypatch)
    warp, barrier = machine.warps[4], next(iter(machine.ctas[0].mbarriers.values()))
    parts = [
        machine, machine.outcome, machine.ctas[0], machine.ctas[0].pool, warp, warp.warpgroup,
        warp.groups["wgmma"], barrier, barrier.current, barrier.previous.credits[0],
        barrier.previous.waits[0].warp, machine.ctas[0].named[1], machine.races,
    ]  # fmt: skip
    before = snapshot(machine)
    assert before.repeats(snapshot(machine))
    changed = 0
    for part in parts:
        for name in [*slots_of(type(part)), *getattr(part, "__dict__", ())]:
            value: Any = getattr(part, name, None)
            if type(value) not in (int, float, bool, str) or name in DO_NOT_COUNT:
                continue
            setattr(part, name, value + "x" if isinstance(value, str) else value + 1)
            after = snapshot(machine)
            assert after.shape != before.shape or after.families != before.families, name
            setattr(part, name, value)
            changed += 1
    assert changed > 60
    assert before.repeats(snapshot(machine))


def test_numbers_keep_their_order() -> None:
    """What grows has to be above what does not, and all of it by the same."""

    def state(*values: int) -> Snapshot:
        found = Snapshot(1, families={"count": [*values]})
        found.clocks.append(np.array([0]))
        return found

    assert state(3, 30, 31).repeats(state(3, 20, 21))
    assert not state(3, 30, 32).repeats(state(3, 20, 21))
    assert not state(9, 30, 31).repeats(state(9, 20, 21))
    assert not state(3, 19).repeats(state(3, 20))


def test_a_run_that_skips_says_no_less() -> None:
    program = ring(500)
    skipping, whole = (timed(program, skips=skips) for skips in (True, False))
    assert skipping.findings == whole.findings
    assert replace(skipping.stats, skipped=0) == whole.stats


@pytest.mark.parametrize(("cta", "turn"), [(77, 385), (0, 500)])
def test_another_cta_fails_in_a_turn_that_the_one_that_is_run_skips(cta: int, turn: int) -> None:
    """In CTA 77 of 100, and in turn 385 = 5 * 77 only, the two warps store to the same word."""
    k = Builder("grid", warps=2)
    k.launch(grid=100)
    data = k.shared("data", s32, (2, 32))
    with k.loop(400) as i:
        k.sync_threads()
        mine = k.var("mine", 0)
        k.assign(mine, k.warp_id)
        with k.if_((k.cta_x * 5).eq(i) & (k.cta_x > 70) & k.cta_x.eq(cta)):
            k.assign(mine, 0)
        k.mem.store(data[mine, k.lane_id], k.warp_id)
    program = k.finish()
    report = ts.check(program, schedules=0, budget=0)
    assert report == ts.check(program, schedules=0, budget=0, skip=False)
    assert report.verdict == ("failed" if turn < 400 else "proved")
