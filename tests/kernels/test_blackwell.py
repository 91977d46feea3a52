"""The Blackwell gallery: proved, equal to NumPy, and no longer proved once it is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.ir.declarations import Mbar
from tilesim.ir.expr import Const, constant
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierInit
from tilesim.ir.ops.tcgen05 import Tcgen05Commit, Tcgen05Fence, Tcgen05Wait
from tilesim.ir.program import Program, instructions
from tilesim.kernels.blackwell import (
    matmul_v0,
    matmul_v1,
    matmul_v2,
    matmul_v3,
    matmul_v4,
    matmul_v5,
    matmul_v6,
)
from tilesim.kernels.registry import Case, cases
from tilesim.lib.schedule import rasterised

from .evidence import assert_computes, assert_proved, finding
from .fewer_tiles import with_fewer_tiles
from .mutate import changed, edited, line, without

CASES = tuple(case for case in cases("blackwell") if "matmul" in case.target)
IDS = [case.target.removeprefix("tilesim.kernels.blackwell.") for case in CASES]


def lines(found: Any) -> set[int]:
    return {p.loc.line for p in found.participants}


def number_of(program: Program, mnemonic: str, place: int) -> int:
    """Which instruction of this mnemonic the one on line ``place`` is."""
    found = [op for op in instructions(program) if op.mnemonic == mnemonic]
    return next(i for i, op in enumerate(found) if op.loc.line == place)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_kernel_is_proved(case: Case, strict: Any) -> None:
    assert_proved(with_fewer_tiles(case), strict)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_kernel_is_proved_with_all_its_tiles(case: Case) -> None:
    assert_proved(case, "practice")


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("policy", ["timed", "random"])
def test_kernel_equals_numpy(case: Case, policy: Any) -> None:
    assert_computes(case, [(policy, 1)])


MODULES = [matmul_v0, matmul_v1, matmul_v2, matmul_v3, matmul_v4, matmul_v5, matmul_v6]
KERNELS = [module.matmul for module in MODULES]
NAMES = [f"v{number}" for number in range(len(MODULES))]


def few_tiles(kernel: Any) -> Program:
    """With its own sizes, or if it asks for tiles three of them: the third request is answered in
    the place of the first, and the third tile accumulated in that of the first."""
    return with_fewer_tiles(Case(kernel, {}, "blackwell", "proved")).build()


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_without_fences_a_kernel_passes_in_practice_and_fails_by_the_text(kernel: Any) -> None:
    program = without(few_tiles(kernel), "tcgen05.fence")
    assert check(program).verdict == "proved"
    report = check(program, strict="ptx")
    assert report.verdict == "failed"
    assert "tcgen05-order" in report.rules
    assert set(report.rules) <= {"tcgen05-order", "tmem-lifetime"}


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_without_wait_ld_a_kernel_fails(kernel: Any) -> None:
    program = edited(few_tiles(kernel), "tcgen05.wait", lambda op: None if op.kind == "ld" else op)
    assert not any(isinstance(op, Tcgen05Wait) for op in instructions(program))
    report = check(program)
    assert report.verdict == "failed"
    assert set(report.rules) <= {"tcgen05-order", "tmem-lifetime"}


@pytest.mark.parametrize("kernel", KERNELS, ids=NAMES)
def test_without_dealloc_columns_leak(kernel: Any) -> None:
    found = finding(without(few_tiles(kernel), "tcgen05.dealloc"), "tmem-lifetime")
    assert "no warp freed" in found.message


def arrives(op: Tcgen05Commit) -> MbarrierArrive:
    """The plain arrive that a commit is sometimes mistaken for."""
    assert isinstance(op.mbar, Mbar)
    return MbarrierArrive(mbar=op.mbar, count=Const(1), loc=op.loc)


@pytest.mark.parametrize("module", MODULES[2:], ids=NAMES[2:])
def test_a_stage_released_by_a_plain_arrive_is_overwritten_too_early(module: Any) -> None:
    program = few_tiles(module.matmul)
    place = line(module.matmul, "k.tcgen05.commit(slot.empty")
    nth = number_of(program, "tcgen05.commit", place)
    found = finding(edited(program, "tcgen05.commit", arrives, nth), "race")
    roles = {"warp 0"} if module is matmul_v2 else {"tma", "mma"}
    assert {p.role for p in found.participants} == roles
    assert lines(found) & {
        line(module.matmul, "k.tma.load(a_map"), line(module.matmul, "k.tma.load(b_map")
    }  # fmt: skip
    assert line(module.matmul, "multiply_tile(k, d, sA") in lines(found)


@pytest.mark.parametrize("module", MODULES[4:], ids=NAMES[4:])
def test_an_accumulator_that_is_not_waited_for_is_overwritten(module: Any) -> None:
    """Without the wait on the accumulator's empty barrier the mma runs ahead of the epilogue."""
    program = few_tiles(module.matmul)
    place = line(module.matmul, "result.acquire(")
    broken = without(program, "mbarrier.wait", number_of(program, "mbarrier.wait", place))
    report = check(broken)
    assert report.verdict == "failed"
    assert set(report.rules) & {"tcgen05-order", "phase-ambiguity", "phase-alias"}


