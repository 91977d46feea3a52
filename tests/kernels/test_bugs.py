"""The collection of bugs (`tilesim.kernels.bugs`): what is said of each program, and when it shows.

Verdict, rules, the lines to change first, and roles and lines of the first finding are those of
`tests/verdicts/rows/bugs.jsonl`; what findings say beside is here, by program. Further tables have
sizes that hide a bug or show it, and what random schedules show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.verdicts.corpora import entries, name_of
from tests.verdicts.files import deciding, kept
from tests.verdicts.row import place, rejected, row_of
from tilesim.checker import check, replay
from tilesim.checker.report import Report
from tilesim.dsl.kernel import Kernel
from tilesim.errors import InvalidProgram, UsageError
from tilesim.kernels.bugs import (
    arrival_count,
    cluster_arrivals,
    cluster_phases,
    copy_groups,
    empty_tiles,
    launch_control,
    named_barriers,
    parity,
    proxy_fences,
    role_agreement,
    shared_barriers,
    storage_size,
    store_fence,
    tensor_memory,
    transaction_bytes,
)
from tilesim.kernels.registry import Case, cases
from tilesim.sim.machine.simulate import simulate

from .evidence import assert_computes, failed, found, symptoms
from .mutate import inputs

CASES = cases("bugs")
ENTRIES = {entry.name: entry for entry in entries("bugs")}
ROWS = {key: replace(row, recheck="") for key, row in kept("bugs").items()}
FAILING = {(name_of(case), case.strict) for case in CASES if case.fails}

#: by program that fails, or is refused, texts of what is said of it
TEXTS: Mapping[str, tuple[str, ...]] = {
    "arrival_count::contiguous_load": (
        "full[0] phase 0: 1 of 1 arrivals pending",
        "16384 bytes expected by mbarrier.expect_tx of producer",
        "16384 bytes completed by cp.async.bulk.load",
        "no live warp can still arrive on it",
    ),
    "arrival_count::short_pipeline": ("buffer[1, 0:16, 0:64]", "full[1]"),
    "arrival_count::split_load": (
        "full[0] in phase 0, which has 0 of 2 pending", "still waits for 16384 bytes",
    ),
    "barrier_storage::reused_storage": (
        "where first[0] is already a live mbarrier", "mbarrier.inval",
    ),
    "barrier_storage::reused_storage[reuse=data]": (
        "writes factors[0], which overlaps the live mbarrier first[0]", "reads factors",
    ),
    "barrier_storage::workspace_beyond_request": (
        "ends at 1152", "smem_bytes = 1032", "at least 1152",
    ),
    "cluster_arrivals::uneven_pair": (
        "has made all its 2 copies", "producer (CTA 0", "consumer (CTA 0",
    ),
    "cluster_bytes::passive_receiver": ("copy (CTA 1",),
    "cluster_bytes::then_arm": ("1024 bytes", "consumer (CTA 1"),
    "cluster_lowering::aliased_barriers": ("0 of 1 pending",),
    "cluster_lowering::barrier_ids": ("id 16 is outside 0..15",),
    "cluster_phases::rendezvous": ("ready[0]", "leader (CTA 0", "follower (CTA 1"),
    "cluster_phases::synthetic_barrier[ctas=3]": tuple(f"member (CTA {n}" for n in range(3)),
    "copy_groups::waited_by_issuers": (
        "a barrier of threads between this cp.async.bulk.wait_group",
    ),
    "copy_groups::waited_too_little": ("cp.async.wait_group",),
    "cta_pairs::pair[ready=own]": ("(CTA 0 warp", "(CTA 1 warp"),
    "cta_pairs::pair[release=own]": ("mma (CTA 0", "epilogue (CTA 1"),
    "cta_pairs::pair[rendezvous=False]": ("(CTA 0 warp", "(CTA 1 warp"),
    "empty_tiles::block_sparse": ("o_full[0] phase 2: 1 of 1 arrivals pending",),
    "empty_tiles::block_sparse[mistake=p arrivals]": ("p_full[0] phase 1",),
    "named_barriers::aligned_sites": ("aligned barriers at two places", "aligned=False"),
    "named_barriers::half_of_the_cta[others=loop]": ("named barrier 0",),
    "named_barriers::reused_id": (
        "joins named barrier 1 again before the round", "two barrier ids",
    ),
    "parity::persistent": ("buffer[1, 0:64, 0:32]", "consumer (CTA 0"),
    "parity::persistent[tiles=2]": ("no warp waits for full[1]",),
    "parity::pinned_slot": (
        "all 5 live warps wait for each other",
        "epilogue (warps 0-3) waits on empty[0] parity 1 at ",
        "empty[0] phase 1: 1 of 1 arrivals pending",
        "full[0] phase 3: 4 of 4 arrivals pending",
        "cycle: epilogue (warp 0) -> store (warp 4) -> epilogue (warp 0)",
    ),
    "proxy_fences::fence_in_loop": ("wrote state[0:16, 0:32]",),
    "proxy_fences::overwritten_after_read": (
        "after consumer (warp 0) read buffer[0, 0:16, 0:32]",
        "fence.proxy.async after the generic access",
    ),
    "register_pool::too_many_consumers": (
        "waits for 3584 registers (setmaxnreg.inc)", "register pool holds",
    ),
    "register_pool::two_ctas_per_sm": ("waits for 3584 registers (setmaxnreg.inc)",),
    "reuse_guards::token_guard": ("no instruction of the kernel arrives on token",),
    "role_agreement::foreign_tail": ("empty[0] phase 1: 1 of 1 arrivals pending",),
    "role_agreement::idle_cta[tiles=1]": (
        "no live warp can still arrive on it",
        "epilogue load (CTA 1",
    ),
    "role_agreement::packed_split": (
        "s_full[0] phase 0: 1 of 1",
        "mma (warp 9) cannot release it at",
        "no path leads from where it stands to that instruction",
    ),
    "role_agreement::release_behind_work": (
        "waits for the first arrival on pressure[0]",
        "consumer (warp 0) could release it at",
        "cycle: consumer (warp 0) -> producer (warp 8) -> consumer (warp 0)",
    ),
    "shared_barriers::too_few_stages": ("full[",),
    "shared_barriers::two_producers": (
        "full[0] in phase 0, which has 0 of 1 pending", "load X", "load Y",
    ),
    "storage_size::narrow_rows": (
        "full[0] phase 0: 0 of 1 arrivals pending, 4096 bytes outstanding",
        "8192 bytes expected by mbarrier.arrive.expect_tx",
        "2048 bytes completed",
    ),
    "storage_size::narrow_rows[mistake=allocates logical]": ("sA[", "sB["),
    "store_bounds::full_last_block": (
        "elements 192..255 of dimension 0 of D, which has 224", "math (CTA 3",
    ),
    "store_fence::staged_store": ("fence.proxy.async",),
    "tensor_memory::hand_over": ("after_thread_sync",),
    "tensor_memory::over_allocated": ("64 columns", "512 of 512"),
    "tensor_memory::over_allocated[last=48,fixed=True]": ("48 columns are not a power of two",),
    "tensor_memory::released_between_reads": ("row_max",),
    "tensor_memory::unwaited_store": ("wait::st",),
    **{
        f"transaction_bytes::broadcast_operand{params}": (
            f"full[0] phase 0: 0 of 1 arrivals pending, {state}",
            f"1 arrival and {expected} bytes expected by mbarrier.arrive.expect_tx",
            "128 bytes completed by cp.async.bulk.load",
            "8192 bytes completed by cp.async.bulk.tensor.load",
            "expect on full[0] as many bytes as its copies complete in a phase: 8320 instead of "
            f"{expected} (or let them copy {expected})",
        )
        for params, expected, state in (
            ("", 16384, "8064 bytes outstanding"),
            ("[count=forgotten]", 8192, "128 bytes more completed than expected"),
        )
    },
    "transaction_bytes::guarded_expect": (
        "full[0] phase 0: 0 of 1 arrivals pending, 24576 bytes outstanding",
        "8192 bytes expected each by mbarrier.expect_tx of producer (warps 0-3)",
        "lets 4 warps in",
        "is executed by 4 warps",
    ),
    "transaction_bytes::half_migrated": (
        "full[0] phase 0: 1 of 2 arrivals pending",
        "1 arrival and 16384 bytes expected",
        "8192 bytes completed by cp.async.bulk.tensor.load",
        "make as many arrivals on full[0] in each phase as it counts: 2 instead of 1, or "
        "initialise it with 1",
    ),
    "transaction_bytes::half_migrated[api=no arrival]": (
        "no instruction of the kernel arrives on full",
    ),
    "transaction_bytes::multicast": (
        "CTA 0 full[0] phase 0: 0 of 1 arrivals pending, 8192 bytes outstanding",
        "1 arrival and 16384 bytes expected",
        "CTA 1 full[0] phase 0: 1 of 1 arrivals pending, 8192 bytes more completed than expected",
        "consumer (CTA 0",
        "consumer (CTA 1",
    ),
    "transaction_bytes::plain_arrive": ("is still in flight",),
    "wgmma_release::refill_by_cp_async": ("wgmma.commit_group and wait_group", "sB", "cp.async"),
    "wgmma_release::refill_by_stores": ("wgmma.commit_group and wait_group", "sB"),
}  # fmt: skip


def said(report: Report) -> str:
    """What is said in a report: texts of its findings, and who takes part, with lines."""
    lines = []
    for finding in report.findings:
        lines += [finding.message, finding.cause, finding.fix, *finding.notes]
        lines += [
            f"{p.role} (CTA {p.cta} warp {p.warp}) {p.action} @ {place(p.loc)}"
            for p in (*finding.participants, *finding.culprits)
        ]
    return "\n".join(lines)


def assert_replays(report: Report, program: Any, given: Mapping[str, Any] | None) -> None:
    """The witness shows what the check found."""
    assert report.witness is not None
    again = replay(program, report.witness, given).findings
    assert again
    assert again == report.findings[: len(again)]


@pytest.mark.parametrize(("name", "level"), deciding(ROWS))
def test_a_program_is_judged_as_the_verdict_file_says(name: str, level: Any) -> None:
    """What a failing one is said to do is what its witness shows."""
    texts = TEXTS.get(name.removeprefix("bugs."), ())
    expected = ROWS[name, level]
    try:
        program, given = ENTRIES[name].build(), ENTRIES[name].inputs()
        report = check(program, strict=level, inputs=given)
    except InvalidProgram as error:
        row, text = rejected(name, error, level), str(error)
    else:
        row, text = row_of(name, report, level), said(report)
        if report.verdict == "failed":
            assert_replays(report, program, given)
    assert row == expected
    if (name, level) in FAILING:
        assert [part for part in texts if part not in text] == [], text


def test_texts_are_those_of_programs_that_fail() -> None:
    assert {f"bugs.{name}" for name in TEXTS} <= {name for name, _ in FAILING}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{name_of(case)}-{case.strict}")
def test_a_case_expects_what_the_verdict_file_says(case: Case) -> None:
    row = ROWS[name_of(case), case.strict]
    assert case.accepts(row.verdict, tuple(row.rules))
    assert bool(case.rule) == case.fails


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if not case.fails and case.kernel.reference is not None],
    ids=lambda case: f"{name_of(case)}-{case.strict}",
)
def test_a_right_kernel_equals_numpy(case: Case) -> None:
    assert_computes(case, [("timed", 0), ("random", 1)], empty=True)


#: kernels of other sizes: the verdict, and the level if it is `ptx`
SIZES: tuple[tuple[Kernel, dict[str, Any], str], ...] = (
    (arrival_count.short_pipeline, {"invocations": 1}, "failed"),
    (arrival_count.short_pipeline, {"invocations": 1, "fixed": True}, "proved"),
    # trip counts that are multiples of twice the stages hide a parity that starts over
    *(
        (parity.persistent, {"k_tiles": k_tiles, "stages": stages, "fixed": fixed},
         "proved" if fixed or hidden else "failed")
        for k_tiles, stages, hidden in (
            (2, 2, False), (4, 2, True), (3, 3, False), (6, 3, True), (2, 1, True), (1, 1, False),
        )
        for fixed in (False, True)
    ),
    (parity.pinned_slot, {"tiles": 1}, "proved"),
    *(
        (shared_barriers.too_few_stages, {"iterations": n, "fixed": fixed},
         "proved" if fixed else "failed")
        for n in (2, 3, 5) for fixed in (False, True)
    ),
    *(
        (shared_barriers.two_producers, {"barriers": kind, "rows": rows, "stages": stages},
         "proved")
        for kind in ("shared, count 2", "per warp")
        for rows, stages in ((1, 1), (8, 2), (7, 3))
    ),
    *((cluster_arrivals.uneven_pair, {"short": short}, "failed") for short in (2, 3)),
    *((proxy_fences.fence_in_loop, {"steps": steps}, "proved") for steps in (1, 2)),
    *(
        (copy_groups.waited_too_little, {"stages": stages, "fixed": fixed},
         "proved" if fixed else "failed")
        for stages in (2, 3, 4) for fixed in (False, True)
    ),
    (named_barriers.reused_id, {"tiles": 1}, "proved"),
    (named_barriers.reused_id, {"tiles": 2}, "failed"),
    (role_agreement.release_behind_work, {"seq": 248}, "proved"),
    (role_agreement.release_behind_work, {"seq": 249}, "failed"),
    (role_agreement.release_behind_work, {"seq": 256}, "proved"),
    # an even number of rows without work hides a phase that is flipped in each
    *(
        (empty_tiles.block_sparse, {"tiles": " ".join(["work", *["empty"] * n, "work"])},
         "failed" if n % 2 else "proved")
        for n in (1, 2, 3, 4)
    ),
    *(
        (tensor_memory.address_without_tiles, {"tiles": 1, "fixed": fixed}, "proved")
        for fixed in (False, True)
    ),
)  # fmt: skip
#: proved at `ptx`
BY_THE_TEXT: tuple[tuple[Kernel, dict[str, Any]], ...] = (
    (proxy_fences.overwritten_after_read, {"blocks": 2}),
    *(
        (role_agreement.packed_split, {"blocks": 5, "splits": 3, "split": split, "fixed": True})
        for split in range(3)
    ),
    *((launch_control.tile_ids, {"tiles": tiles}) for tiles in (1, 2, 9)),
)


@pytest.mark.parametrize(("kernel", "params", "verdict"), SIZES)
def test_sizes_hide_a_bug_or_show_it(kernel: Kernel, params: dict[str, Any], verdict: str) -> None:
    assert check(kernel.build(**params)).verdict == verdict


@pytest.mark.parametrize(("kernel", "params"), BY_THE_TEXT)
def test_sizes_that_are_right_by_the_text(kernel: Kernel, params: dict[str, Any]) -> None:
    assert check(kernel.build(**params), strict="ptx").verdict == "proved"


@pytest.mark.parametrize(
    ("kernel", "params", "seeds", "rules"),
    [
        (arrival_count.split_load, {}, 40, {"race", "over-arrival"}),
        (arrival_count.short_pipeline, {}, 40, {"over-arrival"}),
        (parity.pinned_slot, {"tiles": 2}, 20, {"deadlock"}),
        (shared_barriers.two_producers, {}, 60, {"over-arrival", "race", "deadlock"}),
        (transaction_bytes.broadcast_operand, {"count": "forgotten"}, 20, {"race"}),
        (transaction_bytes.plain_arrive, {}, 20, {"race", "deadlock"}),
        (role_agreement.packed_split, {}, 10, {"deadlock"}),
    ],
)
def test_schedules_by_chance_show(
    kernel: Kernel, params: dict[str, Any], seeds: int, rules: set[str]
) -> None:
    assert rules <= symptoms(kernel, seeds=seeds, **params)


@pytest.mark.parametrize(
    "kernel",
    [cluster_phases.rendezvous, cluster_phases.synthetic_barrier, role_agreement.foreign_tail,
     empty_tiles.block_sparse],
    ids=lambda kernel: kernel.name,
)  # fmt: skip
def test_only_some_schedules_hang(kernel: Kernel) -> None:
    program = kernel.build()
    runs = (simulate(program, numbers=False, policy="random", seed=seed) for seed in range(30))
    assert {"deadlock" in {f.rule for f in run.findings} for run in runs} == {True, False}


def test_what_one_run_does_not_show_is_found() -> None:
    """Only schedules in which a group is late or early show it (B022, B092)."""
    for kernel in (shared_barriers.too_few_stages, named_barriers.reused_id):
        assert simulate(kernel.build(), numbers=False).findings == ()
    assert symptoms(shared_barriers.too_few_stages, seeds=10) == set()


def test_two_tiles_are_enough_for_wrong_results() -> None:
    """The consumer takes stage 1 of the first tile for that of the second one (B012)."""
    program = parity.persistent.build(tiles=2)
    given = inputs(parity.persistent, program, {})
    result = simulate(program, given).outputs["Y"]
    expected = -given["X"]
    stale = slice(4 * parity.HEIGHT, 5 * parity.HEIGHT)  # item 4: tile 1, k tile 1
    np.testing.assert_array_equal(result[stale], expected[parity.HEIGHT : 2 * parity.HEIGHT])
    assert not np.array_equal(result[stale], expected[stale])


def test_a_deadlock_lists_every_copy_under_the_barrier_it_completed_on() -> None:
    """Equal lines are not one line: the bytes of each barrier must add up."""
    landed = "8192 bytes completed by cp.async.bulk.tensor.load of producer"
    # two copies on one barrier; one on each of two
    for kernel in (transaction_bytes.half_migrated, transaction_bytes.multicast):
        finding = found(failed(kernel), "deadlock")
        lines = [note for note in finding.notes if landed in note]
        assert sum(2 if "2 x" in line else 1 for line in lines) == 2, finding.notes


def test_storage_is_twice_the_box() -> None:
    program = storage_size.narrow_rows.build(mistake="none")
    assert program.placement["sB"] - program.placement["sA"] == 2 * program.maps[0].box_bytes


@pytest.mark.parametrize(("fence", "warps"), [("none", {0, 1, 2, 3}), ("one writer", {1, 2, 3})])
def test_each_writer_without_a_fence_is_named(fence: str, warps: set[int]) -> None:
    """B035."""
    report = failed(store_fence.staged_store, fence=fence)
    assert {finding.participants[1].warp for finding in report.findings} == warps


@pytest.mark.parametrize("tiles", ["", "work idle"])
def test_unknown_words_are_refused(tiles: str) -> None:
    with pytest.raises(UsageError, match="must be words 'work' and 'empty'"):
        empty_tiles.block_sparse.build(tiles=tiles)
