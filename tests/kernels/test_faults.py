"""Kernels with faults (`tests.kernels.faults`): what is said of each.

Verdict, rules, the lines to change first, and roles and lines of the first finding are those of
`tests/verdicts/rows/reported.jsonl`; why that is so, and what mends it, is here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from tests.verdicts.files import deciding, kept
from tests.verdicts.row import row_of
from tilesim import Builder, InvalidProgram, check, kernel
from tilesim.dsl.kernel import Kernel
from tilesim.ir.program import Strict
from tilesim.lib.opening import open_cta
from tilesim.mistakes import diagnose
from tilesim.report.text import fold

from . import mistakes, published, reported_rings, reported_tiles, variants, variants_blackwell
from .faults import VARIANTS
from .mutate import line
from .shipping import compiled

NAMED = {variant.name: variant for variant in VARIANTS}
ROWS = {key: replace(row, recheck="") for key, row in kept("reported").items()}

#: by kernel, a part of the cause of the first finding at `practice`
CAUSES: Mapping[str, str] = {
    "variants::persistent[fault=parity]": "has not waited for phase 0",
    "variants::two_queries[fault=guard]": "waits on k_empty[0] a second time, and",
    "variants::two_queries[fault=query]": "slot 1 is accessed after a wait on q_full[0]",
    "variants::two_queries[fault=meeting]": "arrives on v_empty[0] for group 1 (warp 4)",
    "variants::ring_of_stores[fault=alone]": "and warp 1 does not wait for warp 0",
    "variants::copies_by_lanes[fault=warps]": "for the copies of that lane",
    "variants::copies_by_lanes[fault=slot]": "names another slot than the one used",
    "variants::quarters[fault=part]": "complete the same phase of CTA 0 full[0] fill the",
    "variants::neighbours[fault=relaxed]": "is relaxed: it releases nothing",
    "variants::in_order[fault=before]": "waits for a flag for CTA 1 warp 1 as well",
    "variants::in_order[fault=behind]": "sets a flag for CTA 0 warp 1 as well",
    "variants::in_order[fault=scope]": "has scope cta, and the other side is in another",
    "variants::in_order[fault=skip]": "polls turn[0] for another value than it holds",
    "variants::one_in_flight[fault=fence]": "no wgmma.fence comes between",
    "variants::one_in_flight[fault=first]": "arrives on empty[2] before it has waited",
    "variants::one_in_flight[fault=last]": "no wait_group 0 follows the last",
    "variants::maps_by_turns[fault=acquire]": "acquire comes before this use",
    "variants::two_lives[fault=early]": "wait for all users before mbarrier.inval",
    "variants::behind_a_grid[fault=none]": "the kernel does not wait for earlier grids",
    "variants::behind_a_grid[fault=late]": "griddepcontrol.wait comes after the access that needs "
    "it",
    "variants::across_warps[fault=warp]": "no instruction before the access of warp 0",
    "variants::numbers_drawn[fault=slot]": "is accessed after a wait on CTA 0 full[1]",
    "variants::own_state[fault=wrap]": "the slot of the arrivals returns to 0 before this one",
    "variants::own_state[fault=always]": "has not waited for phase 0",
    "variants::query_per_tile[fault=early]": "arrival on q_empty[0] releases what read",
    "variants_blackwell::pair_of_ctas[fault=own]": "on the barrier of another CTA",
    "variants_blackwell::pair_of_ctas[fault=free]": "wait for epilogue (CTA 0",
    "variants_blackwell::scores_in_place[fault=begin]": (
        "wait for the initialisation of the barriers"
    ),
    "variants_blackwell::scores_in_place[fault=unasked]": "no warp waits for it",
    "variants_blackwell::scores_in_place[fault=loading]": (
        "no tcgen05.wait comes between this tcgen05.ld and tcgen05.st"
    ),
    "variants_blackwell::scores_in_place[fault=ahead]": "this wait passes at once",
    "variants_blackwell::two_answers[fault=slot]": "passes a second time on CTA 0 full[0]",
    "variants_blackwell::two_answers[fault=none]": "waits on no barrier on which scheduler",
    "mistakes::ring[fault=lanes]": "all 32 lanes execute mbarrier.arrive.expect_tx",
    "mistakes::ring[fault=all]": "all 32 lanes execute mbarrier.arrive on",
    "mistakes::ring[fault=again]": "again and has not waited",
    "mistakes::ring[fault=slot]": "the copy fills slot",
    "mistakes::ring[fault=unwaited]": "and no warp waits for it",
    "mistakes::ring[fault=twice]": "initialised with 4, and 8 arrivals",
    "mistakes::turns[fault=count]": "2 warps join the named barrier",
    "mistakes::turns[fault=id]": "no other warp joins named barrier 3",
    "mistakes::turns[fault=trips]": "joins named barrier 1 5 times",
    "mistakes::turns[fault=unwaited]": "no warp waits there",
    "mistakes::turns[fault=stray]": "4 warps join the named barrier",
    "mistakes::staged[fault=late]": "cp.async.wait_group 2 does not wait",
    "mistakes::staged[fault=uncommitted]": "cp.async is never committed",
    "mistakes::in_a_row[fault=cycle]": "each of these warps waits before",
    "mistakes::in_a_row[fault=exit]": "two (warp 1) exits before it",
    "mistakes::in_a_row[fault=once more]": "the last arrival counted for phase 0",
    "mistakes::pair[fault=bytes]": "4096 bytes are expected on CTA 0 full[0]",
    "mistakes::pair[fault=rank]": "initialised with 8, and 16 arrivals",
    "mistakes::stored[fault=by itself]": "do not synchronise between the two",
    "mistakes::stored[fault=not met]": "makes it wait for",
    "pipeline_mistakes::attention[fault=count]": "v_empty[0] is initialised with 1, and 2 arrivals",
    "pipeline_mistakes::attention[fault=no acquire]": "arrives on v_empty[0], and no warp waits",
    "pipeline_mistakes::attention[fault=other array]": "completes its bytes on k_full[0]",
    "pipeline_mistakes::attention[fault=early]": "this arrival releases what wgmma.mma_async still",
    "pipeline_mistakes::attention[fault=own id]": "barrier 2 counts 256 threads, and only 4 w",
    "pipeline_mistakes::multicast[fault=one of two]": "is initialised with 1, and 2 arrivals",
    "pipeline_mistakes::multicast[fault=no mask]": "12288 completed: one copy is not multicast",
    "pipeline_mistakes::multicast[fault=own rank]": "not until math (CTA 1 warp",
    "pipeline_mistakes::multicast[fault=no barrier]": "waits for cp.async.bulk.tensor.store, and",
    "pipeline_mistakes::accumulators[fault=flips]": "its parity changes before all slots",
    "pipeline_mistakes::accumulators[fault=never flips]": "its parity does not follow the uses",
    "pipeline_mistakes::accumulators[fault=trips]": "phase 1 of ready[1], the last one",
    "pipeline_mistakes::groups[fault=seldom]": "do not execute cp.async.commit_group",
    "more_hopper::ping_pong[skips=False]": "each of these warps waits before",
    "more_hopper::last_block[fault=relaxed]": "atom is relaxed: it releases nothing",
    "more_hopper::last_block[fault=no barrier]": "without a barrier of threads before",
    "more_hopper::shared_halves[everywhere=False]": (
        "until consumer (CTA 0 warp 0) has read, not until consumer (CTA 1 warp 0) has"
    ),
    "more_hopper::cp_async_ring[noinc=False]": "without .noinc adds its arrivals to the count of",
    "more_hopper::cp_async_ring[early=True]": "does not wait for cp.async",
    "more_hopper::row_gather[counted=False]": (
        "512 bytes are expected on full[1] per phase and 384 completed"
    ),
    "more_hopper::tile_counter[asks=False]": "tile_empty[0], and no warp waits for it",
    "more_hopper::stream_k[fault=relaxed]": "this ld is relaxed: it orders no accesses",
    "more_hopper::pushed_sums[senders=3]": (
        "384 bytes are expected on CTA 0 b[0] per phase and 256 completed"
    ),
    "more_hopper::pushed_sums[senders=1]": (
        "128 bytes are expected on CTA 0 b[0] per phase and 256 completed"
    ),
    "more_memory::stored_partials[read=True]": "not until it has written",
    "more_memory::shared_release[groups=1]": (
        "until group 0 (warp 0) has read, not until group 1 (warp 4) has"
    ),
    "more_memory::uneven_rounds[even=False]": "joins the cluster barrier 3 times",
    "more_memory::foreign_group[own=False]": "has committed no group",
    "more_blackwell::two_accumulators[fault=no acquire]": (
        "epilogue (warp 0) arrives on acc_empty[0], and no warp waits for it"
    ),
    "more_blackwell::two_accumulators[fault=other stage]": (
        "accesses what completes on acc_full[1], and has waited on acc_full[0]"
    ),
    "more_blackwell::two_q_stages[fault=swapped]": "the commit after tcgen05.mma is on s_full[",
    "more_blackwell::pair_ring[tail=False]": "does not wait for the last arrivals",
    "more_blackwell::foreign_commit[fault=other warp]": (
        "tcgen05.commit of helper (warp 5) covers only operations of its own thread"
    ),
    "more_blackwell::two_mma_warps[ordered=False]": (
        "first (warp 4) arrives on turn[0], and no warp waits for it"
    ),
    "more_blackwell::answers_ahead[wraps=False]": "this wait passes at once",
}
#: by kernel, a part of how that finding is to be mended
FIXES: Mapping[str, str] = {
    "mistakes::ring[fault=lanes]": "one lane",
    "mistakes::ring[fault=all]": "one lane",
    "mistakes::ring[fault=again]": "before the next arrival on",
    "mistakes::ring[fault=slot]": "name the barrier of slot",
    "mistakes::ring[fault=unwaited]": "wait for full[0]",
    "mistakes::ring[fault=twice]": "4 instead of 8",
    "mistakes::turns[fault=count]": "join with 64",
    "mistakes::turns[fault=id]": "named barrier 3",
    "mistakes::turns[fault=trips]": "named barrier 1",
    "mistakes::turns[fault=unwaited]": "join named barrier 1",
    "mistakes::turns[fault=stray]": "all 128 threads",
    "mistakes::staged[fault=late]": "fewer groups than 2",
    "mistakes::staged[fault=uncommitted]": "commit_group after",
    "mistakes::in_a_row[fault=cycle]": "arrive first",
    "mistakes::in_a_row[fault=exit]": "arrive on b[2]",
    "mistakes::in_a_row[fault=once more]": "do not wait",
    "mistakes::pair[fault=bytes]": "8192 instead of 4096",
    "mistakes::pair[fault=rank]": "meant for CTA 1 empty[0] name it",
    "mistakes::stored[fault=by itself]": "bar.warp.sync",
    "mistakes::stored[fault=not met]": "let warp 1 wait for warp 0: a barrier",
}
#: where the kernels are whose faults are one headline each
HEADLINES = ("variants", "variants_blackwell", "mistakes")


def rows() -> Iterator[Any]:
    """Programs and levels: of those of which nothing is said beside, every third one; the others in
    campaigns, as in ``python -m tests.verdicts compare``."""
    for number, (name, level) in enumerate(deciding(ROWS)):
        told = name in CAUSES or NAMED[name].module in HEADLINES
        yield pytest.param(name, level, marks=() if told or number % 3 == 0 else pytest.mark.slow)


@pytest.mark.parametrize(("name", "level"), [*rows()])
def test_a_kernel_is_judged_as_the_verdict_file_says(
    name: str, level: Strict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnose, "RAISES", True)
    variant = NAMED[name]
    report = check(variant.kernel.build(**variant.params), strict=level, inputs=variant.inputs)
    assert row_of(name, report, level) == ROWS[name, level]
    if level != "practice" or variant.is_right:
        return
    first = report.findings[0] if report.findings else None
    if variant.line is not None:
        assert first
        assert first.locations[0].line == variant.line
    if name in CAUSES:
        assert first
        assert CAUSES[name] in first.cause
        assert FIXES.get(name, "") in first.fix
    if variant.module in HEADLINES:
        assert len(fold(report.findings)) == 1


def test_right_ones_are_right_and_wrong_ones_fail() -> None:
    """At `practice`; what is right only there, or wrong only at `ptx`, is named."""
    said = {variant.name: ROWS[variant.name, "practice"].verdict for variant in VARIANTS}
    right = {variant.name for variant in VARIANTS if variant.is_right}
    assert {name for name in right if said[name] not in ("proved", "exhausted")} == set()
    proved = {name for name in said.keys() - right if said[name] != "failed"}
    assert proved == {"more_memory::stored_operand[by=cp.async,fence=False]"}
    assert {ROWS[name, "ptx"].verdict for name in proved} == {"failed"}


def test_each_cause_is_of_a_kernel() -> None:
    assert {variant.name for variant in VARIANTS if not variant.is_right} >= CAUSES.keys()
    assert CAUSES.keys() >= FIXES.keys()


def test_a_role_is_named_for_what_is_in_its_region() -> None:
    finding = check(mistakes.in_a_row.build(fault="exit")).findings[0]
    chain = [note for note in finding.notes if " waits on b[0]" in note]
    assert chain[0].startswith("last (warp 0) waits on b[0] parity 0")  # not "one", its other role
    inits = check(mistakes.ring.build(fault="twice")).findings[0].culprits[1]
    assert (inits.role, inits.action) == ("warp 0", "initialises empty[0] with 4")


def test_equal_contributions_of_several_warps_are_one_line() -> None:
    @kernel(warps=5)
    def too_many(k: Builder) -> None:
        b = k.mbarriers("b")
        open_cta(k, (b, 5))
        with k.role("four", range(4)), k.elected():
            k.mbarrier.arrive(b)
        with k.role("last", 4):
            k.mbarrier.wait(b, 0)

    finding = check(too_many.build()).findings[0]
    assert finding.cause == "b[0] is initialised with 5, and 4 arrivals are made on it per use"
    actions = [p.action for p in finding.culprits]
    assert "makes 1 arrival on b[0] each time, as 4 warps do: 4 in all" in actions
    made = [note.partition(" at ")[0] for note in finding.notes if " by " in note]
    assert made == ["  1 arrival each by mbarrier.arrive of four (warps 0-3)"]


def test_another_group_is_refused_before_it_runs() -> None:
    """tile-ai/tilelang#2287."""
    with pytest.raises(InvalidProgram, match=r"cta_group::1 in a kernel that has .*cta_group::2"):
        check(published.two_groups.build(fault="commit"))


