"""What is tried first: edits that mend the cause, at the line that it names."""

from __future__ import annotations

from datetime import timedelta

import pytest

import tilesim as ts
from tilesim.findings.finding import RULES
from tilesim.ir.program import Program
from tilesim.kernels.bugs.empty_tiles import block_sparse
from tilesim.kernels.bugs.launch_control import tile_ids
from tilesim.kernels.bugs.reuse_guards import staging_guard
from tilesim.kernels.bugs.tensor_memory import released_between_reads
from tilesim.kernels.bugs.transaction_bytes import multicast, plain_arrive
from tilesim.kernels.bugs.wgmma_release import refill_by_cp_async
from tilesim.mistakes.context import Facts, Focus
from tilesim.mistakes.table import FAMILIES, FAULTS, MISTAKES, TABLE, edits_for_rule
from tilesim.repair.search import candidates

#: a wrong program, the diagnosis of its finding, an edit that mends it, and its place in the order
WRONG = (
    (refill_by_cp_async.build, "gap", "barrier.sync after wgmma.wait_group", 4),
    (plain_arrive.build, "bytes_of_a_phase",
     "mbarrier.arrive.expect_tx of 8192 bytes instead of mbarrier.arrive", 4),
    (lambda: tile_ids.build(mistake="unpublished"), "unobserved",
     "barrier published[0] instead of arrived[0] in mbarrier.wait", 4),
    (lambda: staging_guard.build(guard="constant phase"), "stale_wait",
     "phase (tile & 1) ^ 1 instead of 1 in mbarrier.wait", 6),
    (released_between_reads.build, "early_arrival", "mbarrier.arrive after tcgen05.wait", 16),
)  # fmt: skip


@pytest.mark.parametrize(("make", "diagnosis", "what", "most"), WRONG)
def test_the_inverse_of_the_mistake_is_tried_early(
    make: object, diagnosis: str, what: str, most: int
) -> None:
    assert callable(make)
    program = make()
    assert isinstance(program, Program)
    findings = ts.check(program).findings
    assert findings[0].diagnosis == diagnosis
    facts = Facts(program)
    tried = [e.what for e in candidates(facts, Focus(facts, findings))]
    assert any(text.startswith(what) for text in tried[:most]), tried[:most]


def test_every_mistake_says_what_mends_it_and_what_injects_it() -> None:
    assert len(MISTAKES) == len(TABLE)
    assert all(mistake.mend for mistake in TABLE)
    assert {name for mistake in TABLE for name in mistake.mend} <= FAMILIES.keys()
    assert {name for mistake in TABLE for name in mistake.inject} <= FAULTS.keys()
    assert {name for rule in RULES for name in edits_for_rule(rule)} <= FAMILIES.keys()


@ts.kernel(warps=1)
def waits_too_early(k: ts.Builder) -> None:
    """The second wait is for a phase that never ends; before the arrival it would not wait."""
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_warp()
    with k.one_thread():
        k.mbarrier.arrive(bar)
    k.mbarrier.wait(bar, 0)
    k.mbarrier.wait(bar, 1)


def test_a_wait_that_is_moved_to_where_it_never_waits_comes_last() -> None:
    report = ts.check(waits_too_early.build(), suggest=timedelta(minutes=10))
    assert report.repairs is not None
    first = report.repairs.found[0]
    assert first.what == "phase 0 instead of 1 in mbarrier.wait"


PAIRS = (
    # one edit: a wait with the step of its register in place of an arrival, or where none was
    (lambda: block_sparse.build(mistake="own empty"),
     "mbarrier.wait on stat_empty[0] parity empty_phase ^ 1 and empty_phase ^= 1 instead of"),
    (lambda: block_sparse.build(mistake="no wait"),
     "mbarrier.wait on stat_empty[0] parity empty_phase ^ 1 and empty_phase ^= 1 before st"),
    # two edits
    (multicast.build, "if true instead of if %cluster_rank < 1; bytes 8192 instead of 16384"),
)  # fmt: skip


@pytest.mark.parametrize(("make", "what"), PAIRS)
def test_a_wait_comes_with_its_step_and_pairs_do_not_wait_for_all_single_edits(
    make: object, what: str
) -> None:
    assert callable(make)
    report = ts.check(make(), suggest=timedelta(minutes=10))
    assert report.repairs is not None
    first = report.repairs.found[0]
    assert first.what.startswith(what)
    assert ts.check(first.program).verdict == "proved"
