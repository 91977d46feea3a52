"""All trials."""

from __future__ import annotations

from . import chance, counts, lanes
from .trial import TRIALS, Trial

SECTIONS = (lanes, counts, chance)


def all_trials() -> tuple[Trial, ...]:
    """The trials of every section."""
    return tuple(TRIALS)
