"""Lanes that come one by one to where they wait for each other (E11)."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, u32
from tilesim.checker import check
from tilesim.ir.program import Strict

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


@kernel(warps=1)
def later(k: Builder, *, before: bool = False, how: str = "sync", reads: int = 1) -> None:
    """Lanes that went on meet the one that waits, behind what it waits for."""
    bar, words = k.mbarriers("bar"), k.shared("words", u32, (32,))
    value = k.var("value", 0, dtype=u32)
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.mem.store(words[k.lane_id], 0)
    k.sync_threads()
    with k.if_(k.lane_id < 4):
        with k.if_(k.lane_id.eq(1)):
            k.mbarrier.wait(bar, 0)
            k.mem.store(words[1], 1)
        if before:
            k.sync_warp(0xF)
        with k.if_(k.lane_id.eq(0)):
            k.mbarrier.arrive(bar)
        if how == "vote":
            k.warp.ballot(value, k.lane_id.eq(2), mask=0xF)
        else:
            k.sync_warp(0xF)
        with k.if_(k.lane_id.eq(3)):
            k.mem.load(value, words[reads])
        with k.if_(k.lane_id.eq(2)):
            k.mem.store(words[2], 1)


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_that_come_one_by_one_meet(strict: Strict) -> None:
    assert check(later.build(), strict=strict).verdict == "proved"
    finding = found(check(later.build(before=True), strict=strict), "deadlock")
    assert ("warp 0", at(later, "k.mbarrier.wait(")) in sites(finding)


@pytest.mark.parametrize("strict", LEVELS)
def test_what_a_lane_does_after_the_meeting_is_not_known_to_others(strict: Strict) -> None:
    finding = found(check(later.build(reads=2), strict=strict), "race")
    load, store = at(later, "k.mem.load("), at(later, "words[2], 1")
    assert sites(finding) == {("warp 0", load), ("warp 0", store)}


@pytest.mark.parametrize("strict", LEVELS)
def test_a_vote_waits_for_lanes_and_orders_nothing(strict: Strict) -> None:
    assert check(later.build(how="vote", reads=9), strict=strict).verdict == "proved"
    finding = found(check(later.build(how="vote"), strict=strict), "race")
    assert sites(finding) == {
        ("warp 0", at(later, "words[1], 1")), ("warp 0", at(later, "k.mem.load(")),
    }  # fmt: skip


@kernel(warps=1)
def arms(k: Builder, *, first: int = 0xFFFFFFFF, second: int = 0xFFFFFFFF) -> None:
    """Each half of the warp writes, meets the other one in its own arm, and reads from it."""
    words, value = k.shared("words", u32, (32,)), k.var("value", 0, dtype=u32)
    with k.if_(k.lane_id < 16):
        k.mem.store(words[k.lane_id], 1)
        k.sync_warp(first)
        k.mem.load(value, words[31 - k.lane_id])
    with k.else_():
        k.mem.store(words[k.lane_id], 2)
        k.sync_warp(second)
        k.mem.load(value, words[31 - k.lane_id])


@pytest.mark.parametrize("strict", LEVELS)
def test_arms_meet_at_different_places(strict: Strict) -> None:
    assert check(arms.build(), strict=strict).verdict == "proved"


@pytest.mark.parametrize("strict", LEVELS)
def test_halves_that_meet_among_themselves_do_not_meet_each_other(strict: Strict) -> None:
    report = check(arms.build(first=0xFFFF, second=0xFFFF0000), strict=strict)
    store = ("warp 0", at(arms, "words[k.lane_id], 1"))
    assert report.verdict == "failed"
    assert any(f.rule == "race" and store in sites(f) for f in report.findings)


@pytest.mark.parametrize("strict", LEVELS)
def test_arms_that_name_different_lanes_do_not_meet(strict: Strict) -> None:
    report = check(arms.build(second=0xFFFF0000), strict=strict)
    finding = found(report, "participation")
    assert sites(finding) == {("warp 0", at(arms, "k.sync_warp(first)"))}
    assert "waits for lanes 0xffff0000" in finding.message


@kernel(warps=1)
def tiles(k: Builder, *, partner: int = 5, size: int = 16, apart: int = 0) -> None:
    """The lanes of a tile write, meet, and read what another one has written; those below
    ``apart`` do so in an arm of their own."""
    words, value = k.shared("words", u32, (32,)), k.var("value", 0, dtype=u32)
    mask = ((1 << size) - 1) << (k.lane_id // size * size)
    k.mem.store(words[k.lane_id], k.lane_id)
    if apart:
        with k.if_(k.lane_id < apart):
            k.sync_warp(mask)
            k.mem.load(value, words[k.lane_id ^ partner])
        with k.else_():
            k.sync_warp(mask)
            k.mem.load(value, words[k.lane_id ^ partner])
    else:
        k.sync_warp(mask)
        k.mem.load(value, words[k.lane_id ^ partner])
    k.sync_warp()
    k.mem.store(words[k.lane_id], 0)


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize(("size", "apart"), [(16, 0), (8, 0), (4, 0), (16, 16), (8, 16)])
def test_lanes_of_a_tile_meet(size: int, apart: int, strict: Strict) -> None:
    """Also where all tiles come to it together, each with a mask of its own."""
    partner = size - 1
    right = check(tiles.build(size=size, apart=apart, partner=partner), strict=strict)
    assert right.verdict == "proved"
    wrong = check(tiles.build(size=size, apart=apart, partner=size), strict=strict)
    assert wrong.rules == {"race"}
    store = ("warp 0", at(tiles, "words[k.lane_id], k.lane_id"))
    assert all(store in sites(finding) for finding in wrong.findings)


@pytest.mark.parametrize("strict", LEVELS)
def test_groups_of_which_a_part_is_elsewhere_are_not_modelled(strict: Strict) -> None:
    """Lanes 4 to 7 wait for lanes 0 to 3, and are in the other arm beside lanes that do not."""
    report = check(tiles.build(size=8, apart=4, partner=7), strict=strict)
    assert report.verdict == "unsupported"


@kernel(warps=1)
def named(k: Builder, *, flipped: int = 0) -> None:
    """Lanes name their own half of the warp, or the other one."""
    k.sync_warp(0xFFFF << (k.lane_id // 16 * 16 ^ flipped))


@pytest.mark.parametrize("strict", LEVELS)
def test_a_lane_is_among_those_that_it_names(strict: Strict) -> None:
    assert check(named.build(), strict=strict).verdict == "proved"
    finding = found(check(named.build(flipped=16), strict=strict), "participation")
    assert sites(finding) == {("warp 0", at(named, "k.sync_warp("))}


@kernel(warps=1)
def one_arm(k: Builder, *, leaves: bool = False, mask: int = 0xFFFFFFFF) -> None:
    """Half of a warp waits for the other one, which does not come, or has ended."""
    with k.if_(k.lane_id < 16):
        k.sync_warp(mask)
    if leaves:
        with k.else_():
            k.exit()


@pytest.mark.parametrize("strict", LEVELS)
def test_a_meeting_that_others_are_always_behind_is_none(strict: Strict) -> None:
    finding = found(check(one_arm.build(), strict=strict), "participation")
    assert sites(finding) == {("warp 0", at(one_arm, "k.sync_warp("))}
    assert check(one_arm.build(mask=0xFFFF), strict=strict).verdict == "proved"


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_that_have_ended_are_not_waited_for(strict: Strict) -> None:
    assert check(one_arm.build(leaves=True), strict=strict).verdict == "proved"


@kernel(warps=1)
def nobody(k: Builder, *, lanes: int = 2) -> None:
    """A meeting of no lanes, in an arm that no lane reaches, or one."""
    with k.if_(k.lane_id < 2), k.if_(k.lane_id >= lanes):
        k.sync_warp(0)


@pytest.mark.parametrize("strict", LEVELS)
def test_a_meeting_of_nobody_is_wrong_if_somebody_comes(strict: Strict) -> None:
    assert check(nobody.build(), strict=strict).verdict == "proved"
    finding = found(check(nobody.build(lanes=1), strict=strict), "participation")
    assert sites(finding) == {("warp 0", at(nobody, "k.sync_warp("))}


@kernel(warps=2)
def whole(k: Builder, *, waits: int = 0) -> None:
    """A lane waits in an arm for what another lane does behind it; then all meet at a barrier."""
    bar, value = k.mbarriers("bar"), k.var("value", 0, dtype=u32)
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_threads()
    with k.role("lanes", 1):
        with k.if_(k.lane_id < 4):
            with k.if_(k.lane_id.eq(1)):
                k.mbarrier.wait(bar, waits)
            with k.if_(k.lane_id.eq(0)):
                k.mbarrier.arrive(bar)
            with k.if_(k.lane_id.eq(1)):
                k.mbarrier.wait(bar, waits)
        k.warp.ballot(value, k.lane_id.eq(2))
    k.sync_threads()


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_that_went_on_meet_all_others(strict: Strict) -> None:
    assert check(whole.build(), strict=strict).verdict == "proved"


@kernel(warps=1)
def turns(k: Builder, *, trips: int = 3, answers: bool = True) -> None:
    """Two lanes hand a turn of a loop back and forth, each in its own branch of it."""
    there, back = k.mbarriers("there"), k.mbarriers("back")
    with k.one_thread():
        k.mbarrier.init(there, 1)
        k.mbarrier.init(back, 1)
    k.sync_threads()
    with k.if_(k.lane_id < 4), k.loop(trips) as i:
        with k.if_(k.lane_id.eq(1)):
            k.mbarrier.wait(there, i & 1)
            if answers:
                k.mbarrier.arrive(back)
        with k.if_(k.lane_id.eq(0)):
            k.mbarrier.arrive(there)
            k.mbarrier.wait(back, i & 1)


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize("trips", [1, 2, 3])
def test_lanes_of_one_loop_are_in_turns_of_their_own(trips: int, strict: Strict) -> None:
    assert check(turns.build(trips=trips), strict=strict).verdict == "proved"
    finding = found(check(turns.build(trips=trips, answers=False), strict=strict), "deadlock")
    assert ("warp 0", at(turns, "k.mbarrier.wait(back")) in sites(finding)
