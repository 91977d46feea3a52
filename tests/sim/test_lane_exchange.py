"""Lanes of a warp that acts as one: only bar.warp.sync orders what different ones do (E11)."""

from __future__ import annotations

import pytest

from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, u32
from tilesim.checker import Report, check
from tilesim.ir.program import Strict

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


def names(report: Report) -> set[str]:
    """What a proof leans on."""
    return {leaning.name for leaning in report.leanings}


@kernel(warps=1)
def reverse(k: Builder, *, between: str = "sync", space: str = "shared") -> None:
    """Lanes read in reverse what they have stored."""
    words = k.shared("words", u32, (32,)) if space == "shared" else k.tensor("words", u32, (32,))
    y, value = k.tensor("y", u32, (32,)), k.var("value", 0, dtype=u32)
    k.mem.store(words[k.lane_id], k.lane_id)
    match between:
        case "sync":
            k.sync_warp()
        case "barrier":
            k.sync_threads()
        case "shuffle":
            k.mem.shuffle(value, k.lane_id, 0)
        case _:
            pass
    k.mem.load(value, words[31 - k.lane_id])
    k.mem.store(y[k.lane_id], value)


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("between", ["nothing", "shuffle"])
def test_lanes_that_exchange_words_have_to_meet(between: str, space: str, strict: Strict) -> None:
    report = check(reverse.build(between=between, space=space), strict=strict)
    finding = found(report, "race")
    assert report.verdict == "failed"
    assert any("a bar.warp.sync is missing between (E11)" in note for note in finding.notes)
    load, store = at(reverse, "value, words"), at(reverse, "words[k.lane_id], k")
    assert sites(finding) == {("warp 0", load), ("warp 0", store)}


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize("space", ["shared", "global"])
@pytest.mark.parametrize("between", ["sync", "barrier"])
def test_lanes_that_have_met_may_exchange_words(between: str, space: str, strict: Strict) -> None:
    assert check(reverse.build(between=between, space=space), strict=strict).verdict == "proved"


@kernel(warps=1)
def own(k: Builder, *, shift: int = 0) -> None:
    """Lanes read back their own words, or those of a neighbour, trip after trip."""
    words, value = k.shared("words", u32, (64,)), k.var("value", 0, dtype=u32)
    with k.loop(3) as i:
        k.mem.store(words[k.lane_id], i)
        k.mem.load(value, words[(k.lane_id + shift) % 32])


@pytest.mark.parametrize("strict", LEVELS)
def test_a_lane_comes_after_itself(strict: Strict) -> None:
    assert check(own.build(), strict=strict).verdict == "proved"
    places = {("warp 0", at(own, "k.mem.store(")), ("warp 0", at(own, "k.mem.load("))}
    findings = check(own.build(shift=1), strict=strict).findings
    assert [(f.rule, sites(f)) for f in findings] == [("race", places)] * 2  # and in the next trip


@kernel(warps=2)
def through_a_barrier(k: Builder, *, waits: bool = True) -> None:
    """All lanes arrive and wait for the phase: that orders them as well."""
    bar, words, value = k.mbarriers("bar"), k.shared("words", u32, (32,)), k.var("value", 0, u32)
    with k.one_thread():
        k.mbarrier.init(bar, 32)
    k.sync_threads()
    with k.role("exchange", 1):
        k.mem.store(words[k.lane_id], 1)
        k.mbarrier.arrive(bar)
        if waits:
            k.mbarrier.wait(bar, 0)
        k.mem.load(value, words[31 - k.lane_id])


@pytest.mark.parametrize("strict", LEVELS)
def test_an_mbarrier_that_all_lanes_pass_orders_them(strict: Strict) -> None:
    assert check(through_a_barrier.build(), strict=strict).verdict == "proved"
    finding = found(check(through_a_barrier.build(waits=False), strict=strict), "race")
    assert {role for role, _ in sites(finding)} == {"exchange"}


@kernel(warps=1)
def same_word(k: Builder, *, meets: bool = False) -> None:
    """All lanes store to one word, twice, and read it."""
    word, value = k.shared("word", u32, (1,)), k.var("value", 0, dtype=u32)
    k.mem.store(word[0], 1)
    if meets:
        k.sync_warp()
    k.mem.store(word[0], 2)
    if meets:
        k.sync_warp()
    k.mem.load(value, word[0])


