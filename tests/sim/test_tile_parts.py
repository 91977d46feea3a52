"""`tile.store` of some columns of a fragment."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilesim as ts
from tilesim import Builder, InvalidProgram, Program, bf16, f32
from tilesim.checker import check
from tilesim.gpu.emit import emit
from tilesim.ir.text import parse, to_text
from tilesim.ir.verify import diagnose
from tilesim.sim.machine.simulate import simulate

#: distribution, rows, columns, columns of a part
SHAPES = [
    ("warpgroup", 64, 64, 16),
    ("warpgroup", 128, 48, 24),
    ("warp", 5, 128, 32),
    ("warp", 1, 64, 64),
]


def rotated(distribution: Any, rows: int, columns: int, width: int) -> Program:
    """Y is X with its columns rotated by one part."""
    k = Builder("rotated", "sm_90a", 4)
    X, Y = k.tensor("X", bf16, (rows, columns)), k.tensor("Y", bf16, (rows, columns))
    x = k.fragment("x", bf16, (rows, columns), distribution)
    with k.role("all", range(4) if distribution == "warpgroup" else 0):
        k.tile.load(x, X)
        for start in range(0, columns, width):
            k.tile.store(Y[:, start : start + width], x, column=(start + width) % columns)
    return k.finish()


@pytest.mark.parametrize(("distribution", "rows", "columns", "width"), SHAPES)
def test_a_part_is_stored(distribution: Any, rows: int, columns: int, width: int) -> None:
    program = rotated(distribution, rows, columns, width)
    assert check(program).verdict == "proved"
    x = np.arange(rows * columns).reshape(rows, columns) % 251
    run = simulate(program, {"X": x.astype(np.float32)})
    np.testing.assert_array_equal(run.outputs["Y"].astype(int), np.roll(x, -width, axis=1))


def test_the_text_form_keeps_the_column() -> None:
    program = rotated("warp", 5, 128, 32)
    text = to_text(program)
    assert "column=96" in text
    assert parse(text) == program


def one_store(columns: slice, column: int | None, distribution: Any = "warp") -> Program:
    k = Builder("one_store", "sm_90a", 4)
    T = k.tensor("T", f32, (64, 64))
    x = k.fragment("x", f32, (64, 64), distribution)
    with k.role("all", range(4) if distribution == "warpgroup" else 0):
        k.tile.fill(x, 0)
        k.tile.store(T[:, columns], x, column=column)
    return k.finish()


@pytest.mark.parametrize(
    ("columns", "column", "message"),
    [
        (slice(0, 32), 64, "columns 64 to 95 of fragment x, which has 64"),
        (slice(0, 32), 33, "columns 33 to 64 of fragment x, which has 64"),
        (slice(0, 32), -32, "columns -32 to -1 of fragment x, which has 64"),
        (slice(0, 32), None, r"T\[:, 0:\+32\] is \(64, 32\), fragment x is \(64, 64\)"),
    ],
)
def test_columns_that_the_fragment_does_not_have_are_rejected(
    columns: slice, column: int | None, message: str
) -> None:
    (found,) = diagnose(one_store(columns, column))
    assert re.search(message, found.message)


@pytest.mark.parametrize(("distribution", "width", "step"), [("warp", 16, 32), ("warpgroup", 4, 8)])
def test_columns_that_no_thread_holds_alone_have_no_encoding(
    distribution: Any, width: int, step: int
) -> None:
    whole = one_store(slice(0, step), step, distribution)
    emit(whole)
    with pytest.raises(InvalidProgram, match=f"both bounds must be multiples of {step}"):
        emit(one_store(slice(0, step), width, distribution))
    with pytest.raises(InvalidProgram, match=f"both bounds must be multiples of {step}"):
        emit(one_store(slice(0, width), 0, distribution))


# Rows that every warp of a warpgroup holds, in the columns of wgmma's accumulators.


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
