"""Times of the gallery's GEMMs and attention: ``python -m benchmarks.calibration.measure``.

Every kernel runs alone, in a graph of four launches on sets of operands in turn: *sustained*, after
a tenth of a second of itself, and *single*, one launch after a pause, at the highest clock.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import gemm
from benchmarks.calibration.run import Device, arrays_of, warm
from tilesim.errors import InvalidProgram
from tilesim.gpu.errors import DeviceError, MissingExtra
from tilesim.gpu.launch import gpu, prepare
from tilesim.ir.program import Program
from tilesim.kernels.hopper import (
    attention,
    attention_v1,
    matmul_v0,
    matmul_v1,
    matmul_v2,
    matmul_v3,
    matmul_v4,
    matmul_v5,
    matmul_v6,
    matmul_v7,
    matmul_v8,
)

#: heads * length * depth of attention
TOKENS = 16384 * 2048
#: sets of operands, as long as they fit
SETS, BYTES = 4, 4 << 30

#: a row: the kernel's name and its parameters
Case = tuple[str, dict[str, Any]]
KERNELS = {
    "matmul_v0": matmul_v0.matmul, "matmul_v1": matmul_v1.matmul, "matmul_v2": matmul_v2.matmul,
    "matmul_v3": matmul_v3.matmul, "matmul_v4": matmul_v4.matmul, "matmul_v5": matmul_v5.matmul,
    "matmul_v6": matmul_v6.matmul, "matmul_v7": matmul_v7.matmul, "matmul_v8": matmul_v8.matmul,
    "attention": attention.attention, "attention_v1": attention_v1.attention,
}  # fmt: skip
SHAPES = (
    (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (8192, 8192, 8192),
    (2048, 8192, 1024), (8192, 1024, 4096), (4096, 2048, 16384),
)  # fmt: skip
#: others, which were measured when the model was made: (m, n, k), and (queries, keys, heads, depth)
UNSEEN = (
    (3072, 3072, 3072), (1536, 6144, 2048), (6144, 1536, 2048), (4096, 4096, 1024),
    (5120, 2560, 3072), (2560, 2560, 8192), (1280, 1536, 1024),
)  # fmt: skip
UNSEEN_ATTENTION = (
    (3072, 3072, 24, 64), (3072, 3072, 16, 128), (6144, 6144, 8, 128), (1536, 6144, 20, 64),
    (5120, 5120, 12, 64), (1536, 1536, 40, 128),
)  # fmt: skip


def unseen(sms: int = 132) -> Iterator[Case]:
    """Rows of shapes with which the model was not made, as far as the kernels take them."""
    for case in (*_products(UNSEEN, sms), *_other_attention(sms)):
        with suppress(InvalidProgram):
            program_of(case)
            yield case


def _other_attention(sms: int) -> Iterator[Case]:
    for queries, keys, heads, depth in UNSEEN_ATTENTION:
        for causal in (False, True)[: 1 + (queries == keys)]:
            yield "attention_v1", {
                "queries": queries, "keys": keys, "heads": heads, "depth": depth,
                "consumers": 3 if depth == 64 else 2, "ctas": sms, "causal": causal,
            }  # fmt: skip


def cases(sms: int = 132) -> Iterator[Case]:
    """The rows with which the model was made."""
    yield from _products(SHAPES, sms)
    yield from _others(sms)


def _products(shapes: Sequence[tuple[int, int, int]], sms: int) -> Iterator[Case]:
    for m, n, depth in shapes:
        shape = {"m": m, "n": n, "depth": depth}
        small = m * n * depth < 1 << 37
        if small:
            for name in ("matmul_v0", "matmul_v1", "matmul_v2", "matmul_v3", "matmul_v4"):
                yield name, {**shape, "block_n": 128}
            yield "matmul_v0", {**shape, "block_n": 64}
            yield "matmul_v1", {**shape, "block_n": 256}
            yield "matmul_v2", {**shape, "block_n": 256, "stages": 4}
            yield "matmul_v4", {**shape, "block_n": 64, "stages": 4}
            yield "matmul_v4", {**shape, "block_n": 256, "stages": 2}
        yield "matmul_v6", {**shape, "block_n": 128, "stages": 4, "ctas": sms}
        yield "matmul_v6", {**shape, "block_n": 256, "stages": 3, "ctas": sms}
        yield "matmul_v6", {**shape, "block_n": 256, "stages": 2, "ctas": sms}
        band = 16 if m >= 2048 else 8
        yield "matmul_v7", {**shape, "block_n": 256, "band": band, "ctas": sms}
        yield "matmul_v7", {**shape, "block_n": 128, "band": band, "ctas": sms}
        yield "matmul_v7", {**shape, "block_n": 256, "band": band, "ctas": 66}
        for handover in ("restricted", "release"):
            yield "matmul_v8", {
                **shape, "block_n": 256, "stages": 4, "band": band // 2, "clusters": sms // 2,
                "handover": handover,
            }  # fmt: skip


def _others(sms: int) -> Iterator[Case]:
    for iterations in (16, 64, 256):
        yield "matmul_v5", {"iterations": iterations, "ctas": sms, "block_n": 256, "stages": 3}
        yield "matmul_v5", {"iterations": iterations, "ctas": 4 * sms, "block_n": 128}
    for length in (1024, 2048, 4096, 8192, 16384):
        for depth in (64, 128):
            heads = TOKENS // (length * depth)
            extents = {"queries": length, "keys": length, "heads": heads}
            for causal in (False, True):
                yield "attention_v1", {
                    **extents, "depth": depth, "consumers": 3 if depth == 64 else 2,
                    "ctas": sms, "causal": causal,
                }  # fmt: skip
            if depth == 64:
                yield "attention", extents
    for parameters in (
        {"queries": 4096, "keys": 4096, "heads": 8, "depth": 128, "consumers": 2, "block": 64},
        {"queries": 4096, "keys": 4096, "heads": 8, "depth": 64, "consumers": 2},
        {"queries": 2048, "keys": 8192, "heads": 16, "depth": 128, "consumers": 2},
    ):
        yield "attention_v1", {**parameters, "ctas": sms}


def program_of(case: Case) -> Program:
    """The program of a row."""
    name, parameters = case
    found: Program = KERNELS[name].build(**parameters)
    return found


def time_of(device: Device, case: Case) -> dict[str, Any]:
    """Microseconds of a row, and the clock right after it."""
    torch = device.torch
    program = program_of(case)
    nbytes = sum(t.nbytes for t in program.tensors)
    sets = max(1, min(SETS, BYTES // nbytes))
    binary = device.binary(program)
    runs = [prepare(binary, arrays_of(torch, program)) for _ in range(sets)]

    def all_of() -> None:
        stream = torch.cuda.current_stream()
        for run in runs:
            run(stream)

    all_of()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        all_of()

    def elapsed(work: Any) -> float:
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        work()
        b.record()
        b.synchronize()
        return float(a.elapsed_time(b)) * 1e3

    single = []
    for number in range(6):
        time.sleep(0.004)
        single.append(elapsed(runs[number % sets]))
    end = time.perf_counter() + 0.12
    while time.perf_counter() < end:
        elapsed(graph.replay)
    found: list[float] = []
    end = time.perf_counter() + 0.06
    while time.perf_counter() < end or len(found) < 5:
        found.append(elapsed(graph.replay) / sets)
    read = device.watch()
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end:
        graph.replay()
        torch.cuda.current_stream().synchronize()
    clock = read()
    return {
        "kernel": case[0], "parameters": case[1], "us": median(found), "fastest_us": min(found),
        "single_us": min(single), "megahertz": clock, "registers": binary.resources.registers,
        "sets": sets,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and writes; 2 if there is no GPU or no torch."""
    parser = argparse.ArgumentParser(prog="benchmarks.calibration.measure")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--unseen", action="store_true", help="the shapes it was not made with")
    parser.add_argument("--cubins", type=Path, default=Path("/tmp/cubins"))
    options = parser.parse_args(arguments)
    try:
        gemm.requirements()
    except (DeviceError, MissingExtra) as error:
        print(f"benchmarks.calibration: {error}", file=sys.stderr)
        return 2
    rows = list((unseen if options.unseen else cases)(gpu().info.multiprocessors))
    warm(program_of, rows, options.cubins)
    device = Device(import_module("torch"), options.cubins)
    figures: dict[str, Any] = {"environment": gemm.environment(), "rows": []}
    for case in rows:
        row = time_of(device, case)
        figures["rows"].append(row)
        print(f"{row['us']:10.1f} {row['single_us']:10.1f} {row['megahertz']:7.0f}", *case,
              flush=True)  # fmt: skip
        options.json.write_text(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
