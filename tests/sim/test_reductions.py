"""Reductions that return nothing commute: they neither hide a schedule nor need one explored."""

from __future__ import annotations

import numpy as np
import pytest

from tilesim import Builder, Program, f32, s32, u32
from tilesim.arith.types import DType
from tilesim.checker import check
from tilesim.ir.ops.bulk import ReduceOp
from tilesim.ir.ops.scalar import AtomicOp
from tilesim.sim.machine.simulate import simulate


def histogram(
    *ops: AtomicOp, dtype: DType = s32, result: bool = False, joined: bool = True,
    steers: bool = False,
) -> Program:  # fmt: skip
    """Each warp of two CTAs reduces into both CTAs' bins; warp 0 then writes them out.

    ``steers``: where a bin is not zero.
    """
    k = Builder("histogram", "sm_90a", len(ops))
    k.launch(grid=2, cluster=2)
    bins, out = k.shared("bins", dtype, (32,)), k.tensor("out", dtype, (2, 32))
    value, seen = k.var("value", 0, dtype=dtype), k.var("seen", 0, dtype=dtype)
    with k.role("zero", 0):
        k.mem.store(bins[k.lane_id], 0)
    k.cluster.sync()
    for warp, op in enumerate(ops):
        with k.role(f"reduce{warp}", warp):
            for peer in range(2):
                cell = bins[k.lane_id].at(peer)
                k.mem.atomic(cell, op, warp + 1, result=seen if result else None, scope="cluster")
    if joined:
        k.cluster.sync()
    with k.role("write", 0):
        k.mem.load(value, bins[k.lane_id])
        with k.if_(value.ne(0) if steers else k.lane_id < 32):
            k.mem.store(out[k.cluster_rank, k.lane_id], value)
    k.cluster.sync()
    return k.finish()


def test_one_run_proves_reductions_of_one_kind() -> None:
    program = histogram("add", "add", "add")
    report = check(program)
    assert (report.verdict, report.findings) == ("proved", ())
    assert report.stats is not None
    assert report.stats.schedules == 1
    for seed in range(4):
        run = simulate(program, policy="random", seed=seed)
        np.testing.assert_array_equal(run.outputs["out"], np.full((2, 32), 12))


@pytest.mark.parametrize(
    "program",
    [
        histogram("add", "max"),
        histogram("add", "add", result=True),
        histogram("add", "add", dtype=f32, steers=True),
        histogram("inc", "inc", dtype=u32, steers=True),
        histogram("inc", "dec", dtype=u32),
    ],
    ids=["kinds mixed", "result", "rounding", "limits", "up and down"],
)
def test_what_the_order_can_change_is_not_proved_by_one_run(program: Program) -> None:
    report = check(program, schedules=8, budget=100)
    assert (report.verdict in ("exhausted", "bounded"), report.findings) == (True, ())
    assert any("may depend on the schedule" in reason for reason in report.reasons)


@pytest.mark.parametrize(("op", "dtype"), [("add", f32), ("inc", u32), ("dec", u32)])
def test_numbers_that_steer_nothing_do_not_matter(op: AtomicOp, dtype: DType) -> None:
    report = check(histogram(op, op, dtype=dtype))
    assert (report.verdict, report.findings) == ("proved", ())
    assert "reductions of floats, by inc and by dec leave what their order has" in report.covers
    assert "their order" not in check(histogram("add", "add")).covers


@pytest.mark.parametrize("second", ["inc", "dec"])
def test_copies_that_reduce(second: ReduceOp) -> None:
    """Each of two warps reduces into the same words by a copy; the wrong ones by different ones."""
    k = Builder("copies", "sm_90a", 2)
    words, out = k.shared("words", u32, (32,), align=16), k.tensor("out", u32, (32,))
    k.mem.store(words[k.lane_id], 3)
    k.fence.proxy_async()
    k.sync_threads()
    for warp, op in enumerate(("inc", second)):
        with k.role(f"reduce{warp}", warp), k.elected():
            k.bulk.reduce(out[:], words[:], op)
            k.bulk.commit_group()
            k.bulk.wait_group(0)
    report = check(k.finish())
    assert (report.verdict, report.findings) == ("proved" if second == "inc" else "bounded", ())


def test_the_reader_must_come_after_the_reductions() -> None:
    report = check(histogram("add", "add", joined=False))
    assert report.verdict == "failed"
    assert {f.rule for f in report.findings} == {"race"}
    pairs = [{p.role for p in f.participants} for f in report.findings]
    assert all("write" in roles for roles in pairs)
    assert {"write", "reduce1"} in pairs


@pytest.mark.parametrize("late", [0, 1])
def test_a_reader_that_waits_for_one_of_two_warps_races_with_the_other(late: int) -> None:
    k = Builder("counter", "sm_90a", 3)
    count, out = k.shared("count", s32, (1,)), k.tensor("out", s32, (1,))
    done, value = k.mbarriers("done"), k.var("value", 0)
    with k.one_thread():
        k.mbarrier.init(done, 1)
        k.mem.store(count[0], 0)
    k.sync_threads()
    for warp in range(2):
        with k.role(f"reduce{warp}", warp), k.elected():
            if warp == late:
                with k.loop(200):
                    k.assign(value, 0)
            with k.loop(3):
                k.mem.atomic(count[0], "add", 1, scope="cta")
            if warp == 0:
                k.mbarrier.arrive(done)
    with k.role("read", 2), k.elected():
        k.mbarrier.wait(done, 0)
        with k.loop(900):
            k.assign(value, 0)
        k.mem.load(value, count[0])
        k.mem.store(out[0], value)
    report = check(k.finish())
    assert {f.rule for f in report.findings} == {"race"}
    assert {p.role for f in report.findings for p in f.participants} == {"read", "reduce1"}
