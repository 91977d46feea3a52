"""The Blackwell gallery: proved, equal to NumPy, and no longer proved once it is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.ir.expr import Const
from tilesim.ir.memory import Mbar
from tilesim.ir.ops.mbarrier import MbarrierArrive
from tilesim.ir.ops.tcgen05 import Tcgen05Commit, Tcgen05Fence, Tcgen05Wait
from tilesim.ir.program import Program, instructions
from tilesim.kernels.blackwell import (
    matmul_v0,
    matmul_v1,
    matmul_v2,
    matmul_v3,
    matmul_v4,
)
from tilesim.kernels.registry import Case, cases
from tilesim.sim.simulate import simulate

from .mutate import changed, edited, inputs, line, without

CASES = cases("blackwell")
IDS = [case.target.removeprefix("tilesim.kernels.blackwell.") for case in CASES]


def finding(program: Program, rule: str, strict: Any = "practice") -> Any:
    """The first finding of ``rule``; the check must have failed."""
    report = check(program, strict=strict)
    assert report.verdict == "failed", report
    assert rule in report.rules, report.findings
    return next(f for f in report.findings if f.rule == rule)


def lines(found: Any) -> set[int]:
    return {p.loc.line for p in found.participants}


def number_of(program: Program, mnemonic: str, place: int) -> int:
    """Which instruction of this mnemonic the one on line ``place`` is."""
    found = [op for op in instructions(program) if op.mnemonic == mnemonic]
    return next(i for i, op in enumerate(found) if op.loc.line == place)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_kernel_is_proved(case: Case, strict: Any) -> None:
    report = check(case.build(), strict=strict)
    assert report.findings == ()
    assert report.verdict == "proved", report.reasons


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("policy", ["timed", "random"])
def test_kernel_equals_numpy(case: Case, policy: Any) -> None:
    program = case.build()
    given = inputs(case.kernel, program, dict(case.params))
    run = simulate(program, given, policy=policy, seed=1)
    assert run.findings == ()
    assert case.kernel.reference is not None
    for name, expected in case.kernel.reference(given, **case.params).items():
        assert np.any(expected)
        np.testing.assert_array_equal(run.outputs[name], expected)


MODULES = [matmul_v0, matmul_v1, matmul_v2, matmul_v3, matmul_v4]
KERNELS = [module.matmul for module in MODULES]
NAMES = [f"v{number}" for number in range(len(MODULES))]


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_without_fences_a_kernel_passes_in_practice_and_fails_by_the_text(kernel: Any) -> None:
    program = without(kernel.build(), "tcgen05.fence")
    assert check(program).verdict == "proved"
    report = check(program, strict="ptx")
    assert report.verdict == "failed"
    assert "tcgen05-order" in report.rules
    assert set(report.rules) <= {"tcgen05-order", "tmem-lifetime"}


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_without_wait_ld_a_kernel_fails(kernel: Any) -> None:
    program = edited(kernel.build(), "tcgen05.wait", lambda op: None if op.kind == "ld" else op)
    assert not any(isinstance(op, Tcgen05Wait) for op in instructions(program))
    report = check(program)
    assert report.verdict == "failed"
    assert set(report.rules) <= {"tcgen05-order", "tmem-lifetime"}


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_without_dealloc_columns_leak(kernel: Any) -> None:
    found = finding(without(kernel.build(), "tcgen05.dealloc"), "tmem-lifetime")
    assert "nobody freed" in found.message


def arrives(op: Tcgen05Commit) -> MbarrierArrive:
    """The plain arrive that a commit is sometimes mistaken for."""
    assert isinstance(op.mbar, Mbar)
    return MbarrierArrive(mbar=op.mbar, count=Const(1), loc=op.loc)


@pytest.mark.parametrize("module", MODULES[1:], ids=NAMES[1:])
def test_a_stage_released_by_a_plain_arrive_is_overwritten_too_early(module: Any) -> None:
    program = module.matmul.build()
    place = line(module.matmul, "k.tcgen05.commit(slot.empty")
    nth = number_of(program, "tcgen05.commit", place)
    found = finding(edited(program, "tcgen05.commit", arrives, nth), "race")
    assert {p.role for p in found.participants} == {"tma", "mma"}
    assert lines(found) & {
        line(module.matmul, "k.tma.load(a_map"), line(module.matmul, "k.tma.load(b_map")
    }  # fmt: skip
    assert line(module.matmul, "multiply_tile(k, d, sA") in lines(found)


@pytest.mark.parametrize("module", [matmul_v2, matmul_v3], ids=["v2", "v3"])
def test_an_accumulator_that_is_not_waited_for_is_overwritten(module: Any) -> None:
    """Without the wait on the accumulator's empty barrier the mma runs ahead of the epilogue."""
    program = module.matmul.build()
    place = line(module.matmul, "result.acquire()")
    broken = without(program, "mbarrier.wait", number_of(program, "mbarrier.wait", place))
    report = check(broken)
    assert report.verdict == "failed"
    assert set(report.rules) & {"tcgen05-order", "phase-ambiguity", "phase-alias"}


