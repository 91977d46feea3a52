"""Programs as CUDA C++: one module of rules per instruction family, like ``tilesim.ir.ops``."""

from tilesim.gpu.emit import (
    bar,
    clc,
    cluster,
    cp_async,
    mbarrier,
    scalar,
    tcgen05,
    tile,
    tma,
    wgmma,
)
from tilesim.gpu.emit.emitter import EMIT, Emitter
from tilesim.gpu.emit.kernel import emit
from tilesim.gpu.emit.source import Param, Site, Source

__all__ = [
    "EMIT", "Emitter", "Param", "Site", "Source", "bar", "clc", "cluster", "cp_async", "emit",
    "mbarrier", "scalar", "tcgen05", "tile", "tma", "wgmma",
]  # fmt: skip
