"""cp.async.mbarrier.arrive without .noinc raises the pending count, which has a range (A3, C6)."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel
from tilesim.checker import check
from tilesim.ir.ops.mbarrier import MAX_COUNT
from tilesim.ir.program import Strict

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


@kernel(warps=1)
def full(k: Builder, *, count: int = MAX_COUNT - 32) -> None:
    """32 lanes make a barrier expect one more arrival each."""
    b = k.mbarriers("b")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, count)
    k.sync_threads()
    with k.role("T0", 0):
        k.cp_async.mbarrier_arrive(b)
        with k.elected():
            k.mbarrier.arrive(b, count)
        k.mbarrier.wait(b, 0)


@pytest.mark.parametrize("strict", LEVELS)
def test_more_arrivals_than_a_barrier_counts(strict: Strict) -> None:
    report = check(full.build(count=MAX_COUNT - 31), strict=strict)
    assert report.verdict == "failed"
    finding = found(report, "over-arrival")
    assert f"expect {MAX_COUNT + 1} arrivals" in finding.message
    assert sites(finding) == {
        ("T0", at(full, "k.cp_async.mbarrier_arrive")),
        ("opener", at(full, "k.mbarrier.init")),
    }
    assert check(full.build(), strict=strict).verdict == "proved"


@kernel(warps=2)
def in_some_order(k: Builder, *, count: int = MAX_COUNT - 64) -> None:
    """The arrivals of one warp have landed, or not, when the other warp adds its own."""
    b = k.mbarriers("b")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, count)
    k.sync_threads()
    with k.role("T0", 0):
        k.cp_async.mbarrier_arrive(b)
    with k.role("T1", 1):
        with k.loop(2000):
            k.sync_warp()
        k.cp_async.mbarrier_arrive(b)  # late
    k.sync_threads()
    with k.role("T0", 0):
        with k.elected():
            k.mbarrier.arrive(b, count)
        k.mbarrier.wait(b, 0)


def test_more_arrivals_than_a_barrier_counts_in_some_order() -> None:
    report = check(in_some_order.build(count=MAX_COUNT - 63))
    assert report.verdict == "failed"
    assert report.rules == {"over-arrival"}
    roles = {p.role for p in report.findings[0].participants}
    assert roles <= {"T0", "T1", "opener"}
    assert check(in_some_order.build()).verdict == "proved"


@kernel(warps=2)
def after_arrivals(k: Builder, *, first: int = 32) -> None:
    """Arrivals that were made before make room."""
    b = k.mbarriers("b")
    with k.role("opener", 0), k.elected():
        k.mbarrier.init(b, MAX_COUNT)
    k.sync_threads()
    with k.role("T1", 1):
        with k.elected():
            k.mbarrier.arrive(b, first)
        k.cp_async.mbarrier_arrive(b)
    k.sync_threads()
    with k.role("T1", 1):
        with k.elected():
            k.mbarrier.arrive(b, MAX_COUNT - first)
        k.mbarrier.wait(b, 0)


def test_arrivals_that_come_before_make_room() -> None:
    assert check(after_arrivals.build()).verdict == "proved"
    report = check(after_arrivals.build(first=31))
    assert report.rules == {"over-arrival"}
    assert ("T1", at(after_arrivals, "k.cp_async.mbarrier_arrive")) in sites(report.findings[0])
