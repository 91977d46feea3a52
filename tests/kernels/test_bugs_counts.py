"""Real bugs of arrival counts, byte counts, parities and stores; their fixes; correct lookalikes.

Every bug has tests for what is found, where and between whom; its fixed twin is proved, and so are
the configurations in which the bug is hidden. `test_bugs_accepted` breaks the lookalikes.
"""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

from tilesim.checker import check
from tilesim.errors import InvalidProgram
from tilesim.kernels.bugs import (
    accepted_idioms,
    arrival_count,
    parity,
    shared_barriers,
    storage_size,
    store_fence,
    transaction_bytes,
)
from tilesim.kernels.bugs.arrival_count import contiguous_load, short_pipeline, split_load
from tilesim.kernels.bugs.parity import persistent, pinned_slot
from tilesim.kernels.bugs.shared_barriers import too_few_stages, two_producers
from tilesim.kernels.bugs.storage_size import narrow_rows
from tilesim.kernels.bugs.store_fence import staged_store
from tilesim.kernels.bugs.transaction_bytes import (
    broadcast_operand,
    guarded_expect,
    half_migrated,
    multicast,
    plain_arrive,
)
from tilesim.kernels.registry import Case
from tilesim.sim.machine.simulate import simulate

from .evidence import (
    assert_as_expected,
    assert_computes,
    assert_replays,
    at,
    failed,
    first,
    found,
    notes,
    sites,
    symptoms,
)
from .mutate import inputs

MODULES = (
    accepted_idioms,
    arrival_count,
    parity,
    shared_barriers,
    storage_size,
    store_fence,
    transaction_bytes,
)
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)
ENTRIES = {
    "B005", "B007", "B008", "B012", "B020", "B022", "B024", "B026", "B030", "B031", "B032", "B034",
    "B035", "N1", "N5", "N7", "N11",
}  # fmt: skip


def names(cases: list[Case]) -> list[str]:
    return [f"{c.target.removeprefix('tilesim.kernels.bugs.')}-{c.strict}" for c in cases]


CLEAN = [case for case in CASES if not case.fails]
FAILING = [case for case in CASES if case.expected == "failed"]


# ------------------------------------------------------------------ all cases


def test_every_entry_has_a_case() -> None:
    assert {entry for case in CASES for entry in case.source.split()} == ENTRIES


@pytest.mark.parametrize("case", CASES, ids=names(list(CASES)))
def test_case_is_as_expected(case: Case) -> None:
    assert_as_expected(case)


@pytest.mark.parametrize("case", CLEAN, ids=names(CLEAN))
def test_correct_kernel_equals_numpy_on_every_schedule(case: Case) -> None:
    assert_computes(case, empty=True)


@pytest.mark.parametrize("case", FAILING, ids=names(FAILING))
def test_witness_replays_to_the_same_findings(case: Case) -> None:
    assert_replays(case)


# ------------------------------------------------------------------ B005, B007, B008


def test_b005_third_arrival_meets_a_phase_without_pending_arrivals() -> None:
    finding = found(failed(split_load), "over-arrival")
    late = finding.participants[0]
    assert (late.role, late.loc.line) == ("producer", at(split_load, "slot.commit(b_map.box"))
    assert "full[0] in phase 0, which has 0 of 2 pending" in finding.message
    assert "still waits for 16384 bytes" in finding.message


def test_b005_if_a_lands_first_b_is_read_before_it_is_loaded() -> None:
    assert "race" in symptoms(split_load)
    program = split_load.build()
    races = [
        f
        for seed in range(40)
        for f in simulate(program, numbers=False, policy="random", seed=seed).findings
        if f.rule == "race"
    ]
    early = {
        ("consumer", at(split_load, "k.tile.load(part, right")),
        ("producer", at(split_load, "k.tma.load(b_map")),
    }
    assert early in [sites(f) for f in races]


def test_b007_second_invocation_copies_into_a_stage_nobody_has_waited_for() -> None:
    report = failed(short_pipeline)
    load = at(short_pipeline, "k.tma.load(x_map")
    assert sites(found(report, "race")) == {("warp 0", load)}
    assert "buffer[1, 0:16, 0:64]" in found(report, "race").message
    assert "full[1]" in found(report, "async-at-exit").message


