"""Where the clusters of a grid lie: their CTAs, one cluster at a time and all of them as arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilesim.ir.program import Program

Integers = NDArray[np.int64]


def cluster_count(program: Program) -> int:
    """Clusters in the grid."""
    return program.ctas // program.cluster_size


def cluster_ctas(program: Program, index: int) -> tuple[int, ...]:
    """CTA numbers of a cluster in rank order (x fastest), D7."""
    gx, gy, _ = program.grid
    return tuple(
        x + gx * (y + gy * z)
        for x, y, z in (_coordinates(program, index, r) for r in range(program.cluster_size))
    )


def cta_coordinates(
    program: Program, clusters: Integers, rank: int
) -> tuple[Integers, Integers, Integers]:
    """``cta_x``, ``cta_y`` and ``cta_z`` of the CTAs of this rank, one per cluster."""
    wide, high, depth = _place(program, clusters)
    x, y, z = _within(program, rank)
    cx, cy, cz = program.cluster
    return wide * cx + x, high * cy + y, depth * cz + z


def _coordinates(program: Program, index: int, rank: int) -> tuple[int, int, int]:
    x, y, z = cta_coordinates(program, np.array([index], dtype=np.int64), rank)
    return int(x[0]), int(y[0]), int(z[0])


def _place(program: Program, clusters: Integers) -> tuple[Integers, Integers, Integers]:
    (gx, gy, _), (cx, cy, _) = program.grid, program.cluster
    wide, high = gx // cx, gy // cy
    return clusters % wide, clusters // wide % high, clusters // (wide * high)


def _within(program: Program, rank: int) -> tuple[int, int, int]:
    cx, cy, _ = program.cluster
    return rank % cx, rank // cx % cy, rank // (cx * cy)