@pytest.mark.parametrize("text", ["result.acquire(", "result.wait("])
@pytest.mark.parametrize("module", MODULES[4:], ids=NAMES[4:])
def test_each_hand_over_of_an_accumulator_needs_its_fence_by_the_text(
    module: Any, text: str
) -> None:
    kernel = module.matmul
    program = few_tiles(kernel)
    nth = number_of(program, "tcgen05.fence", line(kernel, text) + 1)
    fence = [op for op in instructions(program) if isinstance(op, Tcgen05Fence)][nth]
    assert fence.side == "after_thread_sync"
    found = finding(without(program, "tcgen05.fence", nth), "tcgen05-order", "ptx")
    assert {p.role for p in found.participants} == {"mma", "epilogue"}


def test_the_first_product_of_a_tile_must_not_accumulate() -> None:
    broken = changed(matmul_v3.matmul.build(), "tcgen05.mma", nth=0, accumulate=Const(1))
    found = finding(broken, "uninitialised-read")
    assert lines(found) == {line(matmul_v3.matmul, "multiply_tile(k, d, sA")}


def test_operands_copied_by_the_threads_need_a_proxy_fence() -> None:
    """cp.async writes through the generic proxy, the mma reads through the async proxy (U14)."""
    kernel = matmul_v0.matmul
    found = finding(without(kernel.build(), "fence.proxy.async"), "proxy-fence", "ptx")
    assert line(kernel, "multiply_tile(k, d, sA") in lines(found)
    assert line(kernel, "k.cp_async.copy(dst") in lines(found)


def test_a_result_stored_without_a_proxy_fence_is_reported() -> None:
    kernel = matmul_v1.matmul
    found = finding(without(kernel.build(), "fence.proxy.async"), "proxy-fence")
    assert lines(found) == {line(kernel, "k.tile.store(sC"), line(kernel, "k.tma.store(c_map")}


# ---------------------------------------------------------------------- which tile


