"""Arrivals of consecutive uses that change places: DeepGEMM's release onto both CTAs of a cluster
of which rank 0 alone multicasts, and what makes it wrong."""

from __future__ import annotations

import random

import pytest

from tests.kernels.evidence import at, sites
from tests.sim import comparison
from tests.sim.exchanges import changed
from tests.sim.reference import TooLarge
from tilesim import Builder, kernel, s32
from tilesim.checker import check
from tilesim.sim.machine.mbarrier import Mbarrier
from tilesim.sim.observers import certificate


@kernel(warps=3)
def release_onto_both(
    k: Builder, *, order: str = "rank", end: bool = True, uses: int = 4, stages: int = 1,
    sem: str = "release",
) -> None:  # fmt: skip
    """Each CTA loads a tile of its own, rank 0 one for both; readers release onto both CTAs."""
    k.launch(grid=2, cluster=2)
    full, empty = k.mbarriers("full", stages), k.mbarriers("empty", stages)
    a, b = k.shared("a", s32, (stages, 32)), k.shared("b", s32, (stages, 32))
    A, B = k.tensor("A", s32, (2, 32)), k.tensor("B", s32, (32,))
    r = k.var("r")
    with k.role("opener", 0), k.elected():
        for n in range(stages):
            k.mbarrier.init(full[n], 1)
            k.mbarrier.init(empty[n], 4)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.role("producer", 0), k.elected(), k.loop(uses) as i:
        s, p = i % stages, (i // stages) & 1
        k.mbarrier.wait(empty[s], p ^ 1)
        k.mbarrier.arrive_expect_tx(full[s], 256)
        k.bulk.load(a[s], A[k.cluster_rank], full[s])
        with k.if_(k.cluster_rank.eq(0)):
            k.bulk.load(b[s], B, full[s], multicast=3)
    with k.role("math", [1, 2]), k.loop(uses) as i:
        s, p = i % stages, (i // stages) & 1
        k.mbarrier.wait(full[s], p)
        if order == "gathered lanes that read":
            k.mem.load(r, a[s, k.lane_id])  # before the vote
        if not order.endswith("read") and not order.startswith("gathered"):
            k.mem.load(r, b[s, k.lane_id])
            k.mem.load(r, a[s, k.lane_id])
            k.sync_warp()
        if order.startswith("gathered"):
            k.warp.vote(r, k.lane_id > 3, "any")
            with k.if_(k.lane_id < 2, sync=False):
                k.mbarrier.arrive(empty[s].at(k.lane_id), scope="cluster")
        elif order.startswith("lanes"):
            with k.if_(k.lane_id < 2):
                if order == "lanes of which one read":
                    with k.if_(k.lane_id.eq(k.cluster_rank)):
                        k.mem.load(r, a[s, 0])
                elif order == "lanes that both read":
                    k.mem.load(r, a[s, 0])
                k.mbarrier.arrive(empty[s].at(k.lane_id), scope="cluster")
        else:
            with k.elected():
                first = k.cluster_rank if order == "own first" else 0
                k.mbarrier.arrive(
                    empty[s].at(first), scope="cluster",
                    sem="release" if sem == "release" else "relaxed",
                )  # fmt: skip
            if order == "late":
                with k.if_(k.cluster_rank.eq(1)):
                    k.mem.load(r, a[s, k.lane_id])  # late
                k.sync_warp()
            with k.elected():
                k.mbarrier.arrive(empty[s].at(1 - first), scope="cluster")
    if end:
        k.cluster.sync()


@pytest.mark.parametrize("stages", [1, 2])
@pytest.mark.parametrize("order", ["rank", "lanes", "own first", "gathered lanes"])
def test_release_onto_both_ctas_is_proved(order: str, stages: int) -> None:
    report = check(release_onto_both.build(order=order, stages=stages, uses=6))
    assert report.verdict == "proved", report.reasons
    assert report.findings == ()


def _overwrites(order: str, read: str) -> None:
    """The producer overwrites what math reads in the line with this mark."""
    report = check(release_onto_both.build(order=order))
    assert report.verdict == "failed"
    (race,) = report.findings[:1]
    assert race.rule == "race"
    assert sites(race) == {
        ("producer", at(release_onto_both, "k.bulk.load(a[s]")),
        ("math", at(release_onto_both, read)),
    }


def test_a_read_between_the_releases_is_found() -> None:
    """Rank 1's producer may go on by a release of the next use, while this one's is not made."""
    _overwrites("late", "# late")


@pytest.mark.parametrize("order", ["lanes of which one read", "lanes that both read"])
def test_lanes_that_read_and_release_onto_one_cta_each_are_not_proved(order: str) -> None:
    """Lane 1 of rank 1 reads, and what paces its release is the release of lane 0.

    A lane that lags behind the other may also miss a phase that it waits for.
    """
    report = check(release_onto_both.build(order=order))
    assert report.verdict in ("failed", "bounded")
    assert report.rules <= {"race", "deadlock", "phase-alias", "phase-ambiguity"}


def test_lanes_that_only_a_vote_gathers_hand_on_no_reads_of_others() -> None:
    """What they waited for comes before each one's release in time, which is enough; what they
    have read would have to be handed over."""
    _overwrites("gathered lanes that read", "# before the vote")


def test_releases_that_come_after_the_end_of_a_cta_are_found() -> None:
    report = check(release_onto_both.build(end=False))
    assert report.verdict == "failed"
    assert report.rules == {"peer-exit"}


def test_one_release_that_orders_nothing_is_not_proved() -> None:
    assert check(release_onto_both.build(sem="relaxed")).verdict in ("failed", "bounded")


# ------------------------------------------------------------------ against every interleaving

CASES = 40


def test_exchanges_agree_with_every_interleaving() -> None:
    proved = 0
    for seed in range(CASES):
        small = changed(random.Random(seed).randrange)
        said = comparison.opinion(small, full=False)
        if said.verdict != "proved":
            continue
        try:
            truth = comparison.explore(small, 20_000)
        except TooLarge:
            continue
        assert truth.clean, (seed, small, truth)
        proved += 1
    assert proved >= 1


def test_the_cta_has_to_outlive_the_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Condition on exits: shown on the clause itself, as the peers' log finds most of these."""
    report = check(release_onto_both.build())
    assert report.verdict == "proved"
    monkeypatch.setattr(certificate, "_outlives", lambda barrier: False)
    report = check(release_onto_both.build(), budget=0, schedules=0)
    assert report.verdict == "bounded"


def test_arrivals_that_tell_their_phase_do_not_change_places() -> None:
    """A token, a relaxed wait or a wait that goes by who has arrived shows more than a number."""
    program = release_onto_both.build()
    blind = property(lambda self: False, lambda self, value: None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mbarrier, "by_count", blind, raising=False)
        report = check(program, budget=0, schedules=0)
    assert report.verdict == "bounded"
    assert any("(condition A" in reason for reason in report.reasons)
