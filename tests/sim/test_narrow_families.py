"""The families of `tests.sim.narrow_campaign` and ``weak_campaign --barriers``: right and wrong."""

from __future__ import annotations

from functools import partial

import pytest

from tests.campaign import tally
from tests.sim import (
    absent_lanes,
    narrow_campaign,
    noncoherent_programs,
    weak_barriers,
    weak_campaign,
)
from tests.sim.absent_lanes import Draw, Exit, Gather, Statement, Wait, Warp, failures
from tests.sim.noncoherent_programs import Access, Grid
from tests.sim.sites import BOTH, deciding
from tests.sim.weak_shapes import (
    Arrive,
    Guard,
    Meet,
    Peek,
    Shape,
    Step,
    Swap,
    Thread,
    Touch,
    translate,
)
from tests.sim.weak_shapes import Wait as WeakWait
from tilesim.checker import check
from tilesim.ir.program import Strict

_ALL, _FIRST, _REST = frozenset({0, 1}), frozenset({0}), frozenset({1})
_HALVES = (16, 32)


@pytest.mark.parametrize("family", ["absent", "noncoherent"])
def test_random_programs(family: str) -> None:
    found = tally(partial(narrow_campaign.judged, family=family), range(16))
    assert not found.wrong
    assert {"failed, wrong", "proved, right"} <= {*found.said}


def test_random_barriers() -> None:
    found = tally(partial(weak_campaign.judged, kind="barriers"), range(24))
    assert not found.wrong
    assert {"failed, wrong", "proved, right"} <= {*found.said}


# ---------------------------------------------------------------------- tickets and arrivals

