"""Only bar.warp.sync, and barriers that include both, order accesses of different lanes."""

from __future__ import annotations

import pytest

import tilesim as ts
from tests.kernels.evidence import at, sites
from tilesim import Builder
from tilesim.arith.types import s32
from tilesim.ir.program import Strict

AgentLike = str


@ts.kernel(warps=1)
def row_ids(k: Builder, *, sync: bool = True, meets: bool = False, tokens: int = 3) -> None:
    """Lanes that find something note it; then every lane reads what all of them noted, with no
    `__syncwarp` behind the loop (ggml-org/llama.cpp#28475, `mmq_ids_helper`)."""
    notes, value = k.shared("notes", s32, (tokens, 32)), k.var("value", 0)
    k.mem.store(notes[0, k.lane_id], -1)
    k.sync_warp()
    with k.loop(tokens) as token, k.if_(((k.lane_id + token) % 3).eq(0), sync=sync):
        k.mem.store(notes[0, k.lane_id], token)  # notes
    if meets:
        k.sync_warp()
    k.mem.load(value, notes[0, 31 - k.lane_id])  # reads what they noted


@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_lanes_of_a_branch_meet_behind_it_or_not(strict: Strict) -> None:
    for right in (row_ids.build(), row_ids.build(sync=False, meets=True)):
        assert ts.check(right, strict=strict).verdict == "proved"
    report = ts.check(row_ids.build(sync=False), strict=strict)
    lines = {
        at(row_ids, "k.mem.store(notes[0, k.lane_id], token)"),
        at(row_ids, "k.mem.load(value"),
    }
    assert report.verdict == "failed"
    assert {(f.rule, *sorted(loc.line for loc in f.locations)) for f in report.findings} == {
        ("race", *sorted(lines))
    }


@ts.kernel(warps=1)
def in_turns(k: Builder, *, sync: bool = True, breaks: bool = False) -> None:
    """Lanes note something after as many turns as their number says, and read another one's."""
    notes, value, turn = k.shared("notes", s32, (32,)), k.var("value", 0), k.var("turn", 0)
    if breaks:
        with k.loop(32, sync=sync) as i, k.if_(i.eq(k.lane_id), sync=False):
            k.mem.store(notes[k.lane_id], i)  # breaks
            k.break_()
    else:
        with k.while_(turn <= k.lane_id, sync=sync):
            k.mem.store(notes[k.lane_id], turn)  # repeats
            turn += 1
    k.mem.load(value, notes[31 - k.lane_id])  # reads another's


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("strict", ["practice", "ptx"])
def test_lanes_of_a_loop_meet_behind_it_or_not(strict: Strict, breaks: bool) -> None:
    assert ts.check(in_turns.build(breaks=breaks), strict=strict).verdict == "proved"
    report = ts.check(in_turns.build(breaks=breaks, sync=False), strict=strict)
    lines = {
        at(in_turns, "# breaks" if breaks else "# repeats"), at(in_turns, "# reads another's"),
    }  # fmt: skip
    assert report.rules == {"race"}
    assert {loc.line for loc in report.findings[0].locations} == lines


def _stage(k: Builder, full: int, empty: int) -> tuple[ts.SharedTensor, ts.Mbarriers, ts.Mbarriers]:
    stage = k.shared("stage", s32, (32,))
    filled, freed = k.mbarriers("full"), k.mbarriers("empty")
    with k.one_thread():
        k.mbarrier.init(filled, full)
        k.mbarrier.init(freed, empty)
    k.sync_threads()
    return stage, filled, freed


@ts.kernel(warps=2)
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
    report = ts.check(pipeline.build(elects=elects))
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
    assert ts.check(pipeline.build(elects=elects, sync=True)).verdict == "proved"


