"""Warps as expressions see them in all clusters of a class at once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

import numpy as np

from tilesim.arith.sums import Sums
from tilesim.ir.program import Program
from tilesim.sim.expression import Evaluate, plain
from tilesim.sim.grid.geometry import Integers, cta_coordinates
from tilesim.sim.grid.touches import Mask
from tilesim.sim.grid.values import Values, differs
from tilesim.sim.machine.facts import Operand
from tilesim.sim.machine.machine import Warp
from tilesim.sim.machine.unknown import Unknown

#: of more clusters what is in registers is kept as `Sums`
SEVERAL = 1 << 8
#: of more clusters repetitions are not skipped
MANY = 1 << 16


class _Registers:
    """The registers of a warp in all clusters: arrays where they differ, else the warp's own."""

    def __init__(self, warp: Warp) -> None:
        self.own = warp.registers
        self.differing: dict[int, Values] = {}

    def __getitem__(self, slot: int) -> Any:
        return self.differing[slot] if slot in self.differing else self.own[slot]


class Place:
    """The CTA and the cluster of a warp, in all clusters: its coordinates are arrays."""

    def __init__(self, program: Program, clusters: Integers, rank: int) -> None:
        self.rank = rank
        of = Sums.of if len(clusters) > SEVERAL else _in_a_column
        self.coords = tuple(map(of, cta_coordinates(program, clusters, rank)))
        self.cluster = self
        self.number = of(clusters)


def _in_a_column(values: Integers) -> Values:
    return values[:, None]


class Mirror:
    """A warp as expressions see it, in all clusters at once.

    ``alike``: by number of a step, in which lanes it evaluates the same in all clusters while the
    registers differ as they do now.
    """

    def __init__(self, warp: Warp, place: Place) -> None:
        self.warp = warp
        warp.elsewhere = self
        self.machine = warp.machine
        self.number = warp.number
        self.cta = place
        self.registers = _Registers(warp)
        self.alike: dict[int, int] = {}

    @property
    def mask(self) -> int:
        """The active lanes."""
        return self.warp.mask

    def differ(self, slot: int, values: Values) -> None:
        """What a register holds from now on."""
        differing = self.registers.differing
        if differing.get(slot) is not values:
            differing[slot] = values
            self.alike.clear()

    def agree(self, slot: int) -> None:
        """A register holds the same in all clusters from now on."""
        if self.registers.differing.pop(slot, None) is not None:
            self.alike.clear()

    def saved(self) -> dict[int, Values]:
        """What differs between clusters."""
        return dict(self.registers.differing)

    def restore(self, saved: dict[int, Values]) -> None:
        """Nothing else differs from now on."""
        self.registers.differing = dict(saved)
        self.alike.clear()

    def value(self, evaluate: Evaluate) -> Values:
        """An expression: a number or one per lane, or an array over the clusters."""
        with np.errstate(divide="raise", over="ignore"):
            value = evaluate(cast(Warp, self))
            return value if type(value) is Sums else plain(value)

    def differs(self, evaluate: Evaluate) -> bool:
        """See `Elsewhere.differs`."""
        try:
            value = self.value(evaluate)
            return differs(value) and _vary(value)
        except ArithmeticError:
            return True

    def told(self, operand: Operand) -> list[Hashable] | None:
        """See `Elsewhere.told`."""
        if not operand.of_grid and self.registers.differing.keys().isdisjoint(operand.slots):
            return None
        assert operand.evaluate is not None
        try:
            value = self.value(operand.evaluate)
        except ArithmeticError:
            return [object() for _ in range(32)]  # the same as nothing
        if type(value) is Unknown:
            return [object() for _ in range(32)]
        if not differs(value) or not _vary(value):
            return None
        if type(value) is Sums:
            column = value.column.values.tobytes()
            return [(column, int(number)) for number in np.broadcast_to(value.row, 32)]
        return [column.tobytes() for column in np.broadcast_to(value, (len(value), 32)).T]

    def shrink(self, place: Place, kept: Mask) -> None:
        """Goes on with some of the clusters."""
        self.cta = place
        differing = self.registers.differing
        self.registers.differing = {slot: value[kept] for slot, value in differing.items()}
        self.alike.clear()


def _vary(values: Values) -> bool:
    """Whether not all clusters have the same."""
    if type(values) is Sums:
        return not values.alike
    return bool((values != values[0]).any())


def places(program: Program, clusters: Integers) -> dict[int, Place]:
    """The places of the CTAs of each rank."""
    return {rank: Place(program, clusters, rank) for rank in range(program.cluster_size)}
