"""Behind a branch no lane waits for the others, unless emitted code has a __syncwarp there."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, u32
from tilesim.checker import check
from tilesim.ir.program import Strict

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


@kernel(warps=1)
def two_arms(k: Builder, *, count: int = 2) -> None:
    """One of two lanes arrives twice, the other waits for that in between."""
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, count)
    k.sync_threads()
    with k.if_(k.lane_id < 2):
        with k.if_(k.lane_id.eq(1)):
            k.mbarrier.arrive(bar)
        with k.else_():
            k.mbarrier.wait(bar, 0)
        k.mbarrier.arrive(bar)


@pytest.mark.parametrize("strict", LEVELS)
def test_a_lane_goes_on_behind_a_branch_where_another_waits(strict: Strict) -> None:
    assert check(two_arms.build(), strict=strict).verdict == "proved"
    finding = found(check(two_arms.build(count=3), strict=strict), "deadlock")
    assert ("warp 0", at(two_arms, "k.mbarrier.wait(")) in sites(finding)


@kernel(warps=1)
def one_arm(k: Builder, *, lanes: int = 4, count: int = 3, reads: int = 0) -> None:
    """A lane waits for what the others do behind its branch; then it reads what one has stored."""
    bar, words = k.mbarriers("bar"), k.shared("words", u32, (32,))
    value = k.var("value", 0, dtype=u32)
    with k.one_thread():
        k.mbarrier.init(bar, count)
    k.sync_threads()
    with k.if_(k.lane_id < lanes):
        with k.if_(k.lane_id.eq(1)):
            k.mbarrier.wait(bar, 0)
            k.mem.load(value, words[reads])
        with k.if_(k.lane_id.ne(1)):
            k.mem.store(words[k.lane_id], 1)
        k.mbarrier.arrive(bar)
        with k.if_(k.lane_id.eq(3)):
            k.mem.store(words[4], 1)


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_that_do_not_enter_a_branch_go_on(strict: Strict) -> None:
    assert check(one_arm.build(), strict=strict).verdict == "proved"
    finding = found(check(one_arm.build(count=4), strict=strict), "deadlock")
    assert ("warp 0", at(one_arm, "k.mbarrier.wait(")) in sites(finding)
    race = found(check(one_arm.build(reads=4), strict=strict), "race")
    assert sites(race) == {
        ("warp 0", at(one_arm, "k.mem.load(")), ("warp 0", at(one_arm, "words[4], 1")),
    }  # fmt: skip


@kernel(warps=1)
def nested(k: Builder, *, whole: bool = False) -> None:
    """The lane that waits is two branches deep; ``whole``: all lanes meet behind the outer one."""
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 3)
    k.sync_threads()
    with k.if_(k.lane_id < 4):
        with k.if_(k.lane_id < 2), k.if_(k.lane_id.eq(1)):
            k.mbarrier.wait(bar, 0)
        if not whole:
            k.mbarrier.arrive(bar)
    if whole:
        k.mbarrier.arrive(bar)


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_wait_where_all_of_them_meet_and_nowhere_else(strict: Strict) -> None:
    assert check(nested.build(), strict=strict).verdict == "proved"
    finding = found(check(nested.build(whole=True), strict=strict), "deadlock")
    assert ("warp 0", at(nested, "k.mbarrier.wait(")) in sites(finding)
