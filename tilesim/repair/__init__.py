"""Repairs of a failing program: single edits and pairs, each of them checked."""

from tilesim.mistakes.edits import Patch
from tilesim.repair.mend import (
    DEFAULT_TIME,
    Change,
    Mendable,
    Repair,
    Repairs,
    Wanted,
    suggest,
)
from tilesim.repair.search import Trial

__all__ = [
    "DEFAULT_TIME", "Change", "Mendable", "Patch", "Repair", "Repairs", "Trial", "Wanted",
    "suggest",
]  # fmt: skip
