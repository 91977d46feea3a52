"""The reference model of lanes: programs that are right, and the same with one thing wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.sim.comparison import assert_told_apart, goes_on, opinion
from tests.sim.generate import Choose
from tests.sim.lane_pipelines import LANE_STYLES
from tests.sim.reference_lanes import explore
from tests.sim.steps import (
    Arrive,
    ArriveExpect,
    ClusterArrive,
    ClusterWait,
    Complete,
    Copy,
    CpAsync,
    CpWait,
    Elect,
    Expect,
    Fence,
    Gather,
    Join,
    Lanes,
    Later,
    Own,
    Read,
    Remote,
    Small,
    Step,
    Store,
    Wait,
    WaitGroup,
    WarpSync,
    Write,
)
from tests.sim.steps import Commit as Group


def lanes(*warps: tuple[Step, ...], counts: tuple[int, ...] = (1,), ctas: int = 1) -> Small:
    """A program of lanes with one word."""
    return Small(warps, counts, ctas=ctas, family="lanes")


_RELEASE = Lanes(0, 1, (Arrive(0),))
_TAKE = (Wait(0, 0), Read(0))
_STORED = (Store(0, 0), Group())
_SENT = Lanes(0, 2, (Remote("st", 0, 0, 1),))
_MEET = (ClusterArrive(), ClusterWait())
_BYTES = (ArriveExpect(0), Complete(0))
_EARLY = (Elect((Complete(0, 64), Arrive(0))), Wait(0, 0))
_COPY = (Elect((ArriveExpect(0, 32), Copy(0, 0))),)
_PARTED = Lanes(0, 1, (Read(0, cell=0),), meets=False)
_ARRIVE = Join(0, 2, waits=False)
_ALONE = Lanes(0, 1, (Wait(0, 0),), meets=False)
_OWN = (Lanes(0, 2, (Write(0), Own(Arrive(0)))),)

#: programs that are right, each with a change that makes it wrong and the rule that breaks
TWINS = {
    "one lane releases what all wrote": (
        lanes((Write(0), WarpSync(), _RELEASE), _TAKE),
        lanes((Write(0), _RELEASE), _TAKE),
        "race",
    ),
    "one lane releases what some read": (
        lanes((Lanes(0, 4, (Read(0), WarpSync(), _RELEASE)),), (Wait(0, 0), Write(0))),
        lanes((Lanes(0, 4, (Read(0), _RELEASE)),), (Wait(0, 0), Write(0))),
        "race",
    ),
    "an elected lane acts for all": (
        lanes((Read(0), Elect((Arrive(0),))), (Wait(0, 0), Write(0))),
        lanes((Elect((Arrive(0),)), Read(0)), (Wait(0, 0), Write(0))),
        "race",
    ),
    "all lanes arrive": (
        lanes((Read(0), Arrive(0)), (Wait(0, 0), Write(0)), counts=(32,)),
        lanes((Read(0), Lanes(0, 31, (Arrive(0),))), (Wait(0, 0), Write(0)), counts=(31,)),
        "race",
    ),
    "one lane waits for those it meets": (
        lanes(_OWN, (Lanes(0, 2, (Own(Wait(0, 0)), WarpSync(), Lanes(0, 1, (Read(0, cell=1),)))),),
              counts=(1, 1)),
        lanes(_OWN, (Lanes(0, 2, (Own(Wait(0, 0)), Lanes(0, 1, (Read(0, cell=1),)))),),
              counts=(1, 1)),
        "race",
    ),
    "every barrier of the lanes": (
        lanes(_OWN, (Wait(0, 0), Wait(1, 0), Lanes(0, 2, (Read(0),))), counts=(1, 1)),
        lanes(_OWN, (Wait(0, 0), Lanes(0, 2, (Read(0),))), counts=(1, 1)),
        "race",
    ),
    "a part of the lanes cannot bring the bytes into balance": (
        lanes((Elect((Expect(0, 1), ArriveExpect(0, 1))), Wait(0, 0)),
              (Lanes(0, 2, (Complete(0, 1),)),)),
        lanes((Elect((ArriveExpect(0, 1), Expect(0, 1))), Wait(0, 0)),
              (Lanes(0, 2, (Complete(0, 1),)),)),
        "tx-mismatch",
    ),
    "lanes expect the bytes of a copy before they arrive": (
        lanes((ArriveExpect(0, 1), Elect((Copy(0, 0),))), _TAKE, counts=(32,)),
        lanes((ArriveExpect(0, 1), Elect((Copy(0, 0),))), _TAKE, counts=(16,)),
        "over-arrival",
    ),
    "a later arrival of every lane": (
        lanes((CpAsync(0), Later(0)), _TAKE, counts=(32,)),
        lanes((CpAsync(0), _RELEASE, Later(0)), _TAKE, counts=(32,)),
        "race",
    ),
    "a wait for one's own copies": (
        lanes((CpAsync(0), CpWait(), WarpSync(), _RELEASE), _TAKE),
        lanes((CpAsync(0), WarpSync(), CpWait(), _RELEASE), _TAKE),
        "race",
    ),
    "lanes store in groups of their own": (
        lanes((Lanes(0, 2, (*_STORED, WaitGroup(0))), Write(0))),
        lanes((Lanes(0, 2, (*_STORED, Lanes(0, 1, (WaitGroup(0),)))), Write(0))),
        "race",
    ),
    "both arms meet at a named barrier": (
        lanes((Lanes(0, 16, (Join(0, 2),), (Join(0, 2),)),), (Join(0, 2),)),
        lanes((Lanes(0, 16, (Join(0, 2),), ()),), (Join(0, 2),)),
        "deadlock",
    ),
    "one arm lets the other go on": (
        lanes((Lanes(0, 1, (Arrive(0),), (Wait(0, 0),)),)),
        lanes((Lanes(0, 1, (Wait(0, 0),), (Wait(0, 0), Arrive(0))),)),
        "deadlock",
    ),
    "one lane lets another go on that waits in the same instruction": (
        lanes((_RELEASE, Lanes(0, 2, (Own(Wait(0, 0)), Arrive(1)))), counts=(1, 1)),
        lanes((_RELEASE, Lanes(0, 2, (Own(Wait(0, 0)), WarpSync(), Arrive(1)))), counts=(1, 1)),
        "deadlock",
    ),
    "each lane of a chain lets the next one go on": (
        lanes((_RELEASE, Lanes(0, 3, (Own(Wait(0, 0)), Own(Arrive(1))))), counts=(1, 1, 1, 1)),
        lanes((_RELEASE, Lanes(0, 3, (Own(Wait(0, 0)), Own(Arrive(0))))), counts=(1, 1, 1, 1)),
        "deadlock",
    ),
    "nobody expects bytes of the next phase before others have completed theirs": (
        lanes((*_BYTES, WarpSync(), *_BYTES, Wait(0, 1)), counts=(32,)),
        lanes((*_BYTES, *_BYTES, Wait(0, 1)), counts=(32,)),
        "over-arrival",
    ),
    "nobody completes bytes before others have expected theirs": (
        lanes(_EARLY, (Expect(0, 3), WarpSync(), Complete(0))),
        lanes(_EARLY, (Expect(0, 3), Complete(0))),
        "tx-mismatch",
    ),
    "nobody looks while others end phases": (
        lanes((Wait(0, 0), WarpSync(), Arrive(0), Arrive(0)), (Arrive(0),), counts=(32,)),
        lanes((Wait(0, 0), Arrive(0), Arrive(0)), (Arrive(0),), counts=(32,)),
        "deadlock",
    ),
    "what one lane expects comes before another arrives": (
        lanes((Lanes(0, 8, (Expect(0), WarpSync(), Lanes(0, 1, (Arrive(0),)))), Wait(0, 0)),
              (Lanes(0, 8, (Complete(0),)),)),
        lanes((Lanes(0, 8, (WarpSync(), Expect(0), Lanes(0, 1, (Arrive(0),)))), Wait(0, 0)),
              (Lanes(0, 8, (Complete(0),)),)),
        "tx-mismatch",
    ),
    "what one lane has waited for": (
        lanes(_COPY, (_ALONE, Gather("ballot"), WarpSync(), Read(0))),
        lanes(_COPY, (_ALONE, Gather("ballot"), Read(0))),
        "race",
    ),
    "what the elected lane has waited for": (
        lanes(_COPY, (Elect((Wait(0, 0),)), Gather("match", used=True), Read(0))),
        lanes(_COPY, (Elect((Wait(0, 0),), meets=False), Gather("match", used=True), Read(0))),
        "race",
    ),
    "some of the parted lanes wait for a copy before all end": (
        lanes(_COPY, (Lanes(0, 2, (Wait(0, 0), Lanes(0, 1, (Fence(),))), meets=False),)),
        lanes(_COPY, (Lanes(0, 2, (Lanes(0, 1, (Fence(),)),), meets=False),)),
        "async-at-exit",
    ),
    "parted lanes arrive together": (
        lanes((_PARTED, Write(0), _ARRIVE), (Join(0, 2), Read(0, cell=1))),
        lanes((_PARTED, _ARRIVE, Write(0)), (Join(0, 2), Read(0, cell=1))),
        "race",
    ),
    "parted lanes meet at a cluster barrier": (
        lanes((_PARTED, Write(0), *_MEET, Read(0, cell=5)), _MEET),
        lanes((_PARTED, Write(0), Gather("any"), Read(0, cell=5)), _MEET),
        "race",
    ),
    "lanes of a store to the peer": (
        lanes((_SENT, *_MEET), (Elect((ArriveExpect(0, 2),)), *_TAKE, *_MEET), ctas=2),
        lanes((_SENT, *_MEET), (Elect((ArriveExpect(0, 1),)), *_TAKE, *_MEET), ctas=2),
        "deadlock",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TWINS)
def test_reference_and_check_tell_right_from_wrong(name: str) -> None:
    assert_told_apart(*TWINS[name])


def test_a_lane_may_pass_before_others_have_arrived() -> None:
    """Its own arrival says nothing of theirs: it takes the phase for the one before the first."""
    steps = (Wait(0, 1), Read(0)), (Wait(0, 0), Write(0), Arrive(0))
    wrong = lanes((Arrive(0), *steps[0]), steps[1], counts=(32,))
    right = lanes((Arrive(0), WarpSync(), *steps[0]), steps[1], counts=(32,))
    assert "race" in explore(wrong).failures
    assert "race" in opinion(wrong).rules
    assert explore(right).clean
    assert opinion(right).verdict == "proved"


@pytest.mark.parametrize("style", dict.fromkeys(LANE_STYLES))
def test_what_the_generator_calls_right_is(style: Callable[[Choose], Small]) -> None:
    for seed in range(4):
        small = style(random.Random(seed).randrange)
        assert explore(small).clean, small


def test_a_failure_that_follows_a_race_is_one_too() -> None:
    """The reference ends an execution at the race; hardware goes on, and so may a report."""
    steps = (Read(0, cell=0), Write(0), Wait(0, 0))
    small = Small((steps,), (1,), family="lanes")
    assert [*explore(small).failures] == ["race"]
    assert goes_on(small, "deadlock")
    assert not goes_on(small, "over-arrival")
    ends = replace(small, warps=((*steps[:2], Lanes(0, 1, (Arrive(0),)), steps[2]),))
    assert not goes_on(ends, "deadlock")


def test_a_shuffle_in_an_arm_that_nobody_reaches_is_no_obstacle() -> None:
    never = Lanes(1, 3, (Lanes(0, 1, (Gather("shfl"),)),))
    assert explore(lanes((never,))).clean
    assert opinion(lanes((never,))).verdict == "proved"
