"""Cells of `tests.sim.unusual` that have been judged by the text, and what is said of them."""

from __future__ import annotations

from typing import NamedTuple, get_args

import pytest

from tests.sim.unusual import program
from tilesim import Builder, check, kernel
from tilesim.checker.certificates import certified
from tilesim.ir.program import Strict


class Cell(NamedTuple):
    """An instruction, its execution, and what the levels are to say: "proved", or a rule that is
    broken; ``ptx``: if that is something else there."""

    instruction: str
    execution: str
    practice: str
    ptx: str = ""


CELLS = [
    Cell("init", "one", "proved"),
    Cell("init", "survivor", "proved"),
    Cell("init", "two lanes", "barrier-lifetime"),
    Cell("init", "twice", "barrier-lifetime"),
    Cell("init", "two warps", "barrier-lifetime"),
    Cell("init", "none", "uninitialised-barrier"),
    Cell("inval", "one", "proved"),
    Cell("inval", "late", "proved"),
    Cell("inval", "two lanes", "barrier-lifetime"),  # all but the first find none (A6)
    Cell("inval", "survivors", "barrier-lifetime"),
    Cell("inval", "twice", "barrier-lifetime"),
    Cell("inval", "none", "barrier-lifetime"),  # it is initialised again
    Cell("arrive", "one", "proved"),
    Cell("arrive", "survivor", "proved"),
    Cell("arrive", "two lanes", "over-arrival"),
    Cell("arrive", "two late", "over-arrival"),
    Cell("arrive", "two in CTA 6", "over-arrival"),
    Cell("arrive", "none", "deadlock"),
    Cell("arrive", "twice", "phase-alias", "phase-ambiguity"),  # two phases end (U1)
    Cell("arrive_for_none", "one", "over-arrival"),
    Cell("arrive_for_none", "none", "proved"),
    Cell("arrive_for_fewer_than_none", "one", "over-arrival"),
    Cell("arrive_drop", "one", "proved"),
    Cell("arrive_drop", "two lanes", "over-arrival"),
    Cell("arrive_drop", "none", "deadlock"),
    Cell("arrive_no_complete", "one", "proved"),
    Cell("arrive_no_complete", "two lanes", "over-arrival"),
    Cell("arrive_no_complete", "twice", "over-arrival"),
    Cell("expect_tx", "one", "proved"),
    Cell("expect_tx", "two lanes", "deadlock"),
    Cell("expect_tx", "none", "deadlock"),
    Cell("complete_tx", "one", "proved"),
    Cell("complete_tx", "two lanes", "deadlock"),
    Cell("complete_tx", "none", "deadlock"),
    Cell("complete_tx_of_most", "one", "proved"),
    Cell("complete_tx_of_most", "two lanes", "tx-mismatch"),
    Cell("complete_tx_of_most", "twice", "tx-mismatch"),
    Cell("wait_for_a_parity_of_3", "one", "proved", "phase-alias"),  # its last bit counts (A21)
    Cell("cp_async_noinc", "one", "proved"),
    Cell("cp_async_noinc", "two lanes", "over-arrival"),
    Cell("cp_async_noinc", "twice", "race"),
    Cell("cp_async_inc", "one", "proved"),
    Cell("cp_async_inc", "two lanes", "over-arrival"),
    Cell("bulk_load", "one", "proved"),
    Cell("bulk_load", "two lanes", "race"),
    Cell("bulk_load", "none", "deadlock"),
    Cell("bulk_store", "one", "proved"),
    Cell("bulk_store", "two lanes", "async-at-exit"),  # another lane does not wait for it (B30)
    Cell("bulk_store", "twice", "race"),
    Cell("bulk_prefetch", "one", "out-of-bounds"),  # 16 bytes at byte 4: a hint has operands (B13)
    Cell("bulk_prefetch", "late", "out-of-bounds"),
    Cell("bulk_prefetch", "none", "proved"),
    Cell("bulk_prefetch_aligned", "a warp", "proved"),
    Cell("tma_load", "one", "proved"),
    Cell("tma_load", "two lanes", "over-arrival"),
    Cell("bar_sync", "a warp", "proved"),
    Cell("bar_sync", "survivors", "proved"),
    Cell("bar_sync", "one", "participation"),
    Cell("bar_sync_of_64", "a warp", "deadlock"),
    Cell("barrier_sync", "a warp", "proved"),
    Cell("barrier_sync", "survivors", "proved"),
    Cell("barrier_sync", "one", "deadlock"),  # the others wait elsewhere (E2)
    Cell("barrier_arrive", "a warp", "proved"),
    Cell("barrier_arrive", "survivors", "proved"),
    Cell("barrier_arrive", "one", "deadlock"),  # an arrival waits for its warp's lanes, too (E2)
    Cell("barrier_arrive", "two lanes", "deadlock"),
    Cell("barrier_arrive", "survivor", "deadlock"),
    Cell("barrier_arrive", "two late", "deadlock"),
    Cell("barrier_arrive", "two in CTA 6", "deadlock"),
    Cell("barrier_of_no_threads", "a warp", "named-barrier"),
    Cell("barrier_16", "a warp", "named-barrier"),
    Cell("barrier_red", "a warp", "proved"),
    Cell("barrier_red", "one", "deadlock"),
    Cell("cluster_arrive", "a warp", "proved"),
    Cell("cluster_arrive", "survivors", "proved"),
    Cell("cluster_arrive", "one", "deadlock"),  # as of named barriers (D3)
    Cell("cluster_arrive", "two warps", "deadlock"),
    Cell("cluster_sync", "a warp", "proved"),
    Cell("cluster_sync", "one", "deadlock"),
    Cell("cluster_wait", "a warp", "participation"),
    Cell("sync_warp", "a warp", "proved"),
    Cell("sync_warp", "survivors", "proved"),
    Cell("sync_warp", "one", "participation"),
    Cell("sync_warp", "late", "participation"),
    Cell("sync_lane_0", "one", "proved"),
    Cell("sync_lane_0", "two lanes", "participation"),
    Cell("elect", "a warp", "proved"),
    Cell("elect", "two lanes", "participation"),
    Cell("vote", "survivors", "proved"),
    Cell("vote", "two lanes", "participation"),
    Cell("setmaxnreg", "none", "proved"),
    Cell("setmaxnreg", "one", "participation"),
    Cell("setmaxnreg", "a warp", "participation"),
    Cell("end", "one", "proved"),  # the warp joins without it
    Cell("end", "a warp", "deadlock"),
    Cell("remote_arrive", "one", "proved"),
    Cell("remote_arrive", "two lanes", "over-arrival"),
    Cell("arrive_that_no_peer_waits_for", "one", "peer-exit"),
    Cell("arrive_at_a_cta_that_is_not", "one", "out-of-bounds"),
    Cell("arrive_at_a_cta_that_is_not", "none", "proved"),
    Cell("st_async", "one", "proved"),
    Cell("st_async", "two lanes", "tx-mismatch"),
    Cell("alloc", "a warp", "proved"),
    Cell("alloc", "two lanes", "participation"),
    Cell("alloc", "survivors", "participation"),  # no lane of it has exited (G4)
    Cell("alloc", "none", "tmem-lifetime"),
    Cell("dealloc", "a warp", "proved"),
    Cell("dealloc", "survivors", "participation"),
    Cell("dealloc", "none", "tmem-lifetime"),
    Cell("relinquish", "a warp", "proved"),
    Cell("relinquish", "survivors", "participation"),
    Cell("commit", "one", "proved"),
    Cell("commit", "none", "deadlock"),
    Cell("try_cancel", "one", "proved"),
    Cell("try_cancel", "two lanes", "over-arrival"),
    Cell("wgmma_commit", "none", "proved"),
    Cell("wgmma_commit", "a warp", "participation"),
    Cell("cp_fenceproxy", "a warp", "proved"),
    Cell("cp_fenceproxy", "one", "participation"),
    Cell("stmatrix", "a warp", "proved"),
    Cell("stmatrix", "survivors", "participation"),
]


