"""How each instruction is written; importing this module registers every family's rules."""

from tilesim.gpu.emit import (
    bar,
    clc,
    cluster,
    cp_async,
    mbarrier,
    scalar,
    tcgen05,
    tensormap,
    tile,
    tma,
    wgmma,
)
from tilesim.gpu.emit.emitter import EMIT

__all__ = [
    "EMIT", "bar", "clc", "cluster", "cp_async", "mbarrier", "scalar", "tcgen05", "tensormap",
    "tile", "tma",
    "wgmma",
]  # fmt: skip
