"""What a proof leans on: each switch of practice that was used, and each assumption, with lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

import tilesim as ts
from tilesim.analysis.cfg import FlowGraph
from tilesim.analysis.elected_lane import depends_on_elected
from tilesim.checker import check, verdict
from tilesim.checker.assumptions import SWITCHES, denied, require_names
from tilesim.checker.report import Report
from tilesim.ir.effects import Elects
from tilesim.ir.loc import Loc
from tilesim.kernels.blackwell import attention
from tilesim.kernels.bugs import (
    cluster_arrivals,
    cluster_phases,
    launch_control,
    named_barriers,
    proxy_fences,
    register_pool,
    tensor_memory,
)
from tilesim.kernels.hopper import matmul_v5
from tilesim.kernels.nvfuser import chained
from tilesim.sim.machine.simulate import Simulation
from tilesim.transforms.lower import lower

Make = Callable[[], ts.Program]


def lines(program: ts.Program, mark: str) -> set[int]:
    """Lines of the kernel's file that end with a comment."""
    with open(program.loc.file, encoding="utf-8") as file:
        return {n for n, line in enumerate(file, 1) if line.rstrip().endswith(f"# {mark}")}


# -------------------------------------------------------------------- each with its nearest twin


@ts.kernel(warps=2)
def overwritten(k: ts.Builder, *, fence: bool = False) -> None:
    """A copy overwrites what the lanes have read, with or without a proxy fence between (U12)."""
    source = k.tensor("source", ts.s32, (2, 32))
    out = k.tensor("out", ts.s32, (2, 32))
    box = k.shared("box", ts.s32, (32,))
    full, empty = k.mbarriers("full"), k.mbarriers("empty")
    value = k.var("value")
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.init(empty, 32)
    k.sync_threads()
    with k.role("producer", 0), k.elected(), k.loop(2) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mbarrier.arrive_expect_tx(full, 128)
        k.bulk.load(box, source[i], full)  # U12
    with k.role("consumer", 1), k.loop(2) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(value, box[k.lane_id])  # U12
        k.mem.store(out[i, k.lane_id], value)
        if fence:
            k.fence.proxy_async("shared::cta")
        k.mbarrier.arrive(empty)


@ts.kernel(warps=1)
def after_election(k: ts.Builder, *, told: bool = False) -> None:
    """The elected lane writes for lane 0, or tells all (E12)."""
    x = k.shared("x", ts.s32, (1,))
    out = k.tensor("out", ts.s32, (32,))
    value = k.var("value")
    with k.elected():
        k.mem.store(x[0], 1 if told else k.lane_id)  # E12
    k.sync_warp()
    k.mem.load(value, x[0])
    with k.if_(value.eq(1)):
        k.mem.store(out[k.lane_id], value)


@ts.kernel(warps=2)
def two_sites(k: ts.Builder, *, aligned: bool = True) -> None:
    """Two roles meet at a barrier, each at a place of its own (U16)."""
    with k.role("first", 0):
        k.bar.sync(1, 64, aligned=aligned)  # U16
    with k.role("second", 1):
        k.bar.sync(1, 64, aligned=aligned)  # U16


def test_a_copy_over_what_was_read() -> None:
    program = overwritten.build(fence=False)
    report = check(program)
    (one,) = (one for one in report.leanings if one.conditional)
    assert (report.verdict, one.name, one.kind) == ("proved", "U12", "practice")
    assert {loc.line for loc in one.locs} == lines(program, "U12")
    assert check(overwritten.build(fence=True)).conditions == ()


@ts.kernel(warps=2)
def handed_to_the_proxy(k: ts.Builder, *, fence: bool = False) -> None:
    """A bulk copy stores what cp.async has brought, with or without a proxy fence (U14)."""
    source = k.tensor("source", ts.s32, (2, 64))
    out = k.tensor("out", ts.s32, (2, 64))
    box = k.shared("box", ts.s32, (64,))
    mine = k.warp_id * 32 + k.lane_id
    with k.loop(2) as i:
        k.cp_async.copy(box[mine], source[i, mine], size=4)  # U14
        k.cp_async.wait_all()
        if fence:
            k.fence.proxy_async("shared::cta")
        k.sync_threads()
        with k.one_thread():
            k.bulk.store(out[i], box)  # U14
            k.bulk.commit_group()
            k.bulk.wait_group(0)
        k.sync_threads()


