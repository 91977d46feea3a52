"""On a Hopper GPU: results, hangs, launches on arrays that are already there."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np
import pytest

from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.crosscheck import Crosscheck, Options
from tilesim.gpu.emit import emit
from tilesim.gpu.launch import launch
from tilesim.gpu.watchdog import Executor
from tilesim.ir.kernel import Kernel
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
