"""Rows of products that are one step while nothing is compared, and single steps while it is.

Products in a row are executed together, which leaves other records than one after the other. What
is watched is executed one by one, so the states that are compared have to be made like that.
"""

from __future__ import annotations

from collections.abc import Callable

from tilesim.sim.machine.machine import Entry, Machine
from tilesim.sim.schedule import TimedEnvironment
from tilesim.sim.steady.snapshot import Glance

#: after how many moves, at most, it is looked whether warps that were ahead still are
_MOVES = 64


class Rows:
    """Which steps a machine executes: with rows, or without.

    ``plain`` are its steps, and ``with_turns`` makes those of them that go back in a loop tell. The
    warps of a warpgroup count what they execute together: where some are ahead, there are no rows
    until the others have come as far.
    """

    def __init__(
        self, machine: Machine, plain: list[Entry],
        with_turns: Callable[[list[Entry]], list[Entry]],
    ) -> None:  # fmt: skip
        self._machine = machine
        self._plain = plain
        self._with_turns = with_turns
        #: steps that are to be executed as soon as no warp is ahead
        self._wanted: list[Entry] | None = None
        self._is_apart = False

    def execute(self, steps: list[Entry]) -> None:
        """Goes on with steps that may have rows, as soon as that can be."""
        self._wanted = None
        if not self._is_apart or self._are_level():
            self._machine.code, self._is_apart = steps, False
            return
        self._machine.code, self._wanted = self._without(), steps

    def look(self) -> None:
        """Goes on with what is wanted, if that can be by now."""
        if self._wanted is not None:
            self.execute(self._wanted)

    def part(self) -> bool:
        """Executes products one by one while states are compared, as will be done while one
        repetition is watched. True if that begins now."""
        begins = self._has_rows and not self._is_apart and self._are_level()
        if begins:
            self._machine.code, self._is_apart = self._without(), True
        return begins

    def part_soon(self, moves: int = _MOVES) -> None:
        """Parts rows after one of the next moves, as soon as no warp is ahead."""
        env = self._machine.env
        if not self.part() and moves and isinstance(env, TimedEnvironment) and env.due:
            Glance(env, lambda _: self.part_soon(moves - 1), later=True)

    def may_part(self) -> bool:
        """Whether steps without rows can be executed from now on."""
        return not self._has_rows or self._is_apart or self._are_level()

    @property
    def _has_rows(self) -> bool:
        return bool(self._machine.plan.fused.keys() - self._machine.plan.assigned)

    def are_apart(self) -> None:
        """Somebody else's steps are executed, which have no rows."""
        self._is_apart, self._wanted = True, None

    def _without(self) -> list[Entry]:
        """The same steps, each product alone; those that go back in a loop tell."""
        plan, apart = self._machine.plan, list(self._plain)
        for first, (alone, _) in plan.fused.items():
            if apart[first] is plan.steps[first] and first not in plan.assigned:
                apart[first] = alone
        return self._with_turns(apart)

    def _are_level(self) -> bool:
        """Whether the warps of each warpgroup have executed the same products."""
        return not any(warp.warpgroup.ahead for warp in self._machine.warps)
