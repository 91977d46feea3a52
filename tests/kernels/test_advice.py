"""What a report says is to be done is about its cause, and is not done already."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tilesim as ts
from tilesim.ir.program import Program
from tilesim.kernels.bugs.arrival_count import contiguous_load, short_pipeline
from tilesim.kernels.bugs.cluster_arrivals import local_arrive, uneven_pair
from tilesim.kernels.bugs.cluster_phases import rendezvous, synthetic_barrier
from tilesim.kernels.bugs.cta_pairs import pair
from tilesim.kernels.bugs.launch_control import tile_ids
from tilesim.kernels.bugs.reuse_guards import staging_guard
from tilesim.kernels.bugs.shared_barriers import two_producers
from tilesim.kernels.bugs.wgmma_release import refill_by_cp_async


def test_who_has_waited_for_a_product_is_not_told_to_wait_for_it() -> None:
    finding = ts.check(refill_by_cp_async.build()).findings[0]
    assert finding.diagnosis == "gap"
    assert finding.fix.endswith("a barrier of threads that both join, or an mbarrier")
    assert finding.fix.startswith("once warpgroup0 (warp 3) has waited for its wgmma.mma_async")
    assert ts.check(refill_by_cp_async.build(fixed=True)).verdict == "proved"


def test_uneven_trips_are_not_blamed_on_bytes() -> None:
    finding = ts.check(uneven_pair.build()).findings[0]
    assert finding.diagnosis == "trips"
    assert finding.fix.startswith("let both make the same number of trips")
    assert ts.check(uneven_pair.build(fixed=True)).verdict == "proved"


def test_who_has_missed_a_phase_is_not_told_of_trips() -> None:
    """Both make four trips; the one that waits twice for the same parity is behind."""
    finding = ts.check(missed.build()).findings[0]
    assert finding.rule == "deadlock"
    assert "waits for phase 0 of full[0] too late: phase 1 is over" in finding.cause
    assert [p.action for p in finding.culprits] == [
        "arrives on full[0] again", "waits for phase 0 too late"
    ]  # fmt: skip
    assert "trips" not in finding.fix
    assert ts.check(missed.build(release=4)).verdict == "proved"


@ts.kernel(warps=5)
def missed(k: ts.Builder, *, release: int = 1) -> None:
    """One of four warps frees what all of them wait for."""
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, release)
    k.sync_threads()
    with k.role("producer", 4), k.elected(), k.loop(4) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mbarrier.arrive(full)
    with k.role("consumer", range(4)), k.loop(4) as i:
        k.mbarrier.wait(full, i & 1)
        with k.if_(k.warp_id < release), k.elected():
            k.mbarrier.arrive(empty)


def test_a_second_arriver_of_the_first_phase_is_not_counted() -> None:
    finding = ts.check(two_producers.build()).findings[0]
    assert (finding.rule, finding.diagnosis) == ("over-arrival", "count_of_arrivals")
    assert finding.cause == "full[0] is initialised with 1, and 2 arrivals are made on it per use"
    assert [p.action for p in finding.culprits] == [
        "initialises full[0] with 1", "makes 1 arrival on full[0] each time", "makes 1 arrival more"
    ]  # fmt: skip
    assert ts.check(two_producers.build(barriers="shared, count 2")).verdict == "proved"


def test_a_wait_that_nobody_answers_is_not_blamed_on_its_parity() -> None:
    """With another parity it would wait for ever."""
    finding = ts.check(staging_guard.build()).findings[0]
    assert (finding.rule, finding.diagnosis) == ("race", "stale_wait")
    assert finding.cause == "no instruction arrives on stored[0]: this wait always passes at once"
    assert finding.fix.startswith("arrive on stored[0] after the work that this wait must follow")
    only_parity = ts.check(staging_guard.build(guard="constant phase")).findings[0]
    assert only_parity.diagnosis == "stale_wait"


#: a wrong kernel, its right twin, the diagnosis, and what is to be done
ADVICE = (
    (lambda: pair.build(release="own"), pair.build, "arrival_in_own_cta",
     "let epilogue (CTA 1 warp 0) arrive on the empty of CTA 0, and count it there"),
    (lambda: tile_ids.build(mistake="uncounted"), tile_ids.build, "never_handed_on",
     "let store (CTA 0 warp 4) arrive on CTA 0 finished[0] as well, and count it"),
    (short_pipeline.build, lambda: short_pipeline.build(fixed=True), "never_waited_for",
     "wait on full[1] before the next copy: let both loops make the same number of trips"),
    (contiguous_load.build, lambda: contiguous_load.build(fixed=True), "never_arrived",
     "arrive on full[0] as well: arrive.expect_tx"),
    (local_arrive.build, lambda: local_arrive.build(fixed=True), "never_arrived",
     "let an arrival name CTA 0 sent[0]"),
    (rendezvous.build, lambda: rendezvous.build(fixed=True), "used_up",
     "let CTA 1 warp 0 wait for CTA 0 warp 0 before it arrives again"),
    (synthetic_barrier.build, lambda: synthetic_barrier.build(fixed=True), "used_up",
     "let member (CTA 0 warp 0) wait for member (CTA 1 warp 0) before it arrives again"),
)  # fmt: skip


@pytest.mark.parametrize(("wrong", "right", "diagnosis", "fix"), ADVICE)
def test_the_fix_is_that_of_the_cause(
    wrong: Callable[[], Program], right: Callable[[], Program], diagnosis: str, fix: str
) -> None:
    finding = ts.check(wrong()).findings[0]
    assert (finding.diagnosis, finding.fix) == (diagnosis, fix)
    assert ts.check(right()).verdict == "proved"
