"""Every condition of the certificate is needed: a program that fails, and that the run which is
made first would prove without the condition. Its name says which."""

from __future__ import annotations

import pytest

from tests.sim.ablated import KERNELS, ROLES, decided, waits_for_less
from tests.sim.comparison import explore, opinion
from tests.sim.exchanges import with_a_read_between
from tests.sim.steps import (
    Add,
    Arrive,
    ArriveExpect,
    Cancel,
    Complete,
    Copy,
    Elect,
    Expect,
    Fence,
    Forever,
    Init,
    Inval,
    Join,
    Lanes,
    Later,
    Leave,
    Loop,
    Own,
    Peek,
    Poll,
    Put,
    Query,
    Read,
    Small,
    Spin,
    Step,
    Wait,
    WaitUnless,
    WarpSync,
    When,
    Write,
)
from tilesim.checker import check
from tilesim.sim.machine.simulate import simulate


def late(*steps: Step, by: int = 60) -> tuple[Step, ...]:
    """Steps that come late under the timed policy."""
    return (Loop(by, (Fence(),)), *steps)


def _lanes_of(*warps: tuple[Step, ...], counts: tuple[int, ...] = ()) -> Small:
    """A program of lanes."""
    return Small(warps, counts, family="lanes")


#: asks launch control for another cluster
_ASK = (ArriveExpect(0), Cancel(0, 0), Wait(0, 0, carried=True), Query(0), Leave())

#: by the condition without which one run proves it, although the reference finds it wrong
PROGRAMS: dict[str, Small] = {
    "A of arrivals": Small(
        ((Arrive(0, 3), Arrive(0)), (Complete(0, 2),)), (3,)
    ),
    "A of copies": Small(
        (
            (ArriveExpect(0), Copy(0, 0), Wait(0, 0), Read(0), ArriveExpect(0), Wait(0, 1)),
            late(Join(0, 1), Copy(0, 1), by=400),
        ),
        (1,), words=2,
    ),
    "B": Small(((Expect(0), Copy(0, 0), Wait(0, 0), Read(0)), late(Arrive(0))), (1,)),
    "B ending": Small(
        ((ArriveExpect(0), Copy(0, 0, 2), Wait(0, 0), Read(0)), (Expect(0),)), (1,), words=2
    ),
    "B borrowed": Small(((Later(0, inc=True), Wait(0, 0), Inval(0)), late(Arrive(0))), (1,)),
    "B last": Small(((Expect(0),), late(Arrive(0)), (Wait(0, 1),)), (1,)),
    "B last, bytes too many": Small(
        ((Complete(0), Complete(0)), late(ArriveExpect(0)), (Wait(0, 1),)), (1,)
    ),
    "B last, at inval": Small(
        (
            (Expect(0), Join(0, 3), Inval(0)),
            late(Arrive(0), Join(0, 3)),
            (Wait(0, 1), Join(0, 3)),
        ),
        (1,),
    ),
    "C1": Small(
        ((Arrive(0), Arrive(0), Write(0), Arrive(0)), late(Wait(0, 0), Read(0))), (1,)
    ),
    "C1 before the join": Small(
        ((Arrive(0), Arrive(0), Write(0), Arrive(0)), late(Wait(0, 0), Read(0))), (1,)
    ),
    "C1 of peeks": Small(
        (
            (Arrive(0), Arrive(0), Arrive(1), Write(0), Arrive(0)),
            (Peek(0, 0), Wait(1, 0), WaitUnless(0, 0), Read(0)),
        ),
        (1, 1),
    ),
    "C2": Small(((Wait(0, 1),), late(Arrive(0))), (1,)),
    "N": Small(
        (
            (Write(0), Join(0, 2, waits=False)),
            (Join(0, 2), Read(0), Join(0, 2)),
            late(Join(0, 2, waits=False)),
        ),
        (),
    ),
    "I": Small(((Arrive(0),), late(Inval(0))), (2,)),
    "I of the open phase": Small((((Later(0)), *late(Inval(0), by=600)),), (2,)),
    "I of peeks": Small(
        ((Peek(0, 0), When(2, 1, (WaitUnless(0, 0),))), late(Arrive(0), Inval(0))), (2,)
    ),
    "I of copies": Small(((Later(0), Inval(0), Init(0, 1), Wait(0, 0)),), (1,)),
    "T": Small(
        (
            (Expect(0, 40_000), *late(Expect(0, 40_000), by=100), Arrive(0)),
            late(Complete(0, 40_000), *late(Complete(0, 40_000), by=200)),
        ),
        (1,),
    ),
    "P": Small(((Arrive(0, partial=True),), late(Arrive(0))), (2,)),
    "D of polls": Small(
        ((Write(0), Arrive(0)), late(Poll(0, 0, (), (Read(0),)))), (1,)
    ),
    "D of peeks": Small(
        ((Arrive(0), *late(Write(0), Arrive(1))), (Peek(0, 0), WaitUnless(1, 0), Read(0))), (1, 1)
    ),
    "unobserved: no waits": Small(
        ((Wait(0, 1), Arrive(0, 3), Arrive(0, 3)), (Read(0), Arrive(0, 3))), (3,)
    ),
    "unobserved: no bytes": Small(((ArriveExpect(0), Complete(0)), late(Arrive(0))), (1,)),
    "unobserved: one life": Small(
        ((Arrive(0),), late(Arrive(0), Arrive(0), Arrive(0), Inval(0))), (1,)
    ),
    "unobserved: one size": Small(
        ((Arrive(0),), late(Arrive(0), Arrive(0, 2))), (2,)
    ),
    "unobserved: no drops": Small(
        ((Arrive(0),), late(Arrive(0, drop=True))), (1,)
    ),
    "tail: not waited for": Small(
        (
            (Arrive(0), Arrive(0), *late(Arrive(0), by=100)),
            (Wait(0, 0), Arrive(1), Arrive(0), Write(0), Arrive(0)),
            (Wait(1, 0), Wait(0, 1), Read(0)),
        ),
        (2, 1),
    ),
    "tail: never waited for": Small(
        (
            (Arrive(0), Arrive(0), *late(Arrive(0), by=20)),
            (Wait(0, 0), Arrive(1), Arrive(0), Write(0), Arrive(0)),
            (Wait(1, 0), *late(Wait(0, 1), Read(0), by=80)),
        ),
        (2, 1),
    ),
    "tail: at the end": Small(
        (
            (Arrive(0), Write(0), Arrive(0)),
            (Wait(0, 0), Read(0), Arrive(0), Arrive(0)),
            late(Arrive(0), by=200),
        ),
        (2,),
    ),
    "tail: no miss": Small(
        ((Arrive(0), *late(Arrive(0), by=200)), (Wait(0, 0), Arrive(0))), (1,)
    ),
    "lanes: one by one": _lanes_of(
        (Elect((ArriveExpect(0, 2),)), Wait(0, 0), Read(0)),
        (Elect((Expect(0, 34), Copy(0, 0))),), (Lanes(0, 4, (Complete(0, 1),)),), counts=(1,),
    ),
    "lanes: what each knows": _lanes_of(
        (Lanes(0, 2, (Write(0), Own(Arrive(0)))),),
        (Lanes(0, 2, (Own(Wait(0, 0)), Read(0, cell=1))),), counts=(1, 1),
    ),
    "lanes: ahead of others": _lanes_of(
        (Arrive(0), ArriveExpect(0, 1), Complete(0, 1)), counts=(32,)
    ),
    "lanes: places": _lanes_of(
        (
            Lanes(
                0, 4, (Lanes(0, 1, (Write(0),), (Write(0, cell=1),)), WarpSync()),
                (Lanes(5, 6, (), (Read(0, cell=1),)),),
            ),
        )
    ),
    "lanes: one store": Small(((Write(0),), (Write(0),)), ()),
    "lanes: exchange": _lanes_of((Write(0), Read(0, cell=0))),
    "lanes: exchange before a branch": _lanes_of((Write(0), Lanes(0, 4, (Read(0, cell=0),)))),
    "grids: residency": Small(
        ((Add(0, scope="gpu"),), (Spin(0, scope="gpu"),)), (), flags=2, family="grids", clusters=2
    ),
    "grids: answers": Small(
        ((), (Forever((*_ASK, Wait(1, 0))),)), (1, 1), flags=2, family="grids", clusters=2
    ),
    "grids: tiles": Small(
        ((Forever((*_ASK, Put(1, by=True))),), (), (Put(2),)), (1,), flags=2, family="grids",
        clusters=3,
    ),
}  # fmt: skip


