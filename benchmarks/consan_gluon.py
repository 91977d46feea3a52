"""Triton's concurrency sanitizer (ConSan) on the Gluon kernels of the tests, right and wrong.

``python -m benchmarks.consan_gluon`` needs Triton 3.6, torch and a Hopper GPU. What tilesim says of
the same kernels and mistakes, with the lines, is in `tests.triton.test_gluon`; they are written for
Triton 3.9, so names that 3.6 lacks are put in here (those of clusters it has not, so the multicast
is left out). Each launch is a process of its own, without ConSan and with it; one that has not
ended after `LIMIT` seconds hangs.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Timer
from time import perf_counter
from typing import Any

from benchmarks.consan_process import LIMIT, printed_by

_FAULT = re.compile(r'FAULT [!=]= "([^"]+)"')


def as_in_39() -> None:
    """Gives Triton 3.6 the names of 3.9 that the kernels use."""
    from triton.experimental import gluon
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.language import _core as core
    from triton.experimental.gluon.language.nvidia import hopper
    from triton.experimental.gluon.language.nvidia.ampere import async_copy
    from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

    def allocate_mbarrier(batch: Any = None, _semantic: Any = None) -> Any:
        count = [] if batch is None else [batch]
        layout = mbarrier.MBarrierLayout()
        return gl.allocate_shared_memory(gl.int64, [*count, 1], layout, _semantic=_semantic)

    def zeros(shape: Any, dtype: Any, layout: Any, _semantic: Any = None) -> Any:
        return core.full(shape, 0, dtype, layout, _semantic=_semantic)

    mbarrier.allocate_mbarrier = core.builtin(allocate_mbarrier)
    gl.zeros = core.builtin(zeros)
    tma.async_load = tma.async_copy_global_to_shared
    tma.async_store = tma.async_copy_shared_to_global
    async_copy.async_load = async_copy.async_copy_global_to_shared
    tma.tensor_descriptor.nbytes_per_cta = property(lambda self: self.type.block_type.nbytes)
    hopper.cluster = gluon  # a name that is imported, and not used


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments, and whether its result is right."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    is_right: Callable[[], bool]


def _numbers(*shape: int) -> Any:
    import torch

    return torch.randint(-2, 3, shape, device="cuda").to(torch.float16)


def _described(tensor: Any, box: list[int]) -> Any:
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    layout = gl.NVMMASharedLayout.get_default_for(box, gl.float16)
    return TensorDescriptor.from_tensor(tensor, box, layout)


def pipelined() -> Launch:
    """A product of one tile."""
    from tests.triton.gluon import gemm

    a, b, c = _numbers(64, 320), _numbers(320, 64), _numbers(64, 64)
    maps = tuple(_described(t, [64, 64]) for t in (a, b, c))
    expected = a.double() @ b.double()
    constants = {"STAGES": 3, "num_warps": 4}
    return Launch(
        gemm.pipelined, (1,), (*maps, 5), constants, lambda: bool((c.double() == expected).all())
    )


def persistent() -> Launch:
    """A persistent product by two partitions."""
    from tests.triton.gluon import specialised

    a, b, c = _numbers(192, 192), _numbers(192, 128), _numbers(192, 128)
    maps = tuple(_described(t, [64, 64]) for t in (a, b, c))
    expected = a.double() @ b.double()
    constants = {"STAGES": 3, "num_warps": 4}
    return Launch(
        specialised.persistent, (2,), (*maps, 3, 2, 3), constants,
        lambda: bool((c.double() == expected).all()),
    )  # fmt: skip


def attention() -> Launch:
    """Attention of one head."""
    import torch

    from tests.triton.gluon import attention as module

    q, k, v, o = (_numbers(256, 64) for _ in range(4))
    rows = q[:64].double() @ k.double().T * 0.125 * 0.6931471805599453
    expected = torch.softmax(rows, 1) @ v.double()
    maps = tuple(_described(t, [64, 64]) for t in (q, k, v, o))
    constants = {"STAGES": 2, "num_warps": 4}
    return Launch(
        module.attention, (1, 1), (*maps, 4, 0.125), constants,
        lambda: bool((o[:64].double() - expected).abs().max() < 0.01),
    )  # fmt: skip


def streamed() -> Launch:
    """Copies of rows through a ring."""
    import torch

    from tests.triton.gluon import copies

    x = torch.rand(3, 1600, device="cuda")
    y = torch.zeros_like(x)
    constants = {"STAGES": 3, "BLOCK": 512, "num_warps": 4}
    return Launch(
        copies.streamed, (3,), (x, y, 1600), constants, lambda: bool(torch.equal(x, y))
    )  # fmt: skip


KERNELS: dict[str, Callable[[], Launch]] = {
    "pipelined": pipelined, "persistent": persistent, "attention": attention, "streamed": streamed,
}  # fmt: skip


def faults(name: str) -> Iterator[str]:
    """The mistakes that a kernel can be given, ``none`` first."""
    from tests.triton.gluon import attention, copies, gemm, specialised

    found = {
        "pipelined": gemm, "persistent": specialised, "attention": attention,
        "streamed": copies.streamed.fn,
    }  # fmt: skip
    yield from dict.fromkeys(["none", *_FAULT.findall(inspect.getsource(found[name]))])


# ---------------------------------------------------------------------- one process


def say(**said: Any) -> None:
    """The process's answer."""
    print(json.dumps(said), flush=True)


