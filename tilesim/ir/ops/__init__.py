"""The instruction families; importing this package registers every instruction."""

from tilesim.ir.ops import (
    address,
    bar,
    bulk,
    clc,
    cluster,
    cp_async,
    fence,
    hints,
    matrix,
    mbarrier,
    mma_sync,
    multimem,
    scalar,
    tcgen05,
    tcgen05_mma,
    tensormap,
    tile,
    tma,
    vector,
    warp,
    wgmma,
)

__all__ = [
    "address", "bar", "bulk", "clc", "cluster", "cp_async", "fence", "hints", "matrix", "mbarrier",
    "mma_sync", "multimem", "scalar", "tcgen05", "tcgen05_mma", "tensormap", "tile", "tma",
    "vector", "warp", "wgmma",
]  # fmt: skip