@pytest.mark.parametrize(
    ("kernel", "fault", "sends"),
    [
        (published.answer_as_barrier, "peer", "clusterlaunchcontrol.try_cancel"),
        (published.both_sides, "free", "st.async"),
    ],
)
def test_bytes_hand_over_themselves(kernel: Kernel, fault: str, sends: str) -> None:
    """What is named first is who was taken to hand on, not a wait that is there."""
    finding = check(kernel.build(fault=fault)).findings[0]
    assert finding.cause.startswith(f"the completion of {sends} on")
    assert [p.action.split()[0] for p in finding.culprits] == ["sends", "waits"]


def test_a_fence_of_tensor_memory() -> None:
    """NVIDIA/cudnn-frontend#569: stores are handed on without the fence, which practice accepts."""
    kernel = reported_tiles.rescaled
    first = check(kernel.build(fault="fence"), strict="ptx").findings[0]
    assert first.rule == "tcgen05-order"
    assert first.locations[0].line == line(kernel, "# BUG: without a fence")
    assert check(kernel.build(fault="fence")).verdict == "proved"


def test_a_warp_that_arrives_and_waits_in_one_round() -> None:
    """Dao-AILab/flash-attention#1389: the last of eight warps is counted twice, by choice."""
    kernel = reported_rings.stores_for_its_own
    assert check(kernel.build()).verdict == "proved"
    assert check(kernel.build(), strict="ptx").rules == {"named-barrier"}  # E6
    first = check(kernel.build(fault="count")).findings[0]
    assert first.rule == "deadlock"
    assert first.locations[0].line == line(kernel, "# BUG: once more")