def one(name: str, fault: str) -> None:
    """Compiles and launches once."""
    import torch
    import triton

    triton.set_allocator(
        lambda size, align, stream: torch.empty(size, device="cuda", dtype=torch.int8)
    )
    launch = KERNELS[name]()
    constants = {**launch.constants, "FAULT": fault}
    start = perf_counter()
    launch.kernel.warmup(*launch.arguments, grid=launch.grid, **constants)
    compiled = perf_counter() - start

    def give_up() -> None:
        say(status="hangs", compile=compiled)
        os._exit(3)

    timer = Timer(LIMIT, give_up)
    timer.daemon = True
    timer.start()
    try:
        launch.kernel[launch.grid](*launch.arguments, **constants)
        torch.cuda.synchronize()
    except RuntimeError as error:
        timer.cancel()
        say(status="stopped", compile=compiled, error=str(error).splitlines()[0])
        os._exit(4)
    timer.cancel()
    say(status="right" if launch.is_right() else "wrong", compile=compiled)


# ---------------------------------------------------------------------- all of them


def opinion(name: str, fault: str, consan: bool, cache: str) -> str:
    """What comes of a launch in a process of its own."""
    command = ("benchmarks.consan_gluon", "--one", name, fault)
    printed = printed_by(*command, consan=consan, cache=cache)
    if printed.found:
        return printed.found
    if not printed.answers:
        return f"no answer: {printed.rest[-300:]!r}"
    answer = printed.answers[-1]
    return ": ".join(answer[key] for key in ("status", "error") if key in answer)


def main() -> None:
    """A row for each kernel and mistake."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=2, metavar=("KERNEL", "FAULT"), help="one launch, here")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at a time")
    given = parser.parse_args()
    as_in_39()
    if given.one:
        one(*given.one)
        return
    rows = [(name, fault) for name in KERNELS for fault in faults(name)]
    print("| kernel | fault | without ConSan | with ConSan |\n| --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as cache, ThreadPoolExecutor(given.jobs) as pool:
        found = [
            [pool.submit(opinion, *row, consan, cache) for consan in (True, False)] for row in rows
        ]
        for (name, fault), (with_, without) in zip(rows, found, strict=True):
            print(f"| {name} | {fault} | {without.result()} | {with_.result()} |", flush=True)


if __name__ == "__main__":
    main()
