"""Values of other lanes: which one a lane reads from (PTX 9.7.9.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest

import tilesim as ts
from tilesim import Builder, s32
from tilesim.arith.types import DType
from tilesim.ir.expr import Expr, as_expr, select
from tilesim.ir.program import Program

Mode = Literal["idx", "up", "down", "bfly"]


def shuffled(mode: Mode, by: Expr, expected: Expr, ctas: int = 1) -> Program:
    """Each lane gets the number of another one, and stores beyond the end if it is not the one that
    is expected."""
    k = Builder("shuffled", "sm_90a", warps=1)
    k.launch(grid=ctas)
    data, got = k.shared("data", s32, (1,)), k.var("got", 0)
    k.mem.shuffle(got, k.lane_id, by, mode)
    with k.elected():
        k.mem.store(data[0], 0)
    with k.if_(got.ne(expected)):
        k.mem.store(data[1 + k.lane_id // 32], 1)
    return k.finish()


def _inside(there: Expr, lane: Expr) -> Expr:
    return select((there < 0) | (there > 31), lane, there)


_MODES: dict[Mode, Callable[[Expr, int], Expr]] = {
    "idx": lambda lane, by: as_expr(by % 32),
    "up": lambda lane, by: _inside(lane - by % 32, lane),
    "down": lambda lane, by: _inside(lane + by % 32, lane),
    "bfly": lambda lane, by: lane ^ by % 32,
}


@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("by", [0, 3, 31, 32, 37, -1])
def test_the_last_five_bits_say_which_lane(mode: Mode, by: int) -> None:
    lane = Builder("lanes", warps=1).lane_id
    right = _MODES[mode](lane, by)
    assert ts.check(shuffled(mode, as_expr(by), right, ctas=3)).verdict == "proved"
    wrong = ts.check(shuffled(mode, as_expr(by), right + 1))
    assert wrong.verdict == "failed"
    assert wrong.rules == {"out-of-bounds"}


@pytest.mark.parametrize("mode", _MODES)
def test_each_lane_may_name_one_of_its_own(mode: Mode) -> None:
    lane = Builder("lanes", warps=1).lane_id
    by = select(lane < 16, 2, 33)
    right = select(lane < 16, _MODES[mode](lane, 2), _MODES[mode](lane, 33))
    assert ts.check(shuffled(mode, by, right)).verdict == "proved"
    assert ts.check(shuffled(mode, by, right + 1)).verdict == "failed"


@pytest.mark.parametrize("mode", _MODES)
def test_what_all_lanes_hold_alike_goes_around_as_it_is(mode: Mode) -> None:
    """A number beyond 2^63 is no array of NumPy's that goes with those of lanes."""
    k = Builder("shuffled", "sm_90a", warps=1)
    out = k.tensor("out", ts.u64, (32,))
    large, got = k.var("large", 2**64 - 1, dtype=ts.u64), k.var("got", dtype=ts.u64)
    k.mem.shuffle(got, large, 1, mode)
    k.mem.store(out[k.lane_id], got & k.lane_id)
    assert ts.simulate(k.finish()).outputs["out"].tolist() == [*range(32)]


@pytest.mark.parametrize(
    ("given", "got", "number", "is_read"),
    [(ts.u32, s32, (1 << 32) - 3, -3), (s32, ts.u32, -3, (1 << 32) - 3), (s32, ts.u8, 300, 44)],
)
def test_a_number_of_another_lane_in_another_type(
    given: DType, got: DType, number: int, is_read: int
) -> None:
    """A register holds it as its own type has it; the wrong twin waits if it does."""

    def read(wrong: bool) -> Program:
        k = Builder("typed", warps=1)
        done, value, result = k.mbarriers("done"), k.var("value", number, given), k.var("r", 0, got)
        with k.elected():
            k.mbarrier.init(done, 1)
        k.mem.shuffle(result, value, 3)
        with k.if_(result.eq(is_read) if wrong else result.ne(is_read)):
            k.mbarrier.wait(done, 0)
        return k.finish()

    assert ts.check(read(wrong=False)).verdict == "proved"
    assert ts.check(read(wrong=True)).rules == {"deadlock"}
