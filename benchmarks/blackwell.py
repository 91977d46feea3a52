#!/usr/bin/env python3
"""What a check of Blackwell kernels costs: the warp-specialised GEMM over trip counts, attention.

    python -m benchmarks.blackwell [--quick]

Times are CPU seconds of this process, the best of three; ratios within one run are what to look at.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import click

from benchmarks.check_cost import ITERATIONS, best_of, protocol
from tilesim.ir.program import Program
from tilesim.kernels.blackwell import attention, matmul_v3, matmul_v4
from tilesim.kernels.blackwell.matmul_v3 import BLOCK_K, BLOCK_M


def gemm(iterations: int) -> Program:
    """One output tile by a TMA warp and an MMA warp with four stages."""
    return matmul_v3.matmul.build(m=BLOCK_M, n=64, depth=BLOCK_K * iterations, stages=4)


def persistent(iterations: int) -> Program:
    """A persistent CTA with epilogue warps; 16 k tiles per output tile."""
    tiles = max(iterations // 16, 1)
    return matmul_v4.matmul.build(m=BLOCK_M * tiles, n=64, depth=BLOCK_K * 16, ctas=1)


def flash_attention(iterations: int) -> Program:
    """One CTA: 256 queries against ``iterations`` blocks of 128 keys."""
    return attention.attention.build(queries=256, keys=128 * iterations, heads=1)


KERNELS: dict[str, Callable[[int], Program]] = {
    "gemm": gemm, "persistent": persistent, "attention": flash_attention,
}  # fmt: skip


@click.command()
@click.option("--quick", is_flag=True, help="Only 16 and 64 iterations.")
def main(quick: bool) -> None:
    """Prints the table."""
    click.echo("kernel      iterations  instructions  seconds  us/instr  ms/iter")
    for name, build in KERNELS.items():
        for iterations in ITERATIONS[:2] if quick else ITERATIONS:
            program = build(iterations)
            seconds, instructions = best_of(partial(protocol, program), 3)
            click.echo(
                f"{name:10}  {iterations:10}  {instructions:12}  {seconds:7.3f}"
                f"  {1e6 * seconds / instructions:8.2f}  {1e3 * seconds / iterations:7.2f}"
            )


if __name__ == "__main__":
    main()
