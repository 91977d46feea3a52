"""Flash attention for speed: weights in registers, overlap of softmax and tensor cores.

What this step adds to `attention`, in the manner of FlashAttention 3:

* The weights stay in registers: rounded to bf16, the scores are the A operand of the second wgmma.
* Two wgmma groups in flight. A consumer issues the scores of the next block of keys before the
  product with the values of this one; it waits for the scores only (``wait_group(1)``), and their
  softmax runs while the tensor cores multiply the values.
* Turns. Named barriers make the consumers issue their wgmmas one after the other, so that one
  computes its softmax while the tensor cores work for the next one.
* Less arithmetic. The softmax scale is part of one ``tile.fma`` per score; every thread adds up the
  weights it holds, and the rows are summed over lanes once, at the end.
* Persistent CTAs: the copies of the next tile's operands run while this one ends.

Keys and values have a ring each, because their stages are given back at different times. Operands
are stored as blocks of 64 columns, the width of the swizzle.

The compiler is free to move arithmetic over ``wgmma.wait_group``, and would start the softmax after
the second wait. It moves nothing over a loop: so the wait for the next keys stands between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.dsl.warps import Warps
from tilesim.errors import UsageError
from tilesim.ir.declarations import SharedTensor, TensorMap, View
from tilesim.ir.expr import Expr, Operand
from tilesim.kernels.attention import LOWEST, attention_inputs, attention_reference, scale
from tilesim.kernels.hopper.attention_tiles import Rounds, Schedule, Tile
from tilesim.kernels.hopper.matmul_v7 import PIECE
from tilesim.kernels.hopper.operands import WGMMA_K, Arrays, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cta
from tilesim.lib.pipeline import Cursor, Pipeline, Slot

#: queries of a consumer
ROWS = 64
WARPS = 4
#: (at launch, producer, consumer) registers per thread, by the number of consumers
REGISTERS = {2: (168, 24, 240), 3: (128, 32, 160)}
#: columns of the partial row sums: what the accumulator's layout repeats after
PARTIAL = 8


class Consumer:
    """One warpgroup's registers and its part of the work; ``o_map`` is of 64 rows."""

    def __init__(self, k: Builder, block: int, depth: int, o_map: TensorMap) -> None:
        self.k = k
        self.o_map = o_map
        self.scale = scale(depth)
        self.scores = k.fragment("scores", f32, (ROWS, block), "warpgroup")
        self.weights = k.fragment("weights", bf16, (ROWS, block), "warpgroup")
        self.out = k.fragment("out", f32, (ROWS, depth), "warpgroup")
        self.rounded = k.fragment("rounded", bf16, (ROWS, depth), "warpgroup")
        self.sums, self.part = (
            k.fragment(name, f32, (ROWS, PARTIAL), "warpgroup") for name in ("sums", "part")
        )
        self.row_max, self.new_max, self.shift, self.alpha = (
            k.fragment(name, f32, (ROWS, 1), "warpgroup")
            for name in ("row_max", "new_max", "shift", "alpha")
        )

    def issue_scores(self, queries: View, keys: View) -> None:
        """scores = Q @ K.T as one wgmma group."""
        k = self.k
        for column in range(0, queries.shape[0] * PIECE, WGMMA_K):
            piece, at = column // PIECE, column % PIECE
            columns = slice(at, at + WGMMA_K)
            a, b = queries[piece, :, columns], keys[piece, :, columns]
            k.wgmma.mma_async(self.scores, a, b, accumulate=int(column > 0))
        k.wgmma.commit_group()

    def issue_values(self, values: View) -> None:
        """out += P @ V as one wgmma group."""
        k = self.k
        for row in range(0, self.weights.shape[1], WGMMA_K):
            v = values[:, row : row + WGMMA_K]
            k.wgmma.mma_async(self.out, self.weights, v, b_trans=True, a_column=row)
        k.wgmma.commit_group()

    def mask(self, diagonal: Expr) -> None:
        """Hides the keys of a block after each row's last one; only where there are some."""
        k = self.k
        with k.if_(diagonal < self.scores.shape[1] - 1):
            k.tile.tril(self.scores, self.scores, diagonal, -inf)

    def begin(self, edge: Operand | None) -> None:
        """The first block: nothing to scale down. It has the last keys, ``edge`` of them."""
        k = self.k
        if edge is not None:
            k.tile.left(self.scores, self.scores, edge, -inf)
        k.tile.fill(self.out, 0.0)
        k.tile.reduce(self.row_max, "max", self.scores)
        k.tile.zip(self.row_max, "max", self.row_max, LOWEST)
        self._exponentials()
        k.tile.reduce(self.sums, "sum", self.scores)
        k.tile.cast(self.weights, self.scores)

    def softmax(self) -> None:
        """scores = exp2(scores - row max), scaled; the sums follow the maximum."""
        k = self.k
        k.tile.reduce(self.new_max, "max", self.scores)
        k.tile.zip(self.new_max, "max", self.new_max, self.row_max)
        k.tile.zip(self.alpha, "sub", self.row_max, self.new_max)
        k.tile.zip(self.alpha, "mul", self.alpha, self.scale)
        k.tile.map(self.alpha, "exp2", self.alpha)
        k.tile.cast(self.row_max, self.new_max)
        self._exponentials()
        k.tile.reduce(self.part, "sum", self.scores)
        k.tile.fma(self.sums, self.sums, self.alpha, self.part)

    def _exponentials(self) -> None:
        k = self.k
        k.tile.zip(self.shift, "mul", self.row_max, -self.scale)
        k.tile.fma(self.scores, self.scores, self.scale, self.shift)
        k.tile.map(self.scores, "exp2", self.scores)

    def next_block(self) -> None:
        """Once the tensor cores have used the weights: out follows the maximum, new weights."""
        self.k.tile.zip(self.out, "mul", self.out, self.alpha)
        self.k.tile.cast(self.weights, self.scores)

    def finish(self) -> None:
        """rounded = out / row sum"""
        k = self.k
        k.tile.reduce(self.shift, "sum", self.sums)
        k.tile.map(self.shift, "rcp", self.shift)
        k.tile.zip(self.out, "mul", self.out, self.shift)
        k.tile.cast(self.rounded, self.out)

    def store(self, sO: View, warps: Warps, tile: Tile, row: Expr) -> None:
        """The result leaves through shared memory; the copy is read by the end of the next tile."""
        k = self.k
        with warps.one_thread():
            k.bulk.wait_group(0, read=True)
        warps.sync()  # the buffer is free
        for piece in range(sO.shape[0]):
            k.tile.store(sO[piece], self.rounded, column=PIECE * piece)
        k.fence.proxy_async("shared::cta")
        warps.sync()  # the buffer is complete
        with warps.one_thread():
            self.copy_out(sO, tile, row)
            k.bulk.commit_group()

    def copy_out(self, sO: View, tile: Tile, row: Expr) -> None:
        """Copies 64 rows of the result to ``row`` and those after it, as far as there are any."""
        for piece in range(sO.shape[0]):
            self.k.tma.store(self.o_map, sO[piece], (tile.head, row, PIECE * piece))


