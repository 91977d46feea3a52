"""Names of what the lanes of a warp hold, where nobody knows the number (SEMANTICS H23).

A name is a number, and two that are equal stand for equal data: each is made of what an instruction
does and of the names of what it does that with. 0 is the name of what cannot be told.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.sim.machine.lanes import FULL, Lanes, mask_array
from tilesim.sim.machine.unknown import Unknown


class Told:
    """The names of what the 32 lanes of a warp hold; of equal names there is one, so that its
    identity tells them."""

    __slots__ = ("lanes",)

    def __init__(self, lanes: NDArray[np.int64]) -> None:
        self.lanes = lanes


class Telling:
    """Gives names."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._told: dict[bytes, Told] = {}
        self._made: dict[Hashable, Told] = {}
        #: what cannot be told, in any lane
        self.nothing = self.of([0] * 32)

    def number(self, what: Hashable) -> int:
        """A number for that alone, from 1 on."""
        return self._numbers.setdefault(what, len(self._numbers) + 1)

    def of(self, lanes: Sequence[int] | NDArray[np.int64]) -> Told:
        """These names."""
        array = np.asarray(lanes, dtype=np.int64)
        name = array.tobytes()
        known = self._told.get(name)
        if known is None:
            known = self._told[name] = Told(array)
        return known

    def each(self, lanes: Sequence[Hashable]) -> Told:
        """The names of what is told in each lane by one of these."""
        return self.of([self.number(lane) for lane in lanes])

    def value(self, value: Any) -> Told:
        """The names of a register's value that is known: a number, or one per lane."""
        if type(value) is int:
            found = self._made.get(value)
            if found is None:
                found = self._made[value] = self.each([_named(value)] * 32)
            return found
        if type(value) is Unknown:
            return self.nothing
        held = mask_array(value.bits) if type(value) is Lanes else np.asarray(value)
        return self.each([_named(one) for one in np.broadcast_to(held, 32)])

    def computed(self, what: Hashable, parts: Sequence[Told], *, symmetric: bool = False) -> Told:
        """The names of what each lane computes of ``parts`` by itself; ``symmetric``: of two,
        whichever comes first."""
        key = (what, *map(id, parts))
        found = self._made.get(key)
        if found is None:
            rows = np.sort(rows_of(parts)) if symmetric and len(parts) == 2 else rows_of(parts)
            each = [self.number((what, r.tobytes())) if r.all() else 0 for r in rows]
            found = self._made[key] = self.of(each)
        return found

    def gathered(self, what: Hashable, parts: Sequence[Told], mask: int) -> Told:
        """The names of what each lane of a mask gets of what all of them have."""
        key = (what, mask, *map(id, parts))
        found = self._made.get(key)
        if found is None:
            rows = rows_of(parts)[mask_array(mask)]
            whole = self.number((what, mask, rows.tobytes())) if rows.all() else 0
            each = [self.number((what, whole, lane)) if whole else 0 for lane in range(32)]
            found = self._made[key] = self.of(each)
        return found

    def merged(self, mask: int, one: Told, other: Told) -> Told:
        """The first in the lanes of a mask, the other in the rest."""
        if mask == FULL or one is other:
            return one
        return self.of(np.where(mask_array(mask), one.lanes, other.lanes))


def rows_of(parts: Sequence[Told]) -> NDArray[np.int64]:
    """A row of names for each lane."""
    if not parts:
        return np.ones((32, 1), dtype=np.int64)  # nothing that could be something else
    return np.stack([part.lanes for part in parts], axis=1)


def _named(value: Any) -> Hashable:
    """A number, told apart from any other: zero has two signs, and no number is its own."""
    if isinstance(value, float | np.floating):
        return "float", np.float64(value).tobytes()
    if isinstance(value, np.generic) and value.dtype.kind == "V":
        return str(value.dtype), value.tobytes()
    return "integer", int(value)
