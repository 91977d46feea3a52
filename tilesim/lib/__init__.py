"""Building blocks of kernels: rings of stages, tensor memory, schedules of tiles, beginnings.

They record what a kernel would otherwise write by hand, instruction for instruction; findings name
the kernel's lines. What each guarantees if it is used as its documentation says is tested, and so
is what `tilesim.check` says where it is not.
"""

from tilesim.lib.opening import open_cluster, open_cta
from tilesim.lib.pipeline import Cursor, Pipeline, Slot
from tilesim.lib.schedule import Grouped, GroupTile, Stealing, Striding, rasterised
from tilesim.lib.tensor_memory import TensorMemory, multiply_tile

__all__ = [
    "Cursor", "GroupTile", "Grouped", "Pipeline", "Slot", "Stealing", "Striding", "TensorMemory",
    "multiply_tile", "open_cluster", "open_cta", "rasterised",
]  # fmt: skip
