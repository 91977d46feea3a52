"""Rows that every warp of a warpgroup holds, in the columns of wgmma's accumulators."""

from __future__ import annotations

import numpy as np
import pytest

import tilesim as ts
from tilesim.sim.machine.simulate import simulate


def scaled(*, early: bool = False) -> ts.Program:
    """Y = X * row, then the columns up to 9 of the row's reciprocal added; ``early``: the row is
    read from shared memory before all threads meet."""
    k = ts.Builder("scaled", warps=4)
    X, Y = (k.tensor(name, ts.f32, (64, 16)) for name in "XY")
    given, row = k.tensor("R", ts.f32, (16,)), k.shared("row", ts.f32, (16,))
    tile = k.fragment("tile", ts.f32, (64, 16), "warpgroup")
    own, other = (k.fragment(name, ts.f32, (1, 16), "warpgroup") for name in ("own", "other"))
    one, value = k.fragment("one", ts.f32, (1, 16)), k.var("value", dtype=ts.f32)
    with k.if_(k.thread_id < 16):
        k.mem.load(value, given[k.thread_id])
        k.mem.store(row[k.thread_id], value)
    if not early:
        k.sync_threads()
    k.tile.load(tile, X)
    k.tile.load(own, row)
    k.tile.map(other, "rcp", own)
    k.tile.tril(other, other, 9, 0)
    k.tile.fill(one, 1)
    k.tile.zip(other, "mul", other, one)
    k.tile.fma(tile, tile, own, other)
    k.tile.store(Y, tile)
    return k.finish()


def test_a_row_meets_every_row_of_a_tile() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 16)).astype(np.float32)
    row = np.exp2(rng.integers(-3, 4, 16)).astype(np.float32)
    given = {"X": x, "R": row, "Y": np.zeros_like(x)}
    assert ts.check(scaled(), inputs=given).verdict == "proved"
    expected = x * row + np.where(np.arange(16) < 10, 1 / row, 0)
    run = simulate(scaled(), given)
    np.testing.assert_allclose(run.outputs["Y"], expected, rtol=1e-6)


def test_every_warp_reads_the_row() -> None:
    """Warp 0 writes it: the others may be too early."""
    report = ts.check(scaled(early=True))
    races = [f for f in report.findings if f.rule == "race"]
    readers = {p.warp for f in races for p in f.participants}
    assert report.verdict == "failed"
    assert readers == {0, 1, 2, 3}


@pytest.mark.parametrize("lane", [0, 1, 5])
def test_lanes_read_the_columns_that_they_hold(lane: int) -> None:
    """A store by a lane that no barrier of the warp orders before the load: only columns that other
    lanes read are raced for."""
    k = ts.Builder("lanes", warps=4)
    row = k.shared("row", ts.f32, (8,))
    own = k.fragment("own", ts.f32, (1, 8), "warpgroup")
    with k.if_(k.warp_id.eq(0), sync=False), k.if_(k.lane_id.eq(lane), sync=False):
        k.mem.store(row[0], 1.0)
    k.tile.load(own, row)
    races = [f for f in ts.check(k.finish()).findings if f.rule == "race"]
    assert races