class Turns:
    """Named barriers by which the consumers issue their wgmmas one after the other."""

    def __init__(self, k: Builder, consumers: int) -> None:
        self.k = k
        self.consumers = consumers

    def _barrier(self, group: int) -> int:
        """Barriers 1 to ``consumers`` are those of the epilogue."""
        return 1 + self.consumers + group % self.consumers

    def begin(self, group: int) -> None:
        """The first turn is consumer 0's: the one before it, the last, gives it."""
        if group == self.consumers - 1:
            self.give(group)

    def take(self, group: int) -> None:
        """Waits for the turn of consumer ``group``."""
        self.k.bar.sync(self._barrier(group), 2 * 32 * WARPS, aligned=False)

    def give(self, group: int) -> None:
        """Lets the next consumer issue."""
        self.k.bar.arrive(self._barrier(group + 1), 2 * 32 * WARPS, aligned=False)

    def end(self, group: int) -> None:
        """Takes the last turn that was given, so that no arrival is left."""
        if group == 0:
            self.take(group)


class Loads:
    """The producer's copies: boxes of 64 columns, one after the other in a stage."""

    def __init__(self, k: Builder, head: Expr) -> None:
        self.k = k
        self.head = head

    def rows(self, source: TensorMap, target: SharedTensor, slot: Slot, row: Operand) -> None:
        """Copies the rows of a head from ``row`` on into a stage of ``target``."""
        pieces = target.shape[1]
        slot.acquire()
        slot.commit(pieces * source.box_bytes)
        for piece in range(pieces):
            at = (self.head, row, piece * PIECE)
            self.k.tma.load(source, target[slot.stage, piece], at, slot.full)

    def block(self, source: TensorMap, target: SharedTensor, cursor: Cursor, row: Operand) -> None:
        """`rows` into the ring's next stage."""
        self.rows(source, target, cursor.slot, row)
        cursor.advance()


def give_back(k: Builder, cursor: Cursor) -> None:
    """The consumer goes on to the next stage; one lane per warp releases this one."""
    with k.elected():
        cursor.slot.release()
    cursor.advance()


