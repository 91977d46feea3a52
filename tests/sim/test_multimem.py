"""Memory of several devices: what the one that is simulated can say, and what it cannot."""

from __future__ import annotations

import numpy as np
import pytest

import tilesim as ts
from tilesim import Builder, Program, UsageError, bf16, check, f16, f32, u32
from tilesim.arith.types import DType, numpy_dtype
from tilesim.gpu.launch import require_one_device


def _waits(least: int) -> Program:
    k = Builder("barrier", warps=1)
    count, seen = k.tensor("count", u32, (1,), devices=8), k.var("seen", 0, u32)
    with k.if_(k.lane_id.eq(0)):
        k.multimem.red(count[0], "add", (1,), sem="release")
    with k.while_(seen < least):
        k.multimem.ld_reduce((seen,), "min", count[0], sem="acquire")
    return k.finish()


def test_a_wait_for_other_devices_is_no_deadlock() -> None:
    """Eight devices that do the same have counted to 8, not to 9."""
    assert check(_waits(8)).verdict == "bounded"
    report = check(_waits(9))
    assert report.verdict == "unsupported"
    (finding,) = report.findings
    assert "unless the contents on other devices of count changes" in finding.message
    (participant,) = finding.participants
    assert participant.loc.function == "_waits"


@pytest.mark.parametrize(("dtype", "bits"), [(f16, 0x4400_4000), (bf16, 0x4080_4000)])
def test_narrow_numbers_are_packed(dtype: DType, bits: int) -> None:
    """0.25 and 0.5 of eight devices are 2 and 4, the first one in the lower half."""
    k = Builder("sum", "sm_90a", warps=1)
    X, Y = k.tensor("X", dtype, (2,), devices=8), k.tensor("Y", dtype, (2,), devices=8)
    out, x = k.tensor("out", u32, (1,)), k.var("x", 0, u32)
    with k.if_(k.lane_id.eq(0)):
        k.multimem.ld_reduce((x,), "add", X, acc="f32")
        k.mem.store(out[0], x)
        k.multimem.store(Y, (x,))
    program = k.finish()
    given = np.array([0.25, 0.5], dtype=numpy_dtype(dtype))
    outputs = ts.simulate(program, {"X": given}).outputs
    assert outputs["out"].tolist() == [bits]
    assert outputs["Y"].astype(np.float32).tolist() == [2, 4]


def test_lanes_of_one_reduction_all_count() -> None:
    k = Builder("count", warps=1)
    k.multimem.red(k.tensor("count", u32, (1,), devices=2)[0], "add", (k.lane_id,))
    assert ts.simulate(k.finish()).outputs["count"].tolist() == [2 * 496]


def test_a_launch_needs_the_other_devices() -> None:
    with pytest.raises(UsageError, match="count: it is memory of several devices"):
        require_one_device(_waits(8))


def test_floats_are_added_in_memory_once_per_device() -> None:
    k = Builder("sum", warps=1)
    X = k.tensor("X", f32, (32,), devices=4)
    k.multimem.red(X[k.lane_id], "add", (0.5,))
    assert ts.simulate(k.finish()).outputs["X"].tolist() == [2.0] * 32
