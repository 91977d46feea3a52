"""`tile.store` of some columns of a fragment."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

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
