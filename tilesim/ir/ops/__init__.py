"""The instruction families; importing this package registers every instruction."""

from tilesim.ir.ops import (
    bar,
    clc,
    cluster,
    cp_async,
    fence,
    mbarrier,
    scalar,
    tcgen05,
    tcgen05_data,
    tile,
    tma,
    warp,
    wgmma,
)

__all__ = [
    "bar", "clc", "cluster", "cp_async", "fence", "mbarrier", "scalar", "tcgen05",
    "tcgen05_data", "tile", "tma", "warp", "wgmma",
]  # fmt: skip
