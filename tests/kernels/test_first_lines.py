"""Mistakes in the kernels of `test_more_bugs`: the line that is named first, who is, and why."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from tilesim.checker import check
from tilesim.dsl.kernel import Kernel
from tilesim.kernels.bugs.cluster_arrivals import uneven_pair
from tilesim.kernels.bugs.role_agreement import release_behind_work
from tilesim.mistakes import diagnose as explain

from . import more_blackwell as blackwell
from . import more_hopper as hopper
from . import more_memory as memory
from .mutate import line
from .test_more_bugs import ROWS


class Mistake(NamedTuple):
    """A mistake: the rule, a part of the cause, and who is named first at which lines, by texts
    in the kernel's module (a number: which of the lines with that text)."""

    kernel: Kernel
    fault: dict[str, Any]
    rule: str
    cause: str
    lines: tuple[tuple[str, str | tuple[str, int]], ...]

    def __str__(self) -> str:
        return f"{self.kernel.name} {' '.join(map(str, self.fault.values()))}"


MISTAKES = (
    Mistake(
        hopper.ping_pong, {"skips": False}, "deadlock", "each of these waits before",
        (("consumer 1", "# BUG: if the other group's"), ("producer", "slot.acquire()")),
    ),
    Mistake(
        hopper.last_block, {"fault": "relaxed"}, "race", "atom is relaxed: it does not release",
        (("warp 0", "result=count, sem=sem"),),
    ),
    Mistake(
        hopper.last_block, {"fault": "no barrier"}, "race", "no barrier of threads lies between",
        (("warp 1", "k.mem.store(parts["), ("warp 0", "result=count, sem=sem")),
    ),
    Mistake(
        hopper.stream_k, {"fault": "relaxed"}, "race", "this ld is relaxed: it does not acquire",
        (("warp 0", "k.mem.load(ready, flag[0], sem=sem"), ("warp 0", "k.mem.store(flag[0], 1")),
    ),
    Mistake(
        hopper.shared_halves, {"everywhere": False}, "race",
        "until consumer (CTA 0 warp 0) has read, and not until consumer (CTA 1 warp 0) has",
        (("consumer", "k.mbarrier.arrive(empty[stage], scope"),),
    ),
    Mistake(
        hopper.cp_async_ring, {"noinc": False}, "deadlock", "without .noinc makes full[0] expect",
        (("producer", "# BUG: without .noinc"),),
    ),
    Mistake(
        hopper.cp_async_ring, {"early": True}, "race", "does not wait for cp.async",
        (("producer", "# BUG: nothing waits for the copies"), ("producer", "k.cp_async.copy(buff")),
    ),
    Mistake(
        hopper.row_gather, {"counted": False}, "deadlock",
        "512 bytes are expected on full[1] per phase and 384 completed",
        (("producer", "# BUG: all rows"), ("producer", "k.bulk.load(buffer[slot.stage, r]")),
    ),
    Mistake(
        hopper.tile_counter, {"asks": False}, "race", "tile_empty[0], and no warp waits for it",
        (("scheduler", "k.mem.atomic(counter[0], \"add\", 1, result=tile"),),
    ),
    Mistake(
        hopper.pushed_sums, {"senders": 3}, "deadlock",
        "384 bytes are expected on CTA 0 b[0] per phase and 256 completed",
        (("warp 0", "k.mbarrier.arrive_expect_tx(b, 128"), ("warp 0", "k.cluster.st_async(")),
    ),
    Mistake(
        hopper.pushed_sums, {"senders": 1}, "race",
        "128 bytes are expected on CTA 0 b[0] per phase and 256 completed",
        (("warp 0", "k.mbarrier.arrive_expect_tx(b, 128"), ("warp 0", "k.cluster.st_async(")),
    ),
    Mistake(
        memory.stored_partials, {"read": True}, "race", "not until it has written",
        (("warp 0", "# BUG: read says nothing"), ("warp 0", "k.bulk.store(work, tile)")),
    ),
    Mistake(
        memory.shared_release, {"groups": 1}, "race",
        "until group 0 (warp 0) has read, and not until group 1 (warp 4) has",
        (("group 1", "k.bar.sync(1 + group, ROW, aligned=False)"), ("group 0", "slot.release()")),
    ),
    Mistake(
        memory.uneven_rounds, {"even": False}, "peer-exit", "comes 3 times to the cluster barrier",
        (("warp 0", "k.if_(i < count)"), ("warp 0", ("k.cluster.sync()", 1))),
    ),
    Mistake(
        memory.foreign_group, {"own": False}, "race", "groups that it has not committed",
        (("wait", ("k.bulk.wait_group(0)", 1)), ("store", "k.bulk.store(Y[i], out)")),
    ),
    Mistake(
        blackwell.two_accumulators, {"fault": "no acquire"}, "tcgen05-order",
        "epilogue (warp 0) arrives on acc_empty[0], and no warp waits for it",
        (("mma", "with k.role(\"mma\", 4), k.elected(), k.loop(tiles)"),),
    ),
    Mistake(
        blackwell.two_accumulators, {"fault": "other stage"}, "tcgen05-order",
        "accesses what acc_full[1] vouches for, and has waited on acc_full[0]",
        (("epilogue", ("k.tcgen05.ld(acc, d)", 0)), ("epilogue", ("slot.wait()", 0))),
    ),
    Mistake(
        blackwell.two_q_stages, {"fault": "swapped"}, "tcgen05-order",
        "the commit behind tcgen05.mma is on s_full[",
        (("mma", "k.tcgen05.commit(s_full[1 - q"), ("softmax 1", "k.mbarrier.wait(s_full[q]")),
    ),
    Mistake(
        blackwell.pair_ring, {"tail": False}, "peer-exit", "does not wait for the last arrivals",
        (("load", "k.tma.load(b_map, b[stage]"), ("load", ("k.mbarrier.wait(empty[stage]", 0))),
    ),
    Mistake(
        blackwell.foreign_commit, {"fault": "other warp"}, "tcgen05-order",
        "tcgen05.commit of helper (warp 5) vouches for what its own thread has issued",
        (("helper", "# BUG: it has issued no mma"), ("mma", ("(d, a, b, accumulate=0)", 1))),
    ),
    Mistake(
        blackwell.two_mma_warps, {"ordered": False}, "tcgen05-order",
        "first (warp 4) arrives on turn[0], and no warp waits for it",
        (("second", ("k.tcgen05.fence_after", 7)), ("first", "k.mbarrier.arrive(turn)")),
    ),
    Mistake(
        blackwell.answers_ahead, {"wraps": False}, "race", "this wait passes at once",
        (("warp 0", "# BUG: per use of the slot"),),
    ),
    Mistake(
        uneven_pair, {}, "deadlock", "has made all its 2 copies",
        (("producer", "k.role(\"producer\", 1), k.elected(), k.loop(trips)"),
         ("producer", "k.tma.load(x_map, target, at")),
    ),
    Mistake(
        release_behind_work, {}, "deadlock", "waits for the first arrival on pressure[0]",
        (("producer", "k.mbarrier.wait(pressure, head & 1)"),
         ("consumer", ("k.mbarrier.arrive(pressure)", 2))),
    ),
)  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_first_lines(mistake: Mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "RAISES", True)
    inputs = {"index": ROWS} if mistake.kernel is hopper.row_gather else None
    finding = check(mistake.kernel.build(**mistake.fault), inputs=inputs).findings[0]
    assert finding.rule == mistake.rule
    assert mistake.cause in finding.cause
    wanted = [
        (role, line(mistake.kernel, *((text,) if isinstance(text, str) else text)))
        for role, text in mistake.lines
    ]
    named = [(p.role, p.loc.line) for p in finding.culprits]
    assert named[: len(wanted)] == wanted
