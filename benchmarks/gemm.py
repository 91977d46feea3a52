"""Emitted Hopper GEMMs against cuBLAS: ``python -m benchmarks.gemm [--sizes 4096 8192]``.

C = A @ B.T with bf16 operands and result, M = N = K. Every kernel computes on several sets of
random operands in turn, so that a launch does not find its operands in the L2 cache. One round
launches a kernel once per set, as a CUDA graph between two events; rounds of the kernels take
turns, and the median round counts. Before that, results are compared with those of cuBLAS (called
through torch); outputs hold NaN first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from tilesim.gpu.compile import compile_cubin, versions
from tilesim.gpu.driver import probe
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import DeviceError, MissingExtra
from tilesim.gpu.launch import gpu, prepare
from tilesim.ir.program import Program
from tilesim.kernels.hopper import matmul_v6, matmul_v7, matmul_v8

CUBLAS = "cuBLAS"
#: results that all differ by one bf16 rounding are this far apart, as ||x - y|| / ||y||
TOLERANCE = 5e-3
HEADER = ("size", "kernel", "ms", "fastest", "TFLOP/s", "of cuBLAS", "error", "registers")
WIDTHS = (6, 26, 8, 8, 8, 10, 8, 9)

#: enqueues one launch per set of operands
Round = Callable[[], None]


@dataclass(frozen=True)
class Row:
    """One kernel at one size.

    ``milliseconds`` per launch in the median round and ``fastest`` in the best one; ``ratio`` to
    cuBLAS by the median; ``error`` relative to cuBLAS; ``registers`` per thread as launched.
    """

    size: int
    kernel: str
    milliseconds: float
    fastest: float
    teraflops: float
    ratio: float
    error: float
    registers: int

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of `HEADER`."""
        return (
            str(self.size), self.kernel, f"{self.milliseconds:.3f}", f"{self.fastest:.3f}",
            f"{self.teraflops:.0f}", f"{self.ratio:.3f}", f"{self.error:.1e}",
            str(self.registers or ""),
        )  # fmt: skip


def programs(size: int, multiprocessors: int) -> dict[str, Program]:
    """The kernels at M = N = K = ``size``, by name.

    All have 128 x 256 tiles. A persistent kernel whose CTAs are as many as its tiles is step 5 on
    a whole matrix: one tile per CTA.
    """
    square = {"m": size, "n": size, "depth": size, "block_n": 256}
    pairs = multiprocessors // 2
    return {
        "v5: a CTA per tile": matmul_v6.matmul.build(
            **square, stages=3, ctas=size // 128 * (size // 256)
        ),
        "v6: persistent": matmul_v6.matmul.build(**square, stages=3, ctas=multiprocessors),
        "v7: bands, pieces": matmul_v7.matmul.build(**square, ctas=multiprocessors, band=16),
        "v8: multicast": matmul_v8.matmul.build(**square, stages=4, clusters=pairs, band=8),
        "v8: arrive.release.cluster": matmul_v8.matmul.build(
            **square, stages=4, clusters=pairs, band=8, handover="release"
        ),
        "v8: arrive at scope cta": matmul_v8.matmul.build(
            **square, stages=4, clusters=pairs, band=8, handover="cta"
        ),
    }


class Turns:
    """Times of rounds of ``sets`` launches, taken in turns."""

    def __init__(self, torch: Any, sets: int) -> None:
        self.torch = torch
        self.sets = sets

    def times(self, runs: Mapping[str, Round], rounds: int) -> dict[str, list[float]]:
        """Milliseconds per launch of every round.

        The kernels take turns in an order of their own every time: at the power limit, the clock
        of a kernel depends on the one before.
        """
        graphs = {name: self._graph(run) for name, run in runs.items()}
        found: dict[str, list[float]] = {name: [] for name in runs}
        for number in range(-max(3, rounds // 10), rounds):
            for name in Random(number).sample(list(runs), len(runs)):
                elapsed = self._timed(graphs[name])
                if number >= 0:
                    found[name].append(elapsed / self.sets)
        return found

    def _graph(self, run: Round) -> Any:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            run()
        return graph

    def _timed(self, graph: Any) -> float:
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))


