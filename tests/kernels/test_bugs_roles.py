"""Roles that disagree, guards that guard nothing, tiles without work: found, explained, fixed."""

from __future__ import annotations

from typing import Any

import pytest

from tilesim.checker import check, replay
from tilesim.errors import InvalidProgram, UsageError
from tilesim.kernels.bugs import empty_tiles, reuse_guards, role_agreement
from tilesim.kernels.bugs.empty_tiles import block_sparse
from tilesim.kernels.bugs.reuse_guards import staging_guard, token_guard
from tilesim.kernels.bugs.role_agreement import (
    foreign_tail,
    idle_cta,
    packed_split,
    release_behind_work,
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
    name,
    notes,
    sites,
    symptoms,
)

MODULES = (empty_tiles, reuse_guards, role_agreement)
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)
ENTRIES = {"B018", "B057", "B058", "B103", "B105", "B108", "B109"}


def every(expected: str) -> list[Case]:
    return [case for case in CASES if case.expected == expected]


# ------------------------------------------------------------------ all cases


def test_every_entry_fails_and_is_fixed() -> None:
    assert {case.source for case in CASES if case.fails} == ENTRIES
    assert {case.source for case in CASES if not case.fails} == ENTRIES


@pytest.mark.parametrize("case", CASES, ids=name)
def test_case_is_as_expected(case: Case) -> None:
    assert_as_expected(case)


@pytest.mark.parametrize("case", every("proved"), ids=name)
def test_correct_kernel_equals_numpy(case: Case) -> None:
    assert_computes(case, [("timed", 3), ("random", 3)], empty=True)


@pytest.mark.parametrize("case", every("failed"), ids=name)
def test_witness_replays_to_the_same_findings(case: Case) -> None:
    assert_replays(case)


# ------------------------------------------------------------------ B103, B105, B108, B109


def test_b103_shows_what_waits_for_the_roles_with_an_empty_range() -> None:
    finding = found(failed(packed_split), "deadlock")
    assert {
        ("softmax", at(packed_split, "# waits for scores")),
        ("correction", at(packed_split, "# waits for sums")),
    } <= sites(finding)
    commit = at(packed_split, "k.tcgen05.commit(target.full)")
    notes(
        finding,
        "s_full[0] phase 0: 1 of 1",
        "mma (warp 9) would arrive at",
        f":{commit}, but does not come to it from where it stands",
    )


def test_b103_hangs_on_every_schedule() -> None:
    assert symptoms(packed_split, seeds=10) == {"deadlock"}


@pytest.mark.parametrize("split", [0, 1, 2])
def test_b103_every_split_is_right_once_all_roles_unpack(split: int) -> None:
    program = packed_split.build(blocks=5, splits=3, split=split, fixed=True)
    assert check(program, strict="ptx").verdict == "proved"


def test_b105_names_the_cta_without_a_tile() -> None:
    finding = found(failed(idle_cta, tiles=1), "deadlock")
    (waiter,) = finding.participants
    assert (waiter.role, waiter.cta) == ("epilogue load", 1)
    assert waiter.loc.line == at(idle_cta, "# BUG")
    notes(finding, "no warp that is still alive executes an instruction that arrives on it")


def test_b108_shows_the_cycle_of_the_two_roles() -> None:
    finding = found(failed(release_behind_work), "deadlock")
    assert sites(finding) == {
        ("producer", at(release_behind_work, "# waits for the release")),
        ("consumer", at(release_behind_work, "# waits for Q")),
    }
    release = at(release_behind_work, "# BUG")
    notes(finding, f"consumer (warp 0) could release it at {finding.locations[0].file}:{release}")
    notes(finding, "cycle: consumer (warp 0) -> producer (warp 8) -> consumer (warp 0)")


@pytest.mark.parametrize(("seq", "verdict"), [(248, "proved"), (249, "failed"), (256, "proved")])
def test_b108_depends_on_the_alignment_of_a_row(seq: int, verdict: str) -> None:
    assert check(release_behind_work.build(seq=seq)).verdict == verdict


