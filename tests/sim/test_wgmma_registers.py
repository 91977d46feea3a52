"""What wgmma instructions may share registers, and what the four warps of a warpgroup execute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.litmus.notation import ones
from tilesim import Builder, Program, bf16, e4m3, f16, f32
from tilesim.checker import check
from tilesim.ir.declarations import SharedTensor
from tilesim.ir.program import Strict

from .sites import BOTH, sites


def build(function: Callable[..., None], *, warps: int = 4, **params: Any) -> Program:
    k = Builder("kernel", "sm_90a", warps)
    function(k, **params)
    return k.finish()


def tiles(k: Builder, dtype: Any = f16, *, depth: int = 16) -> tuple[SharedTensor, SharedTensor]:
    """A (64, depth) and B (16, depth) of ones, filled by warp 0 and visible to the tensor cores."""
    a = k.shared(f"a_{dtype}", dtype, (64, depth), swizzle=32)
    b = k.shared(f"b_{dtype}", dtype, (16, depth), swizzle=32)
    ones(k, a, b)
    return a, b


def operand(k: Builder, *, first: str, second: str, wait: bool = True, fence: bool = True) -> None:
    """Fragment r as D or A of two products in a row, as D in two shapes if the types differ."""
    r, s = (k.fragment(name, f16, (64, 16), "warpgroup") for name in "rs")
    a, b = tiles(k)
    a8, b8 = tiles(k, e4m3, depth=32)
    with k.role("WG", range(4)):
        k.tile.fill(r, 1)
        k.tile.fill(s, 1)
        k.wgmma.fence()
        if first == "D":
            k.wgmma.mma_async(r, a, b)  # first
        else:
            k.wgmma.mma_async(s, r, b)  # first
        k.wgmma.commit_group()
        if wait:
            k.wgmma.wait_group(0)
        if fence:
            k.wgmma.fence()
        if second == "D":
            k.wgmma.mma_async(r, a, b)  # second
        elif second == "D of fp8":
            k.wgmma.mma_async(r, a8, b8)  # second
        else:
            k.wgmma.mma_async(s, r, b)  # second
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)


@pytest.mark.parametrize("strict", BOTH)
@pytest.mark.parametrize("fence", [False, True])
@pytest.mark.parametrize(("first", "second"), [("D", "A"), ("A", "D"), ("D", "D of fp8")])
def test_registers_in_flight_are_no_operand_of_another_product(
    first: str, second: str, fence: bool, strict: Strict
) -> None:
    report = check(
        build(operand, first=first, second=second, wait=False, fence=fence), strict=strict
    )
    used = {
        "A": "k.wgmma.mma_async(s, r, b)", "D": "k.wgmma.mma_async(r, a, b)",
        "D of fp8": "k.wgmma.mma_async(r, a8, b8)",
    }  # fmt: skip
    assert report.verdict == "failed"
    assert sites(report, operand) == [
        ("wgmma-order", {("WG", f"{used[first]}  # first"), ("WG", f"{used[second]}  # second")})
    ]
    assert "(F6)" in report.findings[0].message


@pytest.mark.parametrize("strict", BOTH)
@pytest.mark.parametrize(("first", "second"), [("D", "A"), ("A", "D"), ("D", "D of fp8")])
def test_a_fence_orders_a_finished_product_before_another_use(
    first: str, second: str, strict: Strict
) -> None:
    report = check(build(operand, first=first, second=second, fence=False), strict=strict)
    assert report.verdict == "failed"
    ((rule, found),) = sites(report, operand)
    assert rule == "wgmma-order"
    assert len(found) == 2
    assert "(F3)" in report.findings[0].message
    right = check(build(operand, first=first, second=second), strict=strict)
    assert (right.verdict, right.findings) == ("proved", ())


@pytest.mark.parametrize("strict", BOTH)
@pytest.mark.parametrize("same", ["D", "A"])
def test_products_of_one_shape_may_share_registers_in_one_role(same: str, strict: Strict) -> None:
    """An accumulator goes on in the same shape; many products may read one A."""
    program = build(operand, first=same, second=same, wait=False, fence=False)
    report = check(program, strict=strict)
    assert (report.verdict, report.findings) == ("proved", ())


def unassigned(k: Builder, *, accumulate: int = 0, filled: bool = True) -> None:
    r, s = (k.fragment(name, f16, (64, 16), "warpgroup") for name in "rs")
    _, b = tiles(k)
    with k.role("WG", range(4)):
        if filled:
            k.tile.fill(r, 1)
        k.wgmma.fence()
        k.wgmma.mma_async(s, r, b, accumulate=accumulate)
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)


@pytest.mark.parametrize("wrong", [{"accumulate": 1}, {"filled": False}])
def test_a_product_of_registers_that_hold_nothing(wrong: dict[str, Any]) -> None:
    report = check(build(unassigned, **wrong))
    assert report.verdict == "failed"
    line = "k.wgmma.mma_async(s, r, b, accumulate=accumulate)"
    assert sites(report, unassigned) == [("uninitialised-read", {("WG", line)})]
    assert check(build(unassigned)).verdict == "proved"


# ---------------------------------------------------------------------- the four warps


def helper(k: Builder, acc: Any, a: Any, b: Any) -> None:
    """The product of one role: its source line is the same in all roles."""
    k.wgmma.fence()
    k.wgmma.mma_async(acc, a, b, accumulate=0)
    k.wgmma.commit_group()
    k.wgmma.wait_group(0)


def two_roles(k: Builder, *, split: bool) -> None:
    a, b = tiles(k)
    acc = k.fragment("acc", f32, (64, 16), "warpgroup")
    if split:
        with k.role("low", range(2)):
            helper(k, acc, a, b)
        with k.role("high", range(2, 4)):
            helper(k, acc, a, b)
    else:
        with k.role("all", range(4)):
            helper(k, acc, a, b)


@pytest.mark.parametrize("strict", BOTH)
def test_two_instructions_of_one_source_line_are_two(strict: Strict) -> None:
    report = check(build(two_roles, split=True), strict=strict)
    assert report.verdict == "failed"
    assert sites(report, helper) == [
        ("participation", {("low", "k.wgmma.fence()"), ("high", "k.wgmma.fence()")})
    ]
    assert check(build(two_roles, split=False), strict=strict).verdict == "proved"


def descriptors(k: Builder, *, per_warp: bool) -> None:
    a, b = k.shared("a", bf16, (2, 64, 16), swizzle=32), k.shared("b", bf16, (16, 16), swizzle=32)
    acc = k.fragment("acc", f32, (64, 16), "warpgroup")
    ones, one = k.fragment("ones", bf16, (64, 16)), k.fragment("one", bf16, (16, 16))
    with k.if_(k.warp_id.eq(0)):
        k.tile.fill(ones, 1)
        k.tile.fill(one, 1)
        k.tile.store(a[0], ones)
        k.tile.store(a[1], ones)
        k.tile.store(b, one)
        k.fence.proxy_async()
    k.sync_threads()
    with k.role("WG", range(4)):
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a[k.warp_id // 2 if per_warp else k.warp_id // 4], b, accumulate=0)
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)


@pytest.mark.parametrize("strict", BOTH)
def test_the_descriptors_are_the_same_in_all_warps(strict: Strict) -> None:
    report = check(build(descriptors, per_warp=True), strict=strict)
    line = (
        "k.wgmma.mma_async(acc, a[k.warp_id // 2 if per_warp else k.warp_id // 4], b, accumulate=0)"
    )
    assert report.verdict == "failed"
    assert sites(report, descriptors) == [("participation", {("WG", line)})]
    assert {p.warp in (0, 1) for p in report.findings[0].participants} == {False, True}
    assert check(build(descriptors, per_warp=False), strict=strict).verdict == "proved"


def some_warps(k: Builder, *, members: Any, part: str) -> None:
    """Part of a product is executed by some warps of the warpgroup only."""
    a, b = tiles(k)
    acc = k.fragment("acc", f32, (64, 16), "warpgroup")

    def executed(what: str, instruction: Callable[[], None]) -> None:
        if part == what:
            with k.role("some", members):
                instruction()
        else:
            instruction()

    executed("fence", lambda: k.wgmma.fence())
    k.wgmma.mma_async(acc, a, b, accumulate=0)
    k.wgmma.commit_group()
    executed("wait", lambda: k.wgmma.wait_group(0))


@pytest.mark.parametrize("part", ["fence", "wait"])
def test_fences_and_waits_are_executed_by_the_warpgroup(part: str) -> None:
    report = check(build(some_warps, members=range(3), part=part))
    assert report.verdict == "failed"
    assert "participation" in {f.rule for f in report.findings}
    assert check(build(some_warps, members=range(4), part=part)).verdict == "proved"


def unwaited(k: Builder, *, commit: bool, wait: bool) -> None:
    a, b = tiles(k)
    acc = k.fragment("acc", f32, (64, 16), "warpgroup")
    with k.role("WG", range(4)):
        k.wgmma.fence()
        k.wgmma.mma_async(acc, a, b, accumulate=0)
        if commit:
            k.wgmma.commit_group()
        if wait:
            k.wgmma.wait_group(0)


@pytest.mark.parametrize("commit", [False, True])
def test_a_product_that_nothing_waits_for_is_in_flight_at_exit(commit: bool) -> None:
    report = check(build(unwaited, commit=commit, wait=False))
    line = "k.wgmma.mma_async(acc, a, b, accumulate=0)"
    assert report.verdict == "failed"
    assert sites(report, unwaited) == [("async-at-exit", {("WG", line)})]
    assert check(build(unwaited, commit=True, wait=True)).verdict == "proved"
    report = check(build(unwaited, commit=False, wait=True))
    assert [f.rule for f in report.findings] == ["async-at-exit"]


def test_a_warpgroup_has_four_warps() -> None:
    """Five warps: the fifth is in a warpgroup of its own, which cannot execute wgmma."""

    def fifth(k: Builder, *, members: Any) -> None:
        a, b = tiles(k)
        acc = k.fragment("acc", f32, (64, 16), "warpgroup")
        with k.role("WG", members):
            helper(k, acc, a, b)

    report = check(build(fifth, warps=5, members=[4]))
    assert report.verdict == "failed"
    assert sites(report, helper) == [("participation", {("WG", "k.wgmma.fence()")})]
    assert check(build(fifth, warps=5, members=range(4))).verdict == "proved"


def gone(k: Builder, *, lanes: bool) -> None:
    a, b = tiles(k)
    acc = k.fragment("acc", f32, (64, 16), "warpgroup")
    if lanes:
        with k.if_(k.lane_id.eq(31)):
            k.exit()
    with k.role("WG", range(4)):
        helper(k, acc, a, b)


def test_lanes_that_have_exited_take_no_part() -> None:
    report = check(build(gone, lanes=True))
    assert report.verdict == "failed"
    assert sites(report, helper) == [("participation", {("WG", "k.wgmma.fence()")})]
    assert check(build(gone, lanes=False)).verdict == "proved"
