"""Programs as models for other tools: Promela, for the model checker SPIN."""

from tilesim.export.errors import NotExportable
from tilesim.export.promela import to_promela

__all__ = ["NotExportable", "to_promela"]
