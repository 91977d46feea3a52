"""Bugs of memory, copies, named barriers and registers: found, explained, and fixed.

Every case of the modules below is checked for its verdict; one test per entry of the collection
(B036 ... B114) says what the report must name.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from tilesim.checker import Report, check, replay
from tilesim.dsl.kernel import Kernel
from tilesim.errors import Diagnostic, InvalidProgram
from tilesim.findings.finding import Finding
from tilesim.ir.expr import Const
from tilesim.kernels.bugs import (
    barrier_storage,
    copy_destination,
    copy_groups,
    joint_full_barrier,
    named_barriers,
    proxy_fences,
    register_pool,
    store_bounds,
    wgmma_release,
)
from tilesim.kernels.outcome import run
from tilesim.kernels.registry import Case
from tilesim.sim.machine.simulate import simulate

from .evidence import name
from .mutate import SCHEDULES, changed, inputs, line, without

MODULES = (
    barrier_storage, copy_destination, copy_groups, joint_full_barrier, named_barriers,
    proxy_fences, register_pool, store_bounds, wgmma_release,
)  # fmt: skip
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)
CLEAN = tuple(case for case in CASES if case.expected == "proved")
FAILED = tuple(case for case in CASES if case.expected == "failed")


def at(kernel: Kernel, text: str, nth: int = 0) -> int:
    """Line number of the ``nth`` line with ``text`` in the function of ``kernel``."""
    rows, first = inspect.getsourcelines(kernel.function)
    numbers = [first + n for n, row in enumerate(rows) if text in row]
    assert len(numbers) > nth, f"{kernel.name} has {len(numbers)} lines with {text!r}"
    return numbers[nth]


def bug(kernel: Kernel, nth: int = 0) -> int:
    """The line that the kernel's author got wrong."""
    return at(kernel, "# BUG", nth)


def lines(finding: Finding) -> list[int]:
    """The lines of both sides, the culprit's left out."""
    return [*dict.fromkeys(p.loc.line for p in finding.participants)]


def sides(finding: Finding) -> list[tuple[str, int]]:
    """Role and line of every participant."""
    return [(p.role, p.loc.line) for p in finding.participants]


def failure(kernel: Kernel, strict: Any = "practice", **params: Any) -> Report:
    report = check(kernel.build(**params), strict=strict)
    assert report.verdict == "failed", report
    return report


def of_rule(report: Report, rule: str) -> list[Finding]:
    found = [f for f in report.findings if f.rule == rule]
    assert found, (rule, report.findings)
    return found


# ------------------------------------------------------------------ all cases


@pytest.mark.parametrize("case", CASES, ids=name)
def test_case_has_its_verdict_and_rule(case: Case) -> None:
    outcome = run(case)
    assert outcome.ok, (outcome.verdict, outcome.problems)


@pytest.mark.parametrize("case", CLEAN, ids=name)
def test_correct_kernel_equals_numpy_in_every_schedule_tried(case: Case) -> None:
    program = case.build()
    params = {**case.kernel.params, **case.params}
    given = inputs(case.kernel, program, params)
    for policy, seed in SCHEDULES:
        result = simulate(program, given, strict=case.strict, policy=policy, seed=seed)
        assert result.findings == ()
        if case.kernel.reference is not None:
            for tensor, expected in case.kernel.reference(given, **params).items():
                np.testing.assert_array_equal(result.outputs[tensor], expected, err_msg=tensor)


@pytest.mark.parametrize("case", FAILED, ids=name)
def test_witness_replays_to_the_same_rules(case: Case) -> None:
    program = case.build()
    report = check(program, strict=case.strict)
    assert report.witness is not None
    again = replay(program, report.witness)
    assert {f.rule for f in again.findings} == report.rules
    assert again.findings[0].locations == report.findings[0].locations


def test_every_entry_has_a_failing_kernel_and_a_correct_twin() -> None:
    wrong = {case.source for case in CASES if case.fails}
    right = {case.source for case in CLEAN}
    assert len(wrong) == 18
    assert wrong <= right
    assert right - wrong == {"N9", "N11"}


# ------------------------------------------------------------------ proxy fences


def test_read_before_the_next_copy_needs_a_fence_at_strictness_ptx_only() -> None:
    """B036."""
    kernel = proxy_fences.overwritten_after_read
    report = failure(kernel, "ptx")
    assert report.rules == {"proxy-fence"}
    finding = report.findings[0]
    assert sides(finding) == [("producer", at(kernel, "k.tma.load")), ("consumer", bug(kernel))]
    assert "after consumer (warp 0) read buffer[0, 0:16, 0:32]" in finding.message
    assert "fence.proxy.async after the generic access" in finding.fix
    assert check(kernel.build()).verdict == "proved"