@pytest.mark.parametrize("strict", get_args(Strict))
@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: f"{cell.instruction}, {cell.execution}")
def test_an_unusual_execution_gets_the_verdict_of_the_text(cell: Cell, strict: Strict) -> None:
    made = program(cell.instruction, cell.execution)
    expected = cell.ptx if strict == "ptx" and cell.ptx else cell.practice
    report = check(made, strict=strict)
    answer = certified(made, strict, ("in-bounds", "zero-state"), None)[1]
    if expected == "proved":
        assert report.verdict == "proved"
        assert answer.verdict != "refuted"
    else:
        assert expected in report.rules
        assert answer.verdict != "certified"


@kernel
def arrives_by_parts(k: Builder, *, own: bool = False, cluster: bool = False) -> None:
    """The first eight lanes of a warp arrive at another place than the others, or at a barrier of
    their ``own``."""
    k.launch(warps=1, grid=2, cluster=2)
    with k.if_(k.lane_id < 8, sync=False):
        _arrive(k, 2 if own else 1, cluster=cluster)
    with k.else_():
        _arrive(k, 1, cluster=cluster and not own)
    if cluster and not own:
        k.cluster.wait(aligned=False)


def _arrive(k: Builder, number: int, *, cluster: bool) -> None:
    if cluster:
        k.cluster.arrive(aligned=False)
    else:
        k.bar.arrive(number, 32, aligned=False)


@pytest.mark.parametrize("strict", get_args(Strict))
@pytest.mark.parametrize("cluster", [False, True])
def test_an_arrival_waits_for_the_lanes_of_its_warp(strict: Strict, *, cluster: bool) -> None:
    """It waits until they have come to the barrier, at whichever place (E2, D3)."""
    assert check(arrives_by_parts.build(cluster=cluster), strict=strict).verdict == "proved"
    apart = check(arrives_by_parts.build(own=True, cluster=cluster), strict=strict)
    assert "deadlock" in apart.rules
