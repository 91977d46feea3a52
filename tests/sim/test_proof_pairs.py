"""Wrong programs that the proof kernel refuses: a check that once proved them, or ended with an
error, does neither, and proves the right twin."""

from __future__ import annotations

import pytest

from tests.kernel.pairs import PAIRS
from tilesim.checker import check

#: by the name of the pair: what a check says of the wrong program, by which rule
WRONG = {
    "a_commit_that_arrives_in_a_phase_before_which_nothing_has_waited": (
        "failed",
        "phase-ambiguity",
    ),
    "a_load_of_a_warp_of_which_one_lane_has_fenced": ("failed", "tcgen05-order"),
    "two_asynchronous_stores_or_reductions_of_one_word": ("failed", "race"),
    "a_register_that_half_of_the_lanes_have_set": ("failed", "uninitialised-read"),
    "rows_of_which_the_first_one_is_aligned": ("bounded", ""),
    "a_product_that_is_handed_over_by_a_lane_that_has_not_issued_it": ("failed", "tcgen05-order"),
    "a_product_behind_a_fence_of_another_lane": ("failed", "tcgen05-order"),
    "one_of_two_results_of_all_registers": ("failed", "tmem-lifetime"),
    # the kernel refuses it by condition A; no schedule is wrong
    "a_fence_of_a_warpgroup_for_a_barrier_of_its_warps": ("exhausted", ""),
}
NAMED = {pair.program.__name__: pair for pair in PAIRS}


@pytest.mark.parametrize("name", WRONG)
def test_the_wrong_program_is_not_proved(name: str) -> None:
    pair, (verdict, rule) = NAMED[name], WRONG[name]
    report = check(pair.mir(right=False), strict=pair.strict)
    assert report.verdict == verdict
    assert report.rules == ({rule} if rule else set())


@pytest.mark.parametrize("name", WRONG)
def test_its_right_twin_is_proved(name: str) -> None:
    pair = NAMED[name]
    assert check(pair.mir(right=True), strict=pair.strict).verdict == "proved"
