"""The cluster gallery: proved, equal to NumPy, and not proved any more once something is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilesim.checker import check
from tilesim.errors import UsageError
from tilesim.ir.expr import Const
from tilesim.ir.ops.tma import TmaLoad
from tilesim.kernels.cluster import matmul, multicast, push, ring, split_k
from tilesim.kernels.registry import Case, cases

from .evidence import assert_computes, assert_proved, finding, participating
from .mutate import changed, edited, line, without

CASES = cases("cluster")
IDS = [case.target.removeprefix("tilesim.kernels.cluster.") for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_kernel_is_proved(case: Case, strict: Any) -> None:
    assert_proved(case, strict)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize(("policy", "seed"), [("timed", 0), ("random", 1), ("pct", 2)])
def test_kernel_equals_numpy(case: Case, policy: Any, seed: int) -> None:
    assert_computes(case, [(policy, seed)])


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_kernel_without_the_trailing_cluster_barrier(case: Case) -> None:
    """A CTA may exit before a peer's last arrival, or before its own memory was read by a copy.

    Receivers that wait for all that is sent to them, from global memory or by ordinary stores, need
    no trailing barrier.
    """
    program = without(without(case.build(), "barrier.cluster.arrive", 1), "barrier.cluster.wait", 1)
    report = check(program)
    if case.kernel is multicast.multicast or case.params.get("path") == "elements":
        assert report.verdict == "proved"
    elif case.kernel is matmul.matmul:
        assert report.rules == {"peer-exit"}
    else:
        assert report.verdict == "failed"
        assert report.rules <= {"peer-exit", "async-at-exit"}


@pytest.mark.parametrize("case", CASES, ids=IDS)
def test_kernel_without_the_first_cluster_barrier_touches_ctas_that_have_not_started(
    case: Case,
) -> None:
    program = without(without(case.build(), "barrier.cluster.arrive", 0), "barrier.cluster.wait", 0)
    assert {"peer-start", "init-visibility"} & check(program).rules


# ------------------------------------------------------------------ multicast


def test_passive_receiver_that_expects_nothing_reads_too_early() -> None:
    program = changed(multicast.multicast.build(), "mbarrier.arrive.expect_tx", bytes=Const(0))
    report = check(program)
    assert report.verdict == "failed"
    assert {"race", "deadlock", "phase-ambiguity", "tx-mismatch"} & report.rules


def test_multicast_that_leaves_out_a_cta_of_its_row_deadlocks_there() -> None:
    """Mask 0b0001: rank 1 neither receives nor loads for itself."""

    def narrow(load: TmaLoad) -> TmaLoad:
        return load if load.multicast is None else replace(load, multicast=Const(0b0001))

    program = edited(multicast.multicast.build(), "cp.async.bulk.tensor.load", narrow)
    deadlock = finding(program, "deadlock")
    stuck = line(multicast.multicast, "k.mbarrier.wait(loaded")
    assert {p.cta for p in deadlock.participants if p.loc.line == stuck} == {1}


# ------------------------------------------------------------------ copies between CTAs


def test_push_that_expects_half_of_the_bytes_is_found() -> None:
    program = changed(push.push.build(), "mbarrier.arrive.expect_tx", 1, bytes=Const(2048))
    report = check(program)
    assert report.verdict == "failed"
    assert {"race", "deadlock", "tx-mismatch", "phase-ambiguity"} & report.rules


def test_push_of_elements_without_the_arrival_deadlocks() -> None:
    program = without(push.push.build(path="elements"), "mbarrier.arrive")
    deadlock = finding(program, "deadlock")
    assert "receiver" in deadlock.roles
    assert line(push.push, "k.mbarrier.wait(arrived") in {x.line for x in deadlock.locations}


def test_push_of_elements_with_a_relaxed_arrival_races() -> None:
    program = changed(push.push.build(path="elements"), "mbarrier.arrive", sem="relaxed")
    assert set(finding(program, "race").roles) == {"sender", "receiver"}


def test_split_k_without_the_proxy_fence_pushes_stale_bytes() -> None:
    found = finding(without(split_k.split_k.build(), "fence.proxy.async"), "proxy-fence")
    assert participating(found) == [
        line(split_k.split_k, "k.tile.copy_cluster("),
        line(split_k.split_k, "k.tile.store(partial"),
    ]


def test_split_k_that_expects_one_push_adds_slots_that_have_not_arrived() -> None:
    program = changed(
        split_k.split_k.build(), "mbarrier.arrive.expect_tx", 1, bytes=Const(64 * 64 * 4)
    )
    report = check(program)
    assert report.verdict == "failed"
    assert {"race", "deadlock", "tx-mismatch", "phase-ambiguity"} & report.rules


def test_ring_that_does_not_wait_for_its_left_neighbour_races_with_its_copy() -> None:
    program = without(ring.ring.build(), "mbarrier.wait", 2)
    race = finding(program, "race")
    assert line(ring.ring, "k.tile.copy_cluster(") in {x.line for x in race.locations}


# ------------------------------------------------------------------ matmul


def test_matmul_whose_consumers_release_only_their_own_stage_deadlocks() -> None:
    program = matmul.matmul.build()

    def own(arrive: Any) -> Any:
        return replace(arrive, mbar=replace(arrive.mbar, cta=None))

    found = check(edited(program, "mbarrier.arrive", own))
    assert found.verdict == "failed"
    assert {"deadlock", "race", "over-arrival"} & found.rules


def test_matmul_with_empty_barriers_of_one_cta_overwrites_stages_of_the_others() -> None:
    """Count 4 instead of 12: the consumers of any CTA may open the stage for all."""
    program = changed(matmul.matmul.build(), "mbarrier.init", 3, count=Const(4))
    report = check(program)
    assert report.verdict == "failed"
    assert {"race", "over-arrival", "phase-ambiguity"} & report.rules


def test_matmul_that_multicasts_beyond_its_cluster_is_found() -> None:
    program = changed(
        matmul.matmul.build(), "cp.async.bulk.tensor.load", 1, multicast=Const(0b10001)
    )
    found = finding(program, "out-of-bounds")
    assert found.roles == ("producer",)
    assert participating(found)[0] == line(matmul.matmul, "k.tma.load(b_map")


@pytest.mark.parametrize("bad", [{"columns": 3}, {"rows": 0}, {"stages": 0}])
def test_cluster_that_does_not_divide_the_block_is_refused(bad: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="must divide 64"):
        matmul.matmul.build(**bad)


def test_cost_grows_linearly_with_ctas() -> None:
    """Instructions per CTA stay the same when the grid has four times as many clusters."""
    few = check(matmul.matmul.build(clusters=1, iterations=4)).stats
    many = check(matmul.matmul.build(clusters=4, iterations=4)).stats
    assert (few.ctas, many.ctas) == (4, 16)
    assert many.instructions == 4 * few.instructions


def test_every_kernel_opens_its_cluster_with_the_fence_for_barriers() -> None:
    for case in CASES:
        program = case.build()
        assert check(without(program, "fence.mbarrier_init")).rules & {"init-visibility"}
