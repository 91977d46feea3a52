"""Real bugs between the CTAs of a cluster: what is found, between whom and where; their fixes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tilesim.checker import Report, check
from tilesim.dsl.kernel import Kernel
from tilesim.errors import Diagnostic
from tilesim.findings.finding import Finding
from tilesim.ir.program import Strict
from tilesim.kernels.bugs import (
    cluster_arrivals,
    cluster_bytes,
    cluster_lifetime,
    cluster_lowering,
    cluster_phases,
)
from tilesim.kernels.bugs.cluster_arrivals import cta_scope, local_arrive, uneven_pair
from tilesim.kernels.bugs.cluster_bytes import leader_barrier, passive_receiver, then_arm
from tilesim.kernels.bugs.cluster_lifetime import (
    early_return,
    last_arrive,
    mask_outside,
    unfenced_init,
)
from tilesim.kernels.bugs.cluster_lowering import aliased_barriers, flattened_region
from tilesim.kernels.bugs.cluster_phases import loop_parity, rendezvous, synthetic_barrier
from tilesim.kernels.outcome import run
from tilesim.kernels.registry import Case
from tilesim.sim.machine.simulate import simulate

from .evidence import assert_as_expected, assert_computes, assert_replays
from .mutate import line

MODULES = (cluster_arrivals, cluster_bytes, cluster_lifetime, cluster_lowering, cluster_phases)
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)
ENTRIES = {
    "B014", "B016", "B017", "B027", "B029", "B081", "B082", "B085", "B086", "B088", "B089", "B090",
    "B100", "B101", "B115", "B116",
}  # fmt: skip


def names(cases: list[Case]) -> list[str]:
    return [f"{c.target.removeprefix('tilesim.kernels.bugs.')}-{c.strict}" for c in cases]


CLEAN = [case for case in CASES if not case.fails]
FAILING = [case for case in CASES if case.expected == "failed"]


@dataclass(frozen=True)
class Bug:
    """What must be found: a rule and its participants as (role, CTA, text of the line)."""

    kernel: Kernel
    rule: str
    sites: frozenset[tuple[str, int, str]]
    params: Mapping[str, Any] = field(default_factory=dict)
    strict: Strict = "practice"


def bug(
    kernel: Kernel,
    rule: str,
    *sites: tuple[str, int, str],
    strict: Strict = "practice",
    **params: Any,
) -> Bug:
    return Bug(kernel, rule, frozenset(sites), params, strict)


LEADER_WAITS = "k.mbarrier.wait(ready["
BUGS = (
    # B014: tile 1, whose wait for parity 1 passes at once
    bug(
        loop_parity, "race",
        ("copy", 1, "k.tile.load(part, tile[s])"), ("copy", 0, "k.tma.load(x_map, tile[s]"),
    ),
    # B016: two phases of `ready` have passed before the leader looks
    bug(
        rendezvous, "deadlock",
        ("leader", 0, LEADER_WAITS), ("follower", 1, "k.mbarrier.wait(empty["),
    ),
    # B017: each waits for the other's arrival in another round
    bug(
        synthetic_barrier, "deadlock",
        ("member", 0, "# BUG: one mbarrier per CTA"), ("member", 1, "# BUG: one mbarrier per CTA"),
    ),
    bug(
        synthetic_barrier, "deadlock",
        *(("member", cta, "# BUG: one mbarrier per CTA") for cta in range(3)), ctas=3,
    ),
    # B027: the half that lands last
    bug(
        leader_barrier, "race",
        ("mma", 0, "k.tile.load(part, halves"), ("load", 1, "k.bulk.copy(halves"),
    ),
    # B081, B082
    bug(last_arrive, "peer-exit", ("consumer", 1, "# BUG: nothing follows it")),
    bug(early_return, "peer-exit", ("sum", 0, "# BUG: the peer may be gone")),
    # B085
    *(
        bug(
            unfenced_init, "init-visibility",
            ("sender", 1, "k.mbarrier.arrive(sent"), ("warp 0", 0, "# BUG: not yet visible"),
            missing=missing,
        )
        for missing in ("fence", "barrier")
    ),
    # B088
    bug(mask_outside, "out-of-bounds", ("copy", 0, "# BUG: names rank `ctas`")),
    # B090
    bug(
        cta_scope, "race",
        ("mma", 0, "k.tile.load(part, tile.view().at(1))"), ("gather", 1, "k.cp_async.copy("),
        strict="ptx",
    ),
    # B100
    bug(
        aliased_barriers, "over-arrival",
        ("producer", 0, "# BUG: the same barrier"),
        ("producer", 0, "k.mbarrier.arrive_expect_tx(x_loaded"),
    ),
    # B115
    bug(flattened_region, "out-of-bounds", ("sender", 0, "# BUG: not contiguous")),
)  # fmt: skip


def found(report: Report, rule: str) -> Finding:
    """The first finding of ``rule``; the check must have failed."""
    assert report.verdict == "failed", report
    return next(f for f in report.findings if f.rule == rule)


def blocked(finding: Finding) -> set[tuple[str, int, int]]:
    """Role, CTA and line of every participant."""
    return {(p.role, p.cta, p.loc.line) for p in finding.participants}


# ------------------------------------------------------------------ all cases


def test_every_entry_has_a_failing_case_and_a_clean_twin() -> None:
    assert {case.source for case in CASES if case.fails} == ENTRIES
    assert {case.source for case in CASES if not case.fails} == ENTRIES


@pytest.mark.parametrize("case", CASES, ids=names(list(CASES)))
def test_case_is_as_expected(case: Case) -> None:
    assert_as_expected(case)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
def test_every_kernel_marks_its_defective_line_once(module: Any) -> None:
    source = Path(module.__file__).read_text()
    assert source.count("# BUG: ") == len({case.kernel.name for case in module.CASES})


@pytest.mark.parametrize("case", CLEAN, ids=names(CLEAN))
def test_correct_kernel_equals_numpy_on_every_schedule(case: Case) -> None:
    assert_computes(case)


@pytest.mark.parametrize("case", FAILING, ids=names(FAILING))
def test_witness_replays_to_the_same_findings(case: Case) -> None:
    assert_replays(case)


@pytest.mark.parametrize(
    "bug", BUGS, ids=[f"{b.kernel.name}-{'-'.join(map(str, b.params.values()))}" for b in BUGS]
)
def test_finding_names_both_sides_and_their_lines(bug: Bug) -> None:
    report = check(bug.kernel.build(**bug.params), strict=bug.strict)
    expected = {(role, cta, line(bug.kernel, text)) for role, cta, text in bug.sites}
    assert blocked(found(report, bug.rule)) == expected, found(report, bug.rule)


# ------------------------------------------------------------------ deadlocks and their notes


def test_b016_follower_that_is_two_items_ahead_is_the_cause() -> None:
    ambiguity = found(check(rendezvous.build()), "phase-ambiguity")
    assert set(ambiguity.roles) == {"follower", "leader"}
    assert "ready[0]" in ambiguity.message


@pytest.mark.parametrize("stages", [1, 2])
def test_b016_does_not_show_with_fewer_stages(stages: int) -> None:
    assert check(rendezvous.build(stages=stages)).findings == ()


def test_b016_and_b017_depend_on_the_schedule() -> None:
    for kernel in (rendezvous, synthetic_barrier):
        rules = set()
        for seed in range(30):
            run = simulate(kernel.build(), numbers=False, policy="random", seed=seed)
            rules.add(frozenset(f.rule for f in run.findings))
        assert len(rules) > 1, kernel.name


def test_b029_rank_without_the_then_arm_waits_for_bytes_that_nobody_copies() -> None:
    deadlock = found(check(then_arm.build()), "deadlock")
    stuck = line(then_arm, "k.mbarrier.wait(full, 0)")
    assert {(role, cta) for role, cta, at in blocked(deadlock) if at == stuck} == {("consumer", 1)}
    assert any("1024" in note for note in deadlock.notes), deadlock.notes


def test_b086_receiver_waits_and_the_senders_own_barrier_has_the_arrival() -> None:
    deadlock = found(check(local_arrive.build()), "deadlock")
    wait = line(local_arrive, "k.mbarrier.wait(sent, 0")
    assert ("receiver", 0, wait) in blocked(deadlock)
    assert deadlock.participants[0].loc.line == wait


@pytest.mark.parametrize("short", [2, 3])
def test_b089_longer_loop_waits_for_the_peer_that_has_finished(short: int) -> None:
    deadlock = found(check(uneven_pair.build(short=short)), "deadlock")
    acquire = line(uneven_pair, "# BUG: both CTAs'")
    full = line(uneven_pair, "k.mbarrier.wait(full[i % stages]")
    assert {site for site in blocked(deadlock) if site[2] in (acquire, full)} == {
        ("producer", 0, acquire),
        ("consumer", 0, full),
    }


def test_b116_passive_receiver_waits_for_a_multicast_that_is_none() -> None:
    deadlock = found(check(passive_receiver.build()), "deadlock")
    stuck = line(passive_receiver, "k.mbarrier.wait(loaded, 0)")
    assert ("copy", 1, stuck) in blocked(deadlock)
    assert ("copy", 0, stuck) not in blocked(deadlock)


# ------------------------------------------------------------------ other readings


def test_b085_relaxed_cluster_barrier_alone_does_not_publish_the_initialisation() -> None:
    assert check(unfenced_init.build(missing="fence")).rules == {"init-visibility"}


def test_b085_without_the_cluster_barrier_the_peer_may_not_have_started() -> None:
    report = check(unfenced_init.build(missing="barrier"))
    assert found(report, "peer-start").roles == ("sender",)


def test_b090_default_scope_is_accepted_in_practice_and_not_by_the_text() -> None:
    program = cta_scope.build()
    assert check(program).verdict == "proved"
    assert check(program, strict="ptx").rules == {"race"}


def test_b100_bytes_of_the_second_load_count_for_the_first_ones_phase() -> None:
    over = found(check(aliased_barriers.build()), "over-arrival")
    assert "0 of 1 pending" in over.message


def test_b101_says_which_id_and_which_range() -> None:
    (case,) = (c for c in CASES if c.source == "B101" and c.fails)
    outcome = run(case)
    (problem,) = outcome.problems
    assert isinstance(problem, Diagnostic)
    assert (problem.rule, "id 16 is outside 0..15" in problem.message) == ("named-barrier", True)
    assert problem.loc.line == line(case.kernel, "# BUG: id 16")
