#!/usr/bin/env python3
"""What a check costs where the run repeats itself: it does not grow with the trip count.

    python -m benchmarks.steady [--json FILE]

Times are CPU seconds of this process, the best of three; ratios within one run are what to look at.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from tilesim.checker import check
from tilesim.ir.program import Program
from tilesim.kernels.blackwell import matmul_v3
from tilesim.kernels.cluster import matmul as cluster
from tilesim.kernels.hopper import attention, copy, matmul_v5

#: kernels by name: how to build them with so many turns
KERNELS = {
    "hopper.matmul_v5": lambda n: matmul_v5.matmul.build(iterations=n, ctas=1),
    "hopper.attention": lambda n: attention.attention.build(keys=128 * n, queries=128, heads=1),
    "cluster.matmul": lambda n: cluster.matmul.build(iterations=n),
    "blackwell.matmul_v3": lambda n: matmul_v3.matmul.build(depth=64 * n, m=128, n=64),
    # each turn writes somewhere else in global memory, at a place of its own
    "hopper.copy": lambda n: copy.vector.build(n=256 * n, ctas=1),
}


@dataclass(frozen=True)
class Row:
    """One kernel: seconds, and MiB at most, of a check of so many turns."""

    kernel: str
    turns: int
    skips: bool
    verdict: str
    seconds: float
    peak_mib: float


def measure(name: str, turns: int, *, skips: bool, times: int) -> Row:
    """One check, the best of some."""
    program: Program = KERNELS[name](turns)
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        report = check(program, skip=skips, schedules=0)
        best = min(best, time.process_time() - start)
    peak = 0.0
    if skips:
        tracemalloc.start()
        check(program, skip=skips, schedules=0)
        peak = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
    return Row(name, turns, skips, report.verdict, best, peak)


@click.command()
@click.option("--json", "path", type=click.Path(path_type=Path), help="Also write the rows here.")
@click.option("--times", default=3, show_default=True, help="Repetitions of each measurement.")
def main(path: Path | None, times: int) -> None:
    """Measure checks of 1,000 and 1,000,000 turns, and of 1,000 without leaving any out."""
    rows: list[Row] = []
    click.echo(
        f"{'kernel':<22}{'1,000':>9}{'all':>9}{'ratio':>8}{'1,000,000':>11}{'ratio':>8}{'MiB':>7}"
    )
    for name in KERNELS:
        few = measure(name, 1_000, skips=True, times=times)
        every = measure(name, 1_000, skips=False, times=1)
        rows += [few, every]
        text = (
            f"{name:<22}{few.seconds:>9.3f}{every.seconds:>9.3f}{few.seconds / every.seconds:>8.2f}"
        )
        many = measure(name, 1_000_000, skips=True, times=times)
        rows.append(many)
        ratio = many.seconds / few.seconds
        text += f"{many.seconds:>11.3f}{ratio:>8.2f}{many.peak_mib:>7.1f}"
        click.echo(text)
    if path is not None:
        path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