def test_b109_only_some_schedules_hang_and_the_witness_is_one() -> None:
    runs = [simulate(foreign_tail.build(), policy="random", seed=seed) for seed in range(20)]
    hangs = {any(f.rule == "deadlock" for f in run.findings) for run in runs}
    assert hangs == {True, False}
    report = failed(foreign_tail)
    finding = found(report, "deadlock")
    assert sites(finding) == {("group 0", at(foreign_tail, "# BUG"))}
    notes(finding, "empty[0] phase 1: 1 of 1 arrivals pending")
    assert report.witness is not None
    assert "deadlock" in {f.rule for f in replay(foreign_tail.build(), report.witness).findings}


def test_b109_names_the_release_that_comes_too_early_for_the_tail() -> None:
    finding = found(failed(foreign_tail), "phase-alias")
    assert sites(finding) == {
        ("group 0", at(foreign_tail, "# BUG")),
        ("epilogue", at(foreign_tail, "k.mbarrier.arrive(empty)")),
    }


# ------------------------------------------------------------------ B057, B058


def test_b057_token_without_a_release_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidProgram) as refused:
        check(token_guard.build())
    (problem,) = refused.value.diagnostics
    assert problem.rule == "deadlock"
    assert problem.loc.line == at(token_guard, "# BUG")
    assert "no instruction of the kernel arrives on token" in problem.message


def test_b057_without_a_guard_dq_overwrites_what_dk_reads() -> None:
    finding = found(failed(token_guard, guard="none"), "tcgen05-order")
    assert sites(finding) == {
        ("dq mma", at(token_guard, "# overwrites dsT")),
        ("dk mma", at(token_guard, "k.tcgen05.mma(dk, ds_t, q")),
    }


@pytest.mark.parametrize("guard", ["constant", "constant phase"])
def test_b058_the_next_load_overwrites_what_the_store_reads(guard: str) -> None:
    report = failed(staging_guard, guard=guard)
    load = ("load", at(staging_guard, "k.tma.load(v_map"))
    store = ("epilogue", at(staging_guard, "k.tma.store("))
    races = [f for f in report.findings if f.rule == "race"]
    assert {load, store} in [sites(f) for f in races]


# ------------------------------------------------------------------ B018


def test_b018_flipped_phase_waits_for_an_accumulator_nobody_computes() -> None:
    finding = found(failed(block_sparse), "deadlock")
    assert ("correction", at(block_sparse, "k.mbarrier.wait(o_full")) in sites(finding)
    notes(finding, "o_full[0] phase 2: 1 of 1 arrivals pending")


def test_b018_flipped_phase_shows_up_in_some_schedules_only() -> None:
    program = block_sparse.build()
    hangs = {
        "deadlock" in {f.rule for f in simulate(program, policy="random", seed=seed).findings}
        for seed in range(30)
    }
    assert hangs == {True, False}


@pytest.mark.parametrize("empty", [1, 2, 3, 4])
def test_b018_an_even_number_of_empty_rows_hides_the_flip(empty: int) -> None:
    program = block_sparse.build(tiles=" ".join(["work", *["empty"] * empty, "work"]))
    assert check(program).verdict == ("failed" if empty % 2 else "proved")


def test_b018_extra_arrivals_let_the_mma_overwrite_an_accumulator_in_use() -> None:
    finding = first(failed(block_sparse, mistake="p arrivals"), "tcgen05-order")
    assert sites(finding) == {
        ("mma", at(block_sparse, "k.tcgen05.mma(o, p, v")),
        ("correction", at(block_sparse, "k.tcgen05.ld(acc, o)")),
    }
    notes(finding, "p_full[0] phase 1", f":{at(block_sparse, '# BUG: no mma waits')}")


@pytest.mark.parametrize("mistake", ["own empty", "no wait"])
def test_b018_statistic_is_overwritten_while_it_is_read(mistake: str) -> None:
    finding = first(failed(block_sparse, mistake=mistake), "race")
    assert sites(finding) == {
        ("softmax", at(block_sparse, "statistic[k.thread_id], 0.0")),
        ("correction", at(block_sparse, "k.mem.load(value")),
    }


@pytest.mark.parametrize("tiles", ["", "work idle"])
def test_b018_unknown_words_are_refused(tiles: str) -> None:
    arguments: dict[str, Any] = {"tiles": tiles}
    with pytest.raises(UsageError, match="must be words 'work' and 'empty'"):
        block_sparse.build(**arguments)
