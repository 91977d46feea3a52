"""Repairs that are one decision and several lines, and those of accesses and requests too many."""

from __future__ import annotations

from datetime import timedelta

import pytest

import tilesim as ts
from tilesim.ir.program import Program, Strict
from tilesim.kernels.bugs.cluster_lowering import flattened_region
from tilesim.kernels.bugs.cta_pairs import pair
from tilesim.kernels.bugs.launch_control import blind_requests, tile_ids
from tilesim.kernels.bugs.store_bounds import full_last_block
from tilesim.kernels.bugs.tensor_memory import hand_over

#: enough for all of these many times over: the first repair does not depend on it
TIME = timedelta(minutes=1)


@ts.kernel(warps=2)
def no_guard(k: ts.Builder, *, fixed: bool = False) -> None:
    """The last threads of the last CTA are beyond the end of both tensors."""
    k.launch(grid=3)
    X, Y = k.tensor("X", ts.f32, (150,)), k.tensor("Y", ts.f32, (150,))
    value = k.var("value", 0.0)
    here = k.cta_x * 64 + k.thread_id
    if fixed:
        with k.if_(here < 150):
            k.mem.load(value, X[here])
            k.mem.store(Y[here], value)
    else:
        with k.if_(here < 150):
            k.mem.load(value, X[here])
        k.mem.store(Y[here], value)


@ts.kernel(target="sm_100a", warps=1)
def steals(k: ts.Builder, *, mistake: str = "") -> None:
    """A CTA takes over what it can get, and asks again after it got nothing, or decodes that."""
    k.launch(grid=4)
    done = k.tensor("done", ts.s32, (4,))
    response, b = k.shared("response", ts.u32, (4,)), k.mbarriers("b")
    x, more = k.var("x", k.cta_x), k.var("more", 1)
    with k.one_thread():
        k.mbarrier.init(b, 1)
        with k.loop(8) as i:
            k.mem.store(done[x], x)
            k.mbarrier.arrive_expect_tx(b, 16)
            k.clc.try_cancel(response, b)
            k.mbarrier.wait(b, i & 1)
            k.clc.query_is_canceled(more, response)
            if mistake == "decodes":
                k.clc.query_first_ctaid(x, response)
            if mistake != "asks":
                with k.if_(more.eq(0)):
                    k.break_()
            if mistake != "decodes":
                with k.if_(more.ne(0)):
                    k.clc.query_first_ctaid(x, response)
            k.fence.proxy_async("shared::cta")


#: a wrong program, its strictness, and its first repair in words
MENDED = (
    # arrivals of one source line in three roles, moved behind the reads of another
    (lambda: tile_ids.build(mistake="early", tiles=2), "practice",
     "mbarrier.arrive after ld at line 115"),
    # who arrives, and how many are expected
    (lambda: tile_ids.build(mistake="uncounted", tiles=2), "practice",
     "if true instead of if %warp_id == 3; count 6 instead of 3 in mbarrier.init"),
    (lambda: pair.build(release="own"), "practice",
     "barrier empty[0].at(0) instead of empty[0] in mbarrier.arrive; "
     "count 256 instead of 128 in mbarrier.init"),
    # both fences of a hand-over, of all that need them
    (hand_over.build, "ptx", "tcgen05.fence around mbarrier.wait and mbarrier.arrive"),
    # what is beyond the end
    (full_last_block.build, "practice",
     "cp.async.bulk.store if %cta_x * 64 + 64 <= 224, else D[(cta_x * 64):+32]"),
    (no_guard.build, "practice", "st if %cta_x * 64 + %thread_id + 1 <= 150"),
    (flattened_region.build, "practice", "cp.async.bulk.copy of each of 8 rows"),
    # requests whose answer nobody reads, and what is done with one that cancelled nothing
    (blind_requests.build, "practice", "without clusterlaunchcontrol.try_cancel"),
    (lambda: steals.build(mistake="decodes"), "practice",
     "clusterlaunchcontrol.query_cancel.get_first_ctaid if more != 0"),
    (lambda: steals.build(mistake="asks"), "practice",
     "out of the loop after clusterlaunchcontrol.query_cancel.is_canceled if more == 0"),
)  # fmt: skip


@pytest.mark.parametrize(("make", "strict", "what"), MENDED)
def test_the_first_repair_is_what_an_engineer_would_write(
    make: object, strict: Strict, what: str
) -> None:
    assert callable(make)
    program = make()
    assert isinstance(program, Program)
    report = ts.check(program, strict=strict, suggest=TIME)
    assert report.repairs is not None
    first = report.repairs.found[0]
    assert first.what == what
    assert ts.check(first.program, strict=strict).verdict == "proved"


def test_the_right_ones_need_no_repair() -> None:
    for program in (no_guard.build(fixed=True), steals.build()):
        assert ts.check(program).verdict == "proved"


def test_a_request_whose_answer_is_read_stays() -> None:
    """Without launch control every CTA does its own work, which is no repair."""
    report = ts.check(steals.build(mistake="asks"), suggest=TIME)
    assert report.repairs is not None
    assert all("without clusterlaunchcontrol" not in r.what for r in report.repairs.found)
