"""Emitted Hopper attention against cuDNN: ``python -m benchmarks.attention [--depths 64 128]``.

O = softmax(Q @ K.T / sqrt(depth)) @ V in bf16, forward, for 16384 tokens of 2048 channels: the
longer the sequences, the fewer heads there are; with ``--grouped 4`` four of them share keys and
values. cuDNN and FlashAttention are called through torch's
``scaled_dot_product_attention``. Operands, rounds and turns as in `benchmarks.gemm`. Before
anything is timed, every result is compared with attention in f32; outputs hold NaN first.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import gemm
from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import DeviceError, MissingExtra
from tilesim.gpu.launch import gpu, prepare
from tilesim.ir.program import Program
from tilesim.kernels.attention import DEPTH
from tilesim.kernels.hopper import attention, attention_v1

#: what the ratio refers to; torch's names of its backends
CUDNN = "cuDNN"
LIBRARIES = {CUDNN: "CUDNN_ATTENTION", "torch flash": "FLASH_ATTENTION"}
#: heads * sequence length * depth: 16384 tokens of 2048 channels
ELEMENTS = 16384 * 2048
#: weights and result rounded to bf16 are this far from f32, as ||x - y|| / ||y||
TOLERANCE = 5e-3
#: what fits, and is fastest, by head dimension
TUNED: dict[int, dict[str, Any]] = {
    64: {"consumers": 3}, 128: {"consumers": 2}, 256: {"block": 80, "in_place": True},
}  # fmt: skip
HEADER = ("depth", "mask", "length", "heads", "kernel", "ms", "fastest", "TFLOP/s", "of cuDNN",
          "error", "registers")  # fmt: skip
WIDTHS = (5, 6, 6, 6, 16, 8, 8, 8, 8, 8, 9)


@dataclass(frozen=True)
class Shape:
    """One problem: ``heads`` counts those of the whole batch; queries and keys are as many.

    ``grouped`` heads of queries share one of keys and values.
    """

    depth: int
    length: int
    causal: bool
    grouped: int = 1

    @property
    def heads(self) -> int:
        """Heads of the batch: the shorter the sequences, the more."""
        return ELEMENTS // (self.depth * self.length)

    @property
    def named(self) -> str:
        """The heads of queries, and those of keys where they are others."""
        return str(self.heads) + (f":{self.heads // self.grouped}" if self.grouped > 1 else "")

    @property
    def operations(self) -> float:
        """Floating-point operations of both products; half of them under a causal mask."""
        return 4.0 * self.heads * self.length**2 * self.depth / (2 if self.causal else 1)

    def programs(self, multiprocessors: int) -> dict[str, Program]:
        """The emitted kernels that compute it, by name."""
        extents = {"queries": self.length, "keys": self.length, "heads": self.heads}
        found: dict[str, Program] = {}
        if self.depth == DEPTH and not self.causal and self.grouped == 1:
            found["attention"] = attention.attention.build(**extents)
        found["attention_v1"] = attention_v1.attention.build(
            **extents, depth=self.depth, grouped=self.grouped, causal=self.causal,
            ctas=multiprocessors, **TUNED[self.depth],
        )  # fmt: skip
        return found


@dataclass(frozen=True)
class Row:
    """One kernel on one problem.

    ``milliseconds`` per launch in the median round and ``fastest`` in the best one; ``ratio`` to
    cuDNN by the median; ``error`` relative to f32; ``registers`` per thread as launched.
    """

    shape: Shape
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
            str(self.shape.depth), "causal" if self.shape.causal else "", str(self.shape.length),
            self.shape.named, self.kernel, f"{self.milliseconds:.3f}", f"{self.fastest:.3f}",
            f"{self.teraflops:.0f}", f"{self.ratio:.3f}", f"{self.error:.1e}",
            str(self.registers or ""),
        )  # fmt: skip


class Bench(gemm.Bench):
    """One problem: operands, the kernels' launches, their errors and times."""

    def __init__(self, torch: Any, shape: Shape, sets: int) -> None:
        gemm.Turns.__init__(self, torch, sets)
        self.shape = shape
        shared = shape.heads // shape.grouped
        self.operands = [
            tuple(
                torch.randn(
                    (1, heads, shape.length, shape.depth), device="cuda", dtype=torch.bfloat16
                )
                for heads in (shape.heads, shared, shared)
            )
            for _ in range(sets)
        ]
        self.outputs = [torch.empty_like(q) for q, _, _ in self.operands]

    def exact(self) -> list[Any]:
        """The results in f32, head by head."""
        function = self.torch.nn.functional.scaled_dot_product_attention
        backends = import_module("torch.nn.attention")
        found = []
        with backends.sdpa_kernel(backends.SDPBackend.MATH):
            for operands in self.operands:
                q, *shared = (x[0].float() for x in operands)
                repeated = (x.repeat_interleave(self.shape.grouped, 0) for x in shared)
                heads = zip(*(x.split(1) for x in (q, *repeated)), strict=True)
                parts = [function(*head, is_causal=self.shape.causal) for head in heads]
                found.append(self.torch.cat(parts)[None])
        return found

    def library(self, backend: str) -> Callable[[], list[Any]]:
        """One round of torch's attention, which returns the results."""
        backends = import_module("torch.nn.attention")
        function = self.torch.nn.functional.scaled_dot_product_attention

        def run() -> list[Any]:
            with backends.sdpa_kernel(getattr(backends.SDPBackend, backend)):
                return [
                    function(*each, is_causal=self.shape.causal, enable_gqa=self.shape.grouped > 1)
                    for each in self.operands
                ]

        return run

    def emitted(self, program: Program) -> tuple[gemm.Round, int]:
        """One round of an emitted kernel, and its registers per thread."""
        binary = compile_cubin(emit(program))
        shapes = {tensor.name: tensor.shape for tensor in program.tensors}
        launches = []
        for operands, output in zip(self.operands, self.outputs, strict=True):
            tensors = zip("QKVO", (*operands, output), strict=True)
            launches.append(prepare(binary, {n: x.view(shapes[n]) for n, x in tensors}))

        def run() -> None:
            stream = self.torch.cuda.current_stream()
            for each in launches:
                each(stream)

        return run, binary.resources.registers


