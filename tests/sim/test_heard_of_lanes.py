"""Who hears of one lane that acts apart from its warp has heard of that warp, as far as it goes."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, bf16, f32, kernel, u32
from tilesim.checker import check
from tilesim.ir.program import Strict

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


@kernel(warps=2)
def in_turn(k: Builder, *, lane: int = 0, how: Literal["", "meets", "rest", "fences"] = "") -> None:
    """A lane of warp 0 issues a product, and warp 1 one into the same accumulator."""
    k.launch(target="sm_100a")
    a, b = k.tensor("a", bf16, (128, 16)), k.tensor("b", bf16, (64, 16))
    a_map, b_map = k.tensor_map(a, (128, 16)), k.tensor_map(b, (64, 16))
    rows, columns = k.shared("rows", bf16, (128, 16)), k.shared("columns", bf16, (64, 16))
    slot, address = k.shared("slot", u32, (1,)), k.var("address")
    full, turn, done, pad = (k.mbarriers(name) for name in ("full", "turn", "done", "pad"))
    with k.role("first", 0):
        k.tcgen05.alloc(slot, 64)
        with k.elected():
            for barrier, count in ((full, 1), (turn, 31 if how == "rest" else 1), (done, 1)):
                k.mbarrier.init(barrier, count)
            k.mbarrier.init(pad, 1000)
    k.tcgen05.fence_before_thread_sync()
    k.sync_threads()
    k.tcgen05.fence_after_thread_sync()
    k.mem.load(address, slot[0])
    d = k.tcgen05.tensor(address, f32, (128, 64))
    with k.role("first", 0):
        with k.elected():
            k.mbarrier.arrive_expect_tx(full, a_map.box_bytes + b_map.box_bytes)
            k.tma.load(a_map, rows, (0, 0), full)
            k.tma.load(b_map, columns, (0, 0), full)
        k.mbarrier.wait(full, 0)
        with k.if_(k.lane_id.eq(0), sync=False):
            k.tcgen05.mma(d, rows, columns, accumulate=0)  # first
        if how == "meets":
            k.sync_warp()
        with k.if_(k.lane_id >= 1 if how == "rest" else k.lane_id.eq(lane), sync=False):
            for _ in range(6):
                k.mbarrier.arrive(pad)
            if how == "fences":
                k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(turn)
        k.sync_warp()
    with k.role("second", 1):
        k.mbarrier.wait(full, 0)
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mbarrier.wait(turn, 0)
            if how == "fences":
                k.tcgen05.fence_after_thread_sync()
            k.tcgen05.mma(d, rows, columns)  # second
            k.tcgen05.commit(done)
        k.sync_warp()
    k.mbarrier.wait(done, 0)
    k.tcgen05.fence_after_thread_sync()
    k.sync_threads()
    with k.role("first", 0):
        k.tcgen05.dealloc(address, 64)


def test_a_product_is_ordered_behind_that_of_the_lane_which_hands_over() -> None:
    """In practice a hand-over of memory is enough (U20), of that lane or one that has met it."""
    assert check(in_turn.build()).verdict == "proved"
    assert check(in_turn.build(lane=1, how="meets")).verdict == "proved"
    for strict in LEVELS:
        assert check(in_turn.build(how="fences"), strict=strict).verdict == "proved"


@pytest.mark.parametrize("how", ["", "rest"])
def test_other_lanes_hand_over_no_product(how: Literal["", "rest"]) -> None:
    finding = found(check(in_turn.build(lane=1, how=how)), "tcgen05-order")
    assert {line for _, line in sites(finding)} == {at(in_turn, "# first"), at(in_turn, "# second")}


@kernel(warps=2)
def next_phase(k: Builder, *, both: bool = True) -> None:
    """Two lanes end a phase together; who has heard of them makes the arrivals of the next one."""
    barrier, told = k.mbarriers("barrier"), k.mbarriers("told")
    with k.one_thread():
        k.mbarrier.init(barrier, 2)
        k.mbarrier.init(told, 2 if both else 1)
    k.sync_threads()
    with k.role("first", 0), k.if_(k.lane_id < 2, sync=False):
        k.mbarrier.arrive(barrier)  # phase 0
        with k.if_(k.lane_id.eq(0), sync=False):
            k.mbarrier.arrive(told)
        with k.if_(k.lane_id.eq(1 if both else 2), sync=False):
            k.mbarrier.arrive(told)
    with k.role("second", 1), k.elected():
        k.mbarrier.wait(told, 0)
        k.mbarrier.arrive(barrier, 2)  # phase 1
        k.mbarrier.wait(barrier, 1)


def test_lanes_tell_one_by_one_of_a_phase_that_they_have_ended_together() -> None:
    """Condition A."""
    assert check(next_phase.build()).verdict == "proved"
    assert check(next_phase.build(both=False)).verdict != "proved"
