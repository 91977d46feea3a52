"""Faults like the published ones in kernels like theirs: found at both strictness levels.

Each pair is one kernel; the right one must be clean. ``exhausted`` where flags and counters in
global memory decide: every schedule was executed, none is special.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tilesim.checker import check
from tilesim.dsl.kernel import Kernel
from tilesim.ir.program import Strict

from . import more_blackwell as blackwell
from . import more_hopper as hopper
from . import more_memory as memory
from .mutate import line

STRICT: tuple[Strict, ...] = ("practice", "ptx")
ROWS = np.array([3, 0, 7, 7, 15, 2, 1], dtype=np.int32)


@dataclass(frozen=True)
class Pair:
    """A faulty and a right kernel: ``rule`` must be among the findings of the faulty one."""

    kernel: Kernel
    fault: Mapping[str, Any]
    rule: str
    right: Mapping[str, Any] = field(default_factory=dict)
    clean: str = "proved"
    strict: tuple[Strict, ...] = STRICT
    inputs: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        return f"{self.kernel.name}-{'-'.join(f'{n}={v}' for n, v in self.fault.items())}"


PAIRS = (
    Pair(hopper.ping_pong, {"skips": False}, "deadlock"),
    Pair(hopper.store_ring, {"pending": 2}, "race"),
    Pair(hopper.last_block, {"fault": "relaxed"}, "race"),
    Pair(hopper.last_block, {"fault": "no barrier"}, "race"),
    Pair(hopper.shared_halves, {"everywhere": False}, "race"),
    Pair(hopper.cp_async_ring, {"noinc": False}, "deadlock"),
    Pair(hopper.cp_async_ring, {"early": True}, "race"),
    Pair(hopper.row_gather, {"counted": False}, "deadlock", inputs={"index": ROWS}),
    Pair(hopper.deep_wgmma, {"release": 0}, "race"),
    Pair(hopper.tile_counter, {"asks": False}, "race"),
    Pair(hopper.stream_k, {"fault": "relaxed"}, "race"),
    Pair(hopper.stream_k, {"fault": "no barrier"}, "race"),
    Pair(hopper.pushed_sums, {"senders": 3}, "deadlock"),
    Pair(hopper.pushed_sums, {"senders": 1}, "race"),
    Pair(hopper.reduced_output, {"waits": False}, "async-at-exit"),
    Pair(hopper.dependent_launch, {"waits": False}, "race"),
    Pair(memory.stored_operand, {"fence": False}, "proxy-fence"),
    Pair(
        memory.stored_operand, {"by": "cp.async", "fence": False}, "proxy-fence",
        {"by": "cp.async"}, strict=("ptx",),
    ),
    Pair(memory.stored_partials, {"read": True}, "race"),
    Pair(memory.stored_partials, {"read": True}, "race", {"fence": False}),
    Pair(memory.shared_release, {"groups": 1}, "race"),
    Pair(memory.keys_and_values, {"ahead": True}, "deadlock", {"ahead": True, "stages": 2}),
    Pair(memory.keys_and_values, {"ahead": True}, "deadlock"),
    Pair(memory.one_id, {"ids": 1}, "race"),
    Pair(memory.uneven_rounds, {"even": False}, "peer-exit"),
    Pair(memory.foreign_group, {"own": False}, "race"),
    Pair(memory.one_waiter, {"barrier": False}, "race"),
    Pair(memory.polled, {"right": False}, "race"),
    Pair(memory.remote_slot, {"credit": False}, "race"),
    Pair(blackwell.two_accumulators, {"fault": "early"}, "tcgen05-order"),
    Pair(blackwell.two_accumulators, {"fault": "no acquire"}, "tcgen05-order"),
    Pair(blackwell.two_accumulators, {"fault": "other stage"}, "tcgen05-order"),
    Pair(blackwell.two_q_stages, {"fault": "one stage"}, "tcgen05-order"),
    Pair(blackwell.two_q_stages, {"fault": "swapped"}, "tcgen05-order"),
    Pair(blackwell.two_q_stages, {"fault": "unwaited"}, "tcgen05-order"),
    Pair(blackwell.pair_ring, {"both": False}, "deadlock"),
    Pair(blackwell.pair_ring, {"remote": False}, "race"),
    Pair(blackwell.pair_ring, {"tail": False}, "peer-exit"),
    Pair(blackwell.foreign_commit, {"fault": "other warp"}, "tcgen05-order"),
    Pair(blackwell.foreign_commit, {"fault": "whole warp"}, "deadlock"),
    Pair(blackwell.two_mma_warps, {"ordered": False}, "tcgen05-order"),
    Pair(blackwell.answers_ahead, {"wraps": False}, "race"),
)  # fmt: skip
CHECKS = [(pair, strict) for pair in PAIRS for strict in pair.strict]


@pytest.mark.parametrize(("pair", "strict"), CHECKS, ids=str)
def test_fault_is_found(pair: Pair, strict: Strict) -> None:
    report = check(pair.kernel.build(**pair.fault), strict=strict, inputs=pair.inputs)
    assert report.verdict == "failed", report
    assert pair.rule in report.rules


@pytest.mark.parametrize("pair", PAIRS, ids=str)
@pytest.mark.parametrize("strict", STRICT)
def test_right_kernel_is_clean(pair: Pair, strict: Strict) -> None:
    report = check(pair.kernel.build(**pair.right), strict=strict, inputs=pair.inputs)
    assert (report.verdict, report.findings) == (pair.clean, ()), report


#: a line that a finding must name, besides the pair: by a text in the kernel's module
NAMED = (
    (hopper.ping_pong, {"skips": False}, "# BUG: if the other group's"),
    (hopper.store_ring, {"pending": 2}, "# BUG: if still read"),
    (hopper.last_block, {"fault": "relaxed"}, "# BUG: if nothing orders the partial"),
    (hopper.shared_halves, {"everywhere": False}, "# BUG: if only this CTA is asked"),
    (hopper.cp_async_ring, {"early": True}, "k.cp_async.copy(buffer"),
    (hopper.deep_wgmma, {"release": 0}, "k.tma.load(a_map"),
    (hopper.tile_counter, {"asks": False}, "# BUG: if nobody asked"),
    (hopper.stream_k, {"fault": "no barrier"}, "# BUG: if the flag orders nothing"),
    (hopper.pushed_sums, {"senders": 3}, "# BUG: if the root counts itself"),
    (hopper.reduced_output, {"waits": False}, "# BUG: if the CTA ends"),
    (hopper.dependent_launch, {"waits": False}, "# BUG: without the wait"),
    (memory.stored_partials, {"read": True}, "k.bulk.load(tile, work, b)"),
    (memory.shared_release, {"groups": 1}, "# BUG: if one speaks for both"),
    (memory.keys_and_values, {"ahead": True}, "# waits for V"),
    (memory.uneven_rounds, {"even": False}, "k.mem.load(x, tile[i, k.lane_id].at("),
    (memory.foreign_group, {"own": False}, "# BUG: if the store before it"),
    (memory.one_waiter, {"barrier": False}, "# BUG: if only one warp has waited"),
    (memory.remote_slot, {"credit": False}, "# BUG: without the credit"),
    (blackwell.two_accumulators, {"fault": "no acquire"}, "# BUG: if the epilogue still reads"),
    (blackwell.two_q_stages, {"fault": "one stage"}, "# BUG: if P is not there"),
    (blackwell.pair_ring, {"tail": False}, "k.tcgen05.commit(empty[stage]"),
    (blackwell.two_mma_warps, {"ordered": False}, "# BUG: if it is not the second"),
)


@pytest.mark.parametrize(
    ("kernel", "fault", "text"), NAMED, ids=lambda x: str(getattr(x, "name", x))
)
def test_finding_names_the_line(kernel: Kernel, fault: dict[str, Any], text: str) -> None:
    report = check(kernel.build(**fault))
    lines = {loc.line for finding in report.findings for loc in finding.locations}
    assert line(kernel, text) in lines