def test_b007_second_invocation_arrives_once_more_while_the_copy_is_in_flight() -> None:
    program = short_pipeline.build()
    runs = [simulate(program, numbers=False, policy="random", seed=seed) for seed in range(80)]
    over = [f for run in runs for f in run.findings if f.rule == "over-arrival"]
    assert over
    for finding in over:
        late = finding.participants[0]
        assert (late.role, late.loc.line) == ("warp 0", at(short_pipeline, "k.mbarrier.arrive_exp"))
        assert "full[1] in phase 0, which has 0 of 1 pending" in finding.message


def test_b007_one_invocation_leaves_a_copy_that_nobody_waits_for() -> None:
    report = failed(short_pipeline, invocations=1)
    assert report.rules == {"async-at-exit"}
    assert check(short_pipeline.build(invocations=1, fixed=True)).verdict == "proved"


def test_b008_bytes_without_an_arrival_never_complete_the_phase() -> None:
    report = failed(contiguous_load)
    assert report.rules == {"deadlock"}
    finding = found(report, "deadlock")
    expect = at(contiguous_load, "# BUG")
    assert sites(finding) == {("consumer", at(contiguous_load, "slot.wait()"))}
    notes(
        finding,
        "full[0] phase 0: 1 of 1 arrivals pending",
        "16384 bytes expected by mbarrier.expect_tx of producer",
        f":{expect}",
        "16384 bytes completed by cp.async.bulk.load",
        "no warp that is still alive executes an instruction that arrives on it",
    )


# ------------------------------------------------------------------ B012, B020


def test_b012_restarted_parity_lets_the_producer_overwrite_a_copy_in_flight() -> None:
    report = failed(persistent)
    assert report.rules == {"race"}
    overwritten, skipped = report.findings
    copy = ("producer", at(persistent, "k.tma.load(x_map"))
    assert sites(overwritten) == {copy}
    assert "buffer[1, 0:64, 0:32]" in overwritten.message
    # the wait passes on a later phase than that of the copy (U7)
    assert sites(skipped) == {copy, ("consumer", at(persistent, "k.tile.load(part, buffer"))}


def test_b012_two_tiles_are_enough_for_wrong_results() -> None:
    """The consumer takes stage 1 of the first tile for that of the second one."""
    program = persistent.build(tiles=2)
    given = inputs(persistent, program, {})
    result = simulate(program, given).outputs["Y"]
    expected = -given["X"]
    stale = slice(4 * parity.HEIGHT, 5 * parity.HEIGHT)  # item 4: tile 1, k tile 1
    np.testing.assert_array_equal(result[stale], expected[parity.HEIGHT : 2 * parity.HEIGHT])
    assert not np.array_equal(result[stale], expected[stale])
    report = failed(persistent, tiles=2)
    assert report.rules == {"async-at-exit"}
    assert "no warp waits for full[1]" in report.findings[0].message


@pytest.mark.parametrize(
    ("k_tiles", "stages", "hidden"),
    [(2, 2, False), (3, 2, False), (4, 2, True), (8, 2, True), (3, 3, False), (6, 3, True),
     (2, 1, True), (1, 1, False)],
)  # fmt: skip
def test_b012_is_hidden_by_trip_counts_that_are_multiples_of_twice_the_stages(
    k_tiles: int, stages: int, hidden: bool
) -> None:
    shape = {"k_tiles": k_tiles, "stages": stages}
    assert check(persistent.build(**shape)).verdict == ("proved" if hidden else "failed")
    assert check(persistent.build(**shape, fixed=True)).verdict == "proved"


