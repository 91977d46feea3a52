"""`tile.fma`, masks, `tile.reduce` to several columns, `tile.map` exp2: their numbers."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tilesim import Builder, InvalidProgram, Program, bf16, f32
from tilesim.checker import check
from tilesim.gpu.emit import emit
from tilesim.ir.text import parse, to_text
from tilesim.ir.verify import diagnose
from tilesim.sim.machine.simulate import simulate

ROWS, COLUMNS = 64, 48


def program(distribution: Any, compute: Any, width: int = COLUMNS) -> Program:
    """Y (64, width) = what ``compute(k, y, x)`` makes of X (64, 48)."""
    k = Builder("fused", "sm_90a", 4)
    X, Y = k.tensor("X", f32, (ROWS, COLUMNS)), k.tensor("Y", f32, (ROWS, width))
    x = k.fragment("x", f32, (ROWS, COLUMNS), distribution)
    y = k.fragment("y", f32, (ROWS, width), distribution)
    with k.role("all", range(4) if distribution == "warpgroup" else 0):
        k.tile.load(x, X)
        compute(k, y, x)
        k.tile.store(Y, y)
    return k.finish()


def result(built: Program, x: Any) -> Any:
    """Y of a proved program that the text form keeps and that has an encoding."""
    assert check(built).verdict == "proved"
    assert parse(to_text(built)) == built
    emit(built)
    return simulate(built, {"X": np.asarray(x, np.float32)}).outputs["Y"]


def values() -> Any:
    return np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)


# ------------------------------------------------------------------ fma


def rounded(exact: Fraction) -> np.float32:
    """The f32 nearest to ``exact``, ties to even; for normal numbers."""
    near = np.float32(float(exact))
    around = (np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf)))
    return min(around, key=lambda f: (abs(Fraction(float(f)) - exact), int(f.view(np.uint32)) & 1))


@pytest.mark.parametrize("distribution", ["warp", "warpgroup"])
def test_fma_rounds_once(distribution: Any) -> None:
    x = values()

    def compute(k: Builder, y: Any, x: Any) -> None:
        k.tile.fma(y, x, 1.7, x)

    found, factor = result(program(distribution, compute), x), Fraction(float(np.float32(1.7)))
    wanted = [rounded(Fraction(float(v)) * factor + Fraction(float(v))) for v in x.ravel()]
    np.testing.assert_array_equal(found.ravel(), wanted)
    assert np.any(found != x * np.float32(1.7) + x)  # rounding twice differs


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_fma_of_a_product_next_to_a_tie_is_rounded_like_the_exact_sum(sign: float) -> None:
    """(1 + 2^-12)^2 is half way between two f32; what is added is less than f64 can hold."""

    def compute(k: Builder, y: Any, x: Any) -> None:
        k.tile.fma(y, x, x, sign * 2.0**-80)

    x = np.full((ROWS, COLUMNS), 1 + 2.0**-12)
    found = result(program("warp", compute), x)
    up = 2.0**-23 if sign > 0 else 0.0
    np.testing.assert_array_equal(found, np.float32(1 + 2.0**-11 + up))


def test_fma_repeats_a_column_and_keeps_infinities() -> None:
    def compute(k: Builder, y: Any, x: Any) -> None:
        top = k.fragment("top", f32, (ROWS, 1), "warpgroup")
        k.tile.reduce(top, "max", x)
        k.tile.fma(y, x, 2.0, top)

    x = np.round(4 * values())
    x[0, 0] = -np.inf
    found = result(program("warpgroup", compute), x)
    np.testing.assert_array_equal(found, 2 * x + x.max(axis=1, keepdims=True))


def test_fma_computes_in_f32_only() -> None:
    k = Builder("narrow", "sm_90a", 4)
    x, y = k.fragment("x", bf16, (4, 32)), k.fragment("y", f32, (4, 16))
    k.tile.fill(x, 0)
    k.tile.fma(x, x, 1.0, y)
    messages = "\n".join(found.message for found in diagnose(k.finish()))
    assert "x is bf16, expected f32" in messages
    assert "(4, 16) cannot be repeated over (4, 32)" in messages


# ------------------------------------------------------------------ tril


@pytest.mark.parametrize("distribution", ["warp", "warpgroup"])
@pytest.mark.parametrize("diagonal", [-20, 0, 7, 100])
def test_tril_keeps_what_lies_below_the_diagonal(distribution: Any, diagonal: int) -> None:
    def compute(k: Builder, y: Any, x: Any) -> None:
        with k.loop(diagonal, diagonal + 1) as d:
            k.tile.tril(y, x, d, -5.0)

    x = values()
    found = result(program(distribution, compute), x)
    np.testing.assert_array_equal(found, np.where(np.tri(ROWS, COLUMNS, diagonal) > 0, x, -5))


@pytest.mark.parametrize("name", ["tril", "left"])
def test_masks_need_a_tile_of_the_same_kind(name: str) -> None:
    k = Builder("narrow", "sm_90a", 4)
    x, y = k.fragment("x", f32, (4, 32)), k.fragment("y", bf16, (4, 32))
    k.tile.fill(x, 0)
    getattr(k.tile, name)(y, x, 0, 0.0)
    (found,) = diagnose(k.finish())
    assert found.message == f"tile.{name}: y is bf16 (4, 32), x is f32 (4, 32)"


# ------------------------------------------------------------------ left


@pytest.mark.parametrize("distribution", ["warp", "warpgroup"])
@pytest.mark.parametrize("columns", [-1, 0, 1, COLUMNS - 1, COLUMNS, COLUMNS + 5])
def test_left_keeps_the_first_columns(distribution: Any, columns: int) -> None:
    def compute(k: Builder, y: Any, x: Any) -> None:
        with k.loop(columns, columns + 1) as c:
            k.tile.left(y, x, c, -5.0)

    x = values()
    found = result(program(distribution, compute), x)
    np.testing.assert_array_equal(found, np.where(np.arange(COLUMNS) < columns, x, -5))


# ------------------------------------------------------------------ reductions


@pytest.mark.parametrize(("op", "function"), [("sum", np.sum), ("max", np.max), ("min", np.min)])
@pytest.mark.parametrize("width", [8, 16, 24])
def test_reduction_to_several_columns(op: Any, function: Any, width: int) -> None:
    def compute(k: Builder, y: Any, x: Any) -> None:
        k.tile.reduce(y, op, x)

    x = np.round(4 * values())
    found = result(program("warpgroup", compute, width), x)
    np.testing.assert_array_equal(found, function(x.reshape(ROWS, -1, width), axis=1))


def test_reductions_that_no_thread_can_do_alone_have_no_encoding() -> None:
    def compute(k: Builder, y: Any, x: Any) -> None:
        k.tile.reduce(y, "sum", x)

    with pytest.raises(
        InvalidProgram, match="to 16 columns: each thread holds its part of 32 columns"
    ):
        emit(program("warp", compute, 16))


def test_the_columns_of_a_reduction_divide_those_of_the_tile() -> None:
    def compute(k: Builder, y: Any, x: Any) -> None:
        k.tile.reduce(y, "sum", x)

    (found,) = diagnose(program("warpgroup", compute, 32))
    assert re.search(r"the result is \(64, 32\), expected 64 rows .* divides 48", found.message)


# ------------------------------------------------------------------ exp2


def test_powers_below_the_normal_numbers_are_zero() -> None:
    def compute(k: Builder, y: Any, x: Any) -> None:
        k.tile.map(y, "exp2", x)

    x = np.zeros((ROWS, COLUMNS))
    x[0, :4] = (-126, -126.5, -1e30, -np.inf)
    found = result(program("warp", compute), x)
    np.testing.assert_array_equal(found[0, :5], [2.0**-126, 0, 0, 0, 1])


# ------------------------------------------------------------------ CUDA


def test_one_instruction_per_element() -> None:
    """The emitted code leaves nothing to be fused, and no branch on the value."""

    def compute(k: Builder, y: Any, x: Any) -> None:
        top = k.fragment("top", f32, (ROWS, 1), "warpgroup")
        k.tile.reduce(top, "max", x)
        k.tile.fma(y, x, 2.0, top)
        k.tile.map(y, "exp2", y)
        half = k.fragment("half", bf16, (ROWS, COLUMNS), "warpgroup")
        k.tile.cast(half, y)

    text = emit(program("warpgroup", compute)).text
    assert "y[i_] = fmaf(x[i_], (f32)2.0f, (f32)top[(i_ >> 1 & 1)]);" in text
    assert "y[i_] = exp2_ftz(y[i_]);" in text
    assert "f32_to_bf16x2(half + i_, y[i_], y[i_ + 1]);" in text
    for instruction in ("max.NaN.f32", "ex2.approx.ftz.f32", "cvt.rn.bf16x2.f32"):
        assert instruction in text


def test_a_reduction_adds_what_a_thread_holds() -> None:
    """Two rows of 48 columns: 24 registers, those of 16 columns every 8."""

    def compute(k: Builder, y: Any, x: Any) -> None:
        k.tile.reduce(y, "sum", x)

    text = emit(program("warpgroup", compute, 16)).text
    assert "total_ = total_ + x[i_ / 8 * 24 + i_ % 8 + n_ * 8];" in text
    assert "__shfl_xor" not in text