@pytest.mark.parametrize("text", ["result.acquire()", "result.wait()"])
def test_each_hand_over_of_an_accumulator_needs_its_fence_by_the_text(text: str) -> None:
    kernel = matmul_v2.matmul
    program = kernel.build()
    nth = number_of(program, "tcgen05.fence", line(kernel, text) + 1)
    fence = [op for op in instructions(program) if isinstance(op, Tcgen05Fence)][nth]
    assert fence.side == "after_thread_sync"
    found = finding(without(program, "tcgen05.fence", nth), "tcgen05-order", "ptx")
    assert {p.role for p in found.participants} == {"mma", "epilogue"}


def test_the_first_product_of_a_tile_must_not_accumulate() -> None:
    broken = changed(matmul_v1.matmul.build(), "tcgen05.mma", nth=0, accumulate=Const(1))
    found = finding(broken, "uninitialised-read")
    assert lines(found) == {line(matmul_v1.matmul, "multiply_tile(k, d, sA")}


def test_answers_with_too_few_readers_are_overwritten_too_early() -> None:
    """B009: the slot of an answer is given back before everybody has read it."""
    kernel = matmul_v3.matmul
    program = kernel.build(m=768)
    place = line(kernel, "answers.init()")
    inits = [op for op in instructions(program) if op.mnemonic == "mbarrier.init"]
    empty = [i for i, op in enumerate(inits) if op.loc.line == place][1::2]
    for nth in empty:
        program = changed(program, "mbarrier.init", nth, count=Const(matmul_v3.READERS - 1))
    report = check(program)
    assert report.verdict == "failed"
    assert set(report.rules) & {"race", "over-arrival", "phase-ambiguity", "phase-alias"}


def test_an_answer_read_without_a_proxy_fence_fails_by_the_text() -> None:
    """B040: the next request overwrites the slot through the async proxy."""
    kernel = matmul_v3.matmul
    program = kernel.build(m=768)
    place = line(kernel, 'k.fence.proxy_async("shared::cta")')
    fences = [op for op in instructions(program) if op.mnemonic == "fence.proxy.async"]
    broken = edited(program, "fence.proxy.async", lambda op: None if op.loc.line == place else op)
    assert any(op.loc.line == place for op in fences)
    assert check(broken).verdict == "proved"
    found = finding(broken, "proxy-fence", "ptx")
    assert line(kernel, "k.clc.try_cancel(") in lines(found)


# ---------------------------------------------------------------------- CTA pairs


def test_a_pair_that_expects_the_bytes_of_one_cta_is_reported() -> None:
    """The stage looks full after half of its copies, or never."""
    kernel = matmul_v4.matmul
    broken = edited(
        kernel.build(), "mbarrier.arrive.expect_tx",
        lambda op: replace(op, bytes=Const(int(op.bytes.value) // 2)),
    )  # fmt: skip
    report = check(broken)
    assert report.verdict == "failed"
    assert set(report.rules) & {"race", "deadlock", "tx-mismatch", "phase-ambiguity"}


def test_a_pair_whose_odd_cta_leaves_before_the_last_commits_is_reported() -> None:
    kernel = matmul_v4.matmul
    place = line(kernel, "# tail")
    broken = edited(
        kernel.build(), "mbarrier.wait", lambda op: None if op.loc.line == place else op
    )
    found = finding(broken, "peer-exit")
    assert {p.role for p in found.participants} == {"mma"}
    assert lines(found) == {line(kernel, "k.tcgen05.commit(slot.empty, multicast=BOTH")}


def test_a_commit_to_one_cta_of_the_pair_lets_the_other_wait_for_ever() -> None:
    kernel = matmul_v4.matmul
    nth = number_of(kernel.build(), "tcgen05.commit", line(kernel, "k.tcgen05.commit(done"))
    found = finding(changed(kernel.build(), "tcgen05.commit", nth, multicast=Const(1)), "deadlock")
    assert line(kernel, "k.mbarrier.wait(done") in lines(found)


def test_copies_of_a_pair_signal_only_the_pair() -> None:
    kernel = matmul_v4.matmul
    with pytest.raises(InvalidProgram) as caught:
        check(changed(kernel.build(), "cp.async.bulk.tensor.load", cta_group=1))
    assert {d.rule for d in caught.value.diagnostics} == {"operand"}
