"""How each instruction runs; importing this package registers every rule."""

from tilesim.sim.ops import (
    bar,
    clc,
    cluster,
    cp_async,
    mbarrier,
    mbarrier_wait,
    scalar,
    setmaxnreg,
    tcgen05,
    tcgen05_alloc,
    tile,
    tma,
    wgmma,
)

__all__ = [
    "bar", "clc", "cluster", "cp_async", "mbarrier", "mbarrier_wait", "scalar",
    "setmaxnreg", "tcgen05", "tcgen05_alloc", "tile", "tma", "wgmma",
]  # fmt: skip
