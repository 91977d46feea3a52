"""Lanes of a warp: what is said of them beside a verdict, and where the levels differ.

Right programs and wrong ones are in `tests/marked/kernels/lanes.py`.
"""

from __future__ import annotations

import random
from bisect import bisect_right

import pytest

import tilesim as ts
from tests.kernels.evidence import at, found, sites
from tilesim import Builder, kernel, simulate
from tilesim.arith.types import s32, u32
from tilesim.checker import Report, check
from tilesim.ir.declarations import Mbarriers, SharedTensor
from tilesim.ir.program import Strict
from tilesim.sim.machine.async_groups import Stream
from tilesim.sim.machine.simulate import Policy

LEVELS: tuple[Strict, ...] = ("practice", "ptx")


#: what every proof leans on
MODEL = {"program-order", "machine-code"}


def names(report: Report) -> set[str]:
    """What a proof leans on."""
    return {leaning.name for leaning in report.leanings}


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
        assert (right.verdict, names(right)) == ("proved", {"H23", *MODEL})
    findings = check(same_word.build(), strict=strict).findings
    between = [(f.rule, sites(f)) for f in findings if len(sites(f)) > 1]
    assert len(findings) - len(between) == (2 if strict == "ptx" else 0)
    assert between == [
        ("race", {("warp 0", first), ("warp 0", second)}),
        ("race", {("warp 0", second), ("warp 0", at(same_word, "k.mem.load("))}),
    ]


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
    """Lanes that store together are no race in practice: one store is the last (H23). These may not
    come together (E11)."""
    report = check(one_word.build(), strict=strict)
    assert report.verdict == "failed"
    assert sites(found(report, "race")) == {("warp 0", at(one_word, "# both"))}
    right = check(one_word.build(meets=True), strict=strict)
    if strict == "ptx":
        assert sites(found(right, "race")) == {("warp 0", at(one_word, "# both"))}
    else:
        assert (right.verdict, names(right)) == ("proved", {"H23", *MODEL})


def _stage(k: Builder, full: int, empty: int) -> tuple[SharedTensor, Mbarriers, Mbarriers]:
    stage = k.shared("stage", s32, (32,))
    filled, freed = k.mbarriers("full"), k.mbarriers("empty")
    with k.one_thread():
        k.mbarrier.init(filled, full)
        k.mbarrier.init(freed, empty)
    k.sync_threads()
    return stage, filled, freed


@kernel(warps=2)
def pipeline(k: Builder, *, sync: bool = False, elects: bool = False, trips: int = 4) -> None:
    """32 lanes read a stage, one lane releases it; another warp fills it again."""
    stage, full, empty = _stage(k, 32, 1)
    with k.role("producer", 0), k.loop(trips) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mem.store(stage[k.lane_id], i)  # fills
        k.mbarrier.arrive(full)
    value = k.var("value", 0)
    with k.role("consumer", 1), k.loop(trips) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(value, stage[k.lane_id])  # reads
        if sync:
            k.sync_warp()
        with k.elected(sync=False) if elects else k.if_(k.lane_id.eq(0)):
            k.mbarrier.arrive(empty)
        if elects:
            k.sync_warp()


@pytest.mark.parametrize("elects", [False, True])
def test_lanes_read_a_stage_that_one_lane_releases(elects: bool) -> None:
    report = check(pipeline.build(elects=elects))
    assert report.verdict == "failed"
    race = next(f for f in report.findings if f.rule == "race")
    assert sites(race) == {
        ("producer", at(pipeline, "# fills")), ("consumer", at(pipeline, "# reads")),
    }  # fmt: skip
    assert any(
        "consumer (warp 1) reads in lanes 0 to 31 and releases in lane 0: a bar.warp.sync is "
        "missing between" in note
        for note in race.notes
    )
    assert "bar.warp.sync" in race.fix
    assert check(pipeline.build(elects=elects, sync=True)).verdict == "proved"


