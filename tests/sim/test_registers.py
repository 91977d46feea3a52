"""Registers have types: integers wrap, floats round, what is passed at launch fits its type.

What the simulator computes is what the emitted code computes (SEMANTICS W has the silicon's side).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tilesim as ts
from tilesim import Builder, f32, s8, s16, s32, s64, u8, u16, u32, u64
from tilesim.arith.types import DType, pred
from tilesim.errors import InvalidProgram
from tilesim.ir.expr import Expr
from tilesim.ir.program import Program
from tilesim.sim.machine.simulate import Simulation
from tilesim.transforms.lower import lower


def computed(body: Callable[[Builder], Expr], dtype: DType = s64) -> float:
    """What an expression is when it is stored as ``dtype``."""
    k = Builder("kernel", warps=1)
    y = k.tensor("y", dtype, (1,))
    with k.one_thread():
        k.mem.store(y[0], body(k))
    return float(ts.simulate(k.finish()).outputs["y"][0])


@pytest.mark.parametrize(
    ("dtype", "value", "held"),
    [
        (u8, 256, 0), (u8, -1, 255), (s8, 128, -128), (u16, 65537, 1), (s16, 40000, -25536),
        (u32, -1, 2**32 - 1), (u32, 2**32, 0), (s32, 2**31, -(2**31)), (u64, -1, 2**64 - 1),
        (s64, 2**40, 2**40),
    ],
)  # fmt: skip
def test_an_assignment_wraps(dtype: DType, value: int, held: int) -> None:
    wide = u64 if dtype is u64 else s64
    given = s64 if value < 2**63 else u64
    assert computed(
        lambda k: k.var("r", k.var("w", value, dtype=given), dtype=dtype), wide
    ) == float(held)


def test_a_predicate_is_a_truth_value() -> None:
    assert computed(lambda k: k.var("p", 7, dtype=pred) + 1) == 2


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (lambda k: k.var("a", 2**31 - 1) + 1, -(2**31)),
        (lambda k: k.var("a", 2**20) * 4096, 0),
        (lambda k: k.var("a", 0, dtype=u32) - 1, -1),  # a difference of u32 is s64
        (lambda k: k.var("a", 2**32 - 1, dtype=u32) + k.var("b", 1, dtype=u32), 0),
        (lambda k: k.var("a", 1) << k.var("n", 31), -(2**31)),
        (lambda k: k.var("a", 1) << k.var("n", 40), 0),
        (lambda k: k.var("a", -8) >> k.var("n", 99), -1),
        (lambda k: k.var("a", -7) // 2, -4),
        (lambda k: k.var("a", -7) % 4, 1),
    ],
)
def test_an_expression_has_the_type_of_the_emitted_one(
    body: Callable[[Builder], Expr], result: int
) -> None:
    assert computed(body) == result


def test_single_precision_rounds() -> None:
    assert computed(lambda k: k.var("x", 2.0**24, dtype=f32) + 1.0, f32) == 2.0**24
    third = computed(lambda k: k.var("x", 0.1, dtype=f32), f32)
    assert third == float(np.float32(0.1))


def test_lanes_wrap_alike() -> None:
    k = Builder("kernel", warps=1)
    y = k.tensor("y", s32, (32,))
    r = k.var("r", 0, dtype=u8)
    k.assign(r, k.lane_id * 100)
    k.mem.store(y[k.lane_id], r)
    assert ts.simulate(k.finish()).outputs["y"].tolist() == [(n * 100) % 256 for n in range(32)]


def test_a_loaded_value_fits_its_register() -> None:
    k = Builder("kernel", warps=1)
    x, y = k.tensor("x", u32, (1,)), k.tensor("y", s32, (1,))
    r = k.var("r", dtype=u8)
    k.mem.load(r, x[0])
    k.mem.store(y[0], r)
    given = {"x": np.array([0x1FF], dtype=np.uint32)}
    assert ts.simulate(k.finish(), given).outputs["y"].tolist() == [255]


def countdown(k: Builder, dtype: DType) -> None:
    """Counts ``n`` down while it is at least 0: in unsigned registers that never ends."""
    n = k.var("n", 3, dtype=dtype)
    with k.while_(n >= 0):
        k.assign(n, n - 1)


@pytest.mark.parametrize(("dtype", "ends"), [(s32, True), (u32, False), (u8, False)])
def test_an_unsigned_countdown_does_not_end(dtype: DType, ends: bool) -> None:
    k = Builder("kernel", warps=1)
    countdown(k, dtype)
    assert ends_within(2000, k.finish()) is ends


def ends_within(steps: int, program: Program) -> bool:
    """Whether the timed run ends after so many scheduling points at most."""
    simulation = Simulation(program, numbers=False, strict="practice")
    simulation.options = replace(simulation.options, max_steps=steps)
    return not simulation.run({}, lambda cluster: None).outcomes[0].cut_off


def arrivals(k: Builder, dtype: DType) -> None:
    """A warp arrives while a counter that starts at 0 and is lowered first is below 4."""
    bar = k.mbarriers("bar")
    with k.one_thread():
        k.mbarrier.init(bar, 1)
    k.sync_threads()
    with k.role("producer", 0), k.elected():
        n = k.var("n", 0, dtype=dtype)
        k.assign(n, n - 1)
        with k.if_(n < 4):
            k.mbarrier.arrive(bar)
    with k.role("consumer", 1):
        k.mbarrier.wait(bar, 0)


@pytest.mark.parametrize(("dtype", "verdict"), [(s32, "proved"), (u32, "failed"), (u8, "failed")])
def test_the_type_of_a_register_decides_a_verdict(dtype: DType, verdict: str) -> None:
    k = Builder("kernel", warps=2)
    arrivals(k, dtype)
    report = ts.check(k.finish())
    assert report.verdict == verdict
    if verdict == "failed":
        assert [f.rule for f in report.findings] == ["deadlock"]
        assert report.findings[0].roles == ("consumer",)


def test_a_launch_scalar_fits_its_type() -> None:
    k = Builder("kernel", warps=1)
    n = k.scalar("n", 2**31)
    with k.loop(n):
        k.sync_warp()
    with pytest.raises(InvalidProgram, match="scalar n is 2147483648, outside") as error:
        ts.check(k.finish())
    assert error.value.diagnostics[0].fix == "declare it with a wider dtype, such as s64"


@pytest.mark.parametrize("stop", [2**31, 2**32, 2**31 - 1])
def test_a_loop_counts_within_its_type(stop: int) -> None:
    k = Builder("kernel", warps=1)
    with k.loop(stop):
        k.sync_warp()
    with pytest.raises(InvalidProgram, match=r"the loop's (stop|counter)"):
        ts.check(k.finish())


def test_a_trip_count_from_a_wider_register_wraps() -> None:
    k = Builder("kernel", warps=1)
    y = k.tensor("y", s32, (1,))
    n, turns = k.var("n", 2**32 + 3, dtype=s64), k.var("turns", 0)
    with k.loop(n):
        k.assign(turns, turns + 1)
    k.mem.store(y[0], turns)
    assert ts.simulate(k.finish()).outputs["y"].tolist() == [3]


@pytest.mark.parametrize("value", [math.nan, 1e20, -1e20, 3.9, -3.9])
def test_floats_become_integers_as_cvt_makes_them(value: float) -> None:
    limits = np.iinfo(np.int32)
    expected = 0 if math.isnan(value) else max(limits.min, min(limits.max, math.trunc(value)))

    def body(k: Builder) -> Expr:
        x = k.var("x", value, dtype=f32)
        return k.var("n", x, dtype=s32)

    assert computed(body) == expected


@pytest.mark.parametrize("assigned", [True, False])
def test_data_in_a_row_is_one_step_but_each_register_has_to_be_set(assigned: bool) -> None:
    """What decides nothing is not computed; the instruction to blame is the one that reads."""
    k = Builder("row", warps=1)
    late = k.var("late", dtype=u32)
    with k.if_(k.warp_id.eq(0 if assigned else 1)):
        k.assign(late, k.lane_id)
    data = k.var("data", k.lane_id, u32)
    k.assign(data, data + 1)
    k.assign(data, data + late)
    k.assign(data, data + 2)
    program = k.finish()
    simulation = Simulation(program, numbers=False, strict="practice")
    longest = max(simulation.code.rows, key=len)
    report = ts.check(program)
    assert len(longest) == 3
    if assigned:
        run = Simulation(program, numbers=True, strict="practice").run({}, lambda cluster: None)
        assert (report.verdict, report.stats.instructions) == ("proved", run.stats.instructions)
        return
    reads = lower(program).code[sorted(longest)[1]].what
    (finding,) = report.findings
    assert [p.loc for p in finding.participants] == [reads.loc]
