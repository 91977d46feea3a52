"""Bugs of tensor memory, CTA pairs and cluster launch control: found, explained, and fixed."""

from __future__ import annotations

import pytest

from tilesim.checker import check
from tilesim.kernels.bugs import cta_pairs, launch_control, tensor_memory
from tilesim.kernels.outcome import run
from tilesim.kernels.registry import Case

from .evidence import assert_computes, at, failed, first, name, sites

MODULES = (tensor_memory, cta_pairs, launch_control)
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_verdict_is_the_expected_one(case: Case) -> None:
    outcome = run(case)
    assert outcome.ok, (outcome.verdict, outcome.problems)


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.expected == "proved" and c.kernel.reference is not None],
    ids=name,
)
def test_fixed_kernel_equals_numpy(case: Case) -> None:
    assert_computes(case, [("timed", 3), ("random", 3)], empty=True)


def test_b045_names_the_mma_and_the_load() -> None:
    kernel = tensor_memory.hand_over
    finding = first(check(kernel.build(), strict="ptx"), "tcgen05-order")
    assert sites(finding) == {
        ("mma", at(kernel, "k.tcgen05.mma(")), ("epilogue", at(kernel, "# BUG"))
    }  # fmt: skip
    assert "fence" in finding.message
    assert "after_thread_sync" in finding.fix


def test_b047_names_the_store_that_is_not_waited_for() -> None:
    kernel = tensor_memory.unwaited_store
    finding = first(failed(kernel), "tcgen05-order")
    last = at(kernel, "k.tcgen05.mma(o, p[:, DEPTH:]")
    assert sites(finding) == {("softmax", at(kernel, "# BUG")), ("mma", last)}
    assert "wait::st" in finding.fix


def test_b050_names_the_load_that_may_still_run() -> None:
    kernel = tensor_memory.freed_while_read
    finding = failed(kernel).findings[0]
    assert finding.rule == "tmem-lifetime"
    assert ("mma", at(kernel, "# BUG")) in sites(finding)
    assert ("epilogue", at(kernel, "k.tcgen05.ld(acc, d)")) in sites(finding)


def test_b053_is_a_race_on_the_address_only_without_tiles() -> None:
    kernel = tensor_memory.address_without_tiles
    finding = first(failed(kernel), "race")
    assert sites(finding) == {
        ("mma", at(kernel, "k.tcgen05.alloc(")), ("epilogue", at(kernel, "# BUG"))
    }  # fmt: skip


def test_b054_says_that_the_columns_can_never_be_had() -> None:
    kernel = tensor_memory.over_allocated
    finding = first(failed(kernel), "tmem-lifetime")
    assert ("owner", at(kernel, "# BUG")) in sites(finding)
    assert "64 columns" in finding.message
    assert "512 of 512" in finding.message


def test_b067_names_the_second_read() -> None:
    kernel = tensor_memory.released_between_reads
    finding = first(failed(kernel), "tcgen05-order")
    store = at(kernel, "k.tcgen05.st(largest, new)")
    assert sites(finding) == {("softmax", store), ("correction", at(kernel, "# BUG"))}
    assert "row_max" in finding.message


def test_b049_names_the_copy_of_the_odd_cta() -> None:
    kernel = cta_pairs.pair
    finding = first(failed(kernel, ready="own"), "race")
    copies = {("mma", at(kernel, "# A of this CTA")), ("mma", at(kernel, "# B of this CTA"))}
    assert ("mma", at(kernel, "# BUG: of both CTAs")) in sites(finding)
    assert sites(finding) & copies
    assert {p.cta for p in finding.participants} == {0, 1}


def test_b051_names_the_load_of_the_other_cta() -> None:
    kernel = cta_pairs.pair
    report = failed(kernel, rendezvous=False)
    finding = first(report, "tmem-lifetime")
    assert ("owner", at(kernel, "# BUG: the other CTA may still read")) in sites(finding)
    assert {p.cta for p in finding.participants} == {0, 1}


def test_b069_names_the_load_of_the_odd_cta() -> None:
    kernel = cta_pairs.pair
    finding = first(failed(kernel, release="own"), "tcgen05-order")
    assert sites(finding) == {
        ("mma", at(kernel, "# BUG: of both CTAs")), ("epilogue", at(kernel, "k.tcgen05.ld(acc, d)"))
    }  # fmt: skip
    assert {p.cta for p in finding.participants} == {0, 1}


def test_b009_names_the_read_and_the_next_request() -> None:
    kernel = launch_control.answer
    finding = first(failed(kernel, arrive="before"), "race")
    request = ("scheduler", at(kernel, "k.clc.try_cancel("))
    assert request in sites(finding)
    lines = {line for _, line in sites(finding)}
    assert lines & {at(kernel, "# BUG"), at(kernel, "k.clc.query_first_ctaid(")}


def test_b009_number_is_read_before_it_is_published() -> None:
    kernel = launch_control.tile_ids
    finding = first(failed(kernel, mistake="unpublished"), "race")
    assert {line for _, line in sites(finding)} == {
        at(kernel, "k.mem.store(number[0]"), at(kernel, "# BUG")
    }  # fmt: skip
    assert "scheduler" in {role for role, _ in sites(finding)}


@pytest.mark.parametrize(("mistake", "readers"), [("early", 3), ("uncounted", 1)])
def test_b009_number_is_overwritten_while_it_is_read(mistake: str, readers: int) -> None:
    kernel = launch_control.tile_ids
    races = [f for f in failed(kernel, mistake=mistake).findings if f.rule == "race"]
    pairs = [sites(f) for f in races]
    write, read = at(kernel, "k.mem.store(number[0]"), at(kernel, "# BUG")
    assert all({line for _, line in pair} == {write, read} for pair in pairs)
    roles = {role for pair in pairs for role, _ in pair} - {"scheduler"}
    assert len(roles) == readers
    assert "store" in roles


@pytest.mark.parametrize("tiles", [1, 2, 9])
def test_b009_every_tile_is_done_once(tiles: int) -> None:
    assert check(launch_control.tile_ids.build(tiles=tiles), strict="ptx").verdict == "proved"


def test_b053_is_hidden_by_a_tile() -> None:
    for fixed in (False, True):
        program = tensor_memory.address_without_tiles.build(tiles=1, fixed=fixed)
        assert check(program).verdict == "proved"


def test_b054_columns_that_are_no_power_of_two_are_refused() -> None:
    outcome = run(Case(tensor_memory.over_allocated, {"last": 48}, "bugs", "rejected"))
    assert outcome.ok
    assert "48 columns are no power of two" in outcome.problems[0].message


def test_b117_names_the_query_that_saw_the_failure() -> None:
    kernel = launch_control.blind_requests
    finding = first(failed(kernel), "launch-control")
    query = at(kernel, "k.clc.query_is_canceled(")
    assert sites(finding) == {("scheduler", query), ("scheduler", at(kernel, "# BUG"))}