def test_elected_has_a_warp_sync() -> None:
    k = Builder("elected", warps=2)
    stage, full, empty = _stage(k, 32, 1)
    value = k.var("value", 0)
    with k.role("producer", 0), k.loop(4) as i:
        k.mbarrier.wait(empty, (i & 1) ^ 1)
        k.mem.store(stage[k.lane_id], i)
        k.mbarrier.arrive(full)
    with k.role("consumer", 1), k.loop(4) as i:
        k.mbarrier.wait(full, i & 1)
        k.mem.load(value, stage[k.lane_id])
        with k.elected():
            k.mbarrier.arrive(empty)
    assert ts.check(k.finish()).verdict == "proved"


@ts.kernel(warps=2)
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
    report = ts.check(one_waits.build())
    assert report.verdict == "failed"
    race = next(f for f in report.findings if f.rule == "race")
    assert sites(race) == {
        ("producer", at(one_waits, "# fills")), ("consumer", at(one_waits, "# reads")),
    }  # fmt: skip
    assert any("is known to lane 0 of consumer (warp 1)" in note for note in race.notes)
    assert ts.check(one_waits.build(sync=True)).verdict == "proved"


@ts.kernel(warps=1)
def arms(k: Builder, *, apart: bool = False) -> None:
    """The arms of a branch touch one word."""
    words, value = k.shared("words", s32, (2,)), k.var("value", 0)
    with k.elected():
        k.mem.store(words[0], 0)
        k.mem.store(words[1], 0)
    with k.if_(k.lane_id < 16), k.if_(k.lane_id.eq(0)):
        k.mem.store(words[0], 1)  # writes
    with k.else_():
        k.mem.load(value, words[1 if apart else 0])  # reads


def test_arms_of_a_branch_are_unordered() -> None:
    report = ts.check(arms.build())
    (race,) = report.findings
    assert (report.verdict, race.rule) == ("failed", "race")
    assert {line for _, line in sites(race)} == {at(arms, "# writes"), at(arms, "# reads")}
    assert ts.check(arms.build(apart=True)).verdict == "proved"


@ts.kernel(warps=2)
def own_barriers(k: Builder, *, both: bool = False) -> None:
    """Two lanes write a word each and arrive at a barrier each; the reader waits for one."""
    words, value = k.shared("words", s32, (2,)), k.var("value", 0)
    bars = k.mbarriers("bars", 2)
    with k.one_thread():
        k.mbarrier.init(bars[0], 1)
        k.mbarrier.init(bars[1], 1)
    k.sync_threads()
    with k.role("writer", 0), k.if_(k.lane_id < 2):
        k.mem.store(words[k.lane_id], 1)  # writes
        k.mbarrier.arrive(bars[k.lane_id])
    with k.role("reader", 1):
        k.mbarrier.wait(bars[0], 0)
        if both:
            k.mbarrier.wait(bars[1], 0)
        with k.if_(k.lane_id < 2):
            k.mem.load(value, words[k.lane_id])  # reads


def test_each_lane_publishes_its_own() -> None:
    report = ts.check(own_barriers.build())
    (race,) = report.findings
    assert (report.verdict, race.rule) == ("failed", "race")
    assert sites(race) == {
        ("writer", at(own_barriers, "# writes")), ("reader", at(own_barriers, "# reads")),
    }  # fmt: skip
    assert ts.check(own_barriers.build(both=True)).verdict == "proved"


def test_what_a_lane_knows_of_the_lanes_it_came_with() -> None:
    """A lane that parts twice from the others does not publish what they have done in between."""
    k = Builder("twice", warps=2)
    words, value, bars = k.shared("words", s32, (32,)), k.var("value", 0), k.mbarriers("bars", 3)
    with k.one_thread():
        for number in range(3):
            k.mbarrier.init(bars[number], 1 + (number == 0))
    k.sync_threads()
    with k.role("writer", 0):
        with k.if_(k.lane_id < 3):
            k.mbarrier.arrive(bars[k.lane_id])
        with k.if_(k.lane_id < 3):
            k.mem.store(words[k.lane_id], 1)
            k.mbarrier.arrive(bars[k.lane_id])
    with k.role("reader", 1):
        k.mbarrier.wait(bars[0], 0)
        k.mem.load(value, words[2])
    report = ts.check(k.finish())
    assert report.verdict == "failed"
    assert report.rules == {"race"}