def inputs(rng: np.random.Generator, *, heads: int, grouped: int = 1, **params: Any) -> Arrays:
    """Q, K and V of standard normal values, a matrix per head."""
    flat = attention_inputs(rng, heads=heads, grouped=grouped, **params)
    depth = flat["Q"].shape[1]
    shared = {"K": heads // grouped, "V": heads // grouped}
    return {n: x.reshape(shared.get(n, heads), -1, depth) for n, x in flat.items()}


class Cta:
    """A CTA's buffers and rings, and what its roles do with its tiles.

    ``maps``: of Q, K and V, with boxes of 64 rows and of a block.
    """

    def __init__(
        self,
        k: Builder,
        consumer: Consumer,
        maps: Sequence[TensorMap],
        *,
        consumers: int,
        stages: int,
        grouped: int,
        causal: bool,
        in_place: bool,
    ) -> None:
        block, pieces = consumer.scores.shape[1], consumer.out.shape[1] // PIECE
        self.k = k
        self.consumer = consumer
        self.maps = maps
        self.block = block
        self.consumers = consumers
        self.grouped = grouped
        self.causal = causal
        self.in_place = in_place
        self.sQ = k.shared("sQ", bf16, (consumers, pieces, ROWS, PIECE), swizzle=128)
        self.sK = k.shared("sK", bf16, (stages, pieces, block, PIECE), swizzle=128)
        self.sV = k.shared("sV", bf16, (stages, pieces, block, PIECE), swizzle=128)
        self.sO = self.sQ
        if not in_place:
            self.sO = k.shared("sO", bf16, (consumers, pieces, ROWS, PIECE), swizzle=128)
        self.rings = [Pipeline(k, stages, name=n, consumers=consumers * WARPS) for n in ("k", "v")]
        self.q_ring = Pipeline(k, consumers, name="q", consumers=1 if in_place else WARPS)
        self.turns = Turns(k, consumers)

    def run(self, schedule: Rounds, registers: tuple[int, int, int]) -> None:
        """All roles; ``registers`` as in `REGISTERS`."""
        k = self.k
        at_launch, of_producer, of_consumer = registers
        k.launch(grid=schedule.ctas, warps=WARPS * (1 + self.consumers), registers=at_launch)
        open_cta(k, *self.rings, self.q_ring)
        with k.role("producer", range(WARPS)):
            k.setmaxnreg("dec", of_producer)
            with k.one_thread(0):
                self.copy_keys(schedule)
            with k.one_thread(1):
                self.copy_queries(schedule)
        for group in range(self.consumers):
            with k.warpgroup(1 + group, f"consumer{group}") as warps:
                k.setmaxnreg("inc", of_consumer)
                self.consume(schedule, group, warps)

    def copy_keys(self, schedule: Rounds) -> None:
        """One thread copies the keys and values of every tile."""
        k, block, sK, sV = self.k, self.block, self.sK, self.sV
        _, k_map, v_map = self.maps
        key, value = (ring.cursor("producer") for ring in self.rings)
        with schedule.tiles("producer") as tile:
            loads = Loads(k, tile.head // self.grouped)
            last = tile.first + (tile.blocks - 1) * block
            loads.block(k_map, sK, key, last)
            with k.loop(1, tile.blocks, name="n") as n:
                loads.block(k_map, sK, key, last - n * block)
                loads.block(v_map, sV, value, last - (n - 1) * block)
            loads.block(v_map, sV, value, tile.first)

    def copy_queries(self, schedule: Rounds) -> None:
        """Another copies its queries, so that keys do not wait for a result to leave its buffer."""
        with schedule.tiles("queries") as tile:
            loads = Loads(self.k, tile.head)
            for group in range(self.consumers):
                slot = self.q_ring.slot(group, tile.round & 1)
                loads.rows(self.maps[0], self.sQ, slot, tile.query + group * ROWS)

    def consume(self, schedule: Rounds, group: int, warps: Warps) -> None:
        """A warpgroup computes its rows of every tile."""
        k, block, consumer, turns = self.k, self.block, self.consumer, self.turns
        sQ, sK, sV = self.sQ, self.sK, self.sV
        key, value = (ring.cursor(f"consumer{group}") for ring in self.rings)
        turns.begin(group)
        with schedule.tiles(f"consumer{group}") as tile:
            q, row = self.q_ring.slot(group, tile.round & 1), tile.query + group * ROWS
            diagonal = row + tile.ahead - (tile.blocks - 1) * block
            q.wait()
            key.slot.wait()
            k.wgmma.fence()
            consumer.issue_scores(sQ[group], sK[key.stage])
            k.wgmma.wait_group(0)
            give_back(k, key)
            if self.causal:
                consumer.mask(diagonal)
            consumer.begin(tile.edge)
            with k.if_(tile.blocks > 1):
                key.slot.wait()
            with k.loop(1, tile.blocks, name="n") as n:
                turns.take(group)
                k.wgmma.fence()
                consumer.issue_scores(sQ[group], sK[key.stage])
                value.slot.wait()
                consumer.issue_values(sV[value.stage])
                turns.give(group)
                k.wgmma.wait_group(1)  # the scores
                give_back(k, key)
                if self.causal:
                    consumer.mask(diagonal + n * block)
                consumer.softmax()
                with k.if_(n + 1 < tile.blocks):
                    key.slot.wait()  # the next: a loop, over which nothing is moved
                k.wgmma.wait_group(0)  # the values
                give_back(k, value)
                consumer.next_block()
            if not self.in_place:
                with k.elected():
                    q.release()
            value.slot.wait()
            k.wgmma.fence()
            consumer.issue_values(sV[value.stage])
            k.wgmma.wait_group(0)
            give_back(k, value)
            consumer.finish()
            consumer.store(self.sO[group], warps, tile, row)
            if self.in_place:
                with warps.one_thread():
                    k.bulk.wait_group(0, read=True)  # the result has left the buffer
                    q.release()
        turns.end(group)
        with warps.one_thread():
            k.bulk.wait_group(0, read=True)


def tensor_maps(
    k: Builder, heads: int, queries: int, keys: int, *, depth: int, block: int, grouped: int
) -> list[TensorMap]:
    """Maps of Q, K, V and O, (heads, rows, depth) each, with boxes of 64 rows and of a block."""
    shared = heads // grouped
    return [
        k.tensor_map(k.tensor(name, bf16, (count, rows, depth)), (1, box, PIECE), swizzle=128)
        for name, count, rows, box in (
            ("Q", heads, queries, ROWS), ("K", shared, keys, block), ("V", shared, keys, block),
            ("O", heads, queries, ROWS),
        )
    ]  # fmt: skip


def check_sizes(*, heads: int, depth: int, block: int, consumers: int, grouped: int) -> None:
    """Raises `UsageError` for sizes that the kernels do not cover."""
    tiles(depth, PIECE, "depth")
    if consumers not in REGISTERS:
        raise UsageError(f"{consumers=} must be 2 or 3")
    if block % WGMMA_K:
        raise UsageError(f"{block=} must be a multiple of {WGMMA_K}")
    if heads % grouped:
        raise UsageError(f"{heads=} must be a multiple of {grouped=}")


@kernel(warps=WARPS * 3, family="hopper", reference=attention_reference, inputs=inputs)
def attention(
    k: Builder,
    *,
    queries: int = 256,
    keys: int = 512,
    heads: int = 2,
    depth: int = 64,
    block: int = 128,
    consumers: int = 2,
    stages: int = 2,
    ctas: int = 2,
    causal: bool = False,
    grouped: int = 1,
    in_place: bool = False,
) -> None:
    """O (heads, queries, depth) bf16 = softmax(Q @ K.T / sqrt(depth)) @ V by ``ctas`` CTAs.

    ``block`` keys and 64 ``consumers`` queries at a time; the last ones of a head need not fill
    a block or a tile. ``causal``: query i sees keys 0 to i. ``grouped`` heads of Q share one of
    K and V. ``in_place``: the result takes the place of its queries in shared memory.
    """
    check_sizes(heads=heads, depth=depth, block=block, consumers=consumers, grouped=grouped)
    if causal and queries != keys:
        raise UsageError(f"causal: {queries=} must be equal to {keys=}")
    schedule = Schedule(k, ctas, heads, queries, keys, ROWS * consumers, block, causal)
    *maps, o_map = tensor_maps(k, heads, queries, keys, depth=depth, block=block, grouped=grouped)
    Cta(
        k, Consumer(k, block, depth, o_map), maps,
        consumers=consumers, stages=stages, grouped=grouped, causal=causal, in_place=in_place,
    ).run(schedule, REGISTERS[consumers])  # fmt: skip


CASES = tuple(
    Case(attention, params, "hopper", "proved")
    for params in (
        {},
        {"depth": 128, "block": 64, "ctas": 1},
        {"queries": 200, "consumers": 3, "heads": 3},
        {"keys": 128, "ctas": 1},
        {"causal": True, "queries": 512, "heads": 4, "ctas": 3},
        {"causal": True, "keys": 256, "consumers": 3},
        {"keys": 256, "heads": 4, "grouped": 2, "ctas": 3},
        {"keys": 200},
        {"depth": 256, "block": 80, "in_place": True, "keys": 200},
        {"depth": 256, "block": 80, "in_place": True, "causal": True, "keys": 256, "grouped": 2},
    )
)
