#!/usr/bin/env python3
"""What a check costs as kernels get longer: the tutorial's pipeline over its number of tiles.

    python -m benchmarks.streams [--tiles 2000,4000,8000,16000]

Every tile is a store of its own to global memory. Times are CPU seconds of this process, the best
of two; what counts is the ratio of neighbours within one run, which is 2 where costs are linear.
"""

from __future__ import annotations

import time

import click

from examples import pipeline
from tilesim.checker import check


def seconds(tiles: int) -> float:
    """CPU seconds of one check of the tutorial's kernel with so many tiles."""
    pipeline.TILES = tiles
    program = pipeline.pipeline.build(fixed=True)
    start = time.process_time()
    report = check(program)
    spent = time.process_time() - start
    assert report.verdict == "proved", report
    return spent


@click.command()
@click.option("--tiles", default="2000,4000,8000,16000", help="Numbers of tiles, ascending.")
def main(tiles: str) -> None:
    """Prints seconds per number of tiles, and the ratio to the row before."""
    before = None
    for count in map(int, tiles.split(",")):
        spent = min(seconds(count) for _ in range(2))
        ratio = "" if before is None else f"  {spent / before:5.2f}"
        click.echo(f"{count:8} tiles  {spent:8.2f} s{ratio}")
        before = spent


if __name__ == "__main__":
    main()
