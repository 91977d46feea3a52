"""Masks of lanes, as bits and as arrays."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

FULL = 0xFFFFFFFF


class Lanes:
    """A predicate register held as a bit mask (what elect.sync returns)."""

    __slots__ = ("bits",)

    def __init__(self, bits: int) -> None:
        self.bits = bits


def name_lanes(bits: int) -> str:
    """``lane 0``, ``lanes 0 to 15``, ``lanes 0, 2``."""
    lanes = [n for n in range(32) if bits >> n & 1]
    if len(lanes) == 1:
        return f"lane {lanes[0]}"
    if len(lanes) > 2 and lanes[-1] - lanes[0] == len(lanes) - 1:
        return f"lanes {lanes[0]} to {lanes[-1]}"
    return f"lanes {', '.join(map(str, lanes))}"


_BIT = np.arange(32, dtype=np.int64)


@lru_cache(maxsize=4096)
def mask_array(bits: int) -> NDArray[np.bool_]:
    """The 32 booleans of a lane mask, not to be written to."""
    lanes: NDArray[np.bool_] = (bits >> _BIT & 1).astype(bool)
    lanes.setflags(write=False)
    return lanes


def mask_bits(lanes: NDArray[Any]) -> int:
    """The lane mask of 32 truth values."""
    return int((lanes.astype(bool).astype(np.int64) << _BIT).sum())


def shuffled_from(mode: Literal["idx", "up", "down", "bfly"], by: Any) -> NDArray[np.int64]:
    """The lane that each lane reads from in ``shfl``, as the last five bits of ``by`` say: its own
    one where that would be outside of the warp (PTX 9.7.9.6)."""
    steps = np.broadcast_to(np.asarray(by & 31, dtype=np.int64), 32)
    match mode:
        case "idx":
            return steps
        case "up":
            there = _BIT - steps
        case "down":
            there = _BIT + steps
        case "bfly":
            there = _BIT ^ steps
    return np.where((there >= 0) & (there < 32), there, _BIT)


def condition_lanes(value: Any) -> int:
    """The lanes in which a condition holds, as a mask."""
    if type(value) is Lanes:
        return int(value.bits)
    if isinstance(value, np.ndarray):
        return mask_bits(value != 0)
    return FULL if value else 0