#: arrivals on both CTAs of a cluster, and a read between them
_READ_BETWEEN = with_a_read_between(1)
PROGRAMS |= {
    "places: what is published": _READ_BETWEEN, "places: what came before": _READ_BETWEEN,
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_condition_is_needed(name: str) -> None:
    small = PROGRAMS[name]
    assert not explore(small, 100_000).clean
    assert opinion(small, full=False).verdict in ("bounded", "failed")
    assert opinion(small).verdict in ("bounded", "failed")


# ------------------------------------------------------------------ what the reference lacks


@pytest.mark.parametrize("name", ROLES)
def test_condition_on_values_is_needed(name: str) -> None:
    """The timed schedule of the program is right; swapped, the same program shows the failure."""
    roles, warps, target = ROLES[name]
    program = decided(roles, warps=warps, target=target, swapped=False)
    other = decided(roles, warps=warps, target=target, swapped=True)
    assert not simulate(program, numbers=False).findings
    assert simulate(other, numbers=False).findings
    assert check(program, schedules=0, budget=0).verdict in ("bounded", "failed")
    assert check(program).verdict in ("bounded", "failed")


@pytest.mark.parametrize("name", KERNELS)
def test_condition_on_kernels_is_needed(name: str) -> None:
    right, wrong = KERNELS[name]
    assert check(right).verdict == "proved"
    assert check(wrong).verdict == "failed"


def test_clusters_that_wait_for_each_other_are_tried_in_all_orders() -> None:
    """In the runs in which several are told to be the last, all that is awaited has come."""
    assert check(waits_for_less.build(), schedules=0, budget=0).verdict == "bounded"
    assert check(waits_for_less.build(who=5)).rules == {"race"}


def test_exploration_claims_nothing_that_lanes_may_do() -> None:
    """A lane passes early and reads too soon; no schedule of whole warps shows it."""
    small = _lanes_of(
        (Arrive(0), Wait(0, 1), Read(0)), (Wait(0, 0), Write(0), Arrive(0)), counts=(32,)
    )
    assert "race" in explore(small).failures
    assert "race" in opinion(small).rules