def test_b020_slot_and_parity_from_different_counts_deadlock() -> None:
    finding = found(failed(pinned_slot), "deadlock")
    fill = at(pinned_slot, "k.mbarrier.wait(empty[slot]")
    drain = at(pinned_slot, "k.mbarrier.wait(full[slot]")
    assert sites(finding) == {("epilogue", fill), ("store", drain)}
    assert finding.message == "all 5 live warps wait for each other"
    notes(
        finding,
        f"epilogue (warps 0-3) waits on empty[0] parity 1 at {finding.locations[0].file}:{fill}",
        "empty[0] phase 1: 1 of 1 arrivals pending",
        "full[0] phase 3: 4 of 4 arrivals pending",
        "cycle: epilogue (warp 0) -> store (warp 4) -> epilogue (warp 0)",
    )


def test_b020_staging_is_overwritten_while_the_store_reads_it() -> None:
    race = found(failed(pinned_slot), "race")
    assert sites(race) == {
        ("epilogue", at(pinned_slot, "k.tile.store(staging[slot]")),
        ("store", at(pinned_slot, "k.tma.store(y_map")),
    }


def test_b020_hangs_after_the_first_tile_only() -> None:
    assert check(pinned_slot.build(tiles=1)).verdict == "proved"
    for tiles in (2, 3):
        assert "deadlock" in symptoms(pinned_slot, tiles=tiles)


# ------------------------------------------------------------------ B022, B024


def test_b022_is_not_seen_by_running_but_found_by_checking() -> None:
    """Only schedules in which a group is late or early show it."""
    program = too_few_stages.build()
    assert simulate(program, numbers=False).findings == ()
    assert symptoms(too_few_stages, seeds=10) == set()
    report = failed(too_few_stages)
    assert report.rules <= {"race", "over-arrival", "deadlock", "phase-alias", "phase-ambiguity"}
    assert "phase-alias" in report.rules


def test_b022_group_reads_a_stage_on_the_parity_of_an_older_phase() -> None:
    report = failed(too_few_stages)
    wait = at(too_few_stages, "k.mbarrier.wait(full[stage]")
    copy = at(too_few_stages, "k.bulk.load(buffer[stage]")
    groups = {"group 0", "group 1"}
    race = first(report, "race")
    assert {line for _, line in sites(race)} == {copy, at(too_few_stages, "k.tile.load(row")}
    assert set(race.roles) & groups
    for alias in (f for f in report.findings if f.rule == "phase-alias"):
        assert {line for _, line in sites(alias)} == {wait, copy}
        assert set(alias.roles) & groups
        assert "full[" in alias.message


@pytest.mark.parametrize("iterations", [2, 3, 5])
def test_b022_as_many_stages_as_loads_are_enough(iterations: int) -> None:
    assert check(too_few_stages.build(iterations=iterations)).verdict == "failed"
    assert check(too_few_stages.build(iterations=iterations, fixed=True)).verdict == "proved"


def test_b024_second_producer_arrives_while_the_first_ones_bytes_are_in_flight() -> None:
    finding = found(failed(two_producers), "over-arrival")
    late = finding.participants[0]
    assert late.role in ("load X", "load Y")
    path = Path(inspect.getsourcefile(shared_barriers) or "")
    assert "k.mbarrier.arrive_expect_tx(full" in path.read_text().splitlines()[late.loc.line - 1]
    assert "full[0] in phase 0, which has 0 of 1 pending" in finding.message


def test_over_arrival_names_the_arrivals_that_used_up_the_count() -> None:
    """Both sides: the arrival that is too many, and those of the same phase before it."""
    finding = found(failed(split_load), "over-arrival")
    text = "\n".join((*finding.notes, *map(str, finding.participants)))
    assert f":{at(split_load, '# BUG')}" in text
    finding = found(failed(two_producers), "over-arrival")
    text = "\n".join((*finding.notes, *map(str, finding.participants)))
    assert "load X" in text
    assert "load Y" in text


def test_b024_phase_flips_early_and_an_operand_is_read_before_it_is_there() -> None:
    shown = symptoms(two_producers, seeds=60)
    assert {"over-arrival", "race", "deadlock"} <= shown


@pytest.mark.parametrize("barriers", ["shared, count 2", "per warp"])
@pytest.mark.parametrize(("rows", "stages"), [(1, 1), (5, 1), (8, 2), (7, 3)])
def test_b024_counted_or_separate_arrivals_are_correct(
    barriers: str, rows: int, stages: int
) -> None:
    program = two_producers.build(barriers=barriers, rows=rows, stages=stages)
    assert check(program).verdict == "proved"


