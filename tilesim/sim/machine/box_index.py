"""Finds the boxes near a box without looking at all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from math import prod
from typing import Generic, TypeAlias, TypeVar

#: per dimension the bounds [low, high) of a box
Box: TypeAlias = "tuple[tuple[int, int], ...]"
_Cell: TypeAlias = "tuple[int, ...]"
T = TypeVar("T")


class BoxIndex(Generic[T]):
    """Items by boxes in a space of integers.

    A box is kept in the cells of a grid whose cells are as large as the box, rounded up to a power
    of two per dimension, so in two of them per dimension at most. There is one grid for every such
    size. A look at one grid costs as many cells as the box that is looked up covers there, or as it
    has, whatever is less. ``steps`` counts the cells that have been looked at or filled.
    """

    def __init__(self) -> None:
        self._grids: dict[_Cell, dict[_Cell, list[T]]] = {}
        self.steps = 0

    def add(self, boxes: Iterable[Box], item: T) -> None:
        """Keeps ``item`` under every one of ``boxes``."""
        for box in boxes:
            size = tuple((high - low - 1).bit_length() for low, high in box)
            grid = self._grids.setdefault(size, {})
            for cell in product(*_cells(box, size)):
                self.steps += 1
                kept = grid.setdefault(cell, [])
                if not kept or kept[-1] is not item:
                    kept.append(item)

    def near(self, boxes: Iterable[Box]) -> Iterator[T]:
        """The items with a box in a cell that one of ``boxes`` covers; some of them repeatedly."""
        for box in boxes:
            for size, grid in self._grids.items():
                ranges = _cells(box, size)
                if prod(map(len, ranges)) <= len(grid):
                    for cell in product(*ranges):
                        self.steps += 1
                        yield from grid.get(cell, ())
                else:
                    self.steps += len(grid)
                    for cell, kept in grid.items():
                        if all(at in covered for at, covered in zip(cell, ranges, strict=True)):
                            yield from kept


def _cells(box: Box, size: _Cell) -> list[range]:
    """Per dimension the cells of a grid that a box covers."""
    return [
        range(low >> bits, (high - 1 >> bits) + 1)
        for (low, high), bits in zip(box, size, strict=True)
    ]