_DRAW = Swap("t", "x", 1, "acq_rel", adds=True)
_RELEASED = Swap("t", "x", 1, "release", adds=True)
#: a lane stores and draws, another draws and stores if its ticket says what it does
_TICKETS: dict[str, tuple[tuple[tuple[Step, ...], ...], bool]] = {
    "the first stores": (((Touch(), _DRAW), (_DRAW, Guard("t", 0, Touch()))), True),
    "the second stores": (((Touch(), _DRAW), (_DRAW, Guard("t", 1, Touch()))), False),
    "the second stores, and has acquired nothing": (
        ((Touch(), _DRAW), (_RELEASED, Guard("t", 1, Touch()))), True,
    ),
    "the first stores, and each draws before": (
        ((_DRAW, Guard("t", 0, Touch())), (_DRAW, Guard("t", 0, Touch()))), False,
    ),
    "both store, the one first that draws first": (
        ((_RELEASED, Guard("t", 1, Touch())), (_DRAW, Guard("t", 0, Touch()))), True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _TICKETS)
def test_tickets_of_lanes_in_either_order(name: str) -> None:
    """An acquire orders a lane behind what it has found, and not in executions in which it comes
    first: the order of the text was taken for the only one."""
    steps, wrong = _TICKETS[name]
    shape = Shape(tuple(Thread(body) for body in steps), lanes=True)
    assert weak_barriers.wrong(shape) == wrong
    report = check(translate(shape), strict=deciding(wrong), schedules=8)
    assert report.rules == ({"race"} if wrong else set())
    assert report.verdict in (("failed",) if wrong else ("proved", "exhausted", "bounded"))


#: a ticket steers the one arrival that a barrier is for; a thread that waits, or peeks, then stores
_LAST = (Touch(), _DRAW, Guard("t", 1, Arrive("m")))
_NEVER = (Touch(), _DRAW, Guard("t", 2, Arrive("m")))
_LOOKS = (Peek("p", "m"), Guard("p", 1, Touch()))
_STEERED: dict[str, tuple[tuple[tuple[Step, ...], ...], set[str]]] = {
    "the last to draw arrives": (((_DRAW, _LAST[2]), _LAST, (WeakWait("m"), Touch())), set()),
    "none arrives": (((_DRAW, _LAST[2]), _NEVER, (WeakWait("m"), Touch())), {"deadlock"}),
    "a peek": ((_LAST, (_DRAW, _LAST[2]), _LOOKS), set()),
    "a peek that says no": (
        (_LAST, (_DRAW, _LAST[2]), (Peek("p", "m"), Guard("p", 0, Touch()))), {"race"},
    ),
    "a peek behind a meeting": (
        (
            (Touch(), Arrive("m"), Meet()),
            (Meet(), Peek("p", "m"), Guard("p", 0, Touch())),
        ), set(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", _STEERED)
def test_tickets_of_lanes_steer_arrivals(name: str) -> None:
    steps, rules = _STEERED[name]
    shape = Shape(tuple(Thread(body) for body in steps), lanes=True, counts=(("m", 1),))
    assert weak_barriers.wrong(shape) == bool(rules)
    report = check(translate(shape), strict=deciding(rules), schedules=8)
    assert report.rules <= rules
    assert report.verdict in (("failed",) if rules else ("proved", "exhausted", "bounded"))


# ---------------------------------------------------------------------- lanes that are absent


def _warp(*statements: Statement, ends: tuple[int, ...] = _HALVES, count: int = 1) -> Warp:
    return Warp(ends, statements, count)


_WAITED = Statement(_FIRST, Gather("shfl", _ALL))
_ABSENT = {
    "all come": (_warp(Statement(_ALL, Gather("shfl", _ALL))), set()),
    "some exit before": (_warp(Statement(_REST, Exit()), _WAITED), set()),
    "some exit, and are asked for a value": (
        _warp(Statement(_REST, Exit()), Statement(_FIRST, Gather("shfl", _ALL, 1))), {"undefined"},
    ),
    "some wait at an mbarrier for ever": (_warp(Statement(_REST, Wait()), _WAITED), {"stuck"}),
    "some wait at another mask": (
        _warp(Statement(_REST, Gather("shfl", _REST)), Statement(_FIRST, Gather("any", _ALL)),
              Statement(_REST, Gather("ballot", _ALL))), {"stuck"},
    ),
    "some pass by": (_warp(_WAITED, Statement(_REST, Exit())), {"passed"}),
    "not in the mask": (_warp(Statement(_ALL, Gather("any", _FIRST))), {"undefined", "stuck"}),
}  # fmt: skip


@pytest.mark.parametrize("name", _ABSENT)
def test_lanes_of_a_mask_that_do_not_come(name: str) -> None:
    warp, expected = _ABSENT[name]
    assert failures(warp) <= expected
    assert bool(failures(warp)) == bool(expected)
    report = check(absent_lanes.translate(warp), strict=deciding(expected))
    if expected == set():
        assert report.verdict == "proved"
    elif expected != {"passed"}:
        assert report.verdict == "failed"
        assert report.rules <= {"participation", "deadlock"}


@pytest.mark.parametrize("strict", BOTH)
def test_the_last_that_others_wait_for_exits(strict: Strict) -> None:
    """The whole warp goes on from where the others wait: this was an IndexError."""
    drawing = tuple(Statement(frozenset({n}), Draw()) for n in (2, 1))
    everyone = frozenset(range(4))
    warp = _warp(
        *drawing, Statement(frozenset({0}), Gather("ballot", everyone)),
        Statement(frozenset({2}), Exit()), ends=(8, 9, 10, 32),
    )  # fmt: skip
    assert failures(warp) == {"passed"}
    report = check(absent_lanes.translate(warp), strict=strict, schedules=8)
    assert report.rules <= {"participation"}


# ---------------------------------------------------------------------- ld.global.nc

_LOADED = Access("nc", 0, turns=4)
_NONCOHERENT = {
    "other words": (Grid(2, (_LOADED, Access("store", 4, cta=1)), False), False),
    "a word of a loop": (Grid(2, (_LOADED, Access("store", 3, cta=1)), False), True),
    "another CTA's": (Grid(2, (_LOADED, Access("store", 3, only_cta=1)), False), True),
    "with a ticket that some CTA has": (
        Grid(2, (_LOADED, Access("store", 2, ticket=1, only_ticket=1)), True),
        True,
    ),
    "with a ticket that ends behind": (
        Grid(2, (_LOADED, Access("store", 3, ticket=1, only_ticket=1)), True),
        False,
    ),
    "by an atomic": (Grid(1, (_LOADED, Access("atomic", 0, barrier=True)), False), True),
    "no write": (Grid(2, (_LOADED, Access("plain", 0)), False), False),
}


@pytest.mark.parametrize("name", _NONCOHERENT)
def test_loads_of_what_the_grid_writes(name: str) -> None:
    grid, wrong = _NONCOHERENT[name]
    assert noncoherent_programs.wrong(grid) == wrong
    report = check(noncoherent_programs.translate(grid), strict=deciding(wrong))
    if wrong:
        assert report.verdict == "failed"
        assert report.rules & {"noncoherent-load", "race"}
    else:
        assert report.verdict == "proved"
