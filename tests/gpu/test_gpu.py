"""On a Hopper GPU: results, hangs, launches on arrays that are already there."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np
import pytest

from tilesim import Builder, f32, kernel, pred, s8, s16, s32, s64, select, u8, u16, u32
from tilesim.arith.types import DType
from tilesim.dsl.kernel import Kernel
from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.crosscheck import Crosscheck, Options
from tilesim.gpu.emit import emit
from tilesim.gpu.launch import launch
from tilesim.gpu.watchdog import Executor
from tilesim.ir.expr import Expr
from tilesim.kernels.hopper import copy, matmul_v5, softmax
from tilesim.kernels.nvfuser.printed import only, printed

from . import needs

pytestmark = [pytest.mark.gpu, needs.driver, needs.compiler]


@pytest.fixture(scope="module")
def checker() -> Iterator[Crosscheck]:
    with Executor() as executor:
        yield Crosscheck(executor, Options(perturb=2))


@pytest.mark.parametrize("kernel", [copy.vector, copy.tensor, matmul_v5.matmul, softmax.softmax])
def test_results_agree(checker: Crosscheck, kernel: Kernel) -> None:
    result = checker.check(kernel.build())
    assert result.agrees, result


@kernel(warps=1)
def arithmetic(k: Builder) -> None:
    """What registers of every type hold after assignments that do not fit, and expressions that
    wrap, round and shift too far; each lane has numbers of its own."""
    x = k.tensor("x", u32, (32,))
    seed = k.var("seed", dtype=u32)
    k.mem.load(seed, x[k.lane_id])
    wide = k.var("wide", seed, dtype=s64)
    one = k.var("one", k.lane_id * 2_000_000_011)
    half = k.var("half", seed, dtype=f32)
    unsigned = k.var("unsigned", seed - 5, dtype=u32)
    results: list[tuple[Expr, DType]] = [
        *((k.var(f"as_{t}", wide * 77 - 3, dtype=t), s64) for t in (u8, s8, u16, s16, u32, s32)),
        (one + 2**31 - 1, s32), (one * 7, s32), (one // 3, s32), (one % 5, s32),
        (one << k.lane_id, s32), (one >> k.lane_id, s32), (one << (k.lane_id + 20), s32),
        (unsigned - 7, s64), (unsigned + seed, u32), (unsigned * unsigned, u32),
        (select(unsigned > one, 1, 0), s32), (k.var("truth", seed & 6, dtype=pred) + 1, s32),
        (half * 3.25 + 0.1, f32), (k.var("back", half * 1e6, dtype=s32), s32),
        (-(one << 31), s32), ((one << 31) // (-1 - (k.lane_id & 0)), s32), (wide << seed, s64),
        (half // 3.5, f32), (-half % 3.5, f32), (half * half - half * 3.25, f32),
    ]  # fmt: skip
    for number, (value, dtype) in enumerate(results):
        k.mem.store(k.tensor(f"y{number}", dtype, (32,))[k.lane_id], value)


def test_registers_hold_what_the_simulator_says(checker: Crosscheck) -> None:
    result = checker.check(arithmetic.build())
    assert (result.result, result.agrees) == ("equal", True), result


def test_a_deadlock_hangs_and_the_gpu_stays_usable(checker: Crosscheck) -> None:
    assert checker.check(printed.build(**only("dead_role"))).result == "same hang"
    assert checker.check(copy.vector.build()).result == "equal"


def test_a_launch_on_cupy_arrays() -> None:
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        pytest.skip("cupy is not installed")
    x = cupy.arange(4096, dtype=np.float32)
    y = cupy.zeros_like(x)
    launch(compile_cubin(emit(copy.vector.build())), {"X": x, "Y": y})
    assert bool((x == y).all())
