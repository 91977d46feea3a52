"""Instruction namespaces of the builder: ``k.mbarrier``, ``k.tma``, ``k.bulk``, ``k.wgmma``...

Each method appends one PTX instruction; the class docstring of the instruction has the rules.
"""

from tilesim.ir.dsl.compute import MemoryOps, TileOps, WgmmaOps
from tilesim.ir.dsl.copies import BulkOps, CpAsyncOps, TmaOps
from tilesim.ir.dsl.mbarrier import MbarrierOps
from tilesim.ir.dsl.sync import BarOps, ClusterOps, FenceOps, GriddepOps

__all__ = [
    "BarOps",
    "BulkOps",
    "ClusterOps",
    "CpAsyncOps",
    "FenceOps",
    "GriddepOps",
    "MbarrierOps",
    "MemoryOps",
    "TileOps",
    "TmaOps",
    "WgmmaOps",
]
