"""Faults like the published ones in kernels like theirs: found at both strictness levels.

Each pair is one kernel; the right one must be clean. Of most, the line that is named first is
known, which warp is to blame for it, and why.
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
from tilesim.mistakes import diagnose

from . import more_blackwell as blackwell
from . import more_hopper as hopper
from . import more_memory as memory
from .mutate import line

STRICT: tuple[Strict, ...] = ("practice", "ptx")
ROWS = np.array([3, 0, 7, 7, 15, 2, 1], dtype=np.int32)


@dataclass(frozen=True)
class Pair:
    """A faulty and a right kernel: ``rule`` must be among the findings of the faulty one.

    At `practice` its first finding has this ``cause``, if it is said, and names these roles at
    these ``lines`` first, by texts in the kernel's module (a number: which of the lines with that
    text); or some finding names the line with the text ``names``.
    """

    kernel: Kernel
    fault: Mapping[str, Any]
    rule: str
    right: Mapping[str, Any] = field(default_factory=dict)
    strict: tuple[Strict, ...] = STRICT
    inputs: Mapping[str, Any] | None = None
    cause: str = ""
    lines: tuple[tuple[str, str | tuple[str, int]], ...] = ()
    names: str = ""

    def __str__(self) -> str:
        return f"{self.kernel.name}-{'-'.join(f'{n}={v}' for n, v in self.fault.items())}"


PAIRS = (
    Pair(
        hopper.ping_pong, {"skips": False}, "deadlock",
        cause="each of these waits before",
        lines=(("consumer 1", "# BUG: if the other group's"), ("producer", "slot.acquire()")),
    ),
    Pair(hopper.store_ring, {"pending": 2}, "race", names="# BUG: if still read"),
    Pair(
        hopper.last_block, {"fault": "relaxed"}, "race",
        cause="atom is relaxed: it does not release",
        lines=(("warp 0", "result=count, sem=sem"),),
    ),
    Pair(
        hopper.last_block, {"fault": "no barrier"}, "race",
        cause="no barrier of threads lies between",
        lines=(("warp 1", "k.mem.store(parts["), ("warp 0", "result=count, sem=sem")),
    ),
    Pair(
        hopper.shared_halves, {"everywhere": False}, "race",
        cause="until consumer (CTA 0 warp 0) has read, and not until consumer (CTA 1 warp 0) has",
        lines=(("consumer", "k.mbarrier.arrive(empty[stage], scope"),),
    ),
    Pair(
        hopper.cp_async_ring, {"noinc": False}, "deadlock",
        cause="without .noinc makes full[0] expect",
        lines=(("producer", "# BUG: without .noinc"),),
    ),
    Pair(
        hopper.cp_async_ring, {"early": True}, "race",
        cause="does not wait for cp.async",
        lines=(
            ("producer", "# BUG: nothing waits for the copies"),
            ("producer", "k.cp_async.copy(buff"),
        ),
    ),
    Pair(
        hopper.row_gather, {"counted": False}, "deadlock",
        inputs={"index": ROWS},
        cause="512 bytes are expected on full[1] per phase and 384 completed",
        lines=(("producer", "# BUG: all rows"), ("producer", "k.bulk.load(buffer[slot.stage, r]")),
    ),
    Pair(hopper.deep_wgmma, {"release": 0}, "race", names="k.tma.load(a_map"),
    Pair(
        hopper.tile_counter, {"asks": False}, "race",
        cause="tile_empty[0], and no warp waits for it",
        lines=(("scheduler", "k.mem.atomic(counter[0], \"add\", 1, result=tile"),),
    ),
    Pair(
        hopper.stream_k, {"fault": "relaxed"}, "race",
        cause="this ld is relaxed: it does not acquire",
        lines=(
            ("warp 0", "k.mem.load(ready, flag[0], sem=sem"),
            ("warp 0", "k.mem.store(flag[0], 1"),
        ),
    ),
    Pair(
        hopper.stream_k, {"fault": "no barrier"}, "race",
        names="# BUG: if the flag orders nothing",
    ),
    Pair(
        hopper.pushed_sums, {"senders": 3}, "deadlock",
        cause="384 bytes are expected on CTA 0 b[0] per phase and 256 completed",
        lines=(("warp 0", "k.mbarrier.arrive_expect_tx(b, 128"), ("warp 0", "k.cluster.st_async(")),
    ),
    Pair(
        hopper.pushed_sums, {"senders": 1}, "race",
        cause="128 bytes are expected on CTA 0 b[0] per phase and 256 completed",
        lines=(("warp 0", "k.mbarrier.arrive_expect_tx(b, 128"), ("warp 0", "k.cluster.st_async(")),
    ),
    Pair(hopper.reduced_output, {"waits": False}, "async-at-exit", names="# BUG: if the CTA ends"),
    Pair(hopper.dependent_launch, {"waits": False}, "race", names="# BUG: without the wait"),
    Pair(memory.stored_operand, {"fence": False}, "proxy-fence"),
    Pair(
        memory.stored_operand, {"by": "cp.async", "fence": False}, "proxy-fence",
        {"by": "cp.async"}, strict=("ptx",),
    ),
    Pair(
        memory.stored_partials, {"read": True}, "race",
        cause="not until it has written",
        lines=(("warp 0", "# BUG: read says nothing"), ("warp 0", "k.bulk.store(work, tile)")),
    ),
    Pair(memory.stored_partials, {"read": True}, "race", {"fence": False}),
    Pair(
        memory.shared_release, {"groups": 1}, "race",
        cause="until group 0 (warp 0) has read, and not until group 1 (warp 4) has",
        lines=(
            ("group 1", "k.bar.sync(1 + group, ROW, aligned=False)"),
            ("group 0", "slot.release()"),
        ),
    ),
    Pair(
        memory.keys_and_values, {"ahead": True}, "deadlock",
        {"ahead": True, "stages": 2},
        names="# waits for V",
    ),
    Pair(memory.keys_and_values, {"ahead": True}, "deadlock"),
    Pair(memory.one_id, {"ids": 1}, "race"),
    Pair(
        memory.uneven_rounds, {"even": False}, "peer-exit",
        cause="comes 3 times to the cluster barrier",
        lines=(("warp 0", "k.if_(i < count)"), ("warp 0", ("k.cluster.sync()", 1))),
    ),
    Pair(
        memory.foreign_group, {"own": False}, "race",
        cause="groups that it has not committed",
        lines=(("wait", ("k.bulk.wait_group(0)", 1)), ("store", "k.bulk.store(Y[i], out)")),
    ),
    Pair(memory.one_waiter, {"barrier": False}, "race", names="# BUG: if only one warp has waited"),
    Pair(memory.polled, {"right": False}, "race"),
    Pair(memory.remote_slot, {"credit": False}, "race", names="# BUG: without the credit"),
    Pair(blackwell.two_accumulators, {"fault": "early"}, "tcgen05-order"),
    Pair(
        blackwell.two_accumulators, {"fault": "no acquire"}, "tcgen05-order",
        cause="epilogue (warp 0) arrives on acc_empty[0], and no warp waits for it",
        lines=(("mma", "with k.role(\"mma\", 4), k.elected(), k.loop(tiles)"),),
    ),
    Pair(
        blackwell.two_accumulators, {"fault": "other stage"}, "tcgen05-order",
        cause="accesses what acc_full[1] vouches for, and has waited on acc_full[0]",
        lines=(("epilogue", ("k.tcgen05.ld(acc, d)", 0)), ("epilogue", ("slot.wait()", 0))),
    ),
    Pair(
        blackwell.two_q_stages, {"fault": "one stage"}, "tcgen05-order",
        names="# BUG: if P is not there",
    ),
    Pair(
        blackwell.two_q_stages, {"fault": "swapped"}, "tcgen05-order",
        cause="the commit behind tcgen05.mma is on s_full[",
        lines=(
            ("mma", "k.tcgen05.commit(s_full[1 - q"),
            ("softmax 1", "k.mbarrier.wait(s_full[q]"),
        ),
    ),
    Pair(blackwell.two_q_stages, {"fault": "unwaited"}, "tcgen05-order"),
    Pair(blackwell.pair_ring, {"both": False}, "deadlock"),
    Pair(blackwell.pair_ring, {"remote": False}, "race"),
    Pair(
        blackwell.pair_ring, {"tail": False}, "peer-exit",
        cause="does not wait for the last arrivals",
        lines=(
            ("load", "k.tma.load(b_map, b[stage]"),
            ("load", ("k.mbarrier.wait(empty[stage]", 0)),
        ),
    ),
    Pair(
        blackwell.foreign_commit, {"fault": "other warp"}, "tcgen05-order",
        cause="tcgen05.commit of helper (warp 5) vouches for what its own thread has issued",
        lines=(("helper", "# BUG: it has issued no mma"), ("mma", ("(d, a, b, accumulate=0)", 1))),
    ),
    Pair(blackwell.foreign_commit, {"fault": "whole warp"}, "deadlock"),
    Pair(
        blackwell.two_mma_warps, {"ordered": False}, "tcgen05-order",
        cause="first (warp 4) arrives on turn[0], and no warp waits for it",
        lines=(("second", ("k.tcgen05.fence_after", 7)), ("first", "k.mbarrier.arrive(turn)")),
    ),
    Pair(
        blackwell.answers_ahead, {"wraps": False}, "race",
        cause="this wait passes at once",
        lines=(("warp 0", "# BUG: per use of the slot"),),
    ),
)  # fmt: skip
CHECKS = [(pair, strict) for pair in PAIRS for strict in pair.strict]
#: the right kernels, each once
RIGHT = {(pair.kernel.name, str(pair.right)): pair for pair in PAIRS}


@pytest.mark.parametrize(("pair", "strict"), CHECKS, ids=str)
def test_fault_is_found(pair: Pair, strict: Strict, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnose, "RAISES", True)
    report = check(pair.kernel.build(**pair.fault), strict=strict, inputs=pair.inputs)
    assert report.verdict == "failed", report
    assert pair.rule in report.rules
    if strict == "ptx":
        return
    if pair.cause:
        first = report.findings[0]
        assert (first.rule, pair.cause in first.cause) == (pair.rule, True), first.cause
        wanted = [
            (role, line(pair.kernel, *((text,) if isinstance(text, str) else text)))
            for role, text in pair.lines
        ]
        assert [(p.role, p.loc.line) for p in first.culprits][: len(wanted)] == wanted
    if pair.names:
        lines = {loc.line for finding in report.findings for loc in finding.locations}
        assert line(pair.kernel, pair.names) in lines


@pytest.mark.parametrize("pair", RIGHT.values(), ids=[" ".join(name) for name in RIGHT])
@pytest.mark.parametrize("strict", STRICT)
def test_right_kernel_is_clean(pair: Pair, strict: Strict) -> None:
    report = check(pair.kernel.build(**pair.right), strict=strict, inputs=pair.inputs)
    assert (report.verdict, report.findings) == ("proved", ()), report