@kernel(warps=2)
def one_waits(k: Builder, *, sync: bool = False) -> None:
    """One lane waits for the stage, and all read it."""
    stage, full, _ = _stage(k, 32, 1)
    value = k.var("value", 0)
    with k.role("producer", 0):
        k.mem.store(stage[k.lane_id], 1)  # fills
        k.mbarrier.arrive(full)
    with k.role("consumer", 1):
        with k.elected(sync=False):
            k.mbarrier.wait(full, 0)
        if sync:
            k.sync_warp()
        k.mem.load(value, stage[k.lane_id])  # reads


def test_one_lane_waits_and_all_read() -> None:
    report = check(one_waits.build())
    assert report.verdict == "failed"
    race = next(f for f in report.findings if f.rule == "race")
    assert sites(race) == {
        ("producer", at(one_waits, "# fills")), ("consumer", at(one_waits, "# reads")),
    }  # fmt: skip
    assert any("is known to lane 0 of consumer (warp 1)" in note for note in race.notes)
    assert check(one_waits.build(sync=True)).verdict == "proved"


def _begin(k: Builder, counts: tuple[int, ...]) -> Mbarriers:
    bars = k.mbarriers("bars", len(counts))
    with k.one_thread():
        for bar, count in enumerate(counts):
            k.mbarrier.init(bars[bar], count)
    k.sync_threads()
    return bars


@kernel(warps=2)
def two_phases(k: Builder, *, waits_in_turn: bool = False) -> None:
    """Lane 1 waits for phase 1 of its barrier while lane 0 waits for what comes after that."""
    bars = _begin(k, (1, 1))
    with k.role("producer", 0), k.one_thread(0):
        k.mbarrier.arrive(bars[1])
        k.mbarrier.arrive(bars[1])
        k.mbarrier.arrive(bars[0])
    with k.role("consumer", 1):
        if waits_in_turn:
            k.mbarrier.wait(bars[0], 0)
            k.mbarrier.wait(bars[1], 1)
        else:
            with k.if_(k.lane_id < 2):
                k.mbarrier.wait(bars[k.lane_id], k.lane_id)


def test_lanes_look_before_the_others_have_passed() -> None:
    report = check(two_phases.build())
    assert report.verdict == "bounded"
    assert "a wait could pass on a phase two before" in report.reasons[0]
    assert check(two_phases.build(waits_in_turn=True)).verdict == "proved"


@kernel(warps=3)
def gather(k: Builder, *, parity: int = 0, lanes: int = 2) -> None:
    """Each of two producers fills a word; a consumer's lanes wait for one barrier each."""
    words = k.shared("words", u32, (2,))
    bars = k.mbarriers("bars", 2)
    with k.role("consumer", 0), k.if_(k.lane_id < 2):
        k.mbarrier.init(bars[k.lane_id], 1)
    k.sync_threads()
    for number in range(2):
        with k.role(f"producer{number}", 1 + number), k.elected():
            k.mem.store(words[number], 1)
            k.mbarrier.arrive(bars[number])
    with k.role("consumer", 0):
        with k.if_(k.lane_id < lanes):
            k.mbarrier.wait(bars[k.lane_id], parity)
        with k.one_thread(0):
            value = k.var("value")
            for number in range(2):
                k.mem.load(value, words[number])  # reads
        with k.if_(k.lane_id < 2):
            k.mbarrier.inval(bars[k.lane_id])


@pytest.mark.parametrize("policy", ["pct", "random"])
def test_schedules_of_lanes(policy: Policy) -> None:
    for seed in range(5):
        assert not simulate(gather.build(), policy=policy, seed=seed).findings


@kernel(warps=2)
def early(k: Builder) -> None:
    """A warp works, and exits before a barrier of the whole CTA: exit releases it."""
    words = k.shared("words", s32, (32,))
    with k.role("early", 0):
        k.mem.store(words[k.lane_id], 1)
        k.bar.arrive(1, 64)
        k.exit()
    with k.role("late", 1):
        k.bar.sync(1, 64)
    k.sync_threads()


