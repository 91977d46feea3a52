"""Flash attention, forward: softmax and correction warpgroups around two matrix products.

A CTA computes two blocks of 128 queries (*Q stages*) against all keys. Per block of keys::

    S = Q @ K.T               tensor memory    MMA warp        s_full      commit
    P = exp2(S - row max)     over S           softmax warps   p_full      128 threads
    O = O * alpha             tensor memory    correction      o_rescaled  128 threads
    O = O + P @ V             tensor memory    MMA warp        o_full      commit
    result = O / row sum      shared memory    correction      result_full 128 threads

``alpha = exp2(old row max - new row max)`` goes from a softmax thread to the correction thread of
the same row through shared memory, and so does the row sum in the end: a ring of one slot per Q
stage. K and V blocks share one ring, K first. The two Q stages are independent but for K and V:
while the softmax warps of one work, the tensor core multiplies for the other.

P lies in the columns of S. That is safe in one direction because a softmax warp has read S before
it writes P. In the other, the next S may be computed only when P has been read: by the text mma
with different accumulators are not executed in order, so the MMA warp waits for ``o_full`` itself.
(Strictness ``practice`` does without it, as shipping kernels do.)
"""

from __future__ import annotations

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import Fragment, View
from tilesim.ir.expr import Expr, Operand
from tilesim.kernels.attention import (
    DEPTH,
    LOWEST,
    SCALE,
    attention_inputs,
    attention_reference,
)
from tilesim.kernels.hopper.operands import tiles
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.tensor_memory import MMA_K, TensorMemory, multiply_tile

#: queries of one Q stage, Q stages
ROWS, STAGES = 128, 2
WARPGROUP = 128
SOFTMAX = (range(4), range(4, 8))
CORRECTION, OTHERS = range(8, 12), range(12, 16)
MMA_WARP, LOAD_WARP, EPILOGUE_WARP, OWNER_WARP = 12, 13, 14, 15
#: registers per thread; 2 * 192 + 96 + 32 = 4 * 128, what the launch gives
REGISTERS, SOFTMAX_REGISTERS, CORRECTION_REGISTERS, OTHER_REGISTERS = 128, 192, 96, 32
#: scores that one tcgen05.ld moves; a load into 128 registers does not fit into 128
CHUNK = 64