def test_what_cp_async_has_brought() -> None:
    program = handed_to_the_proxy.build(fence=False)
    report = check(program)
    (one,) = (one for one in report.leanings if one.conditional)
    assert (report.verdict, one.name, one.kind) == ("proved", "U14", "practice")
    assert {loc.line for loc in one.locs} == lines(program, "U14")


def test_a_fence_behind_cp_async_needs_no_second_look() -> None:
    program = handed_to_the_proxy.build(fence=True)
    simulation = Simulation(program, numbers=False, strict="practice")
    assert check(program).conditions == ()
    simulation.run({}, lambda cluster: None, [0])
    assert simulation.leaned == set()


@ts.kernel(warps=1)
def received(k: ts.Builder, *, scope: Literal["cta", "cluster"] = "cta") -> None:
    """A peer's copy, a relaxed wait for it, and a fence of some scope behind that (U4)."""
    k.launch(grid=2, cluster=2)
    source, out = k.tensor("source", ts.f32, (32,)), k.tensor("out", ts.f32, (2, 32))
    slot, full, value = (
        k.shared("slot", ts.f32, (32,)),
        k.mbarriers("full"),
        k.var("v", dtype=ts.f32),
    )
    with k.one_thread():
        k.mbarrier.init(full, 1)
        k.mbarrier.arrive_expect_tx(full, slot.nbytes)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.if_(k.cluster_rank.eq(0)), k.elected():
        k.bulk.load(slot, source, full, multicast=0b11)  # U4
    k.mbarrier.wait(full, 0, sem="relaxed", scope="cluster")
    k.fence.memory("acq_rel", scope)
    k.mem.load(value, slot[k.lane_id])  # U4
    k.mem.store(out[k.cta_x, k.lane_id], value)
    k.cluster.sync()


def test_a_fence_behind_a_relaxed_wait_for_what_a_peer_has_copied() -> None:
    program = received.build(scope="cta")
    report = check(program)
    (one,) = (one for one in report.leanings if one.conditional)
    assert (report.verdict, one.name, one.kind) == ("proved", "U4", "practice")
    assert {loc.line for loc in one.locs} == lines(program, "U4")
    assert check(program, strict="ptx").rules == {"race"}
    assert check(received.build(scope="cluster")).conditions == ()


def test_barriers_of_two_roles() -> None:
    program = two_sites.build(aligned=True)
    report = check(program)
    (one,) = (one for one in report.leanings if one.conditional)
    assert (report.said, one.name) == ("proved, leaning on U16", "U16")
    assert {loc.line for loc in one.locs} == lines(program, "U16")
    assert check(two_sites.build(aligned=False)).conditions == ()


def test_which_lane_is_elected() -> None:
    program = after_election.build()
    (election,) = depends_on_elected(FlowGraph(lower(program)))
    assert election in [n for n, _ in lower(program).all_of(Elects)]
    assert depends_on_elected(FlowGraph(lower(after_election.build(told=True)))) == ()


@pytest.mark.parametrize(
    ("leaning", "other", "name"),
    [
        (lambda: cluster_arrivals.cta_scope.build(), None, "U4"),
        (lambda: cluster_phases.rendezvous.build(stages=2),
         lambda: cluster_phases.rendezvous.build(stages=2, fixed=True), "U1"),
        (lambda: tensor_memory.hand_over.build(),
         lambda: tensor_memory.hand_over.build(fixed=True), "U20"),
        (lambda: tensor_memory.address_without_tiles.build(fixed=True), None, "G8"),
        (lambda: named_barriers.aligned_sites.build(), None, "U16"),
        (lambda: proxy_fences.overwritten_after_read.build(), None, "U12"),
        (lambda: register_pool.two_ctas_per_sm.build(fixed=True), None, "U12"),
    ],
    ids=["U4", "U1", "U20", "G8", "U16", "U12", "U12-registers"],
)  # fmt: skip
def test_switches_are_those_without_which_it_fails(
    leaning: Make, other: Make | None, name: str
) -> None:
    program = leaning()
    report = check(program)
    assert report.verdict in ("proved", "exhausted")
    assert name in report.conditions
    strict = check(program, strict="ptx")
    assert strict.verdict == "failed"
    found = {p.loc for finding in strict.findings for p in finding.participants}
    assert found == {loc for one in report.leanings if one.kind == "practice" for loc in one.locs}
    assert other is None or check(other()).conditions == ()


