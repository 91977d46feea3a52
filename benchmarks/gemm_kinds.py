"""FP8 and grouped Hopper GEMMs against torch: ``python -m benchmarks.gemm_kinds [KIND:SIZE ...]``.

Kinds: ``rows`` (e4m3, a scale per row of A and of B) and ``blocks`` (e4m3, scales per 1 x 128 of A
and 128 x 128 of B) of M = N = K = SIZE, against torch's ``_scaled_mm``; ``groups`` (bf16, SIZE
groups of equal height, 16384 x 4096 x 7168 in all) and ``uneven`` (the same, SIZE groups of random
heights) against ``_grouped_mm``. How it is measured is said in `benchmarks.gemm`. Operands are
normally distributed and quantised by the largest value of a row or block; results are compared with
products in f32 of the same operands before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from benchmarks.gemm import Round, Turns, environment, requirements
from tilesim.gpu.compile import compile_cubin
from tilesim.gpu.emit import emit
from tilesim.gpu.errors import DeviceError, MissingExtra
from tilesim.gpu.launch import gpu, prepare
from tilesim.ir.program import Program
from tilesim.kernels.hopper import matmul_fp8, matmul_fp8_blocks, matmul_grouped

#: results are at most as far from products in f32 rounded to bf16, as ||x - y|| / ||y||
TOLERANCE = 5e-3
#: of grouped operands, all groups together
TOKENS, OUT, DEPTH = 16384, 4096, 7168
#: the largest e4m3
LARGEST = 448.0
HEADER = ("kind", "size", "kernel", "ms", "fastest", "TFLOP/s", "of torch", "error", "registers")
WIDTHS = (7, 6, 34, 8, 8, 8, 9, 8, 9)

#: tensors by name, as the kernels call them
Operands = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """One kernel at one size; figures as in `benchmarks.gemm.Row`, ``error`` relative to f32."""

    kind: str
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
            self.kind, str(self.size), self.kernel, f"{self.milliseconds:.3f}",
            f"{self.fastest:.3f}", f"{self.teraflops:.0f}", f"{self.ratio:.3f}",
            f"{self.error:.1e}", str(self.registers or ""),
        )  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """What is multiplied.

    ``operands`` makes a set; ``exact`` is the product in f32; ``library`` has calls of torch, the
    first is what others are compared with; ``programs`` are emitted.
    """

    flops: float
    operands: Callable[[Any], Operands]
    exact: Callable[[Any, Operands], Any]
    library: Mapping[str, Callable[[Any, Operands], Any]]
    programs: Mapping[str, Program]


# ---------------------------------------------------------------------- scales


def _quantised(torch: Any, x: Any, largest: Any) -> tuple[Any, Any]:
    """``x`` as e4m3 and the scales that undo it."""
    scale = (largest / LARGEST).float()
    return (x / scale).to(torch.float8_e4m3fn), scale


def _rows(size: int, multiprocessors: int) -> Kind:
    def operands(torch: Any) -> Operands:
        a, b = (torch.randn((size, size), device="cuda") for _ in "AB")
        given: Operands = {}
        given["A"], given["SA"] = _quantised(torch, a, a.abs().amax(dim=1, keepdim=True))
        given["B"], by_row = _quantised(torch, b, b.abs().amax(dim=1, keepdim=True))
        return {**given, "SB": by_row.reshape(1, -1)}

    def exact(torch: Any, x: Operands) -> Any:
        return (x["A"].float() @ x["B"].float().T) * x["SA"] * x["SB"]

    def scaled(torch: Any, x: Operands, fast: bool) -> Any:
        return torch._scaled_mm(
            x["A"], x["B"].T, scale_a=x["SA"], scale_b=x["SB"], out_dtype=torch.bfloat16,
            use_fast_accum=fast,
        )  # fmt: skip

    shape = {"m": size, "n": size, "depth": size, "ctas": multiprocessors, "block_n": 256}
    return Kind(
        2.0 * size**3, operands, exact,
        {
            "torch, fast accumulation": lambda torch, x: scaled(torch, x, True),
            "torch": lambda torch, x: scaled(torch, x, False),
        },
        {
            f"matmul_fp8, bands of {band}": matmul_fp8.matmul.build(**shape, band=band)
            for band in (8, 16)
        },
    )  # fmt: skip


def _blocks(size: int, multiprocessors: int) -> Kind:
    count = size // 128

    def operands(torch: Any) -> Operands:
        a, b = (torch.randn((size, size), device="cuda") for _ in "AB")
        pieces = a.reshape(size, count, 128)
        qa, sa = _quantised(torch, pieces, pieces.abs().amax(dim=2, keepdim=True))
        squares = b.reshape(count, 128, count, 128)
        qb, sb = _quantised(torch, squares, squares.abs().amax(dim=(1, 3), keepdim=True))
        return {
            "A": qa.reshape(size, size), "SA": sa.permute(1, 0, 2).contiguous(),
            "B": qb.reshape(size, size), "SB": sb.reshape(count, count),
        }  # fmt: skip

    def exact(torch: Any, x: Operands) -> Any:
        a = x["A"].float().reshape(size, count, 128) * x["SA"].permute(1, 0, 2)
        b = x["B"].float().reshape(count, 128, count, 128) * x["SB"].reshape(count, 1, count, 1)
        return a.reshape(size, size) @ b.reshape(size, size).T

    def scaled(torch: Any, x: Operands) -> Any:
        return torch._scaled_mm(
            x["A"], x["B"].T, scale_a=x["SA"].reshape(count, size).T, scale_b=x["SB"].T,
            out_dtype=torch.bfloat16,
        )  # fmt: skip

    shape = {"m": size, "n": size, "depth": size, "ctas": multiprocessors, "band": 16}
    return Kind(
        2.0 * size**3, operands, exact, {"torch": scaled},
        {
            f"matmul_fp8_blocks, 128 x {n}": matmul_fp8_blocks.matmul.build(
                **shape, block_n=n, stages=stages
            )
            for n, stages in ((256, 4), (128, 6))
        },
    )  # fmt: skip


# ---------------------------------------------------------------------- groups


def heights(groups: int, *, even: bool) -> tuple[int, ...]:
    """Rows of every group, `TOKENS` together: equal ones up to the last, or random ones."""
    if even:
        return (TOKENS // groups,) * (groups - 1) + (TOKENS - TOKENS // groups * (groups - 1),)
    random = Random(groups)
    cuts = sorted(random.randrange(TOKENS + 1) for _ in range(groups - 1))
    return tuple(b - a for a, b in zip((0, *cuts), (*cuts, TOKENS), strict=True))


def _groups(groups: int, multiprocessors: int, *, even: bool) -> Kind:
    sizes = heights(groups, even=even)

    def operands(torch: Any) -> Operands:
        def normal(*shape: int) -> Any:
            return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

        ends = torch.tensor(sizes, device="cuda").cumsum(0).to(torch.int32)
        return {"A": normal(TOKENS, DEPTH), "B": normal(groups, OUT, DEPTH), "ends": ends}

    def exact(torch: Any, x: Operands) -> Any:
        parts = zip(x["A"].split(sizes), x["B"], strict=True)
        return torch.cat([rows.float() @ matrix.float().T for rows, matrix in parts])

    def grouped(torch: Any, x: Operands) -> Any:
        return torch._grouped_mm(x["A"], x["B"].transpose(-2, -1), offs=x["ends"])

    program = matmul_grouped.matmul.build(
        sizes=sizes, n=OUT, depth=DEPTH, ctas=multiprocessors, block_n=256
    )
    return Kind(
        2.0 * TOKENS * OUT * DEPTH, operands, exact, {"torch": grouped}, {"matmul_grouped": program}
    )


KINDS: dict[str, Callable[[int, int], Kind]] = {
    "rows": _rows,
    "blocks": _blocks,
    "groups": lambda size, sms: _groups(size, sms, even=True),
    "uneven": lambda size, sms: _groups(size, sms, even=False),
}
DEFAULT = ("rows:4096", "rows:8192", "blocks:4096", "blocks:8192", "groups:32", "uneven:32")


# ---------------------------------------------------------------------- measuring


class Bench(Turns):
    """One kind at one size: sets of operands, the kernels' launches, errors and times."""

    def __init__(self, torch: Any, kind: Kind, sets: int) -> None:
        super().__init__(torch, sets)
        self.kind = kind
        self.given = [kind.operands(torch) for _ in range(sets)]
        self.expected = [kind.exact(torch, x).to(torch.bfloat16) for x in self.given]
        self.outputs = [torch.empty_like(x) for x in self.expected]

    def called(self, function: Callable[[Any, Operands], Any]) -> Round:
        """One round of a call of torch, which keeps its results."""

        def run() -> None:
            self.outputs = [function(self.torch, x) for x in self.given]

        return run

    def emitted(self, program: Program) -> tuple[Round, int]:
        """One round of an emitted kernel, and its registers per thread."""
        binary = compile_cubin(emit(program))
        outputs = [self.torch.empty_like(x) for x in self.expected]
        launches = [
            prepare(binary, {**x, "C": c}) for x, c in zip(self.given, outputs, strict=True)
        ]

        def run() -> None:
            stream = self.torch.cuda.current_stream()
            self.outputs = outputs
            for each in launches:
                each(stream)

        for c in outputs:
            c.fill_(float("nan"))
        return run, binary.resources.registers

    def error(self, run: Round) -> float:
        """The largest relative distance of a round's results from the expected ones."""
        run()
        self.torch.cuda.synchronize()
        pairs = zip(self.outputs, self.expected, strict=True)
        distances = [float((x.float() - y.float()).norm() / y.float().norm()) for x, y in pairs]
        return max(distances, key=lambda d: (d != d, d))


