"""Values in all clusters of a class: numbers, one per lane, or an array over the clusters."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tilesim.arith.sums import Sums, combined
from tilesim.sim.expression import plain
from tilesim.sim.machine.lanes import FULL, mask_array, mask_bits
from tilesim.sim.machine.unknown import Unknown

#: (clusters, 1) or (clusters, 32): one value per cluster, or per cluster and lane; or `Sums`
Values: TypeAlias = Any


class Arrays:
    """Arrays over the clusters, equal ones once: what is known of one is known by its identity."""

    def __init__(self) -> None:
        self.count = 0
        #: by first column and first row
        self._alike: dict[tuple[object, bytes], list[Values]] = {}

    def one(self, new: Values) -> Values:
        """The array that stands for all that are equal to this one."""
        if type(new) is Sums:
            name: tuple[object, bytes] = id(new.column), new.row.tobytes()
        else:
            name = new[:, 0].tobytes(), new[0].tobytes()
        alike = self._alike.setdefault(name, [])
        for known in alike:
            if known is new or _equal(known, new):
                return known
        alike.append(new)
        self.count += 1
        return new

    def clear(self) -> None:
        """Forgets them."""
        self._alike.clear()
        self.count = 0


def _equal(one: Values, other: Values) -> bool:
    """Bit by bit: zero has two signs."""
    if type(one) is Sums and type(other) is Sums:
        return one.column is other.column and np.array_equal(one.row, other.row)
    if type(one) is Sums or type(other) is Sums or one.dtype != other.dtype:
        return False
    if one.dtype.kind in "iu":
        return bool(np.array_equal(one, other))
    return bool(one.shape == other.shape and one.tobytes() == other.tobytes())


def lanes_where(test: Values, mask: int) -> int:
    """The lanes of a mask in which a condition holds."""
    value = plain(test)
    if type(value) is Unknown:
        return mask  # what is executed all the same does nothing but set registers
    if not isinstance(value, np.ndarray):
        return mask if value else 0
    return mask & mask_bits(value != 0)


def differs(value: Values) -> bool:
    """Whether a value is given for each cluster."""
    return type(value) is Sums or (isinstance(value, np.ndarray) and value.ndim == 2)


def first_of(value: Values) -> Values:
    """The value in the cluster that runs."""
    return value[0] if differs(value) else value


def moved(values: Values, by: Any) -> Values:
    """All values larger by a number, or one per lane."""
    found = combined("+", np.add, values, by) if type(values) is Sums else None
    return plain(values) + by if found is None else found


def of_active(values: Values, mask: int) -> Values:
    """The columns of the active lanes, or the only one."""
    return values if values.shape[1] == 1 or mask == FULL else values[:, mask_array(mask)]
