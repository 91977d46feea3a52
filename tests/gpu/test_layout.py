"""Which thread holds which element: the emitted index formulas against PTX's figures."""

from __future__ import annotations

import pytest

from tilesim.arith.types import f32
from tilesim.gpu.emit.tile import _column, _row_in_warp
from tilesim.ir.declarations import Fragment
from tilesim.ir.fragments import Held, Layout, layout_of


def value(formula: str, **names: int) -> int:
    """A C index formula over non-negative integers, evaluated."""
    return int(eval(formula.replace("/", "//"), {}, names))


@pytest.mark.parametrize(("rows", "columns"), [(64, 8), (64, 40), (64, 256), (128, 16), (192, 8)])
def test_a_warpgroup_holds_every_element_once(rows: int, columns: int) -> None:
    shape = Layout(rows, columns, warpgroup=True)
    seen = set()
    for warp in range(4):
        for lane in range(32):
            for i in range(shape.count):
                row = warp * (rows // 4) + lane // 4 + value(_row_in_warp(shape, "i"), i=i)
                column = value(_column(shape, "i", "lane"), i=i, lane=lane)
                assert row // (rows // 4) == warp, "a warp holds a quarter of the rows"
                seen.add((row, column))
    assert seen == {(r, c) for r in range(rows) for c in range(columns)}


def test_one_block_is_the_layout_of_wgmma() -> None:
    """PTX 9.7.15.5.1, matrix D: element i of thread t."""
    shape = Layout(64, 32, warpgroup=True)
    for lane in range(32):
        for i in range(shape.count):
            assert value(_row_in_warp(shape, "i"), i=i) == 8 * (i // 2 % 2)
            assert value(_column(shape, "i", "lane"), i=i, lane=lane) == (
                8 * (i // 4) + 2 * (lane % 4) + i % 2
            )


@pytest.mark.parametrize("columns", [8, 40, 256])
def test_every_warp_of_a_warpgroup_holds_a_whole_row(columns: int) -> None:
    """In the columns of the accumulators that the thread holds."""
    row, tile = (Layout(n, columns, warpgroup=True) for n in (1, 64))
    for lane in range(32):
        own = [value(_column(row, "i", "lane"), i=i, lane=lane) for i in range(row.count)]
        accumulators = (
            value(_column(tile, "i", "lane"), i=i, lane=lane) for i in range(tile.count)
        )
        assert own == sorted(set(accumulators))
        masks = Held(row, 1, columns, once=False).lanes()
        assert own == [c for c in range(columns) if masks[c] >> lane & 1]


@pytest.mark.parametrize("shape", [(64, 256), (128, 1), (1, 40)])
def test_threads_that_share_a_tile_hold_it_once(shape: tuple[int, int]) -> None:
    fragment = Fragment("x", f32, shape, "warpgroup")
    held = fragment.threads * layout_of(fragment, lanes=False).count
    assert held == shape[0] * shape[1] * (4 if shape[1] == 1 else 1)


def test_registers_per_thread() -> None:
    assert Layout(64, 256, warpgroup=True).count == 128
    assert Layout(128, 1, warpgroup=True).count == 4
    assert Layout(4, 40, warpgroup=False).count == 8
    assert Layout(7, 1, warpgroup=False).count == 7
