"""Numbers that users give: what is none, or out of range, is an error at the line that gives it."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

import tilesim as ts
from tilesim import Builder, InvalidProgram
from tilesim.arith.types import DTYPES
from tilesim.checker import check
from tilesim.ir.expr import Binary, BinaryOp, Const, binary
from tilesim.ir.text import parse, to_text
from tilesim.lib import Grouped, Pipeline, Striding

Body = Callable[[Builder], object]
NAN, INFINITE = float("nan"), float("inf")


def built(body: Body) -> ts.Program:
    """A kernel with two mbarriers and what ``body`` records."""

    @ts.kernel(warps=4)
    def numbers(k: Builder) -> None:
        b = k.mbarriers("b", 2)
        with k.one_thread():
            k.mbarrier.init(b[0], 1)
            k.mbarrier.init(b[1], 1)
        k.sync_threads()
        body(k)

    return numbers.build()


def entered(region: Any) -> None:
    with region:
        pass


def arrives(k: Builder, rank: Any) -> None:
    bar: Any = k.declared["b"]
    with k.one_thread():
        k.mbarrier.arrive(bar[0].at(rank), scope="cluster")


def copies(k: Builder, row: Any) -> None:
    X = k.tensor("X", ts.bf16, (64, 64))
    x, tile, bar = k.tensor_map(X, (64, 64)), k.shared("t", ts.bf16, (64, 64)), k.declared["b"]
    assert isinstance(bar, ts.ir.declarations.Mbarriers)
    with k.one_thread():
        k.tma.load(x, tile, (row, 0), bar[0])


#: what is written -> how the error begins
WRONG: dict[str, tuple[Body, str]] = {
    "True warps": (lambda k: k.launch(warps=True), "warps is True, not an integer"),
    "True stages": (lambda k: Pipeline(k, True), "the number of mbarriers of full is True"),
    "many stages": (
        lambda k: Pipeline(k, 1 << 31),
        "full has 2,147,483,648 mbarriers of 8 bytes, sm_90a has 232,448 bytes of shared memory",
    ),
    "no shape": (lambda k: k.tensor("Y", ts.s32, ()), "the shape of Y is (), which has no"),
    "no shape of shared memory": (
        lambda k: k.shared("s", ts.s32, []), "the shape of s is [], which has no dimension",
    ),
    "a shape in no order": (
        lambda k: k.shared("s", ts.s32, {8, 64}),  # type: ignore[arg-type]
        "the shape of s is set {8, 64}, not an integer",
    ),
    "a huge fragment": (
        lambda k: k.fragment("f", ts.f32, (1 << 20, 64)),
        "f has 1,048,576 x 64 elements of f32; the registers of a whole SM have 262,144 bytes",
    ),
    "alignment": (lambda k: k.shared("s", ts.s32, (8,), align=0), "s: alignment 0 is not a power"),
    "a swizzle of NumPy": (
        lambda k: k.shared("s", ts.bf16, (8, 64), swizzle=np.uint8(200)),  # type: ignore[arg-type]
        "s: swizzle 200 is not 0 or 32 or 64 or 128 bytes",
    ),
    "no number of turns": (lambda k: entered(k.loop(NAN)), "the loop's stop nan is a floating"),
    "infinite turns": (lambda k: entered(k.loop(INFINITE)), "the loop's stop inf is a floating"),
    "half a rank": (lambda k: arrives(k, 1.5), "the address of b[0]@1.5 is not an integer"),
    "no rank": (lambda k: arrives(k, NAN), "the address of b[0]@nan is not an integer"),
    "half an address": (
        lambda k: k.mbarrier.wait(ts.mbar_at(8.5), 0),
        "the address of shared::cta:8.5 is not an integer",
    ),
    "no id": (lambda k: k.bar.sync(INFINITE, 64), "barrier.sync: id inf is a floating-point"),
    "True threads": (lambda k: k.bar.sync(1, True), "1 threads is not a multiple of 32"),
    "groups": (
        lambda k: k.bulk.wait_group(1 << 32),
        "cp.async.bulk.wait_group: pending group count 4294967296 is outside 0..2147483647",
    ),
    "groups of cp.async": (
        lambda k: k.cp_async.wait_group(1 << 32),
        "cp.async.wait_group: pending group count 4294967296 is outside 0..2147483647",
    ),
    "neither true nor false": (
        lambda k: k.bulk.wait_group(0, read=7),  # type: ignore[arg-type]
        "read of cp.async.bulk.wait_group is 7, not True or False",
    ),
    "a coordinate": (
        lambda k: copies(k, 1 << 32),
        "cp.async.bulk.tensor.load: the coordinate 4294967296 does not fit into 32 bits",
    ),
    "a value": (lambda k: k.var("v", 1 << 32), "mov: value 4294967296 does not fit into s32"),
    "a negative value": (
        lambda k: k.var("v", -(1 << 31) - 1), "mov: value -2147483649 does not fit into s32",
    ),
    "no CTAs": (lambda k: Striding(k, 4, 0), "ctas is 0, there is at least one"),
    "half a CTA": (lambda k: Striding(k, 4, 1.5), "ctas is 1.5, not an integer"),  # type: ignore
    "no cluster": (lambda k: Striding(k, 4, 2, cluster=-1), "cluster is -1, there is at least one"),
    "no CTAs for groups": (
        lambda k: Grouped(k, k.tensor("e", ts.s32, (4,)), 64, 1, 0),
        "ctas is 0, there is at least one",
    ),
    "ends that are no integers": (
        lambda k: Grouped(k, k.tensor("e", ts.f32, (4,)), 64, 1, 1),
        "e is not a vector of integers",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_number_that_is_none_is_an_error(name: str) -> None:
    body, said = WRONG[name]
    with pytest.raises(InvalidProgram) as caught:
        check(built(body))
    problem = caught.value.diagnostics[0]
    assert problem.message.startswith(said), problem.message
    assert problem.loc.file.endswith("test_numbers.py")
    assert problem.loc.line > inspect.getsourcelines(built)[1]


def of_numpy(k: Any) -> None:
    """NumPy's integers, which mypy refuses where a `Builder` takes Python's."""
    k.shared("s", ts.bf16, (np.uint8(128), np.int64(64)), swizzle=np.int64(128))
    k.bar.sync(np.int64(1), np.uint8(128))
    k.bulk.wait_group(np.int64(0))


RIGHT: dict[str, Body] = {
    "integers of NumPy": of_numpy,
    "all bits": lambda k: (k.var("v", 0xFFFFFFFF), k.var("w", -1, ts.u32)),
    "whole numbers": lambda k: k.var("v", 4.0),
    "as many tiles as there are": lambda k: entered(Striding(k, k.scalar("n", 3), 2).each()),
}


@pytest.mark.parametrize("name", RIGHT)
def test_numbers_that_are_meant_are_proved(name: str) -> None:
    program = built(RIGHT[name])
    assert check(program).verdict == "proved"
    assert "np." not in to_text(program)
    for tensor in program.shared:
        assert isinstance(tensor.nbytes, int)


#: arguments of `tilesim.check` -> how the error begins
ARGUMENTS: list[tuple[dict[str, Any], str]] = [
    ({"schedules": "3"}, "schedules must be an integer in 0..1000000, not '3'"),
    ({"schedules": 1.5}, "schedules must be an integer in 0..1000000, not 1.5"),
    ({"schedules": -1}, "schedules must be in 0..1000000, not -1"),
    ({"max_schedules": None}, "max_schedules must be an integer"),
    ({"preemptions": 0.5}, "preemptions must be an integer"),
    ({"jobs": True}, "jobs must be an integer in 1..512, not True"),
    ({"seed": None}, "seed must be an integer, not None"),
    ({"seed": "7"}, "seed must be an integer, not '7'"),
    ({"budget": NAN}, "budget must be a number of warp instructions or a datetime.timedelta"),
    ({"budget": None}, "budget must be a number of warp instructions or a datetime.timedelta"),
    ({"time_limit": "60s"}, "time_limit must be positive, in seconds or as a datetime.timedelta"),
    ({"time_limit": 0}, "time_limit must be positive"),
    (
        {"suggest": True},
        "suggest must be positive, in seconds or as a datetime.timedelta, not True",
    ),
    ({"suggest": timedelta(0)}, "suggest must be positive"),
    ({"suggest": NAN}, "suggest must be positive"),
    ({"suggest": -1}, "suggest must be positive, in seconds or as a datetime.timedelta, not -1"),
    ({"suggest": -1e300}, "suggest must be positive"),
    ({"inputs": [1]}, "inputs must be arrays by the names of their tensors, not [1]"),
    ({"for_all": "trips"}, "for_all must be values by the names of parameters, not 'trips'"),
    ({"params": 3}, "params must be values by the names of parameters, not 3"),
]


@pytest.mark.parametrize(("arguments", "said"), ARGUMENTS, ids=[str(a) for a, _ in ARGUMENTS])
def test_an_argument_of_a_check_that_is_none(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ts.UsageError) as caught:
        check(built(lambda k: k.sync_threads()), **arguments)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize("limit", [60, 0.5, 1e300, timedelta(seconds=60)], ids=str)
def test_times_of_a_check_are_seconds_or_durations(limit: Any) -> None:
    def stuck(k: ts.Builder) -> None:
        stuck = k.mbarriers("stuck")
        with k.one_thread():
            k.mbarrier.init(stuck, 2)
            k.mbarrier.arrive(stuck)
            k.mbarrier.wait(stuck, 0)

    report = check(built(stuck), time_limit=60, suggest=limit)
    assert report.rules == {"deadlock"}
    assert report.repairs is not None
    assert report.repairs.found


@pytest.mark.parametrize("policy", ["timed", "random", "pct"])
def test_a_run_without_a_seed(policy: Any) -> None:
    with pytest.raises(ts.UsageError, match="seed must be an integer, not None"):
        ts.simulate(built(lambda k: k.sync_threads()), policy=policy, seed=None)  # type: ignore


@pytest.mark.parametrize("index", ["nan", "inf", "0.5", "(%lane_id * 1.5)"])
def test_an_index_of_a_text_that_is_no_integer(index: str) -> None:
    text = to_text(built(lambda k: arrives(k, 7)))
    assert "b[0].at(7)" in text
    with pytest.raises(InvalidProgram) as caught:
        check(parse(text.replace(".at(7)", f".at({index})")))
    assert "is not an integer" in caught.value.diagnostics[0].message


@pytest.mark.parametrize("coordinate", ["nan", "inf", "0.5"])
def test_a_coordinate_of_a_text_that_is_no_integer(coordinate: str) -> None:
    text = to_text(built(lambda k: copies(k, 77)))
    assert "77" in text
    with pytest.raises(InvalidProgram) as caught:
        check(parse(text.replace("77", coordinate)))
    assert f"the coordinate {coordinate} is not an integer" in caught.value.diagnostics[0].message


@pytest.mark.parametrize("barrier", ["nan", "inf", "1.5"])
def test_a_barrier_of_a_text_that_is_no_integer(barrier: str) -> None:
    text = to_text(built(lambda k: k.bar.sync(7, 128)))
    with pytest.raises(InvalidProgram) as caught:
        check(parse(text.replace("barrier.sync 7", f"barrier.sync {barrier}")))
    assert f"id {barrier} is not an integer" in caught.value.diagnostics[0].message


def test_inputs_that_are_no_numbers() -> None:
    program = built(lambda k: k.tensor("X", ts.s32, (2,)))
    with pytest.raises(ts.UsageError, match="input X of <U1 is not an array of s32"):
        ts.simulate(program, {"X": np.array(["a", "b"])})


@pytest.mark.parametrize(
    ("op", "lhs", "rhs"),
    [("<<", INFINITE, 2), ("<<", 1, NAN), ("<<", 1, -1), ("//", 1, 0), ("%", 1.5, 0)],
)
def test_what_has_no_value_is_not_folded(op: BinaryOp, lhs: float, rhs: float) -> None:
    assert str(binary(op, lhs, rhs)) == str(Binary(op, Const(lhs), Const(rhs)))
    assert binary("<<", 3, 2) == Const(12)


@pytest.mark.parametrize("name", DTYPES)
def test_a_copy_of_a_type_is_the_type(name: str) -> None:
    """Types are compared by identity in checks, also of programs that another process unpickles."""
    dtype = DTYPES[name]
    assert pickle.loads(pickle.dumps(dtype)) is dtype
    assert copy.deepcopy(dtype) is dtype
