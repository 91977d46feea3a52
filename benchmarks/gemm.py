"""Emitted Hopper GEMMs against cuBLAS: ``python -m benchmarks.gemm [--sizes 4096 8192]``.

C = A @ B.T with bf16 operands and result, M = N = K. How it is timed is said in
`benchmarks.rounds`. Before that, results are compared with those of cuBLAS (called through torch);
outputs hold NaN first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.rounds import Command, Figures, Round, Turns, distance
from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.emit import emit
from tilesim.gpu.launch import gpu, prepare
from tilesim.ir.program import Program
from tilesim.kernels.hopper import matmul_v6, matmul_v7, matmul_v8

CUBLAS = "cuBLAS"
#: results that all differ by one bf16 rounding are this far apart, as ||x - y|| / ||y||
TOLERANCE = 5e-3
COMMAND = Command(
    "benchmarks.gemm", "Emitted GEMMs and cuBLAS",
    {"size": 6, "kernel": 26, "ms": 8, "fastest": 8, "TFLOP/s": 8, "of cuBLAS": 10, "error": 8,
     "registers": 9},
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Row(Figures):
    """One kernel at one size; ``error`` relative to cuBLAS."""

    size: int

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        return (str(self.size), *super().cells)


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
        return self.launching(launches), binary.resources.registers

    def results(self, run: Round) -> list[Any]:
        """What a round writes over NaN."""
        for c in self.outputs:
            c.fill_(float("nan"))
        run()
        self.torch.cuda.synchronize()
        return [c.float() for c in self.outputs]


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
    errors = {name: distance(bench.results(run), expected) for name, run in runs.items()}
    wrong = {name: error for name, error in errors.items() if not error < TOLERANCE}
    if wrong:
        raise SystemExit(f"wrong results at {size}: {wrong} (relative error to cuBLAS)")
    times = bench.times(runs, rounds)
    base = median(times[CUBLAS])
    return [
        Row(
            size=size, kernel=name, milliseconds=(typical := median(found)), fastest=min(found),
            teraflops=2e-9 * size**3 / typical, ratio=base / typical, error=errors[name],
            registers=registers[name],
        )
        for name, found in times.items()
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 2 if there is no GPU or no torch."""
    parser = COMMAND.parser()
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192], help="M = N = K")
    options = parser.parse_args(arguments)

    def measured(torch: Any) -> Iterator[list[Row]]:
        for size in options.sizes:
            kernels = programs(size, gpu().info.multiprocessors)
            yield measure(torch, size, kernels, sets=options.sets, rounds=options.rounds)

    return COMMAND.run(options, measured)


if __name__ == "__main__":
    raise SystemExit(main())