def measure(torch: Any, name: str, size: int, *, sets: int = 4, rounds: int = 50) -> list[Row]:
    """Torch and all kernels of one kind at one size; calls that torch refuses are left out.

    Raises:
        SystemExit: an emitted kernel's result is wrong; nothing was timed.
    """
    kind = KINDS[name](size, gpu().info.multiprocessors)
    bench = Bench(torch, kind, sets)
    runs: dict[str, Round] = {}
    errors: dict[str, float] = {}
    registers: dict[str, int] = {}
    for title, function in kind.library.items():
        try:
            errors[title] = bench.error(bench.called(function))
        except (RuntimeError, ValueError) as why:
            print(f"{name} {size}: {title} refuses: {str(why).splitlines()[0]}")
            continue
        runs[title] = bench.called(function)
    first = next(iter(runs), None)
    for title, program in kind.programs.items():
        runs[title], registers[title] = bench.emitted(program)
        errors[title] = bench.error(runs[title])
    wrong = {title: errors[title] for title in kind.programs if not errors[title] < TOLERANCE}
    if wrong:
        raise SystemExit(f"wrong results of {name} at {size}: {wrong} (relative error to f32)")
    times = bench.times(runs, rounds)
    base = float("nan") if first is None else median(times[first])
    return [
        Row(
            name, size, title, (typical := median(found)), min(found),
            1e-9 * kind.flops / typical, base / typical, errors[title], registers.get(title, 0),
        )
        for title, found in times.items()
    ]  # fmt: skip


def line(cells: Sequence[str]) -> str:
    """A row of the table."""
    return "  ".join(c.ljust(w) for c, w in zip(cells, WIDTHS, strict=True)).rstrip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; 2 if there is no GPU or no torch."""
    parser = argparse.ArgumentParser(prog="benchmarks.gemm_kinds", description="GEMMs and torch")
    parser.add_argument("what", nargs="*", default=DEFAULT, help=f"KIND:SIZE of {', '.join(KINDS)}")
    parser.add_argument("--rounds", type=int, default=50, help="timed rounds per kernel")
    parser.add_argument("--sets", type=int, default=4, help="sets of operands")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args(arguments)
    try:
        requirements()
    except (DeviceError, MissingExtra) as error:
        print(f"benchmarks.gemm_kinds: {error}", file=sys.stderr)
        return 2
    facts = environment()
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    print(line(HEADER))
    rows: list[Row] = []
    for what in options.what:
        name, _, size = what.partition(":")
        torch = import_module("torch")
        found = measure(torch, name, int(size), sets=options.sets, rounds=options.rounds)
        print("\n".join(line(row.cells) for row in found), flush=True)
        rows += found
    if options.json:
        figures = {"environment": facts, "rows": [asdict(row) for row in rows]}
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
