"""Flash attention, forward: a producer warpgroup and two consumer warpgroups of 64 queries each.

The producer copies the queries once and then blocks of keys and values in turn through one ring. A
consumer computes the scores of its queries against a block of keys by wgmma, keeps maximum and sum
of every row in registers, scales its accumulator down where the maximum has grown, and adds the
product of the weights and the values. The weights reach the second wgmma through shared memory:
they are written through the generic proxy and read through the async one, so each thread executes
the proxy fence before the warpgroup's barrier. After `wgmma.wait_group` they may be overwritten.
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import Fragment, View
from tilesim.kernels.attention import (
    DEPTH,
    LOWEST,
    SCALE,
    attention_inputs,
    attention_reference,
)
from tilesim.kernels.hopper.operands import WGMMA_K, multiply_tile, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.opening import open_cta
from tilesim.lib.pipeline import Pipeline

#: queries of a consumer, keys of a block
ROWS = BLOCK = 64
CONSUMERS, WARPS = 2, 4
#: registers per thread: 40 + 2 * 232 = 3 * 168, what the launch gives
REGISTERS, PRODUCER_REGISTERS, CONSUMER_REGISTERS = 168, 40, 232


class Consumer:
    """One warpgroup's registers and its part of the work."""

    def __init__(self, k: Builder) -> None:
        self.k = k
        self.scores = k.fragment("scores", f32, (ROWS, BLOCK), "warpgroup")
        self.weights = k.fragment("weights", bf16, (ROWS, BLOCK), "warpgroup")
        self.out = k.fragment("out", f32, (ROWS, DEPTH), "warpgroup")
        self.rounded = k.fragment("rounded", bf16, (ROWS, DEPTH), "warpgroup")
        self.row_max, self.new_max, self.row_sum, self.part, self.alpha = (
            k.fragment(name, f32, (ROWS, 1), "warpgroup")
            for name in ("row_max", "new_max", "row_sum", "part", "alpha")
        )

    def begin(self) -> None:
        """No keys so far."""
        for fragment, value in ((self.row_max, LOWEST), (self.row_sum, 0.0), (self.out, 0.0)):
            self.k.tile.fill(fragment, value)

    def score(self, queries: View, keys: View) -> None:
        """scores = Q @ K.T, scaled"""
        k = self.k
        k.tile.fill(self.scores, 0.0)
        multiply_tile(k, self.scores, queries, keys)
        k.wgmma.wait_group(0)
        k.tile.zip(self.scores, "mul", self.scores, SCALE)

    def softmax(self) -> None:
        """weights = exp2(scores - row max); accumulator and sum follow the maximum."""
        k = self.k
        k.tile.reduce(self.part, "max", self.scores)
        k.tile.zip(self.new_max, "max", self.row_max, self.part)
        k.tile.zip(self.alpha, "sub", self.row_max, self.new_max)
        k.tile.map(self.alpha, "exp2", self.alpha)
        k.tile.cast(self.row_max, self.new_max)
        k.tile.zip(self.scores, "sub", self.scores, self.new_max)
        k.tile.map(self.scores, "exp2", self.scores)
        k.tile.reduce(self.part, "sum", self.scores)
        k.tile.zip(self.row_sum, "mul", self.row_sum, self.alpha)
        k.tile.zip(self.row_sum, "add", self.row_sum, self.part)
        k.tile.zip(self.out, "mul", self.out, self.alpha)
        k.tile.cast(self.weights, self.scores)

    def accumulate(self, weights: View, values: View) -> None:
        """out += P @ V"""
        k = self.k
        k.wgmma.fence()
        for start in range(0, BLOCK, WGMMA_K):
            at = slice(start, start + WGMMA_K)
            k.wgmma.mma_async(self.out, weights[:, at], values[at], b_trans=True)
        k.wgmma.commit_group()
        k.wgmma.wait_group(0)

    def result(self) -> Fragment:
        """out / row sum, rounded"""
        self.k.tile.zip(self.out, "div", self.out, self.row_sum)
        self.k.tile.cast(self.rounded, self.out)
        return self.rounded


@kernel(
    warps=WARPS * (1 + CONSUMERS), family="hopper",
    reference=attention_reference, inputs=attention_inputs,
)  # fmt: skip
def attention(
    k: Builder, *, queries: int = 256, keys: int = 256, heads: int = 2, stages: int = 4
) -> None:
    """O (heads * queries, 64) bf16 = softmax(Q @ K.T / 8) @ V, for every head."""
    blocks = tiles(keys, BLOCK, "keys")
    k.launch(grid=(tiles(queries, CONSUMERS * ROWS, "queries"), heads), registers=REGISTERS)
    q_map, k_map, v_map, o_map = (
        k.tensor_map(k.tensor(name, bf16, (heads * rows, DEPTH)), (ROWS, DEPTH), swizzle=128)
        for name, rows in (("Q", queries), ("K", keys), ("V", keys), ("O", queries))
    )
    sQ = k.shared("sQ", bf16, (CONSUMERS, ROWS, DEPTH), swizzle=128)
    sKV = k.shared("sKV", bf16, (stages, BLOCK, DEPTH), swizzle=128)
    sP = k.shared("sP", bf16, (CONSUMERS, ROWS, BLOCK), swizzle=128)
    sO = k.shared("sO", bf16, (CONSUMERS, ROWS, DEPTH), swizzle=128)
    q_full = k.mbarriers("q_full")
    kv = Pipeline(k, stages, name="kv", consumers=CONSUMERS * WARPS)
    consumer = Consumer(k)
    first_query = k.cta_y * queries + k.cta_x * (CONSUMERS * ROWS)

    open_cta(k, (q_full, 1), kv)

    with k.role("producer", range(WARPS)):
        k.setmaxnreg("dec", PRODUCER_REGISTERS)
        with k.one_thread(0):
            k.mbarrier.arrive_expect_tx(q_full, CONSUMERS * q_map.box_bytes)
            for group in range(CONSUMERS):
                k.tma.load(q_map, sQ[group], (first_query + group * ROWS, 0), q_full)
            with k.loop(blocks, name="n") as n:
                for item, source in ((2 * n, k_map), (2 * n + 1, v_map)):
                    slot = kv[item]
                    slot.acquire()
                    slot.commit(source.box_bytes)
                    row = k.cta_y * keys + n * BLOCK
                    k.tma.load(source, sKV[slot.stage], (row, 0), slot.full)

    for group in range(CONSUMERS):
        with k.warpgroup(1 + group, f"consumer{group}") as warps:
            k.setmaxnreg("inc", CONSUMER_REGISTERS)
            consumer.begin()
            k.mbarrier.wait(q_full, 0)
            with k.loop(blocks, name="n") as n:
                key, value = kv[2 * n], kv[2 * n + 1]
                key.wait()
                consumer.score(sQ[group], sKV[key.stage])
                with k.elected():
                    key.release()
                consumer.softmax()
                k.tile.store(sP[group], consumer.weights)
                k.fence.proxy_async("shared::cta")
                warps.sync()  # P is complete
                value.wait()
                consumer.accumulate(sP[group], sKV[value.stage])
                with k.elected():
                    value.release()
            k.tile.store(sO[group], consumer.result())
            k.fence.proxy_async("shared::cta")
            warps.sync()
            with warps.one_thread():
                k.tma.store(o_map, sO[group], (first_query + group * ROWS, 0))
                k.bulk.commit_group()
                k.bulk.wait_group(0, read=True)


CASES = tuple(
    Case(attention, params, "hopper", "proved")
    for params in ({}, {"queries": 128, "keys": 64, "heads": 1}, {"keys": 512, "stages": 2})
)
