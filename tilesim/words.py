"""Words that messages share."""

from __future__ import annotations


def count(number: int, what: str) -> str:
    """``1 schedule``, ``2,000 schedules``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
