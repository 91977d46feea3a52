"""The Hopper gallery: proved, equal to NumPy, and not proved any more once something is broken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tilesim.checker import check
from tilesim.dsl.builder import Builder
from tilesim.errors import UsageError
from tilesim.ir.expr import Const, Operand, as_expr, constant
from tilesim.ir.ops.mbarrier import MbarrierArrive, MbarrierArriveExpectTx, MbarrierWait
from tilesim.ir.program import instructions
from tilesim.kernels.hopper import (
    copy,
    matmul_v0,
    matmul_v1,
    matmul_v2,
    matmul_v3,
    matmul_v4,
    matmul_v5,
    matmul_v6,
    softmax,
)
from tilesim.kernels.registry import Case, cases
from tilesim.lib.pipeline import Pipeline, Slot

from .evidence import assert_computes, assert_proved, finding, participating
from .mutate import changed, edited, line, without

CASES = tuple(case for case in cases("hopper") if "attention" not in case.target)
IDS = [case.target.removeprefix("tilesim.kernels.hopper.") for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_kernel_is_proved(case: Case, strict: Any) -> None:
    assert_proved(case, strict)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("policy", ["timed", "random"])
def test_kernel_equals_numpy(case: Case, policy: Any) -> None:
    assert_computes(case, [(policy, 1)], rtol=1e-5 if case.kernel is softmax.softmax else 0)


@pytest.mark.parametrize("n", [0, 100, -64])
def test_size_that_is_no_multiple_of_the_block_is_refused(n: int) -> None:
    with pytest.raises(UsageError, match=f"n={n} is not a positive multiple of the block size 64"):
        matmul_v3.matmul.build(n=n)


# ------------------------------------------------------------------ v0 to v2: one warpgroup


def test_v0_without_the_second_cta_barrier_relies_on_the_wait_for_the_whole_warpgroup() -> None:
    """wgmma.wait_group of one warp waits for the operation of all four (F5)."""
    program = without(matmul_v0.matmul.build(), "barrier.sync", 2)
    assert check(program).verdict == "proved"
    race = finding(without(program, "wgmma.wait_group"), "race")
    copied = line(matmul_v0.matmul, "k.tma.load(a_map")
    multiplied = line(matmul_v0.matmul, "multiply_tile(k, acc")
    assert participating(race) == [copied, multiplied]


def test_v0_without_the_first_cta_barrier_multiplies_too_early() -> None:
    finding(without(matmul_v0.matmul.build(), "barrier.sync", 1), "race")


def test_v1_with_too_few_expected_bytes_reads_a_tile_too_early() -> None:
    program = changed(matmul_v1.matmul.build(), "mbarrier.arrive.expect_tx", bytes=Const(8192))
    race = finding(program, "race")
    assert "nothing orders it after the write by cp.async.bulk.tensor.load" in race.message


def test_v1_with_too_many_expected_bytes_deadlocks() -> None:
    program = changed(matmul_v1.matmul.build(), "mbarrier.arrive.expect_tx", bytes=Const(32768))
    deadlock = finding(program, "deadlock")
    assert participating(deadlock)[0] == line(matmul_v1.matmul, "k.mbarrier.wait(loaded")
    assert any("16384 bytes" in note for note in deadlock.notes)


def test_v1_with_the_arrival_count_of_one_arrival_per_copy_deadlocks() -> None:
    """The half-migrated caller of tilus #88: count 2, one explicit arrive."""
    finding(changed(matmul_v1.matmul.build(), "mbarrier.init", count=Const(2)), "deadlock")


def test_v1_with_a_constant_parity_runs_ahead_of_the_copies() -> None:
    finding(changed(matmul_v1.matmul.build(), "mbarrier.wait", phase=Const(0)), "race")


