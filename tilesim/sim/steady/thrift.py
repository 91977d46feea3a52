"""Whether a search for repetitions promises more than it costs.

Costs are counted in instructions: to write one item of a state and to compare it costs a sixth of
executing one, and to watch one as much again. What was learnt of a loop in one run of a program,
that turns of it could be skipped or that something differs from turn to turn, counts in the next.
"""

from __future__ import annotations

from tilesim.sim.grid.follow import Follower
from tilesim.sim.grid.mirror import MANY
from tilesim.sim.machine.machine import Machine
from tilesim.sim.schedule import TimedEnvironment
from tilesim.sim.steady.level import Level, Turn
from tilesim.sim.steady.remaining import Remaining
from tilesim.sim.steady.snapshot import Snapshot

#: what it costs to write one item of a state and to compare it, and to watch an instruction, where
#: to execute an instruction costs 1
_ITEM, _WATCHING = 1 / 6, 1.0
#: the same where an instruction stands for those of other clusters, too, and takes longer
_ITEM_ALL, _WATCHING_ALL = 1 / 24, 3.0
#: a repetition is watched before two states are known to be the same if that costs at most so many
#: times what it costs to write them
_GUESSED = 4
#: repetitions that are executed whole after some of which turns of a loop inside were left out
WHOLE = 2
#: what a search may cost of what it may save, and when it begins of all that is executed, if it is
#: known how often the loop still turns; of what is executed, all of them together, if it is not
_PART, _MOST, _SHARE = 0.6, 0.32, 0.15
#: the latter where what differs from turn to turn has ended a search in an earlier run
_IN_VAIN = 0.02


class Thrift:
    """What searches in a run may cost; ``heads``: by branch that goes back where to, ``alone``: the
    machine stands for no other clusters."""

    def __init__(self, machine: Machine, heads: dict[int, int], *, alone: bool) -> None:
        self._machine = machine
        self._remaining = Remaining(machine.plan, heads)
        self._item = _ITEM if alone else _ITEM_ALL
        self._watching = _WATCHING if alone else _WATCHING_ALL
        #: how much was written of the last state
        self._size = 500 * len(machine.warps)
        #: loops of which earlier runs have skipped turns, and in which they could not
        self._repeating = frozenset(machine.plan.repeating)
        self._in_vain = frozenset(machine.plan.differing) - self._repeating

    def written(self, level: Level, state: Snapshot) -> None:
        """A state has been written down."""
        self._size = len(state.shape) + sum(len(shape) for shape, _ in state.parts.values())
        level.cost += self._size * self._item

    def watched(self, level: Level, executed: int) -> None:
        """So many instructions have been watched."""
        level.cost += executed * self._watching

    def may_guess(self, each: int) -> bool:
        """Whether to watch so many instructions before two states are known to be the same."""
        return each * self._watching <= _GUESSED * self._size * self._item

    def is_worth_it(
        self, level: Level, before: Turn, each: int, states: int, left_out: int = 0
    ) -> bool:
        """As `Skipper` asks; if not, says when to ask again."""
        assert level.place is not None
        warp, back = level.place
        cost = states * self._size * self._item + (each + left_out) * self._watching
        if left_out:
            cost += WHOLE * (each + left_out)
        registers = before.registers[warp]
        often = self._remaining.repetitions(self._machine.warps[warp], back, registers)
        executed = self._machine.executed
        if often is not None:
            executed += often * each
            dear = not level.states and cost > _MOST * executed
            if dear or cost > _PART * each * (often - states):
                level.rest()
                return False
        in_vain = back in self._in_vain
        if (often is not None or back in self._repeating) and not level.attempts and not in_vain:
            return True
        if level.cost + cost > (_IN_VAIN if in_vain else _SHARE) * executed:
            level.seen.clear()
            level.next = level.turn + level.turn // 2
            return False
        return True


def can_skip(machine: Machine) -> bool:
    """Whether repetitions of a machine can be skipped at all."""
    options = machine.options
    observer = machine.races.observer
    few = observer is None or (isinstance(observer, Follower) and len(observer.clusters) <= MANY)
    return (
        machine.timed
        and few
        and isinstance(machine.env, TimedEnvironment)
        and machine.trace is None
        and not options.numbers
        and options.order is None
    )
