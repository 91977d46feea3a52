"""Instruction namespaces of the builder: ``k.mbarrier``, ``k.tma``, ``k.bulk``, ``k.wgmma``...

Each method appends one PTX instruction; its docstring is that of the instruction's class, where the
rules are.
"""

from tilesim.ir.dsl.common import recorded, records
from tilesim.ir.dsl.compute import MemoryOps, WgmmaOps
from tilesim.ir.dsl.copies import BulkOps, CpAsyncOps, TmaOps
from tilesim.ir.dsl.mbarrier import MbarrierOps
from tilesim.ir.dsl.sync import BarOps, ClusterOps, FenceOps, GriddepOps
from tilesim.ir.dsl.tcgen05 import ClcOps, Tcgen05Ops
from tilesim.ir.dsl.tile import TileOps

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
