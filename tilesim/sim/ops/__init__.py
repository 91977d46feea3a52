"""How each instruction runs; importing this package registers every rule."""

from tilesim.sim.ops import (
    clc,
    cluster,
    cp_async,
    scalar,
    tcgen05,
    tcgen05_alloc,
    tile,
    wgmma,
)

__all__ = [
    "clc", "cluster", "cp_async", "scalar", "tcgen05", "tcgen05_alloc", "tile", "wgmma",
]  # fmt: skip