def distance(found: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest relative distance of results from the expected ones."""
    distances = [
        float((x.float() - y).norm() / y.norm()) for x, y in zip(found, expected, strict=True)
    ]
    return max(distances, key=lambda d: (d != d, d))


def quiet(run: Callable[[], list[Any]]) -> gemm.Round:
    """The same round without its results."""

    def discard() -> None:
        run()

    return discard


def measure(
    torch: Any, shape: Shape, kernels: Mapping[str, Program], *, sets: int = 4, rounds: int = 50
) -> list[Row]:
    """cuDNN, FlashAttention and all kernels on one problem.

    Raises:
        SystemExit: a kernel's result is wrong; nothing was timed.
    """
    bench = Bench(torch, shape, sets)
    expected = bench.exact()
    runs: dict[str, gemm.Round] = {}
    errors: dict[str, float] = {}
    registers = dict.fromkeys(LIBRARIES, 0)
    for name, backend in LIBRARIES.items():
        library = bench.library(backend)
        errors[name], runs[name] = distance(library(), expected), quiet(library)
    for name, program in kernels.items():
        runs[name], registers[name] = bench.emitted(program)
        errors[name] = distance(bench.results(runs[name]), expected)
    del expected
    wrong = {name: error for name, error in errors.items() if not error < TOLERANCE}
    if wrong:
        raise SystemExit(f"wrong results for {shape}: {wrong} (relative error to f32)")
    times = bench.times(runs, rounds)
    base = median(times[CUDNN])
    return [
        Row(
            shape, name, (typical := median(found)), min(found),
            1e-9 * shape.operations / typical, base / typical, errors[name], registers[name],
        )
        for name, found in times.items()
    ]  # fmt: skip


def line(cells: Sequence[str]) -> str:
    """A row of the table."""
    return "  ".join(c.ljust(w) for c, w in zip(cells, WIDTHS, strict=True)).rstrip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 2 if there is no GPU or no torch."""
    parser = argparse.ArgumentParser(
        prog="benchmarks.attention", description="Emitted attention and cuDNN"
    )
    parser.add_argument("--depths", type=int, nargs="+", default=[64, 128], help="head dimensions")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[2048, 4096, 8192, 16384], help="queries = keys"
    )
    parser.add_argument("--masks", nargs="+", default=["full", "causal"], help="full, causal")
    parser.add_argument(
        "--grouped", type=int, nargs="+", default=[1], help="heads that share keys and values"
    )
    parser.add_argument("--rounds", type=int, default=50, help="timed rounds per kernel")
    parser.add_argument("--sets", type=int, default=4, help="sets of operands")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    try:
        gemm.requirements()
    except (DeviceError, MissingExtra) as error:
        print(f"benchmarks.attention: {error}", file=sys.stderr)
        return 2
    torch = import_module("torch")
    facts = {**gemm.environment(), "cudnn": str(torch.backends.cudnn.version())}
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    print(line(HEADER))
    rows: list[Row] = []
    chosen = product(options.depths, options.masks, options.grouped, options.lengths)
    for depth, mask, grouped, length in chosen:
        shape = Shape(depth, length, mask == "causal", grouped)
        kernels = shape.programs(gpu().info.multiprocessors)
        found = measure(torch, shape, kernels, sets=options.sets, rounds=options.rounds)
        print("\n".join(line(row.cells) for row in found), flush=True)
        rows += found
    if options.json:
        figures = {"environment": facts, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
