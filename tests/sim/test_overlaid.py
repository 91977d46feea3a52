"""Shared allocations that overlap: a value that was read before the bytes were overwritten is the
old value, one that is read after is what overwrote them."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.kernels.mutate import line
from tilesim import Builder, f32, kernel, u32
from tilesim.checker import check
from tilesim.ir.program import Strict

STRICT: tuple[Strict, ...] = ("practice", "ptx")
By = Literal["tma", "tile", "fill", "nobody"]


@kernel(target="sm_100a", warps=5)
def reused_slot(k: Builder, *, late: bool = False, by: By = "tma", columns: int = 32) -> None:
    """The bytes of the slot with the address of tensor memory become part of a stage."""
    X, out = k.tensor("X", f32, (32, 32)), k.tensor("out", f32, (128, 32))
    stage = k.shared("stage", f32, (32, 32), offset=0)
    slot, full = k.shared("slot", u32, (1,), offset=0), k.mbarriers("full", offset=8192)
    acc, part = k.fragment("acc", f32, (128, 32), "warpgroup"), k.fragment("part", f32, (32, 32))
    x_map, address = k.tensor_map(X, (32, 32)), k.var("address", dtype=u32)
    with k.one_thread():
        k.mbarrier.init(full, 1)
    with k.role("owner", 0):
        k.tcgen05.alloc(slot, columns)
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    k.tcgen05.fence_after_thread_sync()
    if not late:
        k.mem.load(address, slot[0])
        k.fence.proxy_async()
        k.sync_threads()
    else:
        k.fence.proxy_async()
        k.sync_threads()
    with k.role("producer", 4):
        if by in ("tile", "fill"):
            if by == "tile":
                k.tile.load(part, X)
            else:
                k.tile.fill(part, 1.0)
            k.tile.store(stage, part)
            k.sync_warp()
        with k.elected():
            if by == "tma":
                k.mbarrier.arrive_expect_tx(full, x_map.box_bytes)
                k.tma.load(x_map, stage, (0, 0), full)
            else:
                k.mbarrier.arrive(full)
    k.mbarrier.wait(full, 0)
    if late:
        k.mem.load(address, slot[0])  # late
    d = k.tcgen05.tensor(address, f32, (128, 32), name="d")
    with k.role("group", range(4)):
        k.tile.fill(acc, 0.0)
        k.tcgen05.st(d, acc)
        k.tcgen05.wait_st()
        k.tcgen05.ld(acc, d)
        k.tcgen05.wait_ld()
        k.tile.store(out, acc)
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    k.tcgen05.fence_after_thread_sync()
    with k.role("owner", 0):
        k.tcgen05.dealloc(address, columns)


@pytest.mark.parametrize("strict", STRICT)
@pytest.mark.parametrize("columns", [32, 512])
@pytest.mark.parametrize("by", ["tma", "tile", "fill"])
def test_an_address_that_data_has_overwritten(by: By, columns: int, strict: Strict) -> None:
    report = check(reused_slot.build(late=True, by=by, columns=columns), strict=strict)
    assert report.verdict == "failed"
    assert [f.rule for f in report.findings] == ["tmem-lifetime"], report
    (participant,) = report.findings[0].participants
    assert participant.loc.line == line(reused_slot, "# late")
    assert "stage" in report.findings[0].message
    report = check(reused_slot.build(by=by, columns=columns), strict=strict)
    assert (report.verdict, report.reasons) == ("proved", ())
    assert "contents of" not in report.covers


def test_an_address_that_nobody_has_overwritten_may_be_loaded_late() -> None:
    assert check(reused_slot.build(late=True, by="nobody")).verdict == "proved"


@kernel(warps=2)
def reused_count(k: Builder, *, late: bool = False) -> None:
    """A number of trips lies where data comes later."""
    X, Y = k.tensor("X", u32, (8,)), k.tensor("Y", f32, (4, 32))
    stage, trips = k.shared("stage", u32, (8,), offset=0), k.shared("trips", u32, (1,), offset=0)
    n, value = k.var("n", dtype=u32), k.var("value", dtype=u32)
    with k.one_thread():
        k.mem.store(trips[0], 2)
    k.sync_threads()
    if not late:
        k.mem.load(n, trips[0])
    k.sync_threads()
    with k.if_(k.thread_id < 8):
        k.mem.load(value, X[k.thread_id])
        k.mem.store(stage[k.thread_id], value)
    k.sync_threads()
    if late:
        k.mem.load(n, trips[0])
    with k.role("writer", 0), k.loop(n) as i:
        k.mem.store(Y[i, k.lane_id], 1.0)


@pytest.mark.parametrize("strict", STRICT)
def test_data_steers_only_where_it_is_read(strict: Strict) -> None:
    report = check(reused_count.build(late=True), strict=strict)
    assert report.verdict == "bounded"
    assert any("contents of X" in why for why in report.reasons), report
    assert check(reused_count.build(), strict=strict).verdict == "proved"