# ------------------------------------------------------------------ B026, B030, B031, B034


@pytest.mark.parametrize(
    ("count", "expected", "state"),
    [
        ("broadcast", 16384, "8064 bytes outstanding"),
        ("forgotten", 8192, "128 bytes more completed than expected"),
    ],
)
def test_b026_miscounted_bytes_leave_the_phase_open(count: str, expected: int, state: str) -> None:
    report = failed(broadcast_operand, count=count)
    assert report.rules == {"deadlock"}
    finding = found(report, "deadlock")
    assert sites(finding) == {
        ("consumer", at(broadcast_operand, "slot.wait()")),
        ("producer", at(broadcast_operand, "slot.acquire()")),
    }
    notes(
        finding,
        f"full[0] phase 0: 0 of 1 arrivals pending, {state}",
        f"1 arrival and {expected} bytes expected by mbarrier.arrive.expect_tx",
        f":{at(broadcast_operand, '# BUG')}",
        "128 bytes completed by cp.async.bulk.load",
        "8192 bytes completed by cp.async.bulk.tensor.load",
    )
    assert finding.fix == (
        "expect on full[0] as many bytes as its copies complete in a phase: 8320 instead of "
        f"{expected} (or let them copy {expected})"
    )


def test_b026_too_few_bytes_let_the_operand_be_read_in_flight() -> None:
    program = broadcast_operand.build(count="forgotten")
    runs = [simulate(program, numbers=False, policy="random", seed=seed) for seed in range(20)]
    races = [f for run in runs for f in run.findings if f.rule == "race"]
    early = {
        ("consumer", at(broadcast_operand, "k.tile.load(shift")),
        ("producer", at(broadcast_operand, "k.bulk.load(row")),
    }
    assert early in [sites(f) for f in races]
    assert "race" not in symptoms(broadcast_operand, seeds=20, count="broadcast")


def test_b030_four_warps_expect_the_bytes_of_one_copy() -> None:
    report = failed(guarded_expect)
    assert report.rules == {"deadlock"}
    finding = found(report, "deadlock")
    assert sites(finding) == {
        ("consumer", at(guarded_expect, "slot.wait()")),
        ("producer", at(guarded_expect, "slot.acquire()")),
    }
    expect = at(guarded_expect, "# BUG")
    notes(finding, "full[0] phase 0: 0 of 1 arrivals pending, 24576 bytes outstanding")
    notes(finding, "8192 bytes expected each by mbarrier.expect_tx of producer (warps 0-3)")
    assert sum(note.endswith(f":{expect}") for note in finding.notes) == 1
    # the copies that are still to come are those of the next phase: they excuse nothing
    guard = at(guarded_expect, "k.if_(one if fixed")
    assert [(p.action, p.loc.line) for p in finding.culprits] == [
        ("lets 4 warps in", guard),
        ("is executed by 4 warps", expect),
    ]


def test_b031_kept_count_misses_its_second_arrival() -> None:
    report = failed(half_migrated)
    assert report.rules == {"deadlock"}
    finding = found(report, "deadlock")
    assert sites(finding) == {("consumer", at(half_migrated, "k.mbarrier.wait(full, 0)"))}
    notes(
        finding,
        "full[0] phase 0: 1 of 2 arrivals pending",
        "1 arrival and 16384 bytes expected",
        "8192 bytes completed by cp.async.bulk.tensor.load",
    )
    assert finding.fix == (
        "let as many arrive on full[0] in each phase as it counts: 2 instead of 1, or initialise "
        "it with 1"
    )


def test_b031_forgotten_arrival_is_refused_before_the_kernel_runs() -> None:
    with pytest.raises(InvalidProgram) as caught:
        check(half_migrated.build(api="no arrival"))
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.rule == "deadlock"
    assert diagnostic.loc.line == at(half_migrated, "k.mbarrier.wait(full, 0)")
    assert "no instruction of the kernel arrives on full" in diagnostic.message


