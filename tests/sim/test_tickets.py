"""The ticket order of a counter is up to the schedule: proved for all orders, or found."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest

import tilesim as ts
from tilesim import Builder, Program, UsageError, f32, s32, u32
from tilesim.checker import Report, check
from tilesim.checker.witness import load, replay

from .ticketing import sample, translate, truth

SOURCE = Path(__file__).read_text().splitlines()


def lines(report: Report, rule: str) -> set[str]:
    """The source lines of all participants of the findings of ``rule``."""
    sides = [p for f in report.findings if f.rule == rule for p in f.participants]
    return {SOURCE[p.loc.line - 1].strip() for p in sides}


@ts.kernel(warps=2)
def split_k(k: Builder, *, splits: int = 4, tiles: int = 1, fault: str = "") -> None:
    """Every CTA writes a part of its tile; the one that counts last adds them all up."""
    k.launch(grid=splits * tiles)
    parts, out = k.tensor("parts", f32, (tiles, splits, 64)), k.tensor("out", f32, (tiles, 64))
    count, last = k.tensor("count", s32, (tiles,)), k.shared("last", s32, (1,))
    ticket, mine = k.var("ticket", 0), k.var("mine", 0)
    part, total = k.var("part", 1.0, dtype=f32), k.var("total", 0.0, dtype=f32)
    tile, number = k.cta_x // splits, k.cta_x % splits
    k.mem.store(parts[tile, number, k.thread_id], part)
    if fault != "barrier":
        k.sync_threads()
    with k.one_thread():
        if fault != "fence":
            k.fence.memory("acq_rel", scope="gpu")
        k.mem.atomic(count[tile], "add", 1, result=ticket, scope="gpu")
        if fault != "fence":
            k.fence.memory("acq_rel", scope="gpu")
        k.mem.store(last[0], ticket.eq(splits - (2 if fault == "count" else 1)))
    k.sync_threads()
    k.mem.load(mine, last[0])
    mark = number.eq(0) if fault == "wrong" else mine.ne(0)
    with k.if_(mark):
        for i in range(splits):
            k.mem.load(part, parts[tile, i, k.thread_id])
            k.assign(total, total + part)
        k.mem.store(out[tile, k.thread_id], total)
        if fault == "reset":
            with k.one_thread():
                k.mem.store(count[tile], 0)


@pytest.mark.parametrize(("splits", "tiles"), [(2, 1), (3, 1), (9, 1), (24, 1), (4, 3)])
def test_the_last_to_count_adds_up(splits: int, tiles: int) -> None:
    report = check(split_k.build(splits=splits, tiles=tiles))
    assert report.verdict == "proved"
    assert "every ticket order of count (with each of them as the last one)" in report.covers


def test_the_last_one_may_reset_the_counter() -> None:
    assert check(split_k.build(splits=3, tiles=2, fault="reset")).verdict == "proved"


@pytest.mark.parametrize("fault", ["barrier", "fence", "count", "wrong"])
@pytest.mark.parametrize("splits", [2, 5])
def test_parts_that_are_not_ordered(fault: str, splits: int) -> None:
    report = check(split_k.build(splits=splits, fault=fault))
    assert report.verdict == "failed"
    assert report.rules == {"race"}
    assert lines(report, "race") == {
        "k.mem.store(parts[tile, number, k.thread_id], part)",
        "k.mem.load(part, parts[tile, i, k.thread_id])",
    }


def test_no_more_runs_for_more_ctas_of_which_any_may_be_the_last() -> None:
    """The timed one, and one other order: none waits in a loop for those that have not started."""
    few, many = (check(split_k.build(splits=splits)).stats for splits in (3, 40))
    assert few.schedules == many.schedules == 2


@ts.kernel(warps=1)
def leaves_a_mark(k: Builder, *, ctas: int = 6, odd: bool = True) -> None:
    """Each CTA stores in a place of its own once it has counted; the last one beside it, but CTA 3
    where CTA 2 does."""
    k.launch(grid=ctas)
    count, data = k.tensor("count", s32, (1,)), k.tensor("data", s32, (2 * ctas,))
    t, own = k.var("t", 0), 2 * k.cta_x
    with k.elected():
        k.mem.atomic(count[0], "add", 1, result=t, sem="relaxed", scope="gpu")
        with k.if_(t.eq(ctas - 1)):
            k.mem.store(data[own + 1 - 3 * ((k.cta_x % 4).eq(3)) if odd else own + 1], 1)
        with k.if_(t < ctas - 1):
            k.mem.store(data[own], 1)


def test_the_last_one_at_a_place_that_depends_on_which_it_is() -> None:
    report = check(leaves_a_mark.build())
    assert report.verdict == "failed"
    assert report.rules == {"race"}
    assert len(lines(report, "race")) == 2
    assert check(leaves_a_mark.build(odd=False)).verdict == "proved"


@ts.kernel(warps=1)
def two_counters(k: Builder, *, half: int = 4, every: bool = True) -> None:
    """The last CTA to count at either of two words adds up what those that count there have left;
    with ``every`` what all have left."""
    k.launch(grid=2 * half)
    count, parts = k.tensor("count", s32, (2,)), k.tensor("parts", s32, (2 * half,))
    t, part, word = k.var("t", 0), k.var("part", 0), k.cta_x // half
    with k.elected():
        k.mem.store(parts[k.cta_x], 1)
        k.mem.atomic(count[word], "add", 1, result=t, sem="acq_rel", scope="gpu")
        with k.if_(t.eq(half - 1)):
            for i in range(half):
                k.mem.load(part, parts[word * half + i])
                if every:
                    k.mem.load(part, parts[(1 - word) * half + i])


def test_who_is_last_at_one_of_two_counters_knows_nothing_of_the_other() -> None:
    report = check(two_counters.build())
    assert report.verdict == "failed"
    assert lines(report, "race") == {
        "k.mem.store(parts[k.cta_x], 1)",
        "k.mem.load(part, parts[(1 - word) * half + i])",
    }
    assert check(two_counters.build(every=False)).verdict == "proved"


@ts.kernel(warps=2)
def adds_up_early(k: Builder, *, ctas: int = 6, early: int = 3) -> None:
    """In the CTA that counts last the second warp reads one part without waiting for the first."""
    k.launch(grid=ctas)
    count, parts = k.tensor("count", s32, (1,)), k.tensor("parts", s32, (ctas, 64))
    last, turn = k.shared("last", s32, (1,)), k.mbarriers("turn", 1)[0]
    t, mine, part = k.var("t", 0), k.var("mine", 0), k.var("part", 0)
    with k.one_thread():
        k.mbarrier.init(turn, 1)
    k.sync_threads()
    with k.role("counts", 0), k.elected():
        k.mem.store(parts[k.cta_x, 0], 1)
        k.mem.atomic(count[0], "add", 1, result=t, sem="acq_rel", scope="gpu")
        k.mem.store(last[0], t.eq(ctas - 1))
        k.mbarrier.arrive(turn)
    with k.role("adds", 1):
        if early >= 0:
            k.mem.load(part, parts[early, 0])
        k.mbarrier.wait(turn, 0)
        k.mem.load(mine, last[0])
        with k.if_(mine.ne(0)):
            for i in range(ctas):
                k.mem.load(part, parts[i, 0])


def test_the_last_one_reads_a_part_before_it_knows_that_it_is_the_last() -> None:
    report = check(adds_up_early.build())
    assert report.verdict == "failed"
    assert "k.mem.load(part, parts[early, 0])" in lines(report, "race")
    assert check(adds_up_early.build(early=-1)).verdict == "proved"


@ts.kernel(warps=1)
def only_if(k: Builder, *, ctas: int = 6, number: int = 5, cta: int = 1) -> None:
    """One CTA leaves its part unpublished; only if another one is last does that matter."""
    k.launch(grid=ctas)
    count, data = k.tensor("count", s32, (1,)), k.tensor("data", s32, (1,))
    t, x = k.var("t", 0), k.var("x", 0)
    with k.elected():
        k.mem.atomic(count[0], "add", 1, result=t, sem="acq_rel", scope="gpu")
        with k.if_(k.cta_x.eq(0)):
            k.mem.store(data[0], 1)  # the writer, after it has counted
        with k.if_(t.eq(number) & k.cta_x.eq(cta)):
            k.mem.load(x, data[0])  # the reader


@pytest.mark.parametrize("cta", [1, 2, 5])
def test_what_goes_wrong_with_one_cta_as_the_last_only(cta: int) -> None:
    program = only_if.build(cta=cta)
    report = check(program)
    assert report.verdict == "failed"
    assert lines(report, "race") == {
        "k.mem.store(data[0], 1)  # the writer, after it has counted",
        "k.mem.load(x, data[0])  # the reader",
    }
    if cta != 5:
        assert "warps draw from counters in the order" in report.covers
        witness = load(json.dumps(report.witness))
        assert replay(program, witness).findings[0].rule == "race"
    assert check(only_if.build(number=6)).verdict == "proved"


def test_an_order_in_a_witness_is_read_with_care() -> None:
    program = only_if.build()
    witness = {**(check(program).witness or {}), "order": ["0"]}
    with pytest.raises(UsageError):
        replay(program, witness)


@ts.kernel(warps=2)
def scheduler(
    k: Builder, *, tiles: int = 10, ctas: int = 3, slots: int = 2, fault: str = ""
) -> None:
    """Persistent CTAs draw tiles from a counter and hand them on through a shared ring."""
    k.launch(grid=ctas)
    out, count = k.tensor("out", s32, (tiles + 1, 32)), k.tensor("count", s32, (1,))
    slot = k.shared("slot", s32, (slots,))
    full, empty = k.mbarriers("full", slots), k.mbarriers("empty", slots)
    t, n = k.var("t", 0), k.var("n", 0)
    with k.one_thread():
        for i in range(slots):
            k.mbarrier.init(full[i], 1)
            k.mbarrier.init(empty[i], 1)
    k.sync_threads()
    at, turn = n % slots, (n // slots) & 1
    with k.role("scheduler", 0), k.elected(), k.while_(t < tiles):
        if fault != "guard":
            k.mbarrier.wait(empty[at], turn ^ 1)
        k.mem.atomic(count[0], "add", 1, result=t)
        k.mem.store(slot[at], t)
        k.mbarrier.arrive(full[at])
        k.assign(n, n + 1)
    with k.role("worker", 1), k.while_(t < tiles):
        k.mbarrier.wait(full[at], turn)
        k.mem.load(t, slot[at])
        k.sync_warp()
        with k.elected():
            k.mbarrier.arrive(empty[at])
        with k.if_(t < tiles):
            k.mem.store(out[t // 2 if fault == "tile" else t, k.lane_id], t)
        k.assign(n, n + 1)


@pytest.mark.parametrize(("tiles", "ctas"), [(10, 3), (3, 4), (5, 1)])
def test_tiles_are_drawn_from_a_counter(tiles: int, ctas: int) -> None:
    report = check(scheduler.build(tiles=tiles, ctas=ctas))
    assert report.verdict == "proved"
    assert "every ticket order of count" in report.covers


def test_a_slot_that_one_cta_fills_too_often_if_it_draws_most_tiles() -> None:
    report = check(scheduler.build(tiles=5, ctas=3, slots=4, fault="guard"))
    assert report.verdict == "failed"
    assert lines(report, "race") == {"k.mem.store(slot[at], t)", "k.mem.load(t, slot[at])"}
    assert check(scheduler.build(tiles=3, ctas=3, slots=4, fault="guard")).verdict == "proved"


def test_two_tiles_that_meet_if_different_ctas_draw_them() -> None:
    report = check(scheduler.build(tiles=4, ctas=2, fault="tile"))
    assert report.verdict == "failed"
    assert report.rules == {"race"}
    assert len(lines(report, "race")) == 1


def test_covers_names_how_many_tiles_one_cta_was_given() -> None:
    """A proof for which not all numbers were tried leans on that."""
    report = check(scheduler.build(tiles=16, ctas=2))
    assert "up to 10, 15, 16 for one cluster" in report.covers
    (one,) = (one for one in report.leanings if one.name == "ticket-order")
    assert one.conditional
    assert [loc.file.endswith("test_tickets.py") for loc in one.locs] == [True]


@pytest.mark.parametrize(("tiles", "ctas"), [(3, 4), (16, 1)])
def test_a_proof_for_which_all_numbers_of_tiles_were_tried_assumes_nothing_of_them(
    tiles: int, ctas: int
) -> None:
    report = check(scheduler.build(tiles=tiles, ctas=ctas))
    assert report.verdict == "proved"
    assert "ticket-order" not in {one.name for one in report.leanings}


def steered(*, bound: int) -> Program:
    """The number drawn chooses what a CTA does beyond being the last."""
    k = Builder("steered", warps=1)
    k.launch(grid=6)
    count, t = k.tensor("count", s32, (1,)), k.var("t", 0)
    with k.elected():
        k.mem.atomic(count[0], "add", 1, result=t)
        with k.if_((t % 4).eq(bound)):
            k.fence.proxy_async()
    return k.finish()


def test_numbers_that_steer_otherwise_leave_all_orders_to_try() -> None:
    report = check(steered(bound=0), budget=0, schedules=0)
    assert report.verdict == "bounded"
    assert report.reasons[0].startswith("the result of atom.add on count")


def warps_of_one_cta(*, takers: int) -> Program:
    """Each warp of a CTA draws from a word of shared memory."""
    k = Builder("warps", warps=takers)
    count, t = k.shared("count", s32, (1,)), k.var("t", 0)
    with k.one_thread():
        k.mem.store(count[0], 0)
    k.sync_threads()
    with k.elected():
        k.mem.atomic(count[0], "add", 1, result=t, scope="cta")
        with k.if_(t.eq(takers - 1)):
            k.fence.proxy_async()
    return k.finish()


def test_warps_of_a_cta_are_tried_in_all_orders() -> None:
    report = check(warps_of_one_cta(takers=4))
    assert report.verdict == "proved"
    assert "(all 24 orders)" in report.covers


@ts.kernel(warps=1)
def grid_barrier(k: Builder, *, ctas: int = 4, rounds: int = 2, fault: str = "") -> None:
    """A barrier of the grid whose goal is computed from the number drawn."""
    k.launch(grid=ctas, cooperative=True)
    bar, part = k.tensor("bar", u32, (1,)), k.tensor("part", s32, (ctas, 2, 32))
    old, seen, x = k.var("old", dtype=u32), k.var("seen", dtype=u32), k.var("x", 0)
    with k.loop(rounds) as r:
        k.mem.store(part[k.cta_x, r % 2, k.lane_id], r)
        k.sync_warp()
        with k.elected():
            sem: Literal["relaxed", "acq_rel"] = "relaxed" if fault == "relaxed" else "acq_rel"
            k.mem.atomic(bar[0], "add", 1, result=old, sem=sem, scope="gpu")
            k.assign(seen, 0)
            with k.while_(seen < (old // ctas + 1) * ctas - (fault == "few")):
                k.mem.load(seen, bar[0], sem="acquire", scope="gpu")
            if fault == "extra":
                with k.if_(k.cta_x.eq(0)):
                    k.mem.atomic(bar[0], "add", 1, scope="gpu")
        k.sync_warp()
        k.mem.load(x, part[(k.cta_x + 1) % ctas, r % 2, k.lane_id])


@pytest.mark.parametrize(("ctas", "rounds"), [(2, 3), (12, 3)])
def test_a_grid_barrier_may_use_the_number_it_draws(ctas: int, rounds: int) -> None:
    report = check(grid_barrier.build(ctas=ctas, rounds=rounds))
    assert report.verdict == "proved"
    assert report.stats.schedules <= 2


@pytest.mark.parametrize("fault", ["relaxed", "few"])
def test_a_grid_barrier_that_orders_too_little(fault: str) -> None:
    report = check(grid_barrier.build(fault=fault))
    assert report.verdict == "failed"
    assert lines(report, "race") == {
        "k.mem.store(part[k.cta_x, r % 2, k.lane_id], r)",
        "k.mem.load(x, part[(k.cta_x + 1) % ctas, r % 2, k.lane_id])",
    }


def test_a_grid_barrier_to_which_somebody_adds_more() -> None:
    verdict = check(grid_barrier.build(ctas=2, fault="extra"), budget=2000, schedules=8).verdict
    assert verdict != "proved"


def raised(*, known: bool) -> Program:
    """A CTA raises the counter by a store; another one draws, after it or before it."""
    k = Builder("raised", warps=2)
    count, t = k.shared("count", s32, (1,)), k.var("t", 0)
    with k.one_thread():
        k.mem.store(count[0], 0)
    k.sync_threads()
    with k.role("raises", 0), k.elected():
        k.mem.atomic(count[0], "add", 1, result=t, scope="cta")
        k.mem.store(count[0], 10, sem="relaxed", scope="cta")
    if known:
        k.sync_threads()
    with k.role("draws", 1), k.elected():
        k.mem.atomic(count[0], "add", 1, result=t, scope="cta")
        with k.if_(t.eq(1)):
            k.fence.proxy_async()
    return k.finish()


def test_who_draws_after_a_store_has_to_know_it() -> None:
    assert check(raised(known=True)).verdict == "proved"
    assert check(raised(known=False), budget=0, schedules=0).verdict == "bounded"


def test_words_of_one_tensor_may_differ_in_whether_numbers_are_drawn() -> None:
    k = Builder("lock", warps=1)
    k.launch(grid=3, cooperative=True)
    flags, data = k.tensor("flags", s32, (2,)), k.tensor("data", s32, (1,))
    mine, seen, x = k.var("mine", 0), k.var("seen", 0), k.var("x", 0)
    with k.elected():
        k.mem.atomic(flags[0], "add", 1, result=mine, scope="gpu")
        k.assign(seen, -1)
        with k.while_(seen < mine):
            k.mem.load(seen, flags[1], sem="acquire", scope="gpu")
        k.mem.load(x, data[0])
        k.mem.store(data[0], x + 1)
        k.mem.atomic(flags[1], "add", 1, sem="release", scope="gpu")
    assert check(k.finish()).verdict == "proved"


def test_random_programs_agree_with_their_exploration() -> None:
    seen: Counter[tuple[str, bool | None]] = Counter()
    for seed in range(40):
        case = sample(random.Random(seed))
        program = translate(case)
        said, wrong = check(program, budget=0, schedules=0).verdict, truth(program, 2_000)
        assert not (wrong and said == "proved"), case
        assert wrong is not False or said != "failed", case
        seen[said, wrong] += 1
    assert seen["proved", False] > 10
    assert seen["failed", True] > 10


def test_numbers_are_followed_through_a_shuffle_onto_the_same_register() -> None:
    k = Builder("shuffled", warps=1)
    k.launch(grid=6)
    count, t = k.tensor("count", s32, (1,)), k.var("t", 0)
    with k.if_(k.lane_id.eq(0)):
        k.mem.atomic(count[0], "add", 1, result=t)
    k.mem.shuffle(t, t, 0)
    with k.if_((t % 4).eq(0)):
        k.fence.proxy_async()
    assert check(k.finish(), budget=0, schedules=0).verdict == "bounded"


@ts.kernel(warps=1)
def drawn_again(k: Builder, *, again: bool = True, bound: int = 2) -> None:
    """While it works on a tile, CTA 2 draws once more and stores there; CTA 1 reads one place."""
    k.launch(grid=3)
    counter, out = k.tensor("counter", u32, (1,)), k.tensor("out", u32, (12,))
    number, seen = k.var("number", 0, u32), k.var("seen", 0, u32)
    with k.elected():
        with k.if_(k.cta_x.eq(1)):
            k.mem.load(seen, out[bound])  # a fixed place
        with k.loop(100):
            k.mem.atomic(counter[0], "add", 1, result=number)
            with k.if_(number >= bound):
                k.break_()
            with k.if_(k.cta_x.eq(2)):
                if again:
                    k.mem.atomic(counter[0], "add", 1, result=number)  # again
                k.mem.store(out[number], 1)  # a place that is drawn


def test_a_number_that_is_drawn_while_working_is_no_end() -> None:
    """It may be any, so that tiles given out one by one do not cover where it leads."""
    wrong = check(drawn_again.build())
    assert wrong.verdict == "failed", wrong
    assert lines(wrong, "race") == {
        "k.mem.load(seen, out[bound])  # a fixed place",
        "k.mem.store(out[number], 1)  # a place that is drawn",
    }
    assert check(drawn_again.build(again=False)).verdict == "proved"


@ts.kernel(warps=1)
def narrowed(k: Builder, *, looks: bool = False) -> None:
    """Who has observed an atomic adds for its cluster; the other may have looked before."""
    k.launch(grid=2)
    word = k.tensor("word", u32, (1,))
    old, found = k.var("old", 0, dtype=u32), k.var("found", 0, dtype=u32)
    with k.elected():
        with k.if_(k.cta_x.eq(0)):
            if looks:
                k.mem.load(old, word[0], sem="relaxed", scope="gpu")
            k.mem.atomic(word[0], "add", 1, result=found, scope="gpu")
        with k.if_(k.cta_x.eq(1)):
            k.mem.atomic(word[0], "add", 1, result=found, scope="gpu")
            with k.if_(found.eq(1)):
                k.mem.atomic(word[0], "add", 1, scope="cluster")


def test_what_was_read_before_an_observed_write_is_not_observed() -> None:
    """One step of observation orders the write itself, and nothing that its thread did (H5)."""
    assert check(narrowed.build(looks=False)).verdict == "exhausted"
    report = check(narrowed.build(looks=True))
    assert report.verdict == "failed"
    assert lines(report, "race") == {
        'k.mem.load(old, word[0], sem="relaxed", scope="gpu")',
        'k.mem.atomic(word[0], "add", 1, scope="cluster")',
    }


@ts.kernel(warps=1)
def placed(k: Builder, *, ctas: int = 5, at: str = "number") -> None:
    """Each CTA draws a number; where it stores is up to the number, and which CTA has drawn it."""
    k.launch(grid=ctas)
    count, data = k.tensor("count", s32, (1,)), k.tensor("data", s32, (4 * ctas,))
    t = k.var("t", 0)
    with k.elected():
        if at == "earlier":
            with k.if_(k.cta_x.eq(1)):
                k.mem.store(data[ctas - 2], 1)
        k.mem.atomic(count[0], "add", 1, result=t, sem="acq_rel", scope="gpu")
        k.mem.store(data[2 * t + k.cta_x if at == "both" else t], 1)


@ts.kernel(warps=1)
def scattered(k: Builder, *, step: int = 5, by: str = "number", ctas: int = 3) -> None:
    """Tiles are drawn until none is left; the first one of a CTA may be its own."""
    k.launch(grid=ctas)
    count, data = k.tensor("count", s32, (1,)), k.tensor("data", s32, (128,))
    t, row = k.var("t", k.cta_x if by in ("own", "stale") else 0), k.var("row", 0)
    with k.elected(), k.while_(t < 8):
        k.assign(row, t)
        if by in ("own", "stale"):
            if by == "own":
                k.mem.store(data[row * step + t], 1)
            k.mem.atomic(count[0], "add", 1, result=t)
            k.assign(t, t + ctas)
            if by == "stale":
                k.mem.store(data[row * step + t], 1)
        else:
            k.mem.atomic(count[0], "add", 1, result=t)
            with k.if_(t < 8):
                k.mem.store(data[step * t + (k.cta_x if by == "both" else 0)], 1)


def test_where_a_number_leads_with_the_cta_that_draws_it() -> None:
    assert check(placed.build(ctas=5)).verdict == "proved"
    for at in ("both", "earlier"):
        assert check(placed.build(ctas=5, at=at)).verdict != "proved"
    assert check(placed.build(ctas=3, at="both")).verdict == "failed"


@pytest.mark.parametrize(("by", "proved"), [
    ("number", True), ("own", True), ("both", False), ("stale", False),
])  # fmt: skip
def test_where_tiles_lie_is_up_to_their_numbers_alone(by: str, proved: bool) -> None:
    report = check(scattered.build(by=by), budget=0, schedules=0)
    assert (report.verdict == "proved") is proved