class Attention:
    """What the roles of a CTA share, and each role's part."""

    def __init__(
        self, k: Builder, queries: int, keys: int, heads: int, block: int, stages: int
    ) -> None:
        self.k, self.keys, self.block = k, keys, block
        self.blocks = tiles(keys, block, "keys")
        self.first_query = k.cta_y * queries + k.cta_x * (STAGES * ROWS)
        self.q_map, self.k_map, self.v_map, self.o_map = (
            k.tensor_map(k.tensor(name, bf16, (heads * rows, DEPTH)), (box, DEPTH), swizzle=128)
            for name, rows, box in (
                ("Q", queries, ROWS), ("K", keys, block), ("V", keys, block), ("O", queries, ROWS),
            )
        )  # fmt: skip
        self.sQ = k.shared("sQ", bf16, (STAGES, ROWS, DEPTH), swizzle=128)
        self.sKV = k.shared("sKV", bf16, (stages, block, DEPTH), swizzle=128)
        self.sO = k.shared("sO", bf16, (STAGES, ROWS, DEPTH), swizzle=128)
        self.row_stats = k.shared("row_stats", f32, (STAGES, ROWS, 1))
        self.q_full, self.s_full, self.o_full = (
            k.mbarriers(name, STAGES) for name in ("q_full", "s_full", "o_full")
        )
        self.p_full, self.o_rescaled, self.result_full = (
            k.mbarriers(name, STAGES) for name in ("p_full", "o_rescaled", "result_full")
        )
        self.o_final = k.mbarriers("o_final")
        self.kv = Pipeline(k, stages, name="kv")
        self.stats = [
            Pipeline(k, 1, name=f"stats{q}", producers=WARPGROUP, consumers=WARPGROUP)
            for q in range(STAGES)
        ]
        self.memory = TensorMemory(k, 512 if block > 64 else 256, warp=OWNER_WARP)
        self.chunks = range(tiles(block, CHUNK, "block"))
        self.scores = [
            k.fragment(f"scores{c}", f32, (ROWS, CHUNK), "warpgroup") for c in self.chunks
        ]
        self.weights = k.fragment("weights", bf16, (ROWS, CHUNK), "warpgroup")
        self.row_max, self.new_max, self.row_sum, self.part, self.alpha = (
            k.fragment(name, f32, (ROWS, 1), "warpgroup")
            for name in ("row_max", "new_max", "row_sum", "part", "alpha")
        )
        self.partial = k.fragment("partial", f32, (ROWS, DEPTH), "warpgroup")
        self.rounded = k.fragment("rounded", bf16, (ROWS, DEPTH), "warpgroup")

    def begin(self) -> None:
        """Barriers and tensor memory; all threads."""
        k, mbarrier = self.k, self.k.mbarrier
        self.memory.allocate()
        with k.one_thread(OWNER_WARP):
            for q in range(STAGES):
                for barrier in (self.q_full, self.s_full, self.o_full):
                    mbarrier.init(barrier[q], 1)
                for barrier in (self.p_full, self.o_rescaled, self.result_full):
                    mbarrier.init(barrier[q], WARPGROUP)
                self.stats[q].init()
            mbarrier.init(self.o_final, 1)
            self.kv.init()
            k.fence.mbarrier_init()
        k.sync_threads()
        address = self.memory.address()
        self.S, self.O = (
            [
                k.tcgen05.tensor(address + base + q * n, f32, (ROWS, n), name=f"{name}{q}")
                for q in range(STAGES)
            ]
            for name, base, n in (("S", 0, self.block), ("O", STAGES * self.block, DEPTH))
        )
        self.P = [s.cast(bf16, self.block, name=f"P{q}") for q, s in enumerate(self.S)]

    def load(self) -> None:
        """One thread copies both blocks of queries, then the keys and values."""
        k = self.k
        for q in range(STAGES):
            k.mbarrier.arrive_expect_tx(self.q_full[q], self.q_map.box_bytes)
            row = self.first_query + q * ROWS
            k.tma.load(self.q_map, self.sQ[q], (row, 0), self.q_full[q])
        with k.loop(self.blocks, name="n") as n:
            for item, source in ((2 * n, self.k_map), (2 * n + 1, self.v_map)):
                slot, row = self.kv[item], k.cta_y * self.keys + n * self.block
                slot.acquire()
                slot.commit(source.box_bytes)
                k.tma.load(source, self.sKV[slot.stage], (row, 0), slot.full)
        self.kv.drain(2 * self.blocks)

    def multiply(self) -> None:
        """One thread issues both products."""
        k, key = self.k, self.kv[0]
        key.wait()
        for q in range(STAGES):
            k.mbarrier.wait(self.q_full[q], 0)
            self.score(q, self.sKV[key.stage])
        k.tcgen05.commit(key.empty)
        with k.loop(self.blocks, name="n") as n:
            value, key = self.kv[2 * n + 1], self.kv[2 * n + 2]
            value.wait()
            for q in range(STAGES):
                k.mbarrier.wait(self.o_rescaled[q], n & 1)
                k.mbarrier.wait(self.p_full[q], n & 1)
                k.tcgen05.fence_after_thread_sync()
                self.accumulate(q, self.sKV[value.stage], n)
                if q == STAGES - 1:
                    k.tcgen05.commit(value.empty)
                with k.if_(n + 1 < self.blocks):
                    k.tcgen05.commit(self.o_full[q])
                    if q == 0:
                        key.wait()
                    k.mbarrier.wait(self.o_full[q], n & 1)  # P has been read
                    k.tcgen05.fence_after_thread_sync()
                    self.score(q, self.sKV[key.stage])
                    if q == STAGES - 1:
                        k.tcgen05.commit(key.empty)
        k.tcgen05.commit(self.o_final)

    def score(self, q: int, keys: View) -> None:
        """S = Q @ K.T"""
        multiply_tile(self.k, self.S[q], self.sQ[q], keys, first=1)
        self.k.tcgen05.commit(self.s_full[q])

    def accumulate(self, q: int, values: View, n: Expr) -> None:
        """O = P @ V, + O from the second block on"""
        for start in range(0, self.block, MMA_K):
            at, keep = slice(start, start + MMA_K), 1 if start else n > 0
            self.k.tcgen05.mma(
                self.O[q], self.P[q][:, at], values[at], accumulate=keep, b_trans=True
            )

    def softmax(self, q: int) -> None:
        """A warpgroup turns S into P, and keeps maximum and sum of its rows."""
        k = self.k
        k.tile.fill(self.row_max, LOWEST)
        k.tile.fill(self.row_sum, 0.0)
        with k.loop(self.blocks, name="n") as n:
            k.mbarrier.wait(self.s_full[q], n & 1)
            k.tcgen05.fence_after_thread_sync()
            self.load_scores(q)
            k.tile.zip(self.alpha, "sub", self.row_max, self.new_max)
            k.tile.map(self.alpha, "exp2", self.alpha)
            self.publish(q, n, self.alpha)
            self.store_weights(q)
            k.tcgen05.fence_before_thread_sync()
            k.mbarrier.arrive(self.p_full[q])
            k.tile.zip(self.row_sum, "mul", self.row_sum, self.alpha)
            for scores in self.scores:
                k.tile.reduce(self.part, "sum", scores)
                k.tile.zip(self.row_sum, "add", self.row_sum, self.part)
            k.tile.cast(self.row_max, self.new_max)
        self.publish(q, self.blocks, self.row_sum)

    def load_scores(self, q: int) -> None:
        """The scaled scores of a block, and the row maximum up to here."""
        k = self.k
        for c, scores in enumerate(self.scores):
            k.tcgen05.ld(scores, self.S[q][:, c * CHUNK : (c + 1) * CHUNK])
        k.tcgen05.wait_ld()
        k.tile.cast(self.new_max, self.row_max)
        for scores in self.scores:
            k.tile.zip(scores, "mul", scores, SCALE)
            k.tile.reduce(self.part, "max", scores)
            k.tile.zip(self.new_max, "max", self.new_max, self.part)

    def store_weights(self, q: int) -> None:
        """P = exp2(S - row max), over S."""
        k = self.k
        for c, scores in enumerate(self.scores):
            k.tile.zip(scores, "sub", scores, self.new_max)
            k.tile.map(scores, "exp2", scores)
            k.tile.cast(self.weights, scores)
            k.tcgen05.st(self.P[q][:, c * CHUNK : (c + 1) * CHUNK], self.weights)
        k.tcgen05.wait_st()

    def publish(self, q: int, item: Operand, values: Fragment) -> None:
        """Softmax: gives a value per row to the correction warps."""
        slot = self.stats[q][item]
        slot.acquire()
        self.k.tile.store(self.row_stats[q], values)
        slot.commit()

    def receive(self, q: int, item: Operand, *, last: bool = False) -> None:
        """Correction: takes a value per row; the last one's place is not used again."""
        slot = self.stats[q][item]
        slot.wait()
        self.k.tile.load(self.alpha, self.row_stats[q])
        if not last:
            slot.release()

    def correct(self) -> None:
        """A warpgroup rescales O of both Q stages before each product but the first.

        That it has alpha says that S was full, and the commit that said so came after the product
        before: O is complete. Only the last product has to be waited for.
        """
        k = self.k
        for q in range(STAGES):
            self.receive(q, 0)  # there is nothing to rescale yet
            k.mbarrier.arrive(self.o_rescaled[q])
        with k.loop(1, self.blocks, name="n") as n:
            for q in range(STAGES):
                self.receive(q, n)
                k.tcgen05.fence_after_thread_sync()
                self.rescale(q)
                k.tcgen05.fence_before_thread_sync()
                k.mbarrier.arrive(self.o_rescaled[q])
        k.mbarrier.wait(self.o_final, 0)
        k.tcgen05.fence_after_thread_sync()
        for q in range(STAGES):
            self.finish(q)

    def rescale(self, q: int) -> None:
        """O = O * alpha"""
        k = self.k
        k.tcgen05.ld(self.partial, self.O[q])
        k.tcgen05.wait_ld()
        k.tile.zip(self.partial, "mul", self.partial, self.alpha)
        k.tcgen05.st(self.O[q], self.partial)
        k.tcgen05.wait_st()

    def finish(self, q: int) -> None:
        """The result, rounded, to shared memory."""
        k = self.k
        self.receive(q, self.blocks, last=True)  # the row sums
        k.tcgen05.ld(self.partial, self.O[q])
        k.tcgen05.wait_ld()
        k.tile.zip(self.partial, "div", self.partial, self.alpha)
        k.tile.cast(self.rounded, self.partial)
        k.tile.store(self.sO[q], self.rounded)
        k.fence.proxy_async("shared::cta")
        k.mbarrier.arrive(self.result_full[q])

    def write(self) -> None:
        """One thread stores the results."""
        k = self.k
        for q in range(STAGES):
            k.mbarrier.wait(self.result_full[q], 0)
            k.tma.store(self.o_map, self.sO[q], (self.first_query + q * ROWS, 0))
            k.bulk.commit_group()
        k.bulk.wait_group(0, read=True)