def test_read_of_a_stage_that_is_never_refilled_needs_no_fence() -> None:
    """B036."""
    program = proxy_fences.overwritten_after_read.build(blocks=2)
    assert check(program, strict="ptx").verdict == "proved"


def test_fence_in_a_loop_that_does_not_run_leaves_the_zeros_unfenced() -> None:
    """B038."""
    kernel = proxy_fences.fence_in_loop
    report = failure(kernel)
    assert report.rules == {"proxy-fence"}
    finding = report.findings[0]
    assert sides(finding) == [("scan", at(kernel, "k.tma.store")), ("scan", bug(kernel))]
    assert "wrote state[0:16, 0:32]" in finding.message


@pytest.mark.parametrize("steps", [1, 2])
def test_fence_in_a_loop_that_runs_is_enough(steps: int) -> None:
    """B038: any test with a sequence that is not empty passes."""
    assert check(proxy_fences.fence_in_loop.build(steps=steps)).verdict == "proved"


def test_no_fence_between_the_writes_and_the_store() -> None:
    """B042: only the kernel without any fence is wrong; both places of the fence are accepted."""
    kernel = proxy_fences.fence_after_barrier
    report = failure(kernel)
    assert report.rules == {"proxy-fence"}
    store, write = at(kernel, "k.tma.store"), at(kernel, "k.tile.store")
    assert lines(report.findings[0]) == [store, write]
    for fence in ("before", "after"):
        assert check(kernel.build(fence=fence), strict="ptx").verdict == "proved"


# ------------------------------------------------------------------ barrier storage


def test_barrier_in_the_bytes_of_a_live_barrier() -> None:
    """B059."""
    kernel = barrier_storage.reused_storage
    report = failure(kernel)
    assert report.rules == {"barrier-lifetime"}
    finding = report.findings[0]
    assert sides(finding)[0] == ("warp 0", bug(kernel))  # in the region of no role
    assert "already a live mbarrier" in finding.message
    assert "mbarrier.inval" in finding.fix


def test_barrier_in_the_bytes_of_a_live_barrier_names_that_barrier() -> None:
    """B059: both sides, as for data in the same place."""
    kernel = barrier_storage.reused_storage
    finding = failure(kernel).findings[0]
    assert "first[0]" in finding.message
    assert at(kernel, "k.mbarrier.init(first") in lines(finding)


def test_data_in_the_bytes_of_a_live_barrier() -> None:
    """B059."""
    kernel = barrier_storage.reused_storage
    report = failure(kernel, reuse="data")
    assert report.rules == {"barrier-lifetime"}
    write = report.findings[0]
    assert lines(write) == [bug(kernel, 1), at(kernel, "k.mbarrier.init(first")]
    assert "writes factors[0], which overlaps the live mbarrier first[0]" in write.message
    read = next(f for f in report.findings if "reads" in f.message)
    assert at(kernel, "k.mem.load(factor") in lines(read)


def test_workspace_beyond_the_requested_shared_memory_is_rejected() -> None:
    """B061."""
    kernel = barrier_storage.workspace_beyond_request
    with pytest.raises(InvalidProgram) as caught:
        check(kernel.build())
    [problem] = caught.value.diagnostics
    assert isinstance(problem, Diagnostic)
    assert problem.rule == "out-of-bounds"
    assert problem.loc.line == at(kernel, 'k.shared("workspace"')
    assert "ends at 1152" in problem.message
    assert "smem_bytes = 1032" in problem.message
    assert "at least 1152" in problem.fix


# ------------------------------------------------------------------ wgmma operands


@pytest.mark.parametrize(
    ("kernel", "refill"),
    [
        (wgmma_release.refill_by_cp_async, "cp.async"),
        (wgmma_release.refill_by_stores, "warpgroup"),
    ],
    ids=["B063", "B065"],
)
def test_refill_while_the_other_warpgroup_multiplies(kernel: Kernel, refill: str) -> None:
    report = failure(kernel)
    assert report.rules == {"race"}
    multiply = line(kernel, "multiply_tile(k, ops.acc", kernel is wgmma_release.refill_by_stores)
    found = [sides(f) for f in report.findings]
    assert [("warpgroup0", bug(kernel)), ("warpgroup1", multiply)] in found
    assert [("warpgroup1", bug(kernel)), ("warpgroup0", multiply)] in found
    for finding in report.findings:
        assert finding.message.startswith(refill)
        assert "wgmma.mma_async" in finding.message
        assert "sB" in finding.message
        assert "wgmma.commit_group and wait_group" in finding.fix


@pytest.mark.parametrize(
    "kernel", [wgmma_release.refill_by_cp_async, wgmma_release.refill_by_stores]
)
def test_own_warpgroup_s_wait_covers_its_own_operands(kernel: Kernel) -> None:
    """B063, B065: a wait covers the wgmma of the whole warpgroup, so only the other one races."""
    for finding in failure(kernel).findings:
        assert set(finding.roles) == {"warpgroup0", "warpgroup1"}, finding


