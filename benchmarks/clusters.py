"""What checking a multicast GEMM in 2x2 clusters costs: ``python benchmarks/clusters.py``.

Prints one row per number of iterations and of CTAs. The cost per executed warp instruction, and so
the cost per CTA, should stay the same down the table.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from time import perf_counter

from tilesim.checker import check
from tilesim.kernels.cluster.matmul import matmul

ITERATIONS = (16, 64)
CLUSTERS = (1, 2, 4, 8)
HEADER = ("iterations", "CTAs", "instructions", "seconds", "us/instruction", "verdict")


@dataclass(frozen=True)
class Row:
    """One measurement: the fastest of several checks."""

    iterations: int
    ctas: int
    instructions: int
    seconds: float
    verdict: str

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of `HEADER`."""
        cost = 1e6 * self.seconds / self.instructions
        return (
            str(self.iterations), str(self.ctas), str(self.instructions), f"{self.seconds:.3f}",
            f"{cost:.1f}", self.verdict,
        )  # fmt: skip


def measure(iterations: int, clusters: int, repeat: int) -> Row:
    """Checks the 2x2 multicast GEMM ``repeat`` times and keeps the fastest."""
    program = matmul.build(columns=2, rows=2, iterations=iterations, clusters=clusters)
    best, stats, verdict = float("inf"), None, ""
    for _ in range(repeat):
        start = perf_counter()
        report = check(program)
        best = min(best, perf_counter() - start)
        stats, verdict = report.stats, report.verdict
    assert stats is not None
    return Row(iterations, stats.ctas, stats.instructions, best, verdict)


def main() -> None:
    """Measures all rows and prints them as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="checks per row (default 3)")
    repeat = max(1, parser.parse_args().repeat)
    print("  ".join(f"{name:>14}" for name in HEADER))
    for iterations in ITERATIONS:
        for clusters in CLUSTERS:
            row = measure(iterations, clusters, repeat)
            print("  ".join(f"{cell:>14}" for cell in row.cells), flush=True)


if __name__ == "__main__":
    main()