def test_exit_releases_a_barrier_of_the_whole_cta() -> None:
    assert check(early.build()).verdict == "proved"


@kernel(warps=1)
def parted_tiles(k: Builder, *, apart: int = 8) -> None:
    """The eight lanes of a tile write, meet, and read what another one has written; those below
    ``apart`` do so on a side of a branch."""
    words, value = k.shared("words", u32, (32,)), k.var("value", 0, dtype=u32)
    mask = 0xFF << (k.lane_id // 8 * 8)
    k.mem.store(words[k.lane_id], k.lane_id)
    with k.if_(k.lane_id < apart):
        k.sync_warp(mask)
        k.mem.load(value, words[k.lane_id ^ 7])
    with k.else_():
        k.sync_warp(mask)
        k.mem.load(value, words[k.lane_id ^ 7])


def test_groups_of_which_a_part_is_elsewhere_are_not_modelled() -> None:
    """Lanes 4 to 7 wait for lanes 0 to 3, and are on the other side beside lanes that do not."""
    assert check(parted_tiles.build(), strict="ptx").verdict == "proved"
    assert check(parted_tiles.build(apart=4)).verdict == "unsupported"


# Groups of copies that threads have of their own (`tilesim.sim.machine.async_groups`).


@pytest.mark.parametrize("seed", range(20))
def test_a_stream_counts_its_operations_among_those_of_all_lanes(seed: int) -> None:
    draw, stream = random.Random(seed), Stream(mask=1, component=0)
    own: list[int] = []
    for number in range(1, 30):
        if draw.random() < 0.7:
            own.append(number)
            assert stream.issue(number) == len(own)
        assert [stream.complete(n) for n in range(32)] == [bisect_right(own, n) for n in range(32)]
        assert [stream.number_of(k) for k in range(1, len(own) + 1)] == own


def test_a_stream_of_lanes_that_issue_alone_does_not_grow() -> None:
    stream = Stream(mask=1, component=0)
    for number in range(5, 1_000):
        stream.issue(number)
    assert (stream.firsts, stream.before, stream.issued) == ([5], [0], 995)


# The lanes of a reduction take their turns at one word, and others may look in between.


@ts.kernel(warps=2)
def counted(
    k: Builder, *, goal: int = 32, one_lane: bool = False, met: bool = True
) -> None:  # fmt: skip
    """All lanes write and count; the reader waits for so many of them."""
    words = k.shared("words", s32, (32,))
    count = k.tensor("count", s32, (1,))
    state, value = k.var("state", 0), k.var("value", 0)
    with k.role("writer", 0):
        k.mem.store(words[k.lane_id], 1)
        if met:
            k.sync_warp()
        with k.if_(k.lane_id < (1 if one_lane else 32)):
            k.mem.atomic(count[0], "add", 1, sem="release", scope="gpu")
    with k.role("reader", 1):
        with k.while_(state < goal):
            k.mem.load(state, count[0], sem="acquire", scope="gpu")
        k.mem.load(value, words[k.lane_id])


def test_all_lanes_have_counted() -> None:
    assert ts.check(counted.build()).verdict == "proved"
    assert ts.check(counted.build(met=False)).verdict == "proved"
    assert ts.check(counted.build(goal=1, one_lane=True)).verdict == "proved"


@pytest.mark.parametrize("goal", [1, 16, 31])
def test_some_lanes_have_counted(goal: int) -> None:
    """In some schedule the reader goes on before the others have released their words; but each
    of them releases what all have written before they met."""
    assert ts.check(counted.build(goal=goal)).verdict == "proved"
    race = found(ts.check(counted.build(goal=goal, met=False)), "race")
    assert sites(race) == {
        ("writer", at(counted, "k.mem.store(words")), ("reader", at(counted, "k.mem.load(value")),
    }  # fmt: skip