@pytest.mark.parametrize(
    "kernel", [wgmma_release.refill_by_cp_async, wgmma_release.refill_by_stores]
)
def test_operand_refilled_without_a_proxy_fence(kernel: Kernel) -> None:
    program = without(kernel.build(fixed=True), "fence.proxy.async")
    assert "proxy-fence" in check(program, strict="ptx").rules


# ------------------------------------------------------------------ destinations of copies


def test_zeros_stored_before_a_copy_race_with_it() -> None:
    """B071: with those of other warps nothing orders it, with its own a proxy fence is missing."""
    kernel = copy_destination.zeroed_first
    report = failure(kernel)
    assert report.rules == {"race", "proxy-fence"}
    copy, store = at(kernel, "k.tma.load"), bug(kernel)
    [race] = of_rule(report, "race")
    assert sorted(lines(race)) == sorted([copy, store])
    assert {p.warp for p in race.participants} >= {0}
    assert len({p.warp for p in race.participants}) == 2
    assert race.roles == ("warpgroup",)
    [fence] = of_rule(report, "proxy-fence")
    assert [p.warp for p in fence.participants] == [0, 0]
    assert lines(fence) == [copy, store]


def test_copy_started_before_the_other_warps_have_read() -> None:
    """B073."""
    kernel = copy_destination.refilled_by_first_warp
    report = failure(kernel)
    assert report.rules == {"race"}
    for race in report.findings:
        assert sorted(lines(race)) == sorted([bug(kernel), at(kernel, "k.tile.load")])
        assert race.roles == ("warpgroup",)
        warps = [p.warp for p in race.participants]
        assert 0 in warps
        assert len(set(warps)) == 2


# ------------------------------------------------------------------ copy groups


def test_wait_of_the_issuing_threads_says_nothing_to_the_others() -> None:
    """B075."""
    kernel = copy_groups.waited_by_issuers
    report = failure(kernel)
    assert report.rules == {"race"}
    for race in report.findings:
        assert sorted(lines(race)) == sorted([bug(kernel), at(kernel, "k.tma.store")])
        assert race.roles == ("math",)
    first = report.findings[0]
    assert first.participants[0].warp not in (0, 1)
    assert first.participants[1].warp in (0, 1)
    assert first.fix.startswith("a barrier of threads between this cp.async.bulk.wait_group")


def test_wait_that_leaves_every_group_open_waits_for_nothing() -> None:
    """B077; that the last copies are never waited for is a consequence."""
    kernel = copy_groups.waited_too_little
    report = failure(kernel)
    assert "race" in report.rules
    assert report.rules <= {"race", "async-at-exit"}
    read = at(kernel, "k.mem.load(page")
    copies = [at(kernel, "k.cp_async.copy", n) for n in range(2)]
    for race in of_rule(report, "race"):
        assert sides(race)[0] == ("load", read)
        assert sides(race)[1] in [("page loader", copy) for copy in copies]
        assert "cp.async.wait_group" in race.fix


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_wait_for_all_but_the_newest_groups_is_enough(stages: int) -> None:
    """B077."""
    kernel = copy_groups.waited_too_little
    assert "race" in failure(kernel, stages=stages).rules
    assert check(kernel.build(stages=stages, fixed=True)).verdict == "proved"


# ------------------------------------------------------------------ named barriers


def test_second_arrival_in_an_open_round() -> None:
    """B092."""
    kernel = named_barriers.reused_id
    report = failure(kernel)
    assert report.rules == {"named-barrier"}
    first = report.findings[0]
    assert "joins named barrier 1 again before the round" in first.message
    assert sides(first) == [("math", bug(kernel)), ("math", bug(kernel))]
    assert "two barrier ids" in first.fix


def test_second_arrival_needs_a_schedule_with_slow_io_warps() -> None:
    """B092: the timed schedule is fine, so one run would not find it."""
    program = named_barriers.reused_id.build()
    assert simulate(program, numbers=False).findings == ()
    assert failure(named_barriers.reused_id).stats.schedules > 1


def test_two_tiles_never_arrive_twice_too_early() -> None:
    """B092 needs the math warps to be two tiles ahead."""
    assert check(named_barriers.reused_id.build(tiles=1)).verdict == "proved"
    assert "named-barrier" in failure(named_barriers.reused_id, tiles=2).rules


def test_half_the_count_orders_nothing() -> None:
    """B094: it terminates, and the buffer it guarded races in both directions."""
    kernel = named_barriers.half_count
    report = failure(kernel)
    assert "deadlock" not in report.rules
    write, read = at(kernel, "k.mem.store(buffer"), at(kernel, "k.mem.load(value, buffer")
    for race in of_rule(report, "race"):
        assert sides(race) in (
            [("warpgroup0", write), ("warpgroup1", read)],
            [("warpgroup1", read), ("warpgroup0", write)],
        )
    assert at(kernel, "k.bar.arrive(filled") == bug(kernel)


