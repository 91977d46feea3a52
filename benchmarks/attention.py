"""Emitted Hopper attention against cuDNN: ``python -m benchmarks.attention [--depths 64 128]``.

O = softmax(Q @ K.T / sqrt(depth)) @ V in bf16, forward, for 16384 tokens of 2048 channels: the
longer the sequences, the fewer heads there are; with ``--grouped 4`` four of them share keys and
values. cuDNN and FlashAttention are called through torch's
``scaled_dot_product_attention``. How it is timed is said in `benchmarks.rounds`. Before anything is
timed, every result is compared with attention in f32; outputs hold NaN first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from statistics import median
from typing import Any

from benchmarks import gemm
from benchmarks.rounds import Command, Figures, Round, Turns, distance
from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.emit import emit
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
COMMAND = Command(
    "benchmarks.attention", "Emitted attention and cuDNN",
    {"depth": 5, "mask": 6, "length": 6, "heads": 6, "kernel": 16, "ms": 8, "fastest": 8,
     "TFLOP/s": 8, "of cuDNN": 8, "error": 8, "registers": 9},
)  # fmt: skip


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


@dataclass(frozen=True, kw_only=True)
class Row(Figures):
    """One kernel on one problem; ``error`` relative to f32."""

    shape: Shape

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        shape = self.shape
        mask = "causal" if shape.causal else ""
        return (str(shape.depth), mask, str(shape.length), shape.named, *super().cells)


class Bench(gemm.Bench):
    """One problem: operands, the kernels' launches, their errors and times."""

    def __init__(self, torch: Any, shape: Shape, sets: int) -> None:
        Turns.__init__(self, torch, sets)
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

    def emitted(self, program: Program) -> tuple[Round, int]:
        """One round of an emitted kernel, and its registers per thread."""
        binary = compile_cubin(emit(program))
        shapes = {tensor.name: tensor.shape for tensor in program.tensors}
        launches = []
        for operands, output in zip(self.operands, self.outputs, strict=True):
            tensors = zip("QKVO", (*operands, output), strict=True)
            launches.append(prepare(binary, {n: x.view(shapes[n]) for n, x in tensors}))
        return self.launching(launches), binary.resources.registers


def quiet(run: Callable[[], list[Any]]) -> Round:
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
    runs: dict[str, Round] = {}
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
            shape=shape, kernel=name, milliseconds=(typical := median(found)), fastest=min(found),
            teraflops=1e-9 * shape.operations / typical, ratio=base / typical,
            error=errors[name], registers=registers[name],
        )
        for name, found in times.items()
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 2 if there is no GPU or no torch."""
    parser = COMMAND.parser()
    parser.add_argument("--depths", type=int, nargs="+", default=[64, 128], help="head dimensions")
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[2048, 4096, 8192, 16384], help="queries = keys"
    )
    parser.add_argument("--masks", nargs="+", default=["full", "causal"], help="full, causal")
    parser.add_argument(
        "--grouped", type=int, nargs="+", default=[1], help="heads that share keys and values"
    )
    options = parser.parse_args(arguments)

    def measured(torch: Any) -> Iterator[list[Row]]:
        chosen = product(options.depths, options.masks, options.grouped, options.lengths)
        for depth, mask, grouped, length in chosen:
            shape = Shape(depth, length, mask == "causal", grouped)
            kernels = shape.programs(gpu().info.multiprocessors)
            yield measure(torch, shape, kernels, sets=options.sets, rounds=options.rounds)

    return COMMAND.run(
        options, measured, lambda torch: {"cudnn": str(torch.backends.cudnn.version())}
    )


if __name__ == "__main__":
    raise SystemExit(main())
