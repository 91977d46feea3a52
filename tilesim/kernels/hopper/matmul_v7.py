"""Step 7: an order of tiles for the L2 cache, and a result that leaves in pieces.

* The tiles of C are numbered in bands of ``band`` rows of tiles, downwards in each column of the
  band. CTAs that run at the same time then cover a nearly square part of C, and find most of their
  operands in the L2 cache.
* The result is staged in pieces of 64 columns. Their rows are as wide as the 128-byte swizzle, so
  that the eight rows a warp writes at once lie in different banks; rows of ``block_n`` columns
  would all lie in the same ones. A ring of ``pieces`` buffers is smaller than the whole result and
  leaves room for a fourth stage of 128 x 256 tiles.

With ``block_n=256``, four stages and a CTA per multiprocessor this is as fast as cuBLAS on an H200
(``benchmarks/speed.md``).
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.dsl.warps import Warps
from tilesim.ir.declarations import Fragment, TensorMap, View
from tilesim.ir.expr import Expr
from tilesim.kernels.hopper.matmul_v5 import (
    BLOCK_K,
    BLOCK_M,
    CONSUMER_GROUPS,
    CONSUMER_REGISTERS,
    PRODUCER_REGISTERS,
    ROWS,
    WARPS,
    accumulate,
)
from tilesim.kernels.hopper.operands import product_bf16, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cta
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.schedule import Striding

#: columns of a staged piece of the result
PIECE = 64


@kernel(warps=WARPS * (1 + CONSUMER_GROUPS), family="hopper", reference=product_bf16)
def matmul(
    k: Builder,
    *,
    m: int = 512,
    n: int = 256,
    depth: int = 192,
    stages: int = 4,
    ctas: int = 3,
    block_n: int = 128,
    band: int = 2,
    pieces: int = 2,
) -> None:
    """C (m, n) bf16 = A (m, depth) @ B (n, depth).T by ``ctas`` persistent CTAs."""
    iterations = tiles(depth, BLOCK_K, "depth")
    across = tiles(n, block_n, "n")
    bands = tiles(m, BLOCK_M * band, "m")
    tiles(block_n, PIECE, "block_n")
    k.launch(grid=ctas, registers=168)
    A = k.tensor("A", bf16, (m, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", bf16, (m, n))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (block_n, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (ROWS, PIECE), swizzle=128)

    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, block_n, BLOCK_K), swizzle=128)
    sC = k.shared("sC", bf16, (CONSUMER_GROUPS, pieces, ROWS, PIECE), swizzle=128)
    pipe = Pipeline(k, stages, consumers=WARPS * CONSUMER_GROUPS)
    acc = k.fragment("acc", f32, (ROWS, block_n), "warpgroup")
    result = k.fragment("result", bf16, (ROWS, block_n), "warpgroup")

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
                items = (schedule.turn(tile) * iterations, iterations)
                accumulate(k, pipe, acc, sA, sB, ROWS * group, items)
                k.tile.cast(result, acc)
                store_pieces(k, consumer, c_map, sC[group], result, (row + ROWS * group, column))
            with consumer.one_thread():
                k.bulk.wait_group(0, read=True)


def corner(tile: Expr, band: int, across: int, block: tuple[int, int]) -> tuple[Expr, Expr]:
    """First row and column of a tile of ``block`` elements; ``across`` tiles lie side by side."""
    within = tile % (band * across)
    down = tile // (band * across) * band + within % band
    return down * block[0], within // band * block[1]


def store_pieces(
    k: Builder,
    consumer: Warps,
    c_map: TensorMap,
    sC: View,
    result: Fragment,
    at: tuple[Expr, Expr],
) -> None:
    """One consumer warpgroup stores its rows at ``at``, through its ring of pieces in ``sC``."""
    row, column = at
    pieces = sC.shape[0]
    for number in range(result.shape[1] // PIECE):
        piece = sC[number % pieces]
        with consumer.one_thread():
            k.bulk.wait_group(pieces - 1, read=True)
        consumer.sync()  # the piece is free
        k.tile.store(piece, result, column=PIECE * number)
        k.fence.proxy_async("shared::cta")
        consumer.sync()  # the piece is complete
        with consumer.one_thread():
            k.tma.store(c_map, piece, (row, column + PIECE * number))
            k.bulk.commit_group()


CASES = (
    Case(matmul, {}, "hopper", "proved"),
    Case(matmul, {"ctas": 1, "m": 256, "stages": 2, "pieces": 1}, "hopper", "proved"),
    Case(
        matmul,
        {"m": 256, "block_n": 256, "band": 1, "stages": 3, "depth": 64},
        "hopper",
        "proved",
        note="a single k tile",
    ),
)
