#!/usr/bin/env python3
"""What checking whole grids costs, by the number of CTAs.

    python -m benchmarks.grids [--full]

Times are CPU seconds of this process; look at the ratios within one run. ``same bytes``: two CTAs
store to the same tile and the check fails; the column ``more`` is against one CTA of that kernel.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import click

from tilesim.arith.types import f32
from tilesim.checker import Report, check
from tilesim.dsl.builder import Builder
from tilesim.ir.expr import select
from tilesim.ir.program import Program, Verdict
from tilesim.kernels.hopper import matmul_v7

ROWS, COLUMNS = 16, 32


@dataclass(frozen=True)
class Row:
    """One measurement: CPU seconds, and how many of the CTAs were run."""

    name: str
    ctas: int
    ran: int
    verdict: Verdict
    seconds: float


def tiles(ctas: int, *, twice: bool = False) -> Program:
    """Each CTA stores a tile of C through a tensor map; with ``twice`` the last one the first's."""
    k = Builder("tiles", warps=1)
    k.launch(grid=ctas)
    C = k.tensor("C", f32, (ROWS * ctas, COLUMNS))
    c_map = k.tensor_map(C, (ROWS, COLUMNS))
    tile = k.shared("tile", f32, (ROWS, COLUMNS))
    values = k.fragment("values", f32, (ROWS, COLUMNS))
    k.tile.fill(values, 0)
    k.tile.store(tile[...], values)
    k.fence.proxy_async("shared::cta")
    k.sync_warp()
    at = select(k.cta_x.eq(ctas - 1), 0, k.cta_x) if twice else k.cta_x
    with k.one_thread():
        k.tma.store(c_map, tile, (at * ROWS, 0))
        k.bulk.commit_group()
        k.bulk.wait_group(0)
    return k.finish()


def gemm(size: int, ctas: int = 132) -> Program:
    """The persistent GEMM on square matrices."""
    return matmul_v7.matmul.build(m=size, n=size, depth=size, ctas=ctas, block_n=256)


def measure(name: str, program: Program) -> Row:
    """One row."""
    start = time.process_time()
    report: Report = check(program)
    seconds = time.process_time() - start
    return Row(name, program.ctas, report.stats.ctas, report.verdict, seconds)


def rows(*, full: bool) -> Iterator[Row]:
    """All rows, one after another."""
    yield measure("tiles", tiles(1))
    several: list[tuple[str, Callable[[int], Program]]] = [
        ("tiles", tiles),
        ("same bytes", lambda ctas: tiles(ctas, twice=True)),
    ]
    for name, build in several:
        for ctas in (100, 1_000, 10_000, 100_000):
            yield measure(name, build(ctas))
    yield measure("gemm 2048", gemm(2048, 4))
    for size in (2048, 4096, 8192) if full else (2048,):
        yield measure(f"gemm {size}", gemm(size))


@click.command()
@click.option("--full", is_flag=True, help="Also GEMMs of 4096 and 8192.")
def main(full: bool) -> None:
    """Prints the table."""
    click.echo("kernel         CTAs     run  verdict   seconds    more")
    one: float | None = None
    for row in rows(full=full):
        one = row.seconds if one is None else one
        click.echo(
            f"{row.name:12} {row.ctas:6}  {row.ran:6}  {row.verdict:8}  {row.seconds:7.3f}"
            f"  {row.seconds - one:6.3f}"
        )


if __name__ == "__main__":
    main()