class Bench(Turns):
    """One size: operands, the kernels' launches, their errors and times."""

    def __init__(self, torch: Any, size: int, sets: int) -> None:
        super().__init__(torch, sets)
        shape = (size, size)
        self.operands = [
            tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in "AB")
            for _ in range(sets)
        ]
        self.outputs = [
            torch.empty(shape, device="cuda", dtype=torch.bfloat16) for _ in range(sets)
        ]

    def cublas(self) -> Round:
        """One round of torch.matmul, which calls cuBLAS."""

        def run() -> None:
            for (a, b), c in zip(self.operands, self.outputs, strict=True):
                self.torch.matmul(a, b.T, out=c)

        return run

    def emitted(self, program: Program) -> tuple[Round, int]:
        """One round of an emitted kernel, and its registers per thread."""
        binary = compile_cubin(emit(program))
        launches = [
            prepare(binary, {"A": a, "B": b, "C": c})
            for (a, b), c in zip(self.operands, self.outputs, strict=True)
        ]

        def run() -> None:
            stream = self.torch.cuda.current_stream()
            for each in launches:
                each(stream)

        return run, binary.resources.registers

    def results(self, run: Round) -> list[Any]:
        """What a round writes over NaN."""
        for c in self.outputs:
            c.fill_(float("nan"))
        run()
        self.torch.cuda.synchronize()
        return [c.float() for c in self.outputs]

    def error(self, run: Round, expected: Sequence[Any]) -> float:
        """The largest relative distance of a round's results from the expected ones."""
        found = self.results(run)
        distances = [float((x - y).norm() / y.norm()) for x, y in zip(found, expected, strict=True)]
        return max(distances, key=lambda d: (d != d, d))


def measure(
    torch: Any, size: int, kernels: Mapping[str, Program], *, sets: int = 4, rounds: int = 50
) -> list[Row]:
    """cuBLAS and all kernels at one size.

    Raises:
        SystemExit: a kernel's result is wrong; nothing was timed.
    """
    bench = Bench(torch, size, sets)
    runs: dict[str, Round] = {CUBLAS: bench.cublas()}
    registers = {CUBLAS: 0}
    for name, program in kernels.items():
        runs[name], registers[name] = bench.emitted(program)
    expected = bench.results(runs[CUBLAS])
    errors = {name: bench.error(run, expected) for name, run in runs.items()}
    wrong = {name: error for name, error in errors.items() if not error < TOLERANCE}
    if wrong:
        raise SystemExit(f"wrong results at {size}: {wrong} (relative error to cuBLAS)")
    times = bench.times(runs, rounds)
    base = median(times[CUBLAS])
    return [
        Row(
            size, name, (typical := median(found)), min(found), 2e-9 * size**3 / typical,
            base / typical, errors[name], registers[name],
        )
        for name, found in times.items()
    ]  # fmt: skip


def environment() -> dict[str, str]:
    """What the figures depend on."""
    torch, info = import_module("torch"), gpu().info
    return {
        "gpu": info.name, "driver API": info.driver, "nvrtc": versions()["nvrtc"],
        "torch": str(torch.__version__), "date": date.today().isoformat(),
    }  # fmt: skip


def requirements() -> None:
    """Raises `DeviceError` or `MissingExtra` unless the kernels and cuBLAS can run here."""
    probe()
    if find_spec("torch") is None:
        raise MissingExtra("torch is not installed, through which cuBLAS is called")
    gpu().require("sm_90a")


def line(cells: Sequence[str]) -> str:
    """A row of the table."""
    return "  ".join(c.ljust(w) for c, w in zip(cells, WIDTHS, strict=True)).rstrip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 2 if there is no GPU or no torch."""
    parser = argparse.ArgumentParser(prog="benchmarks.gemm", description="Emitted GEMMs and cuBLAS")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192], help="M = N = K")
    parser.add_argument("--rounds", type=int, default=50, help="timed rounds per kernel")
    parser.add_argument("--sets", type=int, default=4, help="sets of operands")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    try:
        requirements()
    except (DeviceError, MissingExtra) as error:
        print(f"benchmarks.gemm: {error}", file=sys.stderr)
        return 2
    facts = environment()
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    print(line(HEADER))
    rows: list[Row] = []
    for size in options.sizes:
        kernels = programs(size, gpu().info.multiprocessors)
        found = measure(
            import_module("torch"), size, kernels, sets=options.sets, rounds=options.rounds
        )
        print("\n".join(line(row.cells) for row in found), flush=True)
        rows += found
    if options.json:
        figures = {"environment": facts, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