@pytest.mark.parametrize("strict", LEVELS)
def test_a_lane_comes_after_its_own_store_to_a_word_of_all(strict: Strict) -> None:
    """The first store of one lane may come after the second of another, and stay. At ptx those of
    one store race already."""
    right = check(same_word.build(meets=True), strict=strict)
    first, second = at(same_word, "store(word[0], 1"), at(same_word, "store(word[0], 2")
    alone = [("race", {("warp 0", first)}), ("race", {("warp 0", second)})]
    if strict == "ptx":
        assert [(f.rule, sites(f)) for f in right.findings] == alone
    else:
        assert (right.verdict, names(right)) == ("proved", {"H23", "program-order"})
    findings = check(same_word.build(), strict=strict).findings
    between = [(f.rule, sites(f)) for f in findings if len(sites(f)) > 1]
    assert len(findings) - len(between) == (2 if strict == "ptx" else 0)
    assert between == [
        ("race", {("warp 0", first), ("warp 0", second)}),
        ("race", {("warp 0", second), ("warp 0", at(same_word, "k.mem.load("))}),
    ]


@kernel(warps=1)
def read_first(k: Builder, *, meets: bool = False, arm: int = 32) -> None:
    """Lanes read the word of lane 0, then each of them writes its own."""
    words, value = k.shared("words", u32, (32,)), k.var("value", 0, dtype=u32)
    k.mem.store(words[k.lane_id], 1)
    k.sync_warp()
    with k.if_(k.lane_id < arm):
        k.mem.load(value, words[0])
        if meets:
            k.sync_warp((1 << arm) - 1)
        k.mem.store(words[k.lane_id], 2)


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize("arm", [4, 32])
def test_a_lane_that_read_a_word_does_not_vouch_for_others_that_did(
    arm: int, strict: Strict
) -> None:
    assert check(read_first.build(arm=arm, meets=True), strict=strict).verdict == "proved"
    finding = found(check(read_first.build(arm=arm), strict=strict), "race")
    assert sites(finding) == {
        ("warp 0", at(read_first, "value, words[0]")), ("warp 0", at(read_first, "lane_id], 2")),
    }  # fmt: skip
    assert "lane 0 touches what lane 1 touched before" in finding.notes[1]


@kernel(warps=1)
def before_parting(k: Builder, *, shift: int = 1) -> None:
    """The whole warp stores; lanes of a branch read what they or others of them have stored."""
    words, value = k.shared("words", u32, (64,)), k.var("value", 0, dtype=u32)
    k.mem.store(words[k.lane_id], 1)
    with k.if_(k.lane_id < 4):
        k.mem.load(value, words[k.lane_id ^ shift])


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_of_a_branch_did_not_meet_before_it(strict: Strict) -> None:
    assert check(before_parting.build(shift=0), strict=strict).verdict == "proved"
    finding = found(check(before_parting.build(), strict=strict), "race")
    assert sites(finding) == {
        ("warp 0", at(before_parting, "k.mem.store(")),
        ("warp 0", at(before_parting, "k.mem.load(")),
    }


@kernel(warps=1)
def met_in_an_arm(k: Builder, *, word: int = 1) -> None:
    """Lanes of one arm meet each other; lanes of the other arm read what one of them has stored."""
    words, value = k.shared("words", u32, (32,)), k.var("value", 0, dtype=u32)
    k.mem.store(words[k.lane_id], 0)
    k.sync_warp()
    with k.if_(k.lane_id < 2):
        with k.if_(k.lane_id.eq(0)):
            k.mem.store(words[0], 1)
        with k.else_():
            k.mem.store(words[1], 1)
        k.sync_warp(0b11)
    with k.else_():
        with k.if_(k.lane_id.eq(7)):
            k.assign(value, 1)
        with k.if_(k.lane_id.eq(5)):
            k.mem.load(value, words[word])


@pytest.mark.parametrize("strict", LEVELS)
def test_a_part_knows_nothing_of_another_whose_component_it_gets(strict: Strict) -> None:
    assert check(met_in_an_arm.build(word=2), strict=strict).verdict == "proved"
    finding = found(check(met_in_an_arm.build(), strict=strict), "race")
    assert sites(finding) == {
        ("warp 0", at(met_in_an_arm, "words[1], 1")), ("warp 0", at(met_in_an_arm, "words[word]")),
    }  # fmt: skip


@kernel(warps=1)
def copies(k: Builder, *, meets: bool = False, shift: int = 1) -> None:
    """Each lane copies a word and waits for it; then lanes read what others of them copied."""
    source, value = k.tensor("source", u32, (32,)), k.var("value", 0, dtype=u32)
    words = k.shared("words", u32, (32,), align=16)
    k.cp_async.copy(words[k.lane_id], source[k.lane_id], size=4)
    k.cp_async.wait_all()
    if meets:
        k.sync_warp()
    k.mem.load(value, words[k.lane_id ^ shift])


