"""Programs as CUDA C++: one module of rules per instruction family, like ``tilesim.ir.ops``."""

from tilesim.gpu.emit.kernel import emit
from tilesim.gpu.emit.rules import EMIT
from tilesim.gpu.emit.source import Param, Site, Source

__all__ = ["EMIT", "Param", "Site", "Source", "emit"]
