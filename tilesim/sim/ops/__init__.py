"""How each instruction runs; importing this package registers every rule."""

from tilesim.sim.ops import (
    scalar,
    tile,
)

__all__ = [
    "scalar", "tile",
]  # fmt: skip