@ts.kernel(warps=1)
def gives_up(k: ts.Builder, *, behind: bool = False) -> None:
    """Two CTAs of a pair give their permits up, one of them before a barrier and the other one, if
    it waits for the first, ``behind`` it (G9)."""
    k.launch(grid=2, cluster=2, target="sm_100a")
    slot, address = k.shared("slot", ts.u32, (1,)), k.var("address", dtype=ts.u32)
    k.cluster.sync()
    k.tcgen05.alloc(slot, 32, cta_group=2)
    k.cluster.sync()
    k.mem.load(address, slot[0])
    for rank in range(2):
        with k.if_(k.cluster_rank.eq(rank)):
            if rank and behind:
                k.cluster.sync()
            k.tcgen05.relinquish_alloc_permit(cta_group=2)
            if not (rank and behind):
                k.cluster.sync()
    k.tcgen05.fence_before_thread_sync()
    k.cluster.sync()
    k.tcgen05.fence_after_thread_sync()
    k.tcgen05.dealloc(address, 32, cta_group=2)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: overwritten.build(fence=False), ("U12",)),
        (lambda: overwritten.build(fence=True), ()),
        (lambda: two_sites.build(), ("U16",)),
        (lambda: tensor_memory.hand_over.build(), ("U20",)),
        (lambda: tensor_memory.hand_over.build(fixed=True), ()),
        (lambda: attention.attention.build(), ()),
        (lambda: gives_up.build(behind=True), ("G9",)),
        (lambda: gives_up.build(), ()),
    ],
    ids=["U12", "fenced", "U16", "U20", "handed-over", "U19-complete", "G9", "G9-together"],
)
def test_one_run_judges_by_both_levels(
    make: Make, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = make()
    text = check(program, strict="ptx").verdict
    monkeypatch.setattr(Simulation, "at", None)
    report = check(program)
    assert (report.verdict, report.conditions) == ("proved", names)
    assert text == ("failed" if names else "proved")


def _places(report: Report) -> dict[str, set[Loc]]:
    return {one.name: {*one.locs} for one in report.leanings if one.kind == "practice"}


def test_a_second_check_names_the_same_places(monkeypatch: pytest.MonkeyPatch) -> None:
    for program in (overwritten.build(), two_sites.build(), tensor_memory.hand_over.build()):
        one_run = _places(check(program))
        with monkeypatch.context() as patch:
            patch.setattr(verdict, "surely_used", lambda mir, may: None)
            assert _places(check(program)) == one_run


def test_kernels_that_the_text_grants_lean_on_nothing() -> None:
    report = check(matmul_v5.matmul.build(stages=2, iterations=5, ctas=1))
    assert report.verdict == "proved"
    assert report.conditions == ()
    assert [(one.name, one.kind) for one in report.leanings] == [
        ("program-order", "model"), ("machine-code", "model"),
    ]  # fmt: skip
    assert report.said == "proved"


# -------------------------------------------------------------------- assumptions


@ts.kernel(warps=8)
def reallocates(k: ts.Builder) -> None:
    """Two warpgroups, one of which gives registers to the other."""
    with k.role("producer", range(4)):
        k.setmaxnreg("dec", 40)  # registers
    with k.role("consumer", range(4, 8)):
        k.setmaxnreg("inc", 232)  # registers


def test_registers_that_nobody_declared() -> None:
    program = reallocates.build()
    report = check(program)
    (one,) = (one for one in report.leanings if one.name == "registers")
    assert (one.kind, one.text in report.covers) == ("assumption", True)
    assert {loc.line for loc in one.locs} == lines(program, "registers")


def test_addresses_and_what_launch_control_grants() -> None:
    report = check(chained.chained.build())
    (one,) = (one for one in report.leanings if one.name == "in-bounds")
    assert one.text in report.covers
    assert one.locs
    report = check(launch_control.answer.build())
    (one,) = (one for one in report.leanings if one.name == "launch-control")
    assert one.text in report.covers


def test_what_is_denied() -> None:
    leanings = check(overwritten.build(fence=False)).leanings
    assert denied(leanings, ["U4"]) == ()
    assert [one.name for one in denied(leanings, ["U12"])] == ["U12"]
    assert [one.name for one in denied(leanings, ["any"])] == ["U12"]
    assert [one.name for one in denied(leanings, ["program-order"])] == ["program-order"]
    assert require_names("U12, any") == {"U12", "any"}
    with pytest.raises(ts.UsageError, match="did you mean U12"):
        require_names(["U-12"])
    assert all(text[0].islower() or text.startswith(("CTA",)) for text in SWITCHES.values())
