"""Every detector of tensor memory and cluster launch control: a buggy kernel and its fixed twin."""

from __future__ import annotations

from collections.abc import Callable
from linecache import getline
from typing import Any

import numpy as np
import pytest

from tilesim import Builder, InvalidProgram, Program, bf16, f32, s8, s32, u32
from tilesim.checker import Report, check
from tilesim.sim.machine.simulate import simulate

from .tensor_cores import allocate, free

#: the line of `allocate`
ALLOC = "k.tcgen05.alloc(slot, columns, cta_group=cta_group)"


def build(function: Callable[..., None], *, target: str = "sm_100a", **params: Any) -> Program:
    builder = Builder("kernel", target=target)
    function(builder, **params)
    return builder.finish()


def proved(function: Callable[..., None], **params: Any) -> None:
    """The fixed twin passes at both strictness levels."""
    for strict in ("practice", "ptx"):
        report = check(build(function, **params), strict=strict)
        assert (report.verdict, report.findings) == ("proved", ()), report


def failed(function: Callable[..., None], *, strict: Any = "practice", **params: Any) -> Report:
    report = check(build(function, **params), strict=strict)
    assert report.verdict == "failed", report
    return report


def sites(report: Report, rule: str) -> set[tuple[str, str]]:
    """(role, source line) of all participants of the findings of ``rule``."""
    sides = [p for f in report.findings if f.rule == rule for p in f.participants]
    return {(p.role, getline(p.loc.file, p.loc.line).strip()) for p in sides}


def store(k: Builder, address: Any, columns: int = 32, name: str = "d") -> None:
    """The executing warp fills its lanes of some columns and waits."""
    part = k.fragment(f"part_{name}", f32, (32, columns))
    k.tile.fill(part, 0)
    d = k.tcgen05.tensor(address + (k.warp_id % 4 << 21), f32, (32, columns), name=name)
    k.tcgen05.st(d, part)
    k.tcgen05.wait_st()


# ---------------------------------------------------------------------- order


def wide_issue(k: Builder, *, elected: bool) -> None:
    k.launch(warps=4)
    a, b = k.shared("a", bf16, (128, 16), swizzle=32), k.shared("b", bf16, (32, 16), swizzle=32)
    out, done = k.tensor("out", f32, (128, 32)), k.mbarriers("done")
    one = k.fragment("one", bf16, (128, 16), "warpgroup")
    two = k.fragment("two", bf16, (32, 16))
    k.tile.fill(one, 1)
    k.tile.store(a, one)
    with k.role("warp 0", 0):
        k.tile.fill(two, 1)
        k.tile.store(b, two)
    k.fence.proxy_async()
    with k.one_thread():
        k.mbarrier.init(done, 1)
    address = allocate(k, 64)
    d = k.tcgen05.tensor(address, f32, (128, 32), name="d")
    with k.role("warp 0", 0):
        with k.elected():
            k.tcgen05.mma(d, a, b, accumulate=0)
        if elected:
            with k.elected():
                k.tcgen05.mma(d, a, b)
        else:
            k.tcgen05.mma(d, a, b)
        with k.elected():
            k.tcgen05.commit(done)
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    result = k.fragment("result", f32, (128, 32), "warpgroup")
    k.tcgen05.ld(result, d)
    k.tcgen05.wait_ld()
    k.tile.store(out, result)
    free(k, address, 64)


@pytest.mark.parametrize(("elected", "times"), [(True, 2), (False, 33)])
def test_every_lane_that_executes_mma_issues_one(elected: bool, times: int) -> None:
    run = simulate(build(wide_issue, elected=elected))
    np.testing.assert_array_equal(run.outputs["out"], np.full((128, 32), 16 * times))


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_a_product_that_a_whole_warp_executes_is_issued_by_each_lane(strict: Any) -> None:
    report = failed(wide_issue, strict=strict, elected=False)
    assert ("warp 0", "k.tcgen05.mma(d, a, b)") in sites(report, "tcgen05-order")
    assert "32 lanes of warp 0 execute tcgen05.mma" in report.findings[0].message
    proved(wide_issue, elected=True)


