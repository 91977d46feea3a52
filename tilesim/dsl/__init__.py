"""Instruction namespaces of the builder: ``k.mbarrier``, ``k.tma``, ``k.bulk``, ``k.wgmma``...

Each method appends one PTX instruction; its docstring is that of the instruction's class, where the
rules are.
"""

from tilesim.dsl.compute import MemoryOps, WgmmaOps
from tilesim.dsl.copies import BulkOps, CpAsyncOps, TmaOps
from tilesim.dsl.mbarrier import MbarrierOps
from tilesim.dsl.methods import recorded, records
from tilesim.dsl.sync import BarOps, ClusterOps, FenceOps, GriddepOps
from tilesim.dsl.tcgen05 import ClcOps, Tcgen05Ops
from tilesim.dsl.tile import TileOps

__all__ = [
    "BarOps",
    "BulkOps",
    "ClcOps",
    "ClusterOps",
    "CpAsyncOps",
    "FenceOps",
    "GriddepOps",
    "MbarrierOps",
    "MemoryOps",
    "Tcgen05Ops",
    "TileOps",
    "TmaOps",
    "WgmmaOps",
    "recorded",
    "records",
]
