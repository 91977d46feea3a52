"""How each instruction runs; importing this package registers every rule."""

from tilesim.sim.ops import (
    scalar,
)

__all__ = ["scalar"]
