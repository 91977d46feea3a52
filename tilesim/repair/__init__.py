"""Repairs of a failing program: single edits and pairs, each of them checked.

What is asked and found is here; `tilesim.repair.suggest` searches, and is loaded for a failure.
"""

from tilesim.repair.repairs import (
    DEFAULT_TIME,
    Change,
    Mendable,
    Repair,
    Repairs,
    Trial,
    Wanted,
)

__all__ = ["DEFAULT_TIME", "Change", "Mendable", "Repair", "Repairs", "Trial", "Wanted"]