def test_v2_that_refills_before_the_wait_for_its_wgmma_races_with_it() -> None:
    program = without(matmul_v2.matmul.build(), "barrier.sync", 1)
    race = finding(without(program, "wgmma.wait_group"), "race")
    assert 0 in {p.warp for p in race.participants}
    assert "wgmma.mma_async" in race.message


# ------------------------------------------------------------------ v3, v4: producer and consumer


def test_v3_released_by_half_of_the_consumers_completes_two_phases_an_iteration() -> None:
    """Which arrivals are of which phase makes no difference to who waits, but for the text."""
    program = changed(matmul_v3.matmul.build(), "mbarrier.init", 1, count=Const(64))
    arrival = line(matmul_v3.matmul, "k.mbarrier.arrive(empty[stage])")
    alias = finding(program, "phase-alias")
    assert set(alias.roles) == {"producer", "consumer"}
    assert arrival in participating(alias)
    finding(program, "deadlock")
    found = check(program, strict="ptx")
    assert found.rules == {"phase-ambiguity"}
    assert found.findings[0].roles == ("consumer",)
    assert participating(found.findings[0]) == [arrival]


def test_v3_producer_that_does_not_wait_arrives_in_a_phase_that_is_complete() -> None:
    over = finding(without(matmul_v3.matmul.build(), "mbarrier.wait", 0), "over-arrival")
    assert over.roles == ("producer",)
    assert participating(over)[0] == line(matmul_v3.matmul, "k.mbarrier.arrive_expect_tx(")


def test_v3_producer_that_starts_with_parity_zero_deadlocks() -> None:
    def flip(wait: MbarrierWait) -> MbarrierWait:
        return replace(wait, phase=wait.phase ^ 1)

    deadlock = finding(edited(matmul_v3.matmul.build(), "mbarrier.wait", flip, 0), "deadlock")
    assert set(deadlock.roles) == {"producer", "consumer"}


def test_v3_without_wait_group_releases_and_stores_too_early() -> None:
    program = without(matmul_v3.matmul.build(), "wgmma.wait_group")
    assert {"race", "wgmma-order"} <= check(program).rules


def test_v3_with_relaxed_arrivals_orders_nothing() -> None:
    finding(changed(matmul_v3.matmul.build(), "mbarrier.arrive", sem="relaxed"), "race")


def test_v4_released_by_fewer_warps_than_read_is_found_at_the_kernels_own_lines() -> None:
    build = matmul_v4.matmul.build(depth=64 * 24)
    program = changed(build, "mbarrier.init", 1, count=Const(3))
    report = check(program)
    assert report.verdict == "failed"
    files = {loc.file for f in report.findings for loc in f.locations}
    assert all(file.endswith("matmul_v4.py") for file in files), files


# ------------------------------------------------------------------ v5, v6: two warpgroups


def test_v5_deferred_release_needs_two_stages() -> None:
    deadlock = finding(matmul_v5.matmul.build(stages=1, iterations=2), "deadlock")
    assert set(deadlock.roles) == {"producer", "consumer0", "consumer1"}
    assert participating(deadlock)[0] == line(matmul_v5.matmul, "slot.acquire()")


def test_v5_with_two_groups_in_flight_releases_a_stage_that_is_being_read() -> None:
    program = changed(matmul_v5.matmul.build(), "wgmma.wait_group", 0, pending=2)
    assert finding(program, "race").roles[0] == "producer"


def test_v5_that_counts_one_warpgroup_races_with_the_other() -> None:
    program = changed(matmul_v5.matmul.build(), "mbarrier.init", 1, count=Const(4))
    finding(program, "race")


def test_v5_without_the_proxy_fence_stores_stale_bytes() -> None:
    found = finding(without(matmul_v5.matmul.build(), "fence.proxy.async"), "proxy-fence")
    stored = line(matmul_v5.matmul, "k.tma.store(c_map")
    written = line(matmul_v5.matmul, "k.tile.store(sC[group]")
    assert participating(found) == [stored, written]


