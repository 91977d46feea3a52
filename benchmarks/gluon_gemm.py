"""The two-consumer Hopper GEMM in Gluon, and one process of `benchmarks.consan` that launches it.

The same protocol as `benchmarks.consan.matmul`, with the same faults under the same names: the
default partition and one of four warps are the consumers, a third one is the producer. Needs Triton
3.6, torch and a Hopper GPU. Run as ``python -m benchmarks.gluon_gemm``, it prints lines of JSON;
ConSan is on if ``TRITON_INSTRUMENTATION_MODE`` is ``consan``.
"""

from __future__ import annotations

import argparse
import json
import os
from statistics import median
from threading import Timer
from time import perf_counter
from typing import Any

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

M, N, K = gl.constexpr(128), gl.constexpr(128), gl.constexpr(64)
ROWS = gl.constexpr(64)
BYTES = gl.constexpr(2 * K.value * (M.value + N.value))
STAGES = 4


@gluon.jit
def multiply(
    i, acc, a, b, full,
    GROUP: gl.constexpr, STAGES: gl.constexpr, FULLS: gl.constexpr, FAULT: gl.constexpr,
):  # fmt: skip
    """Waits for k tile ``i`` and issues its wgmma group."""
    stage = i % STAGES
    parity = (i // STAGES) & 1
    if FAULT == "full-parity":
        parity = parity ^ 1
    if FAULT != "full-wait":
        for j in gl.static_range(FULLS):
            mbarrier.wait(full.index(stage * FULLS + j), parity)
    if FAULT == "stage":
        stage = (i + 1) % STAGES
    rows = a.index(stage).slice(GROUP * ROWS, ROWS)
    return warpgroup_mma(rows, b.index(stage).permute((1, 0)), acc, is_async=True)


@gluon.jit
def release(i, empty, GROUP: gl.constexpr, STAGES: gl.constexpr, FAULT: gl.constexpr):
    """Gives the stage of k tile ``i`` back."""
    if FAULT != "release" or GROUP == 0:
        mbarrier.arrive(empty.index(i % STAGES), count=1)


@gluon.jit
def consumer(
    c_desc, a, b, c, full, empty, iterations,
    GROUP: gl.constexpr, STAGES: gl.constexpr, FULLS: gl.constexpr, FAULT: gl.constexpr,
):  # fmt: skip
    """64 rows of the tile, with one wgmma group in flight; the result leaves twice."""
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, N, 16]
    )
    acc = warpgroup_mma_init(gl.zeros((ROWS, N), gl.float32, layout))
    acc = multiply(0, acc, a, b, full, GROUP, STAGES, FULLS, FAULT)
    if FAULT == "early-release":
        release(0, empty, GROUP, STAGES, FAULT)
    for i in range(1, iterations):
        acc = multiply(i, acc, a, b, full, GROUP, STAGES, FULLS, FAULT)
        if FAULT != "wgmma-wait":
            acc = warpgroup_mma_init(warpgroup_mma_wait(1, deps=[acc]))
        if FAULT == "early-release":
            release(i, empty, GROUP, STAGES, FAULT)
        else:
            release(i - 1, empty, GROUP, STAGES, FAULT)
    product = warpgroup_mma_wait(0, deps=[acc])
    if FAULT != "early-release":
        release(iterations - 1, empty, GROUP, STAGES, FAULT)

    tile = c.index(GROUP)
    row = gl.program_id(0) * M + GROUP * ROWS
    for half in gl.static_range(2):
        tile.store(product.to(gl.bfloat16))
        if FAULT != "proxy-fence":
            fence_async_shared()
        tma.async_copy_shared_to_global(c_desc, [row, half * N], tile)
        if half == 0:
            if FAULT != "store-wait":
                tma.store_wait(0)
        elif FAULT != "exit-wait":
            tma.store_wait(0)


