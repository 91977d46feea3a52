"""How each instruction runs; importing this package registers every rule."""

from tilesim.sim.ops import (
    scalar,
    tcgen05,
    tcgen05_alloc,
    tile,
)

__all__ = [
    "scalar", "tcgen05", "tcgen05_alloc", "tile",
]  # fmt: skip