def test_v5_without_the_warpgroup_barrier_stores_rows_of_other_warps_too_early() -> None:
    finding(without(matmul_v5.matmul.build(), "barrier.sync", 1), "race")


def test_v5_that_ends_before_its_store_has_read_is_found() -> None:
    program = without(matmul_v5.matmul.build(), "cp.async.bulk.wait_group")
    found = finding(program, "async-at-exit")
    assert participating(found)[0] == line(matmul_v5.matmul, "k.tma.store(c_map")


def test_v5_without_the_cta_barrier_uses_barriers_nobody_knows_to_be_initialised() -> None:
    finding(without(matmul_v5.matmul.build(), "barrier.sync", 0), "init-visibility")


def test_v6_that_restarts_the_pipeline_for_every_tile_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """B012: right only when an output tile fills the ring an even number of times."""
    original = Pipeline.__getitem__

    def restarting(pipe: Pipeline, item: Operand) -> Slot:
        return original(pipe, as_expr(item) % 3)

    monkeypatch.setattr(Pipeline, "__getitem__", restarting)
    assert check(matmul_v6.matmul.build(depth=192, stages=4)).verdict == "failed"


def test_v6_that_overwrites_the_result_before_the_last_store_has_read_it_is_found() -> None:
    program = without(matmul_v6.matmul.build(), "cp.async.bulk.wait_group", 0)
    race = finding(program, "race")
    assert participating(race) == [
        line(matmul_v6.matmul, "k.tile.store(sC[group]"),
        line(matmul_v6.matmul, "k.tma.store(c_map"),
    ]


# ------------------------------------------------------------------ copies


def test_vector_copy_that_reloads_a_stage_before_it_was_read_is_found() -> None:
    program = changed(copy.vector.build(), "cp.async.bulk.wait_group", 0, pending=2)
    race = finding(program, "race")
    assert participating(race) == [
        line(copy.vector, "k.bulk.load("),
        line(copy.vector, "k.bulk.store("),
    ]


def test_tensor_copy_that_expects_only_the_bytes_inside_the_matrix_deadlocks() -> None:
    program = changed(
        copy.tensor.build(), "mbarrier.arrive.expect_tx", bytes=Const(32 * (72 % 32) * 2)
    )
    assert set(finding(program, "deadlock").roles) == {"load", "store"}


# ------------------------------------------------------------------ Pipeline


@pytest.mark.parametrize(
    ("item", "stage", "parity"), [(0, 0, 0), (3, 3, 0), (4, 0, 1), (7, 3, 1), (8, 0, 0)]
)
def test_slot_follows_from_the_number_of_the_item(item: int, stage: int, parity: int) -> None:
    pipe = Pipeline(Builder("k"), 4)
    slot = pipe[item]
    assert (constant(slot.stage), constant(slot.parity)) == (stage, parity)
    assert (str(slot.full), str(slot.empty)) == (f"full[{stage}]", f"empty[{stage}]")


def test_slot_operations_are_one_instruction_each() -> None:
    k = Builder("k")
    slot = Pipeline(k, 2, name="x")[3]
    slot.acquire()
    slot.commit(64)
    slot.commit()
    slot.wait()
    slot.release()
    acquire, expect, commit, wait, release = instructions(k.finish())
    assert isinstance(acquire, MbarrierWait)
    assert (str(acquire.mbar), constant(acquire.phase)) == ("x_empty[1]", 0)
    assert isinstance(expect, MbarrierArriveExpectTx)
    assert (str(expect.mbar), constant(expect.bytes)) == ("x_full[1]", 64)
    assert isinstance(commit, MbarrierArrive)
    assert str(commit.mbar) == "x_full[1]"
    assert isinstance(wait, MbarrierWait)
    assert (str(wait.mbar), constant(wait.phase)) == ("x_full[1]", 1)
    assert isinstance(release, MbarrierArrive)
    assert str(release.mbar) == "x_empty[1]"
    assert acquire.loc.file.endswith("test_hopper.py")
