"""All pairs of programs: each of these files adds its own to the list when it is imported."""

from __future__ import annotations

from tests.kernel import (
    programs,
    programs_classes,
    programs_counters,
    programs_data,
    programs_edges,
    programs_numbers,
    programs_ptx,
)
from tests.kernel.programs import PAIRS

__all__ = ["FILES", "PAIRS"]

FILES = (programs, programs_ptx, programs_edges, programs_data, programs_counters,
         programs_numbers, programs_classes)  # fmt: skip
