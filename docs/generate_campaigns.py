"""Writes the table of ``docs/soundness/campaigns.md``: ``python -m docs.generate_campaigns``.

``benchmarks/campaigns.json`` has every recorded campaign of random programs. A test compares the
page with this output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent / "soundness" / "campaigns.md"
RECORD = Path(__file__).parents[1] / "benchmarks" / "campaigns.json"
#: between these, the page is generated
BEGIN, END = "<!-- generated: campaigns -->\n", "<!-- end: campaigns -->\n"


def page(text: str) -> str:
    """The page with the table of what is recorded."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{table(json.loads(RECORD.read_text()))}{END}{tail}"


def table(record: dict[str, Any]) -> str:
    """A row per campaign: programs of all runs, contradictions, and the last run."""
    lines = [
        "| campaign | compares | programs | contradictions | last run | of these |",
        "|---|---|--:|--:|---|--:|",
    ]
    for name, campaign in record.items():
        runs = campaign["runs"]
        programs, wrong = (sum(run[key] for run in runs) for key in ("programs", "contradictions"))
        last = runs[-1]
        lines.append(
            f"| `{name}` | {campaign['compares']} | {programs:,} | {wrong} | "
            f"{last['date']}: {last['programs']:,} | {last['contradictions']} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
