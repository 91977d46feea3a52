"""A matmul per group of rows: one persistent kernel, groups of any height, sizes read from memory.

Group ``g`` has the rows of A and C from where group ``g - 1`` ends up to ``ends[g]``, and a matrix
of its own in B. It is step 7 with another schedule: `Grouped` walks the groups, and tiles of all of
them are shared out among the CTAs, so that small groups do not leave multiprocessors idle.

The last tile of a group may reach over its end. What it copies and multiplies there are rows of the
next group, which does no harm; what it stores must not reach over. A tensor copy stores its whole
box, so a consumer whose rows are not all in the group stores them by its own threads: from shared
memory, where a piece of the result is staged, 16 bytes per thread, those rows that are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import bf16, f32, numpy_dtype, s32, u32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.dsl.warps import Warps
from tilesim.errors import UsageError
from tilesim.ir.declarations import Fragment, GlobalTensor, TensorMap, View, ds
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
from tilesim.kernels.hopper.matmul_v7 import PIECE
from tilesim.kernels.hopper.operands import Arrays, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cta
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.schedule import Grouped

#: elements of 16 bytes, what a thread stores at once
VECTOR = 8


def inputs(
    rng: np.random.Generator, *, sizes: tuple[int, ...], n: int, depth: int, **params: Any
) -> Arrays:
    """Small integers, and where the groups of these sizes end."""
    kind, total = numpy_dtype(bf16), sum(sizes)
    shapes = {"A": (total, depth), "B": (len(sizes), n, depth)}
    given = {name: rng.integers(-3, 4, shape).astype(kind) for name, shape in shapes.items()}
    return {**given, "ends": np.cumsum(sizes, dtype=np.int32)}


def reference(inputs: Arrays, **params: Any) -> Arrays:
    """The rows of each group times its matrix, rounded to bf16 once."""
    a, b, ends = inputs["A"].astype(np.float32), inputs["B"].astype(np.float32), inputs["ends"]
    parts = [rows @ matrix.T for rows, matrix in zip(np.split(a, ends[:-1]), b, strict=True)]
    return {"C": np.concatenate(parts).astype(numpy_dtype(bf16))}


@kernel(warps=WARPS * (1 + CONSUMER_GROUPS), family="hopper", reference=reference, inputs=inputs)
def matmul(
    k: Builder,
    *,
    sizes: tuple[int, ...] = (100, 0, 128, 260),
    n: int = 256,
    depth: int = 192,
    stages: int = 4,
    ctas: int = 3,
    block_n: int = 128,
    pieces: int = 2,
) -> None:
    """C (sum of ``sizes``, n) bf16 = A (.., depth) @ B[group] (n, depth).T by ``ctas`` CTAs.

    The kernel knows how many groups there are and how many rows all of them have; where each ends
    it reads from ``ends``.
    """
    if not sizes or min(sizes) < 0 or not any(sizes):
        raise UsageError(f"{sizes=}: groups have 0 rows or more, one of them has some")
    iterations, across = tiles(depth, BLOCK_K, "depth"), tiles(n, block_n, "n")
    tiles(block_n, PIECE, "block_n")
    total, groups = sum(sizes), len(sizes)
    k.launch(grid=ctas, registers=168)
    A = k.tensor("A", bf16, (total, depth))
    B = k.tensor("B", bf16, (groups, n, depth))
    C = k.tensor("C", bf16, (total, n))
    ends = k.tensor("ends", s32, (groups,))
    a_map = k.tensor_map(A, (BLOCK_M, BLOCK_K), swizzle=128)
    b_map = k.tensor_map(B, (1, block_n, BLOCK_K), swizzle=128)
    c_map = k.tensor_map(C, (ROWS, PIECE), swizzle=128)

    sA = k.shared("sA", bf16, (stages, BLOCK_M, BLOCK_K), swizzle=128)
    sB = k.shared("sB", bf16, (stages, block_n, BLOCK_K), swizzle=128)
    sC = k.shared("sC", bf16, (CONSUMER_GROUPS, pieces, ROWS, PIECE), swizzle=128)
    pipe = Pipeline(k, stages, consumers=WARPS * CONSUMER_GROUPS)
    acc = k.fragment("acc", f32, (ROWS, block_n), "warpgroup")
    result = k.fragment("result", bf16, (ROWS, block_n), "warpgroup")

    schedule = Grouped(k, ends, BLOCK_M, across, ctas)
    open_cta(k, pipe)

    with k.role("producer", range(WARPS)):
        k.setmaxnreg("dec", PRODUCER_REGISTERS)
        with k.one_thread(0), schedule.each("producer") as tile:
            row, column = tile.begin + tile.row * BLOCK_M, tile.column * block_n
            with k.loop(iterations, name="kt") as kt:
                slot = pipe[tile.turn * iterations + kt]
                slot.acquire()
                slot.commit(a_map.box_bytes + b_map.box_bytes)
                k.tma.load(a_map, sA[slot.stage], (row, kt * BLOCK_K), slot.full)
                at = (tile.group, column, kt * BLOCK_K)
                k.tma.load(b_map, sB[slot.stage], at, slot.full)

    for group in range(CONSUMER_GROUPS):
        with k.warpgroup(1 + group, f"consumer{group}") as consumer:
            k.setmaxnreg("inc", CONSUMER_REGISTERS)
            store = Stores(k, consumer, C, c_map, sC[group], group)
            with schedule.each(f"consumer{group}") as tile:
                row, column = tile.begin + tile.row * BLOCK_M, tile.column * block_n
                items = (tile.turn * iterations, iterations)
                accumulate(k, pipe, acc, sA, sB, ROWS * group, items)
                k.tile.cast(result, acc)
                store.rows(result, (row + ROWS * group, column), tile.end)
            with consumer.one_thread():
                k.bulk.wait_group(0, read=True)


class Stores:
    """How a consumer warpgroup stores its rows, through its ring of pieces."""

    def __init__(
        self, k: Builder, consumer: Warps, C: GlobalTensor, c_map: TensorMap, sC: View, group: int
    ) -> None:
        self.k = k
        self.consumer = consumer
        self.C = C
        self.c_map = c_map
        self.sC = sC
        self.thread = k.thread_id - 32 * WARPS * (1 + group)
        self.words = tuple(k.var(f"word{group}_{i}", dtype=u32) for i in range(4))

    def rows(self, result: Fragment, at: tuple[Expr, Expr], end: Expr) -> None:
        """Stores the rows of ``result`` at ``at`` that lie before row ``end``."""
        k, (row, column), pieces = self.k, at, self.sC.shape[0]
        for number in range(result.shape[1] // PIECE):
            piece, first = self.sC[number % pieces], column + PIECE * number
            with self.consumer.one_thread():
                k.bulk.wait_group(pieces - 1, read=True)
            self.consumer.sync()  # the piece is free
            k.tile.store(piece, result, column=PIECE * number)
            k.fence.proxy_async("shared::cta")
            self.consumer.sync()  # the piece is complete
            with self.consumer.one_thread():
                with k.if_(row + ROWS <= end):
                    k.tma.store(self.c_map, piece, (row, first))
                k.bulk.commit_group()  # also of nothing: the ring counts a group per piece
            with k.if_(row + ROWS > end):
                self._by_threads(piece, row, first, end)

    def _by_threads(self, piece: View, row: Expr, column: Expr, end: Expr) -> None:
        """Eight threads store a row of the piece, the warpgroup 16 at a time."""
        k, side = self.k, PIECE // VECTOR
        step = 32 * WARPS // side
        own, part = self.thread // side, ds(self.thread % side * VECTOR, VECTOR)
        at = ds(column + self.thread % side * VECTOR, VECTOR)
        for start in range(0, ROWS, step):
            with k.if_(row + own + start < end):
                k.mem.load_vector(self.words, piece[own + start, part])
                k.mem.store_vector(self.C[row + own + start, at], self.words)


CASES = (
    Case(matmul, {}, "hopper", "proved"),
    Case(matmul, {"ctas": 1, "sizes": (64, 1), "stages": 2, "pieces": 1}, "hopper", "proved"),
    Case(
        matmul,
        {"sizes": (130, 7, 55, 0), "block_n": 256, "stages": 3, "depth": 64, "ctas": 2},
        "hopper",
        "proved",
        note="a single k tile",
    ),
)
