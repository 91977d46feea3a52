"""How each instruction is written; importing this module registers every family's rules."""

from tilesim.gpu.emit import (
    bar,
    clc,
    cp_async,
    mbarrier,
    scalar,
    tcgen05,
    tensormap,
    tile,
    tma,
    wgmma,
)
from tilesim.gpu.emit.emitter import EMIT, Emitter
from tilesim.gpu.emit.spelled import spell
from tilesim.gpu.emit.watch import blocking
from tilesim.ir.op import Op

__all__ = [
    "EMIT", "bar", "clc", "cp_async", "mbarrier", "scalar", "tcgen05", "tensormap", "tile", "tma",
    "wgmma", "write",
]  # fmt: skip


def write(e: Emitter, op: Op) -> None:
    """Writes an instruction: as its family's rule says, or as it is spelled."""
    with blocking(e, op):
        if type(op) in EMIT:
            EMIT[type(op)](e, op)
        else:
            spell(e, op)
