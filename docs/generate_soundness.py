"""Writes the tables of ``docs/soundness.md`` and ``benchmarks/campaigns.md``:
``python -m docs.generate_soundness``.

What proofs assume comes from `tilesim.checker.assumptions`, every recorded campaign of random
programs from ``benchmarks/campaigns.json``. A test compares the pages with this output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from docs.regions import replaced
from tilesim.checker.assumptions import ASSUMPTIONS

PAGE = Path(__file__).parent / "soundness.md"
RECORD = PAGE.parents[1] / "benchmarks" / "campaigns.json"
CAMPAIGNS = RECORD.with_suffix(".md")


def page(text: str) -> str:
    """The page with what a proof may assume."""
    rows = ["| name | what is assumed |", "|---|---|"]
    rows += [f"| `{name}` | {sentence} |" for name, sentence in ASSUMPTIONS.items()]
    return replaced(text, "assumptions", "\n".join(rows) + "\n")


def campaigns(text: str) -> str:
    """The page with a row per campaign: programs of all runs, contradictions, and the last run."""
    return replaced(text, "campaigns", _table(json.loads(RECORD.read_text())))


def _table(record: dict[str, Any]) -> str:
    rows = [
        "| campaign | compares | programs | contradictions | in the last run |",
        "|---|---|--:|--:|---|",
    ]
    for name, campaign in record.items():
        runs = campaign["runs"]
        programs, wrong = (sum(run[key] for run in runs) for key in ("programs", "contradictions"))
        last = runs[-1]
        rows.append(
            f"| `{name}` | {campaign['compares']} | {programs:,} | {wrong} | "
            f"{last['contradictions']} of {last['programs']:,} |"
        )
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    CAMPAIGNS.write_text(campaigns(CAMPAIGNS.read_text()))
