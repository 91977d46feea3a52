"""A synchronous producer of a circular buffer that asynchronous operations consume.

Threads write shared memory with ordinary stores (generic proxy); TMA and the tensor cores read it
through the async proxy. An mbarrier alone does not order the two: every writing thread executes
``fence.proxy.async`` after its stores and before it announces them. `scale` feeds a TMA store warp,
`dequantise` feeds wgmma.

A lane elected to arrive for its warp announces only its own stores unless the warp synchronises
first, hence the ``sync_warp`` before each elected arrival.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilesim.arith.types import bf16, f32, s8
from tilesim.dsl.builder import Builder
from tilesim.dsl.kernel import kernel
from tilesim.ir.declarations import ds
from tilesim.kernels.hopper.operands import Arrays, multiply_tile, product_f32, tiles
from tilesim.kernels.registry import Case
from tilesim.lib.pipeline import Pipeline

BLOCK = 64


def _scaled(inputs: Arrays, **params: Any) -> Arrays:
    return {"Y": inputs["X"].astype(np.float32) * 2}


@kernel(warps=5, family="nvfuser", reference=_scaled)
def scale(k: Builder, *, rows: int = 384, columns: int = 32, stages: int = 2) -> None:
    """Y = 2 X: four warps compute blocks of 64 rows into shared memory, a fifth stores them."""
    compute, writer = range(4), 4
    share = BLOCK // len(compute)
    blocks = tiles(rows, BLOCK, "rows")
    X = k.tensor("X", f32, (rows, columns))
    Y = k.tensor("Y", f32, (rows, columns))
    y_map = k.tensor_map(Y, (BLOCK, columns), swizzle=128)
    buffer = k.shared("buffer", f32, (stages, BLOCK, columns), swizzle=128)
    pipe = Pipeline(k, stages, producers=len(compute))
    x = k.fragment("x", f32, (share, columns))

    with k.one_thread():
        pipe.init()
    k.sync_threads()

    with k.role("compute", compute), k.loop(blocks) as i:
        k.tile.load(x, X[ds(i * BLOCK + k.warp_id * share, share), :])
        k.tile.zip(x, "mul", x, 2.0)
        slot = pipe[i]
        slot.acquire()
        k.tile.store(buffer[slot.stage, ds(k.warp_id * share, share), :], x)
        k.fence.proxy_async("shared::cta")
        k.sync_warp()
        with k.elected():
            slot.commit()

    with k.role("store", writer), k.elected(), k.loop(blocks) as i:
        slot = pipe[i]
        slot.wait()
        k.tma.store(y_map, buffer[slot.stage], (i * BLOCK, 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0, read=True)
        slot.release()


@kernel(warps=9, family="nvfuser", reference=product_f32)
def dequantise(k: Builder, *, n: int = 64, depth: int = 256, stages: int = 2) -> None:
    """C (64, n) f32 = A (64, depth) s8 @ B (n, depth) bf16, transposed.

    Warps 0-3 multiply, warps 4-7 convert A to bf16 on its way to shared memory, warp 8 copies B.
    The two producers have separate pipelines.
    """
    consumers, converters, copier = range(4), range(4, 8), 8
    share = BLOCK // len(converters)
    iterations = tiles(depth, BLOCK, "depth")
    A = k.tensor("A", s8, (BLOCK, depth))
    B = k.tensor("B", bf16, (n, depth))
    C = k.tensor("C", f32, (BLOCK, n))
    b_map = k.tensor_map(B, (n, BLOCK), swizzle=128)
    sA = k.shared("sA", bf16, (stages, BLOCK, BLOCK), swizzle=128)
    sB = k.shared("sB", bf16, (stages, n, BLOCK), swizzle=128)
    converted = Pipeline(
        k, stages, name="converted", producers=len(converters), consumers=len(consumers)
    )
    copied = Pipeline(k, stages, name="copied", consumers=len(consumers))
    packed = k.fragment("packed", s8, (share, BLOCK))
    wide = k.fragment("wide", bf16, (share, BLOCK))
    acc = k.fragment("acc", f32, (BLOCK, n), "warpgroup")

    with k.one_thread():
        converted.init()
        copied.init()
    k.sync_threads()

    with k.role("convert A", converters), k.loop(iterations, name="kt") as kt:
        mine = ds((k.warp_id - converters[0]) * share, share)
        k.tile.load(packed, A[mine, ds(kt * BLOCK, BLOCK)])
        k.tile.cast(wide, packed)
        slot = converted[kt]
        slot.acquire()
        k.tile.store(sA[slot.stage, mine, :], wide)
        k.fence.proxy_async("shared::cta")
        k.sync_warp()
        with k.elected():
            slot.commit()

    with k.role("copy B", copier), k.elected(), k.loop(iterations, name="kt") as kt:
        slot = copied[kt]
        slot.acquire()
        slot.commit(b_map.box_bytes)
        k.tma.load(b_map, sB[slot.stage], (0, kt * BLOCK), slot.full)

    with k.role("multiply", consumers):
        k.tile.fill(acc, 0.0)
        with k.loop(iterations, name="kt") as kt:
            a, b = converted[kt], copied[kt]
            a.wait()
            b.wait()
            multiply_tile(k, acc, sA[a.stage], sB[b.stage])
            k.wgmma.wait_group(0)
            with k.elected():
                a.release()
                b.release()
        k.tile.store(C, acc)


CASES = (
    Case(scale, {}, "nvfuser", "proved"),
    Case(scale, {"stages": 1, "rows": 128}, "nvfuser", "proved"),
    Case(dequantise, {}, "nvfuser", "proved"),
    Case(dequantise, {"stages": 3, "n": 128}, "nvfuser", "proved"),
)
