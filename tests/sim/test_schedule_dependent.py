"""Bugs that only some schedules show: found by `check`, with a witness that replays.

Each is run on schedules, too, to show that it depends on them: some show nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tilesim import Kernel, Program, simulate
from tilesim.checker import check
from tilesim.checker.witness import load, replay
from tilesim.kernels.bugs.cluster_phases import rendezvous, synthetic_barrier
from tilesim.kernels.bugs.named_barriers import reused_id
from tilesim.kernels.bugs.parity import pinned_slot
from tilesim.kernels.bugs.shared_barriers import too_few_stages, two_producers
from tilesim.kernels.nvfuser.printed import multiply_reference, only, printed
from tilesim.sim.machine.simulate import Policy

SEEDS = range(12)


@dataclass(frozen=True)
class Bug:
    """A buggy kernel, what it must be found to break, and its fixed twin."""

    kernel: Kernel
    rules: frozenset[str]
    buggy: Mapping[str, Any]
    fixed: Mapping[str, Any]

    @property
    def program(self) -> Program:
        return self.kernel.build(**self.buggy)


FIXED = {"fixed": True}
BUGS = {
    "B001": Bug(printed, frozenset({"deadlock"}), only("open_twice"), only()),
    "B016": Bug(rendezvous, frozenset({"deadlock"}), {}, FIXED),
    "B017": Bug(synthetic_barrier, frozenset({"deadlock"}), {}, FIXED),
    "B020": Bug(pinned_slot, frozenset({"race", "deadlock"}), {}, FIXED),
    "B022": Bug(too_few_stages, frozenset({"race", "over-arrival", "deadlock"}), {}, FIXED),
    "B024": Bug(
        two_producers, frozenset({"race", "over-arrival", "deadlock"}), {}, {"barriers": "per warp"}
    ),
    "B092": Bug(reused_id, frozenset({"named-barrier"}), {}, FIXED),
}


def symptoms(program: Program) -> set[frozenset[str]]:
    """The rules that single schedules break: the timed one, random ones, PCT ones."""
    policies: list[tuple[Policy, int]] = [("timed", 0)]
    policies += [(policy, seed) for seed in SEEDS for policy in ("random", "pct")]
    runs = [simulate(program, numbers=False, policy=p, seed=s) for p, s in policies]
    return {frozenset(f.rule for f in run.findings) for run in runs}


@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_found_with_a_witness_that_replays(name: str) -> None:
    bug = BUGS[name]
    report = check(bug.program)
    assert report.verdict == "failed"
    assert report.findings[0].rule in bug.rules
    again = replay(bug.program, load(json.dumps(report.witness)))
    assert again.findings
    assert again.findings == report.findings[: len(again.findings)]


@pytest.mark.parametrize("name", BUGS)
def test_the_fixed_twin_is_proved(name: str) -> None:
    bug = BUGS[name]
    report = check(bug.kernel.build(**bug.fixed))
    assert (report.verdict, report.findings) == ("proved", ())


@pytest.mark.parametrize("name", BUGS)
def test_what_shows_depends_on_the_schedule(name: str) -> None:
    assert len(symptoms(BUGS[name].program)) > 1


@pytest.mark.parametrize("name", ["B016", "B017", "B022", "B092"])
def test_some_schedule_shows_nothing(name: str) -> None:
    assert frozenset() in symptoms(BUGS[name].program)


@pytest.mark.parametrize("stages", [1, 2])
def test_b016_is_clean_with_few_stages(stages: int) -> None:
    report = check(rendezvous.build(stages=stages))
    assert report.verdict in ("proved", "exhausted")
    assert not report.findings


def test_b016_deadlocks_with_three_stages() -> None:
    program = rendezvous.build(stages=3)
    assert simulate(program, numbers=False).findings == ()
    report = check(program)
    assert report.verdict == "failed"
    assert report.findings[0].rule == "deadlock"
    assert set(report.findings[0].roles) == {"leader", "follower"}
    assert report.witness is not None
    assert report.witness["policy"] == "replay"


# ------------------------------------------------------------------ NVIDIA/Fuser #5076


def test_the_nvfuser_kernel_runs_when_it_is_slowed_down_and_hangs_otherwise() -> None:
    """The fault that its author's debug output hides: every stage is opened twice.

    Where the copying warps look between the two rounds of arrivals, they find the first phase over
    and the second not. At full speed they find two phases over, which has the parity of none.
    """
    program = printed.build(rows=2, **only("open_twice"))
    rng = np.random.default_rng(0)
    inputs = {name: rng.random((2, 512)).astype(np.float32) for name in ("T0", "T1")}

    slow = simulate(program, inputs, policy="random", seed=0)
    assert slow.findings == ()
    np.testing.assert_array_equal(slow.outputs["T4"], multiply_reference(inputs)["T4"])

    fast = simulate(program, inputs, policy="timed")
    (deadlock,) = fast.findings
    assert deadlock.rule == "deadlock"
    assert {p.role for p in deadlock.participants} == {"compute", "async"}
    assert not fast.outputs["T4"][1].any()  # the second stage was opened too early

    report = check(program)
    assert report.verdict == "failed"
    assert replay(program, report.witness or {}).findings == report.findings
    assert check(printed.build(rows=2, **only())).verdict == "proved"
