"""Softmax along rows, one block of rows per warp, entirely in registers.

There is nothing to synchronise: every warp reads and writes its own rows. The kernel shows the tile
instructions, and that a kernel without barriers is proved as well.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays, tiles
from tilesim.kernels.registry import Case

WARPS = 4


def _softmax(inputs: Arrays, **params: Any) -> Arrays:
    x = inputs["X"].astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return {"Y": (e / e.sum(axis=1, keepdims=True)).astype(np.float32)}


@kernel(warps=WARPS, family="hopper", reference=_softmax)
def softmax(k: Builder, *, rows: int = 32, columns: int = 128, warp_rows: int = 4) -> None:
    """Y[i, :] = softmax(X[i, :]) in f32, ``warp_rows`` rows per warp."""
    k.launch(grid=tiles(rows, WARPS * warp_rows, "rows"))
    X = k.tensor("X", f32, (rows, columns))
    Y = k.tensor("Y", f32, (rows, columns))
    x = k.fragment("x", f32, (warp_rows, columns))
    row_max = k.fragment("row_max", f32, (warp_rows, 1))
    row_sum = k.fragment("row_sum", f32, (warp_rows, 1))
    mine = ds((k.cta_x * WARPS + k.warp_id) * warp_rows, warp_rows)

    k.tile.load(x, X[mine, :])
    k.tile.reduce(row_max, "max", x)
    k.tile.zip(x, "sub", x, row_max)
    k.tile.map(x, "exp", x)
    k.tile.reduce(row_sum, "sum", x)
    k.tile.zip(x, "div", x, row_sum)
    k.tile.store(Y[mine, :], x)


CASES = (Case(softmax, {}, "hopper", "proved"),)
