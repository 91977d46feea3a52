"""How each instruction runs; importing this package registers every rule."""

from tilesim.sim.ops import (
    bar,
    cluster,
    cp_async,
    fence,
    mbarrier,
    scalar,
    tile,
    tma,
    wgmma,
)

__all__ = ["bar", "cluster", "cp_async", "fence", "mbarrier", "scalar", "tile", "tma", "wgmma"]
