"""Shared memory written by threads and stored by the TMA engine: the fence between (B035)."""

from __future__ import annotations

from typing import Any, Literal

from tilesim.arith.types import f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case

WARPS = 4
#: rows per warp
ROWS = 16
HEIGHT = WARPS * ROWS
COLUMNS = 32

Fence = Literal["none", "after the store", "one writer", "issuer", "every writer"]


def _negated(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": -inputs["X"]}


@kernel(warps=WARPS, family="bugs", reference=_negated)
def staged_store(k: Builder, *, fence: Fence = "none") -> None:
    """NVIDIA/Fuser #1967, ThunderKittens f74f9690 and 51ec35eb, facebookexperimental/triton #368.

    Every warp writes its rows of a tile to shared memory, through the generic proxy; a CTA barrier
    collects them; one thread issues the TMA store, which reads through the async proxy. The barrier
    orders the two in time, but not across the proxies: without ``fence.proxy.async`` the engine may
    read what was there before. Wrong in three ways: no fence at all (``none``), a fence after the
    store (``after the store``, the Triton issue), a fence before the barrier that only one of the
    writing threads executes (``one writer``): a proxy fence synchronises no threads, it covers what
    its own thread knows of (SEMANTICS H11).

    Fix: every thread that wrote executes the fence, then the barrier (``every writer``). A fence
    between the barrier and the store, in the storing thread, is on the path, too (``issuer``).
    """
    X = k.tensor("X", f32, (HEIGHT, COLUMNS))
    Y = k.tensor("Y", f32, (HEIGHT, COLUMNS))
    y_map = k.tensor_map(Y, (HEIGHT, COLUMNS))
    staging = k.shared("staging", f32, (HEIGHT, COLUMNS))
    part = k.fragment("part", f32, (ROWS, COLUMNS))
    mine = ds(k.warp_id * ROWS, ROWS)

    k.tile.load(part, X[mine, :])
    k.tile.map(part, "neg", part)
    k.tile.store(staging[mine, :], part)
    if fence == "every writer":
        k.fence.proxy_async("shared::cta")
    if fence == "one writer":
        with k.one_thread():
            k.fence.proxy_async("shared::cta")
    k.sync_threads()
    with k.one_thread():
        if fence == "issuer":
            k.fence.proxy_async("shared::cta")
        k.tma.store(y_map, staging, (0, 0))  # BUG: without a fence on the way from every write
        k.bulk.commit_group()
    if fence == "after the store":
        k.fence.proxy_async("shared::cta")
    with k.one_thread():
        k.bulk.wait_group(0, read=True)


_RULE = frozenset({"proxy-fence"})

CASES = (
    Case(staged_store, {}, "bugs", "failed", _RULE, source="B035"),
    Case(staged_store, {"fence": "after the store"}, "bugs", "failed", _RULE, source="B035"),
    Case(staged_store, {"fence": "one writer"}, "bugs", "failed", _RULE, source="B035"),
    Case(staged_store, {"fence": "every writer"}, "bugs", "proved", source="B035"),
    Case(staged_store, {"fence": "issuer"}, "bugs", "proved", source="B035"),
)
