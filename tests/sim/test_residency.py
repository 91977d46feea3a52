"""Launches that are not cooperative: no order of residency may matter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.sim.sites import sites
from tilesim import Builder, Program, u8, u32
from tilesim.checker import check, replay
from tilesim.ir.expr import Expr


def waits(grid: int, *, who: int, other: int, cooperative: bool, strong: bool = True) -> Program:
    """CTA ``who`` waits until CTA ``other`` has stored to its word."""
    k = Builder("waits", warps=1)
    k.launch(grid=grid, cooperative=cooperative)
    words, seen = k.tensor("words", u32, (grid,)), k.var("seen", 0, u32)
    with k.one_thread():
        with k.if_(k.cta_x.eq(who)), k.while_(seen.eq(0)):
            k.mem.load(seen, words[other], sem="acquire", scope="gpu")
        k.mem.store(words[k.cta_x], 1, sem="release", scope="gpu")
    return k.finish()


@pytest.mark.parametrize(("who", "other"), [(0, 1), (1, 0), (3, 1), (1, 3)])
def test_a_wait_for_another_cta_needs_a_cooperative_launch(who: int, other: int) -> None:
    assert check(waits(4, who=who, other=other, cooperative=True)).verdict == "proved"
    program = waits(4, who=who, other=other, cooperative=False)
    report = check(program)
    assert report.verdict == "failed"
    assert report.rules == {"deadlock"}
    assert {p.cta for p in report.findings[0].participants} >= {who}
    assert f"{who} first" in report.covers
    assert "0.4a" in " ".join(report.findings[0].notes)
    assert report.witness is not None
    assert replay(program, report.witness).findings[0].rule == "deadlock"


def test_a_wait_for_oneself_needs_nobody() -> None:
    assert check(waits(4, who=2, other=2, cooperative=True)).rules == {"deadlock"}
    k = Builder("own", warps=2)
    k.launch(grid=4)
    words, seen = k.tensor("words", u32, (4,)), k.var("seen", 0, u32)
    with k.role("giver", 0), k.one_thread(0):
        k.mem.store(words[k.cta_x], 1, sem="release", scope="gpu")
    with k.role("taker", 1), k.while_(seen.eq(0)):
        k.mem.load(seen, words[k.cta_x], sem="acquire", scope="gpu")
    assert check(k.finish()).verdict == "proved"


def grid_barrier(
    k: Builder, *, ctas: int, kib: int, registers: int | None = None, cooperative: bool = True
) -> None:
    k.launch(grid=ctas, cooperative=cooperative, registers=registers)
    k.shared("stage", u8, (kib * 1024,))
    count, seen = k.tensor("count", u32, (1,)), k.var("seen", 0, u32)
    with k.one_thread(0):
        k.mem.atomic(count[0], "add", 1, sem="release", scope="gpu")
        with k.while_(seen < ctas):
            k.mem.load(seen, count[0], sem="acquire", scope="gpu")
    k.sync_threads()


def barrier(ctas: int, kib: int, target: str = "sm_90a", **options: Any) -> Program:
    k = Builder("grid_barrier", target, warps=4)
    grid_barrier(k, ctas=ctas, kib=kib, **options)
    return k.finish()


@pytest.mark.parametrize(
    ("target", "most", "kib", "registers"),
    [
        ("sm_90a", 132, 200, None), ("sm_90a", 264, 112, None), ("sm_100a", 148, 200, None),
        # 128 threads with 248 registers: two per multiprocessor
        ("sm_90a", 264, 16, 248), ("sm_90", 132, 120, None), ("sm_120a", 188, 90, None),
    ],
)  # fmt: skip
def test_a_cooperative_launch_fits_on_the_gpu(
    target: str, most: int, kib: int, registers: int | None
) -> None:
    fits = check(barrier(most, kib, target, registers=registers), strict="ptx")
    assert fits.verdict == "proved"
    # the smaller GPUs of some targets do not hold them
    smaller = target not in ("sm_100a",)
    assert ("device-size" in {leaning.name for leaning in fits.leanings}) is smaller
    wrong = check(barrier(most + 1, kib, target, registers=registers))
    assert wrong.rules == {"deadlock"}
    assert sites(wrong, grid_barrier) == [("deadlock", {
        ("grid_barrier", "k.launch(grid=ctas, cooperative=cooperative, registers=registers)"),
        ("grid_barrier", "with k.while_(seen < ctas):"),
    })]  # fmt: skip
    assert f"more than {most} at once" in wrong.findings[0].message
    assert wrong.verdict == "failed"


def test_few_ctas_fit_on_each_gpu() -> None:
    small = check(barrier(78, 200))
    assert small.verdict == "proved"
    assert "device-size" not in {leaning.name for leaning in small.leanings}
    assert "holds all 79 CTAs" in check(barrier(79, 200)).covers


def test_ctas_that_do_not_wait_for_each_other_need_no_room() -> None:
    k = Builder("apart", warps=4)
    k.launch(grid=4000, cooperative=True)
    out = k.tensor("out", u32, (4000,))
    with k.one_thread(0):
        k.mem.store(out[k.cta_x], 1)
    assert check(k.finish()).verdict == "proved"


def turnstile(grid: int, before: int, *, cooperative: bool) -> Program:
    """Each CTA waits for its neighbour, ``before`` it or after it, as split-K does."""
    k = Builder("turnstile", warps=1)
    k.launch(grid=grid, cooperative=cooperative)
    turn, seen = k.tensor("turn", u32, (1,)), k.var("seen", 0, u32)
    place: Expr = k.cta_x if before < 0 else grid - 1 - k.cta_x
    with k.one_thread():
        with k.while_(seen < place):
            k.mem.load(seen, turn[0], sem="acquire", scope="gpu")
        k.mem.atomic(turn[0], "add", 1, sem="release", scope="gpu")
    return k.finish()


@pytest.mark.parametrize("before", [-1, 1])
def test_a_turnstile_in_any_direction(before: int) -> None:
    assert check(turnstile(5, before, cooperative=True)).verdict == "proved"
    report = check(turnstile(5, before, cooperative=False))
    assert report.rules == {"deadlock"}


def drawn(grid: int, *, ahead: int) -> Program:
    """A CTA draws a ticket and waits until as many as that, and ``ahead`` more, are done."""
    k = Builder("drawn", warps=1)
    k.launch(grid=grid)
    tickets, done = k.tensor("tickets", u32, (1,)), k.tensor("done", u32, (1,))
    ticket, seen = k.var("ticket", 0, u32), k.var("seen", 0, u32)
    with k.one_thread():
        k.mem.atomic(tickets[0], "add", 1, result=ticket)
        with k.while_(seen < ticket + ahead):
            k.mem.load(seen, done[0], sem="acquire", scope="gpu")
        k.mem.atomic(done[0], "add", 1, sem="release", scope="gpu")
    return k.finish()


def test_waits_for_those_with_earlier_tickets() -> None:
    assert check(drawn(3, ahead=0)).verdict in ("bounded", "proved")
    assert check(drawn(3, ahead=1)).rules == {"deadlock"}


def second_waits_for_third(*, cooperative: bool) -> Program:
    """The second ticket's holder waits for the third's: nobody does who is alone."""
    k = Builder("second", warps=1)
    k.launch(grid=3, cooperative=cooperative)
    tickets, done = k.tensor("tickets", u32, (1,)), k.tensor("done", u32, (1,))
    ticket, seen = k.var("ticket", 0, u32), k.var("seen", 0, u32)
    with k.one_thread():
        k.mem.atomic(tickets[0], "add", 1, result=ticket)
        with k.if_(ticket.eq(1)), k.while_(seen.eq(0)):
            k.mem.load(seen, done[0], sem="acquire", scope="gpu")
        with k.if_(ticket.eq(2)):
            k.mem.store(done[0], 1, sem="release", scope="gpu")
    return k.finish()


def test_what_a_cta_waits_for_may_be_up_to_the_schedule() -> None:
    assert check(second_waits_for_third(cooperative=True)).verdict in ("proved", "exhausted")
    assert check(second_waits_for_third(cooperative=False)).verdict == "failed"


def two_draws(*, cooperative: bool) -> Program:
    """Who draws twice in a row waits for nobody; others wait for the CTA that does not draw."""
    k = Builder("two", warps=1)
    k.launch(grid=3, cooperative=cooperative)
    tickets, done = k.tensor("tickets", u32, (1,)), k.tensor("done", u32, (1,))
    one, two, seen = k.var("one", 0, u32), k.var("two", 0, u32), k.var("seen", 0, u32)
    with k.one_thread():
        with k.if_(k.cta_x < 2):
            k.mem.atomic(tickets[0], "add", 1, result=one)
            k.mem.atomic(tickets[0], "add", 1, result=two)
            with k.if_(two.ne(one + 1)), k.while_(seen < 1):
                k.mem.load(seen, done[0], sem="acquire", scope="gpu")
        with k.if_(k.cta_x.eq(2)):
            k.mem.atomic(done[0], "add", 1, sem="release", scope="gpu")
    return k.finish()


def test_two_that_are_resident_may_wait_although_one_would_not() -> None:
    assert check(two_draws(cooperative=True)).verdict in ("proved", "exhausted")
    report = check(two_draws(cooperative=False))
    assert report.verdict == "bounded"
    assert any("not cooperative" in reason for reason in report.reasons)


def last_one_sums(*, grid: int) -> Program:
    """Nobody waits: the last one to draw does the rest."""
    k = Builder("last", warps=1)
    k.launch(grid=grid)
    tickets, total = k.tensor("tickets", u32, (1,)), k.tensor("total", u32, (1,))
    ticket = k.var("ticket", 0, u32)
    with k.one_thread():
        k.mem.atomic(tickets[0], "add", 1, result=ticket, sem="acq_rel")
        with k.if_(ticket.eq(grid - 1)):
            k.mem.store(total[0], 1)
    return k.finish()


def test_without_waits_any_residency_does() -> None:
    assert check(last_one_sums(grid=3)).verdict in ("exhausted", "proved")


def test_grids_of_many_ctas_are_looked_at_by_class() -> None:
    right = check(waits(200, who=150, other=7, cooperative=True))
    assert right.verdict == "proved"
    wrong = check(waits(200, who=150, other=7, cooperative=False))
    assert wrong.rules == {"deadlock"}
    assert "150 first" in wrong.covers
