"""Values of other lanes: which one a lane reads from (PTX 9.7.9.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

import tilesim as ts
from tilesim import Builder, s32
from tilesim.arith.types import DType
from tilesim.ir.expr import select

Mode = Literal["idx", "up", "down", "bfly"]


def shuffled(
    mode: Mode, low: int, high: int | None = None, *, value: int | None = None, given: DType = s32,
    got: DType = s32,
) -> list[int]:  # fmt: skip
    """What each lane gets if each gives its number, or all of them one, and names a number; those
    of the upper half name ``high``, if it is given."""
    k = Builder("shuffled", warps=1)
    out, result = k.tensor("out", got, (32,)), k.var("result", 0, got)
    own = k.var("own", k.lane_id if value is None else value, given)
    by = low if high is None else select(k.lane_id < 16, low, high)
    k.mem.shuffle(result, own, by, mode)
    k.mem.store(out[k.lane_id], result)
    run = ts.simulate(k.finish())
    assert run.findings == ()
    return [int(number) for number in run.outputs["out"]]


def _inside(there: int, lane: int) -> int:
    return there if 0 <= there < 32 else lane


_MODES: dict[Mode, Callable[[int, int], int]] = {
    "idx": lambda lane, by: by % 32,
    "up": lambda lane, by: _inside(lane - by % 32, lane),
    "down": lambda lane, by: _inside(lane + by % 32, lane),
    "bfly": lambda lane, by: lane ^ by % 32,
}


@pytest.mark.parametrize("mode", _MODES)
def test_the_last_five_bits_say_which_lane(mode: Mode) -> None:
    """One for all lanes, or one of each lane's own."""
    for low, high in ((0, 0), (3, 3), (31, 31), (32, 32), (37, 37), (-1, -1), (2, 33)):
        found = shuffled(mode, low, high)
        assert found == [_MODES[mode](lane, low if lane < 16 else high) for lane in range(32)]
        if low == high:
            assert shuffled(mode, low) == found


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize(
    ("given", "got", "number", "is_read"),
    [(ts.u32, s32, (1 << 32) - 3, -3), (s32, ts.u32, -3, (1 << 32) - 3), (s32, ts.u8, 300, 44),
     (ts.u64, ts.u64, (1 << 64) - 1, (1 << 64) - 1)],
)  # fmt: skip
def test_what_all_lanes_hold_alike_goes_around_in_its_type(
    mode: Mode, given: DType, got: DType, number: int, is_read: int
) -> None:
    """A number beyond 2^63 is no array of NumPy's that goes with those of lanes."""
    assert shuffled(mode, 1, value=number, given=given, got=got) == [is_read] * 32
