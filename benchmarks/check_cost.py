#!/usr/bin/env python3
"""What a check costs: the two-consumer Hopper GEMM over trip counts and CTAs.

    python -m benchmarks.check_cost [--quick] [--json FILE]

Times are CPU seconds of this process, the best of three; ratios within one run are what to look at.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np

from tilesim.arith.types import numpy_dtype
from tilesim.checker import check
from tilesim.ir.program import Program
from tilesim.kernels.hopper import matmul_v5
from tilesim.sim.machine.simulate import Simulation, simulate

ITERATIONS = (16, 64, 256, 1024)
CTAS = (1, 4, 16)
#: with numbers the operands of the largest case alone take a gigabyte
_MAX_NUMBERS = 4096


@dataclass(frozen=True)
class Row:
    """One measurement: seconds in all, and of the simulated run alone (compiled before)."""

    mode: str
    ctas: int
    iterations: int
    instructions: int
    seconds: float
    simulation: float
    peak_mib: float

    @property
    def per_instruction(self) -> float:
        """Microseconds per simulated warp instruction."""
        return 1e6 * self.simulation / self.instructions

    @property
    def per_iteration(self) -> float:
        """Microseconds per K iteration and CTA."""
        return 1e6 * self.simulation / (self.iterations * self.ctas)


def build(iterations: int, ctas: int) -> Program:
    """The GEMM with four stages."""
    return matmul_v5.matmul.build(stages=4, iterations=iterations, ctas=ctas)


def best_of(function: Callable[[], int], times: int) -> tuple[float, int]:
    """CPU seconds of the fastest call, and what it returned."""
    seconds, value = float("inf"), 0
    for _ in range(times):
        start = time.process_time()
        value = function()
        seconds = min(seconds, time.process_time() - start)
    return seconds, value


def peak_mib(function: Callable[[], int]) -> float:
    """Peak of Python's allocations during a call, in MiB."""
    tracemalloc.start()
    function()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / (1 << 20)


def protocol(program: Program) -> int:
    """A check: one run without numbers, and the certificate."""
    report = check(program)
    assert report.verdict == "proved", report
    return report.stats.instructions


def numbers(program: Program) -> int:
    """A run with numbers."""
    rng = np.random.default_rng(0)
    inputs = {
        t.name: rng.integers(-3, 4, t.shape).astype(numpy_dtype(t.dtype)) for t in program.tensors
    }
    run = simulate(program, inputs)
    assert not run.findings, run.findings
    return run.stats.instructions


MODES: dict[str, Callable[[Program], int]] = {"protocol": protocol, "numbers": numbers}


def measure(mode: str, iterations: int, ctas: int) -> Row:
    """One row of the table."""
    program = build(iterations, ctas)
    work = MODES[mode]
    seconds, instructions = best_of(lambda: work(program), 3)
    simulation = Simulation(program, numbers=mode == "numbers", strict="practice")
    alone, _ = best_of(lambda: simulation.run({}, timed).stats.instructions, 3)
    memory = peak_mib(lambda: work(program)) if iterations * ctas <= 1024 else float("nan")
    return Row(mode, ctas, iterations, instructions, seconds, alone, memory)


def timed(cluster: int) -> None:
    """The timed policy, for every cluster."""


@click.command()
@click.option("--quick", is_flag=True, help="Only 16 and 64 iterations, 1 and 4 CTAs.")
@click.option("--json", "target", type=click.Path(dir_okay=False), help="Also write the rows here.")
def main(quick: bool, target: str | None) -> None:
    """Prints the table."""
    rows = []
    click.echo(
        "mode      CTAs  iterations  instructions  seconds  simulation  us/instr  us/iter/CTA"
        "  peak MiB"
    )
    for mode in MODES:
        for ctas in CTAS[:2] if quick else CTAS:
            for iterations in ITERATIONS[:2] if quick else ITERATIONS:
                if mode == "numbers" and iterations * ctas > _MAX_NUMBERS:
                    continue
                row = measure(mode, iterations, ctas)
                rows.append(row)
                click.echo(
                    f"{row.mode:9} {row.ctas:4}  {row.iterations:10}  {row.instructions:12}"
                    f"  {row.seconds:7.3f}  {row.simulation:10.3f}  {row.per_instruction:8.2f}"
                    f"  {row.per_iteration:11.1f}  {row.peak_mib:8.1f}"
                )
    if target is not None:
        Path(target).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
