"""What clusters access in global memory: boxes of elements, for all clusters of a class at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.op import Op
from tilesim.ir.ops.fence import FenceScope
from tilesim.sim.grid.geometry import Integers

Mask = NDArray[np.bool_]
#: per dimension [low, high) in elements
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Kind:
    """How an instruction accesses memory: what decides whether two accesses conflict."""

    op: Op
    write: bool
    scope: FenceScope | None
    asynchronous: bool

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        return id(self.op), self.write, self.scope, self.asynchronous


@dataclass(frozen=True, eq=False)
class Move:
    """By how many elements the accesses of every cluster of a class are shifted against those of
    the cluster that was run: (clusters, dimensions). ``where``: the clusters that make them."""

    by: Integers
    where: Mask | None = None

    def among(self, members: Mask) -> Mask:
        """Those of some clusters that make them."""
        return members if self.where is None else members & self.where


@dataclass(frozen=True)
class Boxes:
    """The elements that one access of the cluster that was run touches, and how the others'
    lie: ``move``, or (where boxes are cut off at the end of the tensor) all ``lows`` and ``highs``,
    both (clusters, dimensions)."""

    kind: Kind
    boxes: tuple[Box, ...]
    move: Move | None = None
    lows: Integers | None = None
    highs: Integers | None = None


class Touches:
    """The accesses of one class to one tensor, each once."""

    def __init__(self) -> None:
        self._seen: set[tuple[object, ...]] = set()
        self._moves: dict[bytes, Move] = {}
        #: by identity, with the array so that it stays what it is
        self._names: dict[int, tuple[Integers, bytes]] = {}
        self.boxes: list[Boxes] = []

    def add(
        self, kind: Kind, boxes: tuple[Box, ...], by: Integers, where: Mask | None = None
    ) -> None:
        """An access whose boxes lie ``by`` elements further in the other clusters; ``where``: which
        clusters make it, if it is not all of them."""
        name = self._name(by)
        if where is not None:
            name += where.tobytes()
        if (kind, boxes, name) not in self._seen:
            self._seen.add((kind, boxes, name))
            move = self._moves.setdefault(name, Move(by, where))
            self.boxes.append(Boxes(kind, boxes, move))

    def add_all(self, kind: Kind, span: tuple[int, int], clusters: int) -> None:
        """An access of which nobody knows where between two bytes it is, in any of the clusters."""
        self.add(kind, ((span,),), np.zeros((clusters, 1), dtype=np.int64))

    def _name(self, by: Integers) -> bytes:
        """The bytes of an array that does not change, taken once."""
        known = self._names.get(id(by))
        if known is None:
            known = self._names[id(by)] = by, by.tobytes()
        return known[1]

    def add_cut(self, kind: Kind, lows: Integers, highs: Integers) -> None:
        """An access whose box some clusters cut off at the end of the tensor."""
        name = (kind, lows.tobytes(), highs.tobytes())
        if name not in self._seen:
            self._seen.add(name)
            self.boxes.append(Boxes(kind, (), None, lows, highs))

    def only(self, kept: Mask) -> Touches:
        """The accesses of some of the clusters, the first of which is the one they are told of."""
        result = Touches()
        for one in self.boxes:
            move = one.move
            if move is not None:
                by, where = move.by[kept], None if move.where is None else move.where[kept]
                if where is not None and not where.any():
                    continue
                own = None if where is None or where.all() else where
                result.add(one.kind, _further(one.boxes, by[0]), by - by[0], own)
            elif one.lows is not None and one.highs is not None:
                result.add_cut(one.kind, one.lows[kept], one.highs[kept])
        return result


def _further(boxes: tuple[Box, ...], by: Integers) -> tuple[Box, ...]:
    """Boxes that lie so many elements further."""
    if not by.any():
        return boxes
    own = by.tolist()
    return tuple(tuple((a + d, b + d) for (a, b), d in zip(box, own, strict=True)) for box in boxes)


def boxes_at(corners: Integers, sizes: Sequence[int]) -> tuple[Box, ...]:
    """Boxes of one size, by their lowest elements: (boxes, dimensions)."""
    if all(n == 1 for n in sizes):
        return boxes_of(corners)
    return tuple(
        tuple((low, low + size) for low, size in zip(corner, sizes, strict=True))
        for corner in np.unique(corners, axis=0).tolist()
    )


def boxes_of(points: Integers) -> tuple[Box, ...]:
    """Points (one per row) as few boxes: neighbours along the last dimension are put together."""
    rows = np.unique(points, axis=0)
    last = rows[:, -1]
    breaks = np.ones(len(rows), dtype=bool)
    breaks[1:] = (rows[1:, :-1] != rows[:-1, :-1]).any(axis=1) | (last[1:] != last[:-1] + 1)
    starts = [*np.flatnonzero(breaks).tolist(), len(rows)]
    return tuple(
        (*((int(x), int(x) + 1) for x in rows[a, :-1]), (int(last[a]), int(last[b - 1]) + 1))
        for a, b in pairwise(starts)
    )


def strided(low: int, count: int, step: int) -> list[tuple[int, int]]:
    """The elements ``low``, ``low + step``, ... as intervals."""
    if step == 1:
        return [(low, low + count)]
    return [(low + i * step, low + i * step + 1) for i in range(count)]
