"""Programs as CUDA C++: one module of rules per instruction family, like ``tilesim.ir.ops``."""

from tilesim.gpu.emit.emitter import Param, Site, Source
from tilesim.gpu.emit.kernel import emit
from tilesim.gpu.emit.rules import EMIT

__all__ = ["EMIT", "Param", "Site", "Source", "emit"]
