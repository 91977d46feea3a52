"""The states of the reference model of lanes."""

from __future__ import annotations

from typing import NamedTuple

from tests.sim.states import Barrier, Meeting, Named


class Flight(NamedTuple):
    """Operations of a class that are under way, the first ``lane`` of which have landed: what all
    lanes knew when they were issued, what each knew for itself, and what is over then."""

    agent: int
    line: int
    lane: int
    common: int
    mine: int
    over: int = 0


class State(NamedTuple):
    """Per class: its line, how many lanes are past it, what all its lanes know, and what the lanes
    know for themselves; barriers; flights; warps that wait at a named barrier; accesses made."""

    at: tuple[int, ...]
    past: tuple[int, ...]
    common: tuple[int, ...]
    mine: tuple[int, ...]
    barriers: tuple[Barrier, ...]
    flights: tuple[Flight, ...]
    named: tuple[Named, ...]
    meeting: Meeting
    parked: int
    done: int


class Next:
    """A state in the making."""

    __slots__ = (
        "at", "barriers", "common", "done", "flights", "meeting", "mine", "named", "parked", "past",
    )  # fmt: skip

    def __init__(self, state: State) -> None:
        self.at = list(state.at)
        self.past = list(state.past)
        self.common = list(state.common)
        self.mine = list(state.mine)
        self.barriers = list(state.barriers)
        self.flights = list(state.flights)
        self.named = list(state.named)
        self.meeting, self.parked, self.done = state[7:]

    def freeze(self) -> State:
        """The state."""
        return State(
            tuple(self.at), tuple(self.past), tuple(self.common), tuple(self.mine),
            tuple(self.barriers), tuple(sorted(self.flights)), tuple(self.named), self.meeting,
            self.parked, self.done,
        )  # fmt: skip