@kernel(
    target="sm_100a", warps=16, family="blackwell",
    reference=attention_reference, inputs=attention_inputs,
)  # fmt: skip
def attention(
    k: Builder,
    *,
    queries: int = 512,
    keys: int = 512,
    heads: int = 2,
    block: int = 128,
    stages: int = 3,
) -> None:
    """O (heads * queries, 64) bf16 = softmax(Q @ K.T / 8) @ V, for every head.

    ``block``: keys at a time; ``stages``: K and V blocks in shared memory.
    """
    k.launch(grid=(tiles(queries, STAGES * ROWS, "queries"), heads), registers=REGISTERS)
    cta = Attention(k, queries, keys, heads, block, stages)
    cta.begin()
    for q, warps in enumerate(SOFTMAX):
        with k.role(f"softmax{q}", warps):
            k.setmaxnreg("inc", SOFTMAX_REGISTERS)
            cta.softmax(q)
    with k.role("correction", CORRECTION):
        k.setmaxnreg("dec", CORRECTION_REGISTERS)
        cta.correct()
    with k.role("others", OTHERS):
        k.setmaxnreg("dec", OTHER_REGISTERS)
    with k.role("mma", MMA_WARP), k.elected():
        cta.multiply()
    with k.role("load", LOAD_WARP), k.elected():
        cta.load()
    with k.role("epilogue", EPILOGUE_WARP), k.elected():
        cta.write()
    cta.memory.free()


CASES = tuple(
    Case(attention, params, "blackwell", "proved")
    for params in ({}, {"block": 64, "keys": 128, "heads": 1}, {"queries": 256, "keys": 128})
)
