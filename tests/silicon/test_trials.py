"""Outcomes that an H200 has shown are among those that the machine allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.silicon.page import seen
from tests.silicon.programs import all_trials
from tests.silicon.trial import Trial, allowed

TRIALS = {trial.id: trial for trial in all_trials()}
#: their schedules take long, and say the same as those of others
LONG = {
    "tx-bulk", "start-order", "wait-for-later", "wait-for-first", "wait-for-later-fits",
    "pool-order",
}  # fmt: skip
#: which lane's number stays in a word where it steers nothing: a run leaves one of them
OPEN = {"store-same-word"}
#: a phase that ends between the lanes of one instruction: (rule, seen)
SUMMED = {
    "arrive-lanes": "over-arrival", "arrive-tokens": "over-arrival",
    "arrive-counts": "over-arrival", "arrive-remote": "over-arrival",
    "arrive-copies": "over-arrival", "arrive-halves": "over-arrival",
    "tx-complete": "tx-mismatch", "tx-st-async": "tx-mismatch",
}  # fmt: skip


def _few(id: str) -> Trial:
    """The trial, with few schedules of the machine."""
    return replace(TRIALS[id], most=min(TRIALS[id].most, 10))


@pytest.mark.parametrize("id", sorted(set(TRIALS) - LONG - OPEN))
def test_what_was_seen_is_allowed(id: str) -> None:
    machine = allowed(_few(id))
    for outcome in seen()["trials"][id]["outcomes"]:
        assert outcome in machine, (outcome, machine)
    if id in SUMMED:
        assert machine.undefined == SUMMED[id]


def test_all_trials_were_run() -> None:
    found = seen()["trials"]
    assert found.keys() == TRIALS.keys()
    assert all(facts["outcomes"] and "remark" not in facts for facts in found.values())


def test_the_right_twins_of_phases_that_end_between_lanes_are_allowed() -> None:
    """As many lanes as the phase expects, and two branches of them."""
    for id in ("tx-complete-exact", "arrive-branches"):
        machine = allowed(_few(id))
        assert not machine.undefined
        assert machine.outcomes == {"phase 0 ends, phase 1 ends"}
