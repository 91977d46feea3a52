"""Accesses at addresses into global memory, in all clusters."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilesim.arith.byte_set import ByteSet
from tilesim.arith.sums import Sums
from tilesim.ir.addresses import GLOBAL_WINDOW
from tilesim.ir.program import Program
from tilesim.sim.grid.plan import Far
from tilesim.sim.grid.touches import Box
from tilesim.sim.grid.values import Values


def surely_inside(program: Program, far: Far, addresses: Values) -> bool:
    """Whether all accesses are aligned and into one tensor, found out without looking at each."""
    if type(addresses) is Sums:
        low, high = addresses.limits
    else:
        low, high = int(np.minimum.reduce(addresses, None)), int(np.maximum.reduce(addresses, None))
    number = low // GLOBAL_WINDOW
    if not 0 < number <= len(program.tensors) or high // GLOBAL_WINDOW != number:
        return False
    if high % GLOBAL_WINDOW + far.pieces[-1][1] > program.tensors[number - 1].nbytes:
        return False
    if type(addresses) is Sums:
        return addresses.multiples_of(far.align)
    return not int(np.bitwise_or.reduce(addresses, None)) % far.align


def located(program: Program, far: Far, addresses: NDArray[np.int64]) -> tuple[Any, Any]:
    """Per address, a number for the tensor that it is into, and whether the access leaves it.

    What is no address into global memory stands for itself: other memory is looked at by name.
    """
    number = addresses // GLOBAL_WINDOW
    sizes = np.array([0, *(tensor.nbytes for tensor in program.tensors), 0])
    room = sizes[np.clip(number, 0, len(sizes) - 1)]
    beyond = addresses % GLOBAL_WINDOW + far.pieces[-1][1] > room
    return np.where(number > 0, number, addresses), (number > 0) & beyond


def bytes_at(far: Far, addresses: NDArray[np.int64]) -> tuple[Box, ...]:
    """The bytes of a tensor that lanes access at these addresses, as intervals."""
    first = (addresses % GLOBAL_WINDOW)[:, None]
    lows, highs = (np.array(ends, dtype=np.int64) for ends in zip(*far.pieces, strict=True))
    held = ByteSet.intervals((first + lows).ravel(), (first + highs).ravel())
    return tuple((pair,) for pair in held.pairs)
