"""Guards of storage that two uses share: one that waits for the wrong event, one for none."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from tilesim.arith.types import bf16, f32
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.kernels.hopper.operands import Arrays
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline
from tilesim.lib.tensor_memory import TensorMemory

ROWS, COLUMNS, DEPTH = 128, 32, 16
WARPGROUP = 128
#: offset in shared memory of what two tensors share
SHARED_STORAGE = 8192

Guard = Literal["token", "consumer", "none"]
Staging = Literal["constant", "constant phase", "per tile"]


def _gradients(inputs: Arrays, **params: Any) -> Arrays:
    ones, q, keys = (inputs[name].astype(np.float32) for name in ("dS", "Q", "K"))
    return {
        "dK": np.tile(q.sum(axis=1), (ROWS, 1)),
        "dQ": ones @ keys.T,
    }


@kernel(target="sm_100a", warps=6, family="bugs", reference=_gradients)
def token_guard(k: Builder, *, guard: Guard = "token") -> None:
    """facebookexperimental/triton #1851, 9d72fb055 (B057): a guard on a token never released.

    In the backward pass of attention the accumulator of dq takes the columns of dsT, which the mma
    of dk reads from tensor memory. The compiler guards the reuse with a token, but what the dk mma
    releases is the barrier of its consumer: the dq warp waits for ever (``guard="token"``). Without
    a guard dq overwrites dsT while dk reads it (``none``), the second bug of that change.

    Fix: wait for the barrier that the commit of dk arrives on (``consumer``).
    """
    dS, Q, K = (
        k.tensor(name, bf16, (rows, DEPTH))
        for name, rows in (("dS", ROWS), ("Q", COLUMNS), ("K", COLUMNS))
    )
    dK, dQ = k.tensor("dK", f32, (ROWS, COLUMNS)), k.tensor("dQ", f32, (ROWS, COLUMNS))
    boxes = [k.tensor_map(t, t.shape, swizzle=32) for t in (dS, Q, K)]
    ds, q, keys = tiles = [k.shared(f"s{t.name}", bf16, t.shape, swizzle=32) for t in (dS, Q, K)]
    loaded, written = k.mbarriers("loaded"), k.mbarriers("written")
    token, consumer, done = (k.mbarriers(name) for name in ("token", "consumer", "done"))
    ones = k.fragment("ones", bf16, (ROWS, DEPTH), "warpgroup")
    acc = k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup")
    memory = TensorMemory(k, 64)
    memory.allocate()
    with k.one_thread():
        k.mbarrier.init(written, WARPGROUP)
        for barrier in (loaded, token, consumer, done):
            k.mbarrier.init(barrier, 1)
    k.sync_threads()
    address = memory.address()
    ds_t = k.tcgen05.tensor(address, bf16, (ROWS, DEPTH), name="dsT")
    dq = k.tcgen05.tensor(address, f32, (ROWS, COLUMNS), name="dq")
    dk = k.tcgen05.tensor(address + COLUMNS, f32, (ROWS, COLUMNS), name="dk")
    with k.one_thread():
        k.mbarrier.arrive_expect_tx(loaded, sum(box.box_bytes for box in boxes))
        for box, tile in zip(boxes, tiles, strict=True):
            k.tma.load(box, tile, (0, 0), loaded)
    k.mbarrier.wait(loaded, 0)

    with k.role("compute", range(4)):
        k.tile.fill(ones, 1.0)
        k.tcgen05.st(ds_t, ones)
        k.tcgen05.wait_st()
        k.tcgen05.fence_before_thread_sync()
        k.mbarrier.arrive(written)

    with k.role("dk mma", 4), k.elected():
        k.mbarrier.wait(written, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(dk, ds_t, q, accumulate=0)
        k.tcgen05.commit(consumer)

    with k.role("dq mma", 5), k.elected():
        k.mbarrier.wait(written, 0)
        if guard == "token":
            k.mbarrier.wait(token, 0)  # BUG: no thread arrives
        elif guard == "consumer":
            k.mbarrier.wait(consumer, 0)
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.mma(dq, ds, keys, accumulate=0)  # overwrites dsT
        k.tcgen05.commit(done)

    with k.role("compute", range(4)):
        for barrier, source, target in ((consumer, dk, dK), (done, dq, dQ)):
            k.mbarrier.wait(barrier, 0)
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.ld(acc, source)
            k.tcgen05.wait_ld()
            k.tile.store(target, acc)
    memory.free()


def _products(inputs: Arrays, *, tiles: int = 3, **params: Any) -> Arrays:
    p, v = inputs["P"].astype(np.float32), inputs["V"].astype(np.float32)
    parts = v.reshape(tiles, COLUMNS, DEPTH)
    return {"O": np.concatenate([p @ part.T for part in parts])}


@kernel(target="sm_100a", warps=6, family="bugs", reference=_products)
def staging_guard(k: Builder, *, tiles: int = 3, guard: Staging = "constant") -> None:
    """facebookexperimental/triton #1853, b6180744c (B058): a guard that guards nothing.

    A persistent kernel computes O = P @ V.T tile by tile. The staging buffer of O takes the storage
    of V. The load of the next V is guarded against the store of this O, but the guard names the
    same slot and phase for every tile, the one before the first, and the epilogue's release is left
    out (``constant``): the wait always passes, and the copy overwrites what the store still reads.
    With the release and the constant phase (``constant phase``) the guard holds for a tile too many
    or for none. One tile per CTA hides the bug.

    Fix: the phase of the tile, and the release (``per tile``).
    """
    P, V = k.tensor("P", bf16, (ROWS, DEPTH)), k.tensor("V", bf16, (tiles * COLUMNS, DEPTH))
    out = k.tensor("O", f32, (tiles * ROWS, COLUMNS))
    p_map = k.tensor_map(P, (ROWS, DEPTH), swizzle=32)
    v_map = k.tensor_map(V, (COLUMNS, DEPTH), swizzle=32)
    o_map = k.tensor_map(out, (ROWS, COLUMNS))
    p = k.shared("p", bf16, (ROWS, DEPTH), swizzle=32)
    v = k.shared("v", bf16, (COLUMNS, DEPTH), swizzle=32, offset=SHARED_STORAGE)
    staging = k.shared("staging", f32, (ROWS, COLUMNS), offset=SHARED_STORAGE)
    p_full, stored = k.mbarriers("p_full"), k.mbarriers("stored")
    operand = Pipeline(k, 1, name="v")
    result = Pipeline(k, 1, name="o", consumers=WARPGROUP)
    acc = k.fragment("acc", f32, (ROWS, COLUMNS), "warpgroup")
    memory = TensorMemory(k, COLUMNS)
    memory.allocate()
    with k.one_thread():
        k.mbarrier.init(p_full, 1)
        k.mbarrier.init(stored, 1)
        operand.init()
        result.init()
    k.sync_threads()
    d = k.tcgen05.tensor(memory.address(), f32, (ROWS, COLUMNS), name="d")

    with k.role("load", 4), k.elected():
        k.mbarrier.arrive_expect_tx(p_full, p_map.box_bytes)
        k.tma.load(p_map, p, (0, 0), p_full)
        with k.loop(tiles, name="tile") as tile:
            slot = operand[tile]
            slot.acquire()
            phase = (tile & 1) ^ 1 if guard == "per tile" else 1
            k.mbarrier.wait(stored, phase)  # BUG: if it is the same for every tile
            slot.commit(v_map.box_bytes)
            k.tma.load(v_map, v, (tile * COLUMNS, 0), slot.full)
        operand.drain(tiles)

    with k.role("mma", 5), k.elected():
        k.mbarrier.wait(p_full, 0)
        with k.loop(tiles, name="tile") as tile:
            source, target = operand[tile], result[tile]
            source.wait()
            target.acquire()
            k.tcgen05.fence_after_thread_sync()
            k.tcgen05.mma(d, p, v, accumulate=0)
            k.tcgen05.commit(source.empty)
            k.tcgen05.commit(target.full)

    with k.role("epilogue", range(4)), k.loop(tiles, name="tile") as tile:
        slot = result[tile]
        slot.wait()
        k.tcgen05.fence_after_thread_sync()
        k.tcgen05.ld(acc, d)
        k.tcgen05.wait_ld()
        k.tcgen05.fence_before_thread_sync()
        slot.release()
        with k.one_thread():
            k.bulk.wait_group(0, read=True)
        k.bar.sync(1, WARPGROUP)
        k.tile.store(staging, acc)
        k.fence.proxy_async("shared::cta")
        k.bar.sync(1, WARPGROUP)
        with k.one_thread():
            k.tma.store(o_map, staging, (tile * ROWS, 0))
            k.bulk.commit_group()
            if guard != "constant":
                k.bulk.wait_group(0, read=True)
                k.mbarrier.arrive(stored)
            with k.if_((tile + 1).eq(tiles)):
                k.bulk.wait_group(0)
    memory.free()


_FIXED = {"guard": "per tile"}

CASES = (
    Case(
        token_guard, {}, "bugs", "rejected", frozenset({"deadlock"}), source="B057",
        note="visible before the kernel runs",
    ),
    Case(
        token_guard, {"guard": "none"}, "bugs", "failed", frozenset({"tcgen05-order"}),
        source="B057", note="the second bug: dq before dk has read dsT",
    ),
    Case(token_guard, {"guard": "consumer"}, "bugs", "proved", strict="ptx", source="B057"),
    Case(staging_guard, {}, "bugs", "failed", frozenset({"race"}), source="B058"),
    Case(
        staging_guard, {"guard": "constant phase"}, "bugs", "failed",
        frozenset({"race", "deadlock"}), source="B058", note="the release is kept",
    ),
    Case(
        staging_guard, {"tiles": 1}, "bugs", "proved", source="B058",
        note="hidden: one tile per CTA",
    ),
    Case(staging_guard, _FIXED, "bugs", "proved", strict="ptx", source="B058"),
    Case(staging_guard, {**_FIXED, "tiles": 1}, "bugs", "proved", source="B058"),
)  # fmt: skip