# ---------------------------------------------------------------------- lifetime


def rules(report: Report) -> set[str]:
    return {f.rule for f in report.findings}


def branches(k: Builder, *, columns: int) -> None:
    k.launch(warps=1)
    address = allocate(k, columns)
    with k.if_(address.ne(0)):
        store(k, address)
    free(k, address, columns)


def test_no_branch_depends_on_which_columns_are_returned() -> None:
    """Column 0 is certain for all columns only."""
    report = check(build(branches, columns=256))
    assert report.verdict == "bounded"
    assert "the address that tcgen05.alloc returns" in str(report)
    proved(branches, columns=512)


def pair(k: Builder, *, relinquish: str) -> None:
    """The CTAs of a pair allocate and free together."""
    k.launch(warps=1, grid=2, cluster=2)
    slot, address = k.shared("slot", u32, (1,)), k.var("address", dtype=u32)
    k.cluster.sync()
    with k.role("W", 0):
        k.tcgen05.alloc(slot, 64, cta_group=2)
        if relinquish == "one":
            with k.if_(k.cluster_rank.eq(0)):
                k.tcgen05.relinquish_alloc_permit(cta_group=2)
        k.mem.load(address, slot[0])
        k.cluster.sync()
        k.tcgen05.dealloc(address, 64, cta_group=2)


def test_both_ctas_of_a_pair_give_up_the_permit() -> None:
    line = "k.tcgen05.relinquish_alloc_permit(cta_group=2)"
    report = failed(pair, relinquish="one")
    assert sites(report, "tmem-lifetime") == {("W", line)}
    report = failed(pair, relinquish="one", strict="ptx")
    assert rules(report) == {"deadlock"}
    assert sites(report, "deadlock") == {("W", line), ("W", "k.cluster.sync()")}
    proved(pair, relinquish="none")


def beyond(k: Builder, *, columns: int) -> None:
    k.launch(warps=1)
    address = allocate(k, 64)
    with k.role("W", 0):
        store(k, address, columns)
    free(k, address, 64)


def test_columns_beyond_the_allocation_are_reported() -> None:
    report = failed(beyond, columns=128)
    assert sites(report, "tmem-lifetime") == {
        ("warp 0", ALLOC), ("W", "k.tcgen05.st(d, part)"),
    }  # fmt: skip
    proved(beyond, columns=64)


def freed_by(k: Builder, *, warp: int) -> None:
    k.launch(warps=2)
    address = allocate(k, 64)
    k.sync_threads()
    with k.role(f"W{warp}", warp):
        k.tcgen05.dealloc(address, 64)  # by whom


def test_the_warp_that_allocated_frees_by_the_text() -> None:
    assert check(build(freed_by, warp=1)).verdict == "proved"
    report = failed(freed_by, warp=1, strict="ptx")
    assert sites(report, "tmem-lifetime") == {
        ("W1", "k.tcgen05.dealloc(address, 64)  # by whom"),
        ("warp 0", ALLOC),
    }
    proved(freed_by, warp=0)


# ---------------------------------------------------------------------- before running


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"n": 20}, "N = 20"),
        ({"rows": 32}, "32 rows per CTA"),
        ({"depth": 32}, "needs 16"),
        ({"acc": s32}, "does not accumulate in s32"),
        ({"kind": "tf32"}, "has no bf16 inputs"),
    ],
)
def test_shapes_and_types_are_checked_before_running(params: dict[str, Any], text: str) -> None:
    def wrong(
        k: Builder, *, rows: int = 128, n: int = 32, depth: int = 16, acc: Any = f32,
        kind: Any = "f16",
    ) -> None:  # fmt: skip
        k.launch(warps=1)
        a, b = k.shared("a", bf16, (rows, depth)), k.shared("b", bf16, (n, depth))
        with k.one_thread():
            d = k.tcgen05.tensor(0, acc, (rows, n))
            k.tcgen05.mma(d, a, b, kind=kind)

    with pytest.raises(InvalidProgram) as caught:
        check(build(wrong, **params))
    assert text in str(caught.value)


