"""Launch control may hand any cluster any number of the others: every number is looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tilesim as ts
from tilesim import Builder, Program, UsageError, s32, u32
from tilesim.checker import Report, check
from tilesim.checker.witness import load, replay

SOURCE = Path(__file__).read_text().splitlines()


def lines(report: Report, rule: str) -> set[tuple[str, str]]:
    """(role, source line) of all participants of the findings of ``rule``."""
    sides = [p for f in report.findings if f.rule == rule for p in f.participants]
    return {(p.role, SOURCE[p.loc.line - 1].strip()) for p in sides}


def mailbox(tiles: int, slots: int, *, guarded: bool) -> Program:
    """A scheduler posts answers in a ring; if not ``guarded`` without asking who read them."""
    k = Builder("mailbox", "sm_100a", warps=2)
    k.launch(grid=tiles)
    out, r = k.tensor("out", s32, (tiles,)), k.shared("r", u32, (slots, 4))
    full, empty = k.mbarriers("full", slots), k.mbarriers("empty", slots)
    more, x, n = k.var("more", 1), k.var("x", k.cta_x), k.var("n", 0)
    slot, turn = n % slots, (n // slots) & 1
    with k.one_thread():
        for i in range(slots):
            k.mbarrier.init(full[i], 1)
            k.mbarrier.init(empty[i], 1)
    k.sync_threads()
    with k.role("scheduler", 0), k.elected(), k.while_(more.ne(0)):
        if guarded:
            k.mbarrier.wait(empty[slot], turn ^ 1)
        k.mbarrier.arrive_expect_tx(full[slot], 16)
        k.clc.try_cancel(r[slot], full[slot])
        k.mbarrier.wait(full[slot], turn)
        k.clc.query_is_canceled(more, r[slot])
        k.fence.proxy_async("shared::cta")
        k.assign(n, n + 1)
    with k.role("worker", 1), k.elected(), k.while_(more.ne(0)):
        k.mem.store(out[x], x + 1)
        k.mbarrier.wait(full[slot], turn)
        k.clc.query_is_canceled(more, r[slot])
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(x, r[slot])
        k.fence.proxy_async("shared::cta")
        k.mbarrier.arrive(empty[slot])
        k.assign(n, n + 1)
    return k.finish()


@pytest.mark.parametrize(("slots", "tiles"), [(1, 2), (2, 9), (4, 6), (4, 13)])
def test_a_mailbox_overflows_once_more_answers_can_come_than_it_has_slots(
    slots: int, tiles: int
) -> None:
    report = check(mailbox(tiles, slots, guarded=False))
    assert report.verdict == "failed"
    assert report.rules == {"race"}
    asks = ("scheduler", "k.clc.try_cancel(r[slot], full[slot])")
    reads = ("worker", "k.clc.query_first_ctaid(x, r[slot])")
    assert {asks, reads} <= lines(report, "race")
    assert check(mailbox(tiles, slots, guarded=True)).verdict == "proved"


def test_a_mailbox_with_a_slot_for_every_answer_cannot_overflow() -> None:
    assert check(mailbox(4, 4, guarded=False)).verdict == "proved"


def test_the_witness_says_what_is_answered() -> None:
    program = mailbox(6, 4, guarded=False)
    report = check(program)
    assert "in which launch control hands 4 clusters to cluster 0" in report.covers
    witness = load(json.dumps(report.witness))
    assert witness.answers == {0: {(0, 0): (1, 2, 3, 4)}}
    assert replay(program, witness).findings[0].rule == "race"


@pytest.mark.parametrize("answers", [3, [3], [[0, 0]], [[0, 0, 0, -1]], [[0, 0, 0, 6]]])
def test_malformed_answers_are_refused(answers: object) -> None:
    program = mailbox(6, 4, guarded=False)
    witness = {**(check(program).witness or {}), "answers": answers}
    with pytest.raises(UsageError):
        replay(program, witness)


def test_covers_names_the_largest_number_that_was_tried() -> None:
    assert check(mailbox(8, 2, guarded=True)).covers.endswith(
        "whatever number of clusters launch control hands to each"
    )
    assert "(tried up to 10, 19)" in check(mailbox(20, 2, guarded=True)).covers


def counted(tiles: int, *, stuck: int) -> Program:
    """One warp counts its tiles and waits for ever after ``stuck`` of them."""
    k = Builder("counted", "sm_100a", warps=1)
    k.launch(grid=tiles)
    r, b, never = k.shared("r", u32, (4,)), k.mbarriers("b"), k.mbarriers("never")
    more, n = k.var("more", 1), k.var("n", 0)
    with k.elected():
        k.mbarrier.init(b, 1)
        k.mbarrier.init(never, 2)
        k.mbarrier.arrive(never)
        with k.while_(more.ne(0)):
            k.mbarrier.arrive_expect_tx(b, 16)
            k.clc.try_cancel(r, b)
            k.mbarrier.wait(b, n & 1)
            k.clc.query_is_canceled(more, r)
            k.fence.proxy_async("shared::cta")
            k.assign(n, n + 1)
        with k.if_(n.eq(stuck)):
            k.mbarrier.wait(never, 0)
    return k.finish()


@pytest.mark.parametrize("stuck", [1, 2, 4, 7])
def test_each_number_of_answers_is_tried(stuck: int) -> None:
    report = check(counted(7, stuck=stuck))
    assert report.verdict == "failed"
    assert lines(report, "deadlock") == {("warp 0", "k.mbarrier.wait(never, 0)")}
    assert check(counted(7, stuck=8)).verdict == "proved"


def each_asks(tiles: int, *, size: int = 2, stuck: int = -1, parity: bool = True) -> Program:
    """Every CTA of a cluster sends requests of its own and does what it cancels."""
    k = Builder("each", "sm_100a", warps=1)
    k.launch(grid=tiles * size, cluster=size)
    out, r, b = k.tensor("out", s32, (tiles, size)), k.shared("r", u32, (4,)), k.mbarriers("b")
    more, x, n = k.var("more", 1), k.var("x", k.cluster_id), k.var("n", 0)
    with k.one_thread():
        k.mbarrier.init(b, 1)
        k.fence.mbarrier_init()
    k.cluster.sync()
    with k.elected():
        k.mem.store(out[x, k.cluster_rank], 1)
        with k.while_(more.ne(0)):
            k.mbarrier.arrive_expect_tx(b, 16)
            k.clc.try_cancel(r, b)
            k.mbarrier.wait(b, n & 1 if parity else 0)
            k.clc.query_is_canceled(more, r)
            with k.if_(more.ne(0)):
                k.clc.query_first_ctaid(x, r)
                for rank in range(size):
                    k.mem.store(out[x // size, rank], 1)
            k.fence.proxy_async("shared::cta")
            k.assign(n, n + 1)
        with k.if_(n.eq(stuck)):
            k.mbarrier.wait(b, n & 1)
    k.cluster.sync()
    return k.finish()


@pytest.mark.parametrize("tiles", [1, 2, 5, 12])
def test_every_cta_of_a_cluster_may_ask(tiles: int) -> None:
    report = check(each_asks(tiles))
    assert report.verdict == "proved"
    assert "whatever number of clusters launch control hands to each" in report.covers


def test_what_only_one_number_of_answers_shows_is_found_if_several_ask() -> None:
    report = check(each_asks(6, stuck=4))
    assert report.verdict == "failed"
    assert ("warp 0", "k.mbarrier.wait(b, n & 1)") in lines(report, "deadlock")
    assert "hands 3 clusters to cluster" in report.covers
    assert "race" in check(each_asks(6, parity=False)).rules


def chooses(*, value: int, above: bool = False) -> Program:
    """The number of the cancelled cluster is compared with ``value``."""
    k = Builder("chooses", "sm_100a", warps=1)
    k.launch(grid=8)
    r, b = k.shared("r", u32, (4,)), k.mbarriers("b")
    more, x, n = k.var("more", 1), k.var("x", 0), k.var("n", 0)
    with k.elected():
        k.mbarrier.init(b, 1)
        with k.while_(more.ne(0)):
            k.mbarrier.arrive_expect_tx(b, 16)
            k.clc.try_cancel(r, b)
            k.mbarrier.wait(b, n & 1)
            k.clc.query_is_canceled(more, r)
            with k.if_(more.ne(0)):
                k.clc.query_first_ctaid(x, r)
            k.fence.proxy_async("shared::cta")
            with k.if_(x >= value if above else x.eq(value)):
                k.fence.mbarrier_init()
            k.assign(n, n + 1)
    return k.finish()


def test_numbers_that_steer_are_no_proof_unless_all_of_them_steer_alike() -> None:
    report = check(chooses(value=5))
    assert report.verdict == "bounded"
    assert report.reasons[0].startswith("which clusters are cancelled decides what is executed")
    assert check(chooses(value=0, above=True)).verdict == "proved"


@ts.kernel(target="sm_100a", warps=2)
def with_counter(k: Builder, *, guarded: bool = True) -> None:
    """A mailbox in a grid whose CTAs also count how many tiles are done."""
    k.launch(grid=3)
    done, r = k.tensor("done", s32, (1,)), k.shared("r", u32, (2, 4))
    full, empty = k.mbarriers("full", 2), k.mbarriers("empty", 2)
    more, n, old = k.var("more", 1), k.var("n", 0), k.var("old", 0)
    with k.one_thread():
        for i in range(2):
            k.mbarrier.init(full[i], 1)
            k.mbarrier.init(empty[i], 1)
    k.sync_threads()
    with k.elected(), k.while_(more.ne(0)):
        with k.role("scheduler", 0):
            if guarded:
                k.mbarrier.wait(empty[n % 2], ((n // 2) & 1) ^ 1)
            k.mbarrier.arrive_expect_tx(full[n % 2], 16)
            k.clc.try_cancel(r[n % 2], full[n % 2])
        k.mbarrier.wait(full[n % 2], (n // 2) & 1)
        k.clc.query_is_canceled(more, r[n % 2])
        k.fence.proxy_async("shared::cta")
        with k.role("worker", 1):
            k.mbarrier.arrive(empty[n % 2])
            k.mem.atomic(done[0], "add", 1, result=old, scope="gpu")
        k.assign(n, n + 1)


def test_answers_in_a_grid_whose_clusters_meet_in_memory() -> None:
    report = check(with_counter.build(guarded=False))
    assert report.verdict == "failed"
    assert "hands" in report.covers
    assert check(with_counter.build()).verdict != "failed"


def shifted(tiles: int, taker: int, by: int) -> Program:
    """What a tile writes depends on who takes it over: ``taker`` adds ``by`` to its number."""
    k = Builder("shifted", "sm_100a", warps=1)
    k.launch(grid=tiles)
    out, r = k.tensor("out", s32, (2 * tiles,)), k.shared("r", u32, (4,))
    full, more, x, n = k.mbarriers("full"), k.var("more", 1), k.var("x", k.cta_x), k.var("n", 0)
    with k.one_thread():
        k.mbarrier.init(full, 1)
    k.sync_threads()
    with k.elected():
        k.mem.store(out[k.cta_x], 1)
        with k.while_(more.ne(0)):
            k.mbarrier.arrive_expect_tx(full, 16)
            k.clc.try_cancel(r, full)
            k.mbarrier.wait(full, n & 1)
            k.clc.query_is_canceled(more, r)
            with k.if_(more.ne(0)):
                k.clc.query_first_ctaid(x, r)
                with k.if_(k.cta_x.eq(taker)):
                    k.mem.store(out[x + by], 2)
                with k.else_():
                    k.mem.store(out[x], 3)
            k.fence.proxy_async("shared::cta")
            k.assign(n, n + 1)
    return k.finish()


@pytest.mark.parametrize(("tiles", "taker"), [(3, 0), (4, 2), (13, 5)])
def test_who_takes_a_tile_over_may_decide_what_it_touches(tiles: int, taker: int) -> None:
    assert check(shifted(tiles, taker, tiles)).verdict == "proved"
    report = check(shifted(tiles, taker, 1))
    assert report.verdict == "failed"
    assert report.rules == {"race"}
    own, other = "k.mem.store(out[k.cta_x], 1)", "k.mem.store(out[x], 3)"
    for finding in report.findings:
        written = {SOURCE[p.loc.line - 1].strip() for p in finding.participants}
        assert written - {own, other} == {"k.mem.store(out[x + by], 2)"}
        assert len(written) == 2


@ts.kernel(target="sm_100a", warps=2)
def marks(k: Builder, *, tiles: int = 6, both: bool = False) -> None:
    """A CTA marks its own tile and those that it takes over, or another place for each taker."""
    k.launch(grid=tiles)
    done, response = k.tensor("done", s32, (8 * tiles,)), k.shared("response", u32, (4,))
    full, empty = k.mbarriers("full", 1), k.mbarriers("empty", 1)
    x, more, turn = k.var("x", k.cta_x), k.var("more", 1), k.var("turn", 0)
    with k.one_thread():
        k.mbarrier.init(full[0], 1)
        k.mbarrier.init(empty[0], 2)
    k.sync_threads()
    with k.while_(more.ne(0)):
        with k.role("scheduler", 1), k.elected():
            k.mbarrier.wait(empty[0], turn ^ 1)
            k.mbarrier.arrive_expect_tx(full[0], 16)
            k.clc.try_cancel(response, full[0])
        with k.role("worker", 0), k.elected():
            k.mem.store(done[5 * x + (k.cta_x if both else 0)], 1)
        k.mbarrier.wait(full[0], turn)
        k.clc.query_is_canceled(more, response)
        with k.if_(more.ne(0)):
            k.clc.query_first_ctaid(x, response)
        k.fence.proxy_async("shared::cta")
        with k.elected():
            k.mbarrier.arrive(empty[0])
        k.assign(turn, turn ^ 1)


def test_a_place_that_the_taker_and_the_tile_choose_together() -> None:
    """5 takes 1 over and 0 takes 2: both mark place 10."""
    assert check(marks.build()).verdict == "proved"
    report = check(marks.build(both=True), budget=0, schedules=0)
    assert report.verdict == "bounded"
    assert "where done is accessed" in report.reasons[0]
    assert check(marks.build(tiles=4, both=True)).verdict == "proved"
