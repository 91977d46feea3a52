"""Loops of polls in any form are the waits that they are, and nothing else is."""

from __future__ import annotations

import pytest

from tests.sim.test_control_flow import program
from tilesim import check
from tilesim.ir.mir import Mir
from tilesim.transforms.await_condition import peek_flags, with_awaits
from tilesim.transforms.rewrite import joined

#: warp 0 initialises the barrier and arrives, warp 1 waits in some form and loads what was stored
HEAD = """
    branch 4, cond=%thread_id == 0, sense=false
    mbarrier.init bar[0], 1
    fence.mbarrier_init
    nanosleep 1
    barrier.sync 0
    branch 10, cond=%thread_id == 0, sense=false
    st met[4 * (0)], 1
    mbarrier.arrive bar[0]
    nanosleep 1
    exit
    branch {end}, cond=%thread_id == 32, sense=false
"""
BEHIND = [
    "mbarrier.try_wait x, bar[0], {parity}",
    "branch 11, cond=x, sense=false",
    "ld y, met[4 * (0)]",
]
COPIED = [
    "mbarrier.try_wait x, bar[0], {parity}",
    "mov y, select(x, 1, 0)",
    "branch 11, cond=y == 0, sense=true",
    "ld y, met[4 * (0)]",
]
TWO_JUMPS = [
    "mbarrier.try_wait x, bar[0], {parity}",
    "branch 14, cond=x, sense=true",
    "branch 11",
    "ld y, met[4 * (0)]",
]
PEEK = [
    "mbarrier.try_wait x, bar[0], {parity}",
    "branch 15, cond=x, sense=true",
    "mbarrier.try_wait y, bar[0], {parity}",
    "branch 13, cond=y, sense=false",
    "ld y, met[4 * (0)]",
]
PEEK_TWO_JUMPS = [
    "mbarrier.try_wait x, bar[0], {parity}",
    "branch 16, cond=x, sense=true",
    "mbarrier.try_wait y, bar[0], {parity}",
    "branch 16, cond=y, sense=true",
    "branch 13",
    "ld y, met[4 * (0)]",
]
SLEEPS = [
    "mbarrier.test_wait x, bar[0], {parity}",
    "nanosleep 20",
    "branch 11, cond=x == 0, sense=true",
    "ld y, met[4 * (0)]",
]
FORMS = {"behind": BEHIND, "copied": COPIED, "two jumps": TWO_JUMPS, "peek": PEEK, "sleeps": SLEEPS}


def waiting(form: list[str], parity: int = 0) -> Mir:
    """A program that waits for phase 0 by this form, or for the phase before it."""
    lines = "\n".join(form).format(parity=parity)
    return program(HEAD.format(end=11 + len(form)) + lines, warps=2)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_loop_of_polls_is_a_wait(form: list[str]) -> None:
    mir = waiting(form)
    assert check(joined(mir)).verdict in ("bounded", "exhausted")
    assert check(joined(with_awaits(mir))).verdict == "proved"


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_loop_that_passes_too_early_orders_nothing(form: list[str]) -> None:
    """The parity of the phase before the first: what was stored is not known."""
    report = check(joined(with_awaits(waiting(form, parity=1))))
    assert report.rules == {"race"}
    (finding,) = report.findings
    lines = {int(str(p.loc).rpartition(":")[2]) - 14 for p in finding.participants}
    assert lines == {6, 10 + len(form)}


@pytest.mark.parametrize("form", [PEEK, PEEK_TWO_JUMPS], ids=["one jump", "two jumps"])
def test_the_poll_before_is_a_peek(form: list[str]) -> None:
    assert peek_flags(with_awaits(waiting(form))) == {"x"}
    assert check(joined(with_awaits(waiting(form)))).verdict == "proved"
    assert check(joined(with_awaits(waiting(form, parity=1)))).rules == {"race"}
    late = [*form, "st out[4 * (0)], x"]
    assert peek_flags(with_awaits(waiting(late))) == frozenset()


def test_a_loop_that_does_more_stays_one() -> None:
    counted = [
        "mbarrier.try_wait x, bar[0], {parity}",
        "mov y, y + 1",
        "branch 11, cond=x == 0 and y < 9, sense=true",
        "ld y, met[4 * (0)]",
    ]
    mir = waiting(counted)
    assert with_awaits(mir) == mir


def test_a_loop_for_another_answer_stays_one() -> None:
    """It goes on until the phase is no longer complete."""
    mir = waiting(["mbarrier.try_wait x, bar[0], {parity}", "branch 11, cond=x, sense=true"])
    assert with_awaits(mir) == mir


def test_a_register_with_other_values_guards_nothing() -> None:
    """What jumps over the wait is whether x is 1, and x may be 2."""
    form = [
        "mbarrier.try_wait x, bar[0], {parity}",
        "mov x, x * 2",
        "branch 15, cond=x == 1, sense=true",
        "mbarrier.wait bar[0], {parity}",
        "ld y, met[4 * (0)]",
    ]
    mir = waiting(form)
    assert with_awaits(mir) == mir