@pytest.mark.parametrize(("down", "across", "width"), [(3, 4, 2), (2, 5, 3), (1, 1, 4), (4, 3, 8)])
def test_every_tile_is_computed_once_in_strips(down: int, across: int, width: int) -> None:
    order = [
        tuple(constant(part) or 0 for part in rasterised(tile, down, across, width))
        for tile in range(down * across)
    ]
    assert sorted(order) == [(row, column) for row in range(down) for column in range(across)]
    assert order == sorted(order, key=lambda at: (at[1] // width, at[0], at[1]))


@pytest.mark.parametrize("module", [matmul_v5, matmul_v6], ids=["v5", "v6"])
def test_answers_with_too_few_readers_are_overwritten_too_early(module: Any) -> None:
    """B009: the slot of an answer is given back before everybody has read it."""
    kernel = module.matmul
    program = kernel.build(m=1536)
    inits = [op for op in instructions(program) if isinstance(op, MbarrierInit)]
    empty = [i for i, op in enumerate(inits) if str(op.mbar).startswith("answer_empty")]
    assert len(empty) == module.ANSWERS
    for nth in empty:
        program = changed(program, "mbarrier.init", nth, count=Const(module.READERS - 1))
    report = check(program)
    assert report.verdict == "failed"
    assert set(report.rules) & {"race", "over-arrival", "phase-ambiguity", "phase-alias"}


@pytest.mark.parametrize("module", [matmul_v5, matmul_v6], ids=["v5", "v6"])
def test_an_answer_read_without_a_proxy_fence_fails_by_the_text(module: Any) -> None:
    """B040: the next request overwrites the slot through the async proxy."""
    kernel = module.matmul
    program = few_tiles(kernel)
    readers = {line(kernel, text) for text in ("schedule.ask(", "as tile, k.elected()")}
    fences = [op for op in instructions(program) if op.mnemonic == "fence.proxy.async"]
    assert readers <= {op.loc.line for op in fences}
    broken = edited(program, "fence.proxy.async", lambda op: None if op.loc.line in readers else op)
    assert check(broken).verdict == "proved"
    found = finding(broken, "proxy-fence", "ptx")
    assert line(kernel, "schedule.ask(") in lines(found)


# ---------------------------------------------------------------------- CTA pairs


def test_a_pair_that_expects_half_of_its_bytes_is_reported() -> None:
    """The stage looks full before its copies are there, or never."""
    kernel = matmul_v6.matmul
    program = few_tiles(kernel)
    expect = "mbarrier.arrive.expect_tx"
    nth = number_of(program, expect, line(kernel, "slot.commit_at("))
    broken = edited(program, expect, lambda op: replace(op, bytes=Const(op.bytes.value // 2)), nth)
    report = check(broken)
    assert report.verdict == "failed"
    assert set(report.rules) & {"race", "deadlock", "tx-mismatch", "phase-ambiguity"}


def test_a_pair_in_which_the_odd_cta_expects_its_bytes_at_home_waits_for_ever() -> None:
    kernel = matmul_v6.matmul
    program = few_tiles(kernel)
    expect = "mbarrier.arrive.expect_tx"
    nth = number_of(program, expect, line(kernel, "slot.commit_at("))
    broken = edited(program, expect, lambda op: replace(op, mbar=replace(op.mbar, cta=None)), nth)
    found = finding(broken, "deadlock")
    assert line(kernel, "slot.wait(") in lines(found)


def test_answers_armed_in_one_cta_only_are_reported() -> None:
    """The multicast response completes bytes on a barrier of the odd CTA that expects none."""
    kernel = matmul_v6.matmul
    program = few_tiles(kernel)
    expect = "mbarrier.arrive.expect_tx"
    place = line(kernel, "schedule.ask(")
    nth = [
        i
        for i, op in enumerate(op for op in instructions(program) if op.mnemonic == expect)
        if op.loc.line == place
    ]
    assert len(nth) == 2
    report = check(without(program, expect, nth[1]))
    assert report.verdict == "failed"
    assert set(report.rules) & {"deadlock", "tx-mismatch"}


def test_a_pair_whose_odd_cta_leaves_before_the_last_commits_is_reported() -> None:
    """Without the cluster barrier at the end nothing else keeps the odd CTA alive."""
    kernel = matmul_v6.matmul
    program = kernel.build(m=256, n=64)
    tail = line(kernel, "# until the last commits have landed here")
    broken = edited(program, "mbarrier.wait", lambda op: None if op.loc.line == tail else op)
    found = finding(broken, "peer-exit")
    assert {p.role for p in found.participants} == {"mma"}
    assert lines(found) == {line(kernel, "k.tcgen05.commit(slot.empty, multicast=BOTH")}


@pytest.mark.parametrize("text", ["commit(slot.empty, multicast", "commit(result.full, multicast"])
def test_a_commit_to_one_cta_of_the_pair_lets_the_other_wait_for_ever(text: str) -> None:
    kernel = matmul_v6.matmul
    nth = number_of(few_tiles(kernel), "tcgen05.commit", line(kernel, text))
    found = finding(
        changed(few_tiles(kernel), "tcgen05.commit", nth, multicast=Const(1)), "deadlock"
    )
    waits = ("slot.acquire(scope", "result.wait(", "# until the last commits")
    assert lines(found) & {line(kernel, wait) for wait in waits}


def test_an_accumulator_given_back_by_one_cta_only_is_never_free() -> None:
    kernel = matmul_v6.matmul
    program = few_tiles(kernel)
    place = line(kernel, "result.release_at(LEADER)")
    broken = edited(
        program, "mbarrier.arrive",
        lambda op: replace(op, mbar=replace(op.mbar, cta=None)) if op.loc.line == place else op,
    )  # fmt: skip
    found = finding(broken, "deadlock")
    assert line(kernel, "result.acquire(scope") in lines(found)


def test_copies_of_a_pair_signal_only_the_pair() -> None:
    kernel = matmul_v6.matmul
    with pytest.raises(InvalidProgram) as caught:
        check(changed(few_tiles(kernel), "cp.async.bulk.tensor.load", cta_group=1))
    assert {d.rule for d in caught.value.diagnostics} == {"operand"}
