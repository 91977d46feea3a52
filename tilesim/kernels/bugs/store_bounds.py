"""Bulk copies without a tensor map have no bounds check: the byte count is what is written."""

from __future__ import annotations

from typing import Any

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case

WARPS = 2
BLOCK = 32 * WARPS


def _doubled(inputs: Arrays, **params: Any) -> Arrays:
    return {"D": inputs["X"] * 2}


@kernel(warps=WARPS, family="bugs", reference=_doubled)
def full_last_block(k: Builder, *, n: int = 224, fixed: bool = False) -> None:
    """deepseek-ai/DeepGEMM b0d6481, ca13ce0 (B114).

    D = 2 X, one CTA per block of 64 values. The last CTA stores a full block, too, and writes past
    the end of D unless n is a multiple of 64.

    Fix: clamp the byte count of the last store.
    """
    ctas, rest = -(-n // BLOCK), n % BLOCK
    k.launch(grid=ctas)
    X = k.tensor("X", f32, (n,))
    D = k.tensor("D", f32, (n,))
    block = k.shared("block", f32, (BLOCK,))
    value = k.var("value", dtype=f32)
    start = k.cta_x * BLOCK

    with k.role("math", range(WARPS)):
        with k.if_(start + k.thread_id < n):
            k.mem.load(value, X[start + k.thread_id])
            k.mem.store(block[k.thread_id], value * 2.0)
        k.fence.proxy_async("shared::cta")
        k.sync_threads()
        with k.one_thread():
            if fixed and rest:
                with k.if_((k.cta_x + 1).eq(ctas)):
                    k.bulk.store(D[ds(start, rest)], block[:rest])
                with k.else_():
                    k.bulk.store(D[ds(start, BLOCK)], block)
            else:
                k.bulk.store(D[ds(start, BLOCK)], block)  # BUG: the last block is shorter
            k.bulk.commit_group()
            k.bulk.wait_group(0)


CASES = (
    Case(full_last_block, {}, "bugs", "failed", frozenset({"out-of-bounds"}), source="B114"),
    Case(
        full_last_block,
        {"n": 256},
        "bugs",
        "proved",
        source="B114",
        note="a multiple of the block size hides it",
    ),
    Case(full_last_block, {"fixed": True}, "bugs", "proved", source="B114"),
    Case(full_last_block, {"n": 256, "fixed": True}, "bugs", "proved", source="B114"),
)