def test_b031_issuer_of_a_multicast_expects_the_bytes_of_its_peer() -> None:
    report = failed(multicast)
    assert report.rules == {"deadlock"}
    finding = found(report, "deadlock")
    consumer = ("consumer", at(multicast, "k.mbarrier.wait(full, 0)"))
    assert sites(finding) == {consumer, ("warp 4", at(multicast, "# nobody leaves"))}
    assert {p.cta for p in finding.participants if p.role == "consumer"} == {0, 1}
    notes(
        finding,
        "CTA 0 full[0] phase 0: 0 of 1 arrivals pending, 8192 bytes outstanding",
        "1 arrival and 16384 bytes expected",
        "CTA 1 full[0] phase 0: 1 of 1 arrivals pending, 8192 bytes more completed than expected",
    )


def test_deadlock_lists_every_copy_under_the_barrier_it_completed_on() -> None:
    """Equal lines are not one line: the bytes of each barrier must add up."""
    landed = "8192 bytes completed by cp.async.bulk.tensor.load of producer"
    for kernel in (half_migrated, multicast):  # two copies on one barrier; one on each of two
        finding = found(failed(kernel), "deadlock")
        lines = [note for note in finding.notes if landed in note]
        copies = sum(2 if "2 x" in line else 1 for line in lines)
        assert copies == 2, (kernel.name, finding.notes)


def test_b034_arrival_without_bytes_completes_the_phase_before_the_copy() -> None:
    report = failed(plain_arrive)
    assert report.rules <= {"race", "async-at-exit"}
    races = [sites(f) for f in report.findings if f.rule == "race"]
    copy = ("producer", at(plain_arrive, "k.tma.load(x_map"))
    assert {("consumer", at(plain_arrive, "k.tile.load(part")), copy} in races
    notes(first(report, "race"), "is still in flight")


def test_b034_bytes_that_land_later_hang_a_later_phase() -> None:
    assert {"race", "deadlock"} <= symptoms(plain_arrive, seeds=20)


# ------------------------------------------------------------------ B032, B035


def test_b032_expected_storage_size_waits_for_bytes_nobody_copies() -> None:
    report = failed(narrow_rows)
    assert report.rules == {"deadlock"}
    finding = found(report, "deadlock")
    assert sites(finding) == {("consumer", at(narrow_rows, "k.mbarrier.wait(full, 0)"))}
    notes(
        finding,
        "full[0] phase 0: 0 of 1 arrivals pending, 4096 bytes outstanding",
        "8192 bytes expected by mbarrier.arrive.expect_tx",
        f":{at(narrow_rows, '# BUG: more than is copied')}",
        "2048 bytes completed",
    )


def test_b032_allocated_logical_size_overlaps_the_next_buffer() -> None:
    report = failed(narrow_rows, mistake="allocates logical")
    assert report.rules == {"race"}
    race = found(report, "race")
    assert sites(race) == {
        ("producer", at(narrow_rows, "k.tma.load(a_map")),
        ("producer", at(narrow_rows, "k.tma.load(b_map")),
    }
    assert "sB[" in race.message
    assert "sA[" in race.message


def test_b032_storage_is_twice_the_box() -> None:
    program = narrow_rows.build(mistake="none")
    assert program.placement["sB"] - program.placement["sA"] == 2 * program.maps[0].box_bytes


@pytest.mark.parametrize("fence", ["none", "after the store"])
def test_b035_store_reads_what_no_fence_has_handed_over(fence: str) -> None:
    report = failed(staged_store, fence=fence)
    assert report.rules == {"proxy-fence"}
    store, write = at(staged_store, "# BUG"), at(staged_store, "k.tile.store(staging")
    assert [sites(f) for f in report.findings] == [
        {("warp 0", store), (f"warp {warp}", write)} for warp in range(4)
    ]
    assert "fence.proxy.async" in report.findings[0].fix


def test_b035_one_writers_fence_does_not_cover_the_others() -> None:
    report = failed(staged_store, fence="one writer")
    assert report.rules == {"proxy-fence"}
    assert {f.participants[1].warp for f in report.findings} == {1, 2, 3}