def test_a_pair_needs_two_ctas() -> None:
    def alone(k: Builder) -> None:
        k.launch(warps=1)
        k.tcgen05.alloc(k.shared("slot", u32, (1,)), 32, cta_group=2)

    with pytest.raises(InvalidProgram) as caught:
        check(build(alone))
    assert [d.rule for d in caught.value.diagnostics] == ["launch"]


def test_integer_products_are_not_on_every_target() -> None:
    def integers(k: Builder) -> None:
        k.launch(warps=1)
        a, b = k.shared("a", s8, (128, 32)), k.shared("b", s8, (32, 32))
        with k.one_thread():
            k.tcgen05.mma(k.tcgen05.tensor(0, s32, (128, 32)), a, b)

    with pytest.raises(InvalidProgram) as caught:
        check(build(integers, target="sm_100f"))
    assert [d.rule for d in caught.value.diagnostics] == ["target"]


# ---------------------------------------------------------------------- cluster launch control


def tiles(k: Builder, *, grid: int) -> None:
    """Every CTA of the grid writes its number once, by whoever runs it."""
    k.launch(warps=1, grid=grid)
    r, b = k.shared("r", u32, (4,)), k.mbarriers("b")
    out = k.tensor("out", s32, (grid,))
    x, found, parity = k.var("x", k.cta_x), k.var("found", 1), k.var("parity", 0)
    with k.elected():
        k.mbarrier.init(b, 1)
    k.sync_threads()
    with k.while_(found.ne(0)):
        with k.elected():
            k.clc.try_cancel(r, b)
            k.mbarrier.arrive_expect_tx(b, 16)
            k.mem.atomic(out[x], "add", x + 1)
        k.mbarrier.wait(b, parity)
        k.assign(parity, parity ^ 1)
        k.clc.query_is_canceled(found, r)
        with k.if_(found.ne(0)):
            k.clc.query_first_ctaid(x, r)
        k.fence.proxy_async()
        k.sync_warp()


@pytest.mark.parametrize("grid", [1, 2, 5, 9])
@pytest.mark.parametrize("policy", ["timed", "random", "pct"])
def test_every_tile_is_done_once_whoever_gets_it(grid: int, policy: Any) -> None:
    for seed in range(6):
        run = simulate(build(tiles, grid=grid), policy=policy, seed=seed)
        assert run.findings == ()
        np.testing.assert_array_equal(run.outputs["out"], np.arange(1, grid + 1))


def multicast(k: Builder, *, armed: bool) -> None:
    k.launch(warps=1, grid=4, cluster=2)
    r, b, found = k.shared("r", u32, (4,)), k.mbarriers("b"), k.var("found")
    out = k.tensor("out", s32, (4,))
    with k.elected():
        k.mbarrier.init(b, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.elected():
        with k.if_(k.cluster_rank.eq(0)):
            k.clc.try_cancel(r, b, multicast=True)
        if armed:
            k.mbarrier.arrive_expect_tx(b, 16)
        else:
            with k.if_(k.cluster_rank.eq(0)):
                k.mbarrier.arrive_expect_tx(b, 16)
    k.mbarrier.wait(b, 0, scope="cluster")
    k.clc.query_is_canceled(found, r)
    with k.elected():
        k.mem.store(out[k.cta_x], found)
    k.cluster.sync()


def test_a_multicast_request_answers_every_cta_of_the_cluster() -> None:
    proved(multicast, armed=True)
    run = simulate(build(multicast, armed=True))
    np.testing.assert_array_equal(run.outputs["out"], [1, 1, 0, 0])


def test_a_multicast_request_is_armed_in_every_cta() -> None:
    report = failed(multicast, armed=False)
    lines = {line for _, line in sites(report, "deadlock")}
    assert 'k.mbarrier.wait(b, 0, scope="cluster")' in lines


@pytest.mark.parametrize("target", ["sm_90a", "sm_120a"])
def test_launch_control_exists_on_blackwell(target: str) -> None:
    program = build(tiles, grid=1, target=target)
    if target == "sm_120a":
        assert check(program).verdict == "proved"
        return
    with pytest.raises(InvalidProgram) as caught:
        check(program)
    assert {d.rule for d in caught.value.diagnostics} == {"target"}
