"""The instruction families; importing this package registers every instruction."""

from tilesim.ir.ops import (
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