@gluon.jit
def producer(
    a_desc, b_desc, a, b, full, empty, iterations,
    STAGES: gl.constexpr, FULLS: gl.constexpr, FAULT: gl.constexpr,
):  # fmt: skip
    """Fills the stages."""
    for i in range(iterations):
        stage = i % STAGES
        parity = ((i // STAGES) & 1) ^ 1
        if FAULT == "empty-parity":
            parity = parity ^ 1
        if FAULT != "empty-wait":
            mbarrier.wait(empty.index(stage), parity)
        first = full.index(stage * FULLS)
        last = full.index(stage * FULLS + FULLS - 1)
        for j in gl.static_range(FULLS):
            if FAULT == "bytes-many":
                mbarrier.expect(full.index(stage * FULLS + j), 2 * BYTES // FULLS)
            elif FAULT == "bytes-few":
                mbarrier.expect(full.index(stage * FULLS + j), BYTES // 2 // FULLS)
            else:
                mbarrier.expect(full.index(stage * FULLS + j), BYTES // FULLS)
        row = gl.program_id(0) * M
        tma.async_copy_global_to_shared(a_desc, [row, i * K], first, a.index(stage))
        tma.async_copy_global_to_shared(b_desc, [0, i * K], last, b.index(stage))


@gluon.jit
def matmul(
    a_desc, b_desc, c_desc, iterations,
    STAGES: gl.constexpr, FAULT: gl.constexpr, PRODUCER: gl.constexpr, FULLS: gl.constexpr,
):  # fmt: skip
    """C (128 per CTA, 256) bf16: twice A @ B.T side by side."""
    a = gl.allocate_shared_memory(gl.bfloat16, [STAGES, M, K], a_desc.layout)
    b = gl.allocate_shared_memory(gl.bfloat16, [STAGES, N, K], b_desc.layout)
    c = gl.allocate_shared_memory(gl.bfloat16, [2, ROWS, N], c_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES * FULLS, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        for j in gl.static_range(FULLS):
            mbarrier.init(full.index(s * FULLS + j), count=1)
        mbarrier.init(empty.index(s), count=1 if FAULT == "empty-count" else 2)
    first: gl.constexpr = gl.constexpr(0)
    second: gl.constexpr = gl.constexpr(1)
    gl.warp_specialize(
        [
            (consumer, (c_desc, a, b, c, full, empty, iterations, first, STAGES, FULLS, FAULT)),
            (consumer, (c_desc, a, b, c, full, empty, iterations, second, STAGES, FULLS, FAULT)),
            (producer, (a_desc, b_desc, a, b, full, empty, iterations, STAGES, FULLS, FAULT)),
        ],
        [4, PRODUCER],
        [232, 40],
    )
    if FAULT != "no-invalidate":
        for s in gl.static_range(STAGES):
            for j in gl.static_range(FULLS):
                mbarrier.invalidate(full.index(s * FULLS + j))
            mbarrier.invalidate(empty.index(s))


LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)


class Launch:
    """One launch of given size on random small integers, whose product is exact in f32."""

    def __init__(self, fault: str, iterations: int, ctas: int, producer: int, fulls: int) -> None:
        depth, rows = K.value * iterations, M.value * ctas
        self.constants = (iterations, STAGES, fault, producer, fulls)
        self.grid = (ctas,)
        self.a = torch.randint(-2, 3, (rows, depth), device="cuda").to(torch.bfloat16)
        self.b = torch.randint(-2, 3, (N.value, depth), device="cuda").to(torch.bfloat16)
        self.c = torch.full((rows, 2 * N.value), torch.nan, dtype=torch.bfloat16, device="cuda")
        product = (self.a.double() @ self.b.double().T).to(torch.bfloat16)
        self.expected = torch.cat((product, product), 1)
        torch.cuda.synchronize()

    def _arguments(self) -> tuple[Any, ...]:
        boxes = (
            (self.a, M.value, K.value),
            (self.b, N.value, K.value),
            (self.c, ROWS.value, N.value),
        )
        maps = [
            TensorDescriptor.from_tensor(t, [rows, columns], LAYOUT) for t, rows, columns in boxes
        ]
        return (*maps, *self.constants)

    def compile(self) -> float:
        """Wall seconds to compile the kernel."""
        start = perf_counter()
        matmul.warmup(*self._arguments(), grid=self.grid, num_warps=4)
        return perf_counter() - start

    def run(self) -> float:
        """Wall seconds from the launch to its end. Raises RuntimeError on a device-side assert."""
        start = perf_counter()
        matmul[self.grid](*self._arguments(), num_warps=4)
        torch.cuda.synchronize()
        return perf_counter() - start

    @property
    def right(self) -> bool:
        """Whether the last run's result is the product."""
        return bool(torch.equal(self.c, self.expected))


def say(**said: Any) -> None:
    """The process's answer."""
    print(json.dumps(said), flush=True)


def one(launch: Launch, limit: float) -> None:
    """Compiles and launches once; a launch that takes longer than ``limit`` seconds hangs."""
    compiled = launch.compile()

    def give_up() -> None:
        say(status="hangs", compile=compiled, launch=limit)
        os._exit(3)

    timer = Timer(limit, give_up)
    timer.daemon = True
    timer.start()
    try:
        seconds = launch.run()
    except RuntimeError as error:
        timer.cancel()
        say(status="stopped", compile=compiled, launch=0.0, error=str(error).splitlines()[0])
        os._exit(4)
    timer.cancel()
    say(status="right" if launch.right else "wrong", compile=compiled, launch=seconds)


def times(sizes: list[list[int]], form: tuple[int, int], limit: float) -> None:
    """Per size its first launch, with compilation if there is any, and then the median launch."""
    for iterations, ctas in sizes:
        launch = Launch("none", iterations, ctas, *form)
        first = launch.run()
        runs = [launch.run()]
        while len(runs) < 30 and sum(runs) < limit:
            runs.append(launch.run())
        say(iterations=iterations, ctas=ctas, first=first, launch=median(runs), least=min(runs),
            launches=len(runs), right=launch.right, device=torch.cuda.get_device_name(),
            torch=torch.__version__, triton=triton.__version__)  # fmt: skip


def main() -> None:
    """One process: ``--fault NAME --iterations N --ctas N``, or ``--sizes JSON``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fault", default="none")
    parser.add_argument("--iterations", type=int, default=16)
    parser.add_argument("--ctas", type=int, default=1)
    parser.add_argument("--producer-warps", type=int, default=1)
    parser.add_argument("--full-barriers", type=int, default=1)
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--sizes", type=json.loads)
    arguments = parser.parse_args()
    triton.set_allocator(
        lambda size, align, stream: torch.empty(size, device="cuda", dtype=torch.int8)
    )
    form = arguments.producer_warps, arguments.full_barriers
    if arguments.sizes:
        times(arguments.sizes, form, arguments.limit)
    else:
        size = arguments.iterations, arguments.ctas
        one(Launch(arguments.fault, *size, *form), arguments.limit)


if __name__ == "__main__":
    main()
