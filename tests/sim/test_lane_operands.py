"""Operands that differ between the lanes of a warp: wrong where the warp acts together, otherwise
modelled or refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tilesim as ts
from tilesim import Builder
from tilesim.arith.types import bf16, f32, s32, u8, u32
from tilesim.ir.expr import Operand

#: writes a kernel that uses the value, which is 0 in lane 0, as an operand
Body = Callable[[Builder, Operand], None]


def barriers(k: Builder) -> ts.Mbarriers:
    """Two initialised mbarriers that complete with one arrival."""
    bars = k.mbarriers("bars", 2)
    with k.one_thread():
        for bar in bars:
            k.mbarrier.init(bar, 1)
    k.sync_threads()
    return bars


def named_barrier(k: Builder, value: Operand) -> None:
    k.bar.sync(1 + value, aligned=False)


def wgmma(k: Builder, value: Operand) -> None:
    a, b = (k.shared(name, bf16, (64, 64), swizzle=128) for name in "ab")
    acc = k.fragment("acc", f32, (64, 64), "warpgroup")
    for rows in range(64):
        with k.if_(k.thread_id < 64):
            k.mem.store(a[rows, k.thread_id], 0)
            k.mem.store(b[rows, k.thread_id], 0)
    k.fence.proxy_async()
    k.sync_threads()
    k.tile.fill(acc, 0)
    k.wgmma.fence()
    k.wgmma.mma_async(acc, a[:, 0:16], b[:, 0:16], accumulate=value)
    k.wgmma.commit_group()
    k.wgmma.wait_group(0)


TOGETHER: dict[str, Body] = {"barrier.sync": named_barrier, "wgmma.mma_async": wgmma}


def polled(k: Builder, value: Operand) -> None:
    bars = barriers(k)
    result = k.var("result")
    with k.elected():
        k.mbarrier.arrive(bars[0])
        k.mbarrier.arrive(bars[1])
    k.mbarrier.wait(bars[0], 0)
    k.mbarrier.wait(bars[1], 0)
    with k.if_(k.lane_id < 2):
        k.mbarrier.test_wait(result, bars[value], 0)


def tile(k: Builder, value: Operand) -> None:
    x = k.tensor("x", s32, (64, 16))
    k.tile.load(k.fragment("part", s32, (16, 16)), x[ts.ds(value * 16, 16), :])


def cancel(k: Builder, value: Operand) -> None:
    response, bars = k.shared("response", u8, (2, 16)), barriers(k)
    with k.if_(k.lane_id < 1 + value if isinstance(value, int) else k.lane_id < 2):
        k.mbarrier.arrive_expect_tx(bars[value], 16)
    with k.if_(k.lane_id < 1 + value if isinstance(value, int) else k.lane_id < 2):
        k.clc.try_cancel(response[value], bars[value])
    k.mbarrier.wait(bars[0], 0)


#: instructions of single threads, of which lanes may name different operands
ALONE: dict[str, tuple[Body, str]] = {
    "mbarrier.test_wait": (polled, "sm_90a"),
    "tile.load": (tile, "sm_90a"),
    "clusterlaunchcontrol.try_cancel": (cancel, "sm_100a"),
}


def checked(body: Body, *, lanes: bool, warps: int = 1, target: str = "sm_90a") -> ts.Report:
    """The kernel with the operand 0, or with one that differs between the lanes."""
    k = Builder("kernel", target=target, warps=warps)
    body(k, k.lane_id % 2 if lanes else 0)
    return ts.check(k.finish())


@pytest.mark.parametrize("name", TOGETHER)
def test_a_warp_that_acts_together_has_one_operand(name: str) -> None:
    report = checked(TOGETHER[name], lanes=True, warps=4)
    (finding,) = report.findings
    assert (report.verdict, finding.rule) == ("failed", "participation")
    assert finding.message.startswith(f"{name} has an operand that differs between the lanes")
    assert {p.loc.function for p in finding.participants} == {TOGETHER[name].__name__}
    assert checked(TOGETHER[name], lanes=False, warps=4).verdict == "proved"


@pytest.mark.parametrize("name", ALONE)
def test_operands_of_single_threads_that_are_not_modelled_are_no_finding(name: str) -> None:
    body, target = ALONE[name]
    report = checked(body, lanes=True, target=target)
    (finding,) = report.findings
    assert (report.verdict, finding.rule) == ("unsupported", "unsupported")
    assert finding.message == (
        f"{name} with an operand that differs between the lanes of a warp is not modelled"
    )
    assert {p.loc.function for p in finding.participants} == {body.__name__}
    assert checked(body, lanes=False, target=target).verdict == "proved"


def bulk_loads(k: Builder, value: Operand) -> None:
    """Each of two lanes loads a row, tracked by its own mbarrier."""
    x, rows = k.tensor("x", u32, (2, 16)), k.shared("rows", u32, (2, 16))
    bars = barriers(k)
    with k.if_(k.lane_id < 2):
        k.mbarrier.arrive_expect_tx(bars[k.lane_id], rows[0].nbytes)
        k.bulk.load(rows[k.lane_id], x[k.lane_id], bars[k.lane_id])
        k.mbarrier.wait(bars[k.lane_id], 0)


def tma_loads(k: Builder, value: Operand) -> None:
    """Each of two lanes loads a box, tracked by its own mbarrier."""
    x, rows = k.tensor("x", u32, (2, 32)), k.shared("rows", u32, (2, 1, 32))
    box, bars = k.tensor_map(x, (1, 32)), barriers(k)
    with k.if_(k.lane_id < 2):
        k.mbarrier.arrive_expect_tx(bars[k.lane_id], box.box_bytes)
        k.tma.load(box, rows[k.lane_id], (k.lane_id, 0), bars[k.lane_id])
        k.mbarrier.wait(bars[k.lane_id], 0)


@pytest.mark.parametrize("body", [bulk_loads, tma_loads])
def test_bulk_operations_of_several_lanes_are_modelled(body: Body) -> None:
    assert checked(body, lanes=True).verdict == "proved"


def test_lanes_leave_a_loop_after_turns_of_their_own() -> None:
    k = Builder("kernel", warps=1)
    y = k.tensor("y", s32, (32,))
    seen = k.var("seen", 0)
    with k.loop(k.lane_id % 4) as i:
        k.assign(seen, seen + i + 1)
    k.mem.store(y[k.lane_id], seen)
    program = k.finish()
    assert ts.check(program).verdict == "proved"
    sums = [sum(range(1, lane % 4 + 1)) for lane in range(32)]
    assert ts.simulate(program).outputs["y"].tolist() == sums
