"""The reference model of several clusters: programs that are right, and with one thing wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.sim.comparison import assert_told_apart, opinion
from tests.sim.generate import Choose
from tests.sim.grid_programs import GRID_STYLES
from tests.sim.reference_grid import explore
from tests.sim.steps import (
    Add,
    ArriveExpect,
    Cancel,
    Forever,
    Get,
    If,
    Leave,
    MemoryFence,
    Put,
    Query,
    Set,
    Small,
    Spin,
    SpinTicket,
    Step,
    Ticket,
    Tiles,
    Wait,
)


def grid(
    *warps: tuple[Step, ...], clusters: int = 0, counts: tuple[int, ...] = (), ctas: int = 1,
    cooperative: bool = False,
) -> Small:  # fmt: skip
    """A program of one warp per CTA, or of ``clusters`` clusters."""
    return Small(
        warps, counts, ctas=ctas, flags=2, family="grids",
        clusters=clusters or len(warps) // ctas, cooperative=cooperative,
    )  # fmt: skip


_TURN = (Ticket(0), SpinTicket(1), Get(0), Put(0), Add(1, scope="gpu"))
_LAST = (Ticket(0, "acq_rel"), If(1, (Get(0), Get(1))))
_FIRST = (Ticket(0, "acq_rel"), If(0, (Get(0), Get(1))))
_NARROW = Add(0, scope="cluster")
_LOOK, _HANDED = Spin(0, 1, False, "gpu"), Spin(1, scope="gpu")
_TELL = Set(1, release=False, scope="gpu")
_THIRD = (Ticket(0), If(2, (_NARROW,)))
_RAISE, _AWAIT = Add(0, scope="gpu"), Spin(0, scope="gpu")
_ASK = (ArriveExpect(0), Cancel(0, 0), Wait(0, 0, carried=True), Query(0), Leave())
_STEAL = Forever((*_ASK, Put(0, by=True)))
_RING = Forever((ArriveExpect(0), Cancel(0, 0), Wait(0, 0, carried=True), Query(0), Leave()))
_WORK = Forever((Wait(0, 0, carried=True), Query(0), Leave(), Put(0, by=True)))

#: programs that are right, each with a change that makes it wrong and the rule that breaks
TWINS = {
    "tickets name places that there are": (
        grid((), (_STEAL,), (), counts=(1,)),
        grid((), (Forever((*_ASK, Ticket(0), Ticket(0), Put(0, by=True))),), (), counts=(1,)),
        "out-of-bounds",
    ),
    "places of one's own": (grid((Put(0),), (Put(1),)), grid((Put(0),), (Put(0),)), "race"),
    "clusters wait only if all are resident": (
        grid((Put(0), _RAISE), (_AWAIT, Get(0)), cooperative=True),
        grid((Put(0), _RAISE), (_AWAIT, Get(0))),
        "deadlock",
    ),
    "also for lower ones": (
        grid((_AWAIT, Get(0)), (Put(0), _RAISE), cooperative=True),
        grid((_AWAIT, Get(0)), (Put(0), _RAISE)),
        "deadlock",
    ),
    "CTAs of a cluster are": (
        grid((Put(0), _RAISE), (_AWAIT, Get(0)), ctas=2),
        grid((Put(0), _RAISE), (_AWAIT, Get(0))),
        "deadlock",
    ),
    "a scope that includes the reader": (
        grid((Put(0), Add(0, scope="cluster")), (_AWAIT, Get(0)), ctas=2),
        grid((Put(0), Add(0, scope="cta")), (_AWAIT, Get(0)), ctas=2),
        "race",
    ),
    "the last ticket": (grid((Put(0), *_LAST), (Put(1), *_LAST)),
                        grid((Put(0), *_FIRST), (Put(1), *_FIRST)), "race"),
    "a ticket that acquires and releases": (
        grid((Put(0), *_LAST), (Put(1), *_LAST)),
        grid((Put(0), *_LAST), (Put(1), Ticket(0, "acquire"), _LAST[1])),
        "race",
    ),
    "or with fences": (
        grid(*[(Put(i), MemoryFence("gpu"), Ticket(0), If(1, (MemoryFence("gpu"), Get(1 - i))))
               for i in (0, 1)]),
        grid(*[(Put(i), MemoryFence("gpu"), Ticket(0), If(1, (Get(1 - i),))) for i in (0, 1)]),
        "race",
    ),
    "who has drawn comes after those that drew before (H5)": (
        grid((Ticket(0),), (Ticket(0), If(1, (_NARROW,)))),
        grid((Ticket(0),), (Ticket(0), If(0, (_NARROW,)))),
        "race",
    ),
    "also through an RMW that nobody reads": (
        grid((Ticket(0),), (_RAISE,), _THIRD),
        grid((Ticket(0),), (_RAISE,), (Ticket(0), If(1, (_NARROW,)))),
        "race",
    ),
    "not through a store": (
        grid((Ticket(0),), (Ticket(0),), _THIRD),
        grid((Ticket(0), Set(0, 2, release=False, scope="gpu")), _THIRD),
        "race",
    ),
    "if the scopes of both include each other": (
        grid((Ticket(0),), (Ticket(0), If(1, (_NARROW,)))),
        grid((Ticket(0, scope="cluster"),), (Ticket(0), If(1, (_NARROW,)))),
        "race",
    ),
    "but not after what was before them": (
        grid((Put(0), Ticket(0, "acq_rel")), (Ticket(0, "acq_rel"), If(1, (Get(0),)))),
        grid((Put(0), Ticket(0)), (Ticket(0), If(1, (Get(0),)))),
        "race",
    ),
    "a load observes as well, also the first store": (
        grid((Set(0, release=False, scope="gpu"),), (_LOOK, _NARROW), cooperative=True),
        grid((Set(0, release=False, scope="cluster"),), (_LOOK, _NARROW), cooperative=True),
        "race",
    ),
    "as many as it must have found": (
        grid((_RAISE,), (_RAISE,), (Spin(0, 2, False, "gpu"), _NARROW), cooperative=True),
        grid((_RAISE,), (_RAISE,), (_LOOK, _NARROW), cooperative=True),
        "race",
    ),
    "whoever acquires from the observer comes after it, too": (
        grid((_RAISE,), (_LOOK, Set(1, scope="gpu")), (_HANDED, _NARROW), cooperative=True),
        grid((_RAISE,), (_LOOK, Set(1, release=False, scope="gpu")), (_HANDED, _NARROW),
             cooperative=True),
        "race",
    ),
    "earlier in time is not observed, with a store between": (
        # the draws of the right one come in an order in memory: a relaxed flag makes none
        grid((Ticket(0), Set(1, scope="gpu")), (Spin(1, scope="gpu"), Ticket(0)), _THIRD,
             cooperative=True),
        grid((Ticket(0), _TELL), (Spin(1, 1, False, "gpu"), Set(0, 5, scope="gpu")),
             (Ticket(0, "acquire"), If(5, (_NARROW,))), cooperative=True),
        "race",
    ),
    "what was observed stays so": (
        grid((Set(0, scope="gpu"),), (_LOOK, _NARROW, _NARROW), cooperative=True),
        grid((Set(0, scope="gpu"),), (_NARROW, _LOOK, _NARROW), cooperative=True),
        "race",
    ),
    "nor is what comes after the look": (
        grid((Ticket(0), Ticket(0), _TELL), (Spin(0, 2, False, "gpu"), _NARROW), cooperative=True),
        grid((Ticket(0), Ticket(0), _TELL), (_LOOK, Spin(1, 1, False, "gpu"), _NARROW),
             cooperative=True),
        "race",
    ),
    "turns by ticket": (
        grid(_TURN, _TURN, _TURN, cooperative=True),
        grid(_TURN, _TURN, (_TURN[0], *_TURN[2:]), cooperative=True),
        "race",
    ),
    "a tile has one taker": (
        grid(*[(Tiles(0, 2, (Put(0, by=True),)),)] * 2),
        grid(*[(Tiles(0, 2, (Put(0),)),)] * 2),
        "race",
    ),
    "a cancelled cluster does not run": (
        grid(*[(Put(i), _STEAL) for i in range(2)], counts=(1,)),
        grid(*[(Put(0), _STEAL) for i in range(2)], counts=(1,)),
        "race",
    ),
    "who has seen a failure does not ask again": (
        grid((Put(0), _STEAL), (Put(1), _STEAL), counts=(1,)),
        grid((Put(0), _STEAL, *_ASK[:2], Wait(0, 1)), (Put(1),), counts=(1,)),
        "launch-control",
    ),
    "a mailbox is read before it is filled again": (
        grid((_STEAL,), (_STEAL,), counts=(1,)),
        grid((_RING,), (_WORK,), (), (), (), (), clusters=3, counts=(1,)),
        "race",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_reference_and_check_tell_right_from_wrong(name: str) -> None:
    assert_told_apart(*TWINS[name])


@pytest.mark.parametrize("style", dict.fromkeys(GRID_STYLES))
def test_what_the_generator_calls_right_is(style: Callable[[Choose], Small]) -> None:
    for seed in range(3):
        small = style(random.Random(seed).randrange)
        assert explore(small).clean, small


def test_turns_by_ticket_need_no_residency() -> None:
    """Who waits does so for clusters that have started; `check` leaves that open."""
    small = grid(_TURN, _TURN, _TURN)
    assert explore(small).clean
    assert opinion(small).verdict not in ("failed", "rejected")


def test_any_number_of_clusters_may_be_cancelled() -> None:
    """With one cluster to cancel the mailbox of one slot is full but once."""
    two = TWINS["a mailbox is read before it is filled again"][1]
    assert explore(replace(two, warps=two.warps[:4], clusters=2)).failures