@pytest.mark.parametrize("strict", LEVELS)
def test_a_lane_waits_for_its_own_copies_only(strict: Strict) -> None:
    assert check(copies.build(shift=0), strict=strict).verdict == "proved"
    assert check(copies.build(meets=True), strict=strict).verdict == "proved"
    finding = found(check(copies.build(), strict=strict), "race")
    assert sites(finding) == {
        ("warp 0", at(copies, "k.cp_async.copy(")), ("warp 0", at(copies, "k.mem.load(")),
    }  # fmt: skip


@kernel(warps=1)
def stores_a_tile(k: Builder, *, inside: bool = False) -> None:
    """One lane stores a tile and waits for it, or all do; then all write the tile."""
    words, out = k.shared("words", u32, (32,), align=16), k.tensor("out", u32, (32,))
    k.mem.store(words[k.lane_id], 1)
    k.fence.proxy_async()
    with k.elected():
        k.bulk.store(out[:], words[:])
        k.bulk.commit_group()
        if inside:
            k.bulk.wait_group(0)
    if not inside:
        k.bulk.wait_group(0)
    k.mem.store(words[k.lane_id], 2)


@pytest.mark.parametrize("strict", LEVELS)
def test_a_wait_for_the_copy_of_another_lane_says_nothing(strict: Strict) -> None:
    assert check(stores_a_tile.build(inside=True), strict=strict).verdict == "proved"
    finding = found(check(stores_a_tile.build(), strict=strict), "race")
    assert sites(finding) == {
        ("warp 0", at(stores_a_tile, "k.bulk.store(")),
        ("warp 0", at(stores_a_tile, "words[k.lane_id], 2")),
    }


@kernel(warps=1)
def elected_store(k: Builder, *, meets: bool = True) -> None:
    """An elected lane stores what all read; emitted code has a __syncwarp behind the region."""
    word, value = k.shared("word", u32, (1,)), k.var("value", 0, dtype=u32)
    with k.elected(sync=meets):
        k.mem.store(word[0], 1)
    k.mem.load(value, word[0])


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_meet_behind_the_work_of_an_elected_one(strict: Strict) -> None:
    assert check(elected_store.build(), strict=strict).verdict == "proved"
    finding = found(check(elected_store.build(meets=False), strict=strict), "race")
    assert sites(finding) == {
        ("warp 0", at(elected_store, "k.mem.store(")), ("warp 0", at(elected_store, "k.mem.load(")),
    }  # fmt: skip


@kernel(warps=1)
def copies_before_a_branch(k: Builder, *, shift: int = 0, waits: bool = True) -> None:
    """Each lane waits for its copy; some of them go on in a branch."""
    source = k.tensor("source", u32, (32,))
    words = k.shared("words", u32, (32,), align=16)
    k.cp_async.copy(words[k.lane_id], source[k.lane_id], size=4)
    if waits:
        k.cp_async.wait_all()
    with k.if_(k.lane_id < 4):
        k.mem.store(words[k.lane_id ^ shift], 1)
    k.cp_async.wait_all()


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_of_a_branch_have_waited_for_their_copies_before_it(strict: Strict) -> None:
    assert check(copies_before_a_branch.build(), strict=strict).verdict == "proved"
    places = {
        ("warp 0", at(copies_before_a_branch, "k.cp_async.copy(")),
        ("warp 0", at(copies_before_a_branch, "k.mem.store(")),
    }
    for wrong in (copies_before_a_branch.build(shift=1), copies_before_a_branch.build(waits=False)):
        assert sites(found(check(wrong, strict=strict), "race")) == places


@kernel(warps=2)
def one_arrives(k: Builder, *, mine: int = 0, waits: str = "before") -> None:
    """Lanes wait for their copies; lane 0 arrives; another warp reads what ``mine`` got."""
    source, bar = k.tensor("source", u32, (32,)), k.mbarriers("bar")
    words, value = k.shared("words", u32, (32,), align=16), k.var("value", 0, dtype=u32)
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_threads()
    with k.role("copies", 0):
        k.cp_async.copy(words[k.lane_id], source[k.lane_id], size=4)
        if waits == "before":
            k.cp_async.wait_all()
        with k.if_(k.lane_id.eq(0)):
            if waits == "inside":
                k.cp_async.wait_all()
            k.mbarrier.arrive(bar)
        k.cp_async.wait_all()
    with k.role("reads", 1):
        k.mbarrier.wait(bar, 0)
        k.mem.load(value, words[mine])


