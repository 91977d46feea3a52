"""Correct kernels that look wrong are proved for a reason (N1 to N11): broken ones are not.

That they are proved, and equal to NumPy, is tested with the other cases in `test_bugs`.
"""

from __future__ import annotations

import pytest

from tilesim.checker import check, replay
from tilesim.dsl.kernel import Kernel
from tilesim.ir.expr import Const
from tilesim.kernels.bugs.accepted_idioms import arrive_and_sync, dynamic_loop, read_after_wait
from tilesim.kernels.bugs.joint_full_barrier import one_expect, two_async_warps
from tilesim.kernels.bugs.wgmma_release import refill_by_cp_async, refill_by_stores

from .evidence import at, first, sites
from .mutate import changed, inputs, without


@pytest.mark.parametrize("index", [0, 1, 2, 3])
def test_n1_counting_one_side_only_is_wrong(index: int) -> None:
    """What the thread's "fix" would have done, to each of the four instructions."""
    program = arrive_and_sync.build()
    syncs = [op for op in ("barrier.sync", "barrier.arrive") for _ in range(2)]
    report = check(changed(program, syncs[index], index % 2, threads=Const(128)))
    assert report.verdict == "failed"
    assert report.rules & {"named-barrier", "race", "deadlock"}


def test_n1_without_the_second_barrier_the_tile_is_overwritten() -> None:
    program = without(without(arrive_and_sync.build(), "barrier.sync", 0), "barrier.arrive", 1)
    report = check(program)
    assert sites(first(report, "race")) == {
        ("writer", at(arrive_and_sync, "k.tile.store(shared")),
        ("reader", at(arrive_and_sync, "k.tile.load(part, shared")),
    }


@pytest.mark.parametrize("count", [1, 2, 8])
def test_n5_every_loop_length_is_proved(count: int) -> None:
    program = dynamic_loop.build(count=count)
    report = check(program, inputs=inputs(dynamic_loop, program, {"count": count}))
    assert (report.verdict, report.findings) == ("proved", ())
    assert "for these contents of count" in report.covers


def test_n5_without_its_contents_the_loop_length_is_no_proof() -> None:
    report = check(dynamic_loop.build())
    assert (report.verdict, report.findings) == ("bounded", ())
    assert "count" in report.reasons[0]


def test_n5_without_the_wait_there_is_a_hazard() -> None:
    program = without(dynamic_loop.build(), "mbarrier.wait", 1)
    given = inputs(dynamic_loop, program, {})
    report = check(program, inputs=given)
    assert sites(first(report, "race")) == {
        ("producer", at(dynamic_loop, "k.bulk.load(buffer")),
        ("consumer", at(dynamic_loop, "k.mem.load(value")),
    }
    assert report.witness is not None
    assert "race" in {f.rule for f in replay(program, report.witness, inputs=given).findings}


def test_n7_without_the_wait_the_read_is_a_race_not_a_missing_fence() -> None:
    report = check(without(read_after_wait.build(), "mbarrier.wait"))
    assert "race" in report.rules
    assert "proxy-fence" not in report.rules


def test_n9_one_expect_that_forgets_the_second_copy_fails() -> None:
    program = changed(one_expect.build(), "mbarrier.arrive.expect_tx", bytes=Const(512))
    report = check(program)
    assert report.verdict == "failed"
    assert report.rules & {"race", "phase-ambiguity", "tx-mismatch"}
    lines = {p.loc.line for finding in report.findings for p in finding.participants}
    assert at(one_expect, "k.bulk.load(sB") in lines


def test_n11_two_async_warps_with_a_count_of_one_fail() -> None:
    """The count of variant a of B024."""
    program = two_async_warps.build()
    for stage in (0, 2):
        program = changed(program, "mbarrier.init", stage, count=Const(1))
    report = check(program)
    assert report.verdict == "failed"
    assert report.rules & {"over-arrival", "race", "deadlock", "phase-ambiguity"}


@pytest.mark.parametrize("kernel", [refill_by_cp_async, refill_by_stores])
def test_operand_refilled_without_a_proxy_fence(kernel: Kernel) -> None:
    program = without(kernel.build(fixed=True), "fence.proxy.async")
    assert "proxy-fence" in check(program, strict="ptx").rules