@pytest.mark.parametrize(("strict", "verdict"), [("practice", "proved"), ("ptx", "failed")])
def test_one_line_in_three_roles_is_three_aligned_barriers(strict: Strict, verdict: str) -> None:
    """A Python loop over roles writes an instruction for each of them (U16)."""
    report = check(compiled.three_roles.build(aligned=True), strict=strict)
    assert report.verdict == verdict
    assert report.rules == (frozenset() if verdict == "proved" else {"participation"})


@pytest.mark.parametrize(
    ("kernel", "fault", "repair"),
    [
        (reported_rings.tiles_left_out, "expects", "mbarrier.arrive.expect_tx of 0 bytes instead"),
        (reported_rings.tiles_left_out, "silent", "mbarrier.arrive on full[i % 2] also where"),
        (reported_rings.tiles_left_out, "inside", "elect.sync after the if"),
        (reported_rings.tiles_left_out, "lanes", "bar.warp.sync after ld"),
        (reported_rings.groups_in_order, "own", "barrier order[1] instead of order[0]"),
        (reported_rings.stores_for_its_own, "count", "threads 288 instead of 256"),
        (reported_rings.flag_behind_a_copy, "scope", "scope gpu instead of cta in fence"),
        (variants.persistent, "parity", "phase (n1 // 3) & 1 instead of"),
        (variants.two_queries, "guard", "barrier v_empty[i % 2] instead of k_empty[i % 2]"),
        (variants.ring_of_stores, "alone", "barrier.sync before st"),
        (variants.one_in_flight, "last", "wgmma.wait_group before tile.store"),
        (variants.maps_by_turns, "acquire", "fence.proxy.tensormap::generic.acquire before"),
        (variants_blackwell.pair_of_ctas, "own", "barrier full[i % 2].at(0) instead of"),
    ],
    ids=lambda value: value.name if isinstance(value, Kernel) else None,
)
def test_the_real_fix_is_suggested_first(kernel: Kernel, fault: str, repair: str) -> None:
    repairs = check(kernel.build(fault=fault), suggest=timedelta(minutes=10)).repairs
    assert repairs is not None
    first = repairs.found[0]
    assert first.what.startswith(repair), repairs
    assert check(first.program).verdict == "proved"
