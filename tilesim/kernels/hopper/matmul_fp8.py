"""FP8 operands with a scale per row: step 7 of the matmul, with e4m3 in the place of bf16.

``C = (A @ B.T) * SA * SB``: A has a scale for each of its rows, B for each of its rows, which are
the columns of C. The scales are loaded before the loop over the k tiles, which hides the time that
takes, and the accumulators are multiplied by them before they are rounded.

A k tile has 128 bytes of every row as in step 7, which are 128 elements now, so the same four
stages of 128 x 256 tiles are filled by the same copies while the tensor cores take half as long for
an element.

Tensor cores add products of e4m3 with fewer bits than an f32 has; what is lost grows with the
depth. ``matmul_fp8_blocks`` adds up in registers instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import bf16, e4m3, f32, numpy_dtype
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.matmul_v5 import (
    BLOCK_M,
    CONSUMER_GROUPS,
    CONSUMER_REGISTERS,
    PRODUCER_REGISTERS,
    ROWS,
    WARPS,
    accumulate,
)
from tilesim.kernels.hopper.matmul_v7 import PIECE, corner, store_pieces
from tilesim.kernels.hopper.operands import Arrays, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cta
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.schedule import Striding

#: elements of a k tile
BLOCK_K = 128


def operands(rng: np.random.Generator, *, m: int, n: int, depth: int) -> Arrays:
    """A and B of small integers, whose products tensor cores add up exactly."""
    kind = numpy_dtype(e4m3)
    shapes = {"A": (m, depth), "B": (n, depth)}
    return {name: rng.integers(-3, 4, shape).astype(kind) for name, shape in shapes.items()}


def scales(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Scales between 1/2 and 2."""
    return rng.uniform(0.5, 2, shape).astype(np.float32)


def inputs(rng: np.random.Generator, *, m: int, n: int, depth: int, **params: Any) -> Arrays:
    """`operands` and their scales."""
    given = operands(rng, m=m, n=n, depth=depth)
    return {**given, "SA": scales(rng, m, 1), "SB": scales(rng, 1, n)}


def reference(inputs: Arrays, **params: Any) -> Arrays:
    """The product, times the scales of rows and columns, rounded to bf16 at the end."""
    a, b = (inputs[name].astype(np.float32) for name in "AB")
    return {"C": (a @ b.T * inputs["SA"] * inputs["SB"]).astype(numpy_dtype(bf16))}


@kernel(warps=WARPS * (1 + CONSUMER_GROUPS), family="hopper", reference=reference, inputs=inputs)
def matmul(
    k: Builder,
    *,
    m: int = 512,
    n: int = 256,
    depth: int = 384,
    stages: int = 4,
    ctas: int = 3,
    block_n: int = 128,
    band: int = 2,
    pieces: int = 2,
) -> None:
    """C (m, n) bf16 = A (m, depth) @ B (n, depth).T * SA (m, 1) * SB (1, n) by ``ctas`` CTAs."""
    iterations = tiles(depth, BLOCK_K, "depth")
    across = tiles(n, block_n, "n")
    bands = tiles(m, BLOCK_M * band, "m")
    tiles(block_n, PIECE, "block_n")
    k.launch(grid=ctas, registers=168)
    A = k.tensor("A", e4m3, (m, depth))
    B = k.tensor("B", e4m3, (n, depth))
    SA = k.tensor("SA", f32, (m, 1))
    SB = k.tensor("SB", f32, (1, n))
    C = k.tensor("C", bf16, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (ROWS, PIECE), swizzle=128)

    sA = k.shared("sA", e4m3, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", e4m3, (stages, block_n, BLOCK_K), swizzle=128)
    sC = k.shared("sC", bf16, (CONSUMER_GROUPS, pieces, ROWS, PIECE), swizzle=128)
    pipe = Pipeline(k, stages, consumers=WARPS * CONSUMER_GROUPS)
    acc = k.fragment("acc", f32, (ROWS, block_n), "warpgroup")
    result = k.fragment("result", bf16, (ROWS, block_n), "warpgroup")
    by_row = k.fragment("by_row", f32, (ROWS, 1), "warpgroup")
    by_column = k.fragment("by_column", f32, (1, block_n), "warpgroup")

    schedule = Striding(k, bands * band * across, ctas)
    open_cta(k, pipe)

    with k.role("producer", range(WARPS)):
        k.setmaxnreg("dec", PRODUCER_REGISTERS)
        with k.one_thread(0), schedule.each() as tile:
            row, column = corner(tile, band, across, (BLOCK_M, block_n))
            with k.loop(iterations, name="kt") as kt:
                slot = pipe[schedule.turn(tile) * iterations + kt]
                slot.acquire()
                slot.commit(a_map.box_bytes + b_map.box_bytes)
                k.tma.load(a_map, sA[slot.stage], (row, kt * BLOCK_K), slot.full)
                k.tma.load(b_map, sB[slot.stage], (column, kt * BLOCK_K), slot.full)

    for group in range(CONSUMER_GROUPS):
        with k.warpgroup(1 + group, f"consumer{group}") as consumer:
            k.setmaxnreg("inc", CONSUMER_REGISTERS)
            with schedule.each() as tile:
                row, column = corner(tile, band, across, (BLOCK_M, block_n))
                own = row + ROWS * group
                k.tile.load(by_row, SA[ds(own, ROWS)])
                k.tile.load(by_column, SB[:, ds(column, block_n)])
                items = (schedule.turn(tile) * iterations, iterations)
                accumulate(k, pipe, acc, sA, sB, ROWS * group, items)
                k.tile.zip(acc, "mul", acc, by_row)
                k.tile.zip(acc, "mul", acc, by_column)
                k.tile.cast(result, acc)
                store_pieces(k, consumer, c_map, sC[group], result, (own, column))
            with consumer.one_thread():
                k.bulk.wait_group(0, read=True)


CASES = (
    Case(matmul, {}, "hopper", "proved"),
    Case(matmul, {"ctas": 1, "m": 256, "stages": 2, "pieces": 1}, "hopper", "proved"),
    Case(
        matmul,
        {"m": 256, "block_n": 256, "band": 1, "depth": 128},
        "hopper",
        "proved",
        note="a single k tile",
    ),
)
