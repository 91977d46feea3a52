"""cuTile: the matrix product of the tests, alone and by pairs of CTAs."""

from __future__ import annotations

from collections.abc import Iterator

import tilesim.cutile as tc
from tests.cutile.test_check import launch


def kernels() -> Iterator[tuple[str, str]]:
    """By target, CTAs of a cluster and rows of a tile."""
    for target in ("sm_90a", "sm_100a"):
        for ctas in (1, 2):
            for rows in (64, 128, 256):
                for found in tc.record(launch, ctas, rows, target=target):
                    yield f"product_{target}_ctas={ctas}_rows={rows}", found.ptx
