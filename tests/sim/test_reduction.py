"""Exploration with reduction shows what running every schedule shows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from tests.sim.generate import generate
from tests.sim.reference import TooLarge
from tests.sim.small import translate
from tests.sim.steps import Arrive, Complete, Expect, Init, Inval, Poll, Small, Wait, every
from tilesim.errors import InvalidProgram
from tilesim.sim.machine.schedule import ChoiceEnvironment, Move
from tilesim.sim.machine.simulate import Simulation
from tilesim.sim.schedulers.exhaustive import outcomes

#: schedules that are run one by one at most
_BRUTE_FORCE = 120


class _Enumerate:
    """A chooser that follows a prefix and records how many moves there were to choose from."""

    def __init__(self, prefix: Sequence[int]) -> None:
        self.picks: list[int] = []
        self.widths: list[int] = []
        self._prefix = prefix

    def choose(self, moves: Sequence[Move]) -> int:
        place = len(self.picks)
        self.picks.append(self._prefix[place] if place < len(self._prefix) else 0)
        self.widths.append(len(moves))
        return self.picks[-1]

    def toss(self) -> int:
        return 0

    def following(self) -> list[int] | None:
        """The next prefix in lexicographic order."""
        for place in reversed(range(len(self.picks))):
            if self.picks[place] + 1 < self.widths[place]:
                return [*self.picks[:place], self.picks[place] + 1]
        return None


def every_schedule(simulation: Simulation) -> Iterator[frozenset[str]]:
    """The rules found in each schedule of the simulator's moves, without any reduction."""
    prefix: list[int] | None = []
    for _ in range(_BRUTE_FORCE):
        if prefix is None:
            return
        chooser = _Enumerate(prefix)
        environment = ChoiceEnvironment(chooser)
        yield frozenset(f.rule for f in simulation.run_on({}, [(0, environment)]).findings)
        prefix = chooser.following()
    raise TooLarge


def test_reduction_has_the_outcomes_of_all_schedules() -> None:
    """Fails in some schedule or in none, as without reduction; and where every schedule ends by
    itself and no access decides what is found, in each of the same ways."""
    compared = failing = 0
    for seed in range(6000, 6070):
        small = generate(random.Random(seed).randrange, most=3)
        if len(small.warps) > 2 or any(isinstance(x, Poll) for w in small.warps for x in every(w)):
            continue
        try:
            simulation = Simulation(translate(small), numbers=False, strict="practice")
            unreduced = set(every_schedule(simulation))
        except (InvalidProgram, TooLarge):
            continue
        found, complete = outcomes(simulation, 0, {})
        assert complete, small
        assert found <= unreduced, small
        assert any(found) == any(unreduced), small
        if set().union(*unreduced) <= {"deadlock"}:
            assert found == unreduced, small
        compared += 1
        failing += any(unreduced)
    assert compared > 15
    assert compared > failing > 2


def test_reduction_keeps_both_outcomes_of_a_wait_that_can_be_missed() -> None:
    """The wait passes, or the next phase is over before it looks."""
    small = Small(((Arrive(0), Arrive(0)), (Wait(0, 0),)), (1,))
    simulation = Simulation(translate(small), numbers=False, strict="practice")
    both = {frozenset[str](), frozenset({"deadlock"})}
    assert set(every_schedule(simulation)) == both
    found, complete = outcomes(simulation, 0, {})
    assert complete
    assert found == both


#: undefined behaviour ends a run before the move that ran into it has shown what it touches
UNDEFINED = {
    "an object that is gone": Small(((Inval(0),), (Arrive(0),)), (1,)),
    "or not yet there": Small(((Inval(0), Init(0, 1)), (Wait(0, 1),)), (1,)),
    "too many arrivals": Small(((Arrive(0), Arrive(0)), (Arrive(0, 2),)), (2,)),
    "bytes that end the phase": Small(((Arrive(0), Expect(0)), (Complete(0),)), (1,)),
}


@pytest.mark.parametrize("name", UNDEFINED)
def test_reduction_goes_on_after_undefined_behaviour(name: str) -> None:
    simulation = Simulation(translate(UNDEFINED[name]), numbers=False, strict="practice")
    found, complete = outcomes(simulation, 0, {})
    assert complete
    assert len(found) > 1
    assert found == set(every_schedule(simulation))