@pytest.mark.parametrize("strict", LEVELS)
@pytest.mark.parametrize("waits", ["before", "inside"])
def test_a_lane_publishes_its_own_copies(waits: str, strict: Strict) -> None:
    assert check(one_arrives.build(waits=waits), strict=strict).verdict == "proved"
    for wrong in (one_arrives.build(mine=1, waits=waits), one_arrives.build(waits="after")):
        finding = found(check(wrong, strict=strict), "race")
        assert sites(finding) == {
            ("copies", at(one_arrives, "k.cp_async.copy(")),
            ("reads", at(one_arrives, "k.mem.load(")),
        }


@kernel(warps=1)
def one_word(k: Builder, *, meets: bool = False) -> None:
    """Two lanes store to one word after a branch that one of them took."""
    words = k.shared("words", u32, (32,))
    with k.if_(k.lane_id < 2):
        with k.if_(k.lane_id.eq(1)):
            k.mem.store(words[8], 1)
        if meets:
            k.sync_warp(0b11)
        k.mem.store(words[5], k.lane_id)  # both


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_behind_a_branch_are_not_one_store(strict: Strict) -> None:
    """Lanes that store together race with nobody in practice: one wins (H23). These may not come
    together (E11)."""
    report = check(one_word.build(), strict=strict)
    assert report.verdict == "failed"
    assert sites(found(report, "race")) == {("warp 0", at(one_word, "# both"))}
    right = check(one_word.build(meets=True), strict=strict)
    if strict == "ptx":
        assert sites(found(right, "race")) == {("warp 0", at(one_word, "# both"))}
    else:
        assert (right.verdict, names(right)) == ("proved", {"H23", "program-order"})


@kernel(warps=2)
def flag_of_each(k: Builder, *, told: bool = True, learned: bool = True) -> None:
    """Two lanes raise a flag each when they have written, and two lanes wait for one each."""
    flags, words = k.shared("flags", u32, (2,)), k.shared("words", u32, (2,))
    seen = k.var("seen", 0, dtype=u32)
    with k.one_thread():
        k.mem.store(flags[0], 0)
        k.mem.store(flags[1], 0)
    k.sync_threads()
    with k.role("tells", 0), k.if_(k.lane_id < 2):
        k.mem.store(words[k.lane_id], 1)
        if told:
            k.sync_warp(3)
        k.mem.store(flags[k.lane_id], 1, sem="release", scope="cta")
    with k.role("learns", 1), k.if_(k.lane_id < 2):
        k.assign(seen, 0)
        with k.while_(seen < 1):
            k.mem.load(seen, flags[k.lane_id], sem="acquire", scope="cta")
        if learned:
            k.sync_warp(3)
        with k.if_(k.lane_id.eq(0)):
            k.mem.load(seen, words[1])


@pytest.mark.parametrize("strict", LEVELS)
def test_lanes_tell_and_learn_at_words_of_their_own(strict: Strict) -> None:
    """Either of both meetings is enough: lane 0 comes after lane 1's store through either flag."""
    assert check(flag_of_each.build(told=False), strict=strict).verdict == "proved"
    assert check(flag_of_each.build(learned=False), strict=strict).verdict == "proved"
    report = check(flag_of_each.build(told=False, learned=False), strict=strict)
    finding = found(report, "race")
    write, read = (
        at(flag_of_each, "words[k.lane_id], 1"),
        at(flag_of_each, "k.mem.load(seen, words"),
    )
    assert sites(finding) == {("tells", write), ("learns", read)}


@kernel(warps=2)
def fence_of_each(k: Builder, *, late: bool = False, other: bool = False) -> None:
    """Two lanes write and fence; one of them raises the flag, and its data is read."""
    flag, words = k.shared("flag", u32, (1,)), k.shared("words", u32, (4,))
    seen = k.var("seen", 0, dtype=u32)
    with k.one_thread():
        k.mem.store(flag[0], 0)
    k.sync_threads()
    with k.role("tells", 0), k.if_(k.lane_id < 2):
        k.mem.store(words[k.lane_id], 1)
        k.fence.memory("acq_rel", "cta")
        if late:
            k.mem.store(words[k.lane_id + 2], 1)
        with k.if_(k.lane_id.eq(0)):
            k.mem.store(flag[0], 1, sem="relaxed", scope="cta")
    with k.role("learns", 1), k.elected():
        with k.while_(seen < 1):
            k.mem.load(seen, flag[0], sem="acquire", scope="cta")
        k.mem.load(seen, words[2 * late + other])


@pytest.mark.parametrize("strict", LEVELS)
def test_a_fence_that_lanes_executed_together_is_one_of_each(strict: Strict) -> None:
    assert check(fence_of_each.build(), strict=strict).verdict == "proved"
    for wrong in (fence_of_each.build(other=True), fence_of_each.build(late=True)):
        finding = found(check(wrong, strict=strict), "race")
        assert ("learns", at(fence_of_each, "k.mem.load(seen, words")) in sites(finding)
