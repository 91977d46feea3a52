"""FP8 operands with a scale per block: accumulators promoted to registers after every k tile.

``C = sum over k tiles of (A @ B.T) * SA * SB``: each row of A has a scale for every 128 elements,
each block of 128 x 128 elements of B has one, as DeepSeek-V3 was trained with. The scales change
from k tile to k tile, so the tensor cores cannot add up across them. They multiply one k tile (K =
128, four wgmmas), and a consumer adds that product, times its scales, to f32 registers of its own.
That also keeps what tensor cores lose when they add up many products of e4m3: they add 128.

* The registers of a consumer are ``total``, its 64 x 256 part of C, and ``part``, the product of a
  k tile with 128 columns: 128 + 64 of a thread's 232. So a k tile takes two turns.
* While one consumer adds, the tensor cores work for the other. Nothing else overlaps: a consumer
  waits for its own product before it issues the next one into the same registers.
* Scales come by ordinary loads, one k tile ahead: those of the next k tile, or of the first one of
  the next tile, are on their way while this one is multiplied. A copy to shared memory would have
  to be fenced before the stage is given back, as ordinary loads read it and the next copy writes
  it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import bf16, e4m3, f32, numpy_dtype
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import GlobalTensor, View, ds
from tilesim.ir.expr import Expr, Operand, as_expr, minimum
from tilesim.kernels.hopper.matmul_fp8 import BLOCK_K, operands
from tilesim.kernels.hopper.matmul_v5 import (
    BLOCK_M,
    CONSUMER_GROUPS,
    CONSUMER_REGISTERS,
    PRODUCER_REGISTERS,
    ROWS,
    WARPS,
)
from tilesim.kernels.hopper.matmul_v7 import corner, store_pieces
from tilesim.kernels.hopper.operands import Arrays, multiply_tile, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cta
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.schedule import Striding

#: columns of C, rows of B, that share a scale
BLOCK = 128


def inputs(rng: np.random.Generator, *, m: int, n: int, depth: int, **params: Any) -> Arrays:
    """A and B of small integers; scales are powers of two, so that every sum is exact."""
    shapes = {"SA": (depth // BLOCK_K, m, 1), "SB": (n // BLOCK, depth // BLOCK_K)}
    powers = {name: np.exp2(rng.integers(-2, 3, shape)) for name, shape in shapes.items()}
    scales = {name: values.astype(np.float32) for name, values in powers.items()}
    return {**operands(rng, m=m, n=n, depth=depth), **scales}


def reference(inputs: Arrays, **params: Any) -> Arrays:
    """The product of scaled operands, added up in f64 and rounded to bf16 at the end."""
    a, b = (inputs[name].astype(np.float64) for name in "AB")
    a *= np.repeat(inputs["SA"][:, :, 0].T, BLOCK_K, axis=1)
    b *= np.repeat(np.repeat(inputs["SB"], BLOCK, axis=0), BLOCK_K, axis=1)
    return {"C": (a @ b.T).astype(numpy_dtype(bf16))}


class Consumer:
    """One warpgroup's registers and its part of the work."""

    def __init__(self, k: Builder, block_n: int) -> None:
        self.k = k
        columns = range(0, block_n, BLOCK)
        self.total = [k.fragment(f"total{c}", f32, (ROWS, BLOCK), "warpgroup") for c in columns]
        self.part = k.fragment("part", f32, (ROWS, BLOCK), "warpgroup")
        self.by_row, self.next_row, self.scale = (
            k.fragment(name, f32, (ROWS, 1), "warpgroup")
            for name in ("by_row", "next_row", "scale")
        )
        self.by_block, self.next_block = (
            [k.fragment(f"{name}{c}", f32, (1, 1)) for c in columns]
            for name in ("by_block", "next_block")
        )
        self.result = k.fragment("result", bf16, (ROWS, BLOCK), "warpgroup")

    def load_scales(
        self, SA: GlobalTensor, SB: GlobalTensor, kt: Operand, at: tuple[Expr, Expr]
    ) -> None:
        """Begins to load those of k tile ``kt``; ``at``: the first row and column in C."""
        row, column = at
        self.k.tile.load(self.next_row, SA[kt, ds(row, ROWS)])
        for number, value in enumerate(self.next_block):
            self.k.tile.load(value, SB[column // BLOCK + number, ds(kt, 1)])

    def take_scales(self) -> None:
        """Those that were loaded last are this k tile's."""
        self.k.tile.cast(self.by_row, self.next_row)
        for value, loaded in zip(self.by_block, self.next_block, strict=True):
            self.k.tile.cast(value, loaded)

    def multiply(self, a: View, b: View) -> None:
        """part = a @ b.T for ``BLOCK`` columns of a k tile, waited for."""
        multiply_tile(self.k, self.part, a, b, accumulate=False)
        self.k.wgmma.wait_group(0)

    def promote(self, turn: int) -> None:
        """total += part * scales"""
        self.k.tile.zip(self.scale, "mul", self.by_row, self.by_block[turn])
        self.k.tile.fma(self.total[turn], self.part, self.scale, self.total[turn])


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
    """C (m, n) bf16 = sum over k of A (m, k) @ B (n, k).T * SA (k, m, 1) * SB (n / 128, k)."""
    iterations = tiles(depth, BLOCK_K, "depth")
    across = tiles(n, block_n, "n")
    bands = tiles(m, BLOCK_M * band, "m")
    tiles(block_n, BLOCK, "block_n")
    k.launch(grid=ctas, registers=168)
    A = k.tensor("A", e4m3, (m, depth))
    B = k.tensor("B", e4m3, (n, depth))
    SA = k.tensor("SA", f32, (iterations, m, 1))
    SB = k.tensor("SB", f32, (n // BLOCK, iterations))
    C = k.tensor("C", bf16, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (ROWS, 64), swizzle=128)

    sA = k.shared("sA", e4m3, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", e4m3, (stages, block_n, BLOCK_K), swizzle=128)
    sC = k.shared("sC", bf16, (CONSUMER_GROUPS, pieces, ROWS, 64), swizzle=128)
    pipe = Pipeline(k, stages, consumers=WARPS * CONSUMER_GROUPS)
    own = Consumer(k, block_n)

    count = bands * band * across
    schedule = Striding(k, count, ctas)
    open_cta(k, pipe)

    def place(tile: Operand, group: int) -> tuple[Expr, Expr]:
        """First row and column of a consumer's part of a tile."""
        row, column = corner(as_expr(tile), band, across, (BLOCK_M, block_n))
        return row + ROWS * group, column

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
            own.load_scales(SA, SB, 0, place(minimum(k.cta_x, count - 1), group))
            with schedule.each() as tile:
                row, column = place(tile, group)
                for total in own.total:
                    k.tile.fill(total, 0.0)
                with k.loop(iterations, name="kt") as kt:
                    slot = pipe[schedule.turn(tile) * iterations + kt]
                    own.take_scales()
                    own.load_scales(SA, SB, minimum(kt + 1, iterations - 1), (row, column))
                    slot.wait()
                    for turn in range(len(own.total)):
                        a = sA[slot.stage, ROWS * group : ROWS * (group + 1)]
                        b = sB[slot.stage, BLOCK * turn : BLOCK * (turn + 1)]
                        own.multiply(a, b)
                        if turn == len(own.total) - 1:
                            with k.elected():
                                slot.release()
                        own.promote(turn)
                own.load_scales(SA, SB, 0, place(minimum(tile + ctas, count - 1), group))
                for turn, total in enumerate(own.total):
                    k.tile.cast(own.result, total)
                    at = (row, column + BLOCK * turn)
                    store_pieces(k, consumer, c_map, sC[group], own.result, at)
            with consumer.one_thread():
                k.bulk.wait_group(0, read=True)


CASES = (
    Case(matmul, {}, "hopper", "proved"),
    Case(matmul, {"ctas": 1, "m": 256, "stages": 1, "pieces": 1}, "hopper", "proved"),
    Case(
        matmul,
        {"m": 256, "block_n": 256, "band": 1, "depth": 128},
        "hopper",
        "proved",
        note="a single k tile",
    ),
)
