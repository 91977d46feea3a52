"""`check` against the reference model on random small programs: no false proof, no false alarm.

`tests.sim.reference` follows every interleaving of a program one by one. Where it finds a
deadlock, a race or a misuse, `check` must not say proved or exhausted; where it finds none,
`check` must not report anything. A disagreement is shrunk to a minimal program. Long campaigns:
`python -m tests.sim.campaign`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import pytest

from tests.campaign import tally
from tests.sim.campaign import judged
from tests.sim.comparison import assert_told_apart, disagreement, opinion
from tests.sim.generate import FAMILIES, Choose
from tests.sim.pipelines import STYLES
from tests.sim.reference import explore
from tests.sim.steps import (
    Arrive,
    ArriveExpect,
    Complete,
    Copy,
    Expect,
    Family,
    Fence,
    Inval,
    Join,
    Loop,
    Read,
    Small,
    Wait,
    Write,
)
from tests.sim.strong_pipelines import REDUCTION_STYLES, SCOPE_STYLES
from tests.sim.tensor_pipelines import TENSOR_STYLES
from tests.sim.wgmma_programs import WGMMA_STYLES

#: seeds of the programs of each family that are compared on every run, and how many of them are
#: explored: flags are polled, which is never proved from one run
SHARES: dict[Family, tuple[range, int]] = {
    "mbarriers": (range(64), 3), "tensor": (range(30), 6), "scopes": (range(40, 52), 1),
    "reductions": (range(40), 6), "wgmma": (range(28), 0),
    "lanes": (range(54), 8), "grids": (range(28), 4),
}  # fmt: skip


def test_every_family_is_compared() -> None:
    assert {*SHARES} == {*FAMILIES}


@pytest.mark.parametrize("family", SHARES)
def test_check_agrees_with_every_interleaving(family: Family) -> None:
    seeds, every = SHARES[family]
    found = tally(partial(judged, every=every, family=family), seeds)
    cases = len(seeds)
    assert not found.wrong, found.wrong
    assert not found.notes, found.notes
    right = sum(found.count("mutated", verdict, "clean") for verdict in ("proved", "exhausted"))
    assert right > cases // 20, found
    assert found.count("random", "failed", "wrong") >= cases // 10, found
    assert found.count("mutated", "failed", "wrong") >= cases // 6, found
    certified = sum(found.count("correct", verdict) for verdict in ("proved", "exhausted"))
    correct = sum(n for said, n in found.said.items() if said.startswith("correct"))
    assert certified == correct - found.count("correct", "summed") > cases // 12, found
    assert not found.count("too large"), found


@pytest.mark.slow
@pytest.mark.parametrize("family", SHARES)
@pytest.mark.parametrize("block", range(5))
def test_check_agrees_on_many_programs(family: Family, block: int) -> None:
    start = 1_000_000 + 1000 * block
    judge = partial(judged, every=4, family=family)
    found = tally(judge, range(start, start + 1000))
    assert not found.wrong, found.wrong


@pytest.mark.parametrize("style", range(len(STYLES)))
def test_pipelines_are_right_and_certified(style: int) -> None:
    """What the generator calls a correct pipeline is one, and one run proves it."""
    for seed in range(4):
        small = STYLES[style](random.Random(seed).randrange)
        assert explore(small).clean, small
        assert opinion(small, full=False).verdict == "proved", small


@pytest.mark.parametrize("style", dict.fromkeys(TENSOR_STYLES + REDUCTION_STYLES + WGMMA_STYLES))
def test_pipelines_of_other_families_too(style: Callable[[Choose], Small]) -> None:
    for seed in range(3):
        small = style(random.Random(seed).randrange)
        assert explore(small).clean, small
        # sums of floats differ in rounding
        wanted = ("proved", "bounded") if small.floats else ("proved",)
        assert opinion(small, full=False).verdict in wanted, small


@pytest.mark.parametrize("style", dict.fromkeys(SCOPE_STYLES))
def test_programs_of_flags_are_right(style: Callable[[Choose], Small]) -> None:
    for seed in range(2):
        small = style(random.Random(seed).randrange)
        assert explore(small).clean, small
        assert opinion(small).verdict in ("proved", "exhausted"), small


# ------------------------------------------------------------------ the reference itself

#: programs that are right, each with a change that makes it wrong and the rule that breaks
TWINS = {
    "handoff": (
        Small(((Write(0), Arrive(0)), (Wait(0, 0), Read(0))), (1,)),
        Small(((Arrive(0), Write(0)), (Wait(0, 0), Read(0))), (1,)),
        "race",
    ),
    "relaxed handoff": (
        Small(((Write(0), Arrive(0)), (Wait(0, 0), Write(0))), (1,)),
        Small(((Write(0), Arrive(0, relaxed=True)), (Wait(0, 0), Write(0))), (1,)),
        "race",
    ),
    "arrival count": (
        Small(((Arrive(0),), (Arrive(0), Wait(0, 0))), (2,)),
        Small(((Arrive(0),), (Wait(0, 0),)), (2,)),
        "deadlock",
    ),
    "too many arrivals": (
        Small(((Arrive(0, 2),), (Wait(0, 0), Arrive(0, 2))), (2,)),
        Small(((Arrive(0, 2),), (Arrive(0, 1), Arrive(0, 1))), (3,)),
        "over-arrival",
    ),
    "copy": (
        Small(((ArriveExpect(0), Copy(0, 0)), (Wait(0, 0), Read(0))), (1,)),
        Small(((ArriveExpect(0, 2), Copy(0, 0)), (Wait(0, 0), Read(0))), (1,)),
        "deadlock",
    ),
    "copy nobody waits for": (
        Small(((ArriveExpect(0), Copy(0, 0)), (Wait(0, 0),)), (1,)),
        Small(((ArriveExpect(0), Copy(0, 0)), ()), (1,)),
        "async-at-exit",
    ),
    "late expectation": (
        Small(((Expect(0), Copy(0, 0), Arrive(0)), (Wait(0, 0), Read(0))), (1,)),
        Small(((Arrive(0), Expect(0), Copy(0, 0)), (Wait(0, 0), Read(0))), (1,)),
        "race",
    ),
    "bytes after the arrival": (
        Small(((Expect(0), Arrive(0)), (Copy(0, 0), Wait(0, 0))), (1,)),
        Small(((Arrive(0), Expect(0)), (Copy(0, 0), Wait(0, 0))), (2,)),
        "deadlock",
    ),
    "fence": (
        Small(((Write(0), Fence(), ArriveExpect(0), Copy(0, 0), Wait(0, 0)), ()), (1,)),
        Small(((Fence(), Write(0), ArriveExpect(0), Copy(0, 0), Wait(0, 0)), ()), (1,)),
        "proxy-fence",
    ),
    "parity in a loop": (
        Small(((Loop(2, (Arrive(0), Wait(0, 0, carried=True))),), ()), (1,)),
        Small(((Loop(2, (Arrive(0), Wait(0, 0))),), ()), (1,)),
        "deadlock",
    ),
    "named barrier": (
        Small(((Write(0), Join(0, 2, waits=False)), (Join(0, 2), Read(0))), (1,)),
        Small(((Join(0, 2, waits=False), Write(0)), (Join(0, 2), Read(0))), (1,)),
        "race",
    ),
    "named barrier joined twice": (
        Small(((Join(0, 2), Join(1, 2)), (Join(0, 2), Join(1, 2))), (1,)),
        Small(((Join(0, 2, waits=False), Join(0, 2, waits=False)), (Join(0, 2), Join(0, 2))), (1,)),
        "named-barrier",
    ),
    "a barrier ends after its uses in memory, not just in time": (
        Small(((Wait(1, 0), Inval(0)), (Expect(0), Arrive(1))), (1, 1)),
        Small(((Wait(1, 0), Inval(0)), (Expect(0), Arrive(1, relaxed=True))), (1, 1)),
        "barrier-lifetime",
    ),
    "also after those that only look": (
        Small(((Wait(1, 0), Inval(0)), (Wait(0, 1), Arrive(1))), (1, 1)),
        Small(((Wait(1, 0), Inval(0)), (Wait(0, 1), Arrive(1, relaxed=True))), (1, 1)),
        "barrier-lifetime",
    ),
    "and mbarrier.complete_tx tells nothing": (
        Small(((ArriveExpect(1, 2), Wait(1, 0), Inval(0)), (Complete(1, 2),)), (1, 1)),
        Small(((ArriveExpect(1, 2), Wait(1, 0), Inval(0)), (Expect(0), Complete(1, 2))), (1, 1)),
        "barrier-lifetime",
    ),
    "who sees a phase end has observed what counted for it": (
        Small(((Wait(0, 0), Inval(0)), (Arrive(0, relaxed=True),)), (1,)),
        Small(((Wait(0, 0), Inval(0)), (Arrive(0, relaxed=True), Wait(0, 1))), (1,)),
        "barrier-lifetime",
    ),
    "and for those before it": (
        Small(((Wait(0, 0), Arrive(0), Wait(0, 1), Inval(0)), (Arrive(0, relaxed=True),)), (1,)),
        Small(((Wait(0, 0), Arrive(0), Inval(0)), (Arrive(0, relaxed=True), Wait(0, 1))), (1,)),
        "barrier-lifetime",
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_reference_and_check_tell_right_from_wrong(name: str) -> None:
    assert_told_apart(*TWINS[name])


#: found by the campaign, shrunk: each was proved although the reference found a failure
REGRESSIONS = {
    "a fence covers only what came before it": TWINS["fence"][1],
    "arrivals of different size overflow an unobserved phase": Small(
        ((Arrive(0, 3),), (Arrive(0, 1),)), (3,)
    ),
    "an arrival that did not fit joins the next phase: no order of the two may be skipped": Small(
        ((Arrive(0, 2),), (Arrive(0), Arrive(0))), (2,)
    ),
    "an unobserved arrival reaches back into a phase that a wait can miss": Small(
        ((Wait(0, 1), Arrive(0, 3), Arrive(0, 3)), (Read(0), Arrive(0, 3))), (3,)
    ),
    "a warp that arrives and then waits fills a round by itself (E6 at practice)": Small(
        ((), (Join(0, 2, waits=False), Join(0, 2))), ()
    ),
    "and nobody else's": Small(((Join(0, 2),), (Join(0, 2, waits=False), Join(0, 2))), ()),
}


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regression(name: str) -> None:
    assert not disagreement(REGRESSIONS[name])
    assert not disagreement(REGRESSIONS[name], one_line=True)
