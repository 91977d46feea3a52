"""Flash attention: exact up to the two roundings to bf16, proved, and each barrier is needed."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilesim.checker import check
from tilesim.ir.expr import Const
from tilesim.ir.op import Op
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierInit
from tilesim.ir.ops.tcgen05 import Tcgen05Commit
from tilesim.ir.program import Program, instructions
from tilesim.kernels.attention import attention_weights
from tilesim.kernels.blackwell.attention import WARPGROUP, attention
from tilesim.kernels.hopper import attention as hopper
from tilesim.kernels.hopper import attention_v2
from tilesim.kernels.registry import Case, cases
from tilesim.sim.machine.simulate import simulate

from .evidence import assert_proved, finding
from .mutate import changed, edited, inputs, line, without

CASES = tuple(
    case
    for family in ("blackwell", "hopper")
    for case in cases(family)
    if "attention" in case.target and case.kernel is not attention_v2.attention
)
IDS = [case.target.removeprefix("tilesim.kernels.") for case in CASES]
#: half an ulp of bf16 for P and for O, relative to the sum that they are parts of
BOUND = 2.0**-7
#: what f32 rounding may add
SLACK = 1e-5
PROGRAM = attention.build(queries=256, heads=1)
FENCES = sum(op.mnemonic == "tcgen05.fence" for op in instructions(PROGRAM))


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_kernel_is_proved(case: Case, strict: Any) -> None:
    assert_proved(case, strict)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("policy", ["timed", "random"])
def test_result_is_within_the_bound_of_the_exact_one(case: Case, policy: Any) -> None:
    program, params = case.build(), {**case.kernel.params, **case.params}
    given = inputs(case.kernel, program, params)
    run = simulate(program, given, policy=policy, seed=1)
    assert run.findings == ()
    forms = {name: params[name] for name in ("causal", "grouped") if name in params}
    exact = attention_weights(given, params["heads"], **forms)
    weights, v = exact["W"], exact["V"]
    found = run.outputs["O"].astype(np.float64).reshape(v.shape[0], -1, v.shape[2])
    error, scale = np.abs(found - weights @ v), weights @ np.abs(v)
    assert (error <= (BOUND + SLACK) * scale).all(), (error / scale).max()
    assert (error / scale).max() > BOUND / 20  # of that order: the bound is no idle one


def test_rows_that_grow_are_rescaled() -> None:
    """Scores that rise from block to block, so that every earlier part of O is scaled down."""
    program = PROGRAM
    given = inputs(attention, program, {**attention.params, "queries": 256, "heads": 1})
    keys = given["K"].astype(np.float32)
    growing = keys * np.linspace(0.1, 4, len(keys), dtype=np.float32)[:, None]
    given["K"] = growing.astype(given["K"].dtype)
    exact = attention_weights(given, 1)
    result = simulate(program, given).outputs["O"].astype(np.float64)
    scale = (exact["W"] @ np.abs(exact["V"]))[0]
    assert (np.abs(result - (exact["W"] @ exact["V"])[0]) <= (BOUND + SLACK) * scale).all()


def test_without_fences_it_passes_in_practice_and_fails_by_the_text() -> None:
    program = without(PROGRAM, "tcgen05.fence")
    assert check(program).verdict == "proved"
    report = check(program, strict="ptx")
    assert report.verdict == "failed"
    assert report.rules == {"tcgen05-order", "tmem-lifetime"}


@pytest.mark.parametrize("nth", range(FENCES))
def test_every_fence_is_needed_by_the_text(nth: int) -> None:
    report = check(without(PROGRAM, "tcgen05.fence", nth), strict="ptx")
    assert report.verdict == "failed"
    assert report.rules <= {"tcgen05-order", "tmem-lifetime"}


# ---------------------------------------------------------------------- barriers, one by one


def at(text: str, nth: int = 0) -> int:
    return line(attention, text, nth)


def on(text: str, edit: Callable[[Any], Op | None], nth: int = 0) -> Program:
    """The kernel with the synchronising instruction of one line edited."""
    place = at(text, nth)
    (kind,) = {op.mnemonic for op in instructions(PROGRAM) if op.loc.line == place}
    return edited(PROGRAM, kind, lambda op: edit(op) if op.loc.line == place else op)


def sites(found: Any) -> set[tuple[str, str]]:
    """Role and text of the line of every participant."""
    rows = Path(inspect.getsourcefile(attention.function) or "").read_text().splitlines()
    return {(p.role, rows[p.loc.line - 1].strip()) for p in found.participants}


SCORE = ("mma", "multiply_tile(self.k, self.S[q], self.sQ[q], keys, first=1)")
VALUE = ("mma", "self.k.tcgen05.mma(")
LOADED = ("softmax0", "k.tcgen05.ld(scores, self.S[q][:, c * CHUNK : (c + 1) * CHUNK])")
STORED = ("softmax0", "k.tcgen05.st(self.P[q][:, c * CHUNK : (c + 1) * CHUNK], self.weights)")
READ = ("correction", "k.tcgen05.ld(self.partial, self.O[q])")
RESCALED = ("correction", "k.tcgen05.st(self.O[q], self.partial)")
PUBLISHED = ("softmax0", "self.k.tile.store(self.row_stats[q], values)")
RECEIVED = ("correction", "self.k.tile.load(self.alpha, self.row_stats[q])")
COPIED = ("load", "k.tma.load(source, self.sKV[slot.stage], (row, 0), slot.full)")
COPIED_Q = ("load", "k.tma.load(self.q_map, self.sQ[q], (row, 0), self.q_full[q])")
ROUNDED = ("correction", "k.tile.store(self.sO[q], self.rounded)")
WRITTEN = ("epilogue", "k.tma.store(self.o_map, self.sO[q], (self.first_query + q * ROWS, 0))")

#: a wait that is left out, which of the lines with that text, the rule, the two accesses
WAITS = {
    "s_full": ("mbarrier.wait(self.s_full", 0, "tcgen05-order", {SCORE, LOADED}),
    "p_full": ("mbarrier.wait(self.p_full", 0, "tcgen05-order", {STORED, VALUE}),
    "o_final": ("mbarrier.wait(self.o_final", 0, "tcgen05-order", {VALUE, READ}),
    "o_rescaled": ("mbarrier.wait(self.o_rescaled", 0, "tcgen05-order", {RESCALED, VALUE}),
    "stats empty": ("slot.acquire()", 1, "race", {PUBLISHED, RECEIVED}),
    "kv full, K": ("key.wait()", 1, "race", {COPIED, SCORE}),
    "kv full, V": ("value.wait()", 0, "race", {COPIED, VALUE}),
    "q full": ("mbarrier.wait(self.q_full", 0, "race", {COPIED_Q, SCORE}),
    "result full": ("mbarrier.wait(self.result_full", 0, "race", {ROUNDED, WRITTEN}),
}


@pytest.mark.parametrize("name", WAITS)
def test_every_wait_is_needed(name: str) -> None:
    text, nth, rule, between = WAITS[name]
    found = finding(on(text, lambda op: None, nth), rule)
    assert sites(found) == between


def test_the_next_scores_wait_for_the_product_by_the_text_only() -> None:
    """S overwrites P, which the product before reads: in practice such mma keep their order."""
    program = on("# P has been read", lambda op: None)
    assert check(program).verdict == "proved"
    report = check(program, strict="ptx")
    found = next(f for f in report.findings if f.rule == "tcgen05-order")
    assert sites(found) == {VALUE, SCORE}


def test_a_correction_that_does_not_wait_for_alpha_runs_ahead() -> None:
    """It gives slots back that nobody has filled, until phases do not match any more."""
    found = finding(on("slot.wait()", lambda op: None), "deadlock")
    assert {"mma", "correction", "softmax0", "softmax1"} <= {p.role for p in found.participants}
    assert any("stats0_empty" in note and "condition A" in note for note in found.notes)


def test_a_block_announced_before_its_stage_is_empty_is_reported() -> None:
    found = finding(on("slot.acquire()", lambda op: None), "over-arrival")
    assert "kv_full" in found.message
    assert {p.role for p in found.participants} == {"load"}


def arrives(op: Tcgen05Commit) -> MbarrierArrive:
    return MbarrierArrive(mbar=op.mbar, count=Const(1), loc=op.loc)


@pytest.mark.parametrize(
    ("text", "access"), [("commit(key.empty)", SCORE), ("commit(value.empty)", VALUE)]
)
def test_a_stage_released_by_a_plain_arrive_is_overwritten_too_early(
    text: str, access: tuple[str, str]
) -> None:
    """The mma has only been started."""
    nth = 1 if "key" in text else 0
    assert sites(finding(on(text, arrives, nth), "race")) == {COPIED, access}


def test_weights_announced_before_they_are_written_are_read_too_early() -> None:
    """B047: the arrive on p_full without tcgen05.wait::st."""
    program = on("k.tcgen05.wait_st()", lambda op: None)
    assert sites(finding(program, "tcgen05-order")) == {STORED, VALUE}


@pytest.mark.parametrize(
    ("text", "nth", "waiter"),
    [
        ("mbarrier.arrive(self.p_full", 0, "mbarrier.wait(self.p_full"),
        ("mbarrier.arrive(self.o_rescaled", 0, "mbarrier.wait(self.o_rescaled"),
        ("mbarrier.arrive(self.o_rescaled", 1, "mbarrier.wait(self.o_rescaled"),
        ("commit(self.o_full", 0, "# P has been read"),
        ("commit(self.s_full", 0, "mbarrier.wait(self.s_full"),
        ("slot.release()", 0, "slot.acquire()"),
    ],
)
def test_every_arrival_is_waited_for(text: str, nth: int, waiter: str) -> None:
    found = finding(on(text, lambda op: None, nth), "deadlock")
    place = 1 if waiter == "slot.acquire()" else 0
    assert at(waiter, place) in {p.loc.line for p in found.participants}


def test_a_barrier_for_three_warps_of_four_is_reported() -> None:
    """P is taken for complete while one warp still writes it."""
    place = at("mbarrier.init(barrier[q], WARPGROUP)")
    inits = [op for op in instructions(PROGRAM) if isinstance(op, MbarrierInit)]
    nth = next(
        i for i, op in enumerate(inits) if op.loc.line == place and op.mbar.array.name == "p_full"
    )
    report = check(changed(PROGRAM, "mbarrier.init", nth, count=Const(WARPGROUP - 32)))
    assert report.verdict == "failed"
    assert report.rules & {"over-arrival", "tcgen05-order", "phase-ambiguity"}


# ---------------------------------------------------------------------- Hopper


@pytest.mark.parametrize(
    ("text", "rule", "access"),
    [
        ("key.wait()", "race", "k.tma.load(source"),
        ("value.wait()", "race", "k.tma.load(source"),
        ("k.mbarrier.wait(q_full", "race", "k.tma.load(q_map"),
        ("# P is complete", "race", "k.tile.store(sP[group]"),
    ],
)
def test_every_wait_of_the_hopper_kernel_is_needed(text: str, rule: str, access: str) -> None:
    kernel, program = hopper.attention, hopper.attention.build(queries=128, heads=1)
    place = line(kernel, text)
    (kind,) = {op.mnemonic for op in instructions(program) if op.loc.line == place}
    broken = edited(program, kind, lambda op: None if op.loc.line == place else op)
    assert line(kernel, access) in {p.loc.line for p in finding(broken, rule).participants}


def test_weights_without_a_proxy_fence_are_reported() -> None:
    kernel, program = hopper.attention, hopper.attention.build(queries=128, heads=1)
    place = line(kernel, 'k.fence.proxy_async("shared::cta")')
    fence = "fence.proxy.async"
    broken = edited(program, fence, lambda op: None if op.loc.line == place else op)
    found = finding(broken, "proxy-fence")
    assert line(kernel, "k.tile.store(sP[group]") in {p.loc.line for p in found.participants}