def test_syncthreads_that_one_role_never_reaches() -> None:
    """B096: the threads of the other role leave, and exit releases the barrier (E9)."""
    assert check(named_barriers.half_of_the_cta.build()).verdict == "proved"


def test_syncthreads_of_one_role_hangs_with_a_role_that_waits() -> None:
    """B096, NVIDIA/Fuser #4187."""
    kernel = named_barriers.half_of_the_cta
    report = failure(kernel, others="loop")
    assert report.rules == {"deadlock"}
    [finding] = report.findings
    waiting = at(kernel, "k.mbarrier.wait(empty")
    assert set(sides(finding)) == {("compute", bug(kernel)), ("copy", waiting)}
    assert any("named barrier 0" in note for note in finding.notes)


def test_aligned_barrier_at_three_sites() -> None:
    """B098."""
    kernel = named_barriers.aligned_sites
    report = failure(kernel, "ptx")
    assert report.rules == {"participation"}
    found = [sides(f) for f in report.findings]
    assert found == [
        [("mma", bug(kernel, 1)), ("load", bug(kernel, 0))],
        [("epilogue", bug(kernel, 2)), ("load", bug(kernel, 0))],
    ]
    assert "aligned barriers at two places" in report.findings[0].message
    assert "aligned=False" in report.findings[0].fix


def test_cluster_barrier_that_half_of_the_warps_reach() -> None:
    """B096: the two halves of each CTA wait for each other at different barriers."""
    kernel = named_barriers.half_of_the_cluster
    report = failure(kernel)
    [finding] = [f for f in report.findings if f.rule == "deadlock"]
    assert {p.role for p in finding.participants} == {"exchange", "warp 2"}
    assert {p.cta for p in finding.participants} == {0, 1}
    assert ("exchange", bug(kernel)) in sides(finding)


# ------------------------------------------------------------------ registers


@pytest.mark.parametrize(
    ("kernel", "missing"),
    [(register_pool.too_many_consumers, 3584), (register_pool.two_ctas_per_sm, 3584)],
    ids=["B110", "B112"],
)
def test_consumers_wait_for_registers_nobody_has(kernel: Kernel, missing: int) -> None:
    report = failure(kernel)
    inc = line(kernel, 'k.setmaxnreg("inc"')
    [finding] = report.findings
    assert finding.rule == "register-pool"
    assert ("consumer", inc) in sides(finding)
    [waiter] = [p for p in finding.participants if p.loc.line == inc]
    assert waiter.action == f"waits for {missing} registers (setmaxnreg.inc)"
    assert any("register pool holds" in note for note in finding.notes)
    assert "setmaxnreg" in finding.fix


def test_registers_that_nobody_gave_back() -> None:
    """B110, Helion: 128 + 3 * 160 registers of 4 * 128."""
    report = failure(register_pool.too_many_consumers, decrease=False)
    [finding] = report.findings
    assert finding.rule == "register-pool"
    waiting = [p for p in finding.participants if "waits for" in p.action]
    assert {p.role for p in waiting} == {"consumer"}


# ------------------------------------------------------------------ bounds


def test_full_block_stored_at_the_edge() -> None:
    """B114."""
    kernel = store_bounds.full_last_block
    report = failure(kernel)
    assert report.rules == {"out-of-bounds"}
    [finding] = report.findings
    assert sides(finding) == [("math", bug(kernel))]
    assert [p.cta for p in finding.participants] == [3]
    assert "elements 192..255 of dimension 0 of D, which has 224" in finding.message


# ------------------------------------------------------------------ negative controls


def test_one_expect_that_forgets_the_second_copy_fails() -> None:
    """N9 with half of the bytes."""
    kernel = joint_full_barrier.one_expect
    program = changed(kernel.build(), "mbarrier.arrive.expect_tx", bytes=Const(512))
    report = check(program)
    assert report.verdict == "failed"
    assert report.rules & {"race", "phase-ambiguity", "tx-mismatch"}
    assert at(kernel, "k.bulk.load(sB") in {n for f in report.findings for n in lines(f)}


def test_two_async_warps_with_a_count_of_one_fail() -> None:
    """N11 with the count of variant a of B024."""
    kernel = joint_full_barrier.two_async_warps
    program = kernel.build()
    for stage in (0, 2):
        program = changed(program, "mbarrier.init", stage, count=Const(1))
    report = check(program)
    assert report.verdict == "failed"
    assert report.rules & {"over-arrival", "race", "deadlock", "phase-ambiguity"}
